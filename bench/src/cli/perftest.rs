//! Options of perftest's tests.

use super::EndsArgs;
use crate::error::BenchError;
use crate::perf::plan::{Amount, Measure, Operation, Plan, Rate, Service};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// perftest's tests.
#[derive(Subcommand, Debug)]
pub(crate) enum Test {
    /// Bandwidth of RDMA WRITE
    #[command(name = "write_bw")]
    WriteBw(BwArgs),
    /// Bandwidth of RDMA READ
    #[command(name = "read_bw")]
    ReadBw(ReadBwArgs),
    /// Bandwidth of SEND
    #[command(name = "send_bw")]
    SendBw(SendBwArgs),
    /// Rate of ATOMIC operations
    #[command(name = "atomic_bw")]
    AtomicBw(AtomicBwArgs),
    /// Latency of RDMA WRITE: half of a round trip
    #[command(name = "write_lat")]
    WriteLat(LatArgs),
    /// Latency of RDMA READ: a round trip
    #[command(name = "read_lat")]
    ReadLat(LatArgs),
    /// Latency of SEND: half of a round trip
    #[command(name = "send_lat")]
    SendLat(SendLatArgs),
    /// Latency of ATOMIC operations: a round trip
    #[command(name = "atomic_lat")]
    AtomicLat(AtomicLatArgs),
}

impl Test {
    /// Returns plan and options of the test.
    pub(crate) fn args(self) -> PerfArgs {
        use Measure::{Bandwidth, Latency};
        match self {
            Self::WriteBw(args) => args.perf(Operation::Write, Bandwidth),
            Self::ReadBw(args) => args.perf(),
            Self::SendBw(args) => args.perf(),
            Self::AtomicBw(args) => args.perf(),
            Self::WriteLat(args) => args.perf(Operation::Write, Latency),
            Self::ReadLat(args) => args.perf(Operation::Read, Latency),
            Self::SendLat(args) => args.perf(),
            Self::AtomicLat(args) => args.perf(),
        }
    }
}

/// A test with all its options.
#[derive(Clone, Debug)]
pub(crate) struct PerfArgs {
    /// Parameters on which both ends must agree.
    pub(crate) plan: Plan,
    /// Options of this end alone.
    pub(crate) common: CommonArgs,
    /// Print all quantiles below a latency table.
    pub(crate) quantiles: bool,
}

/// Options that every test has.
#[derive(Args, Clone, Debug)]
pub(crate) struct CommonArgs {
    /// TCP port of the exchange between the two ends
    #[arg(short = 'p', long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// Messages per queue pair [default: 5000 for write_bw, else 1000]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    pub(crate) iters: Option<u64>,
    /// Run for this many seconds instead
    #[arg(short = 'D', long, value_name = "SECONDS")]
    pub(crate) duration: Option<u64>,
    /// Path MTU, 256 to 4096 [default: the largest that both ports support]
    #[arg(short = 'm', long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Local ACK timeout: 4.096 µs · 2^N; 0 waits for ever
    #[arg(short = 'u', long, default_value_t = 14, value_name = "N")]
    pub(crate) qp_timeout: u8,
    /// Transport retries, 0 to 7
    #[arg(long = "retry_count", default_value_t = 7, value_name = "N")]
    pub(crate) retry_count: u8,
    /// Index of the local address
    #[arg(short = 'x', long, default_value_t = 0, value_name = "INDEX")]
    pub(crate) gid_index: u8,
    /// Transport service
    #[arg(short = 'c', long, value_enum, default_value = "RC", value_name = "SERVICE")]
    pub(crate) connection: Service,
    /// Copy payloads of up to this many bytes, at most 1024, when they are posted (SEND, WRITE)
    #[arg(short = 'I', long = "inline_size", default_value_t = 0, value_name = "BYTES")]
    pub(crate) inline_size: u32,
    /// Not supported
    #[arg(short = 'R', long = "rdma_cm", hide = true)]
    pub(crate) rdma_cm: bool,
    /// Suppress the warning about the CPU's frequency (accepted, there is no such warning)
    #[arg(short = 'F', long = "CPU-freq")]
    pub(crate) cpu_freq: bool,
    /// Report in Gb/s, 10^9 bits, instead of MiB/s
    #[arg(long = "report_gbits")]
    pub(crate) report_gbits: bool,
    /// Also write the results to perftest_out.json
    #[arg(long = "out_json")]
    pub(crate) out_json: bool,
    /// Also write the results to this file
    #[arg(long = "out_json_file", value_name = "FILE")]
    pub(crate) out_json_file: Option<PathBuf>,
    /// Check every byte at its destination; the results then include the time for the checks
    #[arg(long)]
    pub(crate) verify: bool,
    /// Use the exchange of perftest's programs over TCP even if the other end is uroce-perf
    #[arg(long)]
    pub(crate) perftest_exchange: bool,
    /// The ends.
    #[command(flatten)]
    pub(crate) ends: EndsArgs,
}

/// Options of message sizes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SizeArgs {
    /// Bytes of a message [default: 65536 for bandwidth, 2 for latency]
    #[arg(short = 's', long, value_name = "BYTES", conflicts_with = "all")]
    size: Option<u32>,
    /// All sizes from 2 to 2^23
    #[arg(short = 'a', long)]
    all: bool,
}

/// Options of bandwidth tests.
#[derive(Args, Clone, Debug)]
pub(crate) struct BandwidthArgs {
    /// Send requests outstanding per queue pair
    #[arg(short = 't', long, default_value_t = 128, value_name = "N")]
    tx_depth: u32,
    /// Send requests per completion [default: the value of -l, else 1 for a size above 8192 bytes,
    /// else 100]
    #[arg(short = 'Q', long, value_name = "N")]
    cq_mod: Option<u32>,
    /// Queue pairs
    #[arg(short = 'q', long = "qp", default_value_t = 1, value_name = "N")]
    qps: u32,
    /// Work requests posted at once
    #[arg(short = 'l', long = "post_list", default_value_t = 1, value_name = "N")]
    post_list: u32,
    /// Both directions
    #[arg(short = 'b', long)]
    bidirectional: bool,
    /// Do not measure the peak
    #[arg(short = 'N', long = "noPeak")]
    no_peak: bool,
    /// Highest rate of a queue pair, counting whole frames, in the units below
    #[arg(long = "rate_limit", value_name = "RATE", value_parser = parse_rate)]
    rate_limit: Option<f64>,
    /// Units of the rate: MiB/s, or Gb/s; with PP it is always kbit/s
    #[arg(long = "rate_units", value_enum, default_value = "M", requires = "rate_limit")]
    rate_units: RateUnits,
    /// Kind of limit: the path's static rate, rounded up to one of the verbs' rates, or the queue
    /// pair
    #[arg(long = "rate_limit_type", value_enum, default_value = "HW", requires = "rate_limit")]
    rate_limit_type: RateLimitType,
}

/// perftest's units of a rate.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum RateUnits {
    #[value(name = "M")]
    Mebibytes,
    #[value(name = "g")]
    Gigabits,
}

/// perftest's kinds of limits that uroce has.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum RateLimitType {
    #[value(name = "HW")]
    Path,
    #[value(name = "PP")]
    QueuePair,
}

/// Receive requests, for SEND tests.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReceiveArgs {
    /// Receive requests posted per queue pair
    #[arg(short = 'r', long, default_value_t = 512, value_name = "N")]
    rx_depth: u32,
}

/// Outstanding requests, for READ and ATOMIC tests.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutstandingArgs {
    /// READ and ATOMIC requests outstanding at the responder, 1 to 16
    #[arg(short = 'o', long = "outs", default_value_t = 16, value_name = "N")]
    outstanding: u8,
}

/// Kind of atomic operation.
#[derive(Args, Clone, Debug)]
pub(crate) struct AtomicArgs {
    /// Operation
    #[arg(short = 'A', long = "atomic_type", value_enum, default_value = "FETCH_AND_ADD")]
    atomic_type: AtomicType,
}

/// perftest's names of the atomic operations.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum AtomicType {
    #[value(name = "FETCH_AND_ADD")]
    FetchAndAdd,
    #[value(name = "CMP_AND_SWAP")]
    CompareAndSwap,
}

impl AtomicArgs {
    fn operation(&self) -> Operation {
        match self.atomic_type {
            AtomicType::FetchAndAdd => Operation::FetchAdd,
            AtomicType::CompareAndSwap => Operation::CompareSwap,
        }
    }
}

/// Options of latency tests.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LatencyArgs {
    /// Print more quantiles below the table
    #[arg(short = 'H', long = "report-histogram")]
    quantiles: bool,
}

/// Declares the options of a subcommand as groups of the structures above.
macro_rules! subcommand {
    ($(#[doc = $doc:literal])* $name:ident { $($field:ident: $group:ty),* $(,)? }) => {
        $(#[doc = $doc])*
        #[derive(Args, Clone, Debug)]
        pub(crate) struct $name {
            $(#[command(flatten)] $field: $group,)*
        }
    };
}

subcommand! {
    /// Options of `write_bw`.
    BwArgs { size: SizeArgs, bandwidth: BandwidthArgs, common: CommonArgs }
}
subcommand! {
    /// Options of `read_bw`.
    ReadBwArgs {
        size: SizeArgs, bandwidth: BandwidthArgs, outs: OutstandingArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `send_bw`.
    SendBwArgs {
        size: SizeArgs, bandwidth: BandwidthArgs, receive: ReceiveArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `atomic_bw`.
    AtomicBwArgs {
        atomic: AtomicArgs, bandwidth: BandwidthArgs, outs: OutstandingArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `write_lat` and `read_lat`.
    LatArgs { size: SizeArgs, latency: LatencyArgs, common: CommonArgs }
}
subcommand! {
    /// Options of `send_lat`.
    SendLatArgs {
        size: SizeArgs, latency: LatencyArgs, receive: ReceiveArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `atomic_lat`.
    AtomicLatArgs { atomic: AtomicArgs, latency: LatencyArgs, common: CommonArgs }
}

impl BwArgs {
    fn perf(self, operation: Operation, measure: Measure) -> PerfArgs {
        let mut plan = self.common.plan(operation, measure);
        self.size.apply(&mut plan);
        self.bandwidth.apply(&mut plan);
        PerfArgs { plan, common: self.common, quantiles: false }
    }
}

impl ReadBwArgs {
    fn perf(self) -> PerfArgs {
        let mut plan = self.common.plan(Operation::Read, Measure::Bandwidth);
        self.size.apply(&mut plan);
        self.bandwidth.apply(&mut plan);
        plan.outstanding = self.outs.outstanding;
        PerfArgs { plan, common: self.common, quantiles: false }
    }
}

impl SendBwArgs {
    fn perf(self) -> PerfArgs {
        let mut plan = self.common.plan(Operation::Send, Measure::Bandwidth);
        self.size.apply(&mut plan);
        self.bandwidth.apply(&mut plan);
        plan.rx_depth = self.receive.rx_depth;
        PerfArgs { plan, common: self.common, quantiles: false }
    }
}

impl AtomicBwArgs {
    fn perf(self) -> PerfArgs {
        let mut plan = self.common.plan(self.atomic.operation(), Measure::Bandwidth);
        self.bandwidth.apply(&mut plan);
        plan.outstanding = self.outs.outstanding;
        PerfArgs { plan, common: self.common, quantiles: false }
    }
}

impl LatArgs {
    fn perf(self, operation: Operation, measure: Measure) -> PerfArgs {
        let mut plan = self.common.plan(operation, measure);
        self.size.apply(&mut plan);
        PerfArgs { plan, common: self.common, quantiles: self.latency.quantiles }
    }
}

impl SendLatArgs {
    fn perf(self) -> PerfArgs {
        let mut plan = self.common.plan(Operation::Send, Measure::Latency);
        self.size.apply(&mut plan);
        plan.rx_depth = self.receive.rx_depth;
        PerfArgs { plan, common: self.common, quantiles: self.latency.quantiles }
    }
}

impl AtomicLatArgs {
    fn perf(self) -> PerfArgs {
        let plan = self.common.plan(self.atomic.operation(), Measure::Latency);
        PerfArgs { plan, common: self.common, quantiles: self.latency.quantiles }
    }
}

impl SizeArgs {
    fn apply(&self, plan: &mut Plan) {
        if self.all {
            plan.sizes = Plan::sweep();
        } else if let Some(size) = self.size {
            plan.sizes = vec![size];
        }
    }
}

impl BandwidthArgs {
    fn apply(&self, plan: &mut Plan) {
        plan.tx_depth = self.tx_depth;
        plan.cq_mod = self.cq_mod;
        plan.qps = self.qps;
        plan.post_list = self.post_list;
        plan.bidirectional = self.bidirectional;
        plan.no_peak = self.no_peak;
        plan.rate = self.rate();
    }

    fn rate(&self) -> Rate {
        let Some(rate) = self.rate_limit else { return Rate::Max };
        match (self.rate_limit_type, self.rate_units) {
            // A value beyond the range means no limit.
            (RateLimitType::QueuePair, _) => Rate::QueuePair(rate.max(1.0) as u32),
            (RateLimitType::Path, RateUnits::Gigabits) => Rate::of_path(rate * 1e3),
            (RateLimitType::Path, RateUnits::Mebibytes) => {
                Rate::of_path(rate * f64::from(1 << 20) * 8.0 / 1e6)
            }
        }
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 => Ok(rate),
        _ => Err("a number above 0".to_owned()),
    }
}

impl CommonArgs {
    fn plan(&self, operation: Operation, measure: Measure) -> Plan {
        let mut plan = Plan::new(operation, measure);
        if let Some(iterations) = self.iters {
            plan.amount = Amount::Iterations(iterations);
        }
        if let Some(seconds) = self.duration {
            plan.amount = Amount::Duration(Duration::from_secs(seconds));
        }
        plan.mtu = self.mtu;
        plan.qp_timeout = self.qp_timeout;
        plan.retry_count = self.retry_count;
        plan.service = self.connection;
        plan.inline = self.inline_size;
        plan.verify = self.verify;
        plan
    }

    /// Returns the JSON file to write, if any.
    pub(crate) fn json_file(&self) -> Option<PathBuf> {
        let default = self.out_json.then(|| PathBuf::from("perftest_out.json"));
        self.out_json_file.clone().or(default)
    }
}

impl PerfArgs {
    /// Checks the ranges of all options and completes the plan.
    pub(crate) fn checked(mut self) -> Result<Self, BenchError> {
        if self.common.duration == Some(0) {
            return Err(BenchError::usage("-D must be at least 1 second"));
        }
        if self.common.rdma_cm {
            return Err(BenchError::usage(
                "-R is not supported here: the tests connect by an exchange over TCP; rping and \
                 connect use the connection manager",
            ));
        }
        if self.plan.verify && self.common.duration.is_some() {
            return Err(BenchError::usage("--verify counts messages: give -n instead of -D"));
        }
        self.plan = self.plan.checked()?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
