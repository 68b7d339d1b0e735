//! Crowd: compares the number of threads that poll and find nothing with the number of processors.
//!
//! If more threads poll than there are processors, a thread that goes on polling keeps its
//! processor from a thread with work, until the kernel preempts it milliseconds later.
//!
//! ```text
//!   time │ window 6: 128 threads │ window 7: 3 threads so far │
//!                                      a thread counts itself once in each window
//! ```
//!
//! Invariants
//! - A process with no more polling threads than processors never enters the kernel here.
//! - A thread counts itself, in the windows in which it polls; it does not have to say when it
//!   stops.
//!
//! Not here: threads of other processes ([`uroce_shared::seat::contention`]); polls that lose the
//! lock of an lcore to another thread ([`crate::control::poller`]).

use std::cell::Cell;
use uroce_shared::sync::{AtomicU64, Ordering};
use uroce_shared::time::clock::Clock;

/// A window is 2^24 ns, 17 ms: several time slices of the kernel's scheduler, so that threads that
/// take turns on one processor are counted together.
const WINDOW_SHIFT: u32 = 24;
/// Number of bits that hold a number of threads.
const COUNT_BITS: u32 = 12;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The polling threads of this process: all its devices share its processors.
static CROWD: Crowd = Crowd::new();

thread_local! {
    /// The last window in which this thread counted itself.
    static COUNTED: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The numbers of polling threads in the present window and in the one before.
#[derive(Debug)]
struct Crowd {
    /// From the top: number of the window, threads of the window before, threads of this window.
    word: AtomicU64,
}

/// The fields of [`Crowd::word`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Count {
    window: u64,
    before: u64,
    now: u64,
}

/// Returns the number of processors that the process may use, by the affinity of its main thread,
/// since another thread may be pinned to one of them. At least 1.
pub(crate) fn processors() -> u32 {
    let set = rustix::thread::sched_getaffinity(Some(rustix::process::getpid()));
    // The kernel has more processors than the set has bits.
    set.map_or(u32::MAX, |set| set.count().max(1))
}

/// Counts the calling thread. Returns whether more threads poll than there are `processors`.
#[inline]
pub(crate) fn is_crowded(clock: &Clock, processors: u32) -> bool {
    let window = clock.now() >> WINDOW_SHIFT;
    COUNTED.with(|counted| {
        if counted.replace(window) != window {
            CROWD.count(window);
        }
    });
    CROWD.threads(window) > u64::from(processors)
}

impl Crowd {
    const fn new() -> Crowd {
        Crowd { word: AtomicU64::new(0) }
    }

    /// Counts one more thread in a window. The window is the present one, or an earlier one if the
    /// thread was preempted in between.
    #[cold]
    fn count(&self, window: u64) {
        let add = |word| Count::from_word(word).add(window).map(Count::into_word);
        // Refused for a window that is over.
        let _ = self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Returns the threads of the present window or of the one before, whichever are more.
    #[inline]
    fn threads(&self, window: u64) -> u64 {
        let count = Count::from_word(self.word.load(Ordering::Relaxed));
        if count.window == window { count.before.max(count.now) } else { 0 }
    }
}

impl Count {
    #[inline]
    fn from_word(word: u64) -> Count {
        let window = word >> (2 * COUNT_BITS);
        Count { window, before: word >> COUNT_BITS & MAX_COUNT, now: word & MAX_COUNT }
    }

    fn into_word(self) -> u64 {
        self.window << (2 * COUNT_BITS) | self.before << COUNT_BITS | self.now
    }

    fn add(self, window: u64) -> Option<Count> {
        match window.checked_sub(self.window)? {
            0 => Some(Count { now: MAX_COUNT.min(self.now + 1), ..self }),
            1 => Some(Count { window, before: self.now, now: 1 }),
            _ => Some(Count { window, before: 0, now: 1 }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_of_two_windows_counts() {
        let crowd = Crowd::new();
        (0..5).for_each(|_| crowd.count(7));
        assert_eq!(crowd.threads(7), 5);
        crowd.count(8);
        assert_eq!(crowd.threads(8), 5, "the new window has hardly begun");
        crowd.count(9);
        assert_eq!(crowd.threads(9), 1, "four of them have stopped");
        crowd.count(8);
        assert_eq!(crowd.threads(9), 1, "that window is over");
        crowd.count(99);
        assert_eq!((crowd.threads(99), crowd.threads(100)), (1, 0));
    }

    #[test]
    fn a_count_saturates() {
        let crowd = Crowd::new();
        (0..2 * MAX_COUNT).for_each(|_| crowd.count(1));
        assert_eq!(crowd.threads(1), MAX_COUNT);
    }

    #[test]
    fn threads_that_poll_are_counted_once_in_a_window() {
        let clock = Clock::new();
        // Each thread stays until it has seen the other.
        let seen = || while !is_crowded(&clock, 1) {};
        std::thread::scope(|scope| {
            scope.spawn(seen);
            seen();
        });
        assert!(processors() >= 1);
        // One thread alone is no crowd, however often it polls: the other has ended.
        let end = clock.now() + 3 * (1 << WINDOW_SHIFT);
        while clock.now() < end {
            is_crowded(&clock, 1);
        }
        assert!((0..100_000).all(|_| !is_crowded(&clock, 1)));
    }
}
