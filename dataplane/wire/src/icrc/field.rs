//! The share of one 16-bit field in the invariant CRC.
//!
//! A CRC is linear: where two packets of one length differ in a field only, the difference of their
//! CRCs depends on the difference of the fields and on the place alone. So a CRC can be changed
//! with a field without the rest of the packet, and a field that is not known follows from the CRC.

use super::Icrc;

/// A field of 16 bits at one place of packets of one length.
#[derive(Clone, Copy, Debug)]
pub struct IcrcField {
    /// Change of the CRC with each bit of the field, the lowest first.
    bits: [u32; 16],
    /// These changes combined, so that each has a highest bit that no later one has; with the
    /// bits of the field that make it.
    pivots: [(u32, u16); 16],
}

impl IcrcField {
    /// Makes the field that `after` covered bytes follow: up to the CRC, without it.
    pub fn new(after: usize) -> IcrcField {
        let sum = |field: u16| Icrc(0).and(&field.to_be_bytes()).0;
        let (none, shift) = (sum(0), zeros(after));
        let bits: [u32; 16] = core::array::from_fn(|bit| times(sum(1 << bit) ^ none, shift));
        let mut pivots: [(u32, u16); 16] = core::array::from_fn(|bit| (bits[bit], 1 << bit));
        for at in 0..pivots.len() {
            // The sixteen changes are independent: a CRC of 32 bits tells all bursts of 16 apart.
            let tallest = (at..16).max_by_key(|other| pivots[*other].0).unwrap_or(at);
            pivots.swap(at, tallest);
            let (pivot, field) = pivots[at];
            for (change, of) in &mut pivots[at + 1..] {
                if change.leading_zeros() == pivot.leading_zeros() {
                    *change ^= pivot;
                    *of ^= field;
                }
            }
        }
        IcrcField { bits, pivots }
    }

    /// Returns the change of the CRC where the field changes by exclusive or with `by`.
    #[inline]
    pub fn change(&self, by: u16) -> u32 {
        let (mut change, mut by) = (0, by);
        while by != 0 {
            change ^= self.bits[by.trailing_zeros() as usize];
            by &= by - 1;
        }
        change
    }

    /// Returns the change of the field that changes the CRC so; `None` if none does.
    pub fn find(&self, change: u32) -> Option<u16> {
        let (mut rest, mut by) = (change, 0);
        for (pivot, field) in self.pivots {
            if rest != 0 && rest.leading_zeros() == pivot.leading_zeros() {
                rest ^= pivot;
                by ^= field;
            }
        }
        (rest == 0).then_some(by)
    }
}

/// The polynomial of the CRC without its highest term. As in each sum here, bit 31 is the
/// coefficient of x⁰.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// Returns the product of two polynomials modulo that of the CRC.
fn times(one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if one >> bit & 1 == 1 {
            product ^= other;
        }
        // Times x.
        other = other >> 1 ^ if other & 1 == 1 { POLYNOMIAL } else { 0 };
    }
    product
}

/// Returns the factor by which a CRC without its inversions changes when `count` bytes of zeros
/// follow: x to the power of 8 · `count`.
fn zeros(mut count: usize) -> u32 {
    let (mut product, mut power) = (1 << 31, 1 << (31 - 8));
    while count != 0 {
        if count & 1 == 1 {
            product = times(product, power);
        }
        power = times(power, power);
        count >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icrc;
    use crate::testing::{encaps, opcodes, plain_frame};

    #[test] //= check E14 test
    fn the_change_of_a_field_is_the_change_of_the_crc_and_tells_the_field() {
        let mut rng = fastrand::Rng::with_seed(7);
        for encap in encaps() {
            let v4 = encap.src.to_ipv4().is_some();
            // The source port, and the identification of IPv4.
            let places: &[usize] = if v4 { &[20, 4] } else { &[40] };
            for opcode in opcodes() {
                let frame = plain_frame(&encap, opcode);
                let l3 = &frame[usize::from(encap.template().l3_offset)..frame.len() - 4];
                let before = u32::from_le_bytes(icrc(l3).unwrap());
                for &at in places {
                    let field = IcrcField::new(l3.len() - at - 2);
                    for by in [0, 1, 0x8000, 0xffff, rng.u16(..), rng.u16(..)] {
                        let mut other = l3.to_vec();
                        let [high, low] = by.to_be_bytes();
                        other[at] ^= high;
                        other[at + 1] ^= low;
                        let change = before ^ u32::from_le_bytes(icrc(&other).unwrap());
                        assert_eq!(field.change(by), change, "{at} {by:#x}");
                        assert_eq!(field.find(change), Some(by), "{at} {by:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_change_elsewhere_is_hardly_ever_one_of_the_field() {
        let mut rng = fastrand::Rng::with_seed(8);
        let field = IcrcField::new(1040);
        let found = (0..100_000).filter(|_| field.find(rng.u32(..)).is_some()).count();
        assert!(found < 20, "{found} of 100,000, where 2^-16 are to be expected");
        let all = (0..=u16::MAX).all(|by| field.find(field.change(by)) == Some(by));
        assert!(all, "each change of the field is found");
    }
}
