//! Waker: lets the control-plane thread sleep until there is work for it.
//!
//! Invariants
//! - No wake-up is lost. A thread adds work and then looks whether the control-plane thread sleeps;
//!   that thread notes that it sleeps and then looks for work once more. A sequentially consistent
//!   fence on either side makes one of them see the other.
//! - The kernel is entered at most once for each sleep.
//!
//! Not here: the work itself.

use crate::sync::tokens::Tokens;
use crate::sync::{AtomicBool, Ordering, fence};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Wakes the thread that sleeps in `Control::sleep` of the engine.
#[derive(Debug)]
pub struct Waker {
    tokens: Tokens,
    /// Whether the thread sleeps, or has slept and was not woken since.
    asleep: AtomicBool,
}

impl Waker {
    /// Makes a waker.
    ///
    /// # Errors
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Arc<Waker>> {
        Ok(Arc::new(Waker { tokens: Tokens::new()?, asleep: AtomicBool::new(false) }))
    }

    /// Wakes the thread. Call it after work was put where the thread looks; any thread may.
    pub fn wake(&self) {
        // Pairs with the fence in `sleep`.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.tokens.add();
        }
    }

    /// Sleeps until woken, at most for `timeout`, and not at all if `is_ready` returns true. May
    /// wake without a reason. One thread sleeps at a time.
    pub fn sleep(&self, timeout: Duration, is_ready: impl FnOnce() -> bool) {
        self.asleep.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`.
        fence(Ordering::SeqCst);
        if !is_ready() {
            // A failure here is an interruption, after which the thread looks for work as well.
            let _ = self.tokens.wait_for(timeout);
        }
        while self.tokens.take().unwrap_or(false) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::AtomicU64;
    use std::time::Instant;

    #[test]
    fn a_sleeper_is_woken_at_once_and_a_thread_that_is_awake_costs_nothing() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert!(!waker.tokens.take().unwrap(), "no thread sleeps");
        let begin = Instant::now();
        waker.sleep(Duration::from_secs(60), || true);
        waker.sleep(Duration::from_millis(1), || false);
        assert!(begin.elapsed() >= Duration::from_millis(1));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| waker.sleep(Duration::from_secs(60), || false));
            while !sleeper.is_finished() {
                waker.wake();
                std::thread::yield_now();
            }
        });
        assert!(begin.elapsed() < Duration::from_secs(30));
    }

    /// A thread adds work and wakes, at any moment; the sleeper takes the work and sleeps. A lost
    /// wake-up would let it sleep for a minute.
    #[test]
    fn no_wake_up_is_lost() {
        const COUNT: u64 = 20_000;
        let (waker, put) = (Waker::new().unwrap(), AtomicU64::new(0));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for count in 1..=COUNT {
                    put.store(count, Ordering::Release);
                    waker.wake();
                    if count % 61 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
            let mut taken = 0;
            while taken < COUNT {
                waker.sleep(Duration::from_secs(60), || put.load(Ordering::Acquire) > taken);
                taken = put.load(Ordering::Acquire);
            }
        });
        assert!(begin.elapsed() < Duration::from_secs(50), "a wake-up was lost");
    }
}
