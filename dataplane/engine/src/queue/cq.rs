//! Completion queue: filled by lcores, polled by the application.
//!
//! Invariants
//! - An entry is in the queue whole or not at all, and leaves it once.
//! - Entries of one QP come in the order in which its core made them, without a gap: after the
//!   first that found no room ([`CqError::Overrun`]) no other is taken.
//! - An armed queue notifies once. The lcore puts an entry in and then looks whether the queue is
//!   armed; the application arms and then polls again. A sequentially consistent fence on either
//!   side makes one of them see the other, so no wake-up is lost.
//! - A queue that grows while it is used loses no entry, keeps each QP's order, and wakes who
//!   waits.
//!
//! Not here: how it grows ([`rings`]), what an event looks like to the application ([`super::channel`]).

mod rings;

use super::CompletionChannel;
use super::places::Places;
use crate::events::{EventGuard, EventKind};
use crate::qsbr::Turns;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, Ordering, fence};
use crossbeam_utils::CachePadded;
use rings::Ring;
use std::sync::{Arc, PoisonError};
use uroce_transport::Cqe;

/// Most entries of a completion queue.
pub const MAX_CQ_DEPTH: u32 = 1 << 22;

// An entry and the queue's stamp for it fill one cache line.
const _: () = assert!(size_of::<Cqe>() <= 56);

/// What the next event is to be about.
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

/// What can be wrong with a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CqError {
    /// A completion found no room. What came before it has been polled; it and all later ones are
    /// lost, and their QPs are in ERR.
    #[error("completion queue overrun")]
    Overrun,
    /// A depth of 0 or above [`MAX_CQ_DEPTH`].
    #[error("completion queue depth {0} is not in 1..={MAX_CQ_DEPTH}")]
    Depth(u32),
    /// More completions wait in the queue than it was to hold.
    #[error("{waiting} completions wait in a queue that was to be resized to {depth}")]
    TooSmall {
        /// What was asked for.
        depth: u32,
        /// Completions in the queue.
        waiting: u32,
    },
    /// As many objects that give asynchronous events exist as the engine can have.
    #[error("no completion queue is left")]
    NoneLeft,
    /// The channel was made for fewer queues.
    #[error("completion channel has as many queues as it was made for")]
    ChannelFull,
}

/// A completion queue. Any thread may poll; each completion goes to one of them.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: Ring,
    /// Entries that were asked for.
    depth: AtomicU32,
    /// Held by who resizes it.
    resizing: Mutex<()>,
    around: Around,
    overrun: AtomicBool,
    armed: CachePadded<AtomicU8>,
    channel: Option<Arc<CompletionChannel>>,
    /// Whether it stands in the channel; see [`CompletionChannel`].
    pub(super) has_event: AtomicBool,
    /// Bit *i*: QPs of lcore *i* complete here, or did.
    lcores: AtomicU64,
}

/// What a completion queue of an engine has to do with.
#[derive(Debug, Default)]
pub(crate) struct Around {
    /// Its overrun is an asynchronous event.
    pub(crate) events: Option<EventGuard>,
    /// Turns in which lcores put entries in; without, nobody does in turns.
    pub(crate) turns: Option<Arc<Turns>>,
    /// Whose places are free when completions are polled.
    pub(crate) places: Option<Arc<Places>>,
}

/// The queue has overrun: the QP that completed has to go to ERR.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overrun;

impl CompletionQueue {
    /// An empty queue for `depth` entries whose events, if it is ever armed, go to `channel`.
    ///
    /// # Errors
    /// See [`CqError`].
    pub fn new(
        depth: u32,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue>, CqError> {
        CompletionQueue::within(Around::default(), depth, channel)
    }

    /// An empty queue of an engine.
    pub(crate) fn within(
        around: Around,
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
            around,
            overrun: AtomicBool::new(false),
            armed: CachePadded::default(),
            channel: channel.cloned(),
            has_event: AtomicBool::new(false),
            lcores: AtomicU64::new(0),
        }))
    }

    /// Takes the oldest completion, if there is one. The places of its work request and of those
    /// before it in the same queue are free then.
    ///
    /// # Errors
    /// [`CqError::Overrun`] once everything from before the overrun has been taken.
    #[inline]
    pub fn poll(&self) -> Result<Option<Cqe>, CqError> {
        if let Some(cqe) = self.pop() {
            return Ok(Some(cqe));
        }
        if !self.is_overrun() {
            return Ok(None);
        }
        // The last good entry may have come between the two looks.
        self.pop().map(Some).ok_or(CqError::Overrun)
    }

    #[inline]
    fn pop(&self) -> Option<Cqe> {
        let cqe = self.entries.pop()?;
        if let Some(places) = &self.around.places {
            places.polled(&cqe);
        }
        Some(cqe)
    }

    /// Appends up to `max` completions to `out` and returns how many.
    ///
    /// # Errors
    /// [`CqError::Overrun`] as [`poll`](CompletionQueue::poll), if there was none to append.
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

    /// Asks for one event, for a completion that is put in from now on.
    ///
    /// Completions that are already there give none: poll after arming. Arming for any completion
    /// takes precedence over arming for a solicited one.
    //= check G9 — arm and poll again loses no wake-up
    pub fn arm(&self, kind: Arm) {
        self.armed.fetch_max(kind as u8, Ordering::SeqCst);
        // Pairs with the fence in `notify_fence`.
        fence(Ordering::SeqCst);
    }

    /// How many entries it was asked to hold. One that was larger before may hold more.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Has the queue hold at least `depth` entries from now on. Completions may come and be polled
    /// meanwhile: each is polled once, those of a QP in their order. Returns when completions that
    /// came first into what was added can be polled, after a turn of each lcore.
    ///
    /// A queue does not give memory back: asked for less, it keeps what it has.
    ///
    /// # Errors
    /// [`CqError::Depth`]; [`CqError::TooSmall`] if more completions wait to be polled. The queue
    /// is as it was then.
    //= check G11 — resized during traffic: each completion once, the order of a QP kept
    pub fn resize(self: &Arc<CompletionQueue>, depth: u32) -> Result<(), CqError> {
        if depth == 0 || depth > MAX_CQ_DEPTH {
            return Err(CqError::Depth(depth));
        }
        let _resizing = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // At most 2 · `MAX_CQ_DEPTH`.
        let waiting = self.entries.len() as u32;
        if waiting > depth {
            return Err(CqError::TooSmall { depth, waiting });
        }
        if depth as usize > self.entries.capacity() {
            self.entries.grow(depth.next_power_of_two(), self.around.turns.as_deref());
            // Pairs with the fence in `arm`: whoever armed and found nothing, since it could not be
            // taken yet, is woken here.
            fence(Ordering::SeqCst);
            if self.entries.len() > 0 && self.wants_event(true) {
                self.notify();
            }
        }
        self.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    /// Has a completion been lost for want of room?
    pub fn is_overrun(&self) -> bool {
        // Pairs with `push`: who sees it sees all entries from before.
        self.overrun.load(Ordering::Acquire)
    }

    /// How asynchronous events are told of it: by which channel and number. `None` if it gives none.
    pub fn events(&self) -> Option<&EventGuard> {
        self.around.events.as_ref()
    }

    /// Is an event asked for that has not come yet?
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != UNARMED
    }

    /// A QP of that lcore completes here from now on.
    pub(crate) fn add_lcore(&self, lcore: usize) {
        self.lcores.fetch_or(1 << lcore, Ordering::Relaxed);
    }

    /// The lcores whose QPs complete here, one bit each.
    #[inline]
    pub(crate) fn lcores(&self) -> u64 {
        self.lcores.load(Ordering::Relaxed)
    }

    /// Where its events go.
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Puts an entry in.
    //= check G6 — what does not fit marks the queue, and nothing follows it
    #[inline]
    pub(crate) fn push(&self, cqe: Cqe) -> Result<(), Overrun> {
        if self.overrun.load(Ordering::Relaxed) || !self.entries.push(cqe) {
            self.mark_overrun();
            return Err(Overrun);
        }
        Ok(())
    }

    #[cold]
    fn mark_overrun(&self) {
        let was_overrun = self.overrun.swap(true, Ordering::AcqRel);
        if let (false, Some(events)) = (was_overrun, &self.around.events) {
            events.raise(EventKind::CqErr);
        }
    }

    /// To stand between the pushes of a turn and the [`notify`](CompletionQueue::notify)s.
    #[inline]
    pub(crate) fn notify_fence() {
        // Pairs with the fence in `arm`.
        fence(Ordering::SeqCst);
    }

    /// Is this queue to be notified of such an entry?
    #[inline]
    pub(crate) fn wants_event(&self, solicited: bool) -> bool {
        match self.armed.load(Ordering::Relaxed) {
            UNARMED => false,
            armed => solicited || armed == Arm::Next as u8,
        }
    }

    /// Gives the event, once for each arming: the only way from an lcore into the kernel.
    #[cold]
    pub(crate) fn notify(self: &Arc<CompletionQueue>) {
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
        if let Some(channel) = &self.channel {
            channel.leave();
        }
    }
}

#[cfg(test)]
mod tests;
