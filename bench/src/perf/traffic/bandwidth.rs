//! Bandwidth: as many messages in flight as the depth allows, from the first post to the last
//! completion.
//!
//! One loop posts as many requests as possible, runs a turn of the lcore, polls completions and
//! posts receive requests again. An end that only serves (WRITE, READ, atomics) runs turns until
//! the other end reports that it has finished.

use super::flow::Flow;
use super::phases::Phases;
use super::receiver::Receiver;
use super::request::{Operands, POLL_BATCH, remote_slot, work_request};
use super::rest::serve;
use super::sender::Sender;
use super::watch::Watch;
use super::worker::Bench;
use super::{Event, Peer, Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::perf::measure::Bandwidth;
use crate::perf::plan::{Amount, Plan};
use crate::perf::report::Row;
use crate::pin::Side;
use crate::rendezvous::Link;
use std::ops::Range;
use std::time::Duration;
use uroce::{MemorySlice, WorkCompletion};
use uroce_engine::clock::Clock;

/// Measures one size. Both ends return the client's figures (with `-b`, those of both directions).
pub(super) fn run(
    bench: &mut Bench<'_, Link>,
    size: u32,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Bandwidth, BenchError> {
    let plan = bench.plan;
    let flow = Flow::of(plan, bench.side);
    bench.memory.fill_all(0xa5)?;
    if flow.receives {
        bench.post_receives()?;
    }
    // The other end may warm up, whether this one does or not.
    bench.barrier()?;
    if plan.local.warm_up && flow.sends {
        warm_up(bench, size)?;
    }
    bench.start()?;
    // An end that never sends (a server without -b) gets the number from its peer.
    let expected = (bench.side == Side::Client && !plan.bidirectional).then_some(0);
    let done = transfer(bench, size, flow, expected, event)?;
    exchange_samples(bench, &done, event)
}

/// Results of a transfer.
pub(super) struct Transferred {
    /// Measured messages of this end.
    pub(super) sent: Bandwidth,
    /// Measured messages of the other end. Only those that take receive requests are counted.
    pub(super) received: Bandwidth,
    /// All messages of this end, and all of the other.
    totals: (u64, u64),
}

/// Posts and completes `-t` messages on each queue pair. They have no immediate data, so that they
/// take no receive requests.
pub(super) fn warm_up<P: Peer>(bench: &mut Bench<'_, P>, size: u32) -> Result<(), BenchError> {
    let plan = Plan { immediate: false, ..bench.plan.clone() };
    for worker in 0..bench.qps.len() {
        let local = [bench.memory.slice(worker, bench.layout.local(0, size))?];
        let remote = remote_slot(&bench.layout, &bench.remotes[worker], 0, size)?;
        let way = bench.ways.get(worker);
        let request = work_request(&plan, &local, remote, way, Operands::default()).signaled();
        for _ in 0..plan.tx_depth {
            bench.qps[worker].post_send(&request).step("posting")?;
        }
    }
    bench.await_sends(u64::from(plan.tx_depth) * bench.qps.len() as u64)
}

/// Runs the transfer. It ends when this end has sent all its messages, and received as many as the
/// other end has sent: `expected`, or the number that the other end reports.
pub(super) fn transfer<P: Peer>(
    bench: &mut Bench<'_, P>,
    size: u32,
    flow: Flow,
    expected: Option<u64>,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Transferred, BenchError> {
    let Bench { plan, layout, clock, link, drive, rest, .. } = bench;
    let workers = bench.qps.len();
    let slices = |range: Range<usize>| -> Result<Vec<[MemorySlice<'_>; 1]>, BenchError> {
        (0..workers).map(|worker| Ok([bench.memory.slice(worker, range.clone())?])).collect()
    };
    let locals = slices(layout.local(0, size))?;
    let targets = slices(layout.receive(0, plan.size_max()))?;
    let request = |worker: usize| {
        let remote = remote_slot(layout, &bench.remotes[worker], 0, size)?;
        let operands = Operands { immediate: worker as u32, ..Operands::default() };
        Ok(work_request(plan, &locals[worker], remote, bench.ways.get(worker), operands))
    };
    let requests = (0..workers).map(request).collect::<Result<_, BenchError>>()?;
    let mut sender = Sender::new(plan, clock, requests, size, P::LEAVES);
    let mut receiver = Receiver::new(plan, clock, &targets, &mut bench.receives);
    let passive = flow.is_passive();
    let mut watch = watch::<P>(flow, *clock, bench.patience);
    let mut completions = [WorkCompletion::default(); POLL_BATCH];
    let mut ending = Ending { told: !flow.sends, expected, has_said: false, since: None };
    let mut marks = Marks::new(plan, flow, clock.now());
    loop {
        if flow.sends && !sender.is_done() {
            sender.post(&mut bench.qps)?;
        }
        if passive {
            serve(drive, rest.is_some(), &mut watch);
        } else if rest.is_none() {
            drive.turn();
        }
        let mut found = passive;
        if flow.sends {
            found |= sender.complete(&bench.send_cq, &mut completions)?;
            if !ending.told && sender.is_done() {
                link.tell_sent(sender.completed)?;
                ending.told = true;
                watch.has_sent(flow.receives);
            }
        }
        if flow.receives {
            found |= receiver.turn(&bench.recv_cq, &mut completions, &mut bench.qps)?;
        }
        if let (Some(rest), false) = (rest.as_mut(), found) {
            rest.idle([&bench.send_cq, &bench.recv_cq])?;
            watch.hurry();
        }
        if marks.are_due() {
            marks.note(clock.now(), &mut sender, &mut receiver, size, event);
        }
        // A message after the number of sent ones belongs to the next step.
        let look = || if ending.has_said { Ok(None) } else { link.sent() };
        if let Some(messages) = watch.turn(sender.completed + receiver.received, look)? {
            (ending.expected, ending.has_said) = (Some(messages), true);
        }
        if ending.is_over::<P>(plan, flow, clock, &receiver) {
            break;
        }
    }
    marks.phases.finish(event);
    let totals = (sender.completed, receiver.received);
    Ok(Transferred { sent: sender.sample(size), received: receiver.sample(size), totals })
}

/// Returns the watch over a transfer. An end that sends nothing goes by what the other says of its
/// rate, if that says anything.
fn watch<P: Peer>(flow: Flow, clock: Clock, patience: Duration) -> Watch {
    if !flow.is_passive() && (flow.sends || P::TELLS_RATE) {
        Watch::new(clock, patience)
    } else {
        Watch::patient(clock)
    }
}

/// What a transfer waits for at its end.
struct Ending {
    /// The other end has this end's number of messages.
    told: bool,
    /// The number of messages of the other end.
    expected: Option<u64>,
    /// The other end has reported that number.
    has_said: bool,
    /// Time at which this end had sent all its messages and had the number of the other's.
    since: Option<u64>,
}

impl Ending {
    /// Tells whether the transfer is over. Messages of an unreliable service are given up after a
    /// quiet time.
    #[inline]
    fn is_over<P: Peer>(
        &mut self,
        plan: &Plan,
        flow: Flow,
        clock: &Clock,
        receiver: &Receiver<'_>,
    ) -> bool {
        let Some(expected) = self.expected.filter(|_| self.told) else { return false };
        let since = *self.since.get_or_insert_with(|| clock.now());
        if !flow.receives || receiver.received >= expected {
            return true;
        }
        let quiet = clock.now() - since.max(receiver.last);
        plan.is_lossy() && quiet > P::QUIET.as_nanos() as u64
    }
}

/// What is reported while a run by time goes on.
struct Marks {
    phases: Phases,
    /// Sent messages are counted, else received ones.
    sends: bool,
    /// Time of the next row of an endless run, and the time between two.
    lap: Option<(u64, u64)>,
}

impl Marks {
    fn new(plan: &Plan, flow: Flow, now: u64) -> Self {
        let interval = plan.local.interval.as_nanos() as u64;
        let laps = plan.amount == Amount::Endless && !flow.is_passive();
        let lap = laps.then_some((now + interval, interval));
        Self { phases: Phases::new(plan, now), sends: flow.sends, lap }
    }

    /// Tells whether there is something to report. If not, the loop does not read the clock for it.
    #[inline]
    fn are_due(&self) -> bool {
        self.lap.is_some() || self.phases.are_due()
    }

    /// Reports what has come since the last call.
    fn note(
        &mut self,
        now: u64,
        sender: &mut Sender<'_>,
        receiver: &mut Receiver<'_>,
        size: u32,
        event: &mut dyn FnMut(Event<'_>),
    ) {
        self.phases.note(now, event);
        if let Some((next, interval)) = &mut self.lap
            && now >= *next
        {
            // A stall of several intervals is one long lap.
            *next += *interval * ((now - *next) / *interval + 1);
            let (window, total) = match self.sends {
                true => (&mut sender.window, sender.completed),
                false => (&mut receiver.window, receiver.received),
            };
            event(Event::Lap(Row::Bandwidth(window.lap(now, total, size))));
        }
    }
}

/// Exchanges the results. The report has the client's figures, or with `-b` the sum of both.
fn exchange_samples(
    bench: &mut Bench<'_, Link>,
    done: &Transferred,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Bandwidth, BenchError> {
    let (plan, ours) = (bench.plan, done.sent);
    let (sent, received) = done.totals;
    bench.link.send(&Word::Moved { sent: ours, received })?;
    let Word::Moved { sent: theirs, received } =
        bench.hear("waiting for the other end's figures")?
    else {
        return Err(out_of_step());
    };
    let sender = plan.bidirectional || bench.side == Side::Client;
    let asked = plan.is_lossy() && plan.takes_receives() && sender;
    bench.messages_lost = if asked { sent.saturating_sub(received) } else { 0 };
    Ok(match (bench.plan.bidirectional, bench.side) {
        (true, _) => {
            event(Event::Directions([ours, theirs]));
            ours.plus(&theirs)
        }
        (false, Side::Client) => ours,
        (false, Side::Server) => theirs,
    })
}
