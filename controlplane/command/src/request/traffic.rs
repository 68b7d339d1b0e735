//! Traffic of queue pairs that commands have made: `post`, `poll`, `wait`.

use serde::{Deserialize, Serialize};

#[cfg(feature = "tree")]
use super::number::number;
use super::{CmOf, QpState};

/// Longest wait that a command may ask for, in milliseconds.
pub const WAIT_MAX: u32 = 60_000;

/// Queue pair of a work request, and its memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Local {
    /// Queue pair, made by a command
    #[cfg_attr(feature = "tree", arg(long, value_name = "QPN", value_parser = number::<u32>))]
    pub qp: u32,
    /// Memory, by its key; without it, the first one of the domain that is large enough
    #[cfg_attr(feature = "tree", arg(long, value_name = "KEY", value_parser = number::<u32>))]
    pub mr: Option<u32>,
    /// First byte in the memory
    #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u64>,
        default_value = "0"))]
    pub offset: u64,
    /// How many requests
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>,
        default_value = "1"))]
    pub count: u32,
}

/// Destination of the requests of an RD queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
#[cfg_attr(feature = "tree", command(rename_all = "snake_case"))]
pub struct Datagram {
    /// RD: EE context that carries it, of the same domain
    #[cfg_attr(feature = "tree", arg(long, value_name = "EECN", required = false,
        requires = "dest_qpn", requires = "qkey", value_parser = number::<u32>))]
    pub eecn: u32,
    /// RD: number of the peer's RD queue pair
    #[cfg_attr(feature = "tree", arg(long, value_name = "QPN", required = false,
        requires = "eecn", value_parser = number::<u32>))]
    pub dest_qpn: u32,
    /// RD: Q_Key of the peer's RD queue pair
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", required = false,
        requires = "eecn", value_parser = number::<u32>))]
    pub qkey: u32,
}

/// Memory of the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Remote {
    /// Key of the peer's memory
    #[cfg_attr(feature = "tree", arg(long, value_name = "KEY", value_parser = number::<u32>))]
    pub rkey: u32,
    /// Address in the peer's memory
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS", value_parser = number::<u64>))]
    pub addr: u64,
}

/// Work requests of `post`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[cfg_attr(feature = "tree", command(rename_all = "snake_case"))]
#[serde(rename_all = "snake_case")]
pub enum Post {
    /// Post SENDs
    Send {
        /// Queue pair and memory
        #[cfg_attr(feature = "tree", command(flatten))]
        local: Local,
        /// Destination, of an RD queue pair
        #[cfg_attr(feature = "tree", command(flatten))]
        #[serde(default)]
        to: Option<Datagram>,
        /// Length of the message in bytes
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u32>))]
        len: u32,
        /// Immediate data
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>))]
        imm: Option<u32>,
    },
    /// Post RDMA WRITEs
    Write {
        /// Queue pair and memory
        #[cfg_attr(feature = "tree", command(flatten))]
        local: Local,
        /// Destination, of an RD queue pair
        #[cfg_attr(feature = "tree", command(flatten))]
        #[serde(default)]
        to: Option<Datagram>,
        /// Memory of the peer
        #[cfg_attr(feature = "tree", command(flatten))]
        remote: Remote,
        /// Length in bytes
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u32>))]
        len: u32,
        /// Immediate data
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>))]
        imm: Option<u32>,
    },
    /// Post RDMA READs
    Read {
        /// Queue pair and memory
        #[cfg_attr(feature = "tree", command(flatten))]
        local: Local,
        /// Destination, of an RD queue pair
        #[cfg_attr(feature = "tree", command(flatten))]
        #[serde(default)]
        to: Option<Datagram>,
        /// Memory of the peer
        #[cfg_attr(feature = "tree", command(flatten))]
        remote: Remote,
        /// Length in bytes
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u32>))]
        len: u32,
    },
    /// Post ATOMIC compare-and-swaps of 8 bytes
    CmpSwap {
        /// Queue pair and memory, which gets the former value
        #[cfg_attr(feature = "tree", command(flatten))]
        local: Local,
        /// Destination, of an RD queue pair
        #[cfg_attr(feature = "tree", command(flatten))]
        #[serde(default)]
        to: Option<Datagram>,
        /// Memory of the peer
        #[cfg_attr(feature = "tree", command(flatten))]
        remote: Remote,
        /// Value that is compared
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u64>))]
        compare: u64,
        /// Value that is stored if they are equal
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u64>))]
        swap: u64,
    },
    /// Post ATOMIC fetch-and-adds of 8 bytes
    FetchAdd {
        /// Queue pair and memory, which gets the former value
        #[cfg_attr(feature = "tree", command(flatten))]
        local: Local,
        /// Destination, of an RD queue pair
        #[cfg_attr(feature = "tree", command(flatten))]
        #[serde(default)]
        to: Option<Datagram>,
        /// Memory of the peer
        #[cfg_attr(feature = "tree", command(flatten))]
        remote: Remote,
        /// Value that is added
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u64>))]
        add: u64,
    },
    /// Post receives
    Recv {
        /// Queue pair and memory
        #[cfg_attr(feature = "tree", command(flatten))]
        local: Local,
        /// Longest message in bytes
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u32>))]
        len: u32,
    },
}

/// Objects of `poll`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Poll {
    /// Take completions from a queue
    Cq {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "CQ", value_parser = number::<u32>))]
        cq: u32,
        /// Largest number of completions
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u16>,
            default_value = "16"))]
        max: u16,
        /// Longest wait for the first one in milliseconds, up to 60000
        #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 0,
            value_parser = clap::value_parser!(u32).range(..=i64::from(WAIT_MAX))))]
        timeout: u32,
    },
}

/// Conditions of `wait`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Wait until a queue pair is in a state
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
        /// The state
        #[cfg_attr(feature = "tree", arg(long, value_name = "STATE", ignore_case = true))]
        state: QpState,
        /// Longest wait in milliseconds, up to 60000
        #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 10_000,
            value_parser = clap::value_parser!(u32).range(..=i64::from(WAIT_MAX))))]
        timeout: u32,
    },
    /// Wait until a connection is established
    Cm {
        /// The connection
        #[cfg_attr(feature = "tree", command(flatten))]
        of: CmOf,
        /// The state
        #[cfg_attr(feature = "tree", arg(value_name = "established"))]
        state: CmState,
        /// Longest wait in milliseconds, up to 60000
        #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 10_000,
            value_parser = clap::value_parser!(u32).range(..=i64::from(WAIT_MAX))))]
        timeout: u32,
    },
    /// Wait until a port's link is up or down
    Link {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// State of the link
        #[cfg_attr(feature = "tree", arg(value_name = "up|down"))]
        state: Link,
        /// Longest wait in milliseconds, up to 60000
        #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 10_000,
            value_parser = clap::value_parser!(u32).range(..=i64::from(WAIT_MAX))))]
        timeout: u32,
    },
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum CmState {
    /// Both ends may send
    Established,
}

/// State of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// Up
    Up,
    /// Down
    Down,
}
