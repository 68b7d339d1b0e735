//! The receiving part of an end of a bandwidth test of SEND, or of WRITE with immediate data.

use super::qp::Qp;
use super::receives::Receives;
use super::request::{POLL_BATCH, poll};
use super::window::Window;
use crate::error::BenchError;
use crate::perf::measure::Bandwidth;
use crate::perf::plan::Plan;
use uroce::{CompletionQueue, MemorySlice, RecvWr, WorkCompletion};
use uroce_engine::clock::Clock;

/// Largest number of polls per turn. Together they take several times the completions that a turn
/// makes.
const POLLS: usize = 8;

/// Counts received messages and posts their requests again.
pub(super) struct Receiver<'a> {
    plan: &'a Plan,
    /// Receive requests, one per queue.
    requests: Vec<RecvWr<'a>>,
    list: Vec<RecvWr<'a>>,
    receives: &'a mut Receives,
    /// Number of used requests at which some are posted again, and the number of those.
    repost: u32,
    most: u32,
    clock: Clock,
    pub(super) received: u64,
    begin: u64,
    /// Time and number of the first completions polled; `last` is the time of the last ones.
    first: Option<(u64, u64)>,
    pub(super) last: u64,
    pub(super) window: Window,
}

impl<'a> Receiver<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        clock: &Clock,
        targets: &'a [[MemorySlice<'a>; 1]],
        receives: &'a mut Receives,
    ) -> Self {
        let request = |(queue, target): (usize, &'a [_; 1])| RecvWr::new(target).id(queue as u64);
        let most = plan.receive_list();
        // Without a choice, a queue is filled again before it is empty.
        let repost = plan.local.receive_list.unwrap_or(most.min(plan.rx_depth.div_ceil(2)));
        let begin = clock.now();
        Self {
            plan,
            requests: targets.iter().take(receives.queues()).enumerate().map(request).collect(),
            list: Vec::with_capacity(most as usize),
            receives,
            repost,
            most,
            clock: *clock,
            received: 0,
            begin,
            first: None,
            last: 0,
            window: Window::new(plan, begin),
        }
    }

    /// Counts received messages and posts their requests again. All completions are polled, because
    /// the requests would run out while their completions wait. Returns whether there were any.
    #[inline]
    pub(super) fn turn(
        &mut self,
        cq: &CompletionQueue,
        completions: &mut [WorkCompletion],
        qps: &mut [Qp],
    ) -> Result<bool, BenchError> {
        let before = self.received;
        for _ in 0..POLLS {
            let polled = poll(cq, completions, self.plan.operation)?;
            if !polled.is_empty() {
                let count = polled.len() as u64;
                self.last = self.clock.now();
                self.first.get_or_insert((self.last, count));
                self.received += count;
                self.window.note(self.last, self.received);
            }
            for completion in polled {
                self.give_back(completion.wr_id as usize, qps)?;
            }
            if polled.len() < POLL_BATCH {
                break;
            }
        }
        Ok(self.received > before)
    }

    /// Counts a used request of a queue, and posts used requests again, several at a time.
    #[inline]
    fn give_back(&mut self, queue: usize, qps: &mut [Qp]) -> Result<(), BenchError> {
        self.receives.take(queue);
        let used = self.receives.room(queue);
        if used >= self.repost {
            self.list.clear();
            self.list.resize(used.min(self.most) as usize, self.requests[queue]);
            self.receives.post(queue, qps, &self.list)?;
        }
        Ok(())
    }

    /// Returns the messages within the margins, or without margins all received messages, at the
    /// rate of those after the first; if all arrived at once, at the rate since the beginning.
    pub(super) fn sample(&self, size: u32) -> Bandwidth {
        if !self.plan.local.margin.is_zero() {
            return self.window.sample(size);
        }
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
    use crate::perf::plan::{Measure, Operation};

    #[test]
    fn what_is_received_at_once_took_the_time_since_the_beginning() {
        let plan = Plan::new(Operation::Send, Measure::Bandwidth);
        let mut none = Receives::new(None, 0, 0);
        let mut receiver = Receiver::new(&plan, &Clock::new(), &[], &mut none);
        assert_eq!(receiver.sample(8), Bandwidth::default());
        (receiver.received, receiver.first) = (40, Some((receiver.begin + 5000, 40)));
        receiver.last = receiver.begin + 5000;
        assert_eq!(receiver.sample(8).elapsed_ns, 5000);
        (receiver.received, receiver.last) = (80, receiver.begin + 8000);
        assert_eq!(receiver.sample(8).elapsed_ns, 6000);
    }
}
