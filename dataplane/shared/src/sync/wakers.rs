//! Wakers: a set of descriptors that wake the thread which sleeps on it.
//!
//! Descriptors are watched edge-triggered: each write to one wakes the thread once, and this module
//! reads none of them.
//!
//! Not here: the last look for work before sleeping ([`crate::wake::bed`]).

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// A set of descriptors (an epoll instance) that wake an lcore's thread.
#[derive(Debug)]
pub struct Wakers(OwnedFd);

impl Wakers {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Wakers> {
        Ok(Wakers(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor: from now on, data that can be read from it wakes the thread, until it is
    /// closed.
    ///
    /// # Errors
    /// The descriptor cannot be waited for, or the system is out of memory.
    pub fn add(&self, fd: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(0), flags)?)
    }

    /// Removes a descriptor from the set.
    pub fn remove(&self, fd: impl AsFd) {
        // Deleting a descriptor that was never added fails without effect.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Sleeps until a descriptor wakes the thread, at most for `time`. Returns false if the kernel
    /// cannot wait.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 8];
        let mut wait = |time: Duration| {
            let time = Timespec::try_from(time).unwrap_or_default();
            epoll::wait(&self.0, &mut events, Some(&time)).map(|_| ())
        };
        let mut waited = wait(time);
        if waited == Err(Errno::NOSYS) {
            // Linux before 5.11 has no nanosecond timeout: use milliseconds.
            waited = wait(Duration::from_millis(time.as_millis() as u64 + 1));
        }
        // A signal that interrupts the wait only makes the thread look for work once more.
        matches!(waited, Ok(()) | Err(Errno::INTR))
    }
}
