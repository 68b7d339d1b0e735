//! Pace: the rate limit of an address handle, shared by all QPs that send with it.
//!
//! After a frame of n bytes at rate r the next frame waits n/r. A frame that comes late, because of
//! an lcore's turns or a preempted thread, may make up for at most `MOST_LATE`.
//!
//! Invariants
//! - One shared word holds the whole state: each frame reserves its time in it, in the order of the
//!   calls.
//! - A QP that has to wait keeps its frame's time and reserves the next after it has sent. So QPs
//!   that always have something to send take turns.
//! - A handle without a limit is never written.
//!
//! Not here: a QP's own rate limit (in `uroce_transport`).

use crate::sync::{AtomicU64, Ordering};
use std::time::Duration;
use uroce_transport::{Instant, StaticRate};

/// Largest lateness that is made up for: half a percent of 100 ms.
const MOST_LATE: Duration = Duration::from_micros(500);
/// Fractions of a nanosecond that are counted, since a small frame at a high rate takes few
/// nanoseconds.
const PARTS: u64 = 16;

/// The rate, and the time of the next frame.
#[derive(Debug)]
pub struct Pace {
    mbps: Option<u32>,
    /// The time of the next frame, in `PARTS` of a nanosecond.
    next: AtomicU64,
}

impl Pace {
    /// Makes the state of a handle that sends at this rate.
    pub fn new(rate: StaticRate) -> Pace {
        Pace { mbps: rate.mbps(), next: AtomicU64::new(0) }
    }

    /// Returns whether there is a limit.
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.mbps.is_some()
    }

    /// Reserves and returns the time at which a frame of `bytes` bytes may leave. The time stays
    /// reserved even if the frame is not sent.
    pub fn reserve(&self, bytes: u32, now: Instant) -> Instant {
        let Some(mbps) = self.mbps else { return now };
        // Bits divided by Mb/s are microseconds. Rounded to nearest, so that errors of many frames
        // cancel out.
        let gap = (u64::from(bytes) * 8 * 1000 * PARTS + u64::from(mbps) / 2) / u64::from(mbps);
        let earliest = now.as_nanos().saturating_sub(MOST_LATE.as_nanos() as u64) * PARTS;
        let after = |next: u64| Some(next.max(earliest) + gap);
        // The update never fails, since `after` always returns a value.
        let (Ok(next) | Err(next)) =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        Instant::from_nanos(next.max(earliest).div_ceil(PARTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes sent in 100 ms if a sender tries every `every` nanoseconds.
    fn sent(rate: StaticRate, frame: u32, every: u64) -> u64 {
        let pace = Pace::new(rate);
        // Time 0 would count nothing as late.
        let begin = 1_000_000_000;
        let (mut bytes, mut departure) = (0, None);
        for now in (begin..begin + 100_000_000).step_by(every as usize) {
            let now = Instant::from_nanos(now);
            while *departure.get_or_insert_with(|| pace.reserve(frame, now)) <= now {
                departure = None;
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
    fn each_frame_is_told_its_time_to_the_nanosecond() {
        let pace = Pace::new(StaticRate::from_mbps(10_000).unwrap());
        let at = Instant::from_nanos;
        // First the credit of the time before is used up.
        while pace.reserve(1250, at(1_000_000)) < at(1_000_000) {}
        // Each thousand bits take 100 ns, at any time and for any caller.
        assert_eq!(pace.reserve(1250, at(1_000_000)), at(1_001_000));
        assert_eq!(pace.reserve(125, at(1_000_500)), at(1_002_000));
        assert_eq!(pace.reserve(1250, at(1_000_500)), at(1_002_100));
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let pace = Pace::new(StaticRate::MAX);
        assert!(!pace.is_limited());
        assert_eq!(pace.reserve(9000, Instant::ZERO), Instant::ZERO);
        assert_eq!(pace.reserve(9000, Instant::ZERO), Instant::ZERO);
    }
}
