//! Settings: `set`.

use serde::{Deserialize, Serialize};

use super::fault::SetFault;
use super::forward::FwdMode;
use super::log::LogLevel;
use super::number::Switch;
#[cfg(feature = "tree")]
use super::number::number;
use super::port::Fixed;

/// Objects of `set`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Set {
    /// Set what becomes of received frames after `start`
    Fwd {
        /// `io`: they leave through the other port of a pair, 0 and 1, 2 and 3; `echo`: through
        /// their own, with Ethernet addresses exchanged; `rxonly`: they are dropped; `endpoint` or
        /// `icmpecho`: they go to QPs, ARP, neighbour discovery and ICMP echo
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
        rate: u32,
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
        /// Rate in Gbit/s at which its frames leave, as if the link were that slow; `off` for the
        /// link's own rate. Frames that cannot leave at once wait
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
