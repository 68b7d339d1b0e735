//! The rate of an address handle: how fast datagrams may leave by it, whoever sends them.
//!
//! After a frame of n bytes at rate r the next one waits n/r. Whoever comes late, since lcores have
//! turns and threads lose their CPU, may make up for up to [`MOST_LATE`].
//!
//! Invariants
//! - One word is all there is to share: lcores that send by the same handle add to it in any order,
//!   and no frame is forgotten. Each may find room at the same moment, so as many frames may leave
//!   together as there are lcores; the next ones wait the longer.
//! - A handle without limit is never written.
//!
//! Not here: a QP's own rate (the core's).

use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;
use uroce_transport::{Instant, StaticRate};

/// How much lateness is made up for. Over 100 ms it is half a percent.
const MOST_LATE: Duration = Duration::from_micros(500);
/// Parts of a nanosecond that are counted: a small frame at a high rate takes few.
const PARTS: u64 = 16;

/// The rate, and when the next frame may leave.
#[derive(Debug)]
pub(crate) struct Pace {
    mbps: Option<u32>,
    /// In parts of a nanosecond.
    next: AtomicU64,
}

impl Pace {
    pub(crate) fn new(rate: StaticRate) -> Pace {
        Pace { mbps: rate.mbps(), next: AtomicU64::new(0) }
    }

    /// May a frame leave now?
    ///
    /// # Errors
    /// When it may.
    #[inline]
    pub(crate) fn check(&self, now: Instant) -> Result<(), Instant> {
        if self.mbps.is_none() {
            return Ok(());
        }
        let next = Instant::from_nanos(self.next.load(Ordering::Relaxed).div_ceil(PARTS));
        if next <= now { Ok(()) } else { Err(next) }
    }

    /// A frame of so many bytes has left.
    #[inline]
    pub(crate) fn charge(&self, bytes: u32, now: Instant) {
        let Some(mbps) = self.mbps else { return };
        // Bits by Mb/s are microseconds. Rounded, not cut: errors of many frames even out.
        let gap = (u64::from(bytes) * 8 * 1000 * PARTS + u64::from(mbps) / 2) / u64::from(mbps);
        let earliest = now.as_nanos().saturating_sub(MOST_LATE.as_nanos() as u64) * PARTS;
        let after = |next: u64| Some(next.max(earliest) + gap);
        // Never refused.
        let _ = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that leave in 100 ms if somebody looks every `every` nanoseconds.
    fn sent(rate: StaticRate, frame: u32, every: u64) -> u64 {
        let pace = Pace::new(rate);
        // Not at the beginning of time, where nothing is late.
        let begin = 1_000_000_000;
        let mut bytes = 0;
        for now in (begin..begin + 100_000_000).step_by(every as usize) {
            let now = Instant::from_nanos(now);
            while pace.check(now).is_ok() {
                pace.charge(frame, now);
                bytes += u64::from(frame);
            }
        }
        bytes
    }

    #[test]
    fn each_rate_is_kept_to_a_percent_however_late_the_turns_are() {
        for rate in StaticRate::all().filter(|rate| rate.mbps().is_some_and(|m| m <= 100_000)) {
            for (frame, every) in [(4154, 50), (4154, 100_000), (1082, 313), (90, 7_919)] {
                let asked = f64::from(rate.mbps().unwrap()) * 1e6 / 8.0 / 10.0;
                let share = sent(rate, frame, every) as f64 / asked;
                assert!((0.985..1.015).contains(&share), "{rate}, {frame} bytes: {share}");
            }
        }
    }

    #[test]
    fn who_may_not_send_is_told_when_to_the_nanosecond() {
        let pace = Pace::new(StaticRate::from_mbps(10_000).unwrap());
        let at = Instant::from_nanos;
        // What the time before has earned is used up first.
        while pace.check(at(1_000_000)).is_ok() {
            pace.charge(1250, at(1_000_000));
        }
        let next = pace.check(at(1_000_000)).unwrap_err();
        assert_eq!(pace.check(at(next.as_nanos() - 1)), Err(next));
        assert_eq!(pace.check(next), Ok(()));
        pace.charge(1250, next);
        // A thousand bits more at ten a nanosecond.
        assert_eq!(pace.check(next), Err(at(next.as_nanos() + 1000)));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let pace = Pace::new(StaticRate::MAX);
        pace.charge(9000, Instant::ZERO);
        assert_eq!(pace.check(Instant::ZERO), Ok(()));
    }
}
