//! 24-bit serial numbers: the packet sequence number and the message sequence number.
//!
//! Read first: IBA 9.2 (PSN) and 9.3 (MSN).
//!
//! Invariants
//! - A value never exceeds 2^24 − 1; all arithmetic wraps there.
//! - There is no `Ord`: serial numbers have no smallest element, only a signed distance. Two
//!   numbers exactly 2^23 apart are each before the other; windows stay smaller than that.
//!
//! Not here: the role of a PSN (next, unacknowledged, expected); fields of the QP context name it.

const MASK: u32 = 0x00ff_ffff;

/// Packet sequence number, 0..=2^24 − 1 (BTH bytes 9 to 11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// A PSN of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Psn {
        Psn(value & MASK)
    }

    /// The number, 0..=2^24 − 1.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The following PSN; 0 follows 2^24 − 1.
    #[inline]
    pub const fn next(self) -> Psn {
        self.plus(1)
    }

    /// The PSN `packets` later, modulo 2^24.
    #[inline]
    pub const fn plus(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_add(packets))
    }

    /// The PSN `packets` earlier, modulo 2^24.
    #[inline]
    pub const fn minus(self, packets: u32) -> Psn {
        Psn::new(self.0.wrapping_sub(packets))
    }

    /// Signed distance `self - other` in packets, −2^23..=2^23 − 1.
    ///
    /// Shifting the difference to the top of an `i32` and back sign-extends its 24th bit.
    //= check A14 — 0 follows 2^24 − 1 wherever two PSNs are compared.
    #[inline]
    pub const fn distance_from(self, other: Psn) -> i32 {
        ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
    }

    /// Returns whether `self` lies in the 2^23 numbers before `other`.
    #[inline]
    pub const fn is_before(self, other: Psn) -> bool {
        self.distance_from(other) < 0
    }
}

/// Message sequence number, 0..=2^24 − 1: messages that a responder has completed (AETH bytes 1 to
/// 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Msn(u32);

impl Msn {
    /// An MSN of the low 24 bits of `value`.
    #[inline]
    pub const fn new(value: u32) -> Msn {
        Msn(value & MASK)
    }

    /// The number, 0..=2^24 − 1.
    #[inline]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The following MSN; 0 follows 2^24 − 1.
    #[inline]
    pub const fn next(self) -> Msn {
        Msn::new(self.0 + 1)
    }

    /// The MSN `messages` later, modulo 2^24.
    #[inline]
    pub const fn plus(self, messages: u32) -> Msn {
        Msn::new(self.0.wrapping_add(messages))
    }

    /// Returns whether `self` lies in the 2^23 numbers before `other`.
    #[inline]
    pub const fn is_before(self, other: Msn) -> bool {
        Psn(self.0).is_before(Psn(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_wrap_at_24_bits() {
        assert_eq!(Psn::new(0x12ff_ffff).value(), 0xff_ffff);
        assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).minus(1), Psn::new(0xff_ffff));
        assert_eq!(Msn::new(0xff_ffff).next(), Msn::new(0));
        assert_eq!(Msn::new(0xffff_fffe).value(), 0xff_fffe);
    }

    #[test]
    fn the_window_is_half_the_numbers_behind_and_half_ahead() {
        let psn = Psn::new(5);
        let half = 1 << 23;
        assert_eq!(psn.plus(half - 1).distance_from(psn), (1 << 23) - 1);
        assert_eq!(psn.plus(half).distance_from(psn), -(1 << 23));
        assert!(psn.minus(1).is_before(psn) && psn.minus(half).is_before(psn));
        assert!(!psn.is_before(psn) && !psn.next().is_before(psn));
    }

    proptest! {
        #[test]
        fn distance_undoes_plus_and_minus(start: u32, step in -(1_i32 << 23)..1 << 23) {
            let psn = Psn::new(start);
            let n = step.unsigned_abs();
            let moved = if step < 0 { psn.minus(n) } else { psn.plus(n) };
            prop_assert_eq!(moved.distance_from(psn), step);
            prop_assert_eq!(moved.is_before(psn), step < 0);
            prop_assert!(moved.value() < 1 << 24);
        }
    }
}
