//! Requests: the commands that a process answers.

mod capture;
mod cm;
mod connections;
mod dump;
mod fault;
mod forward;
mod ip;
mod log;
mod migration;
pub(crate) mod number;
mod objects;
mod ping;
mod port;
mod route;
mod set;
mod trace;
mod traffic;

use serde::{Deserialize, Serialize};

pub use capture::Capture;
pub use cm::SelectCm;
pub use connections::{Cm, CmOf, Connect, Disconnect, Lap, Listen, Queues};
pub use dump::Dump;
pub use fault::{SetFault, Share};
pub use forward::{All, BURSTS_MAX, Fwd, FwdMode, Start};
pub use ip::{Ip, Prefix};
pub use log::LogLevel;
pub use migration::{Alt, AltPath, Migrate, Rearm};
pub use number::Switch;
pub use objects::{
    Access, Create, CreateQp, Dereg, Destroy, Modify, ModifyQp, PathMigState, QpState, QpType,
    Query, Reg,
};
pub use ping::{PING_INTERVAL_MAX, PING_TIMEOUT_MAX, PINGS_MAX, Ping};
pub use port::{Fixed, Port, ShowQueue, ShowRss};
pub use route::{Ethernet, Neigh, Network, Route, RouteVia};
pub use set::{Class, LinkOf, STATS_PERIOD_MAX, Set};
pub use trace::{PACKETS_MAX, Trace};
pub use traffic::{CmState, Datagram, Link, Local, Poll, Post, Remote, WAIT_MAX, Wait};

/// A command that a running process answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Show information
    #[cfg_attr(feature = "tree", command(subcommand))]
    Show(Show),
    /// Set counters back to zero
    #[cfg_attr(feature = "tree", command(subcommand))]
    Clear(Clear),
    /// Show DPDK's own view of its memory, rings and threads
    #[cfg_attr(feature = "tree", command(subcommand))]
    Dump(Dump),
    /// Write the frames of a port to a file
    #[cfg_attr(feature = "tree", command(subcommand))]
    Capture(Capture),
    /// Follow the packets of objects
    #[cfg_attr(feature = "tree", command(subcommand))]
    Trace(Trace),
    /// Create objects in the process
    #[cfg_attr(feature = "tree", command(subcommand))]
    Create(Create),
    /// Register memory
    #[cfg_attr(feature = "tree", command(subcommand))]
    Reg(Reg),
    /// Deregister memory
    #[cfg_attr(feature = "tree", command(subcommand))]
    Dereg(Dereg),
    /// Destroy objects
    #[cfg_attr(feature = "tree", command(subcommand))]
    Destroy(Destroy),
    /// Modify objects
    #[cfg_attr(feature = "tree", command(subcommand))]
    Modify(Modify),
    /// Query objects
    #[cfg_attr(feature = "tree", command(subcommand))]
    Query(Query),
    /// The request of `load alt path`, which the tree has below `load`
    #[cfg_attr(feature = "tree", command(skip))]
    LoadAltPath(AltPath),
    /// Make queue pairs ready to migrate
    #[cfg_attr(feature = "tree", command(subcommand))]
    Rearm(Rearm),
    /// Migrate to alternate paths
    #[cfg_attr(feature = "tree", command(subcommand))]
    Migrate(Migrate),
    /// Change settings
    #[cfg_attr(feature = "tree", command(subcommand))]
    Set(Set),
    /// Post work requests
    #[cfg_attr(feature = "tree", command(subcommand))]
    Post(Post),
    /// Take completions
    #[cfg_attr(feature = "tree", command(subcommand))]
    Poll(Poll),
    /// Start and stop ports
    #[cfg_attr(feature = "tree", command(subcommand))]
    Port(Port),
    /// Change addresses of ports
    #[cfg_attr(feature = "tree", command(subcommand))]
    Ip(Ip),
    /// Change routes of ports
    #[cfg_attr(feature = "tree", command(subcommand))]
    Route(Route),
    /// Change neighbours of ports
    #[cfg_attr(feature = "tree", command(subcommand))]
    Neigh(Neigh),
    /// Start forwarding in the mode of `set fwd`, and count frames from here
    Start(Start),
    /// Stop forwarding, and show what ports have received and sent since the start
    Stop,
    /// Wait for a state
    #[cfg_attr(feature = "tree", command(subcommand))]
    Wait(Wait),
    /// Ask the connection manager of a peer for signs of life (SIDR), and measure the times
    Ping(Ping),
    /// Listen for connections, and accept each with an RC queue pair of its own
    Listen(Listen),
    /// Connect a new RC queue pair to a listener
    Connect(Connect),
    /// End a connection and destroy its queue pair, or end a listener
    Disconnect(Disconnect),
    /// Manage connections
    #[cfg_attr(feature = "tree", command(subcommand))]
    Cm(Cm),
    /// Everything that `uroce export` reports about a process. No command.
    #[cfg_attr(feature = "tree", command(skip))]
    Scrape(Scrape),
}

/// The contents of a scrape besides counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrape {
    /// Number of QPs listed of each device, those with the most bytes; 0 leaves all QPs out.
    pub qps: u32,
    /// Whether lcores measure their turns for the next two minutes.
    pub measure: bool,
}

/// Objects of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// Ports, by DPDK's numbers, from 0
    #[cfg_attr(feature = "tree", command(subcommand))]
    Port(ShowPort),
    /// Receive queues
    #[cfg_attr(feature = "tree", command(subcommand))]
    Rxq(ShowQueue),
    /// Transmit queues
    #[cfg_attr(feature = "tree", command(subcommand))]
    Txq(ShowQueue),
    /// The process: number, program, devices, addresses
    Process,
    /// RoCE devices with their limits and ports
    Device {
        /// All capabilities and limits, as `ibv_devinfo -v` prints them
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        detail: bool,
    },
    /// GID tables
    Gid,
    /// Queue pairs: state, service, peer, PSNs; of one, all attributes
    Qp {
        /// Number of a QP, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "QPN|all", default_value = "all"))]
        qp: Select,
    },
    /// Paths of queue pairs: addresses, next hop, migration
    Path {
        /// Number of a QP, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "QPN|all", default_value = "all"))]
        qp: Select,
    },
    /// Path migration of queue pairs: state, alternate path, failovers
    Migration {
        /// Number of a QP, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "QPN|all", default_value = "all"))]
        qp: Select,
    },
    /// Sending rates of queue pairs: limits, static rates of their paths
    Rate {
        /// Number of a QP, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "QPN|all", default_value = "all"))]
        qp: Select,
    },
    /// Connections: state, addresses, queue pairs; `listen` for those that listen
    Cm {
        /// Number of a connection, `listen`, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "CM|listen|all", default_value = "all"))]
        cm: SelectCm,
    },
    /// Multicast groups that queue pairs are attached to
    Mcast,
    /// Number of protection domains
    Pd,
    /// Number of completion queues
    Cq,
    /// Number of memory regions and windows
    Mr,
    /// Number of memory windows alone
    Mw,
    /// Number of shared receive queues
    Srq,
    /// Number of address handles
    Ah,
    /// Neighbours: the Ethernet addresses of IP addresses
    Neigh,
    /// Routes of ports: own networks, routers of other networks
    Route,
    /// Configuration
    #[cfg_attr(feature = "tree", command(subcommand))]
    Config(ShowConfig),
    /// Forwarding
    #[cfg_attr(feature = "tree", command(subcommand))]
    Fwd(Fwd),
    /// Counters of engine, transport and control plane; of queue pairs; of ports
    Counters {
        /// Number of a queue pair, or `all`
        #[cfg_attr(feature = "tree", arg(long, value_name = "QPN|all", conflicts_with = "port"))]
        qp: Option<Select>,
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(long, value_name = "PORT|all"))]
        port: Option<Select>,
    },
    /// Reasons for which frames were dropped, with the lcores that did it
    Errors,
    /// Stages of the lcores' turns for a second: calls, packets, cycles, share of the time
    Runtime,
    /// Round trips of queue pairs: from sending a request to its acknowledgement
    Latency {
        /// Number of a queue pair, or `all`
        #[cfg_attr(
            feature = "tree",
            arg(long, value_name = "QPN|all", conflicts_with = "distribution")
        )]
        qp: Option<Select>,
        /// Percentiles of all queue pairs of each device, also of those that are destroyed
        #[cfg_attr(feature = "tree", arg(long))]
        #[serde(default)]
        distribution: bool,
    },
    /// The last events of QPs and ports, at most 256 of each device; those that are withheld
    /// from the program say so
    Events {
        /// How many of each device
        #[cfg_attr(feature = "tree", arg(value_name = "COUNT", default_value_t = 256))]
        count: u32,
    },
    /// Captures: their files, frames, and frames that were missed
    Capture,
    /// Packets of the last `trace` of each device: what they are, and what became of them
    Trace,
    /// Injected faults of each port and direction; `show counters` counts them
    Fault,
}

/// Views of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum ShowPort {
    /// Addresses, link, device, queues
    Info {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// One line a port
    Summary {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// Frames and bytes, and their rates since the last time
    Stats {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// The driver's own counters
    Xstats {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// Capabilities of the device
    Cap {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// How received packets are spread over queues
    #[cfg_attr(feature = "tree", command(subcommand))]
    Rss(ShowRss),
}

/// Parts of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum ShowConfig {
    /// Lcores: CPUs, what they do when idle, their QPs
    Cores,
    /// Congestion control, selective repeat, limits
    Roce,
    /// Queues, descriptors and packet buffers of the ports
    Rxtx,
    /// Forwarding mode, and whether it is started
    Fwd,
    /// The configuration file that would start the devices of this process again
    File,
}

/// Objects of `clear`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Clear {
    /// Counters of ports
    #[cfg_attr(feature = "tree", command(subcommand))]
    Port(ClearPort),
    /// Clear the device counters of `show counters`; other readers' counters stay
    Counters,
    /// Clear the counters of `show errors`; other readers' counters stay
    Errors,
    /// Clear the measurements of `show runtime`
    Runtime,
    /// Clear the round trips of `show latency`
    Latency,
    /// Clear the events of `show events`
    Events,
    /// End the last `trace` of each device if it still runs, and clear its packets
    Trace,
    /// End the injected faults of all ports
    Faults,
    /// Counters of forwarding
    #[cfg_attr(feature = "tree", command(subcommand))]
    Fwd(Fwd),
}

/// Counters of a port that can be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum ClearPort {
    /// Clear the counters of `show port stats`; other readers' counters stay
    Stats {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
    /// Clear the counters of `show port xstats`; other readers' counters stay
    Xstats {
        /// Number of a port, or `all`
        #[cfg_attr(feature = "tree", arg(value_name = "PORT|all"))]
        port: Select,
    },
}

/// One object by its number, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// All objects.
    All,
    /// The object with this number.
    One(u32),
}

impl Select {
    /// Returns whether the object with this number is meant.
    pub fn has(self, number: u32) -> bool {
        match self {
            Select::All => true,
            Select::One(one) => one == number,
        }
    }
}

impl std::str::FromStr for Select {
    type Err = &'static str;

    /// Parses a decimal number, a number after `0x`, or the word `all` or its beginning.
    fn from_str(text: &str) -> Result<Select, Self::Err> {
        if !text.is_empty() && "all".starts_with(text) {
            return Ok(Select::All);
        }
        number::number(text).map(Select::One).map_err(|_| "not a number, 0x and a number, or all")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_decimal_or_hexadecimal_and_all_may_be_short() {
        for (text, select) in [
            ("0", Select::One(0)),
            ("17", Select::One(17)),
            ("0x11", Select::One(17)),
            ("0Xff", Select::One(255)),
            ("4294967295", Select::One(u32::MAX)),
            ("all", Select::All),
            ("a", Select::All),
        ] {
            assert_eq!(text.parse(), Ok(select), "{text}");
        }
        for text in ["", "-1", "+1", "0x", "0x+1", "0x-1", "4294967296", "alle", "1.5", "ALL"] {
            assert!(text.parse::<Select>().is_err(), "{text}");
        }
    }

    #[test]
    fn requests_are_readable_json() {
        let stats = Request::Show(Show::Port(ShowPort::Stats { port: Select::All }));
        let text = serde_json::to_string(&stats).unwrap();
        assert_eq!(text, r#"{"show":{"port":{"stats":{"port":"all"}}}}"#);
        assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), stats);
        let qp = Request::Show(Show::Qp { qp: Select::One(17) });
        assert_eq!(serde_json::to_string(&qp).unwrap(), r#"{"show":{"qp":{"qp":{"one":17}}}}"#);
        let pd = Request::Show(Show::Pd);
        assert_eq!(serde_json::to_string(&pd).unwrap(), r#"{"show":"pd"}"#);
        let device = Request::Show(Show::Device { detail: false });
        assert_eq!(serde_json::from_str::<Request>(r#"{"show":{"device":{}}}"#).unwrap(), device);
    }
}
