//! A session: two ends agree on a plan, connect, run it at each size, and report.
//!
//! ```text
//!   client                             server
//!     Hello(plan) ───────────────────►  the same plan? else both end
//!     Hello(plan) ◄───────────────────
//!     Setup(MTU, QPs, memory) ◄──────►  connect
//!     per size: Ready ◄──────────────►  the test itself, over RDMA
//!     Closing(retransmissions) ◄─────►
//! ```
//!
//! Invariants
//! - Both ends run the same code with the same plan; what differs hangs on
//!   [`Side`](crate::pin::Side).
//! - An end that fails says why before it leaves; an end that is gone is noticed within
//!   milliseconds, a standstill within [`PATIENCE`].
//!
//! Not here: opening devices ([`crate::node`]), printing ([`crate::report`]).

mod bandwidth;
mod lane;
mod latency;
mod stock;
mod verify;
mod watch;

pub(crate) use lane::End;
pub(crate) use stock::run as run_stock;

use crate::error::BenchError;
use crate::exchange::{Link, PATIENCE, pause};
use crate::node::Node;
use crate::plan::{Measure, Plan};
use crate::report::Row;
use crate::stats::{Bandwidth, Quantiles};
use lane::Bench;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Ends of another number don't understand each other.
const VERSION: u32 = 1;

/// What one end says to the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Word {
    /// What is to be done.
    Hello { version: u32, plan: Plan },
    /// What to connect to.
    Setup { mtu: u32, ends: Vec<End> },
    /// Everything is posted; the test may begin.
    Ready,
    /// All of so many messages are completed.
    Finished { messages: u64 },
    /// What this end measured while it verified.
    Sample(Bandwidth),
    /// What this end sent, and how many messages it received.
    Moved { sent: Bandwidth, received: u64 },
    /// The same of a latency test.
    Latency(Quantiles),
    /// Messages `first..first + count` are to be laid out for reading.
    Prepare { first: u64, count: u64 },
    /// Messages `first..first + count` have arrived, or the words have these values: check.
    Check { first: u64, count: u64, words: Vec<u64> },
    /// Prepared, or checked; `fault` says what was wrong.
    Checked { fault: Option<String> },
    /// The end.
    Closing { retransmissions: u64 },
}

/// The other end as the loops that move messages see it.
trait Peer {
    /// Whether an end whose time is over may leave with work requests outstanding, because the
    /// other may have stopped receiving.
    const LEAVES: bool;
    /// After so long without a message none will come, once this end has sent all and it is known
    /// how many the other sends.
    const QUIET: Duration;

    /// Hears that all of this end's messages are completed.
    fn tell_sent(&mut self, messages: u64) -> Result<(), BenchError>;

    /// How many messages it has sent in all, once that is known.
    fn sent(&mut self) -> Result<Option<u64>, BenchError>;
}

impl Peer for Link {
    const LEAVES: bool = false;
    const QUIET: Duration = Duration::from_millis(20);

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

/// What is told while a session runs.
pub(crate) enum Event<'a> {
    /// The ends are connected.
    Connected(&'a Connected),
    /// One size is done.
    Row(Row),
}

/// What connects to what.
#[derive(Clone, Debug)]
pub(crate) struct Connected {
    /// Path MTU, bytes.
    pub(crate) mtu: u32,
    /// READ and ATOMIC requests that the peer takes at a time.
    pub(crate) reads: u8,
    /// Our ends.
    pub(crate) local: Vec<End>,
    /// The peer's.
    pub(crate) remote: Vec<End>,
}

/// What a session came to.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// One for each size.
    pub(crate) rows: Vec<Row>,
    /// Path MTU, bytes.
    pub(crate) mtu: u32,
    /// Payload bytes checked and found right, if that was asked for.
    pub(crate) verified_bytes: Option<u64>,
    /// Packets that both ends sent again.
    pub(crate) retransmissions: u64,
    /// Messages of an unreliable service that did not arrive, as far as this end knows.
    pub(crate) lost_messages: u64,
    /// Packets that this end lost because it was told to.
    pub(crate) lost: u64,
}

/// Runs the plan as this node's side. The caller's thread is the one that drives the lcore.
pub(crate) fn run(
    node: &Node,
    link: &mut Link,
    plan: &Plan,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, BenchError> {
    let result = run_inner(node, link, plan, event);
    result.inspect_err(|error| link.send_failure(error))
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
    let mut rows = Vec::new();
    let (mut verified_bytes, mut lost_messages) = (0, 0);
    for size in plan.sizes_on(mtu) {
        let row = match (plan.verify, plan.measure) {
            (true, Measure::Bandwidth) => Row::Bandwidth(verify::run(&mut bench, size)?),
            (false, Measure::Bandwidth) => Row::Bandwidth(bandwidth::run(&mut bench, size)?),
            (_, Measure::Latency) => Row::Latency(size, latency::run(&mut bench, size)?),
        };
        if let (true, Some(count)) = (plan.verify, plan.amount.iterations()) {
            verified_bytes += count * u64::from(plan.qps) * u64::from(size);
        }
        lost_messages += bench.messages_lost;
        event(Event::Row(row));
        rows.push(row);
    }
    let ours = node.retransmissions()? - before;
    let theirs = bench.close(ours)?;
    Ok(Outcome {
        rows,
        mtu,
        verified_bytes: plan.verify.then_some(verified_bytes),
        retransmissions: ours + theirs,
        lost_messages,
        lost: node.lost()?,
    })
}

/// Both ends must want the same.
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
    BenchError::Peer("it is out of step".to_owned())
}
