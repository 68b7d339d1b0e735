//! What an lcore does when there was nothing to do.
//!
//! Polling is the fastest where an lcore has a core to itself. Where lcores, applications and the
//! control plane share cores, a polling lcore starves the very thread it is waiting for.

use std::time::Duration;

/// Empty turns in a row before an lcore becomes idle.
const EMPTY_TURNS: u32 = 256;

/// How long [`IdlePolicy::Sleep`] sleeps; the kernel adds its timer slack, 50 µs by default.
const NAP: Duration = Duration::from_micros(50);

/// What an lcore does after 256 empty turns, until there is work again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum IdlePolicy {
    /// Goes on polling; never enters the kernel.
    #[default]
    Poll,
    /// Gives its core to another thread that wants it.
    Yield,
    /// Sleeps for 50 µs at a time: least load, and up to about 100 µs more latency.
    Sleep,
}

impl IdlePolicy {
    /// Poll if this many lcores leave a core for others, yield if they do not.
    pub fn for_lcores(lcores: usize) -> IdlePolicy {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        if lcores < cores { IdlePolicy::Poll } else { IdlePolicy::Yield }
    }
}

/// Counts an lcore's empty turns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    policy: IdlePolicy,
    empty: u32,
}

impl Idle {
    pub(crate) fn new(policy: IdlePolicy) -> Idle {
        Idle { policy, empty: 0 }
    }

    /// To be called after each turn.
    #[inline]
    pub(crate) fn after_turn(&mut self, busy: bool) {
        if busy {
            self.empty = 0;
            return;
        }
        self.empty = self.empty.saturating_add(1);
        if self.empty >= EMPTY_TURNS {
            self.rest();
        }
    }

    #[cold]
    fn rest(&self) {
        match self.policy {
            IdlePolicy::Poll => std::hint::spin_loop(),
            IdlePolicy::Yield => std::thread::yield_now(),
            IdlePolicy::Sleep => std::thread::sleep(NAP),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_sleeper_sleeps_only_after_a_number_of_empty_turns() {
        let mut idle = Idle::new(IdlePolicy::Sleep);
        let begin = Instant::now();
        (0..EMPTY_TURNS - 1).for_each(|_| idle.after_turn(false));
        assert_eq!(idle.empty, EMPTY_TURNS - 1);
        idle.after_turn(true);
        (0..EMPTY_TURNS + 9).for_each(|_| idle.after_turn(false));
        assert!(begin.elapsed() >= NAP * 10);
        idle.after_turn(true);
        assert_eq!(idle.empty, 0);
    }

    #[test]
    fn lcores_that_leave_no_core_yield() {
        assert_eq!(IdlePolicy::for_lcores(usize::MAX), IdlePolicy::Yield);
    }
}
