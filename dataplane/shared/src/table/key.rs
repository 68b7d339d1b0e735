//! Numbers that peers see: QPNs, L_Keys and R_Keys.
//!
//! A QPN is a keyed permutation of (slot index, generation) in 24 bits. The upper 24 bits of a key
//! are such a number too. Its lower 8 bits, which the verbs leave to the consumer of a type-2
//! memory window, are not used to find the slot. A peer that sees some numbers cannot derive
//! others, while an lcore computes the slot of a number by arithmetic alone: without a hash table
//! or a search.
//!
//! Invariants
//! - A permutation is a bijection, so two live slots never have the same number, and two live keys
//!   differ in their upper 24 bits.
//! - A slot's generation changes each time it is given back, so a former number of the slot is not
//!   its present one. Slots are taken in the order in which they became free, so a number comes
//!   again only after `slots · generations` creations. A key's lower 8 bits continue the count of
//!   generations.
//!
//! Not here: a cipher. The permutation withstands guessing by a peer that has seen some numbers; it
//! does not protect a secret.

use std::cell::Cell;
use std::collections::VecDeque;

/// Rounds of the Feistel network. Four make a permutation pseudo-random if the round function is
/// (Luby and Rackoff); the other two make up for a weak round function.
const ROUNDS: usize = 6;
/// Bits of half a number.
const HALF: u32 = 12;
const HALF_MASK: u32 = (1 << HALF) - 1;
/// Mask of all bits of a number.
const ALL: u32 = (1 << (2 * HALF)) - 1;
/// Bytes of the random key of a permutation and of the lower bits of keys.
const KEY_LEN: usize = (ROUNDS + 1) * 16;
/// The low bits of a key, which belong to its consumer.
const CONSUMER_BITS: u32 = 8;

/// The key of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    xor: u64,
    multiply: u64,
}

impl Round {
    /// Returns a keyed hash of a number, to be masked: both halves of the product, folded.
    #[inline]
    fn mix(self, number: u32) -> u32 {
        let product = u128::from(u64::from(number) ^ self.xor) * u128::from(self.multiply);
        (((product >> 64) as u64 ^ product as u64) >> 24) as u32
    }
}

/// A keyed permutation of the 24-bit numbers.
#[derive(Clone, Debug)]
struct Permutation {
    rounds: [Round; ROUNDS],
}

impl Permutation {
    #[inline]
    fn apply(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF & HALF_MASK, number & HALF_MASK);
        for round in &self.rounds {
            (left, right) = (right, left ^ (round.mix(right) & HALF_MASK));
        }
        left << HALF | right
    }

    #[inline]
    fn invert(&self, number: u32) -> u32 {
        let (mut left, mut right) = (number >> HALF & HALF_MASK, number & HALF_MASK);
        for round in self.rounds.iter().rev() {
            (left, right) = (right ^ (round.mix(left) & HALF_MASK), left);
        }
        left << HALF | right
    }
}

/// The numbers of a fixed set of slots.
#[derive(Clone, Debug)]
pub struct Numbers {
    permutation: Permutation,
    /// Gives the start of the count in a key's lower bits.
    lower: Round,
    index_bits: u32,
}

impl Numbers {
    /// Makes numbers with a new random key, for 1 to 2^20 slots: at least 16 generations.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn random(slots: u32) -> Result<Numbers, getrandom::Error> {
        let mut key = [0; KEY_LEN];
        getrandom::fill(&mut key)?;
        Ok(Numbers::with_key(slots, &key))
    }

    fn with_key(slots: u32, key: &[u8; KEY_LEN]) -> Numbers {
        let index_bits = slots.next_power_of_two().trailing_zeros();
        assert!(index_bits + 4 <= 2 * HALF, "at least 16 generations");
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&key[at * 8..at * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let round = |at: usize| Round { xor: word(2 * at), multiply: word(2 * at + 1) | 1 };
        let permutation = Permutation { rounds: std::array::from_fn(round) };
        Numbers { permutation, lower: round(ROUNDS), index_bits }
    }

    /// Returns the QPN of a slot in a generation, which counts modulo what fits.
    pub fn qpn(&self, index: u32, generation: u32) -> u32 {
        self.permutation.apply((generation << self.index_bits | index) & ALL)
    }

    /// Returns the key of a slot in a generation, which counts modulo what fits.
    pub fn key(&self, index: u32, generation: u32) -> u32 {
        let upper = self.qpn(index, generation);
        let counted = generation >> (2 * HALF - self.index_bits);
        let lower = self.lower.mix(upper).wrapping_add(counted);
        upper << CONSUMER_BITS | lower & ((1 << CONSUMER_BITS) - 1)
    }

    /// Returns the slot that a QPN belongs to if it is in use; the caller compares it with the
    /// slot's number.
    #[inline]
    pub fn index_of_qpn(&self, qpn: u32) -> usize {
        (self.permutation.invert(qpn) & ((1 << self.index_bits) - 1)) as usize
    }

    /// Returns the slot that a key belongs to if it is in use, whatever its lower bits; the caller
    /// compares it with the slot's key.
    pub(crate) fn index_of_key(&self, key: u32) -> usize {
        self.index_of_qpn(key >> CONSUMER_BITS)
    }
}

/// A cache of numbers that were looked up last, and their slots. Packets and work requests come in
/// runs, and an inverse costs as much as a copy of a small payload.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Pairs (number, slot), each at the place given by its number's last bits.
    known: [Cell<(u32, u32)>; Recent::PLACES],
}

impl Recent {
    const PLACES: usize = 64;

    pub(crate) fn new(numbers: &Numbers) -> Recent {
        let entry = |at: usize| Cell::new((at as u32, numbers.index_of_qpn(at as u32) as u32));
        Recent { known: std::array::from_fn(entry) }
    }

    /// Returns what [`Numbers::index_of_qpn`] returns. `numbers` must always be the same.
    #[inline]
    pub(crate) fn index_of_qpn(&self, numbers: &Numbers, qpn: u32) -> usize {
        let place = &self.known[qpn as usize % Recent::PLACES];
        let (known, index) = place.get();
        if qpn == known {
            return index as usize;
        }
        let index = numbers.index_of_qpn(qpn);
        place.set((qpn, index as u32));
        index
    }

    /// Returns what [`Numbers::index_of_key`] returns. `numbers` must always be the same.
    #[inline]
    pub(crate) fn index_of_key(&self, numbers: &Numbers, key: u32) -> usize {
        self.index_of_qpn(numbers, key >> CONSUMER_BITS)
    }
}

/// The free slots and the generation of each slot. Memory is allocated as slots are taken.
#[derive(Debug)]
pub struct Slots {
    count: u32,
    /// Slots that were given back.
    free: VecDeque<u32>,
    /// The generation of each slot that was ever taken; these are the first ones.
    generations: Vec<u32>,
}

impl Slots {
    /// Makes `count` free slots.
    pub fn new(count: u32) -> Slots {
        Slots { count, free: VecDeque::new(), generations: Vec::new() }
    }

    /// Takes a slot that was never taken; if there is none, the one that has been free for longest.
    fn oldest(&mut self) -> Option<u32> {
        let fresh = self.generations.len() as u32;
        if fresh == self.count {
            return self.free.pop_front();
        }
        self.generations.push(0);
        Some(fresh)
    }

    /// Takes a free slot, and returns it with the name that `name` gives it for its index and
    /// generation; `None` if no slot is free.
    ///
    /// Names in `never` are skipped; they must be fewer than the generations of a slot.
    pub fn take(&mut self, name: impl Fn(u32, u32) -> u32, never: &[u32]) -> Option<(u32, u32)> {
        let index = self.oldest()?;
        let generation = &mut self.generations[index as usize];
        let mut number = name(index, *generation);
        while never.contains(&number) {
            *generation = generation.wrapping_add(1);
            number = name(index, *generation);
        }
        Some((index, number))
    }

    /// Takes a free slot with a name that is not held: slots with held names, up to `held` of them,
    /// are passed over. `None` also if all free slots have held names.
    pub fn take_unless(
        &mut self,
        name: impl Fn(u32, u32) -> u32,
        never: &[u32],
        is_held: impl Fn(u32) -> bool,
        held: usize,
    ) -> Option<(u32, u32)> {
        for _ in 0..=held {
            let (index, number) = self.take(&name, never)?;
            if !is_held(number) {
                return Some((index, number));
            }
            self.give_back(index);
        }
        None
    }

    /// Returns the number of slots that are taken.
    pub fn taken(&self) -> u32 {
        // There are at most `count` generations, and as many free slots at most.
        (self.generations.len() - self.free.len()) as u32
    }

    /// Gives a slot back; its name is void from now on.
    pub fn give_back(&mut self, index: u32) {
        let generation = &mut self.generations[index as usize];
        *generation = generation.wrapping_add(1);
        self.free.push_back(index);
    }
}

#[cfg(test)]
mod tests;
