//! Bell: wakes an lcore's thread that sleeps, and costs a load where it does not.
//!
//! ```text
//!   sleeper:  armed = true ── heavy fence ── looks for work ── sleeps on the eventfd
//!   ringer:   puts work ───── light fence ── armed? ────────── writes the eventfd
//! ```
//!
//! Invariants
//! - No wake-up is lost: of the two fences one comes first, so either the sleeper finds the work or the
//!   ringer finds the bell armed.
//! - The kernel is entered at most once for each arming.
//! - A bell that is not [listened](Bell::listen) to is never armed and has no descriptor.
//!
//! Not here: sleeping ([`crate::bed`]); what there is to do.

use crate::barrier::light_fence;
use crate::queue::tokens::Tokens;
use crate::sync::{AtomicBool, Ordering};
use crossbeam_utils::CachePadded;
use std::io;
use std::sync::OnceLock;

/// What an lcore, or a receive queue of a ring port, is woken by.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    /// The lcore's thread sleeps or is about to, and has not been woken since.
    armed: CachePadded<AtomicBool>,
    tokens: OnceLock<Tokens>,
}

impl Bell {
    /// Rings if it is armed: to be called after work was put where the lcore's turn looks.
    #[inline]
    pub(crate) fn ring(&self) {
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

    /// From now on [`ring`](Bell::ring) enters the kernel, once. A heavy fence and a look for work come
    /// between this and sleeping.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }

    /// The lcore does not sleep any more.
    pub(crate) fn disarm(&self) {
        self.armed.store(false, Ordering::Relaxed);
    }

    /// The descriptor that a ring writes to, which is made at the first call.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub(crate) fn listen(&self) -> io::Result<&Tokens> {
        if self.tokens.get().is_none() {
            // Of two threads that get here one's is taken.
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
