//! What the generator of loads costs beside what it sends: the same lists of messages, with and
//! without it.

use super::messages::{Ends, Shape, TURNS_MAX, poll};
use super::valgrind::start_instrumentation;
use super::{CostCase, measured};
use crate::error::{BenchError, Step};
use crate::load::{Generator, Offer, Setting};
use crate::node::Drive;
use crate::perf::measure::Latency;
use crate::perf::plan::Service;
use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;
use uroce::{SendWr, WcStatus, WorkCompletion};
use uroce_engine::clock::Clock;

/// Messages of a round, and of a list.
const ROUND: u64 = 128;
const LIST: u64 = 32;
/// Messages for a completion.
const EVERY: u64 = 16;
/// Payload bytes.
const SIZE: u32 = 8;
/// Nanoseconds between two messages that are due. Time is made of the number of messages, so that
/// lists have the same length in each run.
const APART: u64 = 1000;
const ROUNDS: [u64; 2] = [8, 24];

/// Runs the case with one number of messages, then with three times as many.
pub(super) fn run(case: CostCase) -> Result<(), BenchError> {
    let shape = Shape::of(case, 1);
    let mut ends = Ends::open(shape, 1)?;
    let setting = Setting {
        service: Service::Rc,
        messages: vec![SIZE],
        mtu: 4096,
        rx_depth: shape.depth,
        seed: 0,
    };
    let rate = 1e9 / APART as f64;
    let offer = Offer { rate: Some(rate), time: Duration::from_secs(60), stages: false };
    let mut latency = Latency::new();
    let generator =
        (case == CostCase::Paced8).then(|| Generator::new(&setting, &offer, Some(&mut latency)));
    let mut load = Load { generator, posted: 0, clock: Clock::new() };
    start_instrumentation();
    load.rounds(&mut ends, shape, ROUNDS[0])?;
    for rounds in ROUNDS {
        measured(case, 1, rounds * ROUND, &mut || load.rounds(&mut ends, shape, rounds))?;
    }
    Ok(())
}

/// What is posted, by the generator or without one.
struct Load<'a> {
    generator: Option<Generator<'a>>,
    posted: u64,
    clock: Clock,
}

impl Load<'_> {
    fn rounds(&mut self, ends: &mut Ends, shape: Shape, rounds: u64) -> Result<(), BenchError> {
        (0..rounds).try_for_each(|_| self.round(ends, shape))
    }

    /// Sends a round, and makes turns until it has arrived.
    fn round(&mut self, ends: &mut Ends, shape: Shape) -> Result<(), BenchError> {
        ends.target.post_receives(shape)?;
        let (end, mut missing) = (self.posted + ROUND, ROUND as u32);
        for _ in 0..TURNS_MAX {
            let list = self.list(end);
            if !list.is_empty() {
                self.post(ends, list)?;
            }
            ends.drives.iter_mut().for_each(Drive::turn);
            self.complete(ends)?;
            missing -= poll(&ends.target.recv_cq)?;
            if missing == 0 {
                return Ok(());
            }
        }
        Err(BenchError::usage(format!("{missing} messages did not arrive")))
    }

    fn list(&mut self, end: u64) -> Range<u64> {
        let list = match &mut self.generator {
            Some(generator) => {
                // The generator's loop reads the clock each time.
                black_box(self.clock.now());
                generator.due((end - 1) * APART)
            }
            None => self.posted + 1..(self.posted + LIST).min(end) + 1,
        };
        self.posted = list.end - 1;
        list
    }

    fn post(&self, ends: &mut Ends, list: Range<u64>) -> Result<(), BenchError> {
        let place = ..SIZE as usize;
        let local = [ends.source.memory.slice(place).step("a slice of memory")?];
        let requests = list.map(|number| {
            let asks = match &self.generator {
                Some(generator) => generator.asks(number),
                None => number.is_multiple_of(EVERY),
            };
            let request = SendWr::send(&local).id(number);
            if asks { request.signaled() } else { request }
        });
        ends.source.qps[0].post_sends(requests).step("posting")?;
        Ok(())
    }

    fn complete(&mut self, ends: &Ends) -> Result<(), BenchError> {
        let mut completions = [WorkCompletion::default(); 64];
        let count = ends.source.send_cq.poll(&mut completions).step("polling a CQ")?;
        let failed = |status: WcStatus| BenchError::Completion { operation: "SEND", status };
        let polled = &completions[..count];
        polled.iter().try_for_each(|completion| completion.ok().map_err(failed))?;
        if let (Some(generator), false) = (&mut self.generator, polled.is_empty()) {
            black_box(self.clock.now());
            generator.take(polled, self.posted * APART);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_loads_arrive() {
        run(CostCase::List8).expect("without the generator");
        run(CostCase::Paced8).expect("with it");
    }
}
