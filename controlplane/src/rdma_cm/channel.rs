//! Queue of connection events for an application, with a file descriptor to wait on.
//!
//! Invariants
//! - The descriptor is readable exactly while an event waits.
//! - Events of an id that wait when [`CmSink::forget`] is called are never delivered.
//! - At most [`PER_ID`] events of an id wait. A further event replaces the id's oldest event that
//!   can occur any number of times ([`ConnEvent::repeats`]). If no such event waits, the further
//!   event is dropped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::EventfdFlags;
use uroce_engine::EventFd;

use super::{CmId, CmSink, ConnEvent};

/// Largest number of waiting events of one id. A connection causes fewer, not counting changes of
/// its alternate path.
const PER_ID: usize = 16;

/// A queue of connection events. Listeners and connections created with the same channel share it.
#[derive(Debug)]
pub struct CmChannel {
    waiting: Mutex<VecDeque<(CmId, ConnEvent)>>,
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

    /// Takes the oldest event and the id that it belongs to, without waiting; `None` if there is
    /// none.
    pub fn try_next(&self) -> Option<(CmId, ConnEvent)> {
        self.pop(&mut self.lock())
    }

    /// Takes the oldest event and the id that it belongs to. Blocks until there is one; returns
    /// `None` once `timeout` has passed.
    pub fn next(&self, timeout: Duration) -> Option<(CmId, ConnEvent)> {
        let end = Instant::now().checked_add(timeout);
        let mut waiting = self.lock();
        loop {
            if let Some(event) = self.pop(&mut waiting) {
                return Some(event);
            }
            // `timeout` may lie beyond the range of the clock. Each wait then lasts `timeout`.
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let woken = self.came.wait_timeout(waiting, left);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn pop(&self, waiting: &mut VecDeque<(CmId, ConnEvent)>) -> Option<(CmId, ConnEvent)> {
        let event = waiting.pop_front()?;
        if waiting.is_empty() {
            self.drain();
        }
        Some(event)
    }

    fn drain(&self) {
        // The eventfd is 1: the read resets it to 0.
        self.readable.drain();
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(CmId, ConnEvent)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CmSink for CmChannel {
    fn give(&self, id: CmId, event: ConnEvent) {
        let mut waiting = self.lock();
        let of_id = waiting.iter().filter(|(of, _)| *of == id).count();
        if of_id >= PER_ID {
            let repeats = |(of, other): &(CmId, ConnEvent)| *of == id && other.repeats();
            let Some(oldest) = waiting.iter().position(repeats) else { return };
            waiting.remove(oldest);
        }
        waiting.push_back((id, event));
        if waiting.len() == 1 {
            // The eventfd is 0: the write sets it to 1.
            self.readable.signal();
        }
        self.came.notify_one();
    }

    fn forget(&self, id: CmId) -> bool {
        let mut waiting = self.lock();
        let before = waiting.len();
        waiting.retain(|(of, _)| *of != id);
        if before > 0 && waiting.is_empty() {
            self.drain();
        }
        waiting.len() < before
    }

    fn take_of(&self, id: CmId) -> Vec<ConnEvent> {
        let mut waiting = self.lock();
        let had = !waiting.is_empty();
        let (of_id, others): (Vec<_>, Vec<_>) = waiting.drain(..).partition(|(of, _)| *of == id);
        *waiting = others.into();
        if had && waiting.is_empty() {
            self.drain();
        }
        of_id.into_iter().map(|(_, event)| event).collect()
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
