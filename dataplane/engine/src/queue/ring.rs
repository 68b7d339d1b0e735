//! What send and receive queue have in common: a ring of work requests, one of their further SGEs,
//! the QP's state as the lcore tells it, and which places are free.
//!
//! Invariants
//! - The further SGEs of a work request are in their ring before the request is in its own, so the
//!   consumer of a request finds them.
//! - `posted − freed` is at most the queue's depth; both count modulo 2^32.
//! - What is free has left its ring ([`super::places`]), so a free place is an empty slot.

use super::MAX_SGE;
use super::places::QpPlaces;
use crate::doorbell::Doorbell;
use crate::mr_table::Access;
use crate::prefetch::{prefetch_read, prefetch_slots, prefetch_value};
use crate::sync::{AtomicU8, Consumer, Ordering, Producer, RingBuffer};
use std::sync::Arc;
use std::{iter, ptr, slice};
use uroce_transport::{MAX_MESSAGE_LEN, PostError, QpState, Sge};
use uroce_wire::{Lkey, Va};

/// What an lcore tells the application about a QP, and where pollers tell what is free.
#[derive(Debug)]
pub(crate) struct QpShared {
    state: AtomicU8,
    pub(crate) places: QpPlaces,
}

/// Which of a QP's two queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    Send,
    Recv,
}

impl QpShared {
    /// A QP in RESET with empty queues.
    pub(crate) fn new(places: QpPlaces) -> QpShared {
        QpShared { state: AtomicU8::new(QpState::Reset as u8), places }
    }

    /// Pairs with `state`: who reads the new state finds what the lcore did to reach it.
    pub(crate) fn publish_state(&self, state: QpState) {
        // Sequentially consistent against `RecvBatch`'s drop, see there.
        self.state.store(state as u8, Ordering::SeqCst);
    }

    pub(crate) fn state(&self) -> QpState {
        // Only `publish_state` writes it.
        QpState::from_number(self.state.load(Ordering::SeqCst)).unwrap_or(QpState::Err)
    }
}

/// A work request in a ring. Most have one SGE, which is with it; the others of its `num_sge` are
/// the next in the other ring.
#[derive(Clone, Copy, Debug)]
struct Queued<W> {
    wr: W,
    num_sge: u32,
    first: Sge,
}

/// How many posted requests are fetched ahead of a QP's turn: the processor sees by itself that it
/// goes on so.
pub(crate) const POSTED_AHEAD: usize = 16;

const NO_SGE: Sge = Sge { va: Va(0), len: 0, lkey: Lkey(0) };

/// The application's end.
#[derive(Debug)]
pub(crate) struct RingEnd<W> {
    wrs: Producer<Queued<W>>,
    sges: Producer<Sge>,
    pub(crate) shared: Arc<QpShared>,
    doorbell: Arc<Doorbell>,
    index: u32,
    which: Which,
    depth: u32,
    max_sge: u32,
    /// Position of the youngest request.
    posted: u32,
}

/// The lcore's end.
#[derive(Debug)]
pub(crate) struct RingFeed<W> {
    wrs: Consumer<Queued<W>>,
    sges: Consumer<Sge>,
    which: Which,
    /// Position of the youngest request that was taken.
    taken: u32,
    /// How far positions are ahead of the core's, which begins at 0 and does not know what it has
    /// refused.
    lead: u32,
    /// What was taken and refused, and is not yet in `lead`.
    refused: u32,
}

/// Where a queue belongs to and how large it is.
#[derive(Clone, Debug)]
pub(crate) struct RingSpec {
    pub(crate) shared: Arc<QpShared>,
    pub(crate) doorbell: Arc<Doorbell>,
    /// The QP's slot.
    pub(crate) index: u32,
    /// Work requests.
    pub(crate) depth: u32,
    /// SGEs of one work request.
    pub(crate) max_sge: u32,
}

/// Both ends of a ring.
pub(crate) fn ring<W: Copy>(spec: RingSpec, which: Which) -> (RingEnd<W>, RingFeed<W>) {
    let RingSpec { shared, doorbell, index, depth, max_sge } = spec;
    let further = max_sge.saturating_sub(1);
    let (wr_producer, wr_consumer) = RingBuffer::new(depth as usize);
    let (sge_producer, sge_consumer) = RingBuffer::new(depth as usize * further as usize);
    let fresh = shared.places.fresh(which);
    let end = RingEnd {
        wrs: wr_producer,
        sges: sge_producer,
        shared,
        doorbell,
        index,
        which,
        depth,
        max_sge,
        posted: fresh,
    };
    let (wrs, sges) = (wr_consumer, sge_consumer);
    (end, RingFeed { wrs, sges, which, taken: fresh, lead: fresh, refused: 0 })
}

impl<W: Copy> RingEnd<W> {
    /// Work requests that can be posted now.
    pub(crate) fn room(&self) -> u32 {
        let taken = self.posted.wrapping_sub(self.shared.places.freed(self.which));
        self.depth.saturating_sub(taken)
    }

    /// The QP's state as last published.
    pub(crate) fn state(&self) -> QpState {
        self.shared.state()
    }

    /// The rules that need nothing but the request: they are the core's own, so that what is in
    /// the ring is refused there for its state only.
    #[inline]
    pub(crate) fn check(&self, sges: &[Sge]) -> Result<u64, PostError> {
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let len: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        if len > u64::from(MAX_MESSAGE_LEN) { Err(PostError::TooLong) } else { Ok(len) }
    }

    /// Puts a checked request into the ring. `room` says how many more fit.
    #[inline]
    pub(crate) fn push(&mut self, wr: W, sges: &[Sge], room: &mut u32) -> Result<(), PostError> {
        if *room == 0 {
            return Err(PostError::QueueFull);
        }
        let (first, further) = sges.split_first().unwrap_or((&NO_SGE, &[]));
        if !further.is_empty() {
            let chunk = self.sges.write_chunk_uninit(further.len());
            chunk.map_err(|_| PostError::QueueFull)?.fill_from_iter(further.iter().copied());
        }
        let queued = Queued { wr, num_sge: sges.len() as u32, first: *first };
        // There is room: as many slots as the queue is deep, and `room` of them free.
        let slot = self.wrs.write_chunk_uninit(1).map_err(|_| PostError::QueueFull)?;
        slot.fill_from_iter(iter::once(queued));
        self.posted = self.posted.wrapping_add(1);
        *room -= 1;
        Ok(())
    }

    /// Tells the lcore that there is something in the ring.
    #[inline]
    pub(crate) fn ring(&self) {
        self.doorbell.ring(self.index);
    }
}

impl<W: Copy> RingFeed<W> {
    /// Is nothing there?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.wrs.is_empty()
    }

    /// Requests in the ring.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        // At most the queue's depth.
        self.wrs.slots() as u32
    }

    /// Fetches the ring's positions and the place of its requests.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_value(self.wrs.buffer());
    }

    /// Fetches the oldest requests, and where the core will have them.
    #[inline]
    pub(crate) fn prefetch_posted(&self, (wqes, sges): (&[impl Sized], &[Sge])) {
        prefetch_slots(wqes);
        prefetch_slots(sges);
        if let Ok(oldest) = self.wrs.peek() {
            prefetch_read(ptr::from_ref(oldest).cast(), POSTED_AHEAD * size_of::<Queued<W>>());
        }
    }

    /// Fetches the first memory that the oldest request names, and what is known of it.
    #[inline]
    pub(crate) fn prefetch_memory(&self, memory: &Access<'_>) {
        if let Ok(Queued { num_sge: 1.., first, .. }) = self.wrs.peek() {
            memory.prefetch(first.lkey.0, first.va);
        }
    }

    /// Gives up to `limit` requests in the order of their posting to `take`, which says whether the
    /// core has it now. What it has not is gone.
    #[inline]
    pub(crate) fn take(&mut self, limit: u32, mut take: impl FnMut(&W, &[Sge]) -> bool) -> u32 {
        let mut taken = 0;
        while taken < limit {
            let Ok(chunk) = self.wrs.read_chunk(1) else { break };
            let Some(queued) = chunk.as_slices().0.first() else { break };
            let is_accepted = match queued.num_sge as usize {
                0 => take(&queued.wr, &[]),
                1 => take(&queued.wr, slice::from_ref(&queued.first)),
                count => take(&queued.wr, &list(queued.first, &mut self.sges, count)[..count]),
            };
            self.refused += u32::from(!is_accepted);
            // One by one: where the core flushes, the application may be told of this request
            // while the next one is used, and then finds its slot free.
            chunk.commit_all();
            taken += 1;
        }
        self.taken = self.taken.wrapping_add(taken);
        taken
    }

    /// How far positions are ahead of the core's.
    #[inline]
    pub(crate) fn lead(&self) -> u32 {
        self.lead
    }

    /// Was something refused since the last [`release`](RingFeed::release)?
    #[inline]
    pub(crate) fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// The core has nothing any more, and nothing is to be polled of what it had: all places of
    /// what was taken are free.
    #[cold]
    pub(crate) fn release(&mut self, shared: &QpShared) {
        self.lead = self.lead.wrapping_add(std::mem::take(&mut self.refused));
        shared.places.free(self.which, self.taken);
    }
}

/// A request's `count` SGEs: the first, and the next of those in the other ring.
fn list(first: Sge, further: &mut Consumer<Sge>, count: usize) -> [Sge; MAX_SGE as usize] {
    let mut list = [NO_SGE; MAX_SGE as usize];
    list[0] = first;
    for sge in &mut list[1..count] {
        // They were put there before the request.
        *sge = further.pop().unwrap_or(NO_SGE);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::super::places::Places;
    use super::*;
    use uroce_wire::Qpn;

    #[test]
    fn a_request_has_left_its_slot_when_the_next_is_used() {
        let places = Places::new(1).begin(0, Qpn::new(2)).unwrap();
        let shared = Arc::new(QpShared::new(places));
        let doorbell = Arc::new(Doorbell::new(1, Arc::default()));
        let spec = RingSpec { shared, doorbell, index: 0, depth: 2, max_sge: 2 };
        let (mut end, mut feed) = ring(spec, Which::Send);
        let sges = [NO_SGE; 2];
        let mut room = 2;
        (0..2).for_each(|wr| end.push(wr, &sges, &mut room).unwrap());
        let mut used = Vec::new();
        // The core may have told the application in the middle that the one before has left.
        let taken = feed.take(2, |&wr: &i32, sges| {
            used.push((wr, sges.len()));
            let pushed = end.push(wr + 2, sges, &mut 1);
            assert_eq!(pushed.is_ok(), wr > 0, "the slot of the one before is free, no other");
            true
        });
        assert_eq!((taken, used), (2, vec![(0, 2), (1, 2)]));
        assert_eq!(feed.waiting(), 1);
    }
}
