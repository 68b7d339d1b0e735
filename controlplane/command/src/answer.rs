//! Answers: what a process replies to a request. They have all values, and no text for people.

mod bench;
mod capture;
mod detail;
mod fault;
mod latency;
mod objects;
mod pairs;
mod paths;
mod ping;
mod queue;
mod rss;
mod statistics;
mod trace;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use bench::Bench;
pub use capture::Capture;
pub use detail::{DeviceDetail, PortDetail};
pub use fault::Fault;
pub use latency::{Bucket, Distribution, Latency, Times};
pub use objects::{Completion, Connected, FwdStats, Made, Memory};
pub use paths::{Connection, Group, Migration, Rate, Route};
pub use ping::Ping;
pub use queue::QueueInfo;
pub use rss::PortReta;
pub use statistics::{LcoreRuntime, QpGroup, QpTraffic, Scraped, StageRuntime};
pub use trace::{Trace, TracedPacket};

/// A reply of a process. A request gets any number of [`More`](Reply::More), and then one of the
/// others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A part of the answer. Other parts follow.
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
    /// The process does not understand the request, because it has another release of uroce.
    #[error("the process does not understand the request: {0}")]
    NotUnderstood(String),
    /// No object has the number in the request.
    #[error("{0}")]
    NoSuchObject(String),
    /// The process failed to answer.
    #[error("{0}")]
    Failed(String),
    /// The process could not carry the command out.
    #[error("{cause} ({errno})\n{remedy}")]
    Command {
        /// The cause.
        cause: String,
        /// Name of Linux's error number, for example `EINVAL`.
        errno: String,
        /// The remedy: what to do.
        remedy: String,
    },
}

/// An answer, or a part of one. The reader joins the parts ([`join`](Answer::join)).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The request was carried out.
    Done,
    /// Answer to `show process`.
    Process(Process),
    /// Answer to `show port info`.
    PortInfo(Vec<PortInfo>),
    /// Answer to `show port summary`.
    PortSummary(Vec<PortInfo>),
    /// Answer to `show port stats`.
    PortStats(Vec<PortStats>),
    /// Answer to `show port xstats`.
    PortXstats(Vec<PortXstats>),
    /// Answer to `show port cap`.
    PortCap(Vec<PortCap>),
    /// Answer to `show port rss reta`.
    PortReta(Vec<PortReta>),
    /// Answer to `show rxq info` and `show txq info`.
    QueueInfo(QueueInfo),
    /// Answer to `show device`.
    Device(Vec<Device>),
    /// Answer to `show gid`.
    Gid(Vec<Gid>),
    /// Answer to `show qp`.
    Qp(Vec<Qp>),
    /// Answer to `show qp` with a number.
    QpDetail(Vec<Qp>),
    /// Answer to `show path`.
    Path(Vec<Path>),
    /// Answer to `show migration`.
    Migration(Vec<Migration>),
    /// Answer to `show rate`.
    Rate(Vec<Rate>),
    /// Answer to `show cm`.
    Cm(Vec<Connection>),
    /// Answer to `show mcast`.
    Mcast(Vec<Group>),
    /// Answer to `show route`.
    Route(Vec<Route>),
    /// Answer to `show pd`, `show cq`, `show mr`, `show mw`, `show srq`, `show ah`.
    Count(Vec<ObjectCount>),
    /// Answer to `show neigh`.
    Neigh(Vec<Neighbour>),
    /// Answer to `show config cores`.
    Cores(Vec<Core>),
    /// Answer to `show config roce` and `show config rxtx`.
    Settings(Vec<Settings>),
    /// Answer to `show config file`: the text of the file.
    ConfigFile(String),
    /// Answer to `show counters`.
    Counters(Vec<Counter>),
    /// Answer to `dump`: DPDK's text.
    Dump(String),
    /// Answer to `show errors`.
    Errors(Vec<DropCount>),
    /// Answer to `show latency`.
    Latency(Vec<Latency>),
    /// Answer to `show latency distribution`.
    Distribution(Vec<Distribution>),
    /// Answer to `show events`.
    Events(Vec<Event>),
    /// Answer to `show capture` and `capture stop`.
    Capture(Vec<Capture>),
    /// Answer to `show trace`.
    Trace(Vec<Trace>),
    /// Answer to `show fault`.
    Fault(Vec<Fault>),
    /// Answer to `create` and `reg`.
    Made(Made),
    /// Answer to `query mr`.
    Memory(Memory),
    /// Answer to `poll cq`.
    Completions(Vec<Completion>),
    /// Answer to `stop` and `show fwd stats`.
    Fwd(Vec<FwdStats>),
    /// Answer to `ping`.
    Ping(Ping),
    /// Answer to `bench`, by the program `uroce` itself.
    Bench(Bench),
    /// Answer to `listen` and `connect`.
    Connected(Connected),
    /// One sentence about what was done.
    Text(String),
    /// Answer to `show runtime`.
    Runtime(Vec<LcoreRuntime>),
    /// Answer to [`Request::Scrape`](crate::Request::Scrape).
    Scraped(Vec<Scraped>),
}

impl Answer {
    /// Appends the next part of the same answer. [`Done`](Answer::Done) is the empty part of any
    /// answer. Returns false if `next` is of another kind.
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
        join!(PortInfo PortSummary PortStats PortXstats PortCap PortReta Device Gid Qp QpDetail Path
            Migration Rate Cm Mcast Route Count Neigh Cores Settings Counters Errors Latency
            Distribution Events
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

/// A device, as `uroce ps` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessDevice {
    /// Name of the device.
    pub name: String,
    /// Addresses of all its ports.
    pub addresses: Vec<IpAddr>,
    /// Number of its queue pairs.
    pub qps: u32,
    /// Whether all lcores of the device run.
    pub running: bool,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// DPDK's number, from 0.
    pub port: u32,
    /// Name of the RoCE device to which the port belongs.
    pub device: String,
    /// Number of the port at the device, from 1.
    pub number: u8,
    /// Ethernet address.
    pub mac: String,
    /// DPDK's name for the port.
    pub name: String,
    /// Name of the port's driver.
    pub driver: String,
    /// NUMA node, if known.
    pub numa_node: Option<u32>,
    /// Whether the link is up.
    pub up: bool,
    /// Rate of the link in Mb/s, if known.
    pub speed_mbps: Option<u32>,
    /// Whether frames pass both ways at the same time, of a NIC with its link up.
    #[serde(default)]
    pub full_duplex: Option<bool>,
    /// Whether the rate was negotiated with the other end, of a NIC with its link up.
    #[serde(default)]
    pub autoneg: Option<bool>,
    /// Forward error correction: `off`, `auto`, `baser`, `rs` or `llrs`, if the driver tells it.
    #[serde(default)]
    pub fec: Option<String>,
    /// Whether the NIC obeys PAUSE frames, and whether it sends them, if the driver tells it.
    #[serde(default)]
    pub pause: Option<(bool, bool)>,
    /// Largest Ethernet payload in bytes (MTU).
    pub mtu: u16,
    /// Largest path MTU that fits into the MTU, in bytes.
    pub path_mtu: Option<u16>,
    /// VLAN ID of the port's frames.
    pub vlan: Option<u16>,
    /// Number of queue pairs: each is a receive and a transmit queue.
    pub queue_pairs: u16,
    /// Largest number of queue pairs that the driver allows.
    pub max_queue_pairs: u16,
    /// IP addresses.
    pub addresses: Vec<IpAddr>,
    /// Rate in Mb/s to which sent frames are slowed down, by `set port rate` or the configuration.
    #[serde(default)]
    pub tx_rate_mbps: Option<u32>,
}

/// Counters of a port since it was opened or they were cleared; rates since they were last shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// DPDK's number, from 0.
    pub port: u32,
    /// Frames received.
    pub rx_packets: u64,
    /// Frames that the device dropped for want of a descriptor, or the kernel for want of a slot in
    /// the ring of net_af_packet.
    pub rx_missed: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames received in error.
    pub rx_errors: u64,
    /// Number of received frames for which there was no buffer.
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
    /// Names and values of the counters.
    #[serde(with = "pairs")]
    pub xstats: Vec<(String, u64)>,
}

/// Capabilities of a port's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortCap {
    /// DPDK's number, from 0.
    pub port: u32,
    /// Largest MTU in bytes, if the driver reports it.
    pub max_mtu: Option<u16>,
    /// Largest number of queue pairs.
    pub max_queue_pairs: u16,
    /// Whether the driver spreads received packets over the queues.
    pub rss: bool,
    /// Whether the driver can verify checksums of received packets.
    pub rx_checksum: bool,
    /// Whether the driver can compute checksums of sent packets.
    pub tx_checksum: bool,
    /// Whether the driver reports changes of the link by an interrupt.
    pub link_interrupt: bool,
    /// What the device may take over, and whether it does.
    #[serde(default)]
    pub features: Vec<PortFeature>,
}

/// What a port's device may take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortFeature {
    /// Its name, as `show port cap` has it.
    pub name: String,
    /// What provides it.
    pub by: FeatureBy,
    /// Whether the device could.
    pub device_could: bool,
    /// The reason why it is not the device's, where no device is asked for it; else empty.
    #[serde(default)]
    pub why: String,
}

/// What provides a feature of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureBy {
    /// The device.
    Device,
    /// uroce.
    Software,
    /// Nothing: it is not used.
    Nothing,
}

/// A RoCE device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// CA GUID, in the form of `ibv_devinfo`.
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
    /// Answer to `show device detail`: capabilities and limits.
    #[serde(default)]
    pub detail: Option<DeviceDetail>,
}

/// Number of objects of a kind at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// Number of objects that exist.
    pub count: u32,
    /// Largest number of objects that can exist.
    pub max: u32,
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gid {
    /// DPDK's number of the port.
    pub port: u32,
    /// Name of the RoCE device.
    pub device: String,
    /// Number of the port at the device, from 1.
    pub number: u8,
    /// Index in the port's table.
    pub index: u32,
    /// The GID, as an IPv6 address is written.
    pub gid: String,
    /// IP address that the GID stands for.
    pub address: IpAddr,
}

/// A queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qp {
    /// Name of the RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qpn: u32,
    /// Transport service: RC, UC or UD.
    pub service: String,
    /// State: RESET to ERR.
    pub state: String,
    /// Number of the port at the device, from 1.
    pub port: u8,
    /// Lcore that owns the QP.
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
    /// Code of the local ACK timeout, 0 to 31.
    pub timeout: u8,
    /// Transport retries, 0 to 7.
    pub retry_cnt: u8,
    /// RNR retries, 0 to 7; 7 means without end.
    pub rnr_retry: u8,
    /// Code of the RNR NAK timer, 0 to 31.
    pub min_rnr_timer: u8,
    /// Largest number of READ and ATOMIC requests that the QP has outstanding.
    pub max_rd_atomic: u8,
    /// Largest number of READ and ATOMIC requests that the peer may have outstanding.
    pub max_dest_rd_atomic: u8,
    /// Limit of the sending rate in kbit/s; 0 means none.
    pub rate_limit: u32,
    /// Whether both ends use selective repeat.
    pub selective_repeat: bool,
    /// Number of UDP source ports that requests use in turn.
    pub udp_source_ports: u8,
    /// Number of send requests that were posted and have not completed.
    pub sends: u32,
    /// Depth of the send queue, in work requests.
    pub max_send_wr: u32,
    /// Depth of the receive queue, in work requests.
    pub max_recv_wr: u32,
    /// Whether the QP's receives come from a shared receive queue.
    pub srq: bool,
    /// State of path migration.
    pub migration: String,
    /// Number of migrations since the QP left RESET.
    pub migrations: u32,
    /// Duration of the last failover in microseconds.
    pub failover_us: Option<u64>,
    /// Whether the control plane loads its alternate paths, by `failover = "auto"`.
    #[serde(default)]
    pub auto: bool,
}

/// A path of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qpn: u32,
    /// Whether this is the alternate path.
    pub alternate: bool,
    /// State of path migration.
    pub migration: String,
    /// Port of the device, from 1.
    pub port: u8,
    /// Local address.
    pub src: IpAddr,
    /// Address of the peer.
    pub dst: IpAddr,
    /// Ethernet address of the next hop.
    pub dst_mac: String,
    /// DSCP and ECN, as one byte.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// TTL or hop limit.
    pub hop_limit: u8,
    /// UDP source port.
    pub src_port: u16,
    /// Rate limit, as a text.
    pub rate: String,
    /// Priority of its frames, 0 to 7, on a port with a VLAN.
    #[serde(default)]
    pub vlan_pcp: Option<u8>,
    /// Whether the control plane has loaded it, by `failover = "auto"`.
    #[serde(default)]
    pub auto: bool,
}

/// Number of objects of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectCount {
    /// RoCE device.
    pub device: String,
    /// Kind of the objects.
    pub object: String,
    /// Number of objects that exist.
    pub count: u32,
    /// Largest number of objects that can exist, if the engine limits it.
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
    /// State: PERMANENT, REACHABLE, STALE, PROBE, INCOMPLETE, FAILED.
    pub state: String,
}

/// An lcore.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// RoCE device.
    pub device: String,
    /// Number of the lcore at the device, from 0.
    pub lcore: u32,
    /// CPU on which the lcore runs; `None` for any.
    pub cpu: Option<u32>,
    /// What the lcore does when it is idle.
    pub idle: String,
    /// Threads that run the lcore's turns.
    pub driver: String,
    /// Number of QPs that the lcore owns.
    pub qps: u32,
    /// Number of turns since the start.
    pub turns: u64,
}

/// Part of a device's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// RoCE device.
    pub device: String,
    /// Names and values of the settings.
    #[serde(with = "pairs")]
    pub settings: Vec<(String, String)>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// RoCE device.
    pub device: String,
    /// Object of the device to which the counter belongs, `QP` or `port` and its number; empty for
    /// the device itself.
    #[serde(default)]
    pub object: String,
    /// Name of the counter.
    pub name: String,
    /// Value since the device was opened or the counter was cleared.
    pub value: u64,
    /// Meaning of the counter.
    pub meaning: String,
}

impl Counter {
    /// Returns whether the value is a level (the present or the largest value), which can also fall
    /// and cannot be cleared. Any other value is a count, which only grows.
    pub fn is_level(&self) -> bool {
        self.name.ends_with("_max") || self.name == "cm_connections"
    }
}

/// An event of a queue pair or a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// RoCE device.
    pub device: String,
    /// Number of the event: how many events of the device came before it.
    pub number: u64,
    /// Milliseconds since the event.
    pub age_ms: u64,
    /// Object of the event: `QP` or `port`, and its number.
    pub object: String,
    /// Name of the event.
    pub event: String,
    /// Meaning of the event, and the reason if it is withheld.
    pub meaning: String,
    /// Whether the program is not told of the event: with `failover = "auto"`, of a port that goes
    /// down while another one is up and all connections have left it.
    #[serde(default)]
    pub withheld: bool,
}

/// Frames that were dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// RoCE device.
    pub device: String,
    /// Name of the reason.
    pub reason: String,
    /// Count of each lcore, from lcore 0 on.
    pub lcores: Vec<u64>,
    /// Meaning of the reason.
    pub meaning: String,
}

impl DropCount {
    /// Returns the sum over all lcores.
    pub fn total(&self) -> u64 {
        self.lcores.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
