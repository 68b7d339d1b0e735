//! Latency: one message under way.
//!
//! SEND and WRITE go to and fro, the client measures round trips; the receiver of a WRITE polls the
//! last byte of its memory, which holds a count. READ and atomics are answered by the other end's
//! stack; the client measures from post to completion.

use super::lane::{Bench, LATENCY_DEPTH, Operands, POLL_BATCH, poll, remote_slot, work_request};
use super::verify::{Algebra, check_at};
use super::watch::Watch;
use super::{Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use crate::pin::Side;
use crate::plan::{Amount, Operation};
use crate::stats::{Latency, Quantiles};
use uroce::WorkCompletion;

/// One of so many posts has a completion, so that places in the send queue become free.
const SIGNAL: u64 = 32;

/// Measures one size; both ends get the client's figures.
pub(super) fn run(bench: &mut Bench<'_>, size: u32) -> Result<Quantiles, BenchError> {
    for region in &bench.regions {
        region.fill(0..region.len(), 0).step("clearing memory")?;
    }
    if bench.plan.operation == Operation::Send {
        bench.post_receives()?;
    }
    let mut end = PingPong::new(bench, size)?;
    end.prepare()?;
    end.bench.barrier()?;
    match (end.bench.side, end.bench.plan.operation.is_answered_by_stack()) {
        (Side::Client, true) => end.ask(),
        (Side::Client, false) => end.ping(),
        (Side::Server, true) => end.serve(),
        (Side::Server, false) => end.pong(),
    }
}

/// The test at one end.
struct PingPong<'b, 'a> {
    bench: &'b mut Bench<'a>,
    size: u32,
    watch: Watch,
    buffer: Vec<u8>,
    /// Of what we send, and of what comes.
    outgoing: Pattern,
    incoming: Pattern,
    posted: u64,
    completed: u64,
    /// The end of the test, once the client has said so: the number of messages each way.
    finished: Option<u64>,
}

impl<'b, 'a> PingPong<'b, 'a> {
    fn new(bench: &'b mut Bench<'a>, size: u32) -> Result<Self, BenchError> {
        let patterns = [Pattern::new(1), Pattern::new(2)];
        let [outgoing, incoming] = match bench.side {
            Side::Client => patterns,
            Side::Server => [patterns[1], patterns[0]],
        };
        let watch = Watch::new(bench.clock);
        Ok(Self {
            watch,
            buffer: vec![0; size as usize],
            outgoing,
            incoming,
            posted: 0,
            completed: 0,
            finished: None,
            size,
            bench,
        })
    }

    /// For READ: lays out a message in each slot.
    fn prepare(&mut self) -> Result<(), BenchError> {
        if self.bench.plan.operation != Operation::Read || self.bench.side == Side::Client {
            return Ok(());
        }
        for slot in 0..self.bench.layout.slots {
            self.outgoing.fill(u64::from(slot), &mut self.buffer);
            let place = self.bench.layout.target(slot, self.size).start;
            self.bench.regions[0].write_at(place, &self.buffer).step("filling memory")?;
        }
        Ok(())
    }

    /// The client of SEND and WRITE.
    fn ping(&mut self) -> Result<Quantiles, BenchError> {
        let clock = self.bench.clock;
        let (mut latency, limit) = (Latency::new(), self.limit());
        let mut number = 0;
        while limit.allows(number, clock.now()) {
            self.lay_out(number)?;
            let begin = clock.now();
            self.post(number, 0, Operands::default())?;
            self.await_message(number)?;
            latency.record(clock.now() - begin);
            self.tidy(number)?;
            number += 1;
        }
        self.report(number, latency.quantiles(2.0))
    }

    /// The server of SEND and WRITE.
    fn pong(&mut self) -> Result<Quantiles, BenchError> {
        let mut number = 0;
        while self.await_message(number)? {
            if self.bench.plan.verify {
                self.check_incoming(number)?;
            }
            // Not before: the message that has come tells that our last one has left.
            self.lay_out(number)?;
            self.post(number, 0, Operands::default())?;
            self.repost()?;
            number += 1;
        }
        match self.finished {
            Some(messages) if messages == number => self.hear_report(),
            _ => Err(out_of_step()),
        }
    }

    /// The client of READ and atomics.
    fn ask(&mut self) -> Result<Quantiles, BenchError> {
        let (clock, plan) = (self.bench.clock, self.bench.plan);
        let (mut latency, limit) = (Latency::new(), self.limit());
        let mut algebra = Algebra::new(plan, 0);
        let mut number = 0;
        while limit.allows(number, clock.now()) {
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
        if plan.verify && plan.operation.is_atomic() {
            let word = algebra.word;
            self.bench.link.send(&Word::Check { first: 0, count: number, words: vec![word] })?;
            match self.bench.hear("waiting for the other end to check its memory")? {
                Word::Checked { fault: None } => (),
                Word::Checked { fault: Some(text) } => return Err(BenchError::Corrupt(text)),
                _ => return Err(out_of_step()),
            }
        }
        self.report(number, latency.quantiles(1.0))
    }

    /// The server of READ and atomics: its stack does it all.
    fn serve(&mut self) -> Result<Quantiles, BenchError> {
        loop {
            match self.bench.hear("waiting for the other end to finish")? {
                Word::Check { words, .. } => {
                    let place = self.bench.layout.target(0, self.size).start;
                    let word = self.bench.regions[0].load_u64(place).step("reading memory")?;
                    let wrong = words.first() != Some(&word);
                    let fault = wrong.then(|| format!("the word is {word:#x}, not {words:x?}"));
                    self.bench.link.send(&Word::Checked { fault })?;
                }
                Word::Finished { .. } => return self.hear_report(),
                _ => return Err(out_of_step()),
            }
        }
    }

    fn limit(&self) -> Limit {
        match self.bench.plan.amount {
            Amount::Iterations(count) => Limit { count, deadline: u64::MAX },
            Amount::Duration(time) => {
                Limit { count: u64::MAX, deadline: self.bench.clock.now() + time.as_nanos() as u64 }
            }
        }
    }

    /// Writes what is sent next: the whole message if it will be checked, else its last byte.
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
        let request = work_request(operation, &local, remote, operands).id(number + 1);
        let signaled = operation.is_answered_by_stack() || (number + 1).is_multiple_of(SIGNAL);
        let request = if signaled { request.signaled() } else { request };
        bench.qps[0].post_send(&request).step("posting")?;
        self.posted += 1;
        if self.posted - self.completed >= u64::from(LATENCY_DEPTH) - SIGNAL {
            self.await_completion()?;
        }
        Ok(())
    }

    /// Waits for a completion of our own posts.
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
            if self.watch.turn(bench.link, before)?.is_some() {
                return Err(out_of_step());
            }
        }
        Ok(())
    }

    /// Waits for the peer's message; false if instead the test is over.
    #[inline]
    fn await_message(&mut self, number: u64) -> Result<bool, BenchError> {
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
            match self.watch.turn(bench.link, number)? {
                None => (),
                Some(Word::Finished { messages }) => {
                    self.finished = Some(messages);
                    return Ok(false);
                }
                Some(_) => return Err(out_of_step()),
            }
        }
    }

    /// What the client does between two round trips.
    fn tidy(&mut self, number: u64) -> Result<(), BenchError> {
        if self.bench.plan.verify {
            self.check_incoming(number)?;
        }
        self.repost()
    }

    /// Gives a receive request back.
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
        check_at(self.bench, region, place, self.incoming, number, &mut self.buffer)
    }

    /// What a READ or an atomic brought back.
    fn check_answer(&mut self, number: u64, original: u64) -> Result<(), BenchError> {
        let (layout, region) = (self.bench.layout, &self.bench.regions[0]);
        let place = layout.local(number as u32, self.size).start;
        if self.bench.plan.operation == Operation::Read {
            let message = number % u64::from(layout.slots);
            return check_at(self.bench, region, place, self.incoming, message, &mut self.buffer);
        }
        let returned = region.load_u64(place).step("reading memory")?;
        if returned == original {
            return Ok(());
        }
        let name = self.bench.plan.operation.name();
        let text = format!("{name} {number} returned {returned:#x}, not {original:#x}");
        Err(BenchError::Corrupt(text))
    }

    /// Tells the server that it is over, and the figures.
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

/// When the client stops.
#[derive(Clone, Copy)]
struct Limit {
    count: u64,
    deadline: u64,
}

impl Limit {
    #[inline]
    fn allows(self, number: u64, now: u64) -> bool {
        number < self.count && now < self.deadline
    }
}
