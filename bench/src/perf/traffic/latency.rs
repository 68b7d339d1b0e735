//! Latency: one message in flight.
//!
//! SEND and WRITE go to and fro. One end leads and measures round trips, the other follows. The
//! receiver of a WRITE polls the last byte of its memory, which has a count. READ and atomic
//! operations are answered by the other end's stack; the requesting end measures from the post to
//! the completion.
//!
//! Not here: the order of steps with perftest's programs ([`super::stock`]).

use super::request::{Operands, POLL_BATCH, poll, remote_slot, work_request};
use super::verify::{Algebra, check_at};
use super::watch::Watch;
use super::worker::{Bench, LATENCY_DEPTH};
use super::{Event, Peer, Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use crate::perf::measure::{Latency, Quantiles};
use crate::perf::plan::{Amount, Operation, Plan};
use crate::pin::Side;
use crate::rendezvous::Link;
use uroce::{ImmDt, WorkCompletion};
use uroce_engine::clock::Clock;

/// Posts per completion, so that places in the send queue become free.
const SIGNAL: u64 = 32;

/// Measures one size. Both ends return the client's figures.
pub(super) fn run(
    bench: &mut Bench<'_, Link>,
    size: u32,
    event: &mut dyn FnMut(Event<'_>),
) -> Result<Quantiles, BenchError> {
    bench.memory.fill_all(0)?;
    if bench.plan.takes_receives() {
        bench.post_receives()?;
    }
    if bench.plan.operation == Operation::Read && bench.side == Side::Server {
        lay_out_answers(bench, size)?;
    }
    bench.start()?;
    let mut end = PingPong::new(bench, size, event);
    match (end.bench.side, end.bench.plan.operation.is_answered_by_stack()) {
        (Side::Client, true) => end.ask_and_report(),
        (Side::Client, false) => end.lead_and_report(),
        (Side::Server, true) => end.serve(),
        (Side::Server, false) => end.follow_and_hear(),
    }
}

/// Writes the messages for READs, one into each slot.
fn lay_out_answers(bench: &Bench<'_, Link>, size: u32) -> Result<(), BenchError> {
    let [outgoing, _] = patterns(bench.side);
    let mut message = vec![0; size as usize];
    for slot in 0..bench.layout.slots {
        outgoing.fill(u64::from(slot), &mut message);
        let place = bench.layout.target(slot, size).start;
        bench.memory.write_at(0, place, &message)?;
    }
    Ok(())
}

/// Returns the patterns of an end's sent and received messages.
fn patterns(side: Side) -> [Pattern; 2] {
    match side {
        Side::Client => [Pattern::new(1), Pattern::new(2)],
        Side::Server => [Pattern::new(2), Pattern::new(1)],
    }
}

/// The test at one end.
pub(super) struct PingPong<'b, 'a, P> {
    bench: &'b mut Bench<'a, P>,
    event: &'b mut dyn FnMut(Event<'_>),
    size: u32,
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
    finished: Option<u64>,
    limit: Limit,
}

impl<'b, 'a> PingPong<'b, 'a, Link> {
    /// Runs the client of SEND and WRITE.
    fn lead_and_report(&mut self) -> Result<Quantiles, BenchError> {
        let (messages, latency) = self.lead()?;
        if self.finished.is_some() {
            return Err(out_of_step());
        }
        let figures = self.figures(&latency, 2.0);
        self.report(messages, figures)
    }

    /// Runs the server of SEND and WRITE.
    fn follow_and_hear(&mut self) -> Result<Quantiles, BenchError> {
        let messages = self.follow(u64::MAX, || ())?;
        match self.finished {
            Some(finished) if finished == messages => self.hear_report(),
            _ => Err(out_of_step()),
        }
    }

    /// Runs the client of READ and atomic operations.
    fn ask_and_report(&mut self) -> Result<Quantiles, BenchError> {
        let (messages, latency, word) = self.ask()?;
        let plan = self.bench.plan;
        if plan.verify && plan.operation.is_atomic() {
            let words = vec![word];
            self.bench.link.send(&Word::Check { first: 0, count: messages, words })?;
            match self.bench.hear("waiting for the other end to check its memory")? {
                Word::Checked { fault: None } => (),
                Word::Checked { fault: Some(text) } => return Err(BenchError::Corrupt(text)),
                _ => return Err(out_of_step()),
            }
        }
        let figures = self.figures(&latency, 1.0);
        self.report(messages, figures)
    }

    /// Runs the server of READ and atomic operations. Its stack answers until the client has
    /// finished.
    fn serve(&mut self) -> Result<Quantiles, BenchError> {
        let mut watch = Watch::patient(self.bench.clock);
        loop {
            self.bench.drive.wait();
            match watch.turn(0, || self.bench.link.try_receive())? {
                None => (),
                Some(Word::Check { words, .. }) => {
                    let place = self.bench.layout.target(0, self.size).start;
                    let word = self.bench.memory.load_u64(0, place)?;
                    let wrong = words.first() != Some(&word);
                    let fault = wrong.then(|| format!("the word is {word:#x}, not {words:x?}"));
                    self.bench.link.send(&Word::Checked { fault })?;
                }
                Some(Word::Finished { .. }) => return self.hear_report(),
                Some(_) => return Err(out_of_step()),
            }
        }
    }

    /// Sends the end of the test and the figures to the server.
    fn report(&mut self, messages: u64, figures: Quantiles) -> Result<Quantiles, BenchError> {
        self.bench.link.send(&Word::Finished { messages })?;
        self.bench.link.send(&Word::Latency(figures))?;
        Ok(figures)
    }

    fn hear_report(&mut self) -> Result<Quantiles, BenchError> {
        match self.bench.hear("waiting for the other end's figures")? {
            Word::Latency(figures) => Ok(figures),
            _ => Err(out_of_step()),
        }
    }
}

impl<'b, 'a, P: Peer> PingPong<'b, 'a, P> {
    /// Creates the test of one size. The time of a run by time begins now.
    pub(super) fn new(
        bench: &'b mut Bench<'a, P>,
        size: u32,
        event: &'b mut dyn FnMut(Event<'_>),
    ) -> Self {
        let [outgoing, incoming] = patterns(bench.side);
        Self {
            watch: Watch::new(bench.clock),
            buffer: vec![0; size as usize],
            outgoing,
            incoming,
            // One, as in perftest's programs, which post, poll completions, and then poll memory.
            signal: if P::LEAVES || bench.drive.is_by_polling() { 1 } else { SIGNAL },
            posted: 0,
            completed: 0,
            finished: None,
            limit: Limit::of(bench.plan, bench.clock),
            size,
            bench,
            event,
        }
    }

    /// Returns the figures of the latencies, of which each is divided by `parts`.
    pub(super) fn figures(&mut self, latency: &Latency, parts: f64) -> Quantiles {
        if !std::mem::replace(&mut self.limit.ended, true) {
            (self.event)(Event::End);
        }
        if let Some(kept) = latency.kept() {
            (self.event)(Event::Latencies(kept, parts));
        }
        latency.quantiles(parts)
    }

    /// Records a latency that ended `now`, if it is within the margins of a run by time.
    #[inline]
    fn record(&mut self, latency: &mut Latency, ns: u64, now: u64) {
        match self.limit.phase(now) {
            Phase::Measured => latency.record(ns),
            Phase::Margin => (),
            Phase::Begins => {
                (self.event)(Event::Begin);
                self.limit.begun = true;
            }
            Phase::Ends => {
                (self.event)(Event::End);
                self.limit.ended = true;
            }
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
    pub(super) fn lead(&mut self) -> Result<(u64, Latency), BenchError> {
        let (clock, mut number) = (self.bench.clock, 0);
        let mut latency = Latency::keeping(self.bench.plan.local.keep);
        while self.limit.allows(number, clock.now()) {
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

    /// Answers `limit` messages, or until the other end has finished. Calls `answering` before each
    /// answer. Returns the number of messages each way.
    pub(super) fn follow(
        &mut self,
        limit: u64,
        mut answering: impl FnMut(),
    ) -> Result<u64, BenchError> {
        let mut number = 0;
        while number < limit && self.await_message(number, false)? {
            if self.bench.plan.verify {
                self.check_incoming(number)?;
            }
            // Now our last message has left its slot, because the peer has answered it.
            self.lay_out(number)?;
            answering();
            self.post(number, 0, Operands::default())?;
            self.repost()?;
            number += 1;
        }
        Ok(number)
    }

    /// Posts requests that the other end's stack answers. Returns their number, their round trips,
    /// and the final word of atomic operations.
    pub(super) fn ask(&mut self) -> Result<(u64, Latency, u64), BenchError> {
        let (clock, plan) = (self.bench.clock, self.bench.plan);
        let (mut latency, mut algebra) = (Latency::keeping(plan.local.keep), Algebra::new(plan, 0));
        let mut number = 0;
        while self.limit.allows(number, clock.now()) {
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
    pub(super) fn settle(&mut self) -> Result<(), BenchError> {
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
            if self.finished.is_some() || (leaves && self.limit.is_over(bench.clock)) {
                return Ok(false);
            }
        }
    }

    /// Counts a received message and posts receive requests again.
    fn repost(&mut self) -> Result<(), BenchError> {
        if self.bench.plan.takes_receives() {
            self.bench.receives_posted[0] -= 1;
            if self.bench.receives_posted[0] <= self.bench.plan.rx_depth / 2 {
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

/// Limit of the test at the leading end, and its margins.
#[derive(Clone, Copy)]
struct Limit {
    count: u64,
    deadline: u64,
    /// Times between which latencies are measured.
    from: u64,
    until: u64,
    /// The measurement has begun, and it is over. Both have been reported.
    begun: bool,
    ended: bool,
}

/// Part of the run in which a latency ends.
enum Phase {
    /// It counts.
    Measured,
    /// It does not, as those of a margin.
    Margin,
    /// It is the last before the measurement.
    Begins,
    /// It is the first after the measurement.
    Ends,
}

impl Limit {
    fn of(plan: &Plan, clock: Clock) -> Self {
        let now = clock.now();
        let margin = plan.local.margin.as_nanos() as u64;
        let whole = Self {
            count: u64::MAX,
            deadline: u64::MAX,
            from: now,
            until: u64::MAX,
            begun: true,
            ended: true,
        };
        match plan.amount {
            Amount::Iterations(count) => Self { count, ..whole },
            Amount::Duration(time) => {
                let deadline = now + time.as_nanos() as u64;
                let until = if margin > 0 { deadline - margin } else { u64::MAX };
                Self { deadline, from: now + margin, until, begun: false, ended: false, ..whole }
            }
            Amount::Endless(_) => whole,
        }
    }

    #[inline]
    fn phase(&self, now: u64) -> Phase {
        match (self.begun, self.ended) {
            (false, _) if now >= self.from => Phase::Begins,
            (true, false) if now > self.until => Phase::Ends,
            _ if now < self.from || now > self.until => Phase::Margin,
            _ => Phase::Measured,
        }
    }

    #[inline]
    fn allows(self, number: u64, now: u64) -> bool {
        number < self.count && now < self.deadline
    }

    /// Tells whether the time of a run by time is over.
    #[inline]
    fn is_over(self, clock: Clock) -> bool {
        self.deadline != u64::MAX && clock.now() >= self.deadline
    }
}
