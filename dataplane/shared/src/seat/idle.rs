//! Idle policy: what an lcore's thread does after turns without work.
//!
//! Polling is fastest where an lcore has a core to itself. Where lcores, applications and the
//! control plane share cores, a polling lcore takes the core from the very thread that it waits
//! for.

use crate::seat::contention;
use crate::sync::{sleep, yield_now};
use std::time::Duration;

/// Empty turns in a row before an lcore is idle.
const EMPTY_TURNS: u32 = if cfg!(loom) { 1 } else { 256 };

/// Empty turns in a row before an lcore sleeps: some 50 µs, about the cost of being woken. If it
/// slept in every gap between two bursts, its peer would wait for each acknowledgement.
const EMPTY_TURNS_BEFORE_SLEEP: u32 = if cfg!(loom) { 1 } else { 1024 };

/// First nap of an lcore that cannot sleep. The kernel adds its timer slack, 50 µs by default.
const NAP: Duration = Duration::from_micros(50);
/// Number of naps of one length. After each `NAPS` naps the length doubles, up to 1.6 ms.
const NAPS: u32 = 128;
const MAX_DOUBLINGS: u32 = 5;

/// The policy for an lcore without work: what its thread does after 256 empty turns in a row, until
/// there is work again. For `Sleep` these are 1024 turns, or 64 where other threads wait for the
/// CPU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IdlePolicy {
    /// The thread goes on polling, without entering the kernel.
    #[default]
    Poll,
    /// The thread yields its core to other runnable threads.
    Yield,
    /// The thread sleeps until a port, a post or a deadline wakes it: least load, but the latency
    /// of a wake-up. Where a port's driver has no interrupt it naps, for 50 µs at first and up to
    /// 1.6 ms later.
    Sleep,
}

impl IdlePolicy {
    /// Returns `Poll` if this many lcores leave a core for other threads, and `Yield` if they do
    /// not.
    pub fn for_lcores(lcores: usize) -> IdlePolicy {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if lcores < cores { IdlePolicy::Poll } else { IdlePolicy::Yield }
    }
}

/// The threads that run the turns of an lcore that is not adopted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Driver {
    /// The lcore's own thread.
    #[default]
    Lcore,
    /// Threads that poll the completion queues of the lcore's QPs, while they poll often enough;
    /// otherwise the lcore's own thread.
    Poller,
}

/// First nap of an lcore's thread that leaves the lcore to pollers. It is short, because a poller
/// that has come once may not come again.
const NAP_MIN: Duration = Duration::from_micros(50);
/// Longest nap of an lcore's thread that leaves the lcore to pollers. If the pollers stop, a peer
/// waits up to this long for an answer.
const NAP_MAX: Duration = if cfg!(loom) { NAP_MIN } else { Duration::from_millis(1) };
/// Pollers come often enough if on average at most this time passes between two polls.
const PATIENCE: Duration = Duration::from_micros(125);

/// The time for which an lcore's thread leaves the lcore to pollers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap(Duration);

impl Nap {
    pub(crate) fn new() -> Nap {
        Nap(NAP_MIN)
    }

    pub(crate) fn time(&self) -> Duration {
        self.0
    }

    /// Doubles the nap, up to `NAP_MAX`. Returns whether pollers that made `turns` polls during it
    /// have come often enough.
    pub(crate) fn lengthen(&mut self, turns: u64) -> bool {
        let wanted = self.0.as_nanos().div_ceil(PATIENCE.as_nanos());
        self.0 = NAP_MAX.min(self.0 * 2);
        u128::from(turns) >= wanted
    }
}

/// Counts an lcore's empty turns.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    policy: IdlePolicy,
    empty: u32,
    enough: u32,
    /// Naps since there was something to do.
    naps: u32,
}

impl Idle {
    /// Makes the counter of an lcore that was just busy.
    pub fn new(policy: IdlePolicy) -> Idle {
        let enough = match policy {
            IdlePolicy::Poll | IdlePolicy::Yield => EMPTY_TURNS,
            IdlePolicy::Sleep => EMPTY_TURNS_BEFORE_SLEEP,
        };
        Idle { policy, empty: 0, enough, naps: 0 }
    }

    /// Returns whether it is time to rest. Called after each turn; `busy` is whether the turn did
    /// anything.
    #[inline]
    pub fn is_due(&mut self, busy: bool) -> bool {
        #[cfg(loom)]
        yield_now();
        if busy {
            (self.empty, self.naps) = (0, 0);
            return false;
        }
        self.empty = self.empty.saturating_add(1);
        self.empty >= self.enough || self.has_to_make_room()
    }

    /// Whether a thread that may sleep leaves its processor before its time, because other threads
    /// wait for the processor: a peer of the same machine may be one of them.
    #[inline]
    fn has_to_make_room(&self) -> bool {
        self.policy == IdlePolicy::Sleep
            && self.empty >= contention::PATIENCE
            && contention::is_contended()
    }

    /// Rests as the policy says. A nap ends by itself, so that the lcore looks for work again.
    #[cold]
    pub fn rest(&mut self) {
        match self.policy {
            IdlePolicy::Poll => std::hint::spin_loop(),
            IdlePolicy::Yield => yield_now(),
            IdlePolicy::Sleep => {
                sleep(NAP * (1 << (self.naps / NAPS).min(MAX_DOUBLINGS)));
                self.naps = self.naps.saturating_add(1);
            }
        }
    }

    /// Called after a sleep: the count of empty turns before the next sleep begins anew.
    pub(crate) fn slept(&mut self) {
        (self.empty, self.naps) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn an_lcore_rests_only_after_a_number_of_empty_turns() {
        let mut idle = Idle::new(IdlePolicy::Sleep);
        assert!((1..EMPTY_TURNS_BEFORE_SLEEP).all(|_| !idle.is_due(false)));
        assert!(idle.is_due(false) && !idle.is_due(true) && !idle.is_due(false));
        assert_eq!(idle.empty, 1);
        (0..EMPTY_TURNS_BEFORE_SLEEP).for_each(|_| _ = idle.is_due(false));
        idle.slept();
        assert!(!idle.is_due(false));
    }

    #[test]
    fn naps_of_an_lcore_that_cannot_sleep_become_longer_until_there_is_work() {
        let mut idle = Idle::new(IdlePolicy::Sleep);
        idle.naps = 1000 * NAPS;
        let begin = Instant::now();
        idle.rest();
        assert!(begin.elapsed() >= NAP * 32);
        idle.is_due(true);
        assert_eq!(idle.naps, 0);
    }

    #[test]
    fn naps_grow_to_a_millisecond_while_pollers_come_often() {
        let mut nap = Nap::new();
        assert!(!nap.lengthen(0));
        let mut nap = Nap::new();
        for turns in [1, 1, 2, 4] {
            assert!(nap.lengthen(turns));
        }
        assert_eq!(nap.time(), Duration::from_micros(800));
        assert!(nap.lengthen(1_000_000));
        assert_eq!(nap.time(), NAP_MAX);
        assert!(nap.lengthen(8));
        assert_eq!(nap.time(), NAP_MAX);
        assert!(!nap.lengthen(7));
    }

    #[test]
    fn lcores_that_leave_no_core_yield() {
        assert_eq!(IdlePolicy::for_lcores(usize::MAX), IdlePolicy::Yield);
    }
}
