//! Bandwidth: as many messages in flight as the depth allows, from the first post to the last
//! completion.
//!
//! One loop posts as many requests as possible, runs a turn of the lcore, polls completions and
//! posts receive requests again. An end that only serves (WRITE, READ, atomics) runs turns until
//! the other end reports that it has finished.

use super::receiver::Receiver;
use super::request::{Operands, remote_slot, work_request};
use super::sender::Sender;
use super::watch::Watch;
use super::worker::{Bench, POLL_BATCH};
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

/// Pause of an end that only serves, while its lcore has a thread of its own and this one sleeps
/// on events.
const SERVING: Duration = Duration::from_micros(200);

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

/// Work requests that an end posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    /// The end posts send requests.
    pub(super) sends: bool,
    /// The end posts receive requests.
    pub(super) receives: bool,
}

impl Flow {
    /// Returns the flow of an end of a bandwidth test.
    pub(super) fn of(plan: &Plan, side: Side) -> Self {
        let both = plan.bidirectional;
        Self {
            sends: side == Side::Client || both,
            receives: plan.takes_receives() && (side == Side::Server || both),
        }
    }
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
        let request = work_request(&plan, &local, remote, None, Operands::default()).signaled();
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
    Flow { sends, receives }: Flow,
    mut expected: Option<u64>,
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
    let posted = &mut bench.receives_posted;
    let mut receiver = Receiver::new(plan, clock, &targets, bench.srq.clone(), posted);
    let passive = !sends && !receives;
    let mut watch = if passive { Watch::patient(*clock) } else { Watch::new(*clock) };
    let mut completions = [WorkCompletion::default(); POLL_BATCH];
    let mut told = !sends;
    let mut has_said = false;
    // Time at which this end had sent all its messages and had the number of the other's.
    let mut ended = None;
    let mut marks = Marks::new(plan, clock.now());
    loop {
        if !sender.is_done() && sends {
            sender.post(&mut bench.qps)?;
        }
        match (passive, &rest) {
            (false, None) => drive.turn(),
            (true, None) => drive.wait(),
            (true, Some(_)) => std::thread::sleep(SERVING),
            (false, Some(_)) => (),
        }
        let mut found = passive;
        if sends {
            found |= sender.complete(&bench.send_cq, &mut completions)?;
            if !told && sender.is_done() {
                link.tell_sent(sender.completed)?;
                told = true;
            }
        }
        if receives {
            found |= receiver.turn(&bench.recv_cq, &mut completions, &mut bench.qps)?;
        }
        if let (Some(rest), false) = (rest.as_mut(), found) {
            rest.idle([&bench.send_cq, &bench.recv_cq])?;
            watch.hurry();
        }
        if marks.are_wanted {
            let (window, total) = if sends {
                (&mut sender.window, sender.completed)
            } else {
                (&mut receiver.window, receiver.received)
            };
            let now = clock.now();
            if marks.begins(passive || window.has_begun()) {
                event(Event::Begin);
            }
            if marks.ends(window.is_over(now)) {
                event(Event::End);
            }
            if marks.is_lap(now) && !passive {
                event(Event::Lap(Row::Bandwidth(window.lap(now, total, size))));
            }
        }
        // A message after the number of sent ones belongs to the next step.
        let look = || if has_said { Ok(None) } else { link.sent() };
        if let Some(messages) = watch.turn(sender.completed + receiver.received, look)? {
            expected = Some(messages);
            has_said = true;
        }
        if told && expected.is_some() && ended.is_none() {
            ended = Some(clock.now());
        }
        let quiet = |end: u64| clock.now() - end.max(receiver.last) > P::QUIET.as_nanos() as u64;
        let given_up = plan.is_lossy() && ended.is_some_and(quiet);
        let received_all = |count: u64| !receives || receiver.received >= count || given_up;
        if told && expected.is_some_and(received_all) {
            break;
        }
    }
    if marks.are_wanted && marks.ends(true) {
        event(Event::End);
    }
    let totals = (sender.completed, receiver.received);
    Ok(Transferred { sent: sender.sample(size), received: receiver.sample(size), totals })
}

/// Moments of a run by time that are reported while it runs.
struct Marks {
    /// The run is by time. Others are short, and their loop does not read the clock.
    are_wanted: bool,
    begun: bool,
    ended: bool,
    lap: Option<(u64, u64)>,
}

impl Marks {
    fn new(plan: &Plan, now: u64) -> Self {
        let lap = match plan.amount {
            Amount::Endless(interval) => {
                let interval = interval.as_nanos() as u64;
                Some((now + interval, interval))
            }
            _ => None,
        };
        let are_wanted = plan.amount.iterations().is_none();
        Self { are_wanted, begun: false, ended: false, lap }
    }

    /// Returns once whether the measurement has begun.
    fn begins(&mut self, has_begun: bool) -> bool {
        has_begun && !std::mem::replace(&mut self.begun, true)
    }

    /// Returns once whether the measurement is over.
    fn ends(&mut self, is_over: bool) -> bool {
        is_over && !std::mem::replace(&mut self.ended, true)
    }

    /// Returns whether a row of an endless run is due.
    fn is_lap(&mut self, now: u64) -> bool {
        match &mut self.lap {
            Some((next, interval)) if now >= *next => {
                *next += *interval;
                true
            }
            _ => false,
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
