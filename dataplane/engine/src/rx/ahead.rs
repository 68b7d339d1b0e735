//! What the QPs of the next frames will need, fetched while the frames before are dealt with.
//!
//! As before a turn to send (`schedule::ahead`) each piece is found by way of the one before, so it
//! is fetched some frames after that one. None are looked at where all are one QP's, and some only
//! where a QP's stand together. The first of the next burst are looked at before its turn: a QP's turn
//! to send often ends where a burst does.
//!
//! Not here: the frames themselves ([`super`]).

use super::{BATCH, Frame, Frames, From, Mbuf, Qpn, Shard};
use crate::mr_table::Access;
use crate::prefetch::prefetch_value;

/// How many frames ahead a QP's context is fetched; the frame's own first line was before.
const CONTEXT: usize = 6;
/// How many frames after the context it is fetched where the QP's receives are.
const RING: usize = 2;
/// The same of the receives.
const POSTED: usize = 3;
/// The same of the memory of the first.
const MEMORY: usize = 5;

/// Of frames that stand together one in so many is looked at: to look at each costs as much as is
/// saved.
const STRIDE: usize = 4;
/// How many frames are looked at: all of a burst, and as far ahead of its last as of any.
const PLACES: usize = BATCH + CONTEXT;

/// Which QPs the frames of a burst and the next are for.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Bit *n*: the burst *n* before the last one ended with a frame for another QP than the one
    /// before it had.
    changes: u32,
    /// For which the last burst ended.
    end: Option<Qpn>,
    /// For which the frame is that was looked at last.
    last: Option<Qpn>,
    /// The one looked at before that was for the same.
    in_run: bool,
    /// The slot of each frame's QP, unless the frame looked at before is for the same.
    fresh: [Option<u32>; PLACES],
    /// Bit *n*: there is one for the frame that stands *n* before the last that was looked at.
    near: u32,
}

/// The bursts of which one has to have changed the QP: in a turn to send, a QP sends as many small
/// packets as two bursts hold.
const LATELY: u32 = 0b1111;

/// The distances at which there is something to fetch.
const DISTANCES: u32 = 1 | 1 << RING | 1 << POSTED | 1 << MEMORY;

impl Ahead {
    pub(super) fn new() -> Ahead {
        Ahead { changes: 0, end: None, last: None, in_run: false, fresh: [None; PLACES], near: 0 }
    }

    /// Whether one of the last bursts was of several QPs.
    #[inline]
    pub(super) fn is_looking(&self) -> bool {
        self.changes & LATELY != 0
    }

    /// The frame at a place of a burst is about to be dealt with. Fetches the first piece for the
    /// one that is so far ahead, and the others for those between.
    #[inline]
    pub(super) fn come_to(
        &mut self,
        at: usize,
        frames: Frames<'_>,
        from: &From<'_>,
        shard: &Shard,
        memory: &Access<'_>,
    ) {
        if !self.is_looking() {
            return;
        }
        let begin = if at == 0 { 0 } else { at + CONTEXT };
        for at in begin..=at + CONTEXT {
            self.find(at, frames.get(at).map(Mbuf::as_slice), from);
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

    /// All of the burst is dealt with, of which this was the last frame.
    #[inline]
    pub(super) fn end(&mut self, last: Option<&[u8]>) {
        let end = last.and_then(Frame::likely_dest_qpn);
        self.changes = self.changes << 1 | u32::from(end != self.end);
        (self.end, self.last) = (end, end);
    }

    /// Looks whom the frame at this place is for.
    #[inline]
    fn find(&mut self, at: usize, frame: Option<&[u8]>, from: &From<'_>) {
        self.near <<= 1;
        let Some(fresh) = self.fresh.get_mut(at) else { return };
        if self.in_run && !at.is_multiple_of(STRIDE) {
            *fresh = None;
            return;
        }
        let qpn = frame.and_then(Frame::likely_dest_qpn);
        self.in_run = qpn == self.last;
        *fresh = qpn.filter(|_| qpn != self.last).and_then(|qpn| from.find_own(qpn));
        self.near |= u32::from(fresh.is_some());
        self.last = qpn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Numbers;
    use crate::qp_table::{Place, QpFinder, QpTable};
    use std::sync::Arc;

    /// As much of a frame as tells whom it is for.
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
        let from = From { port: 0, lcore: 0, finder: &finder };
        let [a, b, elsewhere] = qpns.map(frame);
        let mut ahead = Ahead::new();
        let found = |ahead: &mut Ahead, frames: &[&[u8]]| {
            (0..=frames.len()).for_each(|at| ahead.find(at, frames.get(at).copied(), &from));
            ahead.fresh[..=frames.len()].to_vec()
        };
        let frames: [&[u8]; 9] = [&a, &a, &b, &b, &b, &elsewhere, &b, b"ARP", &b];
        // After two of one QP the next two are not looked at.
        let first = [Some(0), None, None, None, Some(1), None, Some(1), None, Some(1), None];
        assert_eq!(found(&mut ahead, &frames), first);
        ahead.end(Some(&b));
        // Nothing is left of the longer burst before, whose last frame's QP is still near.
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
        // The first and the sixth are another's than the one before.
        let four_each = [true, true, true, true, false, true, true, true, true, false];
        assert_eq!(looks, four_each);
    }
}
