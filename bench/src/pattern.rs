//! Payload of `--verify`: the contents of each message.
//!
//! A message is a sequence of 8-byte little-endian words in arithmetic progression; first word and
//! step are hashes of seed and iteration. A byte that is out of place, from another message or
//! never written is detected. The last byte is the low byte of the iteration, which is what tests
//! that poll memory wait for.
//!
//! Not here: the place of a message in memory ([`crate::perf::traffic`]).

/// The pattern of one stream of messages; both ends have its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    seed: u64,
}

impl Pattern {
    /// Creates the pattern of a seed. Different streams (directions, queue pairs) have different
    /// seeds.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns first word and step of a message. The step is odd, so that 2^64 words differ.
    fn progression(self, iteration: u64) -> (u64, u64) {
        let first = mix(self.seed ^ mix(iteration));
        (first, mix(first) | 1)
    }

    /// Writes message `iteration` to `out`.
    pub(crate) fn fill(self, iteration: u64, out: &mut [u8]) {
        let (mut word, step) = self.progression(iteration);
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
            word = word.wrapping_add(step);
        }
        if let Some(last) = out.last_mut() {
            *last = Self::last_byte(iteration);
        }
    }

    /// Returns the offset of the first byte of `bytes` that differs from message `iteration`.
    pub(crate) fn mismatch(self, iteration: u64, bytes: &[u8]) -> Option<usize> {
        let (last, rest) = bytes.split_last()?;
        let (first, step) = self.progression(iteration);
        let expected = |index: usize| first.wrapping_add(step.wrapping_mul(index as u64));
        let (words, tail) = rest.as_chunks::<8>();
        let wrong = words
            .iter()
            .enumerate()
            .find(|(index, word)| u64::from_le_bytes(**word) != expected(*index));
        if let Some((index, word)) = wrong {
            return Some(index * 8 + first_difference(word, &expected(index).to_le_bytes())?);
        }
        if let Some(offset) = first_difference(tail, &expected(words.len()).to_le_bytes()) {
            return Some(words.len() * 8 + offset);
        }
        (*last != Self::last_byte(iteration)).then_some(rest.len())
    }

    /// Returns the last byte of message `iteration`. It differs from those of the messages before
    /// and after, and for the first 255 messages from the zero of fresh memory.
    #[inline]
    pub(crate) fn last_byte(iteration: u64) -> u8 {
        (iteration + 1) as u8
    }

    /// Returns a number derived from an iteration, for operands of atomic operations.
    pub(crate) fn number(self, iteration: u64) -> u64 {
        self.progression(iteration).0
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    left.iter().zip(right).position(|(left, right)| left != right)
}

/// Finalizer of SplitMix64: a bijection in which every input bit affects all output bits.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 8] = [1, 7, 8, 9, 16, 17, 4096, 4099];

    #[test]
    fn what_is_filled_is_what_is_expected() {
        let pattern = Pattern::new(3);
        for size in SIZES {
            for iteration in [0, 1, 255, 256, u64::MAX - 1] {
                let mut bytes = vec![0; size];
                pattern.fill(iteration, &mut bytes);
                assert_eq!(pattern.mismatch(iteration, &bytes), None, "{size} {iteration}");
            }
        }
    }

    #[test]
    fn every_single_wrong_byte_is_found_where_it_is() {
        let pattern = Pattern::new(9);
        for size in SIZES {
            let mut bytes = vec![0; size];
            pattern.fill(77, &mut bytes);
            for offset in 0..size {
                bytes[offset] ^= 0x10;
                assert_eq!(pattern.mismatch(77, &bytes), Some(offset), "{size}");
                bytes[offset] ^= 0x10;
            }
        }
    }

    #[test]
    fn another_message_another_seed_and_a_shift_are_found() {
        let mut bytes = vec![0; 8192];
        Pattern::new(1).fill(5, &mut bytes);
        assert!(Pattern::new(1).mismatch(6, &bytes).is_some());
        assert!(Pattern::new(2).mismatch(5, &bytes).is_some());
        assert!(Pattern::new(1).mismatch(5, &bytes[4096..]).is_some());
        bytes.swap(4096, 4095);
        assert_eq!(Pattern::new(1).mismatch(5, &bytes), Some(4095));
    }

    #[test]
    fn neighbours_end_in_different_bytes() {
        assert!((0..1000).all(|i| Pattern::last_byte(i) != Pattern::last_byte(i + 1)));
        assert!((0..255).all(|i| Pattern::last_byte(i) != 0));
    }
}
