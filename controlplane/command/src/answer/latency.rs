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
