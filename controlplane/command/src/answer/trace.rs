//! Answers about traces.

use serde::{Deserialize, Serialize};

/// The trace of a queue pair, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qp: u32,
    /// Why it has ended; `None` while it waits for packets.
    pub end: Option<String>,
    /// Packets that are not in it, since the trace could not follow.
    pub missed: u64,
    /// The packets.
    pub packets: Vec<TracedPacket>,
}

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Nanoseconds since the first packet. Packets of one turn of an lcore have one time.
    pub time_ns: u64,
    /// Whether it was sent; else it was received.
    pub is_sent: bool,
    /// Port of the device, from 1.
    pub port: u8,
    /// Name of its opcode; `-` if it has none that is defined.
    pub packet: String,
    /// Number of the QP that it is for.
    pub dest_qpn: Option<u32>,
    /// PSN.
    pub psn: Option<u32>,
    /// Length of its payload in bytes; of the whole frame if that is no packet.
    pub len: u32,
    /// AETH: ACK or NAK, and the MSN.
    pub aeth: Option<String>,
    /// What became of it, or what its PSN says of it.
    pub verdict: String,
}
