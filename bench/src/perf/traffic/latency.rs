//! Latency: one message in flight.
//!
//! SEND and WRITE go to and fro. One end leads and measures round trips, the other follows. The
//! receiver of a WRITE polls the last byte of its memory, which has a count. READ and atomic
//! operations are answered by the other end's stack; the requesting end measures from the post to
//! the completion.
//!
//! Not here: the order of steps with perftest's programs ([`super::stock`]).

use super::verify::{Algebra, check_at};
use super::watch::Watch;
use super::worker::{Bench, LATENCY_DEPTH, Operands, POLL_BATCH, poll, remote_slot, work_request};
use super::{Peer, Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use crate::perf::measure::{Latency, Quantiles};
use crate::perf::plan::{Amount, Operation, Plan};
use crate::pin::Side;
use crate::rendezvous::Link;
use uroce::WorkCompletion;
use uroce_engine::clock::Clock;

/// Posts per completion, so that places in the send queue become free.
const SIGNAL: u64 = 32;

/// Measures one size. Both ends return the client's figures.
pub(super) fn run(bench: &mut Bench<'_, Link>, size: u32) -> Result<Quantiles, BenchError> {
    for region in &bench.regions {
        region.fill(.., 0).step("clearing memory")?;
    }
    if bench.plan.operation == Operation::Send {
        bench.post_receives()?;
    }
    if bench.plan.operation == Operation::Read && bench.side == Side::Server {
        lay_out_answers(bench, size)?;
    }
    bench.start()?;
    let mut end = PingPong::new(bench, size);
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
        bench.regions[0].write_at(place, &message).step("filling memory")?;
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
        self.report(messages, latency.quantiles(2.0))
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
        self.report(messages, latency.quantiles(1.0))
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
                    let word = self.bench.regions[0].load_u64(place).step("reading memory")?;
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
    pub(super) fn new(bench: &'b mut Bench<'a, P>, size: u32) -> Self {
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
        }
    }

    /// Sends first. Returns the number of messages each way and the round trips.
    pub(super) fn lead(&mut self) -> Result<(u64, Latency), BenchError> {
        let (clock, mut latency, mut number) = (self.bench.clock, Latency::new(), 0);
        while self.limit.allows(number, clock.now()) {
            self.lay_out(number)?;
            let begin = clock.now();
            self.post(number, 0, Operands::default())?;
            if !self.await_message(number, P::LEAVES)? {
                break;
            }
            latency.record(clock.now() - begin);
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
        let (mut latency, mut algebra) = (Latency::new(), Algebra::new(plan, 0));
        let mut number = 0;
        while self.limit.allows(number, clock.now()) {
            let target = if plan.operation.is_atomic() { 0 } else { number as u32 };
            let (operands, original) = algebra.next(number);
            if plan.verify {
                let place = self.bench.layout.local(number as u32, self.size);
                self.bench.regions[0].fill(place, 0).step("clearing memory")?;
            }
            let begin = clock.now();
            self.post(number, target, operands)?;
            self.await_completion()?;
            latency.record(clock.now() - begin);
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
        let region = &self.bench.regions[0];
        if self.bench.plan.verify {
            self.outgoing.fill(number, &mut self.buffer);
            region.write_at(range.start, &self.buffer).step("filling memory")
        } else {
            region.store_u8(range.end - 1, Pattern::last_byte(number)).step("filling memory")
        }
    }

    #[inline]
    fn post(&mut self, number: u64, target: u32, operands: Operands) -> Result<(), BenchError> {
        let bench = &mut *self.bench;
        let operation = bench.plan.operation;
        let range = bench.layout.local(number as u32, self.size);
        let local = [bench.regions[0].slice(range).step("a slice of memory")?];
        let remote = remote_slot(&bench.layout, &bench.remotes[0], target, self.size)?;
        let way = bench.ways.first();
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
            bench.drive.turn();
            let polled = poll(&bench.send_cq, &mut completions, bench.plan.operation)?;
            if let Some(last) = polled.last() {
                self.completed = last.wr_id;
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
            bench.drive.turn();
            let arrived = match bench.plan.operation {
                Operation::Send => {
                    !poll(&bench.recv_cq, &mut completions, Operation::Send)?.is_empty()
                }
                _ => bench.regions[0].load_u8(place).step("polling memory")? == expected,
            };
            if arrived {
                return Ok(true);
            }
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
        if self.bench.plan.operation == Operation::Send {
            self.bench.receives_posted[0] -= 1;
            if self.bench.receives_posted[0] <= self.bench.plan.rx_depth / 2 {
                self.bench.post_receives()?;
            }
        }
        Ok(())
    }

    fn check_incoming(&mut self, number: u64) -> Result<(), BenchError> {
        let place = self.bench.layout.target(0, self.size).start;
        let region = &self.bench.regions[0];
        let concurrent = self.bench.drive.is_concurrent();
        check_at(concurrent, region, place, self.incoming, number, &mut self.buffer)
    }

    /// Checks the result of a READ or an atomic operation.
    fn check_answer(&mut self, number: u64, original: u64) -> Result<(), BenchError> {
        let (layout, region) = (self.bench.layout, &self.bench.regions[0]);
        let place = layout.local(number as u32, self.size).start;
        if self.bench.plan.operation == Operation::Read {
            let message = number % u64::from(layout.slots);
            let concurrent = self.bench.drive.is_concurrent();
            return check_at(concurrent, region, place, self.incoming, message, &mut self.buffer);
        }
        let returned = region.load_u64(place).step("reading memory")?;
        if returned == original {
            return Ok(());
        }
        let name = self.bench.plan.operation.name();
        let text = format!("{name} {number} returned {returned:#x}, not {original:#x}");
        Err(BenchError::Corrupt(text))
    }
}

/// Limit of the test at the leading end.
#[derive(Clone, Copy)]
struct Limit {
    count: u64,
    deadline: u64,
}

impl Limit {
    fn of(plan: &Plan, clock: Clock) -> Self {
        match plan.amount {
            Amount::Iterations(count) => Self { count, deadline: u64::MAX },
            Amount::Duration(time) => {
                Self { count: u64::MAX, deadline: clock.now() + time.as_nanos() as u64 }
            }
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
