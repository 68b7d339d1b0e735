//! Answers about queues of ports.

use serde::{Deserialize, Serialize};

/// A queue of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueInfo {
    /// DPDK's number of the port, from 0.
    pub port: u32,
    /// Number of the queue, from 0.
    pub queue: u16,
    /// Whether it is a transmit queue.
    pub is_tx: bool,
    /// Descriptors that were asked for; a driver may round the number.
    pub descriptors: u16,
    /// Packet buffers of the port's mempool, if they were given.
    pub mbufs: Option<u32>,
    /// Lcore that polls it, by its number at the device.
    pub lcore: u32,
}
