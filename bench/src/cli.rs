//! The command line: perftest's option names, short forms and defaults. Options that perftest does
//! not have have long names only.
//!
//! Invariant: an option that has no effect is not accepted. The error names values of perftest that
//! uroce does not support.

mod device;
mod ends;
mod loss;
mod ndr;
mod nic_check;
mod perftest;
mod pingpong;
mod placement;
mod report;
mod rping;

pub(crate) use device::{CpuList, DeviceArgs, Idle};
pub(crate) use ends::{EndsArgs, Role};
pub(crate) use loss::{LossArgs, Peers};
pub(crate) use ndr::NdrArgs;
pub(crate) use nic_check::{NicArgs, NicCheckArgs};
pub(crate) use perftest::{PerfArgs, refusal};
pub(crate) use pingpong::PingpongArgs;
pub(crate) use placement::{PlacementArgs, Wrong};
pub(crate) use report::ReportArgs;
pub(crate) use rping::RpingArgs;

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// perftest-style tests over uroce. Without SERVER_HOST a test waits as the server; with it, it is
/// the client; with --in-process it is both, over rings.
#[derive(Parser, Debug)]
#[command(name = "uroce-perf", version, disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// The test.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The tests.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    #[command(flatten)]
    Perftest(Box<perftest::Test>),
    /// Messages to and fro with ibv_rc_pingpong or uroce-perf at the other end
    #[command(name = "rc_pingpong")]
    RcPingpong(PingpongArgs),
    /// Messages to and fro with ibv_uc_pingpong or uroce-perf, over an unreliable connection
    #[command(name = "uc_pingpong")]
    UcPingpong(PingpongArgs),
    /// Messages to and fro with ibv_ud_pingpong or uroce-perf, in datagrams
    #[command(name = "ud_pingpong")]
    UdPingpong(PingpongArgs),
    /// Pings with rping or uroce-perf: one end reads the other's memory and writes it back
    #[command(name = "rping")]
    Rping(RpingArgs),
    /// WRITEs that are flushed and announced by an ATOMIC WRITE, checked where they were placed
    #[command(name = "placement")]
    Placement(PlacementArgs),
    /// Limits of machine and device without a protocol: frames, copy, ICRC, ping-pong
    #[command(name = "limits")]
    Limits(LimitsArgs),
    /// What a NIC and its driver can do, in at most five minutes, with another machine or a cable
    /// loop
    #[command(name = "nic-check")]
    NicCheck(NicCheckArgs),
    /// What the driver says of a NIC's port
    #[command(name = "nic-check-port", hide = true)]
    NicCheckPort(NicArgs),
    /// Cost of a flood of bad frames to a healthy queue pair
    #[command(name = "flood")]
    Flood(FloodArgs),
    /// Round trip of Modify QP, beside an idle lcore and beside one under full load
    #[command(name = "modify")]
    Modify(ModifyArgs),
    /// Rate of WRITEs against the number of queue pairs and of memory regions, over rings
    #[command(name = "scale")]
    Scale(ScaleArgs),
    /// Accuracy of static rates and rate limits, over rings
    #[command(name = "rate")]
    Rate(RateArgs),
    /// Goodput of WRITE against the probability of loss each way, over rings
    #[command(name = "loss")]
    Loss(LossArgs),
    /// Highest rate without loss and with little, by search; latency over load
    #[command(name = "ndr")]
    Ndr(NdrArgs),
    /// Measure a plan in rounds and write one page with plots, or compare two such reports
    #[command(name = "report")]
    Report(ReportArgs),
    /// Migration of queue pairs to another link when theirs is cut under verified traffic
    #[command(name = "failover")]
    Failover(FailoverArgs),
    /// Connection set-ups per second, by the connection manager
    #[command(name = "connect")]
    Connect(ConnectArgs),
    /// Work for `deploy/cost` to run under callgrind: a fixed amount of it
    #[command(name = "cost", hide = true)]
    Cost(CostArgs),
    /// The main job and its figures beside the limits, over rings and over memif
    #[command(name = "quickstart")]
    Quickstart(QuickstartArgs),
    /// A node of the quickstart
    #[command(name = "quickstart-node", hide = true)]
    QuickstartNode(NodeArgs),
}

/// Options of `limits`.
#[derive(Args, Clone, Debug)]
pub(crate) struct LimitsArgs {
    /// TCP port of the exchange between the two ends
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Payload bytes of a message: size of the buffers that are copied and checksummed
    #[arg(short = 's', long, default_value_t = 65536, value_name = "BYTES")]
    pub(crate) size: u32,
    /// Path MTU: the payload bytes of a frame
    #[arg(short = 'm', long, default_value_t = 4096, value_name = "BYTES")]
    pub(crate) mtu: u32,
    /// Runs; the median is reported
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) runs: u32,
    /// Milliseconds that each measurement takes
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub(crate) time_ms: u64,
    /// Print one JSON object instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// The ends.
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
}

/// Options of `flood`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FloodArgs {
    /// Payload bytes of a message of the healthy queue pair
    #[arg(short = 's', long, default_value_t = 65536, value_name = "BYTES")]
    pub(crate) size: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Runs without and with the flood; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) runs: u32,
    /// Milliseconds that each run takes
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub(crate) time_ms: u64,
}

/// Options of `modify`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModifyArgs {
    /// Payload bytes of the messages that the lcore is loaded with
    #[arg(short = 's', long, default_value_t = 65536, value_name = "BYTES")]
    pub(crate) size: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Milliseconds that each part takes
    #[arg(long, default_value_t = 500, value_name = "MS")]
    pub(crate) time_ms: u64,
}

/// Most queue pairs, and most regions: a device has keys for 2^20.
pub(crate) const QPS_MAX: u32 = 65_536;
pub(crate) const REGIONS_MAX: u32 = 1_000_000;

/// Options of `scale`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScaleArgs {
    /// Numbers of queue pairs, 1 to 65536
    #[arg(long, value_delimiter = ',', value_name = "N", required_unless_present = "regions",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(QPS_MAX)))]
    pub(crate) qps: Vec<u32>,
    /// Numbers of memory regions, 1 to 1000000
    #[arg(long, value_delimiter = ',', value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(REGIONS_MAX)))]
    pub(crate) regions: Vec<u32>,
    /// Payload bytes of the messages, and of each region
    #[arg(short = 's', long, default_value_t = 64, value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(8..=4096))]
    pub(crate) size: u32,
    /// Milliseconds for each number, or longer until all had a message
    #[arg(long, default_value_t = 500, value_name = "MS")]
    pub(crate) time_ms: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `rate`.
#[derive(Args, Clone, Debug)]
pub(crate) struct RateArgs {
    /// Rates, Gb/s of whole frames
    #[arg(long, value_delimiter = ',', default_values_t = [1.0, 10.0, 25.0], value_name = "GBPS")]
    pub(crate) rates: Vec<f64>,
    /// Transport service
    #[arg(short = 'c', long, value_enum, default_value = "RC", value_name = "SERVICE")]
    pub(crate) connection: crate::perf::plan::Service,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Runs of each rate; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) runs: u32,
    /// Milliseconds that each run takes
    #[arg(long, default_value_t = 100, value_name = "MS")]
    pub(crate) time_ms: u64,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// Options of `failover`.
#[derive(Args, Clone, Debug)]
pub(crate) struct FailoverArgs {
    /// Queue pairs, all of them on the link that is cut
    #[arg(short = 'q', long, default_value_t = 1, value_name = "N")]
    pub(crate) qps: u32,
    /// Bytes of a message
    #[arg(short = 's', long, default_value_t = 4096, value_name = "BYTES")]
    pub(crate) size: u32,
    /// Local ACK timeout: 4.096 µs · 2^N
    #[arg(short = 'u', long, default_value_t = 12, value_name = "N")]
    pub(crate) qp_timeout: u8,
    /// Transport retries, 0 to 7
    #[arg(long = "retry_count", default_value_t = 3, value_name = "N")]
    pub(crate) retry_count: u8,
    /// The link reports that it is down, instead of only losing frames
    #[arg(long)]
    pub(crate) link_down: bool,
    /// Milliseconds of traffic before the cut, and after the last migration
    #[arg(long, default_value_t = 300, value_name = "MS")]
    pub(crate) time_ms: u64,
    /// File for the plot of throughput over time
    #[arg(long, default_value = "failover.svg", overrides_with = "plot", value_name = "FILE")]
    pub(crate) plot: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl FailoverArgs {
    /// Checks the ranges of all options.
    pub(crate) fn checked(self) -> Result<Self, crate::error::BenchError> {
        let wrong = if !(1..=4096).contains(&self.qps) {
            "-q must be 1 to 4096"
        } else if !(1..=1 << 20).contains(&self.size) {
            "-s must be 1 to 1048576"
        } else if !(1..=20).contains(&self.qp_timeout) {
            "-u must be 1 to 20"
        } else if self.retry_count > 7 {
            "--retry_count must be 0 to 7"
        } else if !(1..=10_000).contains(&self.time_ms) {
            "--time-ms must be 1 to 10000"
        } else {
            return Ok(self);
        };
        Err(crate::error::BenchError::usage(wrong))
    }
}

/// Options of `connect`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConnectArgs {
    /// RDMA port on which the server listens
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Connections of a round
    #[arg(short = 'n', long, default_value_t = 400, value_name = "N")]
    pub(crate) connections: u32,
    /// Rounds; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) rounds: u32,
    /// Connections in progress at a time
    #[arg(short = 'j', long, default_value_t = 16, value_name = "N")]
    pub(crate) under_way: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Both ends in this process, joined by rings
    #[arg(long, conflicts_with = "server")]
    pub(crate) in_process: bool,
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The server's RDMA address and port; without it this is the server
    #[arg(value_name = "SERVER:PORT")]
    pub(crate) server: Option<std::net::SocketAddr>,
}

/// Options of `cost`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CostArgs {
    /// The work
    #[arg(value_enum)]
    pub(crate) case: CostCase,
    /// Queue pairs at each end that carry the messages
    #[arg(short = 'q', long, default_value_t = 1, value_name = "N")]
    pub(crate) qps: u32,
}

/// The kinds of work that `deploy/cost` measures.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostCase {
    /// RC SEND of 8 bytes
    Send8,
    /// RC RDMA WRITE of 8 bytes
    Write8,
    /// RC RDMA WRITE of 64 KiB, counted by the packet
    Write64k,
    /// RC RDMA READ of 64 KiB, counted by the packet
    Read64k,
    /// RC ATOMIC WRITE of 8 bytes
    AtomicWrite8,
    /// UD SEND of 64 bytes
    Ud64,
    /// RC SEND of 8 bytes in lists, with a completion for sixteen
    List8,
    /// What `list8` does, with the messages, times and latencies of the generator of loads
    Paced8,
    /// One Modify QP that changes an attribute of a queue pair in RTS
    Modify,
    /// One connection by the connection manager: created, set up, ended and destroyed at both ends
    Connect,
}

/// Options of `quickstart`.
#[derive(Args, Clone, Debug)]
pub(crate) struct QuickstartArgs {
    /// Print one JSON object on standard output, everything else on standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Runs of each measurement; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(crate) runs: u32,
    /// Milliseconds that each measurement takes, at most 10000
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub(crate) time_ms: u64,
}

/// Options of a node of the quickstart, which the quickstart starts.
#[derive(Args, Clone, Debug)]
pub(crate) struct NodeArgs {
    /// ring, memif-server, memif-client or qps
    pub(crate) part: NodePart,
    /// Folder of the sockets
    #[arg(long)]
    pub(crate) folder: PathBuf,
    /// Runs of each measurement
    #[arg(long)]
    pub(crate) runs: u32,
    /// Milliseconds that each measurement takes
    #[arg(long)]
    pub(crate) time_ms: u64,
}

/// Kind of a quickstart node.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodePart {
    /// Both ends in one process, joined by rings.
    Ring,
    /// The listening end of memif.
    MemifServer,
    /// The connecting end of memif, which reports.
    MemifClient,
    /// One device on which queue pairs are opened.
    Qps,
}
