//! Completion queue: lcores fill it, the application polls it.
//!
//! Read first: IBA 11.4.2 (completion queue operations).
//!
//! Invariants
//! - An entry is in the queue whole or not at all, and is taken once.
//! - Entries of one QP are in the order in which its core made them, without a gap: after the first
//!   entry that found no room ([`CqError::Overrun`]) no other is taken in.
//! - An armed queue notifies once. The lcore adds an entry and then looks whether the queue is
//!   armed; the application arms the queue and then polls again. A sequentially consistent fence on
//!   either side makes one of them see the other, so no wake-up is lost.
//! - A queue that grows during use loses no entry, keeps each QP's order, and wakes sleeping
//!   threads.
//!
//! Not here: how a queue grows (`rings`); the form of events for the application
//! ([`super::channel`]).

mod rings;

use super::CompletionChannel;
use super::places::Places;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, fence};
use crate::table::qsbr::Turns;
use crate::wake::events::{EventGuard, EventKind};
use crossbeam_utils::CachePadded;
use rings::Ring;
use std::sync::{Arc, PoisonError};
use uroce_transport::Cqe;

/// Largest number of entries of a completion queue.
pub const MAX_CQ_DEPTH: u32 = 1 << 22;

// An entry and the queue's stamp for it fill one cache line.
const _: () = assert!(size_of::<Cqe>() <= 56);

/// The completions for which the next event is requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Arm {
    /// A completion that the peer marked as solicited, or an error.
    Solicited = 1,
    /// Any completion.
    Next = 2,
}

/// Not armed; below both values of [`Arm`].
const UNARMED: u8 = 0;

/// Errors of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CqError {
    /// A completion found no room. All completions before it have been polled; it and all later
    /// ones are lost, and their QPs are in ERR.
    #[error("completion queue overrun")]
    Overrun,
    /// A depth of 0 or above [`MAX_CQ_DEPTH`].
    #[error("completion queue depth {0} is not in 1..={MAX_CQ_DEPTH}")]
    Depth(u32),
    /// More completions wait in the queue than the requested depth.
    #[error("{waiting} completions wait in a queue that was to be resized to {depth}")]
    TooSmall {
        /// The requested depth.
        depth: u32,
        /// Completions in the queue.
        waiting: u32,
    },
    /// The engine has as many objects with asynchronous events as it can have.
    #[error("no completion queue is left")]
    NoneLeft,
    /// The channel has as many queues as it was made for.
    #[error("completion channel has as many queues as it was made for")]
    ChannelFull,
}

/// A completion queue. Any thread may poll; each completion is given to one of them.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: Ring,
    /// The requested number of entries.
    depth: AtomicU32,
    /// Held during a resize.
    resizing: Mutex<()>,
    parts: CqParts,
    overrun: AtomicBool,
    armed: CachePadded<AtomicU8>,
    channel: Option<Arc<CompletionChannel>>,
    /// Whether the queue is in its channel's `ready`; see [`CompletionChannel`].
    pub(super) has_event: AtomicBool,
    /// Whether the queue counts as one of its channel.
    is_member: AtomicBool,
    /// Whether the application has let go the queue.
    is_retired: AtomicBool,
    /// Bit *i*: QPs of lcore *i* complete here, or did so before.
    lcores: AtomicU64,
}

/// The parts of an engine that its completion queues use.
#[derive(Debug, Default)]
pub struct CqParts {
    /// Raises the asynchronous event of an overrun.
    pub events: Option<EventGuard>,
    /// The turns in which lcores add entries; `None` if no lcore adds any.
    pub turns: Option<Arc<Turns>>,
    /// Freed when completions are polled.
    pub places: Option<Arc<Places>>,
}

/// The queue has overrun: the QP that completed must go to ERR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overrun;

impl CompletionQueue {
    /// Makes an empty queue for `depth` entries. Its events, if it is ever armed, go to `channel`.
    ///
    /// # Errors
    /// See [`CqError`].
    pub fn new(
        depth: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue>, CqError> {
        CompletionQueue::within(CqParts::default(), depth, channel)
    }

    /// Makes an empty queue of an engine.
    pub fn within(
        parts: CqParts,
        depth: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue>, CqError> {
        if depth == 0 || depth > MAX_CQ_DEPTH {
            return Err(CqError::Depth(depth));
        }
        if let Some(channel) = channel {
            channel.admit()?;
        }
        Ok(Arc::new(CompletionQueue {
            entries: Ring::new(depth),
            depth: AtomicU32::new(depth),
            resizing: Mutex::new(()),
            parts,
            overrun: AtomicBool::new(false),
            armed: CachePadded::default(),
            channel: channel.cloned(),
            has_event: AtomicBool::new(false),
            is_member: AtomicBool::new(channel.is_some()),
            is_retired: AtomicBool::new(false),
            lcores: AtomicU64::new(0),
        }))
    }

    /// Takes the oldest completion, if there is one. This frees the places of its work request and
    /// of the earlier ones in the same queue.
    ///
    /// # Errors
    /// [`CqError::Overrun`] once all completions before the overrun have been taken.
    #[inline]
    pub fn poll(&self) -> Result<Option<Cqe>, CqError> {
        if let Some(cqe) = self.pop() {
            return Ok(Some(cqe));
        }
        if !self.is_overrun() {
            return Ok(None);
        }
        self.last()
    }

    /// Takes the last good entry before an overrun, if it was added just before.
    #[cold]
    fn last(&self) -> Result<Option<Cqe>, CqError> {
        self.pop().map(Some).ok_or(CqError::Overrun)
    }

    #[inline(always)]
    fn pop(&self) -> Option<Cqe> {
        let cqe = self.entries.pop()?;
        if let Some(places) = &self.parts.places {
            places.polled(&cqe);
        }
        Some(cqe)
    }

    /// Appends up to `max` completions to `out` and returns how many.
    ///
    /// # Errors
    /// [`CqError::Overrun`] if the queue has overrun and there is none to append.
    #[inline]
    pub fn poll_into(&self, out: &mut Vec<Cqe>, max: usize) -> Result<usize, CqError> {
        for count in 0..max {
            match self.poll() {
                Ok(Some(cqe)) => out.push(cqe),
                Ok(None) => return Ok(count),
                Err(error) if count == 0 => return Err(error),
                Err(_) => return Ok(count),
            }
        }
        Ok(max)
    }

    /// Requests one event, for a completion that is added from now on.
    ///
    /// Completions that are already in the queue give no event: poll after arming. Arming for any
    /// completion takes precedence over arming for a solicited one.
    //= check G9 — arm and poll again loses no wake-up
    pub fn arm(&self, kind: Arm) {
        self.armed.fetch_max(kind as u8, Ordering::SeqCst);
        // Pairs with the fence in `notify_fence`.
        fence(Ordering::SeqCst);
    }

    /// Returns the requested number of entries. A queue that was larger before may hold more.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Makes the queue hold at least `depth` entries. Completions may be added and polled
    /// meanwhile: each is polled once, those of a QP in order. Returns after a turn of each lcore,
    /// when completions in the added part can be polled.
    ///
    /// A queue does not give memory back: for a smaller depth it keeps its memory.
    ///
    /// # Errors
    /// [`CqError::Depth`]; [`CqError::TooSmall`] if more completions wait than `depth`. The queue
    /// is unchanged then.
    //= check G11 — resized during traffic: each completion once, the order of a QP kept
    pub fn resize(self: &Arc<CompletionQueue>, depth: u32) -> Result<(), CqError> {
        if depth == 0 || depth > MAX_CQ_DEPTH {
            return Err(CqError::Depth(depth));
        }
        let _resizing = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // The length is at most 2 · `MAX_CQ_DEPTH`.
        let waiting = self.entries.len() as u32;
        if waiting > depth {
            return Err(CqError::TooSmall { depth, waiting });
        }
        if depth as usize > self.entries.capacity() {
            self.entries.grow(depth.next_power_of_two(), self.parts.turns.as_deref());
            // Pairs with the fence in `arm`: a thread that armed the queue and found nothing,
            // because the entries could not be taken yet, is woken here.
            fence(Ordering::SeqCst);
            if self.entries.len() > 0 && self.wants_event(true) {
                self.notify();
            }
        }
        self.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether a completion has been lost because there was no room.
    pub fn is_overrun(&self) -> bool {
        // Pairs with `mark_overrun`: a thread that reads true also sees all earlier entries.
        self.overrun.load(Ordering::Acquire)
    }

    /// Returns the source of the queue's asynchronous events, with its channel and number. `None`
    /// if it gives none.
    pub fn events(&self) -> Option<&EventGuard> {
        self.parts.events.as_ref()
    }

    /// Returns whether an event was requested that has not been given yet.
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != UNARMED
    }

    /// Records that a QP of that lcore completes here from now on.
    pub fn add_lcore(&self, lcore: usize) {
        self.lcores.fetch_or(1 << lcore, Ordering::Relaxed);
    }

    /// Returns the lcores with QPs that complete here, one bit each.
    #[inline]
    pub fn lcores(&self) -> u64 {
        self.lcores.load(Ordering::Relaxed)
    }

    /// Returns the channel of the queue's events.
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Adds an entry. Fails if there is no room, and always after that.
    //= check G6 — what does not fit marks the queue, and nothing follows it
    #[inline]
    pub fn push(&self, cqe: Cqe) -> Result<(), Overrun> {
        if self.overrun.load(Ordering::Relaxed) || !self.entries.push(cqe) {
            self.mark_overrun();
            return Err(Overrun);
        }
        Ok(())
    }

    #[cold]
    fn mark_overrun(&self) {
        let was_overrun = self.overrun.swap(true, Ordering::AcqRel);
        if let (false, Some(events)) = (was_overrun, &self.parts.events) {
            events.raise(EventKind::CqErr);
        }
    }

    /// A fence that must come between the pushes of a turn and its calls of
    /// [`notify`](CompletionQueue::notify).
    #[inline]
    pub fn notify_fence() {
        // Pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
    }

    /// Returns whether an added entry, solicited or not, needs a notification.
    #[inline]
    pub fn wants_event(&self, solicited: bool) -> bool {
        match self.armed.load(Ordering::Relaxed) {
            UNARMED => false,
            armed => solicited || armed == Arm::Next as u8,
        }
    }

    /// To be called when the application has let go the queue and will not poll or arm it any more:
    /// the queue gives no event from now on, also if completions still come, and leaves its
    /// channel. An event that waits is discarded.
    ///
    /// That is so of the queues of XRC shared receive queues: a target may be in the middle of a
    /// message when the shared receive queue and its completion queue are destroyed.
    pub fn retire(self: &Arc<CompletionQueue>) {
        let Some(channel) = &self.channel else { return };
        self.is_retired.store(true, Ordering::Relaxed);
        channel.expel(self);
    }

    pub(super) fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Relaxed)
    }

    /// Makes room in the channel for another queue; only the first call does.
    pub(super) fn leave(&self) {
        if let Some(channel) = &self.channel
            && self.is_member.swap(false, Ordering::AcqRel)
        {
            channel.leave();
        }
    }

    /// Gives the event, once for each arming. This enters the kernel.
    #[cold]
    pub fn notify(self: &Arc<CompletionQueue>) {
        if self.armed.swap(UNARMED, Ordering::AcqRel) == UNARMED {
            return;
        }
        if let Some(channel) = &self.channel {
            channel.raise(self);
        }
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
