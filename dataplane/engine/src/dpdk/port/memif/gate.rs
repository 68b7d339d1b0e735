//! The gate: keeps queues outside the driver while the driver tears a connection down.
//!
//! Invariants
//! - What a peer put into the rings before it left is received: [`Gate::wait_dry`].
//! - After [`Gate::close`] returns, no [`Gate::pass`] runs its function, or begins to, until
//!   [`Gate::open`].

use crossbeam_utils::CachePadded;
use std::time::Duration;
use uroce_shared::sync::{AtomicBool, AtomicU32, Ordering};

/// One flag per queue pair, written by its owner, and one flag that keeps all of them out.
#[derive(Debug)]
pub(in crate::dpdk::port) struct Gate {
    closed: AtomicBool,
    inside: Box<[CachePadded<AtomicBool>]>,
    /// For each queue pair, the number of receptions that found nothing, counted by its owner.
    dry: Box<[CachePadded<AtomicU32>]>,
}

impl Gate {
    pub(super) fn new(queue_pairs: u16) -> Self {
        let inside = (0..queue_pairs).map(|_| CachePadded::new(AtomicBool::new(false)));
        let dry = (0..queue_pairs).map(|_| CachePadded::new(AtomicU32::new(0)));
        Self { closed: AtomicBool::new(false), inside: inside.collect(), dry: dry.collect() }
    }

    /// Runs `burst` unless the gate is closed. Called only by the owner of the queue pair.
    #[inline]
    pub(in crate::dpdk::port) fn pass<R>(
        &self,
        queue: u16,
        burst: impl FnOnce() -> R,
    ) -> Option<R> {
        let inside = &self.inside[usize::from(queue)];
        // This store, the load below, and the store and loads of `close` are in one total order:
        // either this thread sees the gate closed, or `close` sees this thread inside.
        inside.store(true, Ordering::SeqCst);
        let result = (!self.closed.load(Ordering::SeqCst)).then(burst);
        // Pairs with the load in `close`: the burst's reads and writes come before `close` returns.
        inside.store(false, Ordering::Release);
        result
    }

    /// Counts a reception that found nothing. Called only by the owner of the queue pair.
    #[inline]
    pub(in crate::dpdk::port) fn count_dry(&self, queue: u16) {
        let dry = &self.dry[usize::from(queue)];
        dry.store(dry.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Waits until each queue pair has found nothing to receive, or `is_over` returns true. Called
    /// after the peer has left, so nothing is added to the rings any more.
    pub(super) fn wait_dry(&self, is_over: impl Fn() -> bool) {
        for dry in &self.dry {
            let begin = dry.load(Ordering::Acquire);
            // A reception under way may have looked before the peer's last frame arrived, so two
            // are awaited.
            while dry.load(Ordering::Acquire).wrapping_sub(begin) < 2 && !is_over() {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }

    /// Keeps new bursts out and waits for those inside: at most the time of a burst.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for inside in &self.inside {
            while inside.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
    }

    /// Lets bursts in again.
    pub(super) fn open(&self) {
        // A burst that reads this store also sees everything done behind the closed gate.
        self.closed.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_shared::sync::Meetings;

    #[test]
    fn no_thread_is_inside_a_closed_gate() {
        let gate = Gate::new(2);
        let inside = AtomicU32::new(0);
        let stop = AtomicBool::new(false);
        let passes = Meetings::default();
        std::thread::scope(|scope| {
            for queue in 0..2 {
                let (gate, inside, stop, passes) = (&gate, &inside, &stop, &passes);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        gate.pass(queue, || {
                            inside.fetch_add(1, Ordering::Relaxed);
                            std::hint::spin_loop();
                            inside.fetch_sub(1, Ordering::Relaxed);
                            passes.note();
                        });
                        std::thread::yield_now();
                    }
                });
            }
            for _ in 0..500 {
                gate.close();
                for _ in 0..100 {
                    assert_eq!(inside.load(Ordering::Relaxed), 0);
                }
                gate.open();
                passes.wait();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(gate.pass(0, || 7), Some(7));
    }

    #[test]
    fn wait_dry_returns_after_two_receptions_of_each_queue_that_find_nothing() {
        let gate = Gate::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait_dry(|| false));
            for queue in [0, 1, 1, 1] {
                gate.count_dry(queue);
            }
            std::thread::sleep(Duration::from_millis(20));
            while !waiting.is_finished() {
                (0..2).for_each(|queue| gate.count_dry(queue));
            }
        });
        let looks = AtomicU32::new(0);
        // No lcore receives, so only this ends the wait: three times for each queue.
        gate.wait_dry(|| (looks.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(3));
        assert_eq!(looks.into_inner(), 6);
    }

    #[test]
    fn a_closed_gate_refuses() {
        let gate = Gate::new(1);
        gate.close();
        assert_eq!(gate.pass(0, || ()), None);
        gate.open();
        assert_eq!(gate.pass(0, || ()), Some(()));
    }
}
