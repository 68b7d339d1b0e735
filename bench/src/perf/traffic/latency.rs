//! Latency: one message in flight.
//!
//! SEND and WRITE go to and fro. One end leads and measures round trips, the other follows. READ
//! and atomic operations are answered by the other end's stack; the requesting end measures from
//! the post to the completion.
//!
//! Not here: the messages themselves ([`ping_pong`]); the order of steps with perftest's programs
//! ([`super::stock`]).

mod ping_pong;

pub(super) use ping_pong::PingPong;

use super::rest::serve;
use super::watch::Watch;
use super::worker::Bench;
use super::{Event, Word, out_of_step};
use crate::error::BenchError;
use crate::perf::measure::Quantiles;
use crate::perf::plan::Operation;
use crate::pin::Side;
use crate::rendezvous::Link;
use ping_pong::patterns;

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
        let messages = self.follow(u64::MAX, None)?;
        self.phases.finish(self.event);
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
        let (clock, sleeps) = (self.bench.clock, self.bench.rest.is_some());
        let mut watch = Watch::patient(clock);
        loop {
            serve(&mut self.bench.drive, sleeps, &mut watch);
            if self.phases.are_due() {
                self.phases.note(clock.now(), self.event);
            }
            match watch.turn(0, || self.bench.link.try_receive())? {
                None => (),
                Some(Word::Check { words, .. }) => {
                    let place = self.bench.layout.target(0, self.size).start;
                    let word = self.bench.memory.load_u64(0, place)?;
                    let wrong = words.first() != Some(&word);
                    let fault = wrong.then(|| format!("the word is {word:#x}, not {words:x?}"));
                    self.bench.link.send(&Word::Checked { fault })?;
                }
                Some(Word::Finished { .. }) => {
                    self.phases.finish(self.event);
                    return self.hear_report();
                }
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
