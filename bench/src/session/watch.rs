//! Notices, from inside a busy loop, what the other end says and that nothing moves any more.

use super::{PATIENCE, Word};
use crate::error::BenchError;
use crate::exchange::Link;
use uroce_engine::clock::Clock;

/// Turns between two looks at the clock.
const TURNS: u32 = 256;
/// Between two looks at the socket, nanoseconds.
const LOOK_NS: u64 = 2_000_000;

/// The state of watching over one loop.
pub(super) struct Watch {
    clock: Clock,
    turns: u32,
    next_look: u64,
    progress: u64,
    progress_at: u64,
}

impl Watch {
    /// Begins now.
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, turns: 0, next_look: 0, progress: u64::MAX, progress_at: clock.now() }
    }

    /// To be called once a turn with a number that grows while things move. Gives what the other
    /// end says meanwhile.
    #[inline]
    pub(super) fn turn(
        &mut self,
        link: &mut Link,
        progress: u64,
    ) -> Result<Option<Word>, BenchError> {
        self.turns += 1;
        if self.turns < TURNS {
            return Ok(None);
        }
        self.look(link, progress)
    }

    #[cold]
    fn look(&mut self, link: &mut Link, progress: u64) -> Result<Option<Word>, BenchError> {
        self.turns = 0;
        let now = self.clock.now();
        if progress != self.progress {
            self.progress = progress;
            self.progress_at = now;
        }
        if now < self.next_look {
            return Ok(None);
        }
        self.next_look = now + LOOK_NS;
        if now - self.progress_at > PATIENCE.as_nanos() as u64 {
            return Err(BenchError::TimedOut { waiting: "the test was running", limit: PATIENCE });
        }
        link.try_receive()
    }
}
