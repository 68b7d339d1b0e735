//! Endless traffic with all bytes checked: SENDs, numbered per queue pair.
//!
//! The immediate data is the message's number, the payload a pattern derived from queue pair and
//! number. A message that is lost, arrives twice or at the wrong place is detected.
//!
//! Invariant: a receive request is posted again as soon as its message is checked, so that there is
//! one for each message in flight.

use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uroce::{
    AccessFlags, CompletionQueue, Context, ImmDt, LcoreGuard, MemoryRegion, QpInit, QueuePair,
    RecvWr, SendWr, WorkCompletion,
};

/// Completions polled at once.
const BATCH: usize = 64;
/// Resolution of the record of received messages.
pub(super) const GRAIN: Duration = Duration::from_micros(50);
/// Time without any progress after which missing messages count as lost.
const PATIENCE: Duration = Duration::from_secs(3);

/// One end of all queue pairs.
pub(super) struct End {
    /// Queue pairs in the order of the other end's.
    pub(super) qps: Vec<QueuePair>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    /// Creates queue pairs with memory for `depth` messages each.
    pub(super) fn new(context: &Context, shape: Shape) -> Result<End, BenchError> {
        let pd = context.allocate_pd();
        let slots = shape.qps as usize * shape.depth as usize;
        let memory = pd
            .allocate(slots * shape.size as usize, AccessFlags::LOCAL_WRITE)
            .step("allocating memory")?;
        let cq = context.create_cq(slots as u32).step("creating a completion queue")?;
        let mut init = QpInit::new(&cq);
        (init.caps.max_send_wr, init.caps.max_recv_wr) = (shape.depth, shape.depth);
        (init.caps.max_send_sge, init.caps.max_recv_sge) = (1, 1);
        let qps = (0..shape.qps).map(|_| pd.create_qp(&init).step("creating a queue pair"));
        Ok(End { qps: qps.collect::<Result<_, _>>()?, cq, memory })
    }
}

/// Size of the traffic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Queue pairs.
    pub(super) qps: u32,
    /// Messages in flight on each queue pair.
    pub(super) depth: u32,
    /// Bytes of a message.
    pub(super) size: u32,
}

/// Signals between the threads.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// Time at which the cut was complete, ns since the epoch; 0 before.
    pub(super) cut_ns: AtomicU64,
    /// No further message is to be posted.
    pub(super) stop: AtomicBool,
}

/// Results of the traffic.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Messages posted.
    pub(super) messages: u64,
    /// Messages that did not arrive.
    pub(super) lost: u64,
    /// Messages that arrived again.
    pub(super) doubled: u64,
    /// Messages that arrived with a wrong payload.
    pub(super) corrupt: u64,
    /// Messages received in each [`GRAIN`] since the epoch.
    pub(super) received: Vec<u32>,
    /// First acknowledgement of each queue pair after the cut, since the epoch.
    pub(super) recovered: Vec<Option<Duration>>,
}

/// Message counts of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    posted: u64,
    completed: u64,
    /// Number of the next message to arrive.
    expected: u64,
}

/// Traffic from one end to the other. One thread runs it and drives both lcores.
pub(super) struct Traffic<'a> {
    from: End,
    to: End,
    shape: Shape,
    epoch: Instant,
    signals: &'a Signals,
    lanes: Vec<Lane>,
    tally: Tally,
    buffer: Vec<u8>,
}

impl<'a> Traffic<'a> {
    pub(super) fn new(
        from: End,
        to: End,
        shape: Shape,
        epoch: Instant,
        signals: &'a Signals,
    ) -> Traffic<'a> {
        let qps = shape.qps as usize;
        Traffic {
            from,
            to,
            shape,
            epoch,
            signals,
            lanes: vec![Lane::default(); qps],
            tally: Tally { recovered: vec![None; qps], ..Tally::default() },
            buffer: vec![0; shape.size as usize],
        }
    }

    /// Sends until told to stop, then runs until all messages have arrived or none has for
    /// [`PATIENCE`].
    pub(super) fn run(mut self, mut lcores: [LcoreGuard; 2]) -> Result<Tally, BenchError> {
        for lane in 0..self.lanes.len() {
            for slot in 0..self.shape.depth {
                self.post_recv(lane, slot)?;
            }
            for _ in 0..self.shape.depth {
                self.post_send(lane)?;
            }
        }
        let mut last = Instant::now();
        loop {
            // Read before the turn: an acknowledgement received in this turn then came after the
            // cut.
            let is_cut = self.signals.cut_ns.load(Ordering::Acquire) != 0;
            lcores.iter_mut().for_each(|lcore| {
                lcore.turn();
            });
            let mut moved = self.take_received()?;
            // All are polled: one left over would count as an acknowledgement of the next turn.
            loop {
                let taken = self.take_sent(is_cut)?;
                moved += taken;
                if taken < BATCH {
                    break;
                }
            }
            if moved > 0 {
                last = Instant::now();
                continue;
            }
            let arrived =
                |lane: &Lane| lane.posted == lane.completed && lane.posted == lane.expected;
            let stopped = self.signals.stop.load(Ordering::Acquire);
            if stopped && (self.lanes.iter().all(arrived) || last.elapsed() > PATIENCE) {
                break;
            }
        }
        let missing = |lane: &Lane| lane.posted.saturating_sub(lane.expected);
        self.tally.lost += self.lanes.iter().map(missing).sum::<u64>();
        self.tally.messages = self.lanes.iter().map(|lane| lane.posted).sum();
        Ok(self.tally)
    }

    /// Returns the offset of a slot in the memory of either end.
    fn slot(&self, lane: usize, slot: u32) -> usize {
        (lane * self.shape.depth as usize + slot as usize) * self.shape.size as usize
    }

    fn post_send(&mut self, lane: usize) -> Result<(), BenchError> {
        let number = self.lanes[lane].posted;
        let at = self.slot(lane, (number % u64::from(self.shape.depth)) as u32);
        Pattern::new(lane as u64).fill(number, &mut self.buffer);
        let memory = &self.from.memory;
        memory.write_at(at, &self.buffer).step("filling a message")?;
        let slices = [memory.slice(at..at + self.buffer.len()).step("a slice of memory")?];
        let wr = SendWr::send_with_imm(&slices, ImmDt(number as u32)).id(lane as u64).signaled();
        self.from.qps[lane].post_send(&wr).step("posting")?;
        self.lanes[lane].posted += 1;
        Ok(())
    }

    fn post_recv(&mut self, lane: usize, slot: u32) -> Result<(), BenchError> {
        let at = self.slot(lane, slot);
        let slice = self.to.memory.slice(at..at + self.buffer.len()).step("a slice of memory")?;
        let wr_id = (lane as u64) << 32 | u64::from(slot);
        self.to.qps[lane].post_recv(&RecvWr::new(&[slice]).id(wr_id)).step("posting a receive")
    }

    /// Counts acknowledged messages and posts the next ones.
    fn take_sent(&mut self, is_cut: bool) -> Result<usize, BenchError> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let count = poll(&self.from.cq, &mut completions)?;
        let stopped = self.signals.stop.load(Ordering::Acquire);
        for completion in &completions[..count] {
            let lane = completion.wr_id as usize;
            self.lanes[lane].completed += 1;
            if is_cut {
                self.tally.recovered[lane].get_or_insert_with(|| self.epoch.elapsed());
            }
            if !stopped {
                self.post_send(lane)?;
            }
        }
        Ok(count)
    }

    fn take_received(&mut self) -> Result<usize, BenchError> {
        let mut completions = [WorkCompletion::default(); BATCH];
        let count = poll(&self.to.cq, &mut completions)?;
        for completion in &completions[..count] {
            let (lane, slot) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32);
            self.check(lane, slot, completion)?;
            self.post_recv(lane, slot)?;
        }
        if count > 0 {
            let grain = (self.epoch.elapsed().as_nanos() / GRAIN.as_nanos()) as usize;
            let record = &mut self.tally.received;
            record.resize(record.len().max(grain + 1), 0);
            record[grain] += count as u32;
        }
        Ok(count)
    }

    /// Checks that a message is the next one of its queue pair, byte for byte.
    fn check(
        &mut self,
        lane: usize,
        slot: u32,
        completion: &WorkCompletion,
    ) -> Result<(), BenchError> {
        let expected = self.lanes[lane].expected;
        let ahead =
            completion.imm.map_or(0, |imm| imm.0.wrapping_sub(expected as u32).cast_signed());
        if ahead < 0 {
            self.tally.doubled += 1;
            return Ok(());
        }
        let number = expected + u64::from(ahead.cast_unsigned());
        self.tally.lost += number - expected;
        self.lanes[lane].expected = number + 1;
        let at = self.slot(lane, slot);
        self.to.memory.read_at(at, &mut self.buffer).step("reading a message")?;
        let whole = completion.byte_len == self.shape.size && completion.imm.is_some();
        if !whole || Pattern::new(lane as u64).mismatch(number, &self.buffer).is_some() {
            self.tally.corrupt += 1;
        }
        Ok(())
    }
}

fn poll(cq: &CompletionQueue, completions: &mut [WorkCompletion]) -> Result<usize, BenchError> {
    let count = cq.poll(completions).step("polling a CQ")?;
    for completion in &completions[..count] {
        let failed = |status| BenchError::Completion { operation: "SEND", status };
        completion.ok().map_err(failed)?;
    }
    Ok(count)
}
