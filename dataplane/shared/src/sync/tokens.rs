//! Tokens for which a thread can sleep: an eventfd in semaphore mode.
//!
//! Invariants
//! - Each token that is added is taken once.
//! - Waiting threads are woken while there is a token; the token stays until it is taken.
//! - The descriptor blocks until a program that has it sets `O_NONBLOCK`, which changes
//!   [`Tokens::read`] and nothing else.
//! - If a program has closed the descriptor there are no tokens any more, and the program's own
//!   file of that number is not touched ([`EventFd`]).

use crate::sync::eventfd::EventFd;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

/// Sleep of a thread that has no descriptor to wake it.
const NAP: Duration = Duration::from_millis(10);

/// A number of tokens.
#[derive(Debug)]
pub struct Tokens(EventFd);

impl Tokens {
    /// Makes tokens without any at first.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Tokens> {
        Ok(Tokens(EventFd::new(EventfdFlags::SEMAPHORE)?))
    }

    /// Adds a token.
    pub fn add(&self) {
        self.0.signal();
    }

    /// Takes a token, if there is one. Returns whether there was.
    ///
    /// # Errors
    /// The system fails.
    pub fn take(&self) -> io::Result<bool> {
        // An offset of −1: the descriptor has no position.
        const HERE: u64 = u64::MAX;
        if !self.0.is_ours() {
            return Ok(false);
        }
        let mut count = [0; 8];
        let count = &mut [IoSliceMut::new(&mut count)];
        match preadv2(&self.0, count, HERE, ReadWriteFlags::NOWAIT) {
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            // Linux before 5.8 has no non-blocking read here.
            Err(Errno::OPNOTSUPP) => self.take_seen(),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a token after it was seen. If another thread takes it first, this waits for the next.
    #[cold]
    fn take_seen(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? == 0 {
            return Ok(false);
        }
        self.read().map(|()| true)
    }

    /// Returns whether the program has closed the descriptor, and with it all tokens.
    pub fn are_gone(&self) -> bool {
        !self.0.is_ours()
    }

    /// Takes a token as `read` does: waits for it, unless the descriptor was made `O_NONBLOCK`.
    ///
    /// # Errors
    /// There is none and the descriptor is `O_NONBLOCK`, a signal interrupted the wait, the program
    /// has closed the descriptor (EBADF), or the system fails.
    pub fn read(&self) -> io::Result<()> {
        self.check()?;
        rustix::io::read(&self.0, &mut [0; 8])?;
        Ok(())
    }

    /// Sleeps until there is a token.
    ///
    /// # Errors
    /// A signal interrupted the wait, the program has closed the descriptor (EBADF), or the system
    /// fails.
    pub fn wait(&self) -> io::Result<()> {
        self.check()?;
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, None)?;
        Ok(())
    }

    /// Sleeps until there is a token, at most for `timeout`. Without the descriptor it only naps:
    /// the caller has to check for work itself.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub fn wait_for(&self, timeout: Duration) -> io::Result<()> {
        if !self.0.is_ours() {
            thread::sleep(timeout.min(NAP));
            return Ok(());
        }
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        // A timeout that the kernel's type cannot hold means for ever.
        let timeout = Timespec::try_from(timeout).ok();
        poll(&mut fds, timeout.as_ref())?;
        Ok(())
    }

    /// Checks that the descriptor is still there.
    ///
    /// # Errors
    /// EBADF: the program has closed it.
    fn check(&self) -> io::Result<()> {
        if self.0.is_ours() { Ok(()) } else { Err(Errno::BADF.into()) }
    }
}

impl AsFd for Tokens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
