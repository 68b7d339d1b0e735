//! Checks, from inside a busy loop, for messages of the other end and for a standstill.

use super::PATIENCE;
use crate::error::BenchError;
use uroce_engine::clock::Clock;

/// Turns between two readings of the clock.
const TURNS: u32 = 256;
/// Time between two checks of the socket, in ns.
const LOOK_NS: u64 = 2_000_000;

/// State of the checks in one loop.
pub(super) struct Watch {
    clock: Clock,
    /// A standstill is an error. It is not for an end that only answers.
    judges: bool,
    turns: u32,
    next_look: u64,
    progress: u64,
    progress_at: u64,
}

impl Watch {
    /// Creates the state; the time begins now.
    pub(super) fn new(clock: Clock) -> Self {
        let progress_at = clock.now();
        Self { clock, judges: true, turns: 0, next_look: 0, progress: u64::MAX, progress_at }
    }

    /// Creates the state for a loop in which a standstill is not an error.
    pub(super) fn patient(clock: Clock) -> Self {
        Self { judges: false, ..Self::new(clock) }
    }

    /// Makes the next turn look at the clock, for a loop that sleeps between its turns.
    pub(super) fn hurry(&mut self) {
        self.turns = TURNS;
    }

    /// Called once a turn with a number that grows with progress, and a function that checks the
    /// socket. Returns the result of that function when it was called.
    #[inline]
    pub(super) fn turn<T>(
        &mut self,
        progress: u64,
        look: impl FnOnce() -> Result<Option<T>, BenchError>,
    ) -> Result<Option<T>, BenchError> {
        self.turns += 1;
        if self.turns < TURNS || !self.is_time(progress)? {
            return Ok(None);
        }
        look()
    }

    #[cold]
    fn is_time(&mut self, progress: u64) -> Result<bool, BenchError> {
        self.turns = 0;
        let now = self.clock.now();
        if progress != self.progress {
            self.progress = progress;
            self.progress_at = now;
        }
        if now < self.next_look {
            return Ok(false);
        }
        self.next_look = now + LOOK_NS;
        if self.judges && now - self.progress_at > PATIENCE.as_nanos() as u64 {
            return Err(BenchError::TimedOut { waiting: "the test was running", limit: PATIENCE });
        }
        Ok(true)
    }
}
