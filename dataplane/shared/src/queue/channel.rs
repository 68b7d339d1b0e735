//! Completion channel: lets an application sleep until a completion queue has a completion.
//!
//! An eventfd in semaphore mode counts the events, so a thread may sleep on it with `read`, `poll`
//! or `epoll`. A queue beside it names the completion queue of each event.
//!
//! Invariants
//! - A completion queue is in `ready` at most once, by its flag: a queue that has an event which
//!   was not taken gives no other. So `ready` has room for each queue of the channel, and raising
//!   an event neither allocates nor waits. A queue that was expelled has the flag without an entry,
//!   for ever.
//! - A thread that has the flag, or an entry, of a queue that is retired meanwhile looks for that
//!   when it has put back what it had, and expels the queue. So one of the threads does.
//! - Each entry of `ready` is followed by a token in the eventfd, and a thread takes a token before
//!   it takes an entry. So the token of an entry without one is about to come, and no sleeper
//!   misses it. A token without an entry only wakes a sleeper for nothing.

use super::{CompletionQueue, CqError};
use crate::sync::tokens::Tokens;
use crate::sync::{ArrayQueue, AtomicU32, Ordering, fence};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The channel through which completion queues signal their events.
#[derive(Debug)]
pub struct CompletionChannel {
    tokens: Tokens,
    ready: ArrayQueue<Arc<CompletionQueue>>,
    /// How many more queues can be made for the channel.
    free: AtomicU32,
}

impl CompletionChannel {
    /// Makes a channel for up to `max_cqs` completion queues.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new(max_cqs: u32) -> io::Result<Arc<CompletionChannel>> {
        Ok(Arc::new(CompletionChannel {
            tokens: Tokens::new()?,
            ready: ArrayQueue::new(max_cqs.max(1) as usize),
            free: AtomicU32::new(max_cqs),
        }))
    }

    /// Waits for an event and returns the completion queue that it is about. That queue must be
    /// armed again before it gives another event.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub fn wait(&self) -> io::Result<Arc<CompletionQueue>> {
        loop {
            if let Some(cq) = self.try_next()? {
                return Ok(cq);
            }
            self.tokens.wait()?;
        }
    }

    /// Takes an event as a `read` of the descriptor does: waits for it unless the descriptor was
    /// made `O_NONBLOCK`. Returns the completion queue that the event is about.
    ///
    /// # Errors
    /// There is no event and the descriptor is `O_NONBLOCK`, a signal interrupted the wait, or the
    /// system fails.
    pub fn read(&self) -> io::Result<Arc<CompletionQueue>> {
        loop {
            self.tokens.read()?;
            if let Some(cq) = self.event_read() {
                return Ok(cq);
            }
        }
    }

    /// Returns the completion queue of the next event, if there is an event.
    ///
    /// # Errors
    /// The system fails.
    pub fn try_next(&self) -> io::Result<Option<Arc<CompletionQueue>>> {
        while self.tokens.take()? {
            if let Some(cq) = self.event_read() {
                return Ok(Some(cq));
            }
        }
        Ok(None)
    }

    /// Whether the descriptor is still the channel's. If not, the program has closed it, and its
    /// number may be another file's, which the application must not read.
    pub fn is_open(&self) -> bool {
        !self.tokens.are_gone()
    }

    /// Returns the completion queue of the event after the caller took its token by a `read` of the
    /// descriptor. `None` if the token has no event.
    pub fn event_read(&self) -> Option<Arc<CompletionQueue>> {
        let cq = self.ready.pop()?;
        cq.has_event.swap(false, Ordering::AcqRel);
        if self.has_expelled(&cq) { None } else { Some(cq) }
    }

    /// Discards the event of a queue that is about to be destroyed, and of no other queue.
    pub fn discard(&self, cq: &Arc<CompletionQueue>) {
        if self.take_out(cq) {
            cq.has_event.swap(false, Ordering::AcqRel);
            self.has_expelled(cq);
        }
    }

    /// Takes the event of a queue out, and of no other queue. The queue's flag stays set. False if
    /// the queue has no event, or another thread is about to take it or to put it there.
    fn take_out(&self, cq: &Arc<CompletionQueue>) -> bool {
        // One round is enough: each queue is there at most once.
        for _ in 0..self.ready.len() {
            // A token is taken before an entry, as everywhere. If there is none, the entries that
            // are left belong to threads that have taken their tokens. If the program has closed
            // the descriptor, no token is ever taken, and the entry would keep queue and channel
            // alive for ever.
            if !matches!(self.tokens.take(), Ok(true)) && !self.tokens.are_gone() {
                return false;
            }
            match self.ready.pop() {
                Some(other) if Arc::ptr_eq(&other, cq) => return true,
                Some(other) => {
                    self.put_ready(Arc::clone(&other));
                    self.tokens.add();
                    self.has_expelled(&other);
                }
                None => return false,
            }
        }
        false
    }

    /// Expels a queue if it is retired, and returns whether it is. To be called after each change
    /// of the queue's flag or entry.
    fn has_expelled(&self, cq: &Arc<CompletionQueue>) -> bool {
        // Pairs with the fence in `expel`: this thread sees that the queue is retired, or the
        // retiring thread sees what this one has changed.
        fence(Ordering::SeqCst);
        let is_retired = cq.is_retired();
        if is_retired {
            self.expel(cq);
        }
        is_retired
    }

    /// Ends the events of a retired queue, to which completions may still come: discards the one
    /// that waits, and no other follows. If another thread has the queue's entry, or is adding it,
    /// that thread does this.
    #[cold]
    pub(super) fn expel(&self, cq: &Arc<CompletionQueue>) {
        fence(Ordering::SeqCst);
        // The flag of a queue without an entry means that there never is another one.
        if !cq.has_event.swap(true, Ordering::AcqRel) || self.take_out(cq) {
            cq.leave();
        }
    }

    /// Counts a new completion queue. Fails if the channel has as many as it was made for.
    pub(super) fn admit(&self) -> Result<(), CqError> {
        let take = |free: u32| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        taken.map(|_| ()).map_err(|_| CqError::ChannelFull)
    }

    /// Called when a completion queue of the channel is gone.
    pub(super) fn leave(&self) {
        self.free.fetch_add(1, Ordering::AcqRel);
    }

    /// Adds an event about `cq`, unless one waits already.
    pub(super) fn raise(&self, cq: &Arc<CompletionQueue>) {
        if cq.has_event.swap(true, Ordering::AcqRel) {
            return;
        }
        self.put_ready(Arc::clone(cq));
        self.tokens.add();
        self.has_expelled(cq);
    }

    fn put_ready(&self, cq: Arc<CompletionQueue>) {
        let pushed = self.ready.push(cq);
        debug_assert!(pushed.is_ok(), "each queue stands there at most once");
    }
}

impl AsFd for CompletionChannel {
    /// The descriptor that is readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tokens.as_fd()
    }
}
