//! A session with a perftest program: the transfers of our own sessions in perftest's order of
//! steps.
//!
//! Every swap of keys is also a barrier. `K` is a swap of the first queue pair's key, `K…` one for
//! each queue pair.
//!
//! ```text
//!   bandwidth: K… connect K… K                (SEND: K… connect K K…)
//!     at each size:  [K] transfer [K after, in a sweep] [reports]
//!     WRITE, READ and atomics one way: the server waits in a K for the end of all sizes; reports
//!     SEND: K before each size, and after it in a sweep
//!     -b: K before each size; then reports, except of SEND by time
//!     at the end:    K "done"
//!   latency:   K K… connect K… K              (SEND: K… connect K K…)
//!     SEND: K before each size; the client leads. WRITE: the server leads
//!     at the end:    K "done", but after WRITE the programs just leave
//! ```
//!
//! perftest sends its options only from release 6.30 on, and never the reason of a failure.
//! Therefore both ends must be started with the same options, bytes cannot be verified, and a
//! failure of the other end is seen as a closed connection.

mod setup;

use super::bandwidth::{Transferred, transfer, warm_up};
use super::flow::Flow;
use super::latency::PingPong;
use super::phases::Phases;
use super::worker::{Bench, Workers, largest_mtu};
use super::{Event, Outcome, Peer};
use crate::error::BenchError;
use crate::node::Node;
use crate::perf::measure::{Bandwidth, Latency};
use crate::perf::plan::{Measure, Operation, Plan};
use crate::perf::report::Row;
use crate::pin::Side;
use crate::rendezvous::perftest::{Calling, Key, Report, Talk};
use std::time::{Duration, Instant};

/// Timeout while the other end measures: none. A closed connection is noticed.
const ANY_TIME: Duration = Duration::MAX;
/// Time in which messages arrive that were in flight when the other end had sent all.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// Runs the plan as this node's side. The calling thread drives the lcore.
pub(crate) fn run(
    node: &Node,
    talk: Talk,
    plan: &Plan,
    gbits: bool,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome, BenchError> {
    if plan.verify {
        return Err(BenchError::usage(
            "--verify needs uroce at the other end too: perftest's exchange does not support it",
        ));
    }
    if plan.sizes.len() > 1 && plan.amount.iterations().is_none() {
        return Err(BenchError::usage("perftest does not support -a together with -D"));
    }
    if plan.immediate {
        return Err(BenchError::usage(
            "immediate data need uroce at the other end too: releases of perftest differ in their \
             steps for them",
        ));
    }
    let service = setup::connection_type(plan.service)?;
    let before = node.retransmissions()?;
    let mut stock = Stock { talk, leaves_silently: false, expected: None, called: None };
    let (mtu, cycle) = stock.talk.agree(largest_mtu(node, plan.mtu)?)?;
    let terms = setup::terms(plan, service, mtu, gbits);
    let terms = terms.reads(node.context.attr().max_rd_atomic.into());
    let reads = stock.talk.compare(&terms)?;
    // The program cycles through this much of our memory with shorter messages.
    let mut workers = Workers::create(node, plan, cycle)?;
    let connected = setup::connect(node, &mut stock.talk, plan, mtu, reads, &mut workers)?;
    event(Event::Connected(&connected));
    let key = setup::key(plan, &connected.local[0]);
    let bench = Bench::new(node, &mut stock, plan, workers, connected)?;
    let mut test = Test { bench, key, gbits, rows: Vec::new(), event };
    let ended = match plan.measure {
        Measure::Bandwidth => test.bandwidth(),
        Measure::Latency => test.latency(),
    };
    match ended {
        // One end of an endless run has been ended, which ends it for both.
        Err(BenchError::PeerGone) if plan.amount.is_endless() => (),
        ended => ended?,
    }
    let counts = test.bench.counts();
    let (rows, retransmissions) = (test.rows, node.retransmissions()? - before);
    let lost = node.lost()?;
    Ok(Outcome { rows, mtu, retransmissions, lost, counts, ..Outcome::default() })
}

/// A perftest program, as the other end of a transfer.
struct Stock {
    talk: Talk,
    /// The program ends the test by closing the connection.
    leaves_silently: bool,
    /// Number of messages that it will send, if that is known and none can be lost.
    expected: Option<u64>,
    /// Time at which its next record was first seen.
    called: Option<Instant>,
}

impl Peer for Stock {
    const LEAVES: bool = true;
    const TELLS_RATE: bool = false;
    // It does not report that it has sent all messages, and may be slow.
    const QUIET: Duration = Duration::from_secs(2);

    /// It waits without a limit.
    fn tell_busy(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    fn tell_sent(&mut self, _messages: u64) -> Result<(), BenchError> {
        Ok(())
    }

    fn sent(&mut self) -> Result<Option<u64>, BenchError> {
        match self.talk.calling()? {
            Calling::Left if !self.leaves_silently => Err(BenchError::PeerGone),
            Calling::Left => Ok(Some(0)),
            _ if self.expected.is_some() => Ok(self.expected),
            Calling::No => Ok(None),
            Calling::Yes => {
                let called = *self.called.get_or_insert_with(Instant::now);
                Ok((called.elapsed() > UNDER_WAY).then_some(0))
            }
        }
    }
}

/// A test at one end.
struct Test<'a, 'e> {
    bench: Bench<'a, Stock>,
    /// Key of the first queue pair.
    key: Key,
    /// Bandwidths in reports are in Gb/s, else in MiB/s.
    gbits: bool,
    rows: Vec<Row>,
    event: &'e mut dyn FnMut(Event<'_>),
}

impl Test<'_, '_> {
    fn bandwidth(&mut self) -> Result<(), BenchError> {
        let (plan, flow) = (self.bench.plan, Flow::of(self.bench.plan, self.bench.side));
        self.bench.memory.fill_all(0xa5)?;
        let one_sided = plan.operation != Operation::Send;
        let one_way = one_sided && !plan.bidirectional;
        if flow.sends || flow.receives {
            for size in plan.sizes_on(self.bench.connected.mtu) {
                let row = self.transfer(size, flow)?;
                self.row(row);
            }
        }
        if one_way {
            self.await_transfers()?;
            let last = self.rows.last().copied();
            let theirs = self.swap_reports(last)?;
            if self.bench.side == Side::Server {
                self.row(Row::Bandwidth(theirs));
            }
        }
        self.close()
    }

    /// Transfers the messages of one size.
    fn transfer(&mut self, size: u32, flow: Flow) -> Result<Row, BenchError> {
        let plan = self.bench.plan;
        let (send, both) = (plan.operation == Operation::Send, plan.bidirectional);
        let (sweep, timed) = (plan.sizes.len() > 1, plan.amount.iterations().is_none());
        if flow.receives {
            self.bench.post_receives()?;
        }
        if send || both {
            self.barrier()?;
        }
        let workers = u64::from(plan.qps);
        // With one direction, the other end's next record is the reliable sign that it has sent
        // all.
        let count = plan.amount.iterations().filter(|_| both || !plan.is_lossy());
        self.bench.link.expected = count.map(|count| count * workers);
        // In a run by time with both directions, the other end stops at the same time.
        let known = !flow.receives || (timed && flow.sends);
        if plan.local.warm_up && flow.sends {
            warm_up(&mut self.bench, size)?;
        }
        let known = known.then_some(0);
        let done = transfer(&mut self.bench, size, flow, known, self.event)?;
        let Transferred { sent, received, .. } = done;
        if both && sweep && !send {
            self.barrier()?;
        }
        let mut sample = if flow.sends { sent } else { received };
        if both && !(send && timed) {
            let theirs = self.swap_reports(Some(Row::Bandwidth(sample)))?;
            (self.event)(Event::Directions([sample, theirs]));
            sample = sample.plus(&theirs);
        }
        if send && sweep {
            self.barrier()?;
        }
        Ok(Row::Bandwidth(sample))
    }

    fn latency(&mut self) -> Result<(), BenchError> {
        let plan = self.bench.plan;
        self.bench.link.leaves_silently = plan.operation == Operation::Write;
        // Fresh memory is zero. Clearing it now is too late, because the other end may have begun.
        let answered = plan.operation.is_answered_by_stack();
        if !(answered && self.bench.side == Side::Server) {
            for size in plan.sizes_on(self.bench.connected.mtu) {
                let row = self.round_trips(size)?;
                self.row(row);
            }
        }
        if plan.operation != Operation::Write {
            return self.close();
        }
        // The last acknowledgement must have been sent before this end stops.
        if self.bench.side == Side::Server {
            let Bench { link, drive, .. } = &mut self.bench;
            link.talk.await_end(|| drive.turn());
        }
        Ok(())
    }

    /// Measures the round trips of one size.
    fn round_trips(&mut self, size: u32) -> Result<Row, BenchError> {
        let plan = self.bench.plan;
        if plan.operation == Operation::Send {
            self.bench.post_receives()?;
            self.barrier()?;
        }
        let leader = match plan.operation {
            Operation::Write => Side::Server,
            _ => Side::Client,
        };
        let (leads, asks) = (self.bench.side == leader, plan.operation.is_answered_by_stack());
        let mut end = PingPong::new(&mut self.bench, size, self.event);
        let (latency, parts) = match (asks, leads) {
            (true, _) => (end.ask()?.1, 1.0),
            (false, true) => (end.lead()?.1, 2.0),
            (false, false) => {
                let mut latency = Latency::keeping(plan.local.keep);
                end.follow(plan.amount.iterations().unwrap_or(u64::MAX), Some(&mut latency))?;
                (latency, 2.0)
            }
        };
        // In a run by time, the other end may stop before it acknowledges.
        if plan.amount.iterations().is_some() {
            end.settle()?;
        }
        Ok(Row::Latency(size, end.figures(&latency, parts)))
    }

    fn row(&mut self, row: Row) {
        (self.event)(Event::Row(row));
        self.rows.push(row);
    }

    /// Waits until the other end has reached the same point.
    fn barrier(&mut self) -> Result<(), BenchError> {
        let Bench { link, drive, .. } = &mut self.bench;
        link.called = None;
        link.talk.swap_key(&self.key, ANY_TIME, || drive.turn()).map(|_| ())
    }

    /// Waits for the end of the transfers of one direction. Here the server's stack answers.
    fn await_transfers(&mut self) -> Result<(), BenchError> {
        if self.bench.side == Side::Client {
            return self.barrier();
        }
        let (Bench { link, drive, clock, plan, .. }, event) = (&mut self.bench, &mut self.event);
        let mut phases = Phases::new(plan, clock.now());
        link.talk.swap_key(&self.key, ANY_TIME, || {
            drive.turn();
            if phases.are_due() {
                phases.note(clock.now(), *event);
            }
        })?;
        phases.finish(*event);
        Ok(())
    }

    /// Swaps the figures with the other end.
    fn swap_reports(&mut self, ours: Option<Row>) -> Result<Bandwidth, BenchError> {
        let unit = if self.gbits { 1e9 / 8.0 } else { f64::from(1 << 20) };
        let ours = match ours {
            Some(Row::Bandwidth(row)) => Report {
                size: row.size,
                messages: row.messages,
                peak: row.peak_bytes_per_second() / unit,
                average: row.bytes_per_second() / unit,
                rate: row.messages_per_second() / 1e6,
            },
            _ => Report::default(),
        };
        let Bench { link, drive, .. } = &mut self.bench;
        let theirs = link.talk.swap_report(&ours, || drive.turn())?;
        let seconds = theirs.messages as f64 / (theirs.rate * 1e6).max(f64::MIN_POSITIVE);
        let messages_at_peak = theirs.peak * unit / theirs.size.max(1) as f64;
        Ok(Bandwidth {
            messages: theirs.messages,
            size: theirs.size,
            elapsed_ns: (seconds * 1e9) as u64,
            peak_rate: messages_at_peak / 1e9,
        })
    }

    fn close(&mut self) -> Result<(), BenchError> {
        self.barrier()?;
        let Bench { link, drive, .. } = &mut self.bench;
        link.talk.farewell(|| drive.turn())
    }
}
