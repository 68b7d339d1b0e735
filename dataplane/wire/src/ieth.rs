//! IETH, the invalidate extended transport header: the key that a SEND with Invalidate revokes.
//!
//! Read first: IBA 9.3.

use crate::Rkey;

/// The invalidate extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ieth {
    /// R_Key of the receiver to invalidate.
    pub rkey: Rkey,
}

impl Ieth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the header; every bit pattern is valid.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Ieth {
        Ieth { rkey: Rkey(u32::from_be_bytes(*b)) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        *b = self.rkey.0.to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Ieth::LEN;

    fn parse(b: &[u8; LEN]) -> Ieth {
        Ieth::parse(b)
    }

    crate::testing::header_tests! {
        Ieth { rkey: Rkey(0x0123_4567) },
        bytes: [0x01, 0x23, 0x45, 0x67],
        reserved: [0; LEN]
    }
}
