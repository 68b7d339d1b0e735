//! Queue of connection events for an application, with a file descriptor to wait on.
//!
//! Invariants
//! - The descriptor is readable exactly while an event waits.
//! - No event of an id is delivered once [`CmSink::forget`] has returned.
//! - At most [`PER_ID`] events of an id wait. A further event replaces the oldest one of a kind
//!   that can occur any number of times, or is dropped if there is none.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use uroce_engine::EventFd;

use super::{CmEvent, CmId, CmSink};

/// Most waiting events of one id. A connection has fewer, apart from changes of its path.
const PER_ID: usize = 16;

/// A queue of connection events. Listeners and connections created with the same channel share it.
#[derive(Debug)]
pub struct CmChannel {
    waiting: Mutex<VecDeque<CmEvent>>,
    came: Condvar,
    /// Eventfd with value 1 while an event waits and 0 otherwise.
    readable: EventFd,
}

impl CmChannel {
    /// Creates an empty channel.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new() -> io::Result<Arc<CmChannel>> {
        let readable = EventFd::new(EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(CmChannel { waiting: Mutex::default(), came: Condvar::new(), readable }))
    }

    /// Takes the oldest event without waiting; `None` if there is none.
    pub fn try_next(&self) -> Option<CmEvent> {
        self.pop(&mut self.lock())
    }

    /// Takes the oldest event. Blocks until there is one or `timeout` has passed.
    pub fn next(&self, timeout: Duration) -> Option<CmEvent> {
        let end = Instant::now().checked_add(timeout);
        let mut waiting = self.lock();
        loop {
            if let Some(event) = self.pop(&mut waiting) {
                return Some(event);
            }
            // `timeout` may lie beyond the range of the clock; then each wait lasts `timeout`.
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let woken = self.came.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pop(&self, waiting: &mut VecDeque<CmEvent>) -> Option<CmEvent> {
        let event = waiting.pop_front()?;
        if waiting.is_empty() {
            self.drain();
        }
        Some(event)
    }

    fn drain(&self) {
        // The eventfd is 1, so that the read does not block.
        self.readable.drain();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<CmEvent>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CmSink for CmChannel {
    fn give(&self, event: CmEvent) {
        let mut waiting = self.lock();
        let of_id = waiting.iter().filter(|other| other.id == event.id).count();
        if of_id >= PER_ID {
            let repeats = |other: &CmEvent| other.id == event.id && other.kind.repeats();
            let Some(oldest) = waiting.iter().position(repeats) else { return };
            waiting.remove(oldest);
        }
        waiting.push_back(event);
        if waiting.len() == 1 {
            // The eventfd is 0, so that the write does not block.
            self.readable.signal();
        }
        self.came.notify_one();
    }

    fn forget(&self, id: CmId) -> bool {
        let mut waiting = self.lock();
        let before = waiting.len();
        waiting.retain(|event| event.id != id);
        if before > 0 && waiting.is_empty() {
            self.drain();
        }
        waiting.len() < before
    }

    fn take_of(&self, id: CmId) -> Vec<CmEvent> {
        let mut waiting = self.lock();
        let had = !waiting.is_empty();
        let (of_id, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|event| event.id == id);
        *waiting = others.into();
        if had && waiting.is_empty() {
            self.drain();
        }
        of_id
    }
}

impl AsFd for CmChannel {
    /// Returns the descriptor, which is readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests;
