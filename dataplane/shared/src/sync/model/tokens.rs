//! Replacement of the eventfd in models: a counter that a thread can wait for.

use loom::sync::{Condvar, Mutex};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A number of tokens; a clone names the same ones.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    count: Mutex<u64>,
    some: Condvar,
}

impl Tokens {
    pub fn new() -> io::Result<Tokens> {
        Ok(Tokens(Arc::new(Shared { count: Mutex::new(0), some: Condvar::new() })))
    }

    pub fn add(&self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.some.notify_all();
    }

    /// Returns whether the descriptor was closed by the program: never in a model.
    pub fn are_gone(&self) -> bool {
        false
    }

    pub fn take(&self) -> io::Result<bool> {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        let any = *count > 0;
        *count -= u64::from(any);
        Ok(any)
    }

    /// Takes one token; blocks until there is one, as a descriptor without `O_NONBLOCK` does.
    pub fn read(&self) -> io::Result<()> {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count == 0 {
            count = self.0.some.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        *count -= 1;
        Ok(())
    }

    pub fn wait(&self) -> io::Result<()> {
        let mut count = self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        while *count == 0 {
            count = self.0.some.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    /// Waits for a token; the timeout never passes, because a model has no time.
    pub fn wait_for(&self, _timeout: Duration) -> io::Result<()> {
        self.wait()?;
        let count = *self.0.count.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(count <= 2, "{count} tokens for one sleep and two wake-ups");
        Ok(())
    }
}

impl AsFd for Tokens {
    fn as_fd(&self) -> BorrowedFd<'_> {
        unreachable!("no model looks at the descriptor")
    }
}
