//! Answer to `ping`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Result of a `ping`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// RoCE device.
    pub device: String,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Number of requests sent.
    pub sent: u32,
    /// Round-trip time of each answered request in nanoseconds, in order.
    pub rtt_ns: Vec<u64>,
}
