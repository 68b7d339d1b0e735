//! Answers about faults on purpose.

use serde::{Deserialize, Serialize};

/// The faults of one direction of a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// Number of the port.
    pub port: u32,
    /// RoCE device.
    pub device: String,
    /// Whether they are of frames that are sent; else of received ones.
    pub tx: bool,
    /// Share of frames that are lost, 0 to 1.
    pub loss: f64,
    /// Share of frames that come twice.
    pub dup: f64,
    /// Share of frames that later ones overtake.
    pub reorder: f64,
    /// Share of frames with a wrong bit.
    pub corrupt: f64,
    /// Delay in microseconds.
    pub delay: u32,
    /// Seed of the random choice.
    pub seed: u64,
    /// The QP of which frames are concerned, if not all are.
    pub qp: Option<u32>,
}
