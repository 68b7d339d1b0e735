//! The sending half of a lane: packets become frames, which wait for the port.
//!
//! Invariants
//! - An accepted packet is sent: frames that the port does not take stay at the front of the batch.
//!   A full batch or an empty mempool is [`TransmitError::Full`], never a loss. Frames are lost
//!   only by injected loss, in a bottleneck, at a port with its link down, and at one that has
//!   taken nothing for long.
//!
//! Not here: frames that are looped back ([`super::loopback`]).

use super::bottleneck::slow::Bottleneck;
use super::faults::Faults;
use super::frame::build;
use super::patience::Patience;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::{BATCH, Mbuf, MbufBatch, Mempool};
use uroce_shared::memory::mr_table::MrView;
use uroce_transport::{Instant, Outbound, TransmitError};
use uroce_wire::{HeaderTemplate, OuterSums, Qpn};

/// Mbufs taken from the mempool at a time. An idle lcore holds up to `SPARE` + [`AHEAD`] mbufs.
const SPARE: usize = BATCH / 4;
/// How many packets ahead an mbuf's header and first lines are prefetched, since another core used
/// them last. One mbuf is prefetched per packet: many at once would delay other cache lines.
const AHEAD: usize = 8;
/// How many packets ahead the remaining lines of a large packet's mbuf are prefetched.
const REST_AHEAD: usize = 2;

/// The frames that wait for a port, and the mbufs from which frames are made.
#[derive(Debug)]
pub(crate) struct TxLane {
    /// Injected faults.
    pub(super) faults: Option<Box<Faults>>,
    /// Bottleneck between the batch and the port.
    pub(super) bottleneck: Option<Box<Bottleneck>>,
    /// A bottleneck that is over, for the next rate: an lcore allocates and frees nothing.
    pub(super) former_bottleneck: Option<Box<Bottleneck>>,
    /// Frames that wait for the port, or for the bottleneck to take them.
    pub(super) batch: MbufBatch,
    /// Limits how long frames wait for a port that takes nothing.
    pub(super) patience: Patience,
    /// How many of the frames that the port itself has dropped are counted already.
    pub(super) stuck: u64,
    /// Packets accepted since the start; the scheduler limits turns by them.
    pub(super) taken: u64,
    /// Bytes of the frames of those packets; the scheduler limits turns by them, too.
    pub(super) taken_bytes: u64,
    pool: Mempool,
    sums: OuterSums,
    /// Empty mbufs.
    spare: MbufBatch,
    /// Whether the mempool was found empty in this turn.
    starved: bool,
}

impl TxLane {
    pub(super) fn new(
        pool: Mempool,
        faults: Option<Box<Faults>>,
        bottleneck: Option<Box<Bottleneck>>,
    ) -> TxLane {
        TxLane {
            faults,
            bottleneck,
            former_bottleneck: None,
            batch: MbufBatch::new(),
            patience: Patience::new(),
            stuck: 0,
            taken: 0,
            taken_bytes: 0,
            pool,
            sums: OuterSums::new(),
            spare: MbufBatch::new(),
            starved: false,
        }
    }

    /// Builds a packet.
    #[inline(always)]
    pub(super) fn build(
        &mut self,
        template: &HeaderTemplate,
        packet: &Outbound<'_>,
        memory: &MrView<'_>,
    ) -> Result<Mbuf, TransmitError> {
        let mut mbuf = self.empty_mbuf().ok_or(TransmitError::Full)?;
        let next = self.spare.as_slice().iter().nth_back(REST_AHEAD - 1);
        let built = build(&mut mbuf, template, packet, memory, &mut self.sums, next);
        if let Err(refused) = built {
            self.give_back(mbuf);
            return Err(refused);
        }
        Ok(mbuf)
    }

    /// Counts a frame of a QP that is sent. Returns its length in bytes.
    #[inline]
    pub(super) fn count_sent(&mut self, mbuf: &Mbuf, counters: &CounterBlock) -> u32 {
        let len = mbuf.len();
        counters.count(EngineCounter::TxPackets);
        counters.add(EngineCounter::TxBytes, len as u64);
        self.count_taken(len);
        len as u32
    }

    /// Drops a frame that was accepted from a QP, and counts it under `reason`.
    #[cold]
    pub(super) fn drop_taken(
        &mut self,
        mbuf: Mbuf,
        reason: EngineCounter,
        counters: &CounterBlock,
    ) {
        counters.count(reason);
        self.count_taken(mbuf.len());
        self.give_back(mbuf);
    }

    /// Applies injected loss to a frame of a QP, and counts it as sent or as lost. `None` if it is
    /// lost.
    pub(super) fn lose(&mut self, mbuf: Mbuf, by: Qpn, counters: &CounterBlock) -> Option<Mbuf> {
        if self.loses(Some(by), counters) {
            self.count_taken(mbuf.len());
            self.give_back(mbuf);
            return None;
        }
        self.count_sent(&mbuf, counters);
        Some(mbuf)
    }

    /// Returns whether injected loss drops the next frame, which this QP sends. `None` for a
    /// forwarded frame.
    pub(super) fn loses(&mut self, by: Option<Qpn>, counters: &CounterBlock) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.loses(by, counters))
    }

    /// Applies the other faults to a frame of a QP, or a forwarded one. Returns it if it is sent
    /// now.
    pub(super) fn detour(
        &mut self,
        mbuf: Mbuf,
        by: Option<Qpn>,
        now: Instant,
        counters: &CounterBlock,
    ) -> Option<Mbuf> {
        match &mut self.faults {
            Some(faults) => faults.detour(mbuf, by, now, counters),
            None => Some(mbuf),
        }
    }

    /// Returns how many frames were to be delayed and were lost, because there was no place.
    pub(super) fn crowded_out(&self) -> u64 {
        self.faults.as_ref().map_or(0, |faults| faults.crowded_out())
    }

    #[inline]
    pub(super) fn count_taken(&mut self, len: usize) {
        self.taken += 1;
        self.taken_bytes += len as u64;
    }

    /// Returns a copy of the frame; `None` if the mempool is empty.
    pub(super) fn copy_of(&mut self, frame: &Mbuf) -> Option<Mbuf> {
        let mut copy = self.pool.alloc().ok()?;
        copy.set_len(frame.len()).ok()?;
        copy.as_mut_slice().copy_from_slice(frame.as_slice());
        Some(copy)
    }

    /// Returns a copy of the frame for a raw QP; `None` if that would leave RoCE few mbufs.
    pub(super) fn spare_copy_of(&mut self, frame: &Mbuf) -> Option<Mbuf> {
        if self.pool.is_short() { None } else { self.copy_of(frame) }
    }

    /// Returns the frame if it is in an mbuf of this port's mempool, else a copy that is; `None` if
    /// the mempool is empty.
    pub(super) fn own(&mut self, frame: Mbuf) -> Option<Mbuf> {
        match self.pool.owns(&frame) {
            true => Some(frame),
            false => self.copy_of(&frame),
        }
    }

    /// Takes back an mbuf that was taken by [`empty_mbuf`](TxLane::empty_mbuf) and is not needed.
    pub(super) fn give_back(&mut self, mbuf: Mbuf) {
        // There is room: the mbuf was taken from this batch.
        let pushed = self.spare.push(mbuf);
        debug_assert!(pushed.is_ok(), "the mbuf was taken from this batch");
    }

    /// Queues a frame for the port. There must be room in the batch.
    #[inline]
    pub(super) fn queue(&mut self, mbuf: Mbuf) {
        let pushed = self.batch.push(mbuf);
        debug_assert!(pushed.is_ok(), "the caller has looked for room");
    }

    /// Returns whether no frame waits for the port or in a bottleneck.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.is_empty() && self.bottleneck.as_ref().is_none_or(|slow| slow.is_empty())
    }

    /// Drops the frames that wait for the port, those in a bottleneck too; returns how many.
    #[cold]
    pub(super) fn drop_waiting(&mut self) -> u64 {
        let waiting = self.batch.len() as u64;
        self.batch.clear();
        waiting + self.bottleneck.as_mut().map_or(0, |slow| slow.drop_waiting())
    }

    /// Called at the end of a turn in which the port has left frames: drops them if it has taken
    /// nothing for long, as if the link were down.
    #[cold]
    pub(super) fn lose_if_stuck(&mut self, now: Instant, counters: &CounterBlock) {
        if self.patience.is_over(now) {
            counters.add(EngineCounter::TxStuck, self.drop_waiting());
        }
    }

    /// Returns, once, whether the mempool was found empty since the last call.
    #[inline]
    pub(super) fn take_starved(&mut self) -> bool {
        std::mem::take(&mut self.starved)
    }

    /// Returns an empty mbuf; `None` if the mempool has none.
    #[inline]
    pub(super) fn empty_mbuf(&mut self) -> Option<Mbuf> {
        if self.spare.len() <= AHEAD && !self.refill() && self.spare.is_empty() {
            self.starved = true;
            return None;
        }
        let mut mbuf = self.spare.pop()?;
        if let Some(ahead) = self.spare.as_slice().iter().nth_back(AHEAD - 1) {
            ahead.prefetch_start();
        }
        mbuf.reset();
        Some(mbuf)
    }

    /// Takes more mbufs from the mempool; returns whether it had any. Mbufs that are already there
    /// are used first, since they have been prefetched. A nearly empty mempool may have one mbuf
    /// but not a batch of them.
    #[cold]
    fn refill(&mut self) -> bool {
        let had = self.spare.len();
        let filled = self.pool.take_burst(&mut self.spare, SPARE).is_ok()
            || self.pool.take_burst(&mut self.spare, 1).is_ok();
        self.spare.as_mut_slice().rotate_left(had);
        filled
    }
}
