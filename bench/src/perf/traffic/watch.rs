//! Checks, from inside a busy loop, for messages of the other end and for a standstill.

use crate::error::BenchError;
use std::time::Duration;
use uroce_engine::clock::Clock;

/// Turns between two readings of the clock.
const TURNS: u32 = 256;
/// Time between two checks of the socket, in ns.
const LOOK_NS: u64 = 2_000_000;

/// State of the checks in one loop.
pub(super) struct Watch {
    clock: Clock,
    /// Longest time without progress; a longer one is an error.
    patience: Duration,
    turns: u32,
    next_look: u64,
    progress: u64,
    progress_at: u64,
}

impl Watch {
    /// Creates the state; the time begins now. No progress for longer than `patience` is an error.
    pub(super) fn new(clock: Clock, patience: Duration) -> Self {
        let progress_at = clock.now();
        Self { clock, patience, turns: 0, next_look: 0, progress: u64::MAX, progress_at }
    }

    /// Creates the state for a loop in which a standstill is not an error.
    pub(super) fn patient(clock: Clock) -> Self {
        Self::new(clock, Duration::MAX)
    }

    /// Called when this end has sent all. If it receives nothing that it counts, it only waits for
    /// the other end from now on, which may be far slower: a standstill is no error any more.
    pub(super) fn has_sent(&mut self, receives: bool) {
        if !receives {
            self.patience = Duration::MAX;
        }
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
        if Duration::from_nanos(now - self.progress_at) > self.patience {
            let limit = self.patience;
            return Err(BenchError::TimedOut { waiting: "the test was running", limit });
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns for longer than [`LOOK_NS`]. Returns the number of looks, or the error.
    fn looks(watch: &mut Watch, hurries: bool, progress: u64) -> Result<u32, BenchError> {
        let mut looks = 0;
        for _ in 0..TURNS {
            std::thread::sleep(Duration::from_micros(100));
            if hurries {
                watch.hurry();
            }
            looks += watch.turn(progress, || Ok(Some(1)))?.unwrap_or(0);
        }
        Ok(looks)
    }

    #[test]
    fn a_loop_that_sleeps_looks_as_often_as_one_that_does_not() {
        let clock = Clock::new();
        assert_eq!(looks(&mut Watch::patient(clock), false, 0).expect("patient"), 1);
        // More than 25 ms have looks every 2 ms.
        assert!(looks(&mut Watch::patient(clock), true, 0).expect("patient") > 5);
    }

    #[test]
    fn a_standstill_of_more_than_the_patience_is_an_error() {
        let (clock, short) = (Clock::new(), Duration::from_millis(5));
        let mut watch = Watch::new(clock, short);
        let error = looks(&mut watch, true, 7).expect_err("nothing moves").to_string();
        assert!(error.contains("while the test was running"), "{error}");
        let mut watch = Watch::new(clock, Duration::from_secs(60));
        assert!(looks(&mut watch, true, 7).is_ok());
        let mut watch = Watch::new(clock, short);
        watch.has_sent(false);
        assert!(looks(&mut watch, true, 7).is_ok(), "it has done its part");
        // What moves is waited for.
        let mut watch = Watch::new(clock, short);
        for progress in 0..40 {
            std::thread::sleep(Duration::from_millis(1));
            watch.hurry();
            watch.turn(progress, || Ok(Some(()))).expect("it moves");
        }
    }
}
