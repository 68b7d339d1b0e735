//! Keys and addresses that must not be mistaken for one another.
//!
//! Not here: how keys are made and checked (the engine's memory region table).

use core::fmt;

/// Names local registered memory; never on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lkey(pub u32);

/// Names remote registered memory (RETH, AtomicETH, IETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rkey(pub u32);

/// Admits a datagram to a UD queue pair (DETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qkey(pub u32);

/// A virtual address in registered memory: a number, never a pointer.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Va(pub u64);

impl fmt::Debug for Va {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}", self.0)
    }
}

/// Partition key: 15 bits of partition and, at the top, the full-membership bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full member of the default partition; the only value seen on RoCE.
    pub const DEFAULT: Pkey = Pkey(0xffff);

    const FULL_MEMBER: u16 = 0x8000;

    /// Whether two members may talk: one partition, and at least one of them a full member.
    #[inline]
    pub const fn matches(self, other: Pkey) -> bool {
        (self.0 ^ other.0) & !Self::FULL_MEMBER == 0 && (self.0 | other.0) & Self::FULL_MEMBER != 0
    }
}

impl Default for Pkey {
    fn default() -> Pkey {
        Pkey::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_match_unless_both_are_limited_members() {
        let (full, limited) = (Pkey(0x8005), Pkey(0x0005));
        assert!(full.matches(full) && full.matches(limited) && limited.matches(full));
        assert!(!limited.matches(limited));
        assert!(!full.matches(Pkey(0x8006)));
        assert!(Pkey::default().matches(Pkey(0x7fff)));
    }
}
