//! Parameters of a test, which must be the same at both ends.
//!
//! Not here: parameters of one end alone (device, addresses, pinning, form of the report).

use crate::error::BenchError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Binary logarithm of the largest message of a sweep (`-a`), as in perftest.
const SWEEP_MAX_LOG2: u32 = 23;
/// Longest message of RC in bytes.
pub(crate) const MESSAGE_MAX: u32 = 1 << 31;

/// Largest message in bytes for which perftest signals one of many requests instead of each.
const MODERATED_MAX: u32 = 8192;
/// Send requests per completion for messages of up to [`MODERATED_MAX`] bytes, as in perftest.
const MODERATION: u32 = 100;

/// Largest number of bytes of inline data in a work request.
const INLINE_MAX: u32 = 1024;

/// Operation of the work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Operation {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
    /// SEND.
    Send,
    /// ATOMIC fetch and add.
    FetchAdd,
    /// ATOMIC compare and swap.
    CompareSwap,
}

impl Operation {
    /// Returns the specification's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::Send => "SEND",
            Self::FetchAdd => "FETCH_ADD",
            Self::CompareSwap => "CMP_SWAP",
        }
    }

    /// Returns perftest's name, for titles.
    pub(crate) fn perftest_name(self) -> &'static str {
        match self {
            Self::Write => "RDMA_Write",
            Self::Read => "RDMA_Read",
            Self::Send => "Send",
            Self::FetchAdd => "Atomic FETCH_AND_ADD",
            Self::CompareSwap => "Atomic CMP_AND_SWAP",
        }
    }

    /// Tells whether the operation is an atomic one.
    pub(crate) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }

    /// Tells whether the responder's stack answers, so that only one side posts, even in a latency
    /// test.
    pub(crate) fn is_answered_by_stack(self) -> bool {
        self == Self::Read || self.is_atomic()
    }
}

/// Transport service of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum Service {
    /// Reliable connection.
    #[value(name = "RC")]
    Rc,
    /// Unreliable connection: SEND and WRITE.
    #[value(name = "UC")]
    Uc,
    /// Unreliable datagram: SEND of up to a path MTU.
    #[value(name = "UD")]
    Ud,
}

impl Service {
    /// Returns perftest's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }

    /// Returns the type of the queue pairs.
    pub(crate) fn qp_type(self) -> uroce::QpType {
        match self {
            Self::Rc => uroce::QpType::Rc,
            Self::Uc => uroce::QpType::Uc,
            Self::Ud => uroce::QpType::Ud,
        }
    }

    /// Tells whether the service has the operation.
    fn has(self, operation: Operation) -> bool {
        match self {
            Self::Rc => true,
            Self::Uc => matches!(operation, Operation::Send | Operation::Write),
            Self::Ud => operation == Operation::Send,
        }
    }
}

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Measure {
    /// Payload over time.
    Bandwidth,
    /// Round trips: half of one for SEND and WRITE, a whole one for READ and atomics.
    Latency,
}

/// Amount of work at each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Amount {
    /// This number of messages on each queue pair.
    Iterations(u64),
    /// As many messages as possible in this time.
    Duration(Duration),
}

impl Amount {
    /// Returns the number of messages, if it is known in advance.
    pub(crate) fn iterations(self) -> Option<u64> {
        match self {
            Self::Iterations(count) => Some(count),
            Self::Duration(_) => None,
        }
    }
}

/// Limit of the sending rate, counting whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rate {
    /// No limit.
    #[default]
    Max,
    /// Static rate of the path, a code of the verbs.
    Path(u8),
    /// Rate limit of the queue pair, in kbit/s.
    QueuePair(u32),
}

impl Rate {
    /// Returns the lowest static rate of the verbs that is at least `mbps`; no limit if there is
    /// none.
    pub(crate) fn of_path(mbps: f64) -> Self {
        let known = uroce::StaticRate::all().filter_map(|rate| Some((rate.mbps()?, rate.code())));
        let fits = known.filter(|(known, _)| f64::from(*known) >= mbps);
        fits.min().map_or(Self::Max, |(_, code)| Self::Path(code))
    }

    /// Returns the limit in Gb/s, if there is one.
    pub(crate) fn gbps(self) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Path(_) => self.of_the_path().mbps().map(|mbps| f64::from(mbps) / 1e3),
            Self::QueuePair(kbps) => Some(f64::from(kbps) / 1e6),
        }
    }

    /// Returns the static rate for the address vector.
    pub(crate) fn of_the_path(self) -> uroce::StaticRate {
        match self {
            Self::Path(code) => uroce::StaticRate::from_code(code).unwrap_or_default(),
            Self::Max | Self::QueuePair(_) => uroce::StaticRate::MAX,
        }
    }

    /// Returns the rate limit for Modify QP: kbit/s, 0 for no limit.
    pub(crate) fn of_the_queue_pair(self) -> u32 {
        match self {
            Self::QueuePair(kbps) => kbps,
            Self::Max | Self::Path(_) => 0,
        }
    }
}

/// A test at one or several sizes. Names of fields are perftest's options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Operation of the work requests.
    pub(crate) operation: Operation,
    /// Measured quantity.
    pub(crate) measure: Measure,
    /// Transport service of the queue pairs.
    pub(crate) service: Service,
    /// Payload bytes of a message, one run per size.
    pub(crate) sizes: Vec<u32>,
    /// Amount of work at each size.
    pub(crate) amount: Amount,
    /// Send requests outstanding on a queue pair.
    pub(crate) tx_depth: u32,
    /// Receive requests posted on a queue pair.
    pub(crate) rx_depth: u32,
    /// Requested number of send requests per completion; [`Plan::moderation`] returns the one used.
    pub(crate) cq_mod: Option<u32>,
    /// Work requests posted at once.
    pub(crate) post_list: u32,
    /// Queue pairs.
    pub(crate) qps: u32,
    /// Path MTU in bytes; `None` is the largest that both ports support.
    pub(crate) mtu: Option<u32>,
    /// Local ACK timeout code: 4.096 µs · 2^n.
    pub(crate) qp_timeout: u8,
    /// Transport retries.
    pub(crate) retry_count: u8,
    /// READ and ATOMIC requests outstanding, 1 to 16.
    pub(crate) outstanding: u8,
    /// Payloads of up to this many bytes are copied when they are posted.
    pub(crate) inline: u32,
    /// Limit of each queue pair's sending rate; for UD, of each direction.
    pub(crate) rate: Rate,
    /// The peer holds packets that come early, so that only lost ones are sent again.
    pub(crate) selective_repeat: bool,
    /// Both ends send.
    pub(crate) bidirectional: bool,
    /// The peak is not computed.
    pub(crate) no_peak: bool,
    /// Every byte is checked.
    pub(crate) verify: bool,
}

impl Plan {
    /// Creates a test with perftest's defaults.
    pub(crate) fn new(operation: Operation, measure: Measure) -> Self {
        let latency = measure == Measure::Latency;
        let (size, iterations) = match (measure, operation) {
            (_, operation) if operation.is_atomic() => (8, 1000),
            (Measure::Latency, _) => (2, 1000),
            (Measure::Bandwidth, Operation::Write) => (65536, 5000),
            (Measure::Bandwidth, _) => (65536, 1000),
        };
        Self {
            operation,
            measure,
            service: Service::Rc,
            sizes: vec![size],
            amount: Amount::Iterations(iterations),
            tx_depth: if latency { 1 } else { 128 },
            rx_depth: 512,
            cq_mod: None,
            post_list: 1,
            qps: 1,
            mtu: None,
            qp_timeout: 14,
            retry_count: 7,
            outstanding: 16,
            inline: 0,
            rate: Rate::default(),
            selective_repeat: false,
            bidirectional: false,
            no_peak: false,
            verify: false,
        }
    }

    /// Returns the sizes from 2 bytes to 8 MiB, each twice the one before.
    pub(crate) fn sweep() -> Vec<u32> {
        (1..=SWEEP_MAX_LOG2).map(|log2| 1 << log2).collect()
    }

    /// Tells whether messages can be lost.
    pub(crate) fn is_lossy(&self) -> bool {
        self.service != Service::Rc
    }

    /// Returns the number of send requests per signaled one: as requested, else as in perftest.
    ///
    /// Only a completion frees places in the send queue. Therefore either every list ends with a
    /// signaled request, or the queue has room for a list in addition to all requests that wait for
    /// a completion.
    pub(crate) fn moderation(&self) -> u32 {
        let default = match (&self.sizes[..], self.post_list) {
            (_, list @ 2..) => list,
            ([size], _) if *size > MODERATED_MAX && self.service != Service::Ud => 1,
            _ => MODERATION,
        };
        let wanted = self.cq_mod.unwrap_or(default);
        if self.post_list.is_multiple_of(wanted) {
            return wanted;
        }
        wanted.min(self.tx_depth + 1 - self.post_list)
    }

    /// Returns the sizes for a path MTU. A datagram is one packet: a longer size is reduced to the
    /// MTU, or in a sweep left out, as in perftest.
    pub(crate) fn sizes_on(&self, mtu: u32) -> Vec<u32> {
        match (self.service, &self.sizes[..]) {
            (Service::Ud, [size]) => vec![mtu.min(*size)],
            (Service::Ud, sizes) => sizes.iter().copied().filter(|&size| size <= mtu).collect(),
            (_, sizes) => sizes.to_vec(),
        }
    }

    /// Returns the largest size of the plan.
    pub(crate) fn size_max(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(0)
    }

    /// Checks the ranges of all values, and sets the number of requests per completion.
    pub(crate) fn checked(mut self) -> Result<Self, BenchError> {
        let range = |name: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(BenchError::usage(format!("{name} must be {low} to {high}, not {value}")))
        };
        for &size in &self.sizes {
            range("-s", u64::from(size), 1, u64::from(MESSAGE_MAX))?;
            if self.operation.is_atomic() && size != 8 {
                return Err(BenchError::usage("an atomic operation has 8 bytes"));
            }
        }
        if let Amount::Iterations(count) = self.amount {
            range("-n", count, 5, u64::from(u32::MAX))?;
        }
        range("-t", u64::from(self.tx_depth), 1, 16384)?;
        range("-r", u64::from(self.rx_depth), 1, 16384)?;
        range("-Q", u64::from(self.cq_mod.unwrap_or(1)), 1, 16384)?;
        range("-q", u64::from(self.qps), 1, 1024)?;
        range("-l", u64::from(self.post_list), 1, u64::from(self.tx_depth))?;
        range("-u", u64::from(self.qp_timeout), 0, 31)?;
        range("--retry_count", u64::from(self.retry_count), 0, 7)?;
        range("-o", u64::from(self.outstanding), 1, 16)?;
        range("-I", u64::from(self.inline), 0, u64::from(INLINE_MAX))?;
        if !self.service.has(self.operation) {
            let (service, operation) = (self.service.name(), self.operation.name());
            return Err(BenchError::usage(format!("{service} has no {operation}")));
        }
        if let Some(mtu) = self.mtu
            && uroce::PathMtu::from_bytes(mtu).is_none()
        {
            return Err(BenchError::usage("-m must be 256, 512, 1024, 2048 or 4096"));
        }
        if self.verify && self.bidirectional {
            return Err(BenchError::usage("--verify checks one direction: leave out -b"));
        }
        // The value is stored, so that it is the same at both ends whether it was requested or not.
        self.cq_mod = Some(self.moderation());
        Ok(self)
    }

    /// Describes the differences from the other end's plan; `None` if there are none.
    pub(crate) fn differences(&self, other: &Plan) -> Option<String> {
        let both = [self, other].map(|plan| serde_json::to_value(plan).unwrap_or_default());
        let [Some(ours), Some(theirs)] = both.each_ref().map(|value| value.as_object()) else {
            return None;
        };
        let texts: Vec<String> = ours
            .iter()
            .filter(|(key, value)| theirs.get(*key) != Some(value))
            .map(|(key, value)| {
                let other = theirs.get(key).cloned().unwrap_or_default();
                format!("{key} is {value} here and {other} there")
            })
            .collect();
        (!texts.is_empty()).then(|| texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_perftests() {
        let write = Plan::new(Operation::Write, Measure::Bandwidth);
        assert_eq!(write.sizes, [65536]);
        assert_eq!(write.amount, Amount::Iterations(5000));
        assert_eq!((write.tx_depth, write.rx_depth), (128, 512));
        let send = Plan::new(Operation::Send, Measure::Latency);
        assert_eq!((send.sizes[0], send.amount), (2, Amount::Iterations(1000)));
        assert_eq!(send.tx_depth, 1);
        assert_eq!(Plan::new(Operation::FetchAdd, Measure::Latency).sizes, [8]);
    }

    #[test]
    fn a_sweep_goes_from_2_to_8_mib() {
        let sizes = Plan::sweep();
        assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 1 << 23));
    }

    #[test]
    fn moderation_is_perftests() {
        let large = Plan::new(Operation::Send, Measure::Bandwidth);
        let moderation = |plan: Plan| plan.checked().expect("valid").cq_mod.expect("decided");
        assert_eq!(moderation(large.clone()), 1);
        assert_eq!(moderation(Plan { sizes: vec![8192], ..large.clone() }), 100);
        assert_eq!(moderation(Plan { sizes: Plan::sweep(), ..large.clone() }), 100);
        assert_eq!(moderation(Plan { service: Service::Ud, ..large.clone() }), 100);
        assert_eq!(moderation(Plan { post_list: 16, ..large.clone() }), 16);
        assert_eq!(moderation(Plan { post_list: 128, ..large.clone() }), 128);
        assert_eq!(moderation(Plan { cq_mod: Some(50), ..large.clone() }), 50);
        assert_eq!(moderation(Plan { cq_mod: Some(100), tx_depth: 16, ..large }), 16);
        assert_eq!(moderation(Plan::new(Operation::Send, Measure::Latency)), 1);
    }

    /// Simulates a sender's posts on one queue pair with immediate completions. Returns whether all
    /// messages were sent.
    fn ends(plan: &Plan, messages: u64) -> bool {
        let (depth, list) = (u64::from(plan.tx_depth), u64::from(plan.post_list));
        let moderation = u64::from(plan.moderation());
        let (mut posted, mut completed) = (0, 0);
        while completed < messages {
            let count = list.min(messages - posted);
            if count > 0 && posted - completed + count <= depth {
                posted += count;
                continue;
            }
            let signaled = if count == 0 { posted } else { posted / moderation * moderation };
            if signaled == completed {
                return false;
            }
            completed = signaled;
        }
        true
    }

    #[test]
    fn there_is_always_room_again() {
        let new = || Plan::new(Operation::Write, Measure::Bandwidth);
        for (tx_depth, asked) in
            (1..=20).flat_map(|depth| (0..=25).map(move |asked| (depth, asked)))
        {
            for post_list in 1..=tx_depth {
                let cq_mod = (asked > 0).then_some(asked);
                let plan = Plan { tx_depth, post_list, cq_mod, ..new() };
                for messages in [5, 64, 97, 1000] {
                    assert!(ends(&plan, messages), "-t {tx_depth} -l {post_list} -Q {cq_mod:?}");
                }
            }
        }
        assert!(ends(&Plan { post_list: 64, ..new() }, 5000));
    }

    #[test]
    fn values_out_of_range_are_named() {
        let with = |change: fn(&mut Plan)| {
            let mut plan = Plan::new(Operation::Write, Measure::Bandwidth);
            change(&mut plan);
            plan.checked().expect_err("out of range").to_string()
        };
        assert_eq!(with(|plan| plan.sizes = vec![0]), "-s must be 1 to 2147483648, not 0");
        assert_eq!(with(|plan| plan.mtu = Some(1500)), "-m must be 256, 512, 1024, 2048 or 4096");
        assert_eq!(
            with(|plan| plan.amount = Amount::Iterations(4)),
            "-n must be 5 to 4294967295, not 4"
        );
        assert_eq!(with(|plan| plan.post_list = 200), "-l must be 1 to 128, not 200");
    }

    #[test]
    fn services_have_the_operations_that_they_have() {
        for operation in [Operation::Write, Operation::Read, Operation::Send, Operation::FetchAdd] {
            for (service, has) in [
                (Service::Rc, true),
                (Service::Uc, matches!(operation, Operation::Write | Operation::Send)),
                (Service::Ud, operation == Operation::Send),
            ] {
                let plan = Plan { service, ..Plan::new(operation, Measure::Latency) };
                assert_eq!(plan.checked().is_ok(), has, "{service:?} {operation:?}");
            }
        }
    }

    #[test]
    fn rates_of_paths_are_those_of_the_verbs() {
        assert_eq!(Rate::of_path(25_000.0).gbps(), Some(25.0));
        assert_eq!(Rate::of_path(1000.0).gbps(), Some(2.5));
        assert_eq!(Rate::of_path(26_000.0).gbps(), Some(28.0));
        assert_eq!(Rate::of_path(2_000_000.0), Rate::Max);
        assert_eq!((Rate::Max.gbps(), Rate::QueuePair(1_500_000).gbps()), (None, Some(1.5)));
    }

    #[test]
    fn datagrams_are_at_most_a_packet() {
        let send = Plan::new(Operation::Send, Measure::Bandwidth);
        assert_eq!(send.sizes_on(1024), [65536]);
        let datagrams = Plan { service: Service::Ud, ..send };
        assert_eq!(datagrams.sizes_on(1024), [1024]);
        let sweep = Plan { sizes: Plan::sweep(), ..datagrams };
        assert_eq!(sweep.sizes_on(16), [2, 4, 8, 16]);
    }

    #[test]
    fn differing_options_are_listed() {
        let ours = Plan::new(Operation::Write, Measure::Bandwidth);
        assert_eq!(ours.differences(&ours.clone()), None);
        let theirs = Plan { sizes: vec![8], qps: 2, ..ours.clone() };
        let text = ours.differences(&theirs).expect("they differ");
        assert_eq!(text, "qps is 1 here and 2 there, sizes is [65536] here and [8] there");
    }
}
