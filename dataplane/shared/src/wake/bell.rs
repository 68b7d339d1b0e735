//! Bell: wakes the sleeping thread of an lcore; ringing costs one load while the thread is awake.
//!
//! ```text
//!   sleeper:  armed = true ── heavy fence ── looks for work ── sleeps on the eventfd
//!   ringer:   puts work ───── light fence ── armed? ────────── writes the eventfd
//! ```
//!
//! Invariants
//! - No wake-up is lost: one of the two fences comes first, so either the sleeper finds the work or
//!   the ringer finds the bell armed.
//! - A ringer enters the kernel at most once for each arming.
//! - A bell that nothing [listens](Bell::listen) to is never armed and has no descriptor.
//!
//! Not here: sleeping ([`crate::wake::bed`]); the work that the thread is woken for.

use crate::sync::barrier::light_fence;
use crate::sync::tokens::Tokens;
use crate::sync::{AtomicBool, Ordering};
use crossbeam_utils::CachePadded;
use std::io;
use std::sync::OnceLock;

/// Wakes an lcore, or a receive queue of a ring port.
#[derive(Debug, Default)]
pub struct Bell {
    /// The lcore's thread sleeps or is about to, and has not been woken since.
    armed: CachePadded<AtomicBool>,
    tokens: OnceLock<Tokens>,
}

impl Bell {
    /// Wakes the thread if the bell is armed. Call it after work was put where the lcore's turn
    /// looks.
    #[inline]
    pub fn ring(&self) {
        // Pairs with the heavy fence between `arm` and the sleeper's last look.
        light_fence();
        if self.armed.load(Ordering::Relaxed) {
            self.ring_armed();
        }
    }

    #[cold]
    fn ring_armed(&self) {
        if self.armed.swap(false, Ordering::Relaxed)
            && let Some(tokens) = self.tokens.get()
        {
            tokens.add();
        }
    }

    /// Makes the next [`ring`](Bell::ring) write to the descriptor. Before it sleeps, the thread
    /// must pass a heavy fence and look for work once more.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }

    /// Called when the lcore does not sleep any more.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// Returns the descriptor that a ring writes to. The first call makes it.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn listen(&self) -> io::Result<&Tokens> {
        if self.tokens.get().is_none() {
            // If two threads get here, one of their descriptors is kept and the other is closed.
            let _ = self.tokens.set(Tokens::new()?);
        }
        self.tokens.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_once_for_each_arming() {
        let bell = Bell::default();
        bell.ring();
        let tokens = bell.listen().expect("a descriptor");
        bell.ring();
        assert!(!tokens.take().expect("readable"), "it was not armed");
        bell.arm();
        (0..3).for_each(|_| bell.ring());
        assert!(tokens.take().expect("readable"));
        assert!(!tokens.take().expect("readable"), "once");
        bell.arm();
        bell.disarm();
        bell.ring();
        assert!(!tokens.take().expect("readable"), "it was disarmed");
    }
}
