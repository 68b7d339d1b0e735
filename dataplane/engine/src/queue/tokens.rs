//! Tokens that a thread can sleep for: an eventfd in semaphore mode.
//!
//! Invariants
//! - Each token that is added is taken once.
//! - Whoever waits is woken while there is a token; the token stays until it is taken.
//! - The descriptor is blocking until a program that it is given to says otherwise (`O_NONBLOCK`),
//!   which changes [`Tokens::read`] and nothing else.
//! - Where a program has closed the descriptor there are no tokens any more, and its own file of
//!   that number is left alone ([`EventFd`]).

use crate::eventfd::EventFd;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::Duration;

/// How long a thread sleeps that nothing can wake.
const NAP: Duration = Duration::from_millis(10);

/// A number of tokens, none at first.
#[derive(Debug)]
pub struct Tokens(EventFd);

impl Tokens {
    /// None.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Tokens> {
        Ok(Tokens(EventFd::new(EventfdFlags::SEMAPHORE)?))
    }

    /// Adds one.
    pub fn add(&self) {
        self.0.signal();
    }

    /// Takes one, if there is one.
    ///
    /// # Errors
    /// The system fails.
    pub fn take(&self) -> io::Result<bool> {
        // No position: the descriptor has none.
        const HERE: u64 = u64::MAX;
        if !self.0.is_ours() {
            return Ok(false);
        }
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

    /// Whether the program has closed the descriptor, and all tokens with it.
    pub fn are_gone(&self) -> bool {
        !self.0.is_ours()
    }

    /// Takes one as `read` does it: waits for it, unless the descriptor was made `O_NONBLOCK`.
    ///
    /// # Errors
    /// There is none and the descriptor is `O_NONBLOCK`, a signal interrupted the wait, the program
    /// has closed the descriptor (EBADF), or the system fails.
    pub fn read(&self) -> io::Result<()> {
        self.check()?;
        rustix::io::read(&self.0, &mut [0; 8])?;
        Ok(())
    }

    /// Sleeps until there is one.
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

    /// Sleeps until there is one, at most for `timeout`. Without the descriptor that is a nap: the
    /// caller looks by itself then whether there is something.
    ///
    /// # Errors
    /// A signal interrupted the wait, or the system fails.
    pub fn wait_for(&self, timeout: Duration) -> io::Result<()> {
        if !self.0.is_ours() {
            thread::sleep(timeout.min(NAP));
            return Ok(());
        }
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        // Beyond what the kernel's type can say is for ever.
        let timeout = Timespec::try_from(timeout).ok();
        poll(&mut fds, timeout.as_ref())?;
        Ok(())
    }

    /// Looks whether the descriptor is there.
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
