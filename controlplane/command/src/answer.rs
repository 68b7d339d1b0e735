//! Answers: what a process says to a request, with all values and without their text.

mod capture;
mod fault;
mod objects;
mod pairs;
mod paths;
mod ping;
mod queue;
mod statistics;
mod trace;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use capture::Capture;
pub use fault::Fault;
pub use objects::{Completion, Connected, FwdStats, Made, Memory};
pub use paths::{Connection, Group, Migration, Rate, Route};
pub use ping::Ping;
pub use queue::QueueInfo;
pub use statistics::{LcoreRuntime, QpGroup, QpTraffic, Scraped, StageRuntime};
pub use trace::{Trace, TracedPacket};

/// What a process sends back. A request has any number of [`More`](Reply::More) and then one of the
/// others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A part of the answer; others follow.
    More(Answer),
    /// The answer, or its last part.
    Last(Answer),
    /// The request was refused.
    Refused(Refusal),
}

/// Reason for which a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "reason", content = "text")]
pub enum Refusal {
    /// The process does not understand the request: it is of another release.
    #[error("the process does not understand the request: {0}")]
    NotUnderstood(String),
    /// No object has this number.
    #[error("{0}")]
    NoSuchObject(String),
    /// The process failed to answer.
    #[error("{0}")]
    Failed(String),
    /// The process could not carry the command out.
    #[error("{cause} ({errno})\n{remedy}")]
    Command {
        /// What is wrong.
        cause: String,
        /// Name of Linux's error number.
        errno: String,
        /// What to do.
        remedy: String,
    },
}

/// An answer. The lists of one request's parts are to be joined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// To `show process`.
    Process(Process),
    /// To `show port info`.
    PortInfo(Vec<PortInfo>),
    /// To `show port summary`.
    PortSummary(Vec<PortInfo>),
    /// To `show port stats`.
    PortStats(Vec<PortStats>),
    /// To `show port xstats`.
    PortXstats(Vec<PortXstats>),
    /// To `show port cap`.
    PortCap(Vec<PortCap>),
    /// To `show rxq info` and `show txq info`.
    QueueInfo(QueueInfo),
    /// To `show device`.
    Device(Vec<Device>),
    /// To `show gid`.
    Gid(Vec<Gid>),
    /// To `show qp`.
    Qp(Vec<Qp>),
    /// To `show qp` with a number.
    QpDetail(Vec<Qp>),
    /// To `show path`.
    Path(Vec<Path>),
    /// To `show migration`.
    Migration(Vec<Migration>),
    /// To `show rate`.
    Rate(Vec<Rate>),
    /// To `show cm`.
    Cm(Vec<Connection>),
    /// To `show mcast`.
    Mcast(Vec<Group>),
    /// To `show route`.
    Route(Vec<Route>),
    /// To `show pd`, `show cq`, `show mr`, `show mw`, `show srq`, `show ah`.
    Count(Vec<ObjectCount>),
    /// To `show neigh`.
    Neigh(Vec<Neighbour>),
    /// To `show config cores`.
    Cores(Vec<Core>),
    /// To `show config roce` and `show config rxtx`.
    Settings(Vec<Settings>),
    /// To `show config file`: the text of the file.
    ConfigFile(String),
    /// To `show counters`.
    Counters(Vec<Counter>),
    /// To `show errors`.
    Errors(Vec<DropCount>),
    /// To `show events`.
    Events(Vec<Event>),
    /// To `show capture` and `capture stop`.
    Capture(Vec<Capture>),
    /// To `show trace`.
    Trace(Vec<Trace>),
    /// To `show fault`.
    Fault(Vec<Fault>),
    /// To `create` and `reg`.
    Made(Made),
    /// To `query mr`.
    Memory(Memory),
    /// To `poll cq`.
    Completions(Vec<Completion>),
    /// To `stop` and `show fwd stats`.
    Fwd(Vec<FwdStats>),
    /// To `ping`.
    Ping(Ping),
    /// To `listen` and `connect`.
    Connected(Connected),
    /// One sentence about what was done.
    Text(String),
    /// To `show runtime`.
    Runtime(Vec<LcoreRuntime>),
    /// To [`Request::Scrape`](crate::Request::Scrape).
    Scraped(Vec<Scraped>),
}

impl Answer {
    /// Appends the next part of the same answer; [`Done`](Answer::Done) is the empty part of any.
    /// Returns false if `next` is not one.
    pub fn join(&mut self, next: Answer) -> bool {
        if next == Answer::Done {
            return true;
        }
        if *self == Answer::Done {
            *self = next;
            return true;
        }
        macro_rules! join {
            ($($list:ident)*) => {
                match (self, next) {
                    $((Answer::$list(rows), Answer::$list(more)) => rows.extend(more),)*
                    _ => return false,
                }
            };
        }
        join!(PortInfo PortSummary PortStats PortXstats PortCap Device Gid Qp QpDetail Path
            Migration Rate Cm Mcast Route Count Neigh Cores Settings Counters Errors Events
            Capture Trace Fault Runtime Scraped);
        true
    }
}

/// A process and its devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Number of the process in its own PID namespace.
    pub pid: u32,
    /// Name of the program.
    pub program: String,
    /// User that the process runs as.
    pub uid: u32,
    /// Release of uroce.
    pub version: String,
    /// The devices.
    pub devices: Vec<ProcessDevice>,
}

/// A device as `uroce ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDevice {
    /// Name of the device.
    pub name: String,
    /// Addresses of all its ports.
    pub addresses: Vec<IpAddr>,
    /// Number of its queue pairs.
    pub qps: u32,
    /// Whether all its lcores run.
    pub running: bool,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// DPDK's number, from 0.
    pub port: u32,
    /// RoCE device that it belongs to.
    pub device: String,
    /// Number of the port at that device, from 1.
    pub number: u8,
    /// Ethernet address.
    pub mac: String,
    /// DPDK's name of the port.
    pub name: String,
    /// Name of its driver.
    pub driver: String,
    /// NUMA node, if known.
    pub numa_node: Option<u32>,
    /// Whether frames can pass.
    pub up: bool,
    /// Rate of the link in Mb/s, if known.
    pub speed_mbps: Option<u32>,
    /// Largest Ethernet payload in bytes.
    pub mtu: u16,
    /// Largest path MTU that fits, in bytes.
    pub path_mtu: Option<u16>,
    /// VLAN ID of its frames.
    pub vlan: Option<u16>,
    /// Pairs of a receive and a transmit queue.
    pub queue_pairs: u16,
    /// Largest number of them.
    pub max_queue_pairs: u16,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Rate in Mb/s at which its frames leave on purpose, by `set port rate` or its configuration.
    #[serde(default)]
    pub tx_rate_mbps: Option<u32>,
}

/// Counters of a port since it was opened or cleared, and rates since they were last shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// DPDK's number, from 0.
    pub port: u32,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames that the device dropped for want of a descriptor.
    pub rx_missed: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames received in error.
    pub rx_errors: u64,
    /// Times that there was no buffer for a received frame.
    pub rx_nombuf: u64,
    /// Frames sent.
    pub tx_packets: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames received a second.
    pub rx_pps: u64,
    /// Bits received a second.
    pub rx_bps: u64,
    /// Frames sent a second.
    pub tx_pps: u64,
    /// Bits sent a second.
    pub tx_bps: u64,
}

/// Counters of a port's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortXstats {
    /// DPDK's number, from 0.
    pub port: u32,
    /// Names and values.
    #[serde(with = "pairs")]
    pub xstats: Vec<(String, u64)>,
}

/// Capabilities of a port's device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCap {
    /// DPDK's number, from 0.
    pub port: u32,
    /// Largest MTU in bytes, if the driver reports it.
    pub max_mtu: Option<u16>,
    /// Largest number of queue pairs.
    pub max_queue_pairs: u16,
    /// Whether it spreads received packets over its queues.
    pub rss: bool,
    /// Whether it can verify checksums of received packets.
    pub rx_checksum: bool,
    /// Whether it can compute checksums.
    pub tx_checksum: bool,
    /// Whether it reports changes of its link by an interrupt.
    pub link_interrupt: bool,
}

/// A RoCE device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name.
    pub name: String,
    /// CA GUID, as `ibv_devinfo` writes it.
    pub guid: String,
    /// Number of lcores.
    pub lcores: u32,
    /// Whether all lcores run.
    pub running: bool,
    /// Queue pairs.
    pub qps: InUse,
    /// Memory regions and windows.
    pub mrs: InUse,
    /// Address handles.
    pub ahs: InUse,
    /// Ports.
    pub ports: Vec<PortInfo>,
}

/// Number of objects of a kind at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// How many there are.
    pub count: u32,
    /// How many there can be.
    pub max: u32,
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gid {
    /// DPDK's number of the port.
    pub port: u32,
    /// RoCE device.
    pub device: String,
    /// Port of that device, from 1.
    pub number: u8,
    /// Index in the port's table.
    pub index: u32,
    /// The GID, as an IPv6 address is written.
    pub gid: String,
    /// IP address that it stands for.
    pub address: IpAddr,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qp {
    /// RoCE device.
    pub device: String,
    /// Number.
    pub qpn: u32,
    /// Service: RC, UC, UD.
    pub service: String,
    /// State: RESET to ERR.
    pub state: String,
    /// Port of the device, from 1.
    pub port: u8,
    /// Lcore that owns it.
    pub lcore: u32,
    /// Number of the peer's QP.
    pub dest_qpn: u32,
    /// Address of the peer, if there is one.
    pub peer: Option<IpAddr>,
    /// PSN of the send queue.
    pub sq_psn: u32,
    /// PSN of the receive queue.
    pub rq_psn: u32,
    /// Largest payload of a packet in bytes.
    pub path_mtu: u16,
    /// P_Key.
    pub pkey: u16,
    /// Q_Key.
    pub qkey: u32,
    /// Code of the local ACK timeout.
    pub timeout: u8,
    /// Transport retries.
    pub retry_cnt: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// Code of the RNR NAK timer.
    pub min_rnr_timer: u8,
    /// READ and ATOMIC requests that it may have outstanding.
    pub max_rd_atomic: u8,
    /// READ and ATOMIC requests that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// Limit of the sending rate in kbit/s; 0 is none.
    pub rate_limit: u32,
    /// Whether both ends use selective repeat.
    pub selective_repeat: bool,
    /// UDP source ports that requests use in turn.
    pub udp_source_ports: u8,
    /// Sends that were posted and have not completed.
    pub sends: u32,
    /// Places of the send queue.
    pub max_send_wr: u32,
    /// Places of the receive queue.
    pub max_recv_wr: u32,
    /// Whether its receives come from a shared receive queue.
    pub srq: bool,
    /// State of path migration.
    pub migration: String,
    /// Migrations since it left RESET.
    pub migrations: u32,
    /// Time of the last failover in microseconds.
    pub failover_us: Option<u64>,
}

/// A path of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qpn: u32,
    /// Whether it is the alternate path.
    pub alternate: bool,
    /// State of path migration.
    pub migration: String,
    /// Port of the device, from 1.
    pub port: u8,
    /// Own address.
    pub src: IpAddr,
    /// Address of the peer.
    pub dst: IpAddr,
    /// Ethernet address of the next hop.
    pub dst_mac: String,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// UDP source port.
    pub src_port: u16,
    /// Rate limit, in words.
    pub rate: String,
}

/// Number of objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCount {
    /// RoCE device.
    pub device: String,
    /// Kind of the objects.
    pub object: String,
    /// How many there are.
    pub count: u32,
    /// How many there can be, if the engine limits them.
    pub max: Option<u32>,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// RoCE device.
    pub device: String,
    /// Port of the device, from 1.
    pub port: u8,
    /// IP address.
    pub address: IpAddr,
    /// Ethernet address, if known.
    pub mac: Option<String>,
    /// State: reachable, stale, incomplete, probe, failed.
    pub state: String,
}

/// An lcore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// RoCE device.
    pub device: String,
    /// Number of the lcore at that device, from 0.
    pub lcore: u32,
    /// Its CPU; `None` for any.
    pub cpu: Option<u32>,
    /// What it does when idle.
    pub idle: String,
    /// Threads that drive it.
    pub driver: String,
    /// Number of its QPs.
    pub qps: u32,
    /// Turns since the start.
    pub turns: u64,
}

/// Part of a device's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// RoCE device.
    pub device: String,
    /// Names and values.
    #[serde(with = "pairs")]
    pub settings: Vec<(String, String)>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// RoCE device.
    pub device: String,
    /// Object of the device that it belongs to, `QP` or `port` and its number; empty for the device
    /// itself.
    #[serde(default)]
    pub object: String,
    /// Name.
    pub name: String,
    /// Value since the device was opened or the counter was cleared.
    pub value: u64,
    /// What it counts.
    pub meaning: String,
}

impl Counter {
    /// Returns whether the value is a level, the present or the largest one, instead of a count
    /// that only grows. A level cannot be cleared.
    pub fn is_level(&self) -> bool {
        self.name.ends_with("_max") || self.name == "cm_connections"
    }
}

/// An event of a queue pair or a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// RoCE device.
    pub device: String,
    /// Events of the device before it.
    pub number: u64,
    /// Time since it happened in milliseconds.
    pub age_ms: u64,
    /// Object: `QP` or `port`, and its number.
    pub object: String,
    /// Name.
    pub event: String,
    /// What it means.
    pub meaning: String,
}

/// Frames that were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// RoCE device.
    pub device: String,
    /// Name of the reason.
    pub reason: String,
    /// Count of each lcore, lcore 0 first.
    pub lcores: Vec<u64>,
    /// What the reason means.
    pub meaning: String,
}

impl DropCount {
    /// Returns the count of all lcores.
    pub fn total(&self) -> u64 {
        self.lcores.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
