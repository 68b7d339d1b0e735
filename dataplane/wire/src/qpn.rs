//! Queue pair numbers.

use core::fmt;

/// Queue pair number, 24 bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Qpn(u32);

impl Qpn {
    /// QP 1, the general services interface, which receives connection management messages.
    pub const GSI: Qpn = Qpn(1);

    /// Destination of every multicast UD packet.
    pub const MULTICAST: Qpn = Qpn(0xff_ffff);

    /// A QPN of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Qpn {
        Qpn(value & 0xff_ffff)
    }

    /// The number, 0..=2^24 − 1.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_24_bits_and_print_as_six_digits() {
        assert_eq!(Qpn::new(0xff00_0011), Qpn::new(0x11));
        assert_eq!(Qpn::new(u32::MAX), Qpn::MULTICAST);
        assert_eq!(Qpn::GSI.value(), 1);
        assert_eq!(format!("{:?} {}", Qpn::new(0x11), Qpn::MULTICAST), "0x000011 0xffffff");
    }
}
