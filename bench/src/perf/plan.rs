//! Parameters of a test, which must be the same at both ends.
//!
//! [`Local`] has those that each end chooses for its own requests and packets.
//!
//! Not here: device, addresses, pinning, form of the report.

mod local;
mod rate;
mod span;

pub(crate) use local::{Fields, Local, Pace, Speed};
pub(crate) use rate::Rate;
pub(crate) use span::Span;

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

/// Receive requests posted at once, unless the number is given.
const RECEIVE_LIST: u32 = 32;
/// Bytes of a frame with a short payload, and more.
const SHORT_FRAME: u64 = 128;
/// READ and ATOMIC requests outstanding at the responder, unless the number is given.
const OUTSTANDING: u8 = 16;
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
    /// Extended reliable connection: requests name the shared receive queue of the peer.
    #[value(name = "XRC")]
    Xrc,
    /// Reliable datagram: queue pairs share EE contexts, which are connections (not in perftest).
    #[value(name = "RD")]
    Rd,
}

impl Service {
    /// Returns perftest's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
            Self::Rd => "RD",
        }
    }

    /// Returns the type of the queue pairs that send requests.
    pub(crate) fn qp_type(self) -> uroce::QpType {
        match self {
            Self::Rc => uroce::QpType::Rc,
            Self::Uc => uroce::QpType::Uc,
            Self::Ud => uroce::QpType::Ud,
            Self::Xrc => uroce::QpType::XrcSend,
            Self::Rd => uroce::QpType::Rd,
        }
    }

    /// Tells whether the service has the operation.
    fn has(self, operation: Operation) -> bool {
        match self {
            Self::Rc | Self::Xrc | Self::Rd => true,
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
    /// Messages until the process is ended.
    Endless,
}

impl Amount {
    /// Returns the number of messages, if it is known in advance.
    pub(crate) fn iterations(self) -> Option<u64> {
        match self {
            Self::Iterations(count) => Some(count),
            Self::Duration(_) | Self::Endless => None,
        }
    }

    /// Tells whether only the end of the process ends the test.
    pub(crate) fn is_endless(self) -> bool {
        self == Self::Endless
    }
}

/// A test at one or several sizes. Names of fields are perftest's options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    /// Requested number of RD's EE contexts; [`Plan::ee_contexts`] returns the one used.
    pub(crate) eecs: Option<u32>,
    /// Path MTU in bytes; `None` is the largest that both ports support.
    pub(crate) mtu: Option<u32>,
    /// Local ACK timeout code: 4.096 µs · 2^n.
    pub(crate) qp_timeout: u8,
    /// Transport retries.
    pub(crate) retry_count: u8,
    /// Requested number of outstanding READ and ATOMIC requests, 1 to 16; [`Plan::outstanding`]
    /// returns the one used.
    pub(crate) outstanding: Option<u8>,
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
    /// Messages of SEND and WRITE have immediate data.
    pub(crate) immediate: bool,
    /// The receiver's queue pair is attached to a multicast group, to which messages are sent.
    pub(crate) multicast: bool,
    /// Choices of this end alone, which the other does not learn.
    #[serde(skip)]
    pub(crate) local: Local,
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
            eecs: None,
            mtu: None,
            qp_timeout: 14,
            retry_count: 7,
            outstanding: None,
            inline: 0,
            rate: Rate::default(),
            selective_repeat: false,
            bidirectional: false,
            no_peak: false,
            verify: false,
            immediate: false,
            multicast: false,
            local: Local::default(),
        }
    }

    /// Returns the sizes from 2 bytes to 8 MiB, each twice the one before.
    pub(crate) fn sweep() -> Vec<u32> {
        (1..=SWEEP_MAX_LOG2).map(|log2| 1 << log2).collect()
    }

    /// Tells whether messages take receive requests at their target.
    pub(crate) fn takes_receives(&self) -> bool {
        self.operation == Operation::Send || (self.operation == Operation::Write && self.immediate)
    }

    /// Tells whether messages can be lost.
    pub(crate) fn is_lossy(&self) -> bool {
        matches!(self.service, Service::Uc | Service::Ud)
    }

    /// Tells whether the queue pairs of an end take receive requests from one shared queue.
    pub(crate) fn shares_receives(&self) -> bool {
        self.local.srq || self.service == Service::Xrc
    }

    /// Tells whether each worker has a queue pair for each direction. An XRC queue pair serves one
    /// of them. As in perftest, latency tests have both whether both are used or not.
    pub(crate) fn has_pairs(&self) -> bool {
        self.service == Service::Xrc && (self.bidirectional || self.measure == Measure::Latency)
    }

    /// Returns the number of queue pairs of an end. With pairs, the second half are those of the
    /// peer's requests.
    pub(crate) fn queue_pairs(&self) -> u32 {
        if self.has_pairs() { 2 * self.qps } else { self.qps }
    }

    /// Returns the index of the peer's queue pair to which one of ours is connected.
    pub(crate) fn partner(&self, index: usize) -> usize {
        let qps = self.qps as usize;
        match self.has_pairs() {
            true if index < qps => index + qps,
            true => index - qps,
            false => index,
        }
    }

    /// Returns the number of EE contexts of an end, over which the queue pairs go in turn: as
    /// requested, else one for each; 0 for services that have none.
    pub(crate) fn ee_contexts(&self) -> u32 {
        if self.service == Service::Rd { self.eecs.unwrap_or(self.qps) } else { 0 }
    }

    /// Returns the number of READ and ATOMIC requests that may be outstanding at the responder: as
    /// requested, else as in perftest. An EE context has one message at a time.
    pub(crate) fn outstanding(&self) -> u8 {
        let default = if self.service == Service::Rd { 1 } else { OUTSTANDING };
        self.outstanding.unwrap_or(default)
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

    /// Returns the number of receive requests that are posted at once.
    pub(crate) fn receive_list(&self) -> u32 {
        self.local.receive_list.unwrap_or(RECEIVE_LIST)
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

    /// Returns the longest time without a completion that the limits of this end's rate cause.
    pub(crate) fn silence(&self) -> Duration {
        let size = self.size_max();
        let pause = self.local.pace.map_or(0, |pace| pace.period_ns(size));
        // Completions come at every this many messages. With its headers a frame has at most twice
        // the bytes of its payload, or is a short one.
        let bytes = (2 * u64::from(size) + SHORT_FRAME) * u64::from(self.moderation());
        // The queue pairs of an EE context share its rate, those of other services nothing.
        let sharers = match self.ee_contexts() {
            0 => 1,
            eecs => self.qps.div_ceil(eecs),
        };
        let bytes = bytes * u64::from(sharers);
        let slow = self.rate.gbps().map_or(0.0, |gbps| bytes as f64 * 8.0 / gbps);
        // The conversion saturates.
        Duration::from_nanos(pause.max(slow as u64))
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
        range("-o", u64::from(self.outstanding()), 1, 16)?;
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
        self.check_verification()?;
        if self.local.events && self.local.pace.is_some() {
            return Err(BenchError::usage(
                "-e sleeps for longer than the pauses of --rate_limit_type SW: leave out one",
            ));
        }
        if self.amount.is_endless() && self.sizes.len() > 1 {
            return Err(BenchError::usage(
                "--run_infinitely never comes to a second size: give -s",
            ));
        }
        if self.amount.is_endless() && self.bidirectional && self.takes_receives() {
            return Err(BenchError::usage(
                "--run_infinitely has no end at which received messages could be counted: leave \
                 out -b",
            ));
        }
        self.check_shared_queue()?;
        self.check_ee_contexts()?;
        self.local.check(self.rx_depth, self.takes_receives())?;
        // Values are stored, so that they are the same at both ends whether requested or not.
        self.cq_mod = Some(self.moderation());
        self.outstanding = Some(self.outstanding());
        self.eecs = (self.service == Service::Rd).then(|| self.ee_contexts());
        Ok(self)
    }

    /// Checks that what is asked for leaves room for a verification.
    fn check_verification(&self) -> Result<(), BenchError> {
        if self.verify && self.bidirectional {
            return Err(BenchError::usage("--verify checks one direction: leave out -b"));
        }
        if self.verify && (self.local.pace.is_some() || self.local.events) {
            return Err(BenchError::usage(
                "--verify waits for each round to be checked: leave out -e and the rate limit SW",
            ));
        }
        if self.verify && (self.local.warm_up || self.local.receive_list.is_some()) {
            return Err(BenchError::usage(
                "--verify posts requests one by one, and only those that it checks: leave out \
                 --perform_warm_up and --recv_post_list",
            ));
        }
        Ok(())
    }

    /// Checks that the shared receive queue has a receive request for each queue pair.
    fn check_shared_queue(&self) -> Result<(), BenchError> {
        if !(self.shares_receives() && self.takes_receives()) || self.qps <= self.rx_depth {
            return Ok(());
        }
        let cause = if self.local.srq { "--use-srq" } else { "XRC" };
        Err(BenchError::usage(format!(
            "{cause} has one receive queue of -r {} for {} queue pairs: -r must be at least -q",
            self.rx_depth, self.qps
        )))
    }

    /// Checks what RD has in another way than the services with connections.
    fn check_ee_contexts(&self) -> Result<(), BenchError> {
        if self.service != Service::Rd {
            return match self.eecs {
                None => Ok(()),
                Some(_) => Err(BenchError::usage(
                    "--eecs is for -c RD: the other services have no EE contexts",
                )),
            };
        }
        let (eecs, qps) = (self.ee_contexts(), self.qps);
        if !(1..=qps).contains(&eecs) {
            return Err(BenchError::usage(format!(
                "--eecs must be 1 to {qps}, the value of -q, not {eecs}"
            )));
        }
        if self.outstanding() > 1 {
            return Err(BenchError::usage(
                "-o: an EE context has one message at a time: leave it out with -c RD; -q and \
                 --eecs have more under way",
            ));
        }
        Ok(())
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
mod tests;
