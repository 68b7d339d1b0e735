//! Bandwidth: as many messages in flight as the depth allows, from the first post to the last
//! completion.
//!
//! One loop posts as many requests as possible, runs a turn of the lcore, polls completions and
//! posts receive requests again. An end that only serves (WRITE, READ, atomics) runs turns until
//! the other end reports that it has finished.

use super::watch::Watch;
use super::worker::{Bench, Layout, Operands, POLL_BATCH, Way, poll, remote_slot, work_request};
use super::{Peer, Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::perf::measure::{Bandwidth, Timeline};
use crate::perf::plan::{Amount, Operation, Plan};
use crate::pin::Side;
use crate::rendezvous::Link;
use uroce::{
    CompletionQueue, MemoryRegion, MemorySlice, QueuePair, RecvWr, RemoteBuffer, SendWr,
    WorkCompletion,
};
use uroce_engine::clock::Clock;

/// Receive requests posted again at once.
const REPOST: u32 = 32;

/// Largest number of polls per turn. Together they take several times the completions that a turn
/// makes.
const POLLS: usize = 8;

/// Measures one size. Both ends return the client's figures (with `-b`, those of both directions).
pub(super) fn run(bench: &mut Bench<'_, Link>, size: u32) -> Result<Bandwidth, BenchError> {
    let plan = bench.plan;
    let flow = Flow::of(plan, bench.side);
    bench.fill()?;
    if flow.receives {
        bench.post_receives()?;
    }
    bench.start()?;
    // An end that never sends (a server without -b) gets the number from its peer.
    let expected = (bench.side == Side::Client && !plan.bidirectional).then_some(0);
    let done = transfer(bench, size, flow, expected)?;
    exchange_samples(bench, &done)
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
            receives: plan.operation == Operation::Send && (side == Side::Server || both),
        }
    }
}

/// Results of a transfer.
pub(super) struct Transferred {
    /// Messages of this end, from the first post to the last completion.
    pub(super) sent: Bandwidth,
    /// Messages of the other end, from the first received to the last. Only SENDs are counted.
    pub(super) received: Bandwidth,
}

/// Runs the transfer. It ends when this end has sent all its messages, and received as many as the
/// other end has sent: `expected`, or the number that the other end reports.
pub(super) fn transfer<P: Peer>(
    bench: &mut Bench<'_, P>,
    size: u32,
    Flow { sends, receives }: Flow,
    mut expected: Option<u64>,
) -> Result<Transferred, BenchError> {
    let Bench { plan, layout, clock, link, drive, .. } = bench;
    let locals = slices(&bench.regions, |region| region.slice(layout.local(0, size)))?;
    let targets =
        slices(&bench.regions, |region| region.slice(layout.receive(0, plan.size_max())))?;
    let requests = requests(plan, layout, size, &locals, &bench.remotes, &bench.ways)?;
    let mut sender = Sender::new(plan, clock, requests, P::LEAVES);
    let mut receiver = Receiver::new(plan, clock, &targets, &mut bench.receives_posted);
    let passive = !sends && !receives;
    let mut watch = if passive { Watch::patient(*clock) } else { Watch::new(*clock) };
    let mut completions = [WorkCompletion::default(); POLL_BATCH];
    let mut told = !sends;
    let mut has_said = false;
    // Time at which this end had sent all its messages and had the number of the other's.
    let mut ended = None;
    loop {
        if !sender.is_done() && sends {
            sender.post(&mut bench.qps)?;
        }
        if passive {
            drive.wait();
        } else {
            drive.turn();
        }
        if sends {
            sender.complete(&bench.send_cq, &mut completions)?;
            if !told && sender.is_done() {
                link.tell_sent(sender.completed)?;
                told = true;
            }
        }
        if receives {
            receiver.turn(&bench.recv_cq, &mut completions, &mut bench.qps)?;
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
            return Ok(Transferred { sent: sender.sample(size), received: receiver.sample(size) });
        }
    }
}

/// Exchanges the results. The report has the client's figures, or with `-b` the sum of both.
fn exchange_samples(
    bench: &mut Bench<'_, Link>,
    done: &Transferred,
) -> Result<Bandwidth, BenchError> {
    let (plan, ours) = (bench.plan, done.sent);
    bench.link.send(&Word::Moved { sent: ours, received: done.received.messages })?;
    let Word::Moved { sent: theirs, received } =
        bench.hear("waiting for the other end's figures")?
    else {
        return Err(out_of_step());
    };
    let sender = plan.bidirectional || bench.side == Side::Client;
    let asked = plan.is_lossy() && plan.operation == Operation::Send && sender;
    bench.messages_lost = if asked { ours.messages.saturating_sub(received) } else { 0 };
    Ok(match (bench.plan.bidirectional, bench.side) {
        (true, _) => ours.plus(&theirs),
        (false, Side::Client) => ours,
        (false, Side::Server) => theirs,
    })
}

/// Returns the work request of each queue pair.
fn requests<'a>(
    plan: &Plan,
    layout: &Layout,
    size: u32,
    locals: &'a [[MemorySlice<'a>; 1]],
    remotes: &[RemoteBuffer],
    ways: &'a [Way],
) -> Result<Vec<SendWr<'a>>, BenchError> {
    let workers = locals.iter().zip(remotes).enumerate();
    let request = |(worker, (local, remote)): (usize, (&'a _, &RemoteBuffer))| {
        let remote = remote_slot(layout, remote, 0, size)?;
        Ok(work_request(plan, local, remote, ways.get(worker), Operands::default()))
    };
    workers.map(request).collect()
}

/// Returns one slice of each region.
fn slices<'a, E: std::error::Error + Send + Sync + 'static>(
    regions: &'a [MemoryRegion],
    slice: impl Fn(&'a MemoryRegion) -> Result<MemorySlice<'a>, E>,
) -> Result<Vec<[MemorySlice<'a>; 1]>, BenchError> {
    let one = |region| Ok([slice(region).step("a slice of memory")?]);
    regions.iter().map(one).collect()
}

/// Messages posted and completed on a queue pair.
#[derive(Clone, Copy, Default)]
struct Count {
    posted: u64,
    completed: u64,
}

/// The sending part of an end.
struct Sender<'a> {
    plan: &'a Plan,
    /// Number of messages per signaled one.
    moderation: u64,
    clock: Clock,
    /// Work requests, one per queue pair.
    requests: Vec<SendWr<'a>>,
    counts: Vec<Count>,
    /// Queue pairs that may have room, possibly repeated. With many queue pairs, checking all of
    /// them in each round would cost more than the messages of those with room.
    open: Vec<u32>,
    /// Messages on each queue pair. In a run by time it is set when the time is over.
    limit: u64,
    deadline: u64,
    /// The run ends when its time is over, even with requests outstanding.
    leaves: bool,
    left: bool,
    timeline: Timeline,
    completed: u64,
    first_post: u64,
    last_completion: u64,
}

impl<'a> Sender<'a> {
    fn new(plan: &'a Plan, clock: &Clock, requests: Vec<SendWr<'a>>, leaves: bool) -> Self {
        let workers = requests.len();
        let now = clock.now();
        let (limit, deadline) = match plan.amount {
            Amount::Iterations(count) => (count, u64::MAX),
            Amount::Duration(time) => (u64::MAX, now + time.as_nanos() as u64),
        };
        let messages = plan.amount.iterations().map(|count| count * u64::from(plan.qps));
        Self {
            plan,
            moderation: plan.moderation().into(),
            clock: *clock,
            requests,
            counts: vec![Count::default(); workers],
            open: all(workers),
            limit,
            deadline,
            leaves,
            left: false,
            timeline: Timeline::new(messages, !plan.no_peak),
            completed: 0,
            first_post: now,
            last_completion: now,
        }
    }

    #[inline]
    fn is_done(&self) -> bool {
        self.left || self.completed == self.limit.saturating_mul(self.counts.len() as u64)
    }

    /// Posts as many lists on each queue pair as its depth allows.
    #[inline]
    fn post(&mut self, qps: &mut [QueuePair]) -> Result<(), BenchError> {
        let (depth, list) = (u64::from(self.plan.tx_depth), u64::from(self.plan.post_list));
        let mut open = std::mem::take(&mut self.open);
        for worker in open.drain(..) {
            let worker = worker as usize;
            loop {
                let Count { posted, completed } = self.counts[worker];
                let left = self.limit - posted;
                let count = list.min(left);
                if count == 0 || posted - completed + count > depth {
                    break;
                }
                self.post_list(worker, &mut qps[worker], count)?;
            }
        }
        self.open = open;
        Ok(())
    }

    #[inline]
    fn post_list(
        &mut self,
        worker: usize,
        qp: &mut QueuePair,
        count: u64,
    ) -> Result<(), BenchError> {
        let first = self.counts[worker].posted + 1;
        if self.timeline.wanted() {
            self.timeline.post(count, self.clock.now());
        }
        if count == 1 {
            let request = self.request(worker, first);
            qp.post_send(&request).step("posting")?;
        } else {
            let requests = (first..first + count).map(|number| self.request(worker, number));
            qp.post_sends(requests).step("posting")?;
        }
        self.counts[worker].posted += count;
        Ok(())
    }

    /// Returns the worker's message `number`, counted from 1. Its completion completes all messages
    /// before it.
    #[inline]
    fn request(&self, worker: usize, number: u64) -> SendWr<'a> {
        let request = self.requests[worker].id(number << 16 | worker as u64);
        let moderated = number.is_multiple_of(self.moderation);
        if moderated || number == self.limit { request.signaled() } else { request }
    }

    /// Polls completions, and sets the end of the run when its time is over.
    #[inline]
    fn complete(
        &mut self,
        cq: &CompletionQueue,
        completions: &mut [WorkCompletion],
    ) -> Result<(), BenchError> {
        let polled = poll(cq, completions, self.plan.operation)?;
        if !polled.is_empty() {
            let now = self.clock.now();
            for completion in polled {
                let (number, worker) = (completion.wr_id >> 16, completion.wr_id & 0xffff);
                let count = &mut self.counts[worker as usize];
                self.completed += number - count.completed;
                count.completed = number;
                self.open.push(worker as u32);
            }
            self.last_completion = now;
            self.timeline.complete(self.completed, now);
        }
        if self.deadline != u64::MAX && self.clock.now() > self.deadline {
            self.finish();
        }
        Ok(())
    }

    /// Sets the limit to the next number at which each queue pair's message is signaled.
    fn finish(&mut self) {
        self.deadline = u64::MAX;
        self.left = self.leaves;
        let moderation = self.moderation;
        let most = self.counts.iter().map(|count| count.posted).max().unwrap_or(0);
        // All queue pairs go on to the same number, which is signaled in any case.
        self.limit = most.next_multiple_of(moderation).max(moderation);
        // The last list may be shorter, so that queue pairs without room for a full one have room.
        self.open = all(self.counts.len());
    }

    fn sample(&self, size: u32) -> Bandwidth {
        Bandwidth {
            messages: self.completed,
            size: u64::from(size),
            elapsed_ns: self.last_completion - self.first_post,
            peak_rate: self.timeline.peak(),
        }
    }
}

/// Returns the indices of all queue pairs.
fn all(workers: usize) -> Vec<u32> {
    (0..workers as u32).collect()
}

/// The receiving part of an end, for SEND.
struct Receiver<'a> {
    /// Receive requests, one per queue pair.
    requests: Vec<RecvWr<'a>>,
    list: Vec<RecvWr<'a>>,
    /// Number of posted receive requests per queue pair.
    posted: &'a mut [u32],
    depth: u32,
    repost: u32,
    clock: Clock,
    received: u64,
    begin: u64,
    /// Time and number of the first completions polled; `last` is the time of the last ones.
    first: Option<(u64, u64)>,
    last: u64,
}

impl<'a> Receiver<'a> {
    fn new(
        plan: &Plan,
        clock: &Clock,
        targets: &'a [[MemorySlice<'a>; 1]],
        posted: &'a mut [u32],
    ) -> Self {
        let request = |(worker, target): (usize, &'a [_; 1])| RecvWr::new(target).id(worker as u64);
        Self {
            requests: targets.iter().enumerate().map(request).collect(),
            list: Vec::with_capacity(REPOST as usize),
            posted,
            depth: plan.rx_depth,
            repost: REPOST.min(plan.rx_depth.div_ceil(2)),
            clock: *clock,
            received: 0,
            begin: clock.now(),
            first: None,
            last: 0,
        }
    }

    /// Counts received messages and posts their requests again. All completions are polled, because
    /// the requests would run out while their completions wait.
    #[inline]
    fn turn(
        &mut self,
        cq: &CompletionQueue,
        completions: &mut [WorkCompletion],
        qps: &mut [QueuePair],
    ) -> Result<(), BenchError> {
        for _ in 0..POLLS {
            let polled = poll(cq, completions, Operation::Send)?;
            if !polled.is_empty() {
                let count = polled.len() as u64;
                self.last = self.clock.now();
                self.first.get_or_insert((self.last, count));
                self.received += count;
            }
            for completion in polled {
                self.give_back(completion.wr_id as usize, qps)?;
            }
            if polled.len() < POLL_BATCH {
                break;
            }
        }
        Ok(())
    }

    /// Counts a message received on a queue pair, and posts used requests again, several at a time.
    #[inline]
    fn give_back(&mut self, worker: usize, qps: &mut [QueuePair]) -> Result<(), BenchError> {
        self.posted[worker] -= 1;
        let used = self.depth - self.posted[worker];
        if used >= self.repost {
            self.list.clear();
            self.list.resize(used.min(REPOST) as usize, self.requests[worker]);
            qps[worker].post_recvs(&self.list).step("posting receive requests")?;
            self.posted[worker] += self.list.len() as u32;
        }
        Ok(())
    }

    /// Returns all received messages, at the rate of those after the first; if all arrived at once,
    /// at the rate since the beginning.
    fn sample(&self, size: u32) -> Bandwidth {
        let Some((first, at_first)) = self.first else { return Bandwidth::default() };
        let (begin, before) =
            if at_first < self.received { (first, at_first) } else { (self.begin, 0) };
        let measured = (self.received - before) as f64;
        let elapsed = (self.last - begin) as f64 * self.received as f64 / measured;
        Bandwidth {
            messages: self.received,
            size: u64::from(size),
            elapsed_ns: elapsed as u64,
            peak_rate: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Measure;

    #[test]
    fn what_is_received_at_once_took_the_time_since_the_beginning() {
        let plan = Plan::new(Operation::Send, Measure::Bandwidth);
        let mut receiver = Receiver::new(&plan, &Clock::new(), &[], &mut []);
        assert_eq!(receiver.sample(8), Bandwidth::default());
        (receiver.received, receiver.first) = (40, Some((receiver.begin + 5000, 40)));
        receiver.last = receiver.begin + 5000;
        assert_eq!(receiver.sample(8).elapsed_ns, 5000);
        (receiver.received, receiver.last) = (80, receiver.begin + 8000);
        assert_eq!(receiver.sample(8).elapsed_ns, 6000);
    }
}
