//! Answers about how a port spreads received packets over its queues.

use serde::{Deserialize, Serialize};

/// The table by which a driver spreads received packets over queues (RSS RETA).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortReta {
    /// DPDK's number of the port, from 0.
    pub port: u32,
    /// Name of its driver.
    pub driver: String,
    /// The queue of each entry, by the low bits of the packet's hash; `None` if the driver does not
    /// tell it.
    pub queues: Option<Vec<u16>>,
}
