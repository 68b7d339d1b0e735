//! Tokens that a thread can sleep for: an eventfd in semaphore mode.
//!
//! Invariants
//! - Each token that is added is taken once.
//! - Whoever waits is woken while there is a token; the token stays until it is taken.
//! - The descriptor is blocking until a program that it is given to says otherwise (`O_NONBLOCK`),
//!   which changes [`Tokens::read`] and nothing else.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// A number of tokens, none at first.
#[derive(Debug)]
pub struct Tokens(OwnedFd);

impl Tokens {
    /// None.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Tokens> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE;
        Ok(Tokens(eventfd(0, flags)?))
    }

    /// Adds one.
    pub fn add(&self) {
        // Fails only if 2^64 − 2 tokens are waiting.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes one, if there is one.
    ///
    /// # Errors
    /// The system fails.
    pub fn take(&self) -> io::Result<bool> {
        // No position: the descriptor has none.
        const HERE: u64 = u64::MAX;
        let mut count = [0; 8];
        let count = &mut [IoSliceMut::new(&mut count)];
        match preadv2(&self.0, count, HERE, ReadWriteFlags::NOWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            // Linux before 5.8 cannot do it at once.
            Err(Errno::OPNOTSUPP) => self.take_seen(),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes one that is seen first. Who sees the same one at the same time may wait for the next.
    #[cold]
    fn take_seen(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Ok(false);
        }
        self.read().map(|()| true)
    }

    /// Takes one as `read` does it: waits for it, unless the descriptor was made `O_NONBLOCK`.
    ///
    /// # Errors
    /// There is none and the descriptor is `O_NONBLOCK`, a signal interrupted the wait, or the
    /// system fails.
    pub fn read(&self) -> io::Result<()> {
        rustix::io::read(&self.0, &mut [0; 8])?;
        Ok(())
    }

    /// Sleeps until there is one.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub fn wait(&self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, None)?;
        Ok(())
    }

    /// The same, at most for `timeout`.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub fn wait_for(&self, timeout: Duration) -> io::Result<()> {
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
