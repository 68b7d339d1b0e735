//! Answers to commands that act: `create`, `reg`, `query mr`, `poll`, `listen`, `connect`, `stop`.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// An object that a command has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// RoCE device.
    pub device: String,
    /// Kind: PD, CQ, SRQ, QP, MR.
    pub object: String,
    /// Number of the object; for an MR, its key.
    pub number: u32,
    /// Starting PSN that was drawn for the QP.
    pub psn: Option<u32>,
    /// Address and length in bytes of the MR.
    pub memory: Option<(u64, u64)>,
}

/// Bytes of registered memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Address of the first byte.
    pub address: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A completion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    /// `wr_id` of the work request.
    pub wr_id: u64,
    /// Status as a text. After an error, `opcode`, `byte_len` and `imm` have no meaning.
    pub status: String,
    /// Operation.
    pub opcode: String,
    /// Number of bytes received.
    pub byte_len: u32,
    /// Immediate data.
    pub imm: Option<u32>,
    /// Number of the QP.
    pub qpn: u32,
}

/// A listener or connection that a command has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// RoCE device.
    pub device: String,
    /// CM id.
    pub id: u64,
    /// Local address and port.
    pub local: SocketAddr,
    /// The peer's address and port; `None` for a listener.
    pub peer: Option<SocketAddr>,
    /// Number of the local QP; `None` for a listener.
    pub qpn: Option<u32>,
    /// Number of the protection domain.
    pub pd: u32,
    /// Number of the completion queue.
    pub cq: u32,
}

/// Counters of a port since forwarding was started or they were cleared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FwdStats {
    /// DPDK's number of the port.
    pub port: u32,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames that the device dropped before they were received.
    pub rx_dropped: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames that could not be forwarded through the port.
    pub tx_dropped: u64,
}
