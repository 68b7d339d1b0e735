//! Notices, from inside a busy loop, what the other end says and that nothing moves any more.

use super::PATIENCE;
use crate::error::BenchError;
use uroce_engine::clock::Clock;

/// Turns between two looks at the clock.
const TURNS: u32 = 256;
/// Between two looks at the socket, nanoseconds.
const LOOK_NS: u64 = 2_000_000;

/// The state of watching over one loop.
pub(super) struct Watch {
    clock: Clock,
    /// Whether a standstill is an error: it is not for an end that only answers.
    judges: bool,
    turns: u32,
    next_look: u64,
    progress: u64,
    progress_at: u64,
}

impl Watch {
    /// Begins now.
    pub(super) fn new(clock: Clock) -> Self {
        let progress_at = clock.now();
        Self { clock, judges: true, turns: 0, next_look: 0, progress: u64::MAX, progress_at }
    }

    /// Begins now, and takes no offence at a standstill.
    pub(super) fn patient(clock: Clock) -> Self {
        Self { judges: false, ..Self::new(clock) }
    }

    /// To be called once a turn with a number that grows while things move, and a way to look at
    /// what the other end says. Gives what it says.
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
