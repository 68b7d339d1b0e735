//! RETH, the RDMA extended transport header: the remote memory that a WRITE or READ accesses.
//!
//! Read first: IBA 9.3.

use crate::bytes::{be32, be64, put};
use crate::{Rkey, Va};

/// The RDMA extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reth {
    /// Address of the first byte at the responder.
    pub va: Va,
    /// R_Key of the responder's memory.
    pub rkey: Rkey,
    /// Length of the whole message (not of this packet) in bytes, 0..=2^31.
    pub dma_len: u32,
}

impl Reth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 16;

    /// Reads the header; every bit pattern is valid.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Reth {
        Reth { va: Va(be64(b, 0)), rkey: Rkey(be32(b, 8)), dma_len: be32(b, 12) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        put(b, 0, self.va.0.to_be_bytes());
        put(b, 8, self.rkey.0.to_be_bytes());
        put(b, 12, self.dma_len.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Reth::LEN;

    fn parse(b: &[u8; LEN]) -> Reth {
        Reth::parse(b)
    }

    crate::testing::header_tests! {
        Reth { va: Va(0x0123_4567_89ab_cdef), rkey: Rkey(0xfedc_ba98), dma_len: 0x7654_3210 },
        bytes: *b"\x01\x23\x45\x67\x89\xab\xcd\xef\xfe\xdc\xba\x98\x76\x54\x32\x10",
        reserved: [0; LEN]
    }
}
