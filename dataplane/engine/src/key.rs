//! Numbers that strangers see: QPNs, L_Keys and R_Keys.
//!
//! A number is a keyed permutation of (slot index, generation). Whoever sees some of them learns
//! nothing useful about the others, while an lcore gets from a number to its slot with arithmetic
//! alone: no hash table, no search.
//!
//! Invariants
//! - A permutation is a bijection, so two live slots never have one number.
//! - A slot's generation changes each time it is given back, so a number of its former life is not
//!   its number now; slots are taken in the order in which they became free, so it takes
//!   `slots · generations` creations until a number comes again.
//!
//! Not here: a cipher. The permutation withstands guessing by a peer who was told some numbers; it
//! does not protect a secret.

use std::cell::Cell;
use std::collections::VecDeque;

/// Rounds of the Feistel network. Four make a permutation pseudo-random if the round function is
/// (Luby and Rackoff); the rest is for the round function's sake.
const ROUNDS: usize = 6;

/// One round's key.
#[derive(Clone, Copy, Debug)]
struct Round {
    xor: u64,
    multiply: u64,
}

impl Round {
    /// A keyed hash of half a number, to be masked.
    #[inline]
    fn mix(self, half: u32) -> u32 {
        let product = (u64::from(half) ^ self.xor).wrapping_mul(self.multiply);
        ((product ^ (product >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
    }
}

/// A keyed permutation of the numbers of `2 · HALF` bits, `HALF` at most 16.
#[derive(Clone, Debug)]
struct Permutation<const HALF: u32> {
    rounds: [Round; ROUNDS],
}

impl<const HALF: u32> Permutation<HALF> {
    const MASK: u32 = (1 << HALF) - 1;

    fn new(key: &[u8; ROUNDS * 16]) -> Permutation<HALF> {
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&key[at * 8..at * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let round = |at: usize| Round { xor: word(2 * at), multiply: word(2 * at + 1) | 1 };
        Permutation { rounds: std::array::from_fn(round) }
    }

    #[inline]
    fn apply(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF & Self::MASK, number & Self::MASK);
        for round in &self.rounds {
            (left, right) = (right, left ^ (round.mix(right) & Self::MASK));
        }
        left << HALF | right
    }

    #[inline]
    fn invert(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF & Self::MASK, number & Self::MASK);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ (round.mix(left) & Self::MASK), left);
        }
        left << HALF | right
    }
}

/// The numbers of `2 · HALF` bits for up to `slots` slots.
#[derive(Clone, Debug)]
pub(crate) struct Numbers<const HALF: u32> {
    permutation: Permutation<HALF>,
    index_bits: u32,
}

/// The number that was looked up last, and its slot: packets and work requests come in runs, and an
/// inverse costs as much as a copy of a small payload.
#[derive(Debug)]
pub(crate) struct LastNumber(Cell<(u32, usize)>);

/// QPNs.
pub(crate) type QpNumbers = Numbers<12>;
/// L_Keys and R_Keys.
pub(crate) type MrNumbers = Numbers<16>;

impl<const HALF: u32> Numbers<HALF> {
    /// Numbers under a fresh random key, for 1 to 2^(2·HALF − 4) slots.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub(crate) fn random(slots: u32) -> Result<Numbers<HALF>, getrandom::Error> {
        let mut key = [0; ROUNDS * 16];
        getrandom::fill(&mut key)?;
        Ok(Numbers::with_key(slots, &key))
    }

    fn with_key(slots: u32, key: &[u8; ROUNDS * 16]) -> Numbers<HALF> {
        let index_bits = slots.next_power_of_two().trailing_zeros();
        assert!(index_bits + 4 <= 2 * HALF, "at least 16 generations");
        Numbers { permutation: Permutation::new(key), index_bits }
    }

    /// The number of a slot in a generation; the generation counts modulo what fits.
    pub(crate) fn number(&self, index: u32, generation: u32) -> u32 {
        let all = u32::MAX >> (32 - 2 * HALF);
        self.permutation.apply((generation << self.index_bits | index) & all)
    }

    /// The slot that a number would belong to; whether it does, the slot must say.
    #[inline]
    pub(crate) fn index(&self, number: u32) -> usize {
        let plain = self.permutation.invert(number);
        (plain & ((1u32 << self.index_bits) - 1)) as usize
    }

    /// The same, quicker if it is the number that was asked for last.
    #[inline]
    pub(crate) fn index_by(&self, number: u32, last: &LastNumber) -> usize {
        let (known, index) = last.0.get();
        if number == known {
            return index;
        }
        let index = self.index(number);
        last.0.set((number, index));
        index
    }

    /// For [`index_by`](Numbers::index_by).
    pub(crate) fn last_number(&self) -> LastNumber {
        LastNumber(Cell::new((0, self.index(0))))
    }
}

/// Free slots and the generation of each.
#[derive(Debug)]
pub(crate) struct Slots {
    free: VecDeque<u32>,
    generations: Vec<u32>,
}

impl Slots {
    /// All of `count` slots free.
    pub(crate) fn new(count: u32) -> Slots {
        Slots { free: (0..count).collect(), generations: vec![0; count as usize] }
    }

    /// Takes the slot that has been free for longest and names it; `None` if none is free.
    ///
    /// Numbers in `never` are skipped; they are fewer than the generations of a slot.
    pub(crate) fn take<const HALF: u32>(
        &mut self,
        numbers: &Numbers<HALF>,
        never: &[u32],
    ) -> Option<(u32, u32)> {
        let index = self.free.pop_front()?;
        let generation = &mut self.generations[index as usize];
        let mut number = numbers.number(index, *generation);
        while never.contains(&number) {
            *generation = generation.wrapping_add(1);
            number = numbers.number(index, *generation);
        }
        Some((index, number))
    }

    /// Gives a slot back; its number is void from now on.
    pub(crate) fn give_back(&mut self, index: u32) {
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        self.free.push_back(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn key(seed: u8) -> [u8; ROUNDS * 16] {
        std::array::from_fn(|at| (at as u8).wrapping_mul(73).wrapping_add(seed).rotate_left(3))
    }

    #[test]
    fn every_24_bit_number_has_exactly_one_preimage() {
        let permutation = Permutation::<12>::new(&key(1));
        let mut seen = vec![false; 1 << 24];
        for plain in 0..1 << 24 {
            let number = permutation.apply(plain);
            assert!(!std::mem::replace(&mut seen[number as usize], true));
            assert_eq!(permutation.invert(number), plain);
        }
    }

    #[test]
    fn thirty_two_bit_numbers_invert() {
        let permutation = Permutation::<16>::new(&key(2));
        for step in 0..1_000_000u32 {
            let plain = step.wrapping_mul(0x9e37_79b9);
            assert_eq!(permutation.invert(permutation.apply(plain)), plain);
        }
    }

    #[test] //= check J14 test
    fn numbers_of_neighbouring_slots_look_random() {
        // Each bit of the XOR of two successive numbers is set about half of the time, and no
        // difference of two successive numbers comes often.
        let numbers = MrNumbers::random(1 << 16).unwrap();
        let mut set = [0u32; 32];
        let mut steps = HashSet::new();
        let count = 1 << 16;
        for index in 1..count {
            let (before, after) = (numbers.number(index - 1, 0), numbers.number(index, 0));
            (0..32).for_each(|bit| set[bit] += (before ^ after) >> bit & 1);
            steps.insert(after.wrapping_sub(before));
        }
        for (bit, &set) in set.iter().enumerate() {
            let deviation = i64::from(set) - i64::from(count / 2);
            // Six standard deviations of a fair coin.
            assert!(deviation.abs() < 6 * 128, "bit {bit} flips {set} times in {count}");
        }
        assert!(steps.len() > 65_000, "only {} different steps", steps.len());
    }

    #[test]
    fn two_engines_give_different_numbers() {
        let (a, b) = (QpNumbers::random(4096).unwrap(), QpNumbers::random(4096).unwrap());
        let equal = (0..4096).filter(|&index| a.number(index, 0) == b.number(index, 0)).count();
        assert!(equal < 16, "{equal} equal numbers");
    }

    #[test]
    fn forbidden_numbers_are_never_given_out() {
        let never = [0, 1, 0xff_ffff];
        let numbers = QpNumbers::with_key(16, &key(3));
        let mut slots = Slots::new(16);
        let mut given = HashSet::new();
        // All numbers there are, once round.
        for _ in 0..(1u32 << 24) - 3 {
            let (index, number) = slots.take(&numbers, &never).unwrap();
            assert!(!never.contains(&number));
            if given.len() < 100_000 {
                assert!(given.insert(number), "a number came twice");
            }
            assert_eq!(numbers.index(number), index as usize);
            slots.give_back(index);
        }
    }

    #[test]
    fn slots_come_back_last_and_with_another_number() {
        let numbers = QpNumbers::with_key(4, &key(4));
        let mut slots = Slots::new(4);
        let (first, old) = slots.take(&numbers, &[]).unwrap();
        slots.give_back(first);
        let next: Vec<_> = std::iter::from_fn(|| slots.take(&numbers, &[])).collect();
        assert_eq!(next.len(), 4);
        assert_eq!(next[3].0, first);
        assert_ne!(next[3].1, old);
        assert!(slots.take(&numbers, &[]).is_none());
    }
}
