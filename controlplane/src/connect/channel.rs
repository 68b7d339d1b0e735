//! Events of connections on their way to the application, behind a file descriptor.
//!
//! Invariants
//! - The descriptor is readable while an event waits, and only then.
//! - No event of an id is given once [`CmSink::forget`] has returned.
//! - What waits is bounded by the ids that exist: an id that has [`PER_ID`] events waiting gets no
//!   more; its oldest that can come again and again makes room.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use uroce_engine::EventFd;

use super::{CmEvent, CmId, CmSink};

/// Events of one id that may wait. A connection's life has fewer, but for path changes.
const PER_ID: usize = 16;

/// A queue of connection events. Listeners and connections that were given the same channel share
/// it.
#[derive(Debug)]
pub struct CmChannel {
    waiting: Mutex<VecDeque<CmEvent>>,
    came: Condvar,
    /// An eventfd whose value is 1 while an event waits and 0 while none does.
    readable: EventFd,
}

impl CmChannel {
    /// An empty channel.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Arc<CmChannel>> {
        let readable = EventFd::new(EventfdFlags::NONBLOCK)?;
        Ok(Arc::new(CmChannel { waiting: Mutex::default(), came: Condvar::new(), readable }))
    }

    /// The oldest event, if one waits.
    pub fn try_next(&self) -> Option<CmEvent> {
        self.pop(&mut self.lock())
    }

    /// The oldest event; waits for one at most so long.
    pub fn next(&self, timeout: Duration) -> Option<CmEvent> {
        let end = Instant::now().checked_add(timeout);
        let mut waiting = self.lock();
        loop {
            if let Some(event) = self.pop(&mut waiting) {
                return Some(event);
            }
            // A deadline beyond what the clock can tell is none.
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
        // An eventfd that is 1 gives it.
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
            // An eventfd that is 0 takes a 1.
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
    /// Readable while an event waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }
}

#[cfg(test)]
mod tests;
