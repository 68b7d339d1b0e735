//! XRCETH, the extended reliable connection header: the shared receive queue of an XRC request.
//!
//! Read first: IBA Annex A14.

use core::fmt;

use crate::bytes::{be24, put24};

/// Number of an XRC shared receive queue, 24 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Srqn(u32);

impl Srqn {
    /// The number of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Srqn {
        Srqn(value & 0xff_ffff)
    }

    /// The number, 0..=2^24 − 1.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

impl fmt::Display for Srqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The XRC extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xrceth {
    /// Number of the shared receive queue at the receiver.
    pub srqn: Srqn,
}

impl Xrceth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the header; byte 0 is reserved.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Xrceth {
        Xrceth { srqn: Srqn::new(be24(b, 1)) }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        b[0] = 0;
        put24(b, 1, self.srqn.value());
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
        Xrceth { srqn: Srqn::new(0x01_2345) },
        bytes: [0, 0x01, 0x23, 0x45],
        reserved: [0xff, 0, 0, 0]
    }

    #[test]
    fn numbers_keep_24_bits_and_print_as_six_digits() {
        assert_eq!(Srqn::new(0xff00_0011).value(), 0x11);
        assert_eq!(format!("{:?} {}", Srqn::new(0x11), Srqn::default()), "0x000011 0x000000");
    }
}
