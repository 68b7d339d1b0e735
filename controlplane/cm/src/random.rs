//! Random numbers that an attacker cannot predict: SipHash-2-4 of a counter, under a secret key.

use siphasher::sip::SipHasher24;

/// A keyed generator. Without the key its output cannot be told from random numbers.
#[derive(Clone)]
pub(crate) struct Generator {
    hasher: SipHasher24,
    counter: u64,
}

impl Generator {
    pub(crate) fn new(key: [u8; 16]) -> Generator {
        Generator { hasher: SipHasher24::new_with_key(&key), counter: 0 }
    }

    /// Returns the next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.hasher.hash(&self.counter.to_le_bytes())
    }
}

/// Leaves out the key, which is a secret.
impl std::fmt::Debug for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generator").field("counter", &self.counter).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_siphash_2_4_of_a_counter() {
        // The designers' test vector for the message 00 01 … 07 under the key 00 01 … 0f.
        let mut generator = Generator::new(std::array::from_fn(|i| i as u8));
        generator.counter = u64::from_le_bytes(std::array::from_fn(|i| i as u8)) - 1;
        assert_eq!(generator.next(), 0x93f5_f579_9a93_2462);
    }
}
