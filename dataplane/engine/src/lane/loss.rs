//! Seeded loss of frames at a port, for tests and the interop laboratory.
//!
//! A lost frame is dropped silently and counted, as on a bad link. Only RoCEv2 frames are lost:
//! address resolution makes a few attempts only, and its failure would say nothing about the
//! transport. With the same seed and the same traffic the same frames are lost.
//!
//! Not here: other faults, and the frames that are concerned ([`super::faults`]).

use super::random::{Random, chance_of, seed_at};

/// Probability with which a port's RoCEv2 frames are lost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LossConfig {
    /// Probability for received frames, 0.0 to 1.0.
    pub rx: f64,
    /// Probability for sent frames, 0.0 to 1.0.
    pub tx: f64,
    /// Seed of the random choice.
    pub seed: u64,
}

impl LossConfig {
    /// Returns whether both probabilities are within 0 to 1.
    pub fn is_valid(&self) -> bool {
        [self.rx, self.tx].iter().all(|share| (0.0..=1.0).contains(share))
    }

    /// Returns the loss of received and of sent frames on lcore number `queue`. The random choices
    /// differ between lcores.
    pub(crate) fn at_queue(&self, queue: usize) -> (Loss, Loss) {
        let seed = seed_at(self.seed, queue);
        (Loss::new(self.rx, seed), Loss::new(self.tx, seed.wrapping_add(1)))
    }
}

/// Decides for each frame whether it is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// The probability of a loss, as a share of 2^32.
    chance: u64,
    random: Random,
}

impl Loss {
    fn new(share: f64, seed: u64) -> Loss {
        Loss { chance: chance_of(share), random: Random::new(seed) }
    }

    /// Returns whether the next frame is lost.
    #[inline]
    pub(crate) fn loses(&mut self) -> bool {
        if self.chance == 0 {
            return false;
        }
        self.random.hits(self.chance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(share: f64, seed: u64) -> Vec<bool> {
        let (mut rx, _) = LossConfig { rx: share, tx: 0.0, seed }.at_queue(0);
        (0..100_000).map(|_| rx.loses()).collect()
    }

    #[test]
    fn loses_the_share_asked_for() {
        let count = |lost: Vec<bool>| lost.into_iter().filter(|&lost| lost).count();
        assert_eq!(count(lost(0.0, 1)), 0);
        assert_eq!(count(lost(1.0, 1)), 100_000);
        let one_percent = count(lost(0.01, 1));
        // The bounds are six standard deviations.
        assert!((811..=1189).contains(&one_percent), "{one_percent} of 100000");
    }

    #[test]
    fn the_same_seed_loses_the_same_frames() {
        assert_eq!(lost(0.1, 7), lost(0.1, 7));
        assert_ne!(lost(0.1, 7), lost(0.1, 8));
    }

    #[test]
    fn shares_outside_of_zero_to_one_are_invalid() {
        assert!(LossConfig::default().is_valid());
        for share in [-0.1, 1.1, f64::NAN] {
            assert!(!LossConfig { rx: share, ..LossConfig::default() }.is_valid());
        }
    }
}
