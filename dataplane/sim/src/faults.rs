//! Random faults of frames on their way, and counts of them.

pub(crate) mod rules;

use core::time::Duration;

use fastrand::Rng;

/// Probabilities of the random faults of one direction, each 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rates {
    /// The frame is lost.
    pub loss: f64,
    /// A bad period begins: each frame in it is lost with probability 1/2, and it ends before each
    /// frame with probability 1/8 (the Gilbert–Elliott model).
    pub burst: f64,
    /// The frame arrives twice, the second time at once or up to [`Rates::MAX_LATE`] later.
    pub duplicate: f64,
    /// The frame is overtaken by frames sent up to a few microseconds later.
    pub reorder: f64,
    /// Bits are flipped: one to three, or a burst within 32 bits.
    pub corrupt: f64,
    /// The end of the frame is cut off.
    pub truncate: f64,
    /// The frame arrives up to [`Rates::MAX_DELAY`] later.
    pub delay: f64,
}

impl Rates {
    /// A link without faults.
    pub const NONE: Rates = Rates {
        loss: 0.0,
        burst: 0.0,
        duplicate: 0.0,
        reorder: 0.0,
        corrupt: 0.0,
        truncate: 0.0,
        delay: 0.0,
    };

    /// Longest lag of a second copy.
    pub const MAX_LATE: Duration = Duration::from_millis(20);

    /// Longest lag of a delayed frame.
    pub const MAX_DELAY: Duration = Duration::from_millis(1);

    /// Random rates: each fault is off, or between 0.01 % and 10 % on a logarithmic scale.
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

    /// Returns whether any fault is possible.
    pub fn is_any(&self) -> bool {
        *self != Rates::NONE
    }
}

/// Counts of faults that happened.
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
    /// Times that a sink pretended to be full.
    pub refused: u64,
    /// Disturbances of links and nodes that lasted for a while.
    pub troubles: u64,
}

impl FaultCounts {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &FaultCounts) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
        self.truncated += other.truncated;
        self.refused += other.refused;
        self.troubles += other.troubles;
    }

    /// Sum of all counts.
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

/// Flips one to three bits, or both ends and random inner bits of a window of up to 32 bits.
///
/// The invariant CRC detects all of these where it covers them.
pub(crate) fn corrupt(frame: &mut [u8], rng: &mut Rng) {
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

/// Cuts off the end of the frame, at least the last byte.
pub(crate) fn truncate(frame: &mut Vec<u8>, rng: &mut Rng) {
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
