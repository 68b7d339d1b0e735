//! Answers about injected faults.

use serde::{Deserialize, Serialize};

/// The faults of one direction of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Number of the port.
    pub port: u32,
    /// RoCE device.
    pub device: String,
    /// Whether these are the faults of sent frames; otherwise of received ones.
    pub tx: bool,
    /// Share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// Share of frames that are duplicated, 0 to 1.
    pub dup: f64,
    /// Share of frames that later ones overtake, 0 to 1.
    pub reorder: f64,
    /// Share of frames with a flipped bit, 0 to 1.
    pub corrupt: f64,
    /// Delay of each frame in microseconds.
    pub delay: u32,
    /// Seed of the random choice.
    pub seed: u64,
    /// The QP to which the faulty frames belong; `None` if frames of all QPs are concerned.
    pub qp: Option<u32>,
}
