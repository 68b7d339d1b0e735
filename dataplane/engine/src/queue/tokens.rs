//! Tokens that a thread can sleep for: an eventfd in semaphore mode.
//!
//! Invariants
//! - Each token that is added is taken once.
//! - Whoever waits is woken while there is a token; the token stays until it is taken.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A number of tokens, none at first.
#[derive(Debug)]
pub(crate) struct Tokens(OwnedFd);

impl Tokens {
    /// # Errors
    /// The process has no file descriptor left.
    pub(crate) fn new() -> io::Result<Tokens> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        Ok(Tokens(eventfd(0, flags)?))
    }

    /// Adds one.
    pub(crate) fn add(&self) {
        // Fails only if 2^64 − 2 tokens are waiting.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes one, if there is one.
    ///
    /// # Errors
    /// The system fails.
    pub(crate) fn take(&self) -> io::Result<bool> {
        let mut count = [0; 8];
        match rustix::io::read(&self.0, &mut count) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until there is one.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, None)?;
        Ok(())
    }

    /// The same, at most for `timeout`.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub(crate) fn wait_for(&self, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        // Beyond what the kernel's type can say is for ever.
        let timeout = Timespec::try_from(timeout).ok();
        poll(&mut fds, timeout.as_ref())?;
        Ok(())
    }
}

impl AsFd for Tokens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
