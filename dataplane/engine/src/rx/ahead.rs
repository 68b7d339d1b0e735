//! Prefetch for later frames: while one frame is handled, the data that the QPs of the next frames
//! use is prefetched.
//!
//! The pieces are the QP's context, the ring of its receive queue, the posted receives, and their
//! memory. Each piece contains the address of the next one, so the next one is prefetched some
//! frames later. QPs are looked up only if one of the last four bursts ended with another QP
//! than the burst before it. Otherwise all frames are assumed to be for one QP that is in the cache
//! already. Where several frames for one QP follow each other, only some of them are looked at. The
//! first frames of the next burst are looked at during this one, because a peer often turns to
//! another QP at the end of a burst.
//!
//! Not here: the frames themselves ([`super`]).

use super::destination::Arrival;
use super::frames::Frames;
use crate::dpdk::mbuf::{BATCH, Mbuf};
use crate::qp::shard::Shard;
use uroce_shared::copy::prefetch::prefetch_value;
use uroce_shared::memory::mr_table::MrView;
use uroce_wire::{Frame, Qpn};

/// How many frames ahead a QP's context is prefetched. The frame's headers, which contain the QPN,
/// are prefetched earlier.
const CONTEXT: usize = 6;
/// How many frames after the context the receive queue's ring is prefetched.
const RING: usize = 2;
/// How many frames after the context the posted receives are prefetched.
const POSTED: usize = 3;
/// How many frames after the context the memory of the first receive is prefetched.
const MEMORY: usize = 5;

/// Among consecutive frames for one QP, one in `STRIDE` is looked at. To look at all of them costs
/// as much as it saves.
const STRIDE: usize = 4;
/// Number of places that are looked at: those of a whole burst, and `CONTEXT` places after it.
const PLACES: usize = BATCH + CONTEXT;

/// The QPs that the frames of this burst and of the next are for.
#[derive(Debug)]
pub(super) struct Ahead {
    /// One bit per burst, the latest burst in bit 0. A bit is set if the last frame of its burst
    /// was for another QP than the last frame of the burst before.
    changes: u32,
    /// The QP of the last burst's last frame.
    end: Option<Qpn>,
    /// The QP of the frame that was looked at last.
    last: Option<Qpn>,
    /// Whether the frame looked at last was for the same QP as the one looked at before it.
    in_run: bool,
    /// For each place, the slot of the QP that the frame is for. `None` if the frame is not looked
    /// at, if the frame looked at before it is for the same QP, or if this lcore has no such QP.
    fresh: [Option<u32>; PLACES],
    /// Bit *n* is set if `fresh` has a slot for the frame *n* places before the one that
    /// [`find`](Self::find) was last called for.
    near: u32,
}

/// Mask of the bits in `changes` that count: QPs are looked up while any of them is set. It covers
/// four bursts, since one QP of a peer may fill two bursts with small packets before another has
/// its turn.
const LATELY: u32 = 0b1111;

/// Mask of the distances at which there is something to prefetch.
const DISTANCES: u32 = 1 | 1 << RING | 1 << POSTED | 1 << MEMORY;

impl Ahead {
    pub(super) fn new() -> Ahead {
        Ahead { changes: 0, end: None, last: None, in_run: false, fresh: [None; PLACES], near: 0 }
    }

    /// Returns whether one of the last bursts ended with another QP than the burst before it. Only
    /// then are QPs looked up.
    #[inline]
    pub(super) fn is_looking(&self) -> bool {
        self.changes & LATELY != 0
    }

    /// Called before the frame at place `at` of a burst is handled. Prefetches the QP's context for
    /// the frame `CONTEXT` places ahead, and the later pieces for the frames in between.
    #[inline]
    pub(super) fn come_to(
        &mut self,
        at: usize,
        frames: Frames<'_>,
        arrival: &Arrival<'_>,
        shard: &Shard,
        memory: &MrView<'_>,
    ) {
        if !self.is_looking() {
            return;
        }
        let begin = if at == 0 { 0 } else { at + CONTEXT };
        for at in begin..=at + CONTEXT {
            self.find(at, frames.get(at).map(Mbuf::as_slice), arrival);
            if self.near & DISTANCES == 0 {
                continue;
            }
            let before = |frames: usize| {
                let fresh = self.fresh.get(at.checked_sub(frames)?)?;
                shard.get((*fresh)?)
            };
            if let Some(context) = before(0) {
                prefetch_value(context);
            }
            if let Some(context) = before(RING) {
                context.queues.rq.borrow().prefetch_ring();
            }
            if let Some(context) = before(POSTED) {
                context.queues.rq.borrow().prefetch_posted(&context.qp);
            }
            if let Some(context) = before(MEMORY) {
                context.queues.rq.borrow().prefetch_memory(memory);
            }
        }
    }

    /// Called after all frames of a burst are handled. `last` is its last frame.
    #[inline]
    pub(super) fn end(&mut self, last: Option<&[u8]>) {
        let end = last.and_then(Frame::likely_dest_qpn);
        self.changes = self.changes << 1 | u32::from(end != self.end);
        (self.end, self.last) = (end, end);
    }

    /// Looks up the QP of the frame at place `at`, and records its slot in `fresh`.
    #[inline]
    fn find(&mut self, at: usize, frame: Option<&[u8]>, arrival: &Arrival<'_>) {
        self.near <<= 1;
        let Some(fresh) = self.fresh.get_mut(at) else { return };
        if self.in_run && !at.is_multiple_of(STRIDE) {
            *fresh = None;
            return;
        }
        let qpn = frame.and_then(Frame::likely_dest_qpn);
        self.in_run = qpn == self.last;
        *fresh = qpn.filter(|_| qpn != self.last).and_then(|qpn| arrival.find_own(qpn));
        self.near |= u32::from(fresh.is_some());
        self.last = qpn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use uroce_shared::table::key::Numbers;
    use uroce_shared::table::qp_table::{Place, QpFinder, QpTable};

    /// Makes the beginning of a frame, up to its destination QPN.
    fn frame(qpn: Qpn) -> [u8; 54] {
        let mut frame = [0; 54];
        frame[12] = 0x08;
        frame[46..50].copy_from_slice(&qpn.value().to_be_bytes());
        frame
    }

    #[test]
    fn the_first_frame_looked_at_of_each_run_for_an_own_qp_is_known() {
        let numbers = Numbers::random(8).unwrap();
        let table = QpTable::new(8, numbers.clone());
        let qpns = [0, 1, 2].map(|index| Qpn::new(numbers.qpn(index, 0)));
        for (index, owner) in [(0, 0), (1, 0), (2, 1)] {
            table.publish(qpns[index as usize], Place { index, owner });
        }
        let finder = QpFinder::new(Arc::new(table));
        let arrival = Arrival { port: 0, lcore: 0, finder: &finder };
        let [a, b, elsewhere] = qpns.map(frame);
        let mut ahead = Ahead::new();
        let found = |ahead: &mut Ahead, frames: &[&[u8]]| {
            (0..=frames.len()).for_each(|at| ahead.find(at, frames.get(at).copied(), &arrival));
            ahead.fresh[..=frames.len()].to_vec()
        };
        let frames: [&[u8]; 9] = [&a, &a, &b, &b, &b, &elsewhere, &b, b"ARP", &b];
        // After two frames of one QP the next two are not looked at.
        let first = [Some(0), None, None, None, Some(1), None, Some(1), None, Some(1), None];
        assert_eq!(found(&mut ahead, &frames), first);
        ahead.end(Some(&b));
        // No slot of the previous burst, which was longer, is left. The QP of that burst's last
        // frame is not looked up again.
        let next: [&[u8]; 5] = [&b, &b, &b, &b, &a];
        assert_eq!(found(&mut ahead, &next), [None, None, None, None, Some(0), None]);
    }

    #[test]
    fn nothing_is_looked_at_while_all_bursts_end_with_one_qp() {
        let [a, b] = [Qpn::new(5), Qpn::new(6)].map(frame);
        let mut ahead = Ahead::new();
        let looks = [&a, &a, &a, &a, &a, &b, &b, &b, &b, &b].map(|last| {
            ahead.end(Some(last));
            ahead.is_looking()
        });
        // The first burst and the sixth end with another QP than the burst before them.
        let four_each = [true, true, true, true, false, true, true, true, true, false];
        assert_eq!(looks, four_each);
    }
}
