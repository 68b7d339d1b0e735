//! Replacement of the eventfd in models: a counter that a thread can wait for.

use loom::sync::{Condvar, Mutex};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::PoisonError;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Tokens {
    count: Mutex<u64>,
    some: Condvar,
}

impl Tokens {
    pub(crate) fn new() -> io::Result<Tokens> {
        Ok(Tokens { count: Mutex::new(0), some: Condvar::new() })
    }

    pub(crate) fn add(&self) {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.some.notify_all();
    }

    /// Returns whether the descriptor was closed by the program: never in a model.
    pub(crate) fn are_gone(&self) -> bool {
        false
    }

    pub(crate) fn take(&self) -> io::Result<bool> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let any = *count > 0;
        *count -= u64::from(any);
        Ok(any)
    }

    /// Takes one token; blocks until there is one, as a descriptor without `O_NONBLOCK` does.
    pub(crate) fn read(&self) -> io::Result<()> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count == 0 {
            count = self.some.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count -= 1;
        Ok(())
    }

    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count == 0 {
            count = self.some.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Waits for a token; the timeout never passes, because a model has no time.
    pub(crate) fn wait_for(&self, _timeout: Duration) -> io::Result<()> {
        self.wait()?;
        let count = *self.count.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(count <= 2, "{count} tokens for one sleep and two wake-ups");
        Ok(())
    }
}

impl AsFd for Tokens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("no model looks at the descriptor")
    }
}
