//! RDETH, the reliable datagram extended transport header.
//!
//! Read first: IBA 9.3.

use crate::bytes::{be24, put24};

/// The reliable datagram extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rdeth {
    /// Number of the end-to-end context at the receiver, 24 bits.
    pub eecn: u32,
}

impl Rdeth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the header; byte 0 is reserved.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Rdeth {
        Rdeth { eecn: be24(b, 1) }
    }

    /// Writes the header, with the low 24 bits of `eecn`.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = 0;
        put24(b, 1, self.eecn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Rdeth::LEN;

    fn parse(b: &[u8; LEN]) -> Rdeth {
        Rdeth::parse(b)
    }

    crate::testing::header_tests! {
        Rdeth { eecn: 0x01_2345 },
        bytes: [0, 0x01, 0x23, 0x45],
        reserved: [0xff, 0, 0, 0]
    }
}
