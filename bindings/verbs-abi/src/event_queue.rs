//! Events that wait for a program, and the descriptor that tells it.
//!
//! Invariant: the descriptor, an eventfd, counts the events in the queue. Who takes one reads the
//! eventfd first, without our setting its flags; so it blocks, is interrupted or says EAGAIN as the
//! program has it.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::ReadWriteFlags;

use crate::errno::Errno;

/// A queue of events.
pub(crate) struct EventQueue<T> {
    fd: OwnedFd,
    waiting: Mutex<VecDeque<T>>,
}

impl<T> EventQueue<T> {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub(crate) fn new() -> Result<EventQueue<T>, Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(EventQueue { fd, waiting: Mutex::default() })
    }

    /// The descriptor, which is the program's to wait on.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Takes the oldest event; waits for one unless the program has made the descriptor
    /// non-blocking.
    ///
    /// # Errors
    ///
    /// EAGAIN, EINTR.
    pub(crate) fn take(&self) -> Result<T, Errno> {
        loop {
            rustix::io::read(&self.fd, &mut [0; 8])?;
            if let Some(event) = self.lock().pop_front() {
                return Ok(event);
            }
            // It was taken back meanwhile.
        }
    }

    /// Adds an event.
    pub(crate) fn push(&self, event: T) {
        let mut waiting = self.lock();
        waiting.push_back(event);
        // Far from what an eventfd can count.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Takes events back that wait.
    pub(crate) fn take_back(&self, is_one: impl Fn(&T) -> bool) -> Vec<T> {
        let mut waiting = self.lock();
        let (taken, left): (Vec<_>, Vec<_>) = waiting.drain(..).partition(is_one);
        *waiting = left.into();
        for _ in &taken {
            let mut count = [0; 8];
            let place = &mut [IoSliceMut::new(&mut count)];
            // Who has read it already finds nothing in the queue, and reads on. It must not block.
            let _ = rustix::io::preadv2(&self.fd, place, u64::MAX, ReadWriteFlags::NOWAIT);
        }
        taken
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_while_an_event_waits() {
        let queue = EventQueue::new().unwrap();
        rustix::io::ioctl_fionbio(&queue.fd, true).unwrap();
        assert_eq!(queue.take(), Err(Errno::EAGAIN));
        [1, 2, 3].into_iter().for_each(|event| queue.push(event));
        assert_eq!(queue.take_back(|event| event % 2 == 1), [1, 3]);
        assert_eq!((queue.take(), queue.take()), (Ok(2), Err(Errno::EAGAIN)));
    }
}
