//! Bed: where an lcore's thread sleeps until its bell, one of its ports or a deadline wakes it.
//!
//! Descriptors are watched edge-triggered: each write to one wakes the thread once, and this module
//! reads none of them.
//!
//! Not here: the last look for work before sleeping ([`crate::seat`]); the descriptors of ports
//! (the engine's `dpdk::port`).

use crate::sync::barrier;
use crate::sync::wakers::Wakers;
use crate::wake::bell::Bell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// An lcore's bed.
#[derive(Debug)]
pub struct Bed {
    wakers: Arc<Wakers>,
    bell: Arc<Bell>,
}

impl Bed {
    /// Makes a bed for the lcore of this bell.
    ///
    /// # Errors
    /// The process has no file descriptor left, or the kernel has no barrier for other threads.
    pub fn new(bell: &Arc<Bell>) -> io::Result<Bed> {
        if !barrier::register() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let wakers = Arc::new(Wakers::new()?);
        wakers.add(bell.listen()?)?;
        Ok(Bed { wakers, bell: Arc::clone(bell) })
    }

    /// Returns the lcore's bell.
    pub fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    /// Arms the bell: from now on it wakes the thread.
    pub fn arm(&self) {
        self.bell.arm();
    }

    /// Disarms the bell: the thread does not sleep after all.
    pub fn disarm(&self) {
        self.bell.disarm();
    }

    /// Returns the set to which the descriptors of the lcore's ports are added.
    pub fn wakers(&self) -> &Arc<Wakers> {
        &self.wakers
    }

    /// Sleeps with the bell armed, at most for `time`; the bell is disarmed afterwards. Returns
    /// false if it could not sleep: a program may have closed descriptors that are not its own.
    pub fn sleep(&self, time: Duration) -> bool {
        let slept = self.wakers.wait(time);
        self.bell.disarm();
        slept
    }
}
