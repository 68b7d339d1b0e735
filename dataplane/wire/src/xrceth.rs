//! XRCETH, the extended reliable connection header: the shared receive queue of an XRC request.
//!
//! Read first: IBA Annex A14.

use crate::bytes::{be24, put24};

/// The XRC extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xrceth {
    /// Number of the shared receive queue at the receiver, 24 bits.
    pub srqn: u32,
}

impl Xrceth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the header; byte 0 is reserved.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Xrceth {
        Xrceth { srqn: be24(b, 1) }
    }

    /// Writes the header, with the low 24 bits of `srqn`.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = 0;
        put24(b, 1, self.srqn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Xrceth::LEN;

    fn parse(b: &[u8; LEN]) -> Xrceth {
        Xrceth::parse(b)
    }

    crate::testing::header_tests! {
        Xrceth { srqn: 0x01_2345 },
        bytes: [0, 0x01, 0x23, 0x45],
        reserved: [0xff, 0, 0, 0]
    }
}
