//! What may happen to a frame on its way at random, and how often it did.

use core::time::Duration;

use fastrand::Rng;

/// Chances of the random faults of one direction, each 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// The frame vanishes.
    pub loss: f64,
    /// A bad time begins, in which every other frame vanishes and which ends with every eighth
    /// (the Gilbert–Elliott model).
    pub burst: f64,
    /// It comes twice, the second time at once or up to [`Rates::MAX_LATE`] later.
    pub duplicate: f64,
    /// Frames sent up to a few microseconds later overtake it.
    pub reorder: f64,
    /// One to three bits, or a burst of up to 32, are flipped.
    pub corrupt: f64,
    /// It ends too early.
    pub truncate: f64,
    /// It comes up to [`Rates::MAX_DELAY`] later.
    pub delay: f64,
}

impl Rates {
    /// A perfect link.
    pub const NONE: Rates = Rates {
        loss: 0.0,
        burst: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        truncate: 0.0,
        delay: 0.0,
    };

    /// The most that a second copy lags behind.
    pub const MAX_LATE: Duration = Duration::from_millis(20);

    /// The most that a delayed frame lags behind.
    pub const MAX_DELAY: Duration = Duration::from_millis(1);

    /// Each fault off, or between 0.01 % and 10 % with small chances as likely as large ones.
    pub fn swarm(rng: &mut Rng) -> Rates {
        let mut chance = || match rng.bool() {
            true => 1e-4 * 1000_f64.powf(rng.f64()),
            false => 0.0,
        };
        Rates {
            loss: chance(),
            burst: chance() / 10.0,
            duplicate: chance(),
            reorder: chance(),
            corrupt: chance(),
            truncate: chance(),
            delay: chance(),
        }
    }

    /// Is there any chance of a fault?
    pub fn is_any(&self) -> bool {
        *self != Rates::NONE
    }
}

/// Faults that happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Frames lost.
    pub lost: u64,
    /// Frames duplicated.
    pub duplicated: u64,
    /// Frames overtaken or delayed.
    pub delayed: u64,
    /// Frames corrupted.
    pub corrupted: u64,
    /// Frames truncated.
    pub truncated: u64,
    /// Times that a sink was full on purpose.
    pub refused: u64,
    /// Troubles that lasted for a while, of links and nodes.
    pub troubles: u64,
}

impl FaultCounts {
    /// Adds those of another run.
    pub fn add(&mut self, other: &FaultCounts) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
        self.truncated += other.truncated;
        self.refused += other.refused;
        self.troubles += other.troubles;
    }

    /// All of them together.
    pub fn total(&self) -> u64 {
        self.lost
            + self.duplicated
            + self.delayed
            + self.corrupted
            + self.truncated
            + self.refused
            + self.troubles
    }
}

/// Flips one to three bits, or some bits of a 32-bit window, the outermost of them included.
///
/// The invariant CRC finds all of these, wherever it covers them.
pub(super) fn corrupt(frame: &mut [u8], rng: &mut Rng) {
    let bits = frame.len() * 8;
    if rng.bool() {
        let first = rng.usize(..bits);
        flip(frame, first);
        for _ in 0..rng.usize(..3) {
            let bit = rng.usize(..bits);
            if bit != first {
                flip(frame, bit);
            }
        }
        return;
    }
    let width = rng.usize(2..=32);
    let start = rng.usize(..=bits - width);
    flip(frame, start);
    flip(frame, start + width - 1);
    for bit in start + 1..start + width - 1 {
        if rng.bool() {
            flip(frame, bit);
        }
    }
}

/// Cuts off the end, at least the last byte.
pub(super) fn truncate(frame: &mut Vec<u8>, rng: &mut Rng) {
    frame.truncate(rng.usize(..frame.len()));
}

fn flip(frame: &mut [u8], bit: usize) {
    frame[bit / 8] ^= 0x80 >> (bit % 8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corruption_is_one_to_three_bits_or_a_burst_of_at_most_32() {
        let mut rng = Rng::with_seed(1);
        for _ in 0..10_000 {
            let mut frame = [0; 80];
            corrupt(&mut frame, &mut rng);
            let flipped: Vec<usize> =
                (0..640).filter(|bit| frame[bit / 8] & 0x80 >> (bit % 8) != 0).collect();
            let span = flipped.last().unwrap_or(&0) - flipped.first().unwrap_or(&0);
            assert!(flipped.len() <= 3 || span < 32, "{flipped:?}");
            assert!(!flipped.is_empty());
        }
    }
}
