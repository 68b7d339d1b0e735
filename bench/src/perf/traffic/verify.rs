//! Verification: every byte of every message is checked where it arrived.
//!
//! Messages are sent in rounds of as many as there are slots, each with its own pattern and slot.
//! After a round the receiving side (WRITE and SEND: the server, READ: the client) checks all slots
//! before the next round begins. Atomic operations must each return the computed value, and leave
//! the computed word.
//!
//! Only the transfers are timed. Each round starts without messages in flight, so that rates are
//! lower than those of a run without verification.

use super::memory::Memory;
use super::request::{Operands, POLL_BATCH, poll, remote_slot, work_request};
use super::watch::Watch;
use super::worker::Bench;
use super::{Word, out_of_step};
use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use crate::perf::measure::Bandwidth;
use crate::perf::plan::{Operation, Plan};
use crate::pin::Side;
use crate::rendezvous::Link;
use std::time::{Duration, Instant};
use uroce::{ImmDt, WorkCompletion};

/// Longest wait for the last stores of an lcore that runs concurrently with this thread.
const SETTLE: Duration = Duration::from_millis(20);

/// Turns of the lcore after which all frames waiting at its port are handled.
const ARRIVAL: u32 = 1000;

/// Verifies one size. Both ends return the client's figures.
pub(super) fn run(bench: &mut Bench<'_, Link>, size: u32) -> Result<Bandwidth, BenchError> {
    bench.memory.fill_all(0)?;
    match bench.side {
        Side::Client => client(bench, size),
        Side::Server => server(bench, size),
    }
}

fn client(bench: &mut Bench<'_, Link>, size: u32) -> Result<Bandwidth, BenchError> {
    bench.barrier()?;
    let total = bench.plan.amount.iterations().unwrap_or(0);
    let mut algebra: Vec<Algebra> =
        (0..bench.qps.len()).map(|worker| Algebra::new(bench.plan, worker)).collect();
    let (mut first, mut elapsed) = (0, 0);
    while first < total {
        let count = u64::from(bench.layout.slots).min(total - first);
        if bench.plan.operation == Operation::Read {
            bench.link.send(&Word::Prepare { first, count })?;
            checked(bench)?;
        }
        elapsed += round(bench, size, first, count, &mut algebra)?;
        if bench.plan.operation != Operation::Read {
            let words = algebra.iter().map(|worker| worker.word).collect();
            bench.link.send(&Word::Check { first, count, words })?;
            checked(bench)?;
        }
        first += count;
    }
    let messages = total * bench.qps.len() as u64;
    let sample = Bandwidth { messages, size: u64::from(size), elapsed_ns: elapsed, peak_rate: 0.0 };
    bench.link.send(&Word::Sample(sample))?;
    Ok(sample)
}

/// Sends one round and checks answers that arrive here. Returns the time of the transfer in ns.
fn round(
    bench: &mut Bench<'_, Link>,
    size: u32,
    first: u64,
    count: u64,
    algebra: &mut [Algebra],
) -> Result<u64, BenchError> {
    let plan = bench.plan;
    let mut buffer = vec![0; size as usize];
    for worker in 0..bench.qps.len() {
        let pattern = pattern_of(plan.operation, worker);
        for number in first..first + count {
            match plan.operation {
                Operation::Write | Operation::Send => pattern.fill(number, &mut buffer),
                // The result of a READ or an atomic operation must replace different bytes.
                _ => buffer.fill(!Pattern::last_byte(number)),
            }
            let place = bench.layout.local(number as u32, size).start;
            bench.memory.write_at(worker, place, &buffer)?;
        }
    }
    let begin = bench.clock.now();
    let mut expected = Vec::new();
    for (worker, algebra) in algebra.iter_mut().enumerate() {
        for number in first..first + count {
            // The depth may be less than a round.
            if (number - first) >= u64::from(plan.tx_depth) {
                bench.await_sends(1)?;
            }
            let (operands, original) = algebra.next(number);
            expected.push((worker, number, original));
            post(bench, worker, number, size, operands)?;
        }
        bench.await_sends(count.min(u64::from(plan.tx_depth)))?;
    }
    let elapsed = bench.clock.now() - begin;
    for (worker, number, original) in expected {
        check_answer(bench, worker, number, size, original, &mut buffer)?;
    }
    Ok(elapsed)
}

fn post(
    bench: &mut Bench<'_, Link>,
    worker: usize,
    number: u64,
    size: u32,
    operands: Operands,
) -> Result<(), BenchError> {
    let slot = number as u32;
    let range = bench.layout.local(slot, size);
    let local = [bench.memory.slice(worker, range)?];
    // All atomic operations use one word.
    let target = if bench.plan.operation.is_atomic() { 0 } else { slot };
    let remote = remote_slot(&bench.layout, &bench.remotes[worker], target, size)?;
    let way = bench.ways.get(worker);
    let operands = Operands { immediate: immediate_of(worker, number), ..operands };
    let request = work_request(bench.plan, &local, remote, way, operands);
    bench.qps[worker].post_send(&request.id(number).signaled()).step("posting")
}

/// Checks the results of READs and atomic operations.
fn check_answer(
    bench: &Bench<'_, Link>,
    worker: usize,
    number: u64,
    size: u32,
    original: u64,
    buffer: &mut [u8],
) -> Result<(), BenchError> {
    let (memory, place) = (&bench.memory, bench.layout.local(number as u32, size).start);
    match bench.plan.operation {
        Operation::Write | Operation::Send => Ok(()),
        Operation::Read => {
            memory.read_at(worker, place, buffer)?;
            check(bench.plan.operation, worker, number, buffer).map_err(BenchError::Corrupt)
        }
        Operation::FetchAdd | Operation::CompareSwap => {
            let returned = memory.load_u64(worker, place)?;
            if returned == original {
                return Ok(());
            }
            Err(BenchError::Corrupt(format!(
                "{} {number} of queue pair {worker} returned {returned:#x}, not {original:#x}",
                bench.plan.operation.name()
            )))
        }
    }
}

/// Waits for the result of the server's check.
fn checked(bench: &mut Bench<'_, Link>) -> Result<(), BenchError> {
    match bench.hear("waiting for the other end to check what it received")? {
        Word::Checked { fault: None } => Ok(()),
        Word::Checked { fault: Some(text) } => Err(BenchError::Corrupt(text)),
        _ => Err(out_of_step()),
    }
}

fn server(bench: &mut Bench<'_, Link>, size: u32) -> Result<Bandwidth, BenchError> {
    let total = bench.plan.amount.iterations().unwrap_or(0);
    post_round(bench, size, 0, total)?;
    bench.barrier()?;
    loop {
        match bench.hear("waiting for the other end's next round")? {
            Word::Prepare { first, count } => {
                check_range(bench.layout.slots, total, first, count)?;
                prepare(bench, size, first, count)?;
                bench.link.send(&Word::Checked { fault: None })?;
            }
            Word::Check { first, count, words } => {
                check_range(bench.layout.slots, total, first, count)?;
                receive_round(bench, size, first, count)?;
                if bench.plan.is_lossy() {
                    // A WRITE of an unreliable service completes when it has been sent; it may
                    // still wait at this port.
                    (0..ARRIVAL).for_each(|_| bench.drive.turn());
                }
                let fault = check_round(bench, size, first, count, &words)?;
                post_round(bench, size, first + count, total)?;
                bench.link.send(&Word::Checked { fault: fault.clone() })?;
                if let Some(text) = fault {
                    return Err(BenchError::Corrupt(text));
                }
            }
            Word::Busy => (),
            Word::Sample(sample) => return Ok(sample),
            _ => return Err(out_of_step()),
        }
    }
}

/// Checks that a round requested by the other end is one of this test.
fn check_range(slots: u32, total: u64, first: u64, count: u64) -> Result<(), BenchError> {
    let end = first.checked_add(count).filter(|&end| end <= total);
    if end.is_some() && (1..=u64::from(slots)).contains(&count) {
        return Ok(());
    }
    Err(BenchError::Peer(format!("it asked for {count} messages from {first} on, of {total}")))
}

/// Writes the messages for the client's READs.
fn prepare(bench: &Bench<'_, Link>, size: u32, first: u64, count: u64) -> Result<(), BenchError> {
    let mut buffer = vec![0; size as usize];
    for worker in 0..bench.qps.len() {
        for number in first..first + count {
            pattern_of(Operation::Read, worker).fill(number, &mut buffer);
            let place = bench.layout.target(number as u32, size).start;
            bench.memory.write_at(worker, place, &buffer)?;
        }
    }
    Ok(())
}

/// Posts the receive requests of the round that begins with message `first`, one per slot. In a
/// shared queue they are in the order in which the client's queue pairs send, one after the other.
fn post_round(
    bench: &mut Bench<'_, Link>,
    size: u32,
    first: u64,
    total: u64,
) -> Result<(), BenchError> {
    if !bench.plan.takes_receives() {
        return Ok(());
    }
    let end = total.min(first + u64::from(bench.layout.slots));
    for worker in 0..bench.qps.len() {
        for number in first..end {
            let range = bench.layout.receive(number as u32, size);
            bench.post_receive(worker, range, worker as u64)?;
        }
    }
    Ok(())
}

/// Polls the completions of a round's receive requests, and checks their lengths, immediate data,
/// and each queue pair's order.
fn receive_round(
    bench: &mut Bench<'_, Link>,
    size: u32,
    first: u64,
    count: u64,
) -> Result<(), BenchError> {
    if !bench.plan.takes_receives() {
        return Ok(());
    }
    let workers = bench.qps.len();
    let expected = count * workers as u64;
    let mut next = vec![first; workers];
    let mut completions = [WorkCompletion::default(); POLL_BATCH];
    let (mut done, mut watch) = (0, Watch::new(bench.clock, bench.patience));
    while done < expected {
        bench.drive.turn();
        for completion in poll(&bench.recv_cq, &mut completions, bench.plan.operation)? {
            // The identifier is the one that this end has given.
            let worker = completion.wr_id as usize;
            let number = next[worker];
            next[worker] += 1;
            bench.receives.take(worker);
            if completion.byte_len != bench.layout.byte_len(size) {
                return Err(BenchError::Corrupt(format!(
                    "message {number} came with {} bytes instead of {size}",
                    completion.byte_len
                )));
            }
            let wanted = bench.plan.immediate.then(|| ImmDt(immediate_of(worker, number)));
            if completion.imm != wanted {
                return Err(BenchError::Corrupt(format!(
                    "message {number} of queue pair {worker} came with the immediate data {:x?}, \
                     not {wanted:x?}",
                    completion.imm
                )));
            }
            done += 1;
        }
        if bench.look(&mut watch, done)?.is_some() {
            return Err(out_of_step());
        }
    }
    Ok(())
}

/// Returns the immediate data of a message.
fn immediate_of(worker: usize, number: u64) -> u32 {
    (worker as u32) << 20 ^ number as u32
}

/// Checks a round at its target. Returns the first fault.
fn check_round(
    bench: &Bench<'_, Link>,
    size: u32,
    first: u64,
    count: u64,
    words: &[u64],
) -> Result<Option<String>, BenchError> {
    let operation = bench.plan.operation;
    let mut buffer = vec![0; size as usize];
    for worker in 0..bench.qps.len() {
        if operation.is_atomic() {
            let word = bench.memory.load_u64(worker, bench.layout.target(0, size).start)?;
            let expected = words.get(worker).copied().unwrap_or_default();
            if word != expected {
                let name = operation.name();
                return Ok(Some(format!(
                    "after {} of {name} the word is {word:#x}, not {expected:#x}",
                    first + count
                )));
            }
            continue;
        }
        for number in first..first + count {
            let place = bench.layout.target(number as u32, size).start;
            let fault = settle(bench.drive.is_concurrent(), || {
                bench.memory.read_at(worker, place, &mut buffer)?;
                Ok(check(operation, worker, number, &buffer).err())
            })?;
            if fault.is_some() {
                return Ok(fault);
            }
        }
    }
    Ok(None)
}

/// Returns a fault that persists. If the lcore runs concurrently, its last stores may become
/// visible a moment later.
fn settle(
    concurrent: bool,
    mut look: impl FnMut() -> Result<Option<String>, BenchError>,
) -> Result<Option<String>, BenchError> {
    let deadline = Instant::now() + SETTLE;
    loop {
        let fault = look()?;
        if fault.is_none() || !concurrent || Instant::now() > deadline {
            return Ok(fault);
        }
    }
}

/// Compares a message with its pattern.
fn check(operation: Operation, worker: usize, number: u64, bytes: &[u8]) -> Result<(), String> {
    match pattern_of(operation, worker).mismatch(number, bytes) {
        None => Ok(()),
        Some(offset) => Err(format!(
            "{} {number} of queue pair {worker}: byte {offset} of {} is not what was sent",
            operation.name(),
            bytes.len()
        )),
    }
}

/// Reads a message of a latency test where it arrived, and compares it with its pattern.
pub(super) fn check_at(
    concurrent: bool,
    memory: &Memory,
    place: usize,
    pattern: Pattern,
    number: u64,
    buffer: &mut [u8],
) -> Result<(), BenchError> {
    let fault = settle(concurrent, || {
        memory.read_at(0, place, buffer)?;
        Ok(pattern.mismatch(number, buffer).map(|offset| {
            format!("message {number}: byte {offset} of {} is not what was sent", buffer.len())
        }))
    })?;
    fault.map_or(Ok(()), |text| Err(BenchError::Corrupt(text)))
}

/// Returns the pattern of an operation and a queue pair, which differs from all others.
fn pattern_of(operation: Operation, worker: usize) -> Pattern {
    Pattern::new((operation as u64) << 32 | worker as u64)
}

/// Expected value of a word under atomic operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Algebra {
    operation: Operation,
    pattern: Pattern,
    /// The present value.
    pub(super) word: u64,
}

impl Algebra {
    /// Creates the state of a word with value 0.
    pub(super) fn new(plan: &Plan, worker: usize) -> Self {
        Self { operation: plan.operation, pattern: pattern_of(plan.operation, worker), word: 0 }
    }

    /// Returns the operands of operation `number` and the value that it must return. Every second
    /// CMP_SWAP compares with a different value and must not swap.
    pub(super) fn next(&mut self, number: u64) -> (Operands, u64) {
        let (original, value) = (self.word, self.pattern.number(number));
        let matches = number.is_multiple_of(2);
        match self.operation {
            Operation::FetchAdd => self.word = original.wrapping_add(value),
            Operation::CompareSwap if matches => self.word = value,
            _ => (),
        }
        let compare = if matches { original } else { !original };
        (Operands { compare, value, ..Operands::default() }, original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Measure;

    #[test]
    fn a_round_is_of_the_test_and_fits_the_slots() {
        let good = |first, count| check_range(16, 100, first, count).is_ok();
        assert!(good(0, 16) && good(96, 4) && good(99, 1));
        for (first, count) in [(0, 0), (0, 17), (97, 4), (100, 1), (u64::MAX, 1), (0, 1 << 62)] {
            assert!(!good(first, count), "{first} {count}");
        }
    }

    #[test]
    fn added_values_sum_up() {
        let plan = Plan::new(Operation::FetchAdd, Measure::Latency);
        let mut algebra = Algebra::new(&plan, 0);
        let mut sum = 0u64;
        for number in 0..100 {
            let (operands, original) = algebra.next(number);
            assert_eq!(original, sum);
            sum = sum.wrapping_add(operands.value);
        }
        assert_eq!(algebra.word, sum);
    }

    #[test]
    fn every_other_comparison_fails_and_leaves_the_word() {
        let plan = Plan::new(Operation::CompareSwap, Measure::Latency);
        let mut algebra = Algebra::new(&plan, 1);
        for number in 0..100 {
            let before = algebra.word;
            let (operands, original) = algebra.next(number);
            assert_eq!(original, before);
            let swapped = operands.compare == before;
            assert_eq!(swapped, number % 2 == 0);
            assert_eq!(algebra.word, if swapped { operands.value } else { before });
        }
    }
}
