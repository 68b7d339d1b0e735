//! Answers about traces.

use serde::{Deserialize, Serialize};

/// The trace of a queue pair, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qp: u32,
    /// The reason for which the trace has ended; `None` while it waits for packets.
    pub end: Option<String>,
    /// Packets that are missing in the trace, because it was too slow for them.
    pub missed: u64,
    /// The packets.
    pub packets: Vec<TracedPacket>,
}

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// Nanoseconds since the first packet. All packets of one turn of an lcore have the same time.
    pub time_ns: u64,
    /// Whether the packet was sent; otherwise it was received.
    pub is_sent: bool,
    /// Port of the device, from 1.
    pub port: u8,
    /// Name of the opcode; `-` if the opcode is not defined.
    pub packet: String,
    /// Number of the QP to which the packet is sent.
    pub dest_qpn: Option<u32>,
    /// PSN.
    pub psn: Option<u32>,
    /// Length of the payload in bytes, or of the whole frame if it is not a RoCE packet.
    pub len: u32,
    /// AETH: ACK or NAK, and the MSN; `None` without an AETH.
    pub aeth: Option<String>,
    /// Result of the packet, or what its PSN shows.
    pub verdict: String,
}
