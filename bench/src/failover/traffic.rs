//! Traffic without end whose every byte is looked at: SENDs, numbered per queue pair.
//!
//! The immediate data is the message's number, the payload a pattern of queue pair and number. So a
//! message that does not come, comes twice, or is another's shows.
//!
//! Invariant: a receive request is given back as soon as its message has been looked at, so there
//! is one for each message under way.

use crate::error::{BenchError, Step};
use crate::pattern::Pattern;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uroce::{
    AccessFlags, CompletionQueue, Context, ImmDt, LcoreGuard, MemoryRegion, QpInit, QueuePair,
    RecvWr, SendWr, WorkCompletion,
};

/// Completions taken at once.
const BATCH: usize = 64;
/// How fine the record of what was received is.
pub(super) const GRAIN: Duration = Duration::from_micros(50);
/// Without anything happening for so long, what is missing is lost.
const PATIENCE: Duration = Duration::from_secs(3);

/// One end of all queue pairs.
pub(super) struct End {
    /// In the order of the other end's.
    pub(super) qps: Vec<QueuePair>,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    /// Queue pairs with memory for `depth` messages each.
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

/// How much there is of what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Queue pairs.
    pub(super) qps: u32,
    /// Messages under way on each.
    pub(super) depth: u32,
    /// Bytes of a message.
    pub(super) size: u32,
}

/// What the threads tell each other.
#[derive(Debug, Default)]
pub(super) struct Signals {
    /// When the cut was complete, ns since the epoch; 0 before.
    pub(super) cut_ns: AtomicU64,
    /// No message is to be begun any more.
    pub(super) stop: AtomicBool,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Messages posted.
    pub(super) messages: u64,
    /// Of them, those that did not arrive.
    pub(super) lost: u64,
    /// Arrivals of a message that had arrived before.
    pub(super) doubled: u64,
    /// Arrivals whose payload was not what was sent.
    pub(super) corrupt: u64,
    /// Messages received in each [`GRAIN`] since the epoch.
    pub(super) received: Vec<u32>,
    /// Since the epoch: each queue pair's first acknowledgement after the cut.
    pub(super) recovered: Vec<Option<Duration>>,
}

/// A queue pair's numbers, as each end counts them.
#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    posted: u64,
    completed: u64,
    /// Of the next message to arrive.
    expected: u64,
}

/// The traffic from one end to the other, by the thread that drives both.
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

    /// Until told to stop, and then until everything has arrived or nothing does any more.
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
            // Read before the turn: what this turn receives after a cut came the other way.
            let is_cut = self.signals.cut_ns.load(Ordering::Acquire) != 0;
            lcores.iter_mut().for_each(|lcore| {
                lcore.turn();
            });
            let mut moved = self.take_received()?;
            // All of them: one that is left would be taken for an acknowledgement of the next turn.
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

    /// Where a slot of a lane begins in the memory of either end.
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

    /// Goes on with each queue pair whose message is acknowledged.
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

    /// Whether it is the message that must come next, byte for byte.
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
