//! Completion channel: how an application sleeps until a completion queue has something.
//!
//! Events are counted by an eventfd in semaphore mode, so a thread may sleep on it with `read`,
//! `poll` or `epoll`; which queue an event is about stands in a queue beside it.
//!
//! Invariants
//! - A queue stands in `ready` at most once, by its flag: an event about a queue whose last event
//!   has not been taken is the same event. So `ready`, as long as the channel has queues, never
//!   overflows, and raising an event neither allocates nor waits.
//! - Each entry of `ready` is followed by a token in the eventfd, and who takes an entry takes a
//!   token first. So an entry without a token is one whose token is about to come: no sleeper
//!   misses it. A token without an entry wakes a sleeper once for nothing.

use super::tokens::Tokens;
use super::{CompletionQueue, CqError};
use crate::sync::{ArrayQueue, AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Events of some completion queues.
#[derive(Debug)]
pub struct CompletionChannel {
    tokens: Tokens,
    ready: ArrayQueue<Arc<CompletionQueue>>,
    /// Queues that may still be made for it.
    free: AtomicU32,
}

impl CompletionChannel {
    /// A channel for up to `max_cqs` completion queues.
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

    /// Waits for an event and says which queue it is about. That queue has to be armed again before
    /// it gives another.
    ///
    /// # Errors
    /// Waiting was interrupted by a signal, or the system fails.
    pub fn wait(&self) -> io::Result<Arc<CompletionQueue>> {
        loop {
            if let Some(cq) = self.try_next()? {
                return Ok(cq);
            }
            self.tokens.wait()?;
        }
    }

    /// The same as a `read` of the descriptor does it: if that was made `O_NONBLOCK` it does not
    /// wait.
    ///
    /// # Errors
    /// As [`wait`](CompletionChannel::wait), or there is no event and the descriptor is `O_NONBLOCK`.
    pub fn read(&self) -> io::Result<Arc<CompletionQueue>> {
        loop {
            self.tokens.read()?;
            if let Some(cq) = self.event_read() {
                return Ok(cq);
            }
        }
    }

    /// The next event, if there is one.
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

    /// The event of a token that the caller has taken by a `read` of the descriptor. `None` if it
    /// was one for nothing.
    pub fn event_read(&self) -> Option<Arc<CompletionQueue>> {
        let cq = self.ready.pop()?;
        cq.has_event.store(false, Ordering::Release);
        Some(cq)
    }

    /// Forgets the event of a queue that is about to be destroyed, and no other's.
    pub fn discard(&self, cq: &Arc<CompletionQueue>) {
        // One round: each queue stands there at most once.
        for _ in 0..self.ready.len() {
            // As everybody does who takes an entry. Without one, the entries that are left are of
            // those who have their tokens in hand. Where the program has closed the descriptor, no
            // token is taken any more, and the entry would keep queue and channel alive for ever.
            if !matches!(self.tokens.take(), Ok(true)) && !self.tokens.are_gone() {
                return;
            }
            match self.ready.pop() {
                Some(other) if Arc::ptr_eq(&other, cq) => {
                    cq.has_event.store(false, Ordering::Release);
                    return;
                }
                Some(other) => {
                    self.put_ready(other);
                    self.tokens.add();
                }
                None => return,
            }
        }
    }

    /// Counts a new queue.
    pub(super) fn admit(&self) -> Result<(), CqError> {
        let take = |free: u32| free.checked_sub(1);
        let taken = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        taken.map(|_| ()).map_err(|_| CqError::ChannelFull)
    }

    /// A queue is gone.
    pub(super) fn leave(&self) {
        self.free.fetch_add(1, Ordering::AcqRel);
    }

    /// Adds an event about `cq`.
    pub(super) fn raise(&self, cq: &Arc<CompletionQueue>) {
        if cq.has_event.swap(true, Ordering::AcqRel) {
            return;
        }
        self.put_ready(Arc::clone(cq));
        self.tokens.add();
    }

    fn put_ready(&self, cq: Arc<CompletionQueue>) {
        let pushed = self.ready.push(cq);
        debug_assert!(pushed.is_ok(), "each queue stands there at most once");
    }
}

impl AsFd for CompletionChannel {
    /// Readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.tokens.as_fd()
    }
}
