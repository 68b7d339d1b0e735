//! Connections: `listen`, `connect`, `disconnect`, `cm lap`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

#[cfg(feature = "tree")]
use super::number::number;
#[cfg(feature = "tree")]
use super::traffic::WAIT_MAX;

/// Arguments of `listen`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Listen {
    /// Port of the RDMA service (port space TCP of `rdma_cm`); 0 chooses a free one
    #[cfg_attr(feature = "tree", arg(value_name = "SERVICE_PORT", value_parser = number::<u16>))]
    pub port: u16,
    /// Requests that may wait
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>,
        default_value = "16"))]
    pub backlog: u32,
    /// Own address; without it, all addresses of the device
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub address: Option<IpAddr>,
    /// Queue pairs of the connections
    #[cfg_attr(feature = "tree", command(flatten))]
    pub queues: Queues,
}

/// Arguments of `connect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Connect {
    /// Address of the peer
    #[cfg_attr(feature = "tree", arg(value_name = "ADDRESS"))]
    pub address: IpAddr,
    /// Port of its RDMA service (port space TCP of `rdma_cm`)
    #[cfg_attr(feature = "tree", arg(value_name = "SERVICE_PORT", value_parser = number::<u16>))]
    pub port: u16,
    /// Alternate path: another address of the peer
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub alt: Option<IpAddr>,
    /// Longest wait in milliseconds, up to 60000
    #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(..=i64::from(WAIT_MAX))))]
    pub timeout: u32,
    /// Queue pair of the connection
    #[cfg_attr(feature = "tree", command(flatten))]
    pub queues: Queues,
}

/// Objects of the RC queue pairs that are made for connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Queues {
    /// RoCE device; without it, that of the domain or queue, or the first one of the process
    #[cfg_attr(feature = "tree", arg(long, value_name = "NAME"))]
    pub device: Option<String>,
    /// Protection domain; without it, the first one of the device, or a new one
    #[cfg_attr(feature = "tree", arg(long, value_name = "PD", value_parser = number::<u32>))]
    pub pd: Option<u32>,
    /// Completion queue; without it, the first one of the device, or a new one
    #[cfg_attr(feature = "tree", arg(long, value_name = "CQ", value_parser = number::<u32>))]
    pub cq: Option<u32>,
    /// Requests that each of the queues can hold
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u32>,
        default_value = "128"))]
    pub depth: u32,
}

/// An id of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct CmOf {
    /// Its number
    #[cfg_attr(feature = "tree", arg(value_name = "CM", value_parser = number::<u32>))]
    pub cm: u32,
    /// Its RoCE device, if several have an id of this number
    #[cfg_attr(feature = "tree", arg(long, value_name = "NAME"))]
    pub device: Option<String>,
}

/// Arguments of `disconnect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Disconnect {
    /// The connection or listener
    #[cfg_attr(feature = "tree", command(flatten))]
    pub of: CmOf,
    /// End it even if it belongs to the program and was not made by a command
    #[cfg_attr(feature = "tree", arg(long))]
    pub force: bool,
}

/// Commands of the connection manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Cm {
    /// Agree with the peer on another alternate path (LAP, APR), load it at both ends and arm it
    Lap(Lap),
}

/// Arguments of `cm lap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Lap {
    /// The connection, made by a command
    #[cfg_attr(feature = "tree", command(flatten))]
    pub of: CmOf,
    /// Alternate path: another address of the peer
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub alt: IpAddr,
    /// Own address of the alternate path; without it, the best one
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub source: Option<IpAddr>,
    /// Longest wait in milliseconds, up to 60000
    #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(..=i64::from(WAIT_MAX))))]
    pub timeout: u32,
}
