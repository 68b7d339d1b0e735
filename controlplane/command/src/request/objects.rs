//! Objects: `create`, `reg`, `dereg`, `destroy`, `modify`, `query`, and what they may do.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::number::Switch;
#[cfg(feature = "tree")]
use super::number::number;

/// Objects of `create`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Create {
    /// Create a protection domain
    Pd {
        /// RoCE device; without it, the first one of the process
        #[cfg_attr(feature = "tree", arg(long, value_name = "NAME"))]
        device: Option<String>,
    },
    /// Create a completion queue
    Cq {
        /// Completions that it can hold
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>))]
        depth: u32,
        /// RoCE device; without it, the first one of the process
        #[cfg_attr(feature = "tree", arg(long, value_name = "NAME"))]
        device: Option<String>,
    },
    /// Create a shared receive queue
    Srq {
        /// Protection domain
        #[cfg_attr(feature = "tree", arg(long, value_name = "PD", value_parser = number::<u32>))]
        pd: u32,
        /// Receives that it can hold
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>))]
        depth: u32,
        /// Scatter elements of a receive
        #[cfg_attr(feature = "tree", arg(long, value_name = "N", default_value_t = 1))]
        sge: u32,
    },
    /// Create a reliable datagram domain: the RD queue pairs of a domain send by its EE contexts
    Rdd {
        /// RoCE device; without it, the first one of the process
        #[cfg_attr(feature = "tree", arg(long, value_name = "NAME"))]
        device: Option<String>,
        /// Lcore of its queue pairs and EE contexts; without it, the lcores take turns
        #[cfg_attr(feature = "tree", arg(long, value_name = "LCORE", value_parser = number::<u32>))]
        lcore: Option<u32>,
    },
    /// Create a queue pair or an EE context, in RESET
    Qp(CreateQp),
}

/// Arguments of `create qp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct CreateQp {
    /// Transport service
    #[cfg_attr(feature = "tree", arg(long, value_name = "TYPE", ignore_case = true))]
    pub r#type: QpType,
    /// Protection domain
    #[cfg_attr(feature = "tree", arg(long, value_name = "PD", value_parser = number::<u32>))]
    pub pd: u32,
    /// Completion queue of its sends
    #[cfg_attr(feature = "tree", arg(long, value_name = "CQ", value_parser = number::<u32>))]
    pub scq: u32,
    /// Completion queue of its receives
    #[cfg_attr(feature = "tree", arg(long, value_name = "CQ", value_parser = number::<u32>))]
    pub rcq: u32,
    /// Shared receive queue, from which it takes its receives
    #[cfg_attr(feature = "tree", arg(long, value_name = "SRQ", value_parser = number::<u32>))]
    pub srq: Option<u32>,
    /// Requests that each of its queues can hold
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>,
        default_value = "128"))]
    pub depth: u32,
    /// Elements in the list of a request
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>,
        default_value = "1"))]
    pub sge: u32,
    /// Reliable datagram domain, of RD and EEC
    #[cfg_attr(feature = "tree", arg(long, value_name = "RDD", value_parser = number::<u32>))]
    #[serde(default)]
    pub rdd: Option<u32>,
    /// Lcore that is to own it; without it, the one with the fewest QPs. RD and EEC: the domain's
    #[cfg_attr(feature = "tree", arg(long, value_name = "LCORE", value_parser = number::<u32>))]
    pub lcore: Option<u32>,
}

/// Objects of `reg`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Reg {
    /// Allocate memory in the process and register it
    Mr {
        /// Protection domain
        #[cfg_attr(feature = "tree", arg(long, value_name = "PD", value_parser = number::<u32>))]
        pd: u32,
        /// Length in bytes
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u64>))]
        len: u64,
        /// Access rights, with commas between them
        #[cfg_attr(
            feature = "tree",
            arg(
                long,
                value_name = "RIGHTS",
                value_delimiter = ',',
                default_value = "all",
                ignore_case = true
            )
        )]
        access: Vec<Access>,
        /// Byte that fills it, 0 to 255
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTE", value_parser = number::<u8>))]
        pattern: Option<u8>,
    },
}

/// Objects of `dereg`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Dereg {
    /// Deregister memory that was registered by a command, and free it
    Mr {
        /// Its key
        #[cfg_attr(feature = "tree", arg(value_name = "KEY", value_parser = number::<u32>))]
        key: u32,
    },
}

/// Objects of `destroy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Destroy {
    /// Destroy a queue pair
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
        /// Destroy it even if it belongs to the program and was not made by a command
        #[cfg_attr(feature = "tree", arg(long))]
        force: bool,
    },
    /// Destroy a completion queue that was made by a command
    Cq {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "CQ", value_parser = number::<u32>))]
        cq: u32,
    },
    /// Destroy a shared receive queue that was made by a command
    Srq {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "SRQ", value_parser = number::<u32>))]
        srq: u32,
    },
    /// Destroy a reliable datagram domain that was made by a command
    Rdd {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "RDD", value_parser = number::<u32>))]
        rdd: u32,
    },
    /// Destroy a protection domain that was made by a command
    Pd {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "PD", value_parser = number::<u32>))]
        pd: u32,
    },
    /// Deregister memory that was registered by a command, and free it
    Mr {
        /// Its key
        #[cfg_attr(feature = "tree", arg(value_name = "KEY", value_parser = number::<u32>))]
        key: u32,
    },
}

/// Objects of `query`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Query {
    /// Query QP: all attributes of a queue pair
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
    },
    /// Show bytes of memory that was registered by a command
    Mr {
        /// Its key
        #[cfg_attr(feature = "tree", arg(value_name = "KEY", value_parser = number::<u32>))]
        key: u32,
        /// First byte
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u64>,
            default_value = "0"))]
        offset: u64,
        /// How many, up to 4096
        #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u16>,
            default_value = "64"))]
        len: u16,
    },
}

/// Objects of `modify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Modify {
    /// Modify QP: its state, other attributes, or both
    Qp(Box<ModifyQp>),
}

/// Arguments of `modify qp`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
#[cfg_attr(feature = "tree", command(rename_all = "snake_case"))]
pub struct ModifyQp {
    /// Its number
    #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
    pub qp: u32,
    /// New state
    #[cfg_attr(feature = "tree", arg(long, value_name = "STATE", ignore_case = true))]
    pub state: Option<QpState>,
    /// State that it must be in
    #[cfg_attr(feature = "tree", arg(long, value_name = "STATE", ignore_case = true))]
    pub cur_state: Option<QpState>,
    /// Port of the device, from 1
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub port: Option<u8>,
    /// P_Key
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u16>))]
    pub pkey: Option<u16>,
    /// Q_Key (UD, RD)
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>))]
    pub qkey: Option<u32>,
    /// Rights of the peer, with commas between them
    #[cfg_attr(
        feature = "tree",
        arg(long, value_name = "RIGHTS", value_delimiter = ',', ignore_case = true)
    )]
    pub access: Option<Vec<Access>>,
    /// Number of the peer's queue pair, or EE context
    #[cfg_attr(feature = "tree", arg(long, value_name = "QPN", value_parser = number::<u32>))]
    pub dest_qpn: Option<u32>,
    /// Path: address of the peer
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub dest_gid: Option<IpAddr>,
    /// Path: index of the own address
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>,
        requires = "dest_gid"))]
    pub sgid_index: Option<u8>,
    /// Path: DSCP and ECN
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>,
        requires = "dest_gid"))]
    pub tclass: Option<u8>,
    /// Path: flow label, 20 bits
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>,
        requires = "dest_gid"))]
    pub flow_label: Option<u32>,
    /// Path: TTL or hop limit
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>,
        requires = "dest_gid"))]
    pub hop_limit: Option<u8>,
    /// Path: service level, 0 to 7
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>,
        requires = "dest_gid"))]
    pub sl: Option<u8>,
    /// Path: UDP source port, 0xc000 to 0xffff
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u16>,
        requires = "dest_gid"))]
    pub udp_sport: Option<u16>,
    /// Largest payload of a packet: 256, 512, 1024, 2048 or 4096
    #[cfg_attr(feature = "tree", arg(long, value_name = "BYTES", value_parser = number::<u16>))]
    pub path_mtu: Option<u16>,
    /// Starting PSN of the send queue
    #[cfg_attr(feature = "tree", arg(long, value_name = "PSN", value_parser = number::<u32>))]
    pub sq_psn: Option<u32>,
    /// Starting PSN of the receive queue
    #[cfg_attr(feature = "tree", arg(long, value_name = "PSN", value_parser = number::<u32>))]
    pub rq_psn: Option<u32>,
    /// Code of the local ACK timeout, 0 to 31
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub timeout: Option<u8>,
    /// Transport retries, 0 to 7
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub retry_cnt: Option<u8>,
    /// RNR retries, 0 to 7; 7 means without end
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub rnr_retry: Option<u8>,
    /// Code of the RNR NAK timer, 0 to 31
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub min_rnr_timer: Option<u8>,
    /// READ and ATOMIC requests that it may have outstanding
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub max_rd_atomic: Option<u8>,
    /// READ and ATOMIC requests that the peer may have outstanding
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub max_dest_rd_atomic: Option<u8>,
    /// State of path migration
    #[cfg_attr(feature = "tree", arg(long, value_name = "STATE", ignore_case = true))]
    pub path_mig_state: Option<PathMigState>,
    /// Limit of the sending rate in kbit/s; 0 is none
    #[cfg_attr(feature = "tree", arg(long, value_name = "KBITS", value_parser = number::<u32>))]
    pub rate_limit: Option<u32>,
    /// Event when the send queue is drained
    #[cfg_attr(feature = "tree", arg(long, value_name = "on|off"))]
    pub sqd_notify: Option<Switch>,
    /// Selective repeat, which both ends must use
    #[cfg_attr(feature = "tree", arg(long, value_name = "on|off"))]
    pub selective_repeat: Option<Switch>,
    /// UDP source ports that requests use in turn: 1, 2, 4, 8 or 16
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>))]
    pub udp_source_ports: Option<u8>,
    /// Milliseconds of silence after which the peer is asked for a sign of life; 0 means never
    #[cfg_attr(feature = "tree", arg(long, value_name = "MS", value_parser = number::<u32>))]
    pub keepalive: Option<u32>,
    /// Change state, rights, Q_Key or peer even of a queue pair that a command has not made
    #[cfg_attr(feature = "tree", arg(long))]
    pub force: bool,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($(#[$about:meta])* $variant:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "tree", derive(clap::ValueEnum))]
        pub enum $name {
            $($(#[$about])*
            #[cfg_attr(feature = "tree", value(name = $word))]
            #[serde(rename = $word)]
            $variant,)*
        }
    };
}

words! {
    /// Transport service.
    QpType:
    /// Reliable connection
    Rc = "RC",
    /// Unreliable connection
    Uc = "UC",
    /// Unreliable datagram
    Ud = "UD",
    /// Reliable datagram
    Rd = "RD",
    /// End-to-end context, which carries the messages of RD queue pairs
    Eec = "EEC",
}

words! {
    /// State of a queue pair.
    QpState:
    /// Created
    Reset = "RESET",
    /// Receives can be posted
    Init = "INIT",
    /// Ready to receive
    Rtr = "RTR",
    /// Ready to send
    Rts = "RTS",
    /// Send queue drain
    Sqd = "SQD",
    /// Send queue error
    Sqe = "SQE",
    /// Error
    Err = "ERR",
}

words! {
    /// State of path migration.
    PathMigState:
    /// On its present path, without another
    Migrated = "MIGRATED",
    /// Ready to migrate when the peer is
    Rearm = "REARM",
    /// Both ends are ready
    Armed = "ARMED",
}

words! {
    /// An access right.
    Access:
    /// All rights
    All = "all",
    /// Receives, and results of READ and ATOMIC
    LocalWrite = "local_write",
    /// WRITE of the peer
    RemoteWrite = "remote_write",
    /// READ of the peer
    RemoteRead = "remote_read",
    /// ATOMIC of the peer
    RemoteAtomic = "remote_atomic",
    /// Memory windows
    MwBind = "mw_bind",
    /// None of them
    None = "none",
}
