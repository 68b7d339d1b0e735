//! Random numbers that an attacker cannot predict: SipHash-2-4 of a counter, under a secret key.

/// A keyed generator. Without the key its output cannot be told from random numbers.
#[derive(Clone)]
pub(crate) struct Generator {
    key: [u64; 2],
    counter: u64,
}

impl Generator {
    pub(crate) fn new(key: [u8; 16]) -> Generator {
        let half = |at: usize| key[at..at + 8].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
        Generator { key: [half(0), half(8)], counter: 0 }
    }

    /// Returns the next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.counter += 1;
        self.hash(self.counter)
    }

    /// SipHash-2-4 of the eight bytes of `message`.
    fn hash(&self, message: u64) -> u64 {
        let [k0, k1] = self.key;
        let mut v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        for block in [message, 8 << 56] {
            v[3] ^= block;
            (0..2).for_each(|_| round(&mut v));
            v[0] ^= block;
        }
        v[2] ^= 0xff;
        (0..4).for_each(|_| round(&mut v));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
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
    fn the_hash_is_siphash_2_4() {
        // The designers' test vector for the message 00 01 … 07 under the key 00 01 … 0f.
        let generator = Generator::new(std::array::from_fn(|i| i as u8));
        let message = u64::from_le_bytes(std::array::from_fn(|i| i as u8));
        assert_eq!(generator.hash(message), 0x93f5_f579_9a93_2462);
    }
}
