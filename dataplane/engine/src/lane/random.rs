//! Seeded random choices of frames, for injected faults. A seed and a sequence of frames determine
//! which frames are chosen.

/// A stream of random choices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Makes the stream of a seed.
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// Returns whether the next choice is a hit. `chance` is the probability of one, as
    /// [`chance_of`] makes it.
    #[inline]
    pub(super) fn hits(&mut self, chance: u64) -> bool {
        self.next() >> 32 < chance
    }

    /// Returns the next random number: SplitMix64 (Steele, Lea and Flood, 2014).
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Returns a probability, 0.0 to 1.0, as a share of 2^32.
#[inline]
pub(super) fn chance_of(share: f64) -> u64 {
    (share * 4_294_967_296.0) as u64
}

/// Returns the seed of lcore number `lcore`. The random choices differ between lcores.
pub(super) fn seed_at(seed: u64, lcore: usize) -> u64 {
    seed.wrapping_add((lcore as u64) << 32)
}
