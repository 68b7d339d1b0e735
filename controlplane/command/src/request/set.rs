//! Settings: `set`.

use serde::{Deserialize, Serialize};

use super::fault::SetFault;
use super::forward::FwdMode;
use super::log::LogLevel;
use super::number::Switch;
#[cfg(feature = "tree")]
use super::number::number;
use super::port::Fixed;

/// Longest period of statistics in seconds: a day.
pub const STATS_PERIOD_MAX: u32 = 86_400;

/// Objects of `set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// Set what becomes of received frames after `start`
    Fwd {
        /// `io`: they leave through the other port of a pair, 0 and 1, 2 and 3; `csum`: as with
        /// `io`, with IPv4 and UDP checksums computed anew; `echo`: through their own, with
        /// Ethernet addresses exchanged; `rxonly`: they are dropped; `endpoint` or `icmpecho`: they
        /// go to QPs, ARP, neighbour discovery and ICMP echo
        #[cfg_attr(feature = "tree", arg(value_name = "MODE"))]
        mode: FwdMode,
    },
    /// Change a queue pair
    Qp {
        /// Its number
        #[cfg_attr(feature = "tree", arg(value_name = "QPN", value_parser = number::<u32>))]
        qp: u32,
        /// Limit of its sending rate in Gbit/s, rounded to kbit/s; `off` for none
        #[cfg_attr(feature = "tree", arg(long, value_name = "GBPS|off", value_parser = rate))]
        #[serde(default)]
        rate: Option<u32>,
        /// Class of its packets
        #[cfg_attr(feature = "tree", command(flatten))]
        #[serde(default)]
        class: Class,
    },
    /// Change a port
    Port {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// Take its link up
        #[cfg_attr(feature = "tree", arg(long = "link-up", conflicts_with = "down"))]
        up: bool,
        /// Take its link down, as an administrator does
        #[cfg_attr(feature = "tree", arg(long = "link-down"))]
        down: bool,
        /// Rate in Gbit/s at which its frames leave, as if the link were that slow, rounded to
        /// Mbit/s; `off` for the link's own rate. Frames that cannot leave at once wait
        #[cfg_attr(feature = "tree", arg(long, value_name = "GBPS|off", value_parser = rate))]
        #[serde(default)]
        rate: Option<u32>,
    },
    /// Take a link up
    #[cfg_attr(feature = "tree", command(name = "link-up", subcommand))]
    LinkUp(LinkOf),
    /// Take a link down, as an administrator does
    #[cfg_attr(feature = "tree", command(name = "link-down", subcommand))]
    LinkDown(LinkOf),
    /// Inject faults into RoCEv2 frames, for tests: loss, duplicates, wrong order, wrong bits,
    /// delay
    Fault(SetFault),
    /// Leave counters that are zero out of `show port xstats`
    #[cfg_attr(feature = "tree", command(name = "xstats-hide-zero"))]
    XstatsHideZero {
        /// Whether they are left out
        #[cfg_attr(feature = "tree", arg(value_name = "on|off"))]
        hide: Switch,
    },
    /// Show the statistics of all ports again and again beside the prompt, until the period is 0
    #[cfg_attr(feature = "tree", command(name = "stats-period"))]
    StatsPeriod {
        /// Seconds from one time to the next, up to a day; 0 ends it
        #[cfg_attr(feature = "tree", arg(value_name = "SECONDS",
            value_parser = clap::value_parser!(u32).range(..=i64::from(STATS_PERIOD_MAX))))]
        seconds: u32,
    },
    /// Set how much the process writes to its log, which is its stderr; `trace qp` follows packets
    Verbose {
        /// 0: nothing; 1: devices, links, events of ports; 2: also Modify QP, paths, connections;
        /// 3: all
        #[cfg_attr(feature = "tree", arg(value_name = "N", value_parser = number::<u16>))]
        level: u16,
    },
    /// Set how much one part of the process writes to its log
    Log {
        /// `global`, or a module such as `rdma_cm`
        #[cfg_attr(feature = "tree", arg(value_name = "TYPE"))]
        part: String,
        /// Level
        #[cfg_attr(feature = "tree", arg(value_name = "LEVEL"))]
        level: LogLevel,
    },
    /// Frames in a burst
    #[cfg_attr(feature = "tree", command(hide = true))]
    Burst(Fixed),
    /// What an lcore does when idle
    #[cfg_attr(feature = "tree", command(hide = true))]
    Idle(Fixed),
    /// Promiscuous mode
    #[cfg_attr(feature = "tree", command(hide = true))]
    Promisc(Fixed),
    /// Reception of all multicast frames
    #[cfg_attr(feature = "tree", command(hide = true))]
    Allmulti(Fixed),
}

/// Class of a queue pair's packets on its path, which changes in SQD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
#[serde(default)]
pub struct Class {
    /// Traffic class of its packets, IPv4's TOS: DSCP and ECN. For the path in use, in SQD
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = number::<u8>,
        conflicts_with = "dscp"))]
    pub tclass: Option<u8>,
    /// DSCP of its packets, 0 to 63; the bits of ECN stay. In SQD
    #[cfg_attr(feature = "tree", arg(long, value_name = "N", value_parser = dscp))]
    pub dscp: Option<u8>,
    /// Priority of its frames, 0 to 7, on a port with a VLAN. In SQD
    #[cfg_attr(feature = "tree", arg(long = "vlan_pcp", value_name = "N", value_parser = priority))]
    pub vlan_pcp: Option<u8>,
}

impl Class {
    /// Returns whether nothing of it is to change.
    pub fn is_empty(self) -> bool {
        self == Class::default()
    }
}

/// Parses a DSCP.
#[cfg(feature = "tree")]
fn dscp(text: &str) -> Result<u8, &'static str> {
    number::<u8>(text).ok().filter(|dscp| *dscp < 64).ok_or("not a number from 0 to 63")
}

/// Parses a priority.
#[cfg(feature = "tree")]
fn priority(text: &str) -> Result<u8, &'static str> {
    number::<u8>(text).ok().filter(|priority| *priority < 8).ok_or("not a number from 0 to 7")
}

/// Parses a rate in Gbit/s, or `off`, which is 0. Returns kbit/s.
#[cfg(feature = "tree")]
fn rate(text: &str) -> Result<u32, &'static str> {
    if text == "off" {
        return Ok(0);
    }
    let kbits = text.parse::<f64>().map_or(f64::NAN, |gbits| (gbits * 1e6).round());
    // `NAN` is outside of every range.
    let is_a_rate = (1.0..=f64::from(u32::MAX)).contains(&kbits);
    if is_a_rate { Ok(kbits as u32) } else { Err("neither a rate in Gbit/s nor off") }
}

/// Object that has a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum LinkOf {
    /// Set the link of a port
    Port {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
    },
}
