//! FETH, the flush extended transport header: how far a FLUSH has to bring earlier writes.
//!
//! Read first: IBA Annex A19 (memory placement extensions).
//!
//! Outside this file the selectivity level is an enum, [`Selectivity`], and the placement type a
//! set, [`Placement`]. In the 32 bits, bits 3 to 0 are the placement type, bits 5 and 4 the
//! selectivity level, and the others are reserved. A RETH follows, which names the memory.

use crate::bytes::{be32, put};

/// The flush extended transport header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feth {
    /// What must be true of the memory when the FLUSH is answered.
    pub placement: Placement,
    /// How much memory is meant.
    pub selectivity: Selectivity,
}

impl Feth {
    /// Length on the wire, in bytes.
    pub const LEN: usize = 4;

    /// Reads the header; every bit pattern is valid, and the 26 reserved bits are not examined.
    #[inline]
    pub fn parse(b: &[u8; Self::LEN]) -> Feth {
        let bits = be32(b, 0) as u8;
        Feth {
            placement: Placement(bits & Placement::MASK),
            selectivity: Selectivity::from_code(bits >> 4),
        }
    }

    /// Writes the header; placement type and selectivity level are cut to their bits.
    #[inline]
    pub fn emit(&self, b: &mut [u8; Self::LEN]) {
        let bits = self.placement.0 & Placement::MASK | self.selectivity.code() << 4;
        put(b, 0, u32::from(bits).to_be_bytes());
    }
}

/// Placement type of a FLUSH, a set of four bits, two of which have a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Placement(pub u8);

impl Placement {
    /// The data is visible to everything that accesses the responder's memory.
    pub const GLOBAL: Placement = Placement(1);
    /// The data survives a loss of power.
    pub const PERSISTENT: Placement = Placement(1 << 1);

    const MASK: u8 = 0x0f;

    /// Returns whether the set has all of `other`.
    #[inline]
    pub const fn contains(self, other: Placement) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set of both.
    #[inline]
    pub const fn union(self, other: Placement) -> Placement {
        Placement(self.0 | other.0)
    }

    /// Returns whether a FLUSH may ask for this: for at least one type, and for no reserved one.
    #[inline]
    pub const fn is_defined(self) -> bool {
        self.0 != 0 && Placement::GLOBAL.union(Placement::PERSISTENT).contains(self)
    }
}

/// Selectivity level of a FLUSH.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selectivity {
    /// The range that the RETH names.
    #[default]
    Range,
    /// The whole memory region of the RETH's R_Key; address and length are not used.
    Region,
    /// Codes 2 and 3, which have no meaning.
    Reserved(u8),
}

impl Selectivity {
    /// Decodes a selectivity level, the low two bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> Selectivity {
        match code & 3 {
            0 => Selectivity::Range,
            1 => Selectivity::Region,
            other => Selectivity::Reserved(other),
        }
    }

    /// The two-bit code of this level.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            Selectivity::Range => 0,
            Selectivity::Region => 1,
            Selectivity::Reserved(code) => code & 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = Feth::LEN;

    fn parse(b: &[u8; LEN]) -> Feth {
        Feth::parse(b)
    }

    crate::testing::header_tests! {
        Feth { placement: Placement::PERSISTENT, selectivity: Selectivity::Region },
        bytes: [0, 0, 0, 0x12],
        reserved: [0xff, 0xff, 0xff, 0xc0]
    }

    #[test]
    fn every_placement_type_and_level_has_its_bits() {
        for code in 0..=0x3f {
            let feth = parse(&[0xff, 0xff, 0xff, code | 0xc0]);
            assert_eq!(feth.placement, Placement(code & 0xf));
            let level = match code >> 4 {
                0 => Selectivity::Range,
                1 => Selectivity::Region,
                level => Selectivity::Reserved(level),
            };
            assert_eq!(feth.selectivity, level);
            assert_eq!(feth.placement.is_defined(), [1, 2, 3].contains(&(code & 0xf)));
        }
    }

    #[test]
    fn values_out_of_range_cannot_change_another_field() {
        let wild = Feth { placement: Placement(0xff), selectivity: Selectivity::Reserved(0xff) };
        let mut bytes = [0xff; LEN];
        wild.emit(&mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0x3f]);
    }
}
