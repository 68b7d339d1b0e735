//! Quiescent-state reclamation: decides when memory that lcores read without a lock may be freed.
//!
//! An lcore keeps what it found in a shared table until the end of its turn and no longer. So an
//! unpublished value is unused once each lcore that was in a turn at that moment has ended the
//! turn.
//!
//! ```text
//!   lcore:  counter odd ── fence ── loads, uses ── counter even
//!   freer:  unpublish   ── fence ── counter odd? wait until it changes ── free
//! ```
//!
//! Invariants
//! - Both fences are sequentially consistent, so one comes first. If it is the lcore's, the freer
//!   reads the odd counter and waits for the end of that turn, which it acquires. If it is the
//!   freer's, the lcore finds the table without the entry.
//! - Outside of a turn a counter is even: an lcore that is parked, stopped or between two turns
//!   holds nothing, and is not waited for.
//!
//! Not here: the memory that is freed.

use crate::sync::{AtomicU64, Backoff, Ordering, fence};
use crossbeam_utils::CachePadded;

/// One counter per lcore: odd in a turn, even outside.
#[derive(Debug)]
pub struct Turns {
    counters: Box<[CachePadded<AtomicU64>]>,
}

/// A turn of an lcore: lasts until it is dropped, also by a panic.
#[derive(Debug)]
pub struct InTurn<'t> {
    counter: &'t AtomicU64,
    turns: &'t Turns,
}

impl InTurn<'_> {
    /// Returns whether [`Turns::wait`] of `turns` waits for this turn.
    #[inline]
    pub(crate) fn is_of(&self, turns: &Turns) -> bool {
        std::ptr::eq(self.turns, turns)
    }
}

impl Turns {
    /// Makes the counters of `lcores` lcores, none of which is in a turn.
    pub fn new(lcores: usize) -> Turns {
        Turns { counters: (0..lcores).map(|_| CachePadded::new(AtomicU64::new(0))).collect() }
    }

    /// Begins a turn of `lcore`, which must not be in one: one thread drives an lcore at a time.
    #[inline]
    pub fn enter(&self, lcore: usize) -> InTurn<'_> {
        let counter = &*self.counters[lcore];
        let even = counter.load(Ordering::Relaxed);
        debug_assert!(even.is_multiple_of(2), "lcore {lcore} is in a turn");
        // Release: a thread that waits for the turn before may read this store instead of the one
        // that ended it.
        counter.store(even.wrapping_add(1), Ordering::Release);
        // Pairs with the fence in `wait`.
        fence(Ordering::SeqCst);
        InTurn { counter, turns: self }
    }

    /// Returns when each turn that was under way has ended.
    ///
    /// No lcore uses after this call what was unpublished before it. A turn is short and ends even
    /// if it panics, so the wait ends.
    pub fn wait(&self) {
        // Pairs with the fence in `enter`.
        fence(Ordering::SeqCst);
        for counter in &self.counters {
            let seen = counter.load(Ordering::Acquire);
            let backoff = Backoff::new();
            while seen % 2 == 1 && counter.load(Ordering::Acquire) == seen {
                // Yields when spinning has not helped: the lcore may need this CPU.
                backoff.snooze();
            }
        }
    }

    /// Returns how often `lcore` has begun or ended a turn; it grows while the lcore runs.
    pub fn heartbeat(&self, lcore: usize) -> u64 {
        self.counters[lcore].load(Ordering::Relaxed)
    }
}

impl Drop for InTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        let odd = self.counter.load(Ordering::Relaxed);
        // Pairs with the acquiring loads in `wait`: the turn's reads and writes come before it.
        self.counter.store(odd.wrapping_add(1), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{AtomicBool, Meetings};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn a_wait_does_not_include_an_lcore_outside_of_a_turn() {
        let turns = Turns::new(3);
        turns.wait();
        drop(turns.enter(1));
        turns.wait();
        assert_eq!(turns.heartbeat(1), 2);
    }

    #[test]
    fn a_wait_ends_after_the_turn_that_was_under_way_and_not_before() {
        let turns = Arc::new(Turns::new(1));
        let ended = Arc::new(AtomicBool::new(false));
        let turn = turns.enter(0);
        let waiter = std::thread::spawn({
            let (turns, ended) = (Arc::clone(&turns), Arc::clone(&ended));
            move || {
                turns.wait();
                assert!(ended.load(Ordering::SeqCst), "did not wait for the turn");
            }
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiter.is_finished());
        ended.store(true, Ordering::SeqCst);
        drop(turn);
        waiter.join().unwrap();
    }

    #[test]
    fn a_panic_in_a_turn_ends_it() {
        let turns = Turns::new(1);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = turns.enter(0);
            panic!("expected by the test");
        }));
        assert!(panicked.is_err());
        turns.wait();
    }

    /// Readers keep what they found to the end of their turn; the freer marks it as freed after a
    /// wait. No reader may ever see a freed word.
    #[test]
    fn nothing_is_used_after_the_wait() {
        const READERS: usize = 2;
        let turns = Arc::new(Turns::new(READERS));
        // `published` is the place of the live word, or NONE. Words are 1 (live) or 0 (freed).
        const NONE: u64 = u64::MAX;
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..4).map(|_| AtomicU64::new(0)).collect());
        let published = Arc::new(AtomicU64::new(NONE));
        let stop = Arc::new(AtomicBool::new(false));
        let found = Arc::new(Meetings::default());
        let readers: Vec<_> = (0..READERS)
            .map(|lcore| {
                let (turns, words) = (Arc::clone(&turns), Arc::clone(&words));
                let (published, stop) = (Arc::clone(&published), Arc::clone(&stop));
                let found = Arc::clone(&found);
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let _turn = turns.enter(lcore);
                        let place = published.load(Ordering::Acquire);
                        if place != NONE {
                            for _ in 0..8 {
                                let word = words[place as usize].load(Ordering::Relaxed);
                                assert_eq!(word, 1, "used after free");
                            }
                            found.note();
                        }
                    }
                })
            })
            .collect();
        for round in 0..1024 {
            let place = round % words.len();
            words[place].store(1, Ordering::Relaxed);
            published.store(place as u64, Ordering::Release);
            if round % 64 == 0 {
                found.wait();
            }
            published.store(NONE, Ordering::Release);
            turns.wait();
            words[place].store(0, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
