//! Bed: where an lcore's thread sleeps until its bell, one of its ports or a deadline wakes it.
//!
//! Descriptors are watched edge-triggered: each write to one wakes once, and none is ever read here.
//!
//! Not here: the last look before sleeping ([`crate::slot`]); what ports there are to wait for
//! ([`crate::port`]).

use crate::bell::Bell;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A set of descriptors that wake an lcore's thread.
#[derive(Debug)]
pub(crate) struct Wakers(OwnedFd);

/// An lcore's bed.
#[derive(Debug)]
pub(crate) struct Bed {
    wakers: Arc<Wakers>,
    bell: Arc<Bell>,
}

impl Wakers {
    /// None.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(crate) fn new() -> io::Result<Wakers> {
        Ok(Wakers(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// What is written to this descriptor or can be read from it wakes from now on, until it is closed.
    ///
    /// # Errors
    /// It cannot be waited for, or the system is out of memory.
    pub(crate) fn add(&self, fd: impl AsFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(0), flags)?)
    }

    /// It wakes no more.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        // What was never added is not there.
        let _ = epoll::delete(&self.0, fd);
    }

    /// Sleeps until something wakes, `time` at most. Says whether it could.
    fn wait(&self, time: Duration) -> bool {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 8];
        let mut wait = |time: Duration| {
            let time = Timespec::try_from(time).unwrap_or_default();
            epoll::wait(&self.0, &mut events, Some(&time)).map(|_| ())
        };
        let mut waited = wait(time);
        if waited == Err(Errno::NOSYS) {
            // Linux before 5.11 counts in milliseconds.
            waited = wait(Duration::from_millis(time.as_millis() as u64 + 1));
        }
        // A signal that interrupts it wakes for nothing.
        matches!(waited, Ok(()) | Err(Errno::INTR))
    }
}

impl Bed {
    /// A bed for an lcore with this bell.
    ///
    /// # Errors
    /// The process has no file descriptor left, or the kernel has no barrier for others' threads.
    pub(crate) fn new(bell: &Arc<Bell>) -> io::Result<Bed> {
        if !crate::barrier::register() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let wakers = Arc::new(Wakers::new()?);
        wakers.add(bell.listen()?)?;
        Ok(Bed { wakers, bell: Arc::clone(bell) })
    }

    /// The lcore's bell.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// The bell wakes from now on.
    pub(crate) fn arm(&self) {
        self.bell.arm();
    }

    /// The thread does not sleep after all.
    pub(crate) fn disarm(&self) {
        self.bell.disarm();
    }

    /// Where its ports' descriptors belong.
    pub(crate) fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    /// Sleeps with the bell armed, `time` at most. Says whether it could: a program may have closed
    /// descriptors that are not its own. The bell is not armed afterwards.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let slept = self.wakers.wait(time);
        self.bell.disarm();
        slept
    }
}
