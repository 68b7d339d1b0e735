//! Shared receive queue: the application posts receives for many QPs, and their lcores take them.
//!
//! ```text
//!   post ──▶ │ slot │ slot │ slot │ ──▶ take (any lcore)
//!            head ─▶              ◀─ tail
//! ```
//!
//! A ring of slots, filled at `tail` under a lock among posters and emptied at `head` without one.
//! An lcore copies the oldest slot and then moves `head` by one compare and exchange. If that
//! succeeds, no other lcore has taken the slot, and no poster has written to it, since posters
//! write only at positions below `head + depth`. If it fails, the copy is discarded.
//!
//! Invariants
//! - A taken receive is one snapshot of a post: the application has no reference to a slot, and a
//!   slot is not written between its post and its taking.
//! - Each receive is taken once, the oldest first. Positions are 64 bits wide and never wrap.
//! - An armed limit gives one event: the thread that finds fewer receives than the limit disarms
//!   it, by an exchange that succeeds for one thread only.
//!
//! Not here: a receive after it was taken, which belongs to its QP until it completes.

use super::MAX_SGE;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::wake::events::{EventGuard, EventKind};
use crossbeam_utils::CachePadded;
use std::sync::PoisonError;
use uroce_transport::{Found, MAX_MESSAGE_LEN, Pd, PostError, RecvWr, Sge};
use uroce_wire::{Lkey, Va};

/// Largest number of receives of a shared receive queue.
pub const MAX_SRQ_DEPTH: u32 = 1 << 20;

/// The reason why a shared receive queue was not made, or its limit not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SrqError {
    /// A depth of 0 or above [`MAX_SRQ_DEPTH`].
    #[error("shared receive queue depth {0} is not in 1..={MAX_SRQ_DEPTH}")]
    Depth(u32),
    /// No SGE, or more than [`MAX_SGE`].
    #[error("{0} scatter elements are not in 1..={MAX_SGE}")]
    Sges(u32),
    /// The limit is above the depth.
    #[error("a limit of {limit} receives in a queue of {depth}")]
    Limit {
        /// The requested limit.
        limit: u32,
        /// The queue's depth.
        depth: u32,
    },
    /// The engine has as many objects with asynchronous events as it can have.
    #[error("no shared receive queue is left")]
    NoneLeft,
    /// The queue's protection domain, XRC domain and completion queue are of several devices.
    #[error("protection domain, XRC domain and completion queue are of different devices")]
    OtherDevice,
}

/// A queue of receives for any QP that was created with it. Any thread may post.
#[derive(Debug)]
pub struct SharedReceiveQueue {
    pd: Pd,
    depth: u32,
    max_sge: u32,
    /// For each slot: `wr_id`, number of SGEs, then address and length with key of each SGE. The
    /// number of slots is a power of two and at least `depth`.
    words: Box<[AtomicU64]>,
    /// Number of receives ever posted.
    tail: CachePadded<AtomicU64>,
    /// Number of receives ever taken.
    head: CachePadded<AtomicU64>,
    /// If fewer receives than this wait, an event is raised; 0 if no limit is armed.
    limit: AtomicU32,
    posting: Mutex<()>,
    events: EventGuard,
    /// Whether requests of XRC initiators name the queue.
    is_named: AtomicBool,
}

impl SharedReceiveQueue {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// See [`SrqError`].
    pub fn new(
        pd: Pd,
        depth: u32,
        max_sge: u32,
        events: EventGuard,
    ) -> Result<SharedReceiveQueue, SrqError> {
        if depth == 0 || depth > MAX_SRQ_DEPTH {
            return Err(SrqError::Depth(depth));
        }
        if max_sge == 0 || max_sge > MAX_SGE {
            return Err(SrqError::Sges(max_sge));
        }
        let words = depth.next_power_of_two() as usize * words_per_slot(max_sge);
        Ok(SharedReceiveQueue {
            pd,
            depth,
            max_sge,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            tail: CachePadded::default(),
            head: CachePadded::default(),
            limit: AtomicU32::new(0),
            posting: Mutex::new(()),
            events,
            is_named: AtomicBool::new(false),
        })
    }

    /// Makes the queue one of an XRC domain for ever.
    pub(super) fn set_named(&self) {
        self.is_named.store(true, Ordering::Relaxed);
    }

    /// Returns whether the queue is of an XRC domain, so that no other QP may use it.
    pub fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Relaxed)
    }

    /// Returns the protection domain of the memory that the queue's receives name.
    pub fn pd(&self) -> Pd {
        self.pd
    }

    /// Returns how many receives the queue can hold.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the most scatter elements of a receive.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Returns the number by which asynchronous events name the queue.
    pub fn number(&self) -> u32 {
        self.events.number()
    }

    /// Returns how many receives wait to be taken.
    pub fn len(&self) -> u32 {
        // The head is read first: then it is not beyond the tail.
        let head = self.head.load(Ordering::Acquire);
        // The difference is at most `depth`.
        self.tail.load(Ordering::Acquire).saturating_sub(head) as u32
    }

    /// Returns whether no receive waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts a receive with its scatter list.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    pub fn post_recv(&self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        self.post_recv_list([(wr, sges)]).map_err(|(_, error)| error)
    }

    /// Posts receives in order, up to the first that is refused.
    ///
    /// # Errors
    /// The number of receives posted, and the reason why the next one was refused.
    pub fn post_recv_list<'a>(
        &self,
        list: impl IntoIterator<Item = (&'a RecvWr, &'a [Sge])>,
    ) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch();
        for (posted, (wr, sges)) in list.into_iter().enumerate() {
            batch.push(wr, sges).map_err(|error| (posted, error))?;
        }
        Ok(())
    }

    /// Begins a list of receives. Other posters wait until it is dropped.
    pub fn batch(&self) -> SrqBatch<'_> {
        let posting = self.posting.lock().unwrap_or_else(PoisonError::into_inner);
        SrqBatch { srq: self, tail: self.tail.load(Ordering::Relaxed), _posting: posting }
    }

    /// Requests one event ([`EventKind::SrqLimitReached`]) when fewer than `limit` receives wait,
    /// now or later; 0 cancels the request.
    ///
    /// # Errors
    /// [`SrqError::Limit`].
    //= check G8 — one event for each arming
    pub fn arm_limit(&self, limit: u32) -> Result<(), SrqError> {
        if limit > self.depth {
            return Err(SrqError::Limit { limit, depth: self.depth });
        }
        // Sequentially consistent, like the head's exchange and the limit's load in `take`: one of
        // the two sees the other, so no crossing of the limit is missed.
        self.limit.store(limit, Ordering::SeqCst);
        self.watch_limit(self.head.load(Ordering::SeqCst));
        Ok(())
    }

    /// Returns the armed limit; 0 if none is armed.
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Takes the oldest receive and gives it to `place`, if it holds at least `room` bytes.
    //= check F15 — a receive is taken as one snapshot, which no poster can change any more
    #[inline]
    pub fn take(&self, room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        const NONE: Sge = Sge { va: Va(0), len: 0, lkey: Lkey(0) };
        let mut sges = [NONE; MAX_SGE as usize];
        let mut head = self.head.load(Ordering::Relaxed);
        let (wr, num_sge) = loop {
            // Pairs with `SrqBatch`'s release of the slot.
            if self.tail.load(Ordering::Acquire) <= head {
                return Found::Nothing;
            }
            let (wr, num_sge) = self.copy(head, &mut sges);
            // A receive that is too small stays. The exchange then changes nothing, but its success
            // proves that the slot had not been taken while it was copied.
            let is_taken = room == 0 || len_of(&sges[..num_sge]) >= u64::from(room);
            let (old, new) = (head, head + u64::from(is_taken));
            // Releases the slot to posters, which acquire the head before they write.
            match self.head.compare_exchange(old, new, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) if !is_taken => return Found::TooSmall,
                Ok(_) => break (wr, num_sge),
                Err(now) => head = now,
            }
        };
        self.watch_limit(head + 1);
        place(&wr, &sges[..num_sge]);
        Found::Receive
    }

    /// Raises the event for receives that were taken and are lost.
    #[cold]
    pub fn lose(&self) {
        self.events.raise(EventKind::SrqErr);
    }

    /// Raises the event if a limit is armed and fewer receives wait.
    #[inline]
    fn watch_limit(&self, head: u64) {
        let limit = self.limit.load(Ordering::SeqCst);
        if limit != 0 {
            self.meet_limit(limit, head);
        }
    }

    #[cold]
    fn meet_limit(&self, limit: u32, head: u64) {
        let waiting = self.tail.load(Ordering::Acquire).saturating_sub(head);
        let is_met = waiting < u64::from(limit);
        if is_met
            && self.limit.compare_exchange(limit, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            self.events.raise(EventKind::SrqLimitReached);
        }
    }

    fn check(&self, tail: u64, sges: &[Sge]) -> Result<(), PostError> {
        if sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if len_of(sges) > u64::from(MAX_MESSAGE_LEN) {
            return Err(PostError::TooLong);
        }
        // Pairs with `take`'s release of the slot: its copy is complete.
        let waiting = tail - self.head.load(Ordering::Acquire);
        if waiting < u64::from(self.depth) { Ok(()) } else { Err(PostError::QueueFull) }
    }

    /// Writes a free slot.
    fn fill(&self, at: u64, wr: &RecvWr, sges: &[Sge]) {
        let slot = self.slot(at);
        slot[0].store(wr.wr_id, Ordering::Relaxed);
        slot[1].store(sges.len() as u64, Ordering::Relaxed);
        for (words, sge) in slot[2..].chunks_exact(2).zip(sges) {
            words[0].store(sge.va.0, Ordering::Relaxed);
            let rest = u64::from(sge.len) << 32 | u64::from(sge.lkey.0);
            words[1].store(rest, Ordering::Relaxed);
        }
    }

    /// Reads a slot. It may be taken and written meanwhile: then the result has no meaning.
    #[inline]
    fn copy(&self, at: u64, sges: &mut [Sge; MAX_SGE as usize]) -> (RecvWr, usize) {
        let slot = self.slot(at);
        let wr = RecvWr { wr_id: slot[0].load(Ordering::Relaxed) };
        let num_sge = (slot[1].load(Ordering::Relaxed) as usize).min(self.max_sge as usize);
        for (words, sge) in slot[2..].chunks_exact(2).zip(&mut sges[..num_sge]) {
            let rest = words[1].load(Ordering::Relaxed);
            *sge = Sge {
                va: Va(words[0].load(Ordering::Relaxed)),
                len: (rest >> 32) as u32,
                lkey: Lkey(rest as u32),
            };
        }
        (wr, num_sge)
    }

    #[inline]
    fn slot(&self, at: u64) -> &[AtomicU64] {
        let words = words_per_slot(self.max_sge);
        let mask = u64::from(self.depth.next_power_of_two()) - 1;
        let first = (at & mask) as usize * words;
        &self.words[first..first + words]
    }
}

/// A list of receives that is being posted; they can be taken when this is dropped.
#[derive(Debug)]
pub struct SrqBatch<'q> {
    srq: &'q SharedReceiveQueue,
    tail: u64,
    _posting: MutexGuard<'q, ()>,
}

impl SrqBatch<'_> {
    /// Posts one more receive.
    ///
    /// # Errors
    /// [`PostError`]; the receive was not posted.
    pub fn push(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        self.srq.check(self.tail, sges)?;
        self.srq.fill(self.tail, wr, sges);
        self.tail += 1;
        Ok(())
    }
}

impl Drop for SrqBatch<'_> {
    fn drop(&mut self) {
        // Releases the slots to `take`.
        self.srq.tail.store(self.tail, Ordering::Release);
    }
}

/// Returns the bytes that a scatter list holds.
fn len_of(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.len)).sum()
}

const fn words_per_slot(max_sge: u32) -> usize {
    2 + 2 * max_sge as usize
}

#[cfg(test)]
mod tests;
