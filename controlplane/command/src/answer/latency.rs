//! Answers about round trips.

use serde::{Deserialize, Serialize};

/// Round trips of a queue pair's requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qpn: u32,
    /// Service: RC, UC, UD.
    pub service: String,
    /// Number of round trips that were measured since the QP left RESET or `clear latency`.
    pub samples: u32,
    /// Their times; `None` without a sample.
    pub times: Option<Times>,
}

/// Times in nanoseconds, from the turn of the lcore that sent a request to the turn that received
/// its acknowledgement, with the peer's own time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Shortest.
    pub min_ns: u32,
    /// Mean.
    pub mean_ns: u32,
    /// Longest.
    pub max_ns: u32,
    /// The last one.
    pub last_ns: u32,
}

/// Distribution of a device's round trips.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distribution {
    /// RoCE device.
    pub device: String,
    /// Sum of all times in nanoseconds.
    pub sum_ns: u64,
    /// Buckets with a sample, in ascending order.
    pub buckets: Vec<Bucket>,
}

/// Round trips of similar time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Longest time of the bucket in nanoseconds. All times in it are above the last bucket's.
    pub le_ns: u64,
    /// Number of samples in it.
    pub count: u64,
}

impl Distribution {
    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// Returns a time in nanoseconds that this share of the samples, 0 to 1, does not exceed;
    /// `None` without a sample.
    pub fn percentile(&self, share: f64) -> Option<u64> {
        let rank = ((self.samples() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0u64;
        let found = self.buckets.iter().find(|bucket| {
            seen = seen.saturating_add(bucket.count);
            seen >= rank
        });
        Some(found?.le_ns)
    }
}
