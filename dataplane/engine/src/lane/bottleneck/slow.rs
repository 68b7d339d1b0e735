//! The frames of one lcore in a bottleneck: those that wait until they may leave, and those that
//! the port has not taken yet.
//!
//! ```text
//!   batch ─▶ take ─▶ waiting (frame, time) ─▶ release ─▶ leaving ─▶ tx_burst
//! ```

use super::backlog::Backlog;
use super::{BottleneckConfig, Red};
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::{BATCH, Mbuf, MbufBatch, Mempool};
use crate::lane::random::{Random, seed_at};
use std::collections::VecDeque;
use std::sync::Arc;
use uroce_transport::Instant;
use uroce_wire::mark_ce;

/// Bytes of the shortest frame, an acknowledgement without its ICRC, by which the most frames are
/// counted that a queue has to hold.
const LEAST: u32 = 58;
/// Largest number of frames of an lcore that wait: more than there are mbufs in a usual mempool.
const FRAMES_MAX: u32 = 1 << 16;
/// The share of a mempool that may wait for a rate that a command has set: one mbuf in so many. The
/// others are for queues, caches and received frames.
const SHARE: u32 = 4;

/// One lcore's side of a port's bottleneck. Made by the control plane, so that the lcore allocates
/// nothing.
#[derive(Debug)]
pub(crate) struct Bottleneck {
    /// The rate; `None` once it is taken away: frames then leave at once, and when none is left
    /// there is no bottleneck any more.
    rate_mbps: Option<u32>,
    queue: u32,
    /// A frame that finds no place is not dropped, but stays in the batch, as at a port that is
    /// full.
    is_patient: bool,
    red: Red,
    backlog: Arc<Backlog>,
    random: Random,
    /// The time of this turn.
    now: Instant,
    /// Frames that wait, in the order of the times at which they have left.
    waiting: VecDeque<(Instant, Mbuf)>,
    /// Largest number of frames that wait.
    frames_max: usize,
    /// Frames that have left the queue and wait for the port.
    pub(in crate::lane) leaving: MbufBatch,
    tally: Tally,
}

/// What has happened since the counters were last written.
#[derive(Debug, Default)]
struct Tally {
    served: u64,
    marked: u64,
    dropped: u64,
    deeper: u64,
}

impl Bottleneck {
    /// Makes the side of lcore number `lcore`. The configuration has been checked.
    pub(crate) fn new(
        config: &BottleneckConfig,
        lcore: usize,
        backlog: &Arc<Backlog>,
    ) -> Box<Bottleneck> {
        let frames_max = (config.queue / LEAST + 1).min(FRAMES_MAX) as usize;
        Bottleneck::with_places(config, lcore, backlog, frames_max, false)
    }

    /// Makes the side of lcore number `lcore` of `lcores`, all of which send from `pool`. It drops
    /// no frame: those of all lcores that wait are at most a share of the mempool.
    pub(crate) fn patient(
        config: &BottleneckConfig,
        [lcore, lcores]: [usize; 2],
        backlog: &Arc<Backlog>,
        pool: &Mempool,
    ) -> Box<Bottleneck> {
        let share = (pool.count() / SHARE).min(FRAMES_MAX) as usize / lcores;
        // A whole batch is taken while there is a place at all.
        let frames_max = share.saturating_sub(BATCH).max(1);
        Bottleneck::with_places(config, lcore, backlog, frames_max, true)
    }

    fn with_places(
        config: &BottleneckConfig,
        lcore: usize,
        backlog: &Arc<Backlog>,
        frames_max: usize,
        is_patient: bool,
    ) -> Box<Bottleneck> {
        Box::new(Bottleneck {
            rate_mbps: Some(config.rate_mbps),
            queue: config.queue,
            is_patient,
            red: Red::new(config),
            backlog: Arc::clone(backlog),
            random: Random::new(seed_at(config.seed, lcore)),
            now: Instant::from_nanos(0),
            waiting: VecDeque::with_capacity(frames_max + BATCH),
            frames_max,
            leaving: MbufBatch::new(),
            tally: Tally::default(),
        })
    }

    /// Called at the begin of a turn: frames that are taken from now on come at this time.
    pub(in crate::lane) fn begin(&mut self, now: Instant) {
        self.now = now;
    }

    /// Sets the rate; `None` takes it away. The frames that wait leave at the new rate from now on.
    /// `is_first` is true for the first of the lcores that the change reaches.
    pub(in crate::lane) fn set_rate(&mut self, rate_mbps: Option<u32>, is_first: bool) {
        if is_first {
            self.backlog.clear();
        }
        self.rate_mbps = rate_mbps;
        for (leaves, mbuf) in &mut self.waiting {
            let place = rate_mbps
                .and_then(|rate| self.backlog.admit(mbuf.len() as u32, self.now, rate, u32::MAX));
            *leaves = place.map_or(self.now, |place| place.leaves);
        }
    }

    /// Returns whether the rate was taken away and no frame is left.
    pub(in crate::lane) fn is_over(&self) -> bool {
        self.rate_mbps.is_none() && self.is_empty()
    }

    /// Takes all frames of a batch into the queue; marks or drops them as the queue's length has
    /// it. Returns how many there were. Where no frame is dropped, none is taken from a batch that
    /// finds the queue full.
    pub(in crate::lane) fn take(&mut self, batch: &mut MbufBatch) -> usize {
        let is_patient = self.is_patient || self.rate_mbps.is_none();
        if is_patient && self.waiting.len() >= self.frames_max {
            return 0;
        }
        let count = batch.len();
        for mbuf in batch.drain() {
            self.take_frame(mbuf);
        }
        count
    }

    fn take_frame(&mut self, mut mbuf: Mbuf) {
        // An mbuf has at most 2^16 bytes.
        let bytes = mbuf.len() as u32;
        let Some(rate_mbps) = self.rate_mbps else {
            self.waiting.push_back((self.now, mbuf));
            return;
        };
        let has_place = self.is_patient || self.waiting.len() < self.frames_max;
        let queue = if self.is_patient { u32::MAX } else { self.queue };
        let place = has_place.then(|| self.backlog.admit(bytes, self.now, rate_mbps, queue));
        let Some(place) = place.flatten() else {
            self.tally.dropped += 1;
            return;
        };
        let chance = self.red.chance(place.depth);
        if chance > 0 && self.random.hits(chance) && mark_ce(mbuf.as_mut_slice()) {
            self.tally.marked += 1;
        }
        self.tally.deeper += self.backlog.note_depth(u64::from(place.depth) + u64::from(bytes));
        self.waiting.push_back((place.leaves, mbuf));
    }

    /// Moves frames that may leave by now to `leaving`, as far as it has room. Returns whether any
    /// frame is there.
    pub(in crate::lane) fn release(&mut self) -> bool {
        while self.leaving.room() > 0
            && self.waiting.front().is_some_and(|(leaves, _)| *leaves <= self.now)
            && let Some((_, mbuf)) = self.waiting.pop_front()
        {
            let pushed = self.leaving.push(mbuf);
            debug_assert!(pushed.is_ok(), "the loop checks for room");
            self.tally.served += 1;
        }
        !self.leaving.is_empty()
    }

    /// Writes what has happened since the last call to the counters.
    pub(in crate::lane) fn count(&mut self, counters: &CounterBlock) {
        let Tally { served, marked, dropped, deeper } = std::mem::take(&mut self.tally);
        counters.add(EngineCounter::BottleneckServed, served);
        counters.add(EngineCounter::BottleneckMarked, marked);
        counters.add(EngineCounter::BottleneckDropped, dropped);
        counters.add(EngineCounter::BottleneckDepth, deeper);
    }

    /// Returns whether no frame waits.
    pub(in crate::lane) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.leaving.is_empty()
    }

    /// Drops all frames that wait; returns how many. Their time in the queue passes all the same.
    pub(in crate::lane) fn drop_waiting(&mut self) -> u64 {
        let count = (self.waiting.len() + self.leaving.len()) as u64;
        self.waiting.clear();
        self.leaving.clear();
        count
    }

    /// Called when another bottleneck, or none, takes this one's place: drops and counts the frames
    /// that wait, and empties the queue.
    pub(in crate::lane) fn end(&mut self, counters: &CounterBlock) {
        self.tally.dropped += self.drop_waiting();
        self.backlog.clear();
        self.count(counters);
    }
}
