//! The sending part of an end of a bandwidth test.

use super::qp::Qp;
use super::request::poll;
use super::window::Window;
use crate::error::{BenchError, Step};
use crate::perf::measure::{Bandwidth, Timeline};
use crate::perf::plan::{Plan, Span};
use uroce::{CompletionQueue, SendWr, WorkCompletion};
use uroce_engine::clock::Clock;

/// Messages posted and completed on a queue pair.
#[derive(Clone, Copy, Default)]
struct Count {
    posted: u64,
    completed: u64,
}

/// State of a limit by bursts.
struct Bursts {
    period: u64,
    burst: u64,
    /// Messages that this burst still has.
    left: u64,
    /// Time of the next burst.
    next: u64,
    /// Queue pair that is asked first for the next message.
    turn: usize,
}

/// Posts send requests and counts their completions.
pub(super) struct Sender<'a> {
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
    bursts: Option<Bursts>,
    /// The last message of each list is signaled, as the end of a burst may be far from the next
    /// one that moderation signals.
    signals_lists: bool,
    /// Messages on each queue pair. In a run by time it is set when the time is over.
    limit: u64,
    deadline: u64,
    /// The run ends when its time is over, even with requests outstanding.
    leaves: bool,
    left: bool,
    timeline: Timeline,
    pub(super) completed: u64,
    pub(super) window: Window,
}

impl<'a> Sender<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        clock: &Clock,
        requests: Vec<SendWr<'a>>,
        size: u32,
        leaves: bool,
    ) -> Self {
        let workers = requests.len();
        let now = clock.now();
        let messages = plan.amount.iterations().map(|count| count * u64::from(plan.qps));
        let bursts = plan.local.pace.map(|pace| Bursts {
            period: pace.period_ns(size),
            burst: pace.burst.into(),
            left: 0,
            next: now,
            turn: 0,
        });
        Self {
            plan,
            moderation: plan.moderation().into(),
            clock: *clock,
            requests,
            counts: vec![Count::default(); workers],
            open: all(workers),
            signals_lists: bursts.is_some(),
            bursts,
            limit: plan.amount.iterations().unwrap_or(u64::MAX),
            deadline: Span::of(plan, now).deadline,
            leaves,
            left: false,
            timeline: Timeline::new(messages, !plan.no_peak),
            completed: 0,
            window: Window::new(plan, now),
        }
    }

    #[inline]
    pub(super) fn is_done(&self) -> bool {
        self.left || self.completed == self.limit.saturating_mul(self.counts.len() as u64)
    }

    /// Posts as many lists on each queue pair as its depth and the limit of the rate allow.
    #[inline]
    pub(super) fn post(&mut self, qps: &mut [Qp]) -> Result<(), BenchError> {
        if let Some(bursts) = self.bursts.take() {
            return self.post_bursts(bursts, qps);
        }
        let list = u64::from(self.plan.post_list);
        let mut open = std::mem::take(&mut self.open);
        for worker in open.drain(..) {
            let worker = worker as usize;
            loop {
                let count = self.room(worker, list);
                if count == 0 {
                    break;
                }
                self.post_list(worker, &mut qps[worker], count)?;
            }
        }
        self.open = open;
        Ok(())
    }

    /// Returns the length of the next list of a queue pair, 0 if its depth has no room for it.
    #[inline]
    fn room(&self, worker: usize, list: u64) -> u64 {
        let Count { posted, completed } = self.counts[worker];
        let count = list.min(self.limit - posted);
        if posted - completed + count > u64::from(self.plan.tx_depth) { 0 } else { count }
    }

    /// Posts what is due of the bursts, by one list of each queue pair in turn.
    fn post_bursts(&mut self, mut bursts: Bursts, qps: &mut [Qp]) -> Result<(), BenchError> {
        let list = u64::from(self.plan.post_list);
        // Completions of a sender without bursts name the queue pairs to look at.
        self.open.clear();
        let mut full = 0;
        while full < qps.len() {
            if bursts.left == 0 {
                let now = self.clock.now();
                if now < bursts.next {
                    break;
                }
                // A sender that is late does not make up for more than one burst.
                bursts.next = bursts.next.saturating_add(bursts.period).max(now);
                bursts.left = bursts.burst;
            }
            let worker = bursts.turn;
            bursts.turn = (worker + 1) % qps.len();
            let count = self.room(worker, list.min(bursts.left));
            if count == 0 {
                full += 1;
                continue;
            }
            full = 0;
            self.post_list(worker, &mut qps[worker], count)?;
            bursts.left -= count;
        }
        self.bursts = Some(bursts);
        Ok(())
    }

    #[inline]
    fn post_list(&mut self, worker: usize, qp: &mut Qp, count: u64) -> Result<(), BenchError> {
        let first = self.counts[worker].posted + 1;
        let last = first + count - 1;
        if self.timeline.wanted() {
            self.timeline.post(count, self.clock.now());
        }
        if count == 1 {
            let request = self.request(worker, first, last);
            qp.post_send(&request).step("posting")?;
        } else {
            let requests = (first..=last).map(|number| self.request(worker, number, last));
            qp.post_sends(requests).step("posting")?;
        }
        self.counts[worker].posted += count;
        Ok(())
    }

    /// Returns the worker's message `number`, counted from 1, of a list that ends with `last`. Its
    /// completion completes all messages before it.
    #[inline]
    fn request(&self, worker: usize, number: u64, last: u64) -> SendWr<'a> {
        let request = self.requests[worker].id(number << 16 | worker as u64);
        let is_signaled = number.is_multiple_of(self.moderation)
            || number == self.limit
            || (self.signals_lists && number == last);
        if is_signaled { request.signaled() } else { request }
    }

    /// Polls completions, and sets the end of the run when its time is over. Returns whether there
    /// were any.
    #[inline]
    pub(super) fn complete(
        &mut self,
        cq: &CompletionQueue,
        completions: &mut [WorkCompletion],
    ) -> Result<bool, BenchError> {
        let polled = poll(cq, completions, self.plan.operation)?;
        let found = !polled.is_empty();
        if found {
            let now = self.clock.now();
            for completion in polled {
                let (number, worker) = (completion.wr_id >> 16, completion.wr_id & 0xffff);
                let count = &mut self.counts[worker as usize];
                self.completed += number - count.completed;
                count.completed = number;
                self.open.push(worker as u32);
            }
            self.window.note(now, self.completed);
            self.timeline.complete(self.completed, now);
        }
        if self.deadline != u64::MAX && self.clock.now() > self.deadline {
            self.finish();
        }
        Ok(found)
    }

    /// Sets the limit to the next number at which each queue pair's message is signaled.
    fn finish(&mut self) {
        self.deadline = u64::MAX;
        self.left = self.leaves;
        let moderation = self.moderation;
        let most = self.counts.iter().map(|count| count.posted).max().unwrap_or(0);
        // All queue pairs go on to the same number, which is signaled in any case.
        self.limit = match self.signals_lists {
            true => most.max(1),
            false => most.next_multiple_of(moderation).max(moderation),
        };
        // The last list may be shorter, so that queue pairs without room for a full one have room.
        self.open = all(self.counts.len());
    }

    pub(super) fn sample(&self, size: u32) -> Bandwidth {
        Bandwidth { peak_rate: self.timeline.peak(), ..self.window.sample(size) }
    }
}

/// Returns the indices of all queue pairs.
fn all(workers: usize) -> Vec<u32> {
    (0..workers as u32).collect()
}
