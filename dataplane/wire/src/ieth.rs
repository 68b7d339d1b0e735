//! IETH, the invalidate extended transport header: the key a SEND with Invalidate revokes.

use crate::Rkey;

/// The invalidate extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ieth {
    /// The receiver's key to invalidate.
    pub rkey: Rkey,
}

impl Ieth {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// Reads the header; every bit pattern is one.
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
