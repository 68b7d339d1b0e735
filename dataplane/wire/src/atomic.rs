//! AtomicETH and AtomicAckETH: the operands of a 64-bit atomic operation, and its result.
//!
//! Read first: IBA 9.3.

use crate::bytes::{be32, be64, put};
use crate::{Rkey, Va};

/// The atomic extended transport header of a CmpSwap or FetchAdd request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicEth {
    /// Address of the responder's eight bytes; a multiple of 8 in a valid request.
    pub va: Va,
    /// R_Key of the responder's memory.
    pub rkey: Rkey,
    /// CmpSwap: the value to store. FetchAdd: the value to add.
    pub swap_add: u64,
    /// CmpSwap: the value to compare with. FetchAdd: not used.
    pub compare: u64,
}

impl AtomicEth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 28;

    /// Reads the header; every bit pattern is valid.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> AtomicEth {
        AtomicEth {
            va: Va(be64(b, 0)),
            rkey: Rkey(be32(b, 8)),
            swap_add: be64(b, 12),
            compare: be64(b, 20),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, self.va.0.to_be_bytes());
        put(b, 8, self.rkey.0.to_be_bytes());
        put(b, 12, self.swap_add.to_be_bytes());
        put(b, 20, self.compare.to_be_bytes());
    }
}

/// The atomic acknowledge extended transport header: the result of an atomic operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// Value of the responder's eight bytes before the operation.
    pub original: u64,
}

impl AtomicAckEth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 8;

    /// Reads the header; every bit pattern is valid.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> AtomicAckEth {
        AtomicAckEth { original: be64(b, 0) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, self.original.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    mod atomic_eth {
        use crate::atomic::*;

        const LEN: usize = AtomicEth::LEN;

        fn parse(b: &[u8; LEN]) -> AtomicEth {
            AtomicEth::parse(b)
        }

        crate::testing::header_tests! {
            AtomicEth {
                va: Va(0x0123_4567_89ab_cde8),
                rkey: Rkey(0xfedc_ba98),
                swap_add: 0x1122_3344_5566_7788,
                compare: 0x99aa_bbcc_ddee_ff00,
            },
            bytes: *b"\x01\x23\x45\x67\x89\xab\xcd\xe8\xfe\xdc\xba\x98\
                \x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff\x00",
            reserved: [0; LEN]
        }
    }

    mod atomic_ack_eth {
        use crate::atomic::*;

        const LEN: usize = AtomicAckEth::LEN;

        fn parse(b: &[u8; LEN]) -> AtomicAckEth {
            AtomicAckEth::parse(b)
        }

        crate::testing::header_tests! {
            AtomicAckEth { original: 0x0123_4567_89ab_cdef },
            bytes: [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef],
            reserved: [0; LEN]
        }
    }
}
