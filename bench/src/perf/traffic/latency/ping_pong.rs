//! The messages of a latency test at one end: to and fro, or requests that the stack answers.
//!
//! The receiver of a WRITE polls the last byte of its memory, which has a count.

use super::super::phases::Phases;
use super::super::request::{Operands, POLL_BATCH, poll, remote_slot, work_request};
use super::super::verify::{Algebra, check_at};
use super::super::watch::Watch;
use super::super::worker::{Bench, LATENCY_DEPTH};
use super::super::{Event, Peer};
use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use crate::perf::measure::{Latency, Quantiles};
use crate::perf::plan::{Operation, Plan};
use crate::pin::Side;
use uroce::{ImmDt, WorkCompletion};

/// Posts per completion, so that places in the send queue become free.
const SIGNAL: u64 = 32;

/// Returns the patterns of an end's sent and received messages.
pub(super) fn patterns(side: Side) -> [Pattern; 2] {
    match side {
        Side::Client => [Pattern::new(1), Pattern::new(2)],
        Side::Server => [Pattern::new(2), Pattern::new(1)],
    }
}

/// The test at one end.
pub(in super::super) struct PingPong<'b, 'a, P> {
    pub(super) bench: &'b mut Bench<'a, P>,
    pub(super) event: &'b mut dyn FnMut(Event<'_>),
    pub(super) size: u32,
    watch: Watch,
    buffer: Vec<u8>,
    /// Patterns of sent and received messages.
    outgoing: Pattern,
    incoming: Pattern,
    /// Posts per completion.
    signal: u64,
    posted: u64,
    completed: u64,
    /// Number of messages each way, once the other end has reported the end of the test.
    pub(super) finished: Option<u64>,
    /// Messages of a run by their number.
    limit: u64,
    pub(super) phases: Phases,
}

impl<'b, 'a, P: Peer> PingPong<'b, 'a, P> {
    /// Creates the test of one size. The time of a run by time begins now.
    pub(in super::super) fn new(
        bench: &'b mut Bench<'a, P>,
        size: u32,
        event: &'b mut dyn FnMut(Event<'_>),
    ) -> Self {
        let [outgoing, incoming] = patterns(bench.side);
        Self {
            watch: Watch::new(bench.clock, bench.patience),
            buffer: vec![0; size as usize],
            outgoing,
            incoming,
            // One, as in perftest's programs, which post, poll completions, and then poll memory.
            signal: if P::LEAVES || bench.drive.is_by_polling() { 1 } else { SIGNAL },
            posted: 0,
            completed: 0,
            finished: None,
            limit: bench.plan.amount.iterations().unwrap_or(u64::MAX),
            phases: Phases::new(bench.plan, bench.clock.now()),
            size,
            bench,
            event,
        }
    }

    /// Returns the figures of the latencies, of which each is divided by `parts`.
    pub(in super::super) fn figures(&mut self, latency: &Latency, parts: f64) -> Quantiles {
        self.phases.finish(self.event);
        if let Some(kept) = latency.kept() {
            (self.event)(Event::Latencies(kept, parts));
        }
        latency.quantiles(parts)
    }

    /// Tells whether this end may begin another message.
    #[inline]
    fn may_go_on(&self, number: u64) -> bool {
        number < self.limit && self.bench.clock.now() < self.phases.deadline()
    }

    /// Records a latency that ended `now`, if it is within the margins of a run by time.
    #[inline]
    fn record(&mut self, latency: &mut Latency, ns: u64, now: u64) {
        if self.phases.note(now, self.event) {
            latency.record(ns);
        }
    }

    /// Waits for the gap before the next message.
    #[inline]
    fn pause(&mut self) {
        let gap = self.bench.plan.local.gap.as_nanos() as u64;
        if gap > 0 {
            let end = self.bench.clock.now() + gap;
            while self.bench.clock.now() < end {
                self.bench.drive.turn();
            }
        }
    }

    /// Sends first. Returns the number of messages each way and the round trips.
    pub(in super::super) fn lead(&mut self) -> Result<(u64, Latency), BenchError> {
        let (clock, mut number) = (self.bench.clock, 0);
        let mut latency = Latency::keeping(self.bench.plan.local.keep);
        while self.may_go_on(number) {
            self.lay_out(number)?;
            self.pause();
            let begin = clock.now();
            self.post(number, 0, Operands::default())?;
            if !self.await_message(number, P::LEAVES)? {
                break;
            }
            let now = clock.now();
            self.record(&mut latency, now - begin, now);
            if self.bench.plan.verify {
                self.check_incoming(number)?;
            }
            self.repost()?;
            number += 1;
        }
        Ok((number, latency))
    }

    /// Answers `limit` messages, or until the other end has finished. Records the times between
    /// the answers, if that is wanted. Returns the number of messages each way.
    pub(in super::super) fn follow(
        &mut self,
        limit: u64,
        mut latency: Option<&mut Latency>,
    ) -> Result<u64, BenchError> {
        let (mut number, mut last) = (0, None);
        while number < limit && self.await_message(number, false)? {
            if self.bench.plan.verify {
                self.check_incoming(number)?;
            }
            // Now our last message has left its slot, because the peer has answered it.
            self.lay_out(number)?;
            if latency.is_some() || self.phases.are_due() {
                let now = self.bench.clock.now();
                let is_measured = self.phases.note(now, self.event);
                let last = last.replace(now).filter(|_| is_measured);
                if let (Some(latency), Some(last)) = (&mut latency, last) {
                    latency.record(now - last);
                }
            }
            self.post(number, 0, Operands::default())?;
            self.repost()?;
            number += 1;
        }
        Ok(number)
    }

    /// Posts requests that the other end's stack answers. Returns their number, their round trips,
    /// and the final word of atomic operations.
    pub(in super::super) fn ask(&mut self) -> Result<(u64, Latency, u64), BenchError> {
        let (clock, plan) = (self.bench.clock, self.bench.plan);
        let (mut latency, mut algebra) = (Latency::keeping(plan.local.keep), Algebra::new(plan, 0));
        let mut number = 0;
        while self.may_go_on(number) {
            let target = if plan.operation.is_atomic() { 0 } else { number as u32 };
            let (operands, original) = algebra.next(number);
            if plan.verify {
                let place = self.bench.layout.local(number as u32, self.size);
                self.bench.memory.fill(0, place, 0)?;
            }
            self.pause();
            let begin = clock.now();
            self.post(number, target, operands)?;
            self.await_completion()?;
            let now = clock.now();
            self.record(&mut latency, now - begin, now);
            if plan.verify {
                self.check_answer(number, original)?;
            }
            number += 1;
        }
        Ok((number, latency, algebra.word))
    }

    /// Waits for the completions of all posted requests.
    pub(in super::super) fn settle(&mut self) -> Result<(), BenchError> {
        while self.completed < self.posted {
            self.await_completion()?;
        }
        Ok(())
    }

    /// Writes the next message: all of it if it will be checked, else its last byte.
    fn lay_out(&mut self, number: u64) -> Result<(), BenchError> {
        let range = self.bench.layout.local(number as u32, self.size);
        if self.bench.plan.verify {
            self.outgoing.fill(number, &mut self.buffer);
            self.bench.memory.write_at(0, range.start, &self.buffer)
        } else {
            self.bench.memory.store_u8(0, range.end - 1, Pattern::last_byte(number))
        }
    }

    #[inline]
    fn post(&mut self, number: u64, target: u32, operands: Operands) -> Result<(), BenchError> {
        let bench = &mut *self.bench;
        let operation = bench.plan.operation;
        let range = bench.layout.local(number as u32, self.size);
        let local = [bench.memory.slice(0, range)?];
        let remote = remote_slot(&bench.layout, &bench.remotes[0], target, self.size)?;
        let way = bench.ways.first();
        let operands = Operands { immediate: number as u32, ..operands };
        let request = work_request(bench.plan, &local, remote, way, operands).id(number + 1);
        let signaled = operation.is_answered_by_stack() || (number + 1).is_multiple_of(self.signal);
        let request = if signaled { request.signaled() } else { request };
        bench.qps[0].post_send(&request).step("posting")?;
        self.posted += 1;
        if bench.drive.is_by_polling() && bench.plan.operation == Operation::Write {
            return self.settle();
        }
        if self.posted - self.completed >= u64::from(LATENCY_DEPTH) - SIGNAL {
            self.await_completion()?;
        }
        Ok(())
    }

    /// Waits for a completion of our own requests.
    #[inline]
    fn await_completion(&mut self) -> Result<(), BenchError> {
        let before = self.completed;
        let mut completions = [WorkCompletion::default(); POLL_BATCH];
        while self.completed == before {
            let bench = &mut *self.bench;
            bench.turn();
            let polled = poll(&bench.send_cq, &mut completions, bench.plan.operation)?;
            match polled.last() {
                Some(last) => self.completed = last.wr_id,
                None => bench.rest(&mut self.watch)?,
            }
            if let Some(messages) = bench.look(&mut self.watch, before)? {
                self.finished = Some(messages);
            }
        }
        Ok(())
    }

    /// Waits for the peer's message. Returns false if the test is over instead: the peer has
    /// reported its end, or with `leaves` this end's time is up.
    #[inline]
    fn await_message(&mut self, number: u64, leaves: bool) -> Result<bool, BenchError> {
        let place = self.bench.layout.target(0, self.size).end - 1;
        let expected = Pattern::last_byte(number);
        let mut completions = [WorkCompletion::default(); 1];
        loop {
            let bench = &mut *self.bench;
            bench.turn();
            let arrived = if bench.plan.takes_receives() {
                let polled = poll(&bench.recv_cq, &mut completions, bench.plan.operation)?;
                for completion in polled {
                    check_immediate(completion, bench.plan, number)?;
                }
                !polled.is_empty()
            } else {
                bench.memory.load_u8(0, place)? == expected
            };
            if arrived {
                return Ok(true);
            }
            bench.rest(&mut self.watch)?;
            if let Some(messages) = bench.look(&mut self.watch, number)? {
                self.finished = Some(messages);
            }
            if self.finished.is_some() || (leaves && bench.clock.now() >= self.phases.deadline()) {
                return Ok(false);
            }
        }
    }

    /// Counts a received message and posts receive requests again.
    fn repost(&mut self) -> Result<(), BenchError> {
        if self.bench.plan.takes_receives() {
            self.bench.receives.take(0);
            if self.bench.receives.room(0) >= self.bench.plan.rx_depth.div_ceil(2) {
                self.bench.post_receives()?;
            }
        }
        Ok(())
    }

    fn check_incoming(&mut self, number: u64) -> Result<(), BenchError> {
        let place = self.bench.layout.target(0, self.size).start;
        let memory = &self.bench.memory;
        let concurrent = self.bench.drive.is_concurrent();
        check_at(concurrent, memory, place, self.incoming, number, &mut self.buffer)
    }

    /// Checks the result of a READ or an atomic operation.
    fn check_answer(&mut self, number: u64, original: u64) -> Result<(), BenchError> {
        let (layout, memory) = (self.bench.layout, &self.bench.memory);
        let place = layout.local(number as u32, self.size).start;
        if self.bench.plan.operation == Operation::Read {
            let message = number % u64::from(layout.slots);
            let concurrent = self.bench.drive.is_concurrent();
            return check_at(concurrent, memory, place, self.incoming, message, &mut self.buffer);
        }
        let returned = memory.load_u64(0, place)?;
        if returned == original {
            return Ok(());
        }
        let name = self.bench.plan.operation.name();
        let text = format!("{name} {number} returned {returned:#x}, not {original:#x}");
        Err(BenchError::Corrupt(text))
    }
}

/// Checks the immediate data of a message, if it is to have them.
fn check_immediate(
    completion: &WorkCompletion,
    plan: &Plan,
    number: u64,
) -> Result<(), BenchError> {
    let wanted = plan.immediate.then_some(ImmDt(number as u32));
    if !plan.verify || completion.imm == wanted {
        return Ok(());
    }
    let text = format!("message {number} came with {:x?}, not {wanted:x?}", completion.imm);
    Err(BenchError::Corrupt(text))
}
