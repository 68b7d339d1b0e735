//! Bed: where an lcore's thread sleeps until its bell, one of its ports or a deadline wakes it.
//!
//! Descriptors are watched edge-triggered: each write to one wakes the thread once, and this module
//! reads none of them.
//!
//! Not here: the last look for work before sleeping ([`crate::slot`]); the descriptors of ports
//! ([`crate::port`]).

use crate::bell::Bell;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A set of descriptors (an epoll instance) that wake an lcore's thread.
#[derive(Debug)]
pub(crate) struct Wakers(OwnedFd);

/// An lcore's bed.
#[derive(Debug)]
pub(crate) struct Bed {
    wakers: Arc<Wakers>,
    bell: Arc<Bell>,
}

impl Wakers {
    /// Makes an empty set.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(crate) fn new() -> io::Result<Wakers> {
        Ok(Wakers(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a descriptor: from now on, data that can be read from it wakes the thread, until it is
    /// closed.
    ///
    /// # Errors
    /// The descriptor cannot be waited for, or the system is out of memory.
    pub(crate) fn add(&self, fd: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(0), flags)?)
    }

    /// Removes a descriptor from the set.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // Deleting a descriptor that was never added fails without effect.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Sleeps until a descriptor wakes the thread, at most for `time`. Returns false if the kernel
    /// cannot wait.
    fn wait(&self, time: Duration) -> bool {
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

impl Bed {
    /// Makes a bed for the lcore of this bell.
    ///
    /// # Errors
    /// The process has no file descriptor left, or the kernel has no barrier for other threads.
    pub(crate) fn new(bell: &Arc<Bell>) -> io::Result<Bed> {
        if !crate::barrier::register() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let wakers = Arc::new(Wakers::new()?);
        wakers.add(bell.listen()?)?;
        Ok(Bed { wakers, bell: Arc::clone(bell) })
    }

    /// Returns the lcore's bell.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Arms the bell: from now on it wakes the thread.
    pub(crate) fn arm(&self) {
        self.bell.arm();
    }

    /// Disarms the bell: the thread does not sleep after all.
    pub(crate) fn disarm(&self) {
        self.bell.disarm();
    }

    /// Returns the set to which the descriptors of the lcore's ports are added.
    pub(crate) fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    /// Sleeps with the bell armed, at most for `time`; the bell is disarmed afterwards. Returns
    /// false if it could not sleep: a program may have closed descriptors that are not its own.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let slept = self.wakers.wait(time);
        self.bell.disarm();
        slept
    }
}
