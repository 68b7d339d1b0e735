//! A session: two ends agree on a plan, connect, run it at each size and report.
//!
//! ```text
//!   client                             server
//!     Hello(plan) ───────────────────►  different plans end the session
//!     Hello(plan) ◄───────────────────
//!     Setup(MTU, QPs, memory) ◄──────►  connect
//!     per size: Ready ◄──────────────►  the test itself, over RDMA
//!     Closing(retransmissions) ◄─────►
//! ```
//!
//! Invariants
//! - Both ends run the same code with the same plan. Their differences depend on
//!   [`Side`](crate::pin::Side).
//! - An end that fails sends the reason before it closes. A closed connection is noticed within
//!   milliseconds, a standstill within [`PATIENCE`] and the silence that the rates of both cause.
//!
//! Not here: opening devices ([`crate::node`]), printing ([`crate::perf::report`]).

mod bandwidth;
mod ee_contexts;
mod end;
mod flow;
mod group;
mod latency;
mod layout;
mod memory;
mod phases;
mod qp;
mod receiver;
mod receives;
mod request;
mod rest;
mod sender;
mod stock;
mod verify;
mod watch;
mod window;
mod worker;

pub(crate) use end::End;
pub(crate) use stock::run as run_stock;

use crate::error::BenchError;
use crate::node::Node;
use crate::perf::measure::{Bandwidth, Quantiles};
use crate::perf::plan::{Measure, Plan};
use crate::perf::report::{Counts, Row};
use crate::rendezvous::{Link, PATIENCE, pause};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use worker::Bench;

/// Version of the exchange. Two ends must have the same.
const VERSION: u32 = 5;

/// Messages from one end to the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Word {
    /// Version and plan of an end.
    Hello { version: u32, plan: Plan },
    /// Path MTU and queue pairs of an end, to connect to, and the longest time between two messages
    /// that the limits of its rate cause.
    Setup { mtu: u32, ends: Vec<End>, silence: Duration },
    /// This end is at work, and its next message will come.
    Busy,
    /// All receives are posted; the test may begin.
    Ready,
    /// This number of messages is completed, and no more will follow.
    Finished { messages: u64 },
    /// Results of this end's transfers in a verification.
    Sample(Bandwidth),
    /// Messages that this end has sent, and the number that it has received.
    Moved { sent: Bandwidth, received: u64 },
    /// Results of a latency test.
    Latency(Quantiles),
    /// The server is to write messages `first..first + count` into its memory, to be read.
    Prepare { first: u64, count: u64 },
    /// The server is to check messages `first..first + count`, or the words with these values.
    Check { first: u64, count: u64, words: Vec<u64> },
    /// The answer to `Prepare` or `Check`; `fault` describes the first error.
    Checked { fault: Option<String> },
    /// End of the session, with the packets retransmitted by this end.
    Closing { retransmissions: u64 },
}

/// The other end, as used by the loops that transfer messages.
trait Peer {
    /// An end at the end of its time may stop with work requests outstanding, because the other end
    /// may have stopped receiving.
    const LEAVES: bool;
    /// The other end has told the limits of its rate.
    const TELLS_RATE: bool;
    /// Time without a message after which the rest counts as lost, once this end has sent all its
    /// messages and has the other's number.
    const QUIET: Duration;

    /// Reports that this end is at work on its own, for longer than the other may wait.
    fn tell_busy(&mut self) -> Result<(), BenchError>;

    /// Reports that all messages of this end are completed.
    fn tell_sent(&mut self, messages: u64) -> Result<(), BenchError>;

    /// Returns the number of messages that the other end has sent in all, once that is known.
    fn sent(&mut self) -> Result<Option<u64>, BenchError>;
}

impl Peer for Link {
    const LEAVES: bool = false;
    const TELLS_RATE: bool = true;
    const QUIET: Duration = Duration::from_millis(20);

    fn tell_busy(&mut self) -> Result<(), BenchError> {
        self.send(&Word::Busy)
    }

    fn tell_sent(&mut self, messages: u64) -> Result<(), BenchError> {
        self.send(&Word::Finished { messages })
    }

    fn sent(&mut self) -> Result<Option<u64>, BenchError> {
        match self.try_receive()? {
            None => Ok(None),
            Some(Word::Finished { messages }) => Ok(Some(messages)),
            Some(_) => Err(out_of_step()),
        }
    }
}

/// Progress of a session.
pub(crate) enum Event<'a> {
    /// The ends are connected.
    Connected(&'a Connected),
    /// The measured part of a run by time begins.
    Begin,
    /// The measured part of a run by time is over.
    End,
    /// An interval of an endless run is over.
    Lap(Row),
    /// Latencies of a size in their order, in ns, each to be divided by the number.
    Latencies(&'a [u64], f64),
    /// What this end and the other have sent, in a test of both directions.
    Directions([Bandwidth; 2]),
    /// One size is done.
    Row(Row),
}

/// Connected queue pairs of both ends.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// READ and ATOMIC requests that the peer executes at a time.
    pub(crate) reads: u8,
    /// Queue pairs and memory of this end.
    pub(crate) local: Vec<End>,
    /// Queue pairs and memory of the peer.
    pub(crate) remote: Vec<End>,
    /// Longest time between two messages of the peer that the limits of its rate cause.
    pub(crate) silence: Duration,
}

/// Results of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Rows, one per size.
    pub(crate) rows: Vec<Row>,
    /// Path MTU in bytes.
    pub(crate) mtu: u32,
    /// Payload bytes that were checked and correct; `None` if that was not requested.
    pub(crate) verified_bytes: Option<u64>,
    /// Packets retransmitted by both ends.
    pub(crate) retransmissions: u64,
    /// Messages of an unreliable service that did not arrive, as far as known.
    pub(crate) lost_messages: u64,
    /// Frames that this end dropped by `--loss-rx` and `--loss-tx`.
    pub(crate) lost: u64,
    /// Packets that this end has handed over between its lcores, and all that it has received.
    pub(crate) handed_over: (u64, u64),
    /// Packets that this end has received, by receive queue.
    pub(crate) received_by_queue: Vec<u64>,
    /// What this end has counted.
    pub(crate) counts: Counts,
}

/// Runs the plan as this node's side. The calling thread drives the lcore.
pub(crate) fn run(
    node: &Node,
    link: &mut Link,
    plan: &Plan,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, BenchError> {
    let result = run_inner(node, link, plan, event);
    result.inspect_err(|error| {
        // Where a queue is silent, this tells why the test has failed.
        if let Some(line) = by_queue(&node.received_by_queue()) {
            eprintln!("{line}");
        }
        link.send_failure(error)
    })
}

/// Before the packets in [`by_queue`]'s line.
pub(crate) const BY_QUEUE: &str = " packets by receive queue: ";

/// Returns the line that tells the packets by receive queue, if there are several queues.
pub(crate) fn by_queue(received: &[u64]) -> Option<String> {
    let counts = || received.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    (received.len() > 1).then(|| BY_QUEUE.to_owned() + &counts())
}

fn run_inner(
    node: &Node,
    link: &mut Link,
    plan: &Plan,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, BenchError> {
    greet(link, plan)?;
    let before = node.retransmissions()?;
    let mut bench = Bench::connect(node, link, plan)?;
    event(Event::Connected(&bench.connected));
    let mtu = bench.connected.mtu;
    let mut outcome = Outcome { mtu, ..Outcome::default() };
    for size in plan.sizes_on(mtu) {
        let row = match measure(&mut bench, size, event) {
            // One end of an endless run has been ended, which ends it for both.
            Err(BenchError::PeerGone) if plan.amount.is_endless() => return Ok(outcome),
            row => row?,
        };
        if let (true, Some(count)) = (plan.verify, plan.amount.iterations()) {
            *outcome.verified_bytes.get_or_insert(0) +=
                count * u64::from(plan.qps) * u64::from(size);
        }
        outcome.lost_messages += bench.messages_lost;
        event(Event::Row(row));
        outcome.rows.push(row);
    }
    outcome.counts = bench.counts();
    let ours = node.retransmissions()? - before;
    outcome.retransmissions = ours.saturating_add(bench.close(ours)?);
    outcome.lost = node.lost()?;
    outcome.handed_over = node.handed_over()?;
    outcome.received_by_queue = node.received_by_queue();
    Ok(outcome)
}

/// Measures one size.
fn measure(
    bench: &mut Bench<'_, Link>,
    size: u32,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Row, BenchError> {
    Ok(match (bench.plan.verify, bench.plan.measure) {
        (true, Measure::Bandwidth) => Row::Bandwidth(verify::run(bench, size)?),
        (false, Measure::Bandwidth) => Row::Bandwidth(bandwidth::run(bench, size, event)?),
        (_, Measure::Latency) => Row::Latency(size, latency::run(bench, size, event)?),
    })
}

/// Exchanges the plans, which must be equal.
fn greet(link: &mut Link, plan: &Plan) -> Result<(), BenchError> {
    link.send(&Word::Hello { version: VERSION, plan: plan.clone() })?;
    match link.receive("waiting for the other end's plan", pause)? {
        Word::Hello { version: VERSION, plan: theirs } => match plan.differences(&theirs) {
            Some(differences) => Err(BenchError::Disagree(differences)),
            None => Ok(()),
        },
        Word::Hello { version, .. } => {
            Err(BenchError::Disagree(format!("exchange version {VERSION} here, {version} there")))
        }
        _ => Err(out_of_step()),
    }
}

fn out_of_step() -> BenchError {
    BenchError::Peer("it sent an unexpected message".to_owned())
}
