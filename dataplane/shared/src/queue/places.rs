//! Places of work queues: tells posting threads how many places polled completions have freed.
//!
//! ```text
//!   end ── posts, at positions ──▶ lcore ── completion up to a position ──▶ poll
//!    ▲                                                                       │
//!    └────────────────────────────── Cell: freed ◀───────────────────────────┘
//! ```
//!
//! As with NICs, a work request's place is free when its completion, or a later one of its queue,
//! has been polled: a program that posts until there is no room never has more completions under
//! way than its queues have places.
//!
//! Invariants
//! - Positions count modulo 2^32 and only grow, over all queue pairs that a slot ever has: each
//!   queue pair begins after all positions that the one before can have reached
//!   ([`QpPlaces::fresh`]). So a completion that is polled late, twice or by several threads frees
//!   no place that is in use.
//! - A completion of a queue pair that is gone frees nothing: the cell names its queue pair.
//! - A place that is read as free was taken out of its ring before: the poll that freed it had read
//!   the lcore's entry in the completion queue.

use super::MAX_WR;
use super::ring::Which;
use crate::sync::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use uroce_transport::{Cqe, WcOpcode};
use uroce_wire::Qpn;

/// Cells that are allocated together.
const CHUNK: usize = 64;

/// Bytes per QP: its cell.
pub const BYTES_PER_QP: usize = size_of::<Cell>();

/// Shared by the pollers and posters of one queue pair: one cache line, which no lcore writes while
/// it sends or receives.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    /// The queue pair of the completions that count; 0 if there is none.
    qpn: AtomicU32,
    /// Positions up to which places are free.
    sends: AtomicU32,
    recvs: AtomicU32,
}

impl Cell {
    fn freed(&self, which: Which) -> &AtomicU32 {
        match which {
            Which::Send => &self.sends,
            Which::Recv => &self.recvs,
        }
    }

    /// Frees the places up to a position, unless they are already free.
    #[inline]
    fn free(&self, which: Which, position: u32) {
        let freed = self.freed(which);
        let mut now = freed.load(Ordering::Relaxed);
        while is_ahead(position, now) {
            // Pairs with `QpPlaces::freed`.
            let (success, failure) = (Ordering::Release, Ordering::Relaxed);
            match freed.compare_exchange(now, position, success, failure) {
                Ok(_) => return,
                Err(later) => now = later,
            }
        }
    }
}

/// Returns whether the first of two positions, less than 2^31 apart, is the later one.
#[inline]
pub(super) const fn is_ahead(position: u32, other: u32) -> bool {
    position.wrapping_sub(other).cast_signed() > 0
}

/// The cells of an engine's queue pairs, by slot. A cell that was made stays.
#[derive(Debug)]
pub struct Places {
    chunks: Box<[OnceLock<Arc<[Cell]>>]>,
    slots: usize,
}

impl Places {
    /// Makes room for `slots` queue pairs.
    pub fn new(slots: u32) -> Places {
        let chunks = (slots as usize).div_ceil(CHUNK);
        Places { chunks: (0..chunks).map(|_| OnceLock::new()).collect(), slots: slots as usize }
    }

    /// Gives the cell of a slot to a new queue pair. `None` if there is no such slot.
    pub fn begin(&self, slot: u32, qpn: Qpn) -> Option<QpPlaces> {
        let (slot, at) = (slot as usize, slot as usize % CHUNK);
        let of_chunk = self.slots.checked_sub(slot - at)?.min(CHUNK);
        let chunk = self.chunks.get(slot / CHUNK)?;
        let chunk = chunk.get_or_init(|| (0..of_chunk).map(|_| Cell::default()).collect());
        chunk.get(at)?.qpn.store(qpn.value(), Ordering::Relaxed);
        Some(QpPlaces { chunk: Arc::clone(chunk), at })
    }

    /// Called when the queue pair in a slot is gone.
    pub fn end(&self, slot: u32) {
        if let Some(cell) = self.cell(slot) {
            cell.qpn.store(0, Ordering::Relaxed);
        }
    }

    /// Called when a completion was polled: frees the places up to its position.
    #[inline]
    pub fn polled(&self, cqe: &Cqe) {
        let Some(cell) = self.cell(cqe.slot) else { return };
        if cell.qpn.load(Ordering::Relaxed) == cqe.qpn.value() {
            let is_recv = matches!(cqe.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
            cell.free(if is_recv { Which::Recv } else { Which::Send }, cqe.position);
        }
    }

    #[inline]
    fn cell(&self, slot: u32) -> Option<&Cell> {
        let chunk = self.chunks.get(slot as usize / CHUNK)?;
        chunk.get()?.get(slot as usize % CHUNK)
    }
}

/// The places of one queue pair.
#[derive(Clone, Debug)]
pub struct QpPlaces {
    chunk: Arc<[Cell]>,
    at: usize,
}

impl QpPlaces {
    /// Returns the position up to which the places of a queue are free.
    #[inline]
    pub(super) fn freed(&self, which: Which) -> u32 {
        // Pairs with `free`: a thread that reads a place as free finds its slot in the ring empty.
        self.cell().freed(which).load(Ordering::Acquire)
    }

    /// Frees the places up to a position, unless they are already free.
    pub fn free(&self, which: Which, position: u32) {
        self.cell().free(which, position);
    }

    /// Returns a position that no work request of the slot has had: a queue's first request comes
    /// after it. No thread may post meanwhile.
    pub fn fresh(&self, which: Which) -> u32 {
        // No queue is deeper than `MAX_WR`.
        self.freed(which).wrapping_add(MAX_WR)
    }

    fn cell(&self) -> &Cell {
        &self.chunk[self.at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_transport::WcStatus;

    const QPN: Qpn = Qpn::new(9);

    fn polled(places: &Places, opcode: WcOpcode, qpn: Qpn, position: u32) {
        let cqe = Cqe::new(0, WcStatus::Success, opcode, qpn);
        places.polled(&Cqe { position, ..cqe });
    }

    #[test]
    fn a_completion_frees_its_place_and_those_before_it_and_none_twice() {
        let places = Places::new(1);
        let its = places.begin(0, QPN).unwrap();
        polled(&places, WcOpcode::Send, QPN, 5);
        assert_eq!((its.freed(Which::Send), its.freed(Which::Recv)), (5, 0));
        polled(&places, WcOpcode::RdmaWrite, QPN, 3);
        assert_eq!(its.freed(Which::Send), 5, "polled late by another thread");
        polled(&places, WcOpcode::Recv, QPN, 2);
        assert_eq!((its.freed(Which::Send), its.freed(Which::Recv)), (5, 2));
    }

    #[test]
    fn a_completion_of_a_queue_pair_that_is_gone_frees_nothing() {
        let places = Places::new(1);
        drop(places.begin(0, QPN));
        places.end(0);
        let other = Qpn::new(10);
        let its = places.begin(0, other).unwrap();
        polled(&places, WcOpcode::Send, QPN, 5);
        assert_eq!(its.freed(Which::Send), 0);
        polled(&places, WcOpcode::Send, other, 5);
        assert_eq!(its.freed(Which::Send), 5);
    }

    #[test]
    fn positions_wrap() {
        let places = Places::new(1);
        let its = places.begin(0, QPN).unwrap();
        for position in [1 << 30, 2 << 30, 3 << 30, u32::MAX, 4] {
            polled(&places, WcOpcode::Send, QPN, position);
            assert_eq!(its.freed(Which::Send), position);
        }
    }

    #[test]
    fn a_new_life_begins_behind_all_that_the_one_before_can_have_posted() {
        let places = Places::new(1);
        let its = places.begin(0, QPN).unwrap();
        its.free(Which::Send, 7);
        let fresh = its.fresh(Which::Send);
        its.free(Which::Send, fresh);
        // The deepest queue, full, with all its completions polled late.
        polled(&places, WcOpcode::Send, QPN, 7 + MAX_WR);
        assert_eq!(its.freed(Which::Send), fresh);
    }

    #[test]
    fn slots_have_cells_of_their_own_and_none_beyond_the_last() {
        let places = Places::new(130);
        let all: Vec<_> = (0..130).map(|slot| places.begin(slot, QPN).unwrap()).collect();
        all[129].free(Which::Send, 1);
        let freed: u32 = all.iter().map(|its| its.freed(Which::Send)).sum();
        assert_eq!(freed, 1);
        assert!(places.begin(200, QPN).is_none());
        let beyond = Cqe::new(0, WcStatus::Success, WcOpcode::Send, QPN);
        places.polled(&Cqe { slot: u32::MAX, ..beyond });
    }
}
