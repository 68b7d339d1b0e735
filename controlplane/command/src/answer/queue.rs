//! Answers about queues of ports.

use serde::{Deserialize, Serialize};

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// DPDK's number of the port, from 0.
    pub port: u32,
    /// Number of the queue, from 0.
    pub queue: u16,
    /// Whether the queue is a transmit queue.
    pub is_tx: bool,
    /// Number of descriptors in the configuration; the driver may have rounded it. `None` if a
    /// queue of such a port has none.
    pub descriptors: Option<u16>,
    /// Number of packet buffers of the port's mempool, if the configuration has it.
    pub mbufs: Option<u32>,
    /// Number, at its device, of the lcore that polls the queue.
    pub lcore: u32,
}
