//! A bottleneck at a port, for tests of congestion: frames to be sent leave at a given rate from a
//! queue of given length, as at a switch's port that is slower than its inputs.
//!
//! ```text
//!   frame ─▶ law: room? mark? ─▶ queue ─── at the rate ──▶ port
//!               └▶ dropped at the tail
//! ```
//!
//! ECN-capable frames are marked by the length of the queue that they find: none below one
//! threshold, all above another, in between a share that rises in proportion. This is RED on the
//! queue's momentary length, as switches in RoCEv2 networks do it.
//!
//! Invariants
//! - All lcores of a device share one queue: [`backlog`] holds its length, in one word. Each lcore
//!   keeps its own frames until they may leave ([`slow`]).
//! - Every frame to the port passes, whatever it is; only those that are looped back do not.
//! - A port without a bottleneck pays one branch per turn and two per burst.
//!
//! - Under a rate that a command has set, no frame is dropped: frames that find no place wait as at
//!   a port that is full. A change of the rate keeps those that wait.
//!
//! Not here: delay of a frame that finds the queue empty, beyond its own length at the rate;
//! injected loss ([`super::loss`]).

pub(crate) mod backlog;
pub(crate) mod slow;

use super::random::chance_of;

/// Highest rate of a bottleneck, in Mb/s.
const RATE_MAX: u32 = 400_000;
/// Longest queue of a bottleneck, in bytes: more than the packet buffers of a port.
pub(crate) const QUEUE_MAX: u32 = 1 << 26;

/// A bottleneck at a port.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BottleneckConfig {
    /// Rate at which frames leave, in Mb/s (10^6 bits, Ethernet header included), 1 to 400,000.
    pub rate_mbps: u32,
    /// Length of the queue in bytes of whole frames, 1 to 2^26. A frame that does not fit is
    /// dropped.
    pub queue: u32,
    /// Length of the queue in bytes up to which no frame is marked; at most `kmax`.
    pub kmin: u32,
    /// Length of the queue in bytes above which every frame is marked; at most `queue`.
    pub kmax: u32,
    /// Share of frames that are marked at `kmax`, 0.0 to 1.0.
    pub pmax: f64,
    /// Seed of the random choice.
    pub seed: u64,
}

impl BottleneckConfig {
    /// Makes a bottleneck that marks no frame: both thresholds are the queue's length.
    pub fn new(rate_mbps: u32, queue: u32) -> BottleneckConfig {
        BottleneckConfig { rate_mbps, queue, kmin: queue, kmax: queue, pmax: 1.0, seed: 0 }
    }

    /// Checks the ranges of all fields.
    ///
    /// # Errors
    /// The first field that is wrong, and what it has to be.
    pub fn check(&self) -> Result<(), BottleneckError> {
        if !(1..=RATE_MAX).contains(&self.rate_mbps) {
            Err(BottleneckError::Rate(self.rate_mbps))
        } else if !(1..=QUEUE_MAX).contains(&self.queue) {
            Err(BottleneckError::Queue(self.queue))
        } else if self.kmax > self.queue {
            Err(BottleneckError::Kmax { kmax: self.kmax, queue: self.queue })
        } else if self.kmin > self.kmax {
            Err(BottleneckError::Kmin { kmin: self.kmin, kmax: self.kmax })
        } else if !(0.0..=1.0).contains(&self.pmax) {
            Err(BottleneckError::Pmax)
        } else {
            Ok(())
        }
    }
}

/// A field of a [`BottleneckConfig`] that is out of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BottleneckError {
    /// The rate.
    #[error("{0} Mb/s is not from 1 Mb/s to 400 Gb/s")]
    Rate(u32),
    /// The length of the queue.
    #[error("{0} bytes is not from 1 byte to 64 MiB")]
    Queue(u32),
    /// The upper threshold is beyond the queue.
    #[error("{kmax} bytes are more than the queue has; choose at most {queue}")]
    Kmax {
        /// The threshold.
        kmax: u32,
        /// The length of the queue.
        queue: u32,
    },
    /// The lower threshold is above the upper one.
    #[error("{kmin} bytes are more than kmax; choose at most {kmax}")]
    Kmin {
        /// The lower threshold.
        kmin: u32,
        /// The upper threshold.
        kmax: u32,
    },
    /// The share at the upper threshold.
    #[error("is not from 0.0 to 1.0")]
    Pmax,
}

impl BottleneckError {
    /// Returns the name of the field.
    pub fn field(&self) -> &'static str {
        match self {
            BottleneckError::Rate(_) => "rate",
            BottleneckError::Queue(_) => "queue",
            BottleneckError::Kmax { .. } => "kmax",
            BottleneckError::Kmin { .. } => "kmin",
            BottleneckError::Pmax => "pmax",
        }
    }
}

/// The chance of a mark by the length of the queue.
#[derive(Clone, Copy, Debug)]
struct Red {
    kmin: u32,
    kmax: u32,
    /// Chance at `kmax`, as a share of 2^32.
    at_kmax: u64,
}

impl Red {
    fn new(config: &BottleneckConfig) -> Red {
        Red { kmin: config.kmin, kmax: config.kmax, at_kmax: chance_of(config.pmax) }
    }

    /// Returns the chance, as a share of 2^32, that a frame is marked which finds `depth` bytes in
    /// the queue.
    fn chance(&self, depth: u32) -> u64 {
        if depth <= self.kmin {
            0
        } else if depth > self.kmax {
            chance_of(1.0)
        } else {
            // The product has at most 26 + 33 bits, and `kmin < depth ≤ kmax`.
            let above = u64::from(depth - self.kmin);
            self.at_kmax * above / u64::from(self.kmax - self.kmin)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marking(kmin: u32, kmax: u32, pmax: f64) -> BottleneckConfig {
        BottleneckConfig { kmin, kmax, pmax, ..BottleneckConfig::new(10_000, 1_000_000) }
    }

    #[test]
    fn the_chance_of_a_mark_rises_between_the_thresholds() {
        let red = Red::new(&marking(100_000, 400_000, 0.5));
        let share = |depth| red.chance(depth) as f64 / chance_of(1.0) as f64;
        for (depth, expected) in [
            (0, 0.0),
            (100_000, 0.0),
            (160_000, 0.1),
            (250_000, 0.25),
            (400_000, 0.5),
            (400_001, 1.0),
            (1_000_000, 1.0),
        ] {
            assert!((share(depth) - expected).abs() < 1e-6, "{depth}: {}", share(depth));
        }
    }

    #[test]
    fn equal_thresholds_are_a_step_and_those_at_the_end_mark_nothing() {
        let step = Red::new(&marking(5000, 5000, 0.1));
        assert_eq!((step.chance(5000), step.chance(5001)), (0, chance_of(1.0)));
        let none = Red::new(&BottleneckConfig::new(1, 1_000_000));
        assert_eq!(none.chance(1_000_000), 0);
    }

    #[test]
    fn values_out_of_their_ranges_name_themselves_and_the_remedy() {
        assert_eq!(marking(1, 2, 0.0).check(), Ok(()));
        assert_eq!(BottleneckConfig::new(400_000, 1 << 26).check(), Ok(()));
        let cases = [
            (BottleneckConfig::new(0, 1), "rate: 0 Mb/s is not from"),
            (BottleneckConfig::new(400_001, 1), "rate: 400001 Mb/s is not from"),
            (BottleneckConfig::new(1, 0), "queue: 0 bytes is not from"),
            (BottleneckConfig::new(1, (1 << 26) + 1), "queue: 67108865 bytes is not from"),
            (marking(1, 1_000_001, 0.1), "kmax: 1000001 bytes are more than the queue has"),
            (marking(3, 2, 0.1), "kmin: 3 bytes are more than kmax; choose at most 2"),
            (marking(1, 2, 1.1), "pmax: is not from 0.0 to 1.0"),
            (marking(1, 2, f64::NAN), "pmax"),
        ];
        for (config, expected) in cases {
            let error = config.check().unwrap_err();
            let error = format!("{}: {error}", error.field());
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
