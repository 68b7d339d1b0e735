//! Operations in progress on several connections, each taken when it is done.
//!
//! Waiting for them in the order in which they began would add waiting time to the measurement.

use crate::error::{BenchError, Step};
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use uroce::cm::{CmError, Connection};

/// Time to wait for the oldest operation before the others are checked.
const LOOK: Duration = Duration::from_micros(50);

/// Waits until at least one operation is done, and takes all that are. `is_done` may block for the
/// given time.
pub(crate) fn take_done<T>(
    pending: &mut VecDeque<T>,
    limit: Duration,
    mut is_done: impl FnMut(&T, Duration) -> Result<bool, BenchError>,
    mut take: impl FnMut(T),
) -> Result<(), BenchError> {
    let (begin, many) = (Instant::now(), pending.len());
    loop {
        let mut index = 0;
        while let Some(one) = pending.get(index) {
            if !is_done(one, Duration::ZERO)? {
                index += 1;
            } else if let Some(done) = pending.remove(index) {
                take(done);
            }
        }
        if pending.is_empty() || pending.len() < many {
            return Ok(());
        }
        // Most operations are done in the order in which they began.
        if is_done(&pending[0], LOOK)? {
            pending.drain(..1).for_each(take);
            return Ok(());
        }
        if begin.elapsed() > limit {
            return Err(BenchError::TimedOut { waiting: "waiting for a connection", limit });
        }
    }
}

/// Tells whether a connection is established within `wait`.
pub(crate) fn is_established(connection: &Connection, wait: Duration) -> Result<bool, BenchError> {
    match connection.wait_established(wait) {
        Err(CmError::TimedOut) => Ok(false),
        result => result.step("connecting").map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_when_it_is_done_whatever_began_first() {
        let mut pending: VecDeque<u32> = (0..6).collect();
        let mut looks = 0;
        // Odd numbers are done from the second check of each on.
        let is_done = |number: &u32, _| {
            looks += 1;
            Ok(looks > 7 && number % 2 == 1)
        };
        let mut taken = Vec::new();
        let limit = Duration::from_secs(5);
        take_done(&mut pending, limit, is_done, |one| taken.push(one)).expect("some are");
        assert_eq!((taken, pending), (vec![1, 3, 5], VecDeque::from([0, 2, 4])));
    }

    #[test]
    fn what_is_never_done_is_given_up_and_nothing_is_not_waited_for() {
        let mut pending = VecDeque::from([1]);
        let limit = Duration::from_millis(1);
        let error = take_done(&mut pending, limit, |_, _| Ok(false), |_| ()).expect_err("late");
        assert!(matches!(error, BenchError::TimedOut { .. }), "{error}");
        take_done(&mut VecDeque::<u32>::new(), limit, |_, _| Ok(false), |_| ()).expect("nothing");
    }
}
