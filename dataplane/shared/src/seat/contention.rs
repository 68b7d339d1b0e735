//! Contention: whether other threads of the machine wait for the processor on which a thread polls.
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
//! Linux counts how often a thread lost its processor while it could have run on (`ru_nivcsw`), to
//! the scheduler's clock or by `sched_yield`. A yield counts only if another thread runs then. So a
//! thread stays contended while its yields let others run, and is so no longer when they do not.
//!
//! A program may poll while it holds a spin lock, as UCX does. If each such poll yielded, the
//! thread would lose its processor only while it holds the lock, and a thread that spins for the
//! lock on the same processor would never get it. So some polls pass between two yields. Now and
//! then a thread also keeps its processor until the scheduler takes it, which may happen at any
//! moment, with or without the lock.
//!
//! Invariants
//! - A thread that has its processor to itself makes one system call a window here, and does not
//!   yield.
//! - The only state that threads share here is the time at which one of them last began to keep its
//!   processor.
//!
//! Not here: an lcore's own thread, which sleeps earlier ([`crate::seat::idle`]).

#![allow(unsafe_code)]

use crate::sync::yield_now;
use crate::time::clock::Clock;
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// A window is 2^24 ns, 17 ms: longer than a time slice of the kernel's scheduler, so that a thread
/// which shares its processor loses it at least once in each window.
const WINDOW_SHIFT: u32 = 24;

/// Number of consecutive polls without work before a thread yields its processor. They take some 10
/// µs, which is more than a peer that runs on another processor takes to answer. A yield costs a
/// microsecond.
pub(crate) const PATIENCE: u32 = 64;

/// Number of polls without work between two yields; together they take as long as a yield.
const LOOKS_BETWEEN_YIELDS: u32 = 8;

/// Length in nanoseconds of a yield that has let another thread use its whole time slice. Such a
/// thread works, or spins for a lock.
const LONG_YIELD: u64 = 2_000_000;

/// Longest time, in nanoseconds, for which a thread keeps its processor: more than its time slice
/// and a tick of the scheduler's clock.
const KEPT: u64 = 8_000_000;

/// Time in nanoseconds in which at most one thread of the process begins to keep its processor.
/// Another thread that works on the same processor loses up to a quarter of its time by this.
const KEPT_ONCE_IN: u64 = 1 << 25;

/// Time, in nanoseconds of [`Clock`], at which a thread of the process last began to keep its
/// processor.
static LAST_KEPT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static EMPTY_LOOKS: Cell<u32> = const { Cell::new(0) };
    static KEEPING: Cell<Keeping> = const { Cell::new(Keeping { until: 0, looked: 0 }) };
    static VIEW: Cell<View> = const { Cell::new(View::NONE) };
}

/// What a thread has found out about its processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct View {
    /// Number of the window in which the thread last looked.
    window: u64,
    /// How often the thread had lost its processor by then.
    switches: u64,
    /// Whether the thread lost its processor between that look and the one before.
    is_contended: bool,
}

/// A period in which a thread keeps its processor. Times are nanoseconds of [`Clock`].
#[derive(Clone, Copy, Debug)]
struct Keeping {
    /// The latest end of the period.
    until: u64,
    /// When the thread last looked. A gap since then shows that the scheduler has taken the
    /// processor.
    looked: u64,
}

/// Called by a thread that has looked for work and found some.
#[inline]
pub fn found_work() {
    EMPTY_LOOKS.set(0);
}

/// Called by a thread that has looked for work and found none. Yields the processor if it has found
/// none for a while and other threads wait for it.
#[inline]
pub fn found_nothing() {
    let empty = EMPTY_LOOKS.get().saturating_add(1);
    EMPTY_LOOKS.set(empty);
    if empty >= PATIENCE && is_contended() {
        EMPTY_LOOKS.set(PATIENCE - LOOKS_BETWEEN_YIELDS);
        make_room();
    }
}

/// Yields the processor. While the thread keeps its processor, this returns at once.
pub fn make_room() {
    let clock = Clock::new();
    let before = clock.now();
    let keeping = KEEPING.get();
    if keeping.holds_at(before) {
        KEEPING.set(Keeping { looked: before, ..keeping });
        return;
    }
    yield_now();
    let after = clock.now();
    let until =
        if after >= before + LONG_YIELD && may_keep(&LAST_KEPT, after) { after + KEPT } else { 0 };
    KEEPING.set(Keeping { until, looked: after });
}

/// Returns whether a thread may begin to keep its processor at time `now`. If so, sets `last` to
/// it.
fn may_keep(last: &AtomicU64, now: u64) -> bool {
    let is_due = |last| (now >= last + KEPT_ONCE_IN).then_some(now);
    last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_due).is_ok()
}

/// Returns whether the calling thread has lost its processor to another thread lately. Makes a
/// system call once in a window.
#[inline]
pub(crate) fn is_contended() -> bool {
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

impl Keeping {
    /// Returns whether the thread still keeps its processor at time `now`, and has had it since it
    /// last looked.
    fn holds_at(self, now: u64) -> bool {
        now < self.until && now < self.looked + LONG_YIELD / 2
    }
}

impl View {
    /// The view of a thread that has not looked yet.
    const NONE: View = View { window: u64::MAX, switches: 0, is_contended: false };

    /// Returns the view in window `window`, in which the thread has lost its processor `switches`
    /// times in all.
    fn renewed(self, window: u64, switches: u64) -> View {
        // Windows may have passed without a look: many threads may share the processor.
        let is_known = self != View::NONE;
        View { window, switches, is_contended: is_known && switches != self.switches }
    }
}

/// Returns how often the calling thread has lost its processor while it could have run on.
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
    use crate::seat::idle::{Idle, IdlePolicy};
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
        assert!(third.renewed(12, 9).is_contended, "the thread had no processor for two windows");
    }

    #[test]
    fn a_processor_is_kept_until_the_scheduler_takes_it_and_by_one_thread_at_a_time() {
        let keeping = Keeping { until: 10 * LONG_YIELD, looked: LONG_YIELD };
        assert!(keeping.holds_at(LONG_YIELD + 1));
        assert!(!keeping.holds_at(2 * LONG_YIELD), "the thread had no processor in between");
        assert!(!Keeping { looked: 10 * LONG_YIELD, ..keeping }.holds_at(10 * LONG_YIELD));
        let last = AtomicU64::new(0);
        assert!(may_keep(&last, KEPT_ONCE_IN));
        assert!(!may_keep(&last, 2 * KEPT_ONCE_IN - 1));
        assert!(may_keep(&last, 2 * KEPT_ONCE_IN));
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
                let mut idle = Idle::new(IdlePolicy::Sleep);
                let due = (1..=PATIENCE).find(|_| idle.is_due(false));
                is_over.store(true, Ordering::Relaxed);
                due
            });
            assert_eq!(poller.join().unwrap(), Some(PATIENCE), "an lcore sleeps early");
        });
    }
}
