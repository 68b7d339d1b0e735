//! `ping`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Largest number of requests of a `ping`.
pub const PINGS_MAX: u32 = 1000;
/// Longest wait for an answer in milliseconds. After this time the CM would repeat the request.
pub const PING_TIMEOUT_MAX: u32 = 250;
/// Longest pause between two requests in milliseconds.
pub const PING_INTERVAL_MAX: u32 = 10_000;

/// Arguments of `ping`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct Ping {
    /// Address of the peer: its GID, or an IPv4 address
    #[cfg_attr(feature = "tree", arg(value_name = "GID"))]
    pub gid: IpAddr,
    /// Number of requests, up to 1000; together they may take at most one minute
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", default_value_t = 4,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PINGS_MAX))))]
    pub count: u32,
    /// Pause from one request to the next in milliseconds, up to 10000
    #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 1000,
        value_parser = clap::value_parser!(u32).range(..=i64::from(PING_INTERVAL_MAX))))]
    pub interval: u32,
    /// Longest wait for an answer in milliseconds, up to 250
    #[cfg_attr(feature = "tree", arg(long, value_name = "MS", default_value_t = 250,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(PING_TIMEOUT_MAX))))]
    pub timeout: u32,
    /// Own address; without it, the best one
    #[cfg_attr(feature = "tree", arg(long, value_name = "ADDRESS"))]
    pub source: Option<IpAddr>,
    /// RoCE device; without it, the first one of the process
    #[cfg_attr(feature = "tree", arg(long, value_name = "NAME"))]
    pub device: Option<String>,
}
