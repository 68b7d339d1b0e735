//! Common part of send and receive queues: a ring of work requests, a ring of their further SGEs,
//! the QP's published state, and the free places.
//!
//! Invariants
//! - The further SGEs of a work request are put into their ring before the request is put into its
//!   own, so the consumer of a request finds them.
//! - `posted − freed` is at most the queue's depth; both count modulo 2^32.
//! - A request with a free place has left its ring ([`super::places`]), so a free place is an empty
//!   slot.

use super::MAX_SGE;
use super::places::QpPlaces;
use crate::copy::prefetch::{prefetch_read, prefetch_slots, prefetch_value};
use crate::memory::mr_table::MrView;
use crate::sync::{AtomicU8, Consumer, Ordering, Producer, RingBuffer};
use crate::wake::doorbell::Doorbell;
use std::sync::Arc;
use std::{iter, ptr, slice};
use uroce_transport::{MAX_MESSAGE_LEN, PostError, QpState, Sge};
use uroce_wire::{Lkey, Va};

/// State of a QP that its lcore and pollers share with the application.
#[derive(Debug)]
pub struct QpShared {
    state: AtomicU8,
    /// The places of its work requests.
    pub places: QpPlaces,
}

/// One of a QP's two work queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
}

impl QpShared {
    /// Makes the state of a QP in RESET with empty queues.
    pub fn new(places: QpPlaces) -> QpShared {
        QpShared { state: AtomicU8::new(QpState::Reset as u8), places }
    }

    /// Publishes a new state. Pairs with `state`: a thread that reads it sees what the lcore did
    /// before.
    pub fn publish_state(&self, state: QpState) {
        // Sequentially consistent: `RecvBatch::drop` depends on one order of this store and its own
        // push.
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// Returns the state that was published last.
    pub fn state(&self) -> QpState {
        // Only `publish_state` writes it.
        QpState::from_number(self.state.load(Ordering::SeqCst)).unwrap_or(QpState::Err)
    }
}

/// A work request in a ring. Its first SGE is stored with it; the other `num_sge − 1` are the next
/// in the other ring.
#[derive(Clone, Copy, Debug)]
struct Queued<W> {
    wr: W,
    num_sge: u32,
    first: Sge,
}

/// How many posted requests are prefetched before a QP's turn; the processor's own prefetcher
/// continues from there.
pub(crate) const POSTED_AHEAD: usize = 16;

const NO_SGE: Sge = Sge { va: Va(0), len: 0, lkey: Lkey(0) };

/// The application's end of a ring.
#[derive(Debug)]
pub struct RingEnd<W> {
    wrs: Producer<Queued<W>>,
    sges: Producer<Sge>,
    pub(crate) shared: Arc<QpShared>,
    doorbell: Arc<Doorbell>,
    index: u32,
    which: Which,
    depth: u32,
    max_sge: u32,
    /// Position of the request that was posted last.
    posted: u32,
}

/// The lcore's end of a ring.
#[derive(Debug)]
pub struct RingFeed<W> {
    wrs: Consumer<Queued<W>>,
    sges: Consumer<Sge>,
    which: Which,
    /// Position of the request that was taken last.
    taken: u32,
    /// Difference between positions and the core's count, which begins at 0 and leaves refused
    /// requests out.
    lead: u32,
    /// Requests that were taken and refused, and are not yet in `lead`.
    refused: u32,
}

/// The owner and the size of a queue.
#[derive(Clone, Debug)]
pub struct RingSpec {
    /// State that the QP's other parts share.
    pub shared: Arc<QpShared>,
    /// The doorbell of the QP's lcore.
    pub doorbell: Arc<Doorbell>,
    /// The QP's slot.
    pub index: u32,
    /// Number of work requests.
    pub depth: u32,
    /// Largest number of SGEs of one work request.
    pub max_sge: u32,
}

/// Makes both ends of a ring.
pub fn ring<W: Copy>(spec: RingSpec, which: Which) -> (RingEnd<W>, RingFeed<W>) {
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
    /// Returns how many work requests can be posted now.
    pub fn room(&self) -> u32 {
        let taken = self.posted.wrapping_sub(self.shared.places.freed(self.which));
        self.depth.saturating_sub(taken)
    }

    /// Returns the QP's state as last published.
    pub fn state(&self) -> QpState {
        self.shared.state()
    }

    /// Checks what can be checked from the request alone. The rules are the core's, so the core
    /// refuses a request from the ring only for the QP's state. Returns the length in bytes.
    #[inline]
    pub fn check(&self, sges: &[Sge]) -> Result<u64, PostError> {
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        let len: u64 = sges.iter().map(|sge| u64::from(sge.len)).sum();
        if len > u64::from(MAX_MESSAGE_LEN) { Err(PostError::TooLong) } else { Ok(len) }
    }

    /// Puts a checked request into the ring. `room` is how many more fit.
    #[inline]
    pub fn push(&mut self, wr: W, sges: &[Sge], room: &mut u32) -> Result<(), PostError> {
        if *room == 0 {
            return Err(PostError::QueueFull);
        }
        let (first, further) = sges.split_first().unwrap_or((&NO_SGE, &[]));
        if !further.is_empty() {
            let chunk = self.sges.write_chunk_uninit(further.len());
            chunk.map_err(|_| PostError::QueueFull)?.fill_from_iter(further.iter().copied());
        }
        let queued = Queued { wr, num_sge: sges.len() as u32, first: *first };
        // This cannot fail: the ring has as many slots as the queue is deep, and `room` of them are
        // free.
        let slot = self.wrs.write_chunk_uninit(1).map_err(|_| PostError::QueueFull)?;
        slot.fill_from_iter(iter::once(queued));
        self.posted = self.posted.wrapping_add(1);
        *room -= 1;
        Ok(())
    }

    /// Rings the doorbell: there is something in the ring.
    #[inline]
    pub fn notify_lcore(&self) {
        self.doorbell.ring(self.index);
    }
}

impl<W: Copy> RingFeed<W> {
    /// Returns whether the ring is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.wrs.is_empty()
    }

    /// Returns the number of requests in the ring.
    #[inline]
    pub fn waiting(&self) -> u32 {
        // The number is at most the queue's depth.
        self.wrs.slots() as u32
    }

    /// Prefetches the ring's positions and the address of its requests.
    #[inline]
    pub fn prefetch(&self) {
        prefetch_value(self.wrs.buffer());
    }

    /// Prefetches the oldest requests, and the slots where the core will keep them.
    #[inline]
    pub fn prefetch_posted(&self, (wqes, sges): (&[impl Sized], &[Sge])) {
        prefetch_slots(wqes);
        prefetch_slots(sges);
        if let Ok(oldest) = self.wrs.peek() {
            prefetch_read(ptr::from_ref(oldest).cast(), POSTED_AHEAD * size_of::<Queued<W>>());
        }
    }

    /// Prefetches the first memory that the oldest request names, and its entry in the key table.
    #[inline]
    pub fn prefetch_memory(&self, memory: &MrView<'_>) {
        if let Ok(Queued { num_sge: 1.., first, .. }) = self.wrs.peek() {
            memory.prefetch(first.lkey.0, first.va);
        }
    }

    /// Gives up to `limit` requests, in the order of their posts, to `take`, which returns whether
    /// the core has accepted the request. A request that is not accepted is discarded. Returns how
    /// many were taken.
    #[inline]
    pub fn take(&mut self, limit: u32, mut take: impl FnMut(&W, &[Sge]) -> bool) -> u32 {
        let mut taken = 0;
        while taken < limit {
            let Ok(queued) = self.wrs.peek() else { break };
            let is_accepted = match queued.num_sge as usize {
                0 => take(&queued.wr, &[]),
                1 => take(&queued.wr, slice::from_ref(&queued.first)),
                count => take(&queued.wr, &list(queued.first, &mut self.sges, count)[..count]),
            };
            self.refused += u32::from(!is_accepted);
            // One by one: when the core flushes, the application may poll this request while the
            // next one is handled, and must then find its slot free.
            let _ = self.wrs.pop();
            taken += 1;
        }
        self.taken = self.taken.wrapping_add(taken);
        taken
    }

    /// Returns the difference between positions and the core's count.
    #[inline]
    pub fn lead(&self) -> u32 {
        self.lead
    }

    /// Returns whether a request was refused since the last [`release`](RingFeed::release).
    #[inline]
    pub fn has_refused(&self) -> bool {
        self.refused > 0
    }

    /// Frees all places of taken requests. Called when the core has no request left and none of
    /// them has a completion to poll.
    #[cold]
    pub fn release(&mut self, shared: &QpShared) {
        self.lead = self.lead.wrapping_add(std::mem::take(&mut self.refused));
        shared.places.free(self.which, self.taken);
    }
}

/// Returns a request's `count` SGEs: the first, and the next ones of the other ring.
fn list(first: Sge, further: &mut Consumer<Sge>, count: usize) -> [Sge; MAX_SGE as usize] {
    let mut list = [NO_SGE; MAX_SGE as usize];
    list[0] = first;
    for sge in &mut list[1..count] {
        // The producer put them there before the request.
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
        // The core may have reported in between that the request before has completed.
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
