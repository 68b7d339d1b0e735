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
    #[command(name = "write_bw", version)]
    WriteBw(BwArgs),
    /// Bandwidth of RDMA READ
    #[command(name = "read_bw", version)]
    ReadBw(ReadBwArgs),
    /// Bandwidth of SEND
    #[command(name = "send_bw", version)]
    SendBw(SendBwArgs),
    /// Rate of ATOMIC operations
    #[command(name = "atomic_bw", version)]
    AtomicBw(AtomicBwArgs),
    /// Latency of RDMA WRITE: half of a round trip
    #[command(name = "write_lat", version)]
    WriteLat(WriteLatArgs),
    /// Latency of RDMA READ: a round trip
    #[command(name = "read_lat", version)]
    ReadLat(ReadLatArgs),
    /// Latency of SEND: half of a round trip
    #[command(name = "send_lat", version)]
    SendLat(SendLatArgs),
    /// Latency of ATOMIC operations: a round trip
    #[command(name = "atomic_lat", version)]
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
            Self::WriteBw(BwArgs { size, bandwidth, warm_up, imm, list, common }) => {
                bandwidth.test(common, Operation::Write, &[&size, &warm_up, &imm, &list])
            }
            Self::ReadBw(ReadBwArgs { size, bandwidth, warm_up, outs, events, common }) => {
                bandwidth.test(common, Operation::Read, &[&size, &warm_up, &outs, &events])
            }
            Self::SendBw(args) => {
                let SendBwArgs { size, bandwidth, receive, list, imm, multicast, events, common } =
                    args;
                let groups: [&dyn Group; 6] = [&size, &receive, &list, &imm, &multicast, &events];
                bandwidth.test(common, Operation::Send, &groups)
            }
            Self::AtomicBw(AtomicBwArgs { atomic, bandwidth, warm_up, outs, events, common }) => {
                bandwidth.test(common, atomic.operation(), &[&warm_up, &outs, &events])
            }
            Self::WriteLat(WriteLatArgs { size, latency, imm, common }) => {
                latency.test(common, Operation::Write, &[&size, &imm])
            }
            Self::ReadLat(ReadLatArgs { size, latency, events, common }) => {
                latency.test(common, Operation::Read, &[&size, &events])
            }
            Self::SendLat(args) => {
                let SendLatArgs { size, latency, receive, imm, multicast, events, common } = args;
                let groups: [&dyn Group; 5] = [&size, &receive, &imm, &multicast, &events];
                latency.test(common, Operation::Send, &groups)
            }
            Self::AtomicLat(AtomicLatArgs { atomic, latency, events, common }) => {
                latency.test(common, atomic.operation(), &[&events])
            }
        }
    }
}

/// A group of options that several tests have.
trait Group {
    /// Adds the options to a plan.
    ///
    /// # Errors
    ///
    /// Options that do not go together.
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError>;
}

impl BandwidthArgs {
    /// Returns a bandwidth test with these options and others.
    fn test(
        &self,
        common: CommonArgs,
        operation: Operation,
        groups: &[&dyn Group],
    ) -> Result<PerfArgs, BenchError> {
        let mut plan = common.plan(operation, Measure::Bandwidth);
        let view = self.apply(&common, &mut plan)?;
        groups.iter().try_for_each(|group| group.apply(&mut plan))?;
        PerfArgs { plan, common, view }.checked()
    }
}

impl LatencyArgs {
    /// Returns a latency test with these options and others.
    fn test(
        &self,
        common: CommonArgs,
        operation: Operation,
        groups: &[&dyn Group],
    ) -> Result<PerfArgs, BenchError> {
        let mut plan = common.plan(operation, Measure::Latency);
        let view = self.apply(&mut plan)?;
        groups.iter().try_for_each(|group| group.apply(&mut plan))?;
        PerfArgs { plan, common, view }.checked()
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
    /// Bytes of a message, or with K or M behind KiB or MiB [default: 65536 for bandwidth, 2 for
    /// latency]
    #[arg(short = 's', long, value_name = "BYTES", conflicts_with = "all",
          value_parser = parse_size)]
    size: Option<u32>,
    /// All sizes from 2 to 2^23
    #[arg(short = 'a', long)]
    all: bool,
}

/// Outstanding requests, for READ and ATOMIC tests.
#[derive(Args, Clone, Debug)]
pub(crate) struct OutstandingArgs {
    /// READ and ATOMIC requests outstanding at the responder, 1 to 16 [default: 16, with -c RD 1]
    #[arg(short = 'o', long = "outs", value_name = "N")]
    outstanding: Option<u8>,
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

impl Group for SizeArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        if self.all {
            plan.sizes = Plan::sweep();
        } else if let Some(size) = self.size {
            plan.sizes = vec![size];
        }
        Ok(())
    }
}

impl Group for OutstandingArgs {
    fn apply(&self, plan: &mut Plan) -> Result<(), BenchError> {
        plan.outstanding = self.outstanding;
        Ok(())
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
        if common.inline_size > 0 && self.plan.operation.is_answered_by_stack() {
            return Err(BenchError::usage(
                "-I copies what a request carries, which READ and ATOMIC do not: leave it out",
            ));
        }
        if common.report_gbits && self.plan.measure == Measure::Latency {
            return Err(BenchError::usage(
                "--report_gbits is for bandwidth tests: latencies are in microseconds, or with -C \
                 in cycles",
            ));
        }
        // A thread that sleeps on events cannot drive the lcore.
        self.common.ends.device.lcore_thread |= self.plan.local.events;
        self.plan = self.plan.checked()?;
        Ok(self)
    }
}

/// Reads a size as perftest does: a number, or one of KiB or MiB.
fn parse_size(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.split_at_checked(text.len().saturating_sub(1)) {
        Some((digits, "K")) => (digits, 1 << 10),
        Some((digits, "M")) => (digits, 1 << 20),
        _ => (text, 1),
    };
    let size = path::number(digits).and_then(|number| number.checked_mul(unit));
    size.ok_or_else(|| "a number of bytes, or one with K or M: 64K, 1M".to_owned())
}

#[cfg(test)]
mod tests;
