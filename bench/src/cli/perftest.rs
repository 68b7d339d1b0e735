//! Options of perftest's tests: each test's groups of options, and the plan that they make.

mod bandwidth;
mod common;
mod latency;
mod path;
mod receive;
mod refusals;

pub(crate) use common::CommonArgs;
pub(crate) use refusals::refusal;

use crate::error::BenchError;
use crate::perf::plan::{Measure, Operation, Plan};
use bandwidth::{BandwidthArgs, WarmUpArgs};
use clap::{Args, Subcommand, ValueEnum};
use latency::LatencyArgs;
use receive::{EventArgs, MulticastArgs, ReceiveArgs, ReceiveListArgs, SendImmArgs, WriteImmArgs};

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
    WriteLat(WriteLatArgs),
    /// Latency of RDMA READ: a round trip
    #[command(name = "read_lat")]
    ReadLat(ReadLatArgs),
    /// Latency of SEND: half of a round trip
    #[command(name = "send_lat")]
    SendLat(SendLatArgs),
    /// Latency of ATOMIC operations: a round trip
    #[command(name = "atomic_lat")]
    AtomicLat(AtomicLatArgs),
}

impl Test {
    /// Returns plan and options of the test.
    ///
    /// # Errors
    ///
    /// Options that do not go together, or a value out of range.
    pub(crate) fn args(self) -> Result<PerfArgs, BenchError> {
        match self {
            Self::WriteBw(args) => args.perf(),
            Self::ReadBw(args) => args.perf(),
            Self::SendBw(args) => args.perf(),
            Self::AtomicBw(args) => args.perf(),
            Self::WriteLat(args) => args.perf(),
            Self::ReadLat(args) => args.perf(),
            Self::SendLat(args) => args.perf(),
            Self::AtomicLat(args) => args.perf(),
        }
    }
}

/// A test with all its options.
#[derive(Clone, Debug)]
pub(crate) struct PerfArgs {
    /// Parameters of the test.
    pub(crate) plan: Plan,
    /// Options that every test has.
    pub(crate) common: CommonArgs,
    /// Form of this end's report.
    pub(crate) view: View,
}

/// Form of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct View {
    /// Print all quantiles below a latency table.
    pub(crate) quantiles: bool,
    /// Print every latency, sorted.
    pub(crate) histogram: bool,
    /// Print every latency as it came.
    pub(crate) unsorted: bool,
    /// Report latencies in cycles.
    pub(crate) cycles: bool,
    /// Report both directions on their own.
    pub(crate) both: bool,
    /// Lowest bandwidth of a success, in the units of the report.
    pub(crate) limit_bw: Option<f64>,
    /// Lowest message rate of a success, in million per second.
    pub(crate) limit_msgrate: Option<f64>,
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
    BwArgs {
        size: SizeArgs, bandwidth: BandwidthArgs, warm_up: WarmUpArgs, imm: WriteImmArgs,
        list: ReceiveListArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `read_bw`.
    ReadBwArgs {
        size: SizeArgs, bandwidth: BandwidthArgs, warm_up: WarmUpArgs, outs: OutstandingArgs,
        events: EventArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `send_bw`.
    SendBwArgs {
        size: SizeArgs, bandwidth: BandwidthArgs, receive: ReceiveArgs, list: ReceiveListArgs,
        imm: SendImmArgs, multicast: MulticastArgs, events: EventArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `atomic_bw`.
    AtomicBwArgs {
        atomic: AtomicArgs, bandwidth: BandwidthArgs, warm_up: WarmUpArgs, outs: OutstandingArgs,
        events: EventArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `write_lat`.
    WriteLatArgs { size: SizeArgs, latency: LatencyArgs, imm: WriteImmArgs, common: CommonArgs }
}
subcommand! {
    /// Options of `read_lat`.
    ReadLatArgs { size: SizeArgs, latency: LatencyArgs, events: EventArgs, common: CommonArgs }
}
subcommand! {
    /// Options of `send_lat`.
    SendLatArgs {
        size: SizeArgs, latency: LatencyArgs, receive: ReceiveArgs, imm: SendImmArgs,
        multicast: MulticastArgs, events: EventArgs, common: CommonArgs,
    }
}
subcommand! {
    /// Options of `atomic_lat`.
    AtomicLatArgs {
        atomic: AtomicArgs, latency: LatencyArgs, events: EventArgs, common: CommonArgs,
    }
}

impl BwArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(Operation::Write, Measure::Bandwidth);
        self.size.apply(&mut plan);
        let view = self.bandwidth.apply(&self.common, &mut plan);
        self.bandwidth.check()?;
        self.warm_up.apply(&mut plan);
        self.imm.apply(&mut plan);
        self.list.apply(&mut plan);
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl ReadBwArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(Operation::Read, Measure::Bandwidth);
        self.size.apply(&mut plan);
        let view = self.bandwidth.apply(&self.common, &mut plan);
        self.bandwidth.check()?;
        self.warm_up.apply(&mut plan);
        self.outs.apply(&mut plan);
        self.events.apply(&mut plan);
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl SendBwArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(Operation::Send, Measure::Bandwidth);
        self.size.apply(&mut plan);
        let view = self.bandwidth.apply(&self.common, &mut plan);
        self.bandwidth.check()?;
        self.receive.apply(&mut plan);
        self.list.apply(&mut plan);
        self.imm.apply(&mut plan);
        self.multicast.apply(&mut plan)?;
        self.events.apply(&mut plan);
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl AtomicBwArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(self.atomic.operation(), Measure::Bandwidth);
        let view = self.bandwidth.apply(&self.common, &mut plan);
        self.bandwidth.check()?;
        self.warm_up.apply(&mut plan);
        self.outs.apply(&mut plan);
        self.events.apply(&mut plan);
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl WriteLatArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(Operation::Write, Measure::Latency);
        self.size.apply(&mut plan);
        self.imm.apply(&mut plan);
        let view = self.latency.apply(&mut plan);
        self.latency.check(&plan)?;
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl ReadLatArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(Operation::Read, Measure::Latency);
        self.size.apply(&mut plan);
        self.events.apply(&mut plan);
        let view = self.latency.apply(&mut plan);
        self.latency.check(&plan)?;
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl SendLatArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(Operation::Send, Measure::Latency);
        self.size.apply(&mut plan);
        self.receive.apply(&mut plan);
        self.imm.apply(&mut plan);
        self.multicast.apply(&mut plan)?;
        self.events.apply(&mut plan);
        let view = self.latency.apply(&mut plan);
        self.latency.check(&plan)?;
        PerfArgs { plan, common: self.common, view }.checked()
    }
}

impl AtomicLatArgs {
    fn perf(self) -> Result<PerfArgs, BenchError> {
        let mut plan = self.common.plan(self.atomic.operation(), Measure::Latency);
        self.events.apply(&mut plan);
        let view = self.latency.apply(&mut plan);
        self.latency.check(&plan)?;
        PerfArgs { plan, common: self.common, view }.checked()
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

impl OutstandingArgs {
    fn apply(&self, plan: &mut Plan) {
        plan.outstanding = self.outstanding;
    }
}

impl PerfArgs {
    /// Checks the ranges of all options and completes the plan.
    fn checked(mut self) -> Result<Self, BenchError> {
        let common = &self.common;
        common.path.check()?;
        if common.duration == Some(0) {
            return Err(BenchError::usage("-D must be at least 1 second"));
        }
        if let (Some(duration), Some(margin)) = (common.duration, common.margin)
            && duration <= margin.saturating_mul(2)
        {
            return Err(BenchError::usage(format!(
                "-f {margin} leaves nothing of -D {duration} to measure: -D must be more than twice \
                 -f"
            )));
        }
        if common.rdma_cm {
            return Err(BenchError::usage(
                "-R is not supported here: the tests connect by an exchange over TCP; rping and \
                 connect use the connection manager",
            ));
        }
        if self.plan.verify && common.duration.is_some() {
            return Err(BenchError::usage("--verify counts messages: give -n instead of -D"));
        }
        // A thread that sleeps on events cannot drive the lcore.
        self.common.ends.device.lcore_thread |= self.plan.local.events;
        self.plan = self.plan.checked()?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests;
