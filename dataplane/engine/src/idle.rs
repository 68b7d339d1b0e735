//! What an lcore does when there was nothing to do, or nothing that could be done.
//!
//! Polling is the fastest where an lcore has a core to itself. Where lcores, applications and the
//! control plane share cores, a polling lcore starves the very thread it is waiting for.

use std::time::Duration;

/// Empty turns in a row before an lcore becomes idle.
const EMPTY_TURNS: u32 = 256;

/// Empty turns in a row before an lcore sleeps, some 50 µs: about what it costs to be woken. One that
/// sleeps in every gap between two bursts has its peer wait for each acknowledgement.
const EMPTY_TURNS_BEFORE_SLEEP: u32 = 1024;

/// First nap of an lcore that cannot sleep; the kernel adds its timer slack, 50 µs by default.
const NAP: Duration = Duration::from_micros(50);
/// Naps of one length; those after them are twice as long, 1.6 ms at most.
const NAPS: u32 = 128;
const MAX_DOUBLINGS: u32 = 5;

/// What an lcore does after 256 empty turns, 1024 before it sleeps, until there is work again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IdlePolicy {
    /// Goes on polling; never enters the kernel.
    #[default]
    Poll,
    /// Gives its core to another thread that wants it.
    Yield,
    /// Sleeps until a port, a post or a deadline wakes it: least load, and the time of a wake-up more
    /// latency. Where a port's driver has no interrupt it naps, for 50 µs at first and 1.6 ms later.
    Sleep,
}

impl IdlePolicy {
    /// Poll if this many lcores leave a core for others, yield if they do not.
    pub fn for_lcores(lcores: usize) -> IdlePolicy {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if lcores < cores { IdlePolicy::Poll } else { IdlePolicy::Yield }
    }
}

/// Whose the turns of an lcore are that nobody has adopted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Driver {
    /// Its own thread's.
    #[default]
    Lcore,
    /// Those threads' that poll the completion queues of its QPs, for as long as they come often
    /// enough; its own thread's when they do not.
    Poller,
}

/// How long an lcore's thread leaves it to pollers at first: one that has come may not come again.
const NAP_MIN: Duration = Duration::from_micros(50);
/// How long at most: so long a peer waits for an answer if they stop.
const NAP_MAX: Duration = Duration::from_millis(1);
/// Pollers come often enough if on average no more than this passes between two.
const PATIENCE: Duration = Duration::from_micros(125);

/// How long an lcore's thread leaves it to pollers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap(Duration);

impl Nap {
    pub(crate) fn new() -> Nap {
        Nap(NAP_MIN)
    }

    pub(crate) fn time(&self) -> Duration {
        self.0
    }

    /// Have pollers who made that many turns in it come often enough? Then the next is longer.
    pub(crate) fn lengthen(&mut self, turns: u64) -> bool {
        let wanted = self.0.as_nanos().div_ceil(PATIENCE.as_nanos());
        self.0 = NAP_MAX.min(self.0 * 2);
        u128::from(turns) >= wanted
    }
}

/// Counts an lcore's empty turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    policy: IdlePolicy,
    empty: u32,
    enough: u32,
    /// Naps since there was something to do.
    naps: u32,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy) -> Idle {
        let enough = match policy {
            IdlePolicy::Poll | IdlePolicy::Yield => EMPTY_TURNS,
            IdlePolicy::Sleep => EMPTY_TURNS_BEFORE_SLEEP,
        };
        Idle { policy, empty: 0, enough, naps: 0 }
    }

    /// Is it time to rest? To be called after each turn.
    #[inline]
    pub(crate) fn is_due(&mut self, busy: bool) -> bool {
        if busy {
            (self.empty, self.naps) = (0, 0);
            return false;
        }
        self.empty = self.empty.saturating_add(1);
        self.empty >= self.enough
    }

    /// Rests for as long as another thread may do before the lcore has to look again by itself.
    #[cold]
    pub(crate) fn rest(&mut self) {
        match self.policy {
            IdlePolicy::Poll => std::hint::spin_loop(),
            IdlePolicy::Yield => std::thread::yield_now(),
            IdlePolicy::Sleep => {
                std::thread::sleep(NAP * (1 << (self.naps / NAPS).min(MAX_DOUBLINGS)));
                self.naps = self.naps.saturating_add(1);
            }
        }
    }

    /// The lcore has slept and was woken: it polls as long as before until it sleeps again.
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
