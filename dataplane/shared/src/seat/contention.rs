//! Contention: whether other threads of the machine want the processor on which a thread polls.
//!
//! A thread that polls and finds nothing would keep its processor from a thread with work until the
//! kernel preempts it milliseconds later. That thread may be the one that it waits for: an lcore of
//! a peer on the same machine, or a rank of the same job.
//!
//! ```text
//!   time │ window 6: 2 switches │ window 7: contended │
//!                                 a poll that finds nothing yields
//! ```
//!
//! Linux counts how often a thread has lost its processor while it could have gone on
//! (`ru_nivcsw`), be it to the scheduler's clock or by `sched_yield`. So the sign remains while
//! yielding lets other threads run, and goes when it no longer does.
//!
//! Invariants
//! - A thread that has its processor to itself makes one system call a window here, and does not
//!   yield.
//! - Threads know nothing of each other: no state is shared.
//!
//! Not here: what a thread does about it (pollers yield; [`crate::seat::idle`] for an lcore's own).

#![allow(unsafe_code)]

use crate::sync::yield_now;
use crate::time::clock::Clock;
use std::cell::Cell;
use std::mem::MaybeUninit;

/// A window is 2^24 ns, 17 ms: longer than a time slice of the kernel's scheduler, so that a thread
/// which shares its processor loses it at least once in each window.
const WINDOW_SHIFT: u32 = 24;

/// Looks without work before a thread yields: some 10 µs, more than a peer that runs on another
/// processor takes to answer. A yield costs a microsecond.
const PATIENCE: u32 = 64;

thread_local! {
    static EMPTY_LOOKS: Cell<u32> = const { Cell::new(0) };
    static VIEW: Cell<View> = const { Cell::new(View::NONE) };
}

/// What a thread knows of its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct View {
    /// The window in which the thread has last looked.
    window: u64,
    /// Number of times that the thread had lost the processor until then.
    switches: u64,
    /// Whether it had lost the processor since the look before.
    is_contended: bool,
}

/// Called by a thread that has looked for work and found some.
#[inline]
pub fn found_work() {
    EMPTY_LOOKS.set(0);
}

/// Called by a thread that has looked for work and found none. Yields the processor if it has found
/// none for a while and other threads want it.
#[inline]
pub fn found_nothing() {
    let empty = EMPTY_LOOKS.get().saturating_add(1);
    EMPTY_LOOKS.set(empty);
    make_room(empty);
}

/// Yields the processor after this many looks in a row that found nothing, if they are enough and
/// other threads want it.
#[inline]
pub(crate) fn make_room(empty: u32) {
    if empty >= PATIENCE && is_contended() {
        yield_now();
    }
}

/// Returns whether the calling thread has lost its processor to another thread lately.
#[inline]
pub fn is_contended() -> bool {
    if cfg!(loom) {
        return false;
    }
    let window = Clock::new().now() >> WINDOW_SHIFT;
    VIEW.with(|view| {
        if view.get().window != window {
            view.set(view.get().renewed(window, switches()));
        }
        view.get().is_contended
    })
}

impl View {
    /// The view of a thread that has not looked yet.
    const NONE: View = View { window: u64::MAX, switches: 0, is_contended: false };

    /// The view in a new window, after this many switches in all.
    fn renewed(self, window: u64, switches: u64) -> View {
        // Nothing is known of the time before the first look, or of a time without polls.
        let is_known = self.window.checked_add(1) == Some(window);
        View { window, switches, is_contended: is_known && switches != self.switches }
    }
}

/// Returns how often the calling thread has lost the processor while it could have gone on.
#[cold]
fn switches() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` has room for the result.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: all fields are integers, and are zero if the call has failed.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_nivcsw).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    #[test]
    fn a_view_tells_of_the_window_before() {
        let second = View::NONE.renewed(7, 3);
        assert!(!second.is_contended, "the thread's whole life is no window");
        let third = second.renewed(8, 4);
        assert!(third.is_contended);
        assert!(!third.renewed(9, 4).is_contended, "no other thread came");
        assert!(!third.renewed(12, 9).is_contended, "the thread did not poll meanwhile");
    }

    #[test]
    fn threads_that_share_a_processor_see_each_other() {
        let all = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)).expect("a processor"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let poller = scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                let end = Instant::now() + Duration::from_secs(20);
                while !is_contended() && Instant::now() < end {}
                is_over.store(true, Ordering::Relaxed);
                is_contended()
            });
            assert!(poller.join().unwrap());
        });
    }
}
