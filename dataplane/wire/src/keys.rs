//! Keys and addresses, each of a type of its own so that one cannot be passed for another.
//!
//! Read first: IBA 10 (memory keys, Q_Keys and P_Keys).
//!
//! Not here: creating and checking memory keys (the engine's memory region table).

use core::fmt;

/// L_Key: identifies local registered memory; never on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lkey(pub u32);

/// R_Key: identifies remote registered memory (in RETH, AtomicETH, IETH).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rkey(pub u32);

/// Q_Key: admits a datagram to a UD queue pair (in DETH).
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

/// P_Key, the partition key: 15 bits of partition, and the full-membership bit at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pkey(pub u16);

impl Pkey {
    /// Full member of the default partition; the only value seen on RoCE.
    pub const DEFAULT: Pkey = Pkey(0xffff);

    const FULL_MEMBER: u16 = 0x8000;

    /// Returns whether two members may communicate: they are in one partition, and at least one is
    /// a full member.
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
