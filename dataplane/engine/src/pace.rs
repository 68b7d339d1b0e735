//! The rate of an address handle: how fast datagrams may leave by it, whoever sends them.
//!
//! After a frame of n bytes at rate r the next one waits n/r. Whoever comes late, since lcores have
//! turns and threads lose their CPU, may make up for up to [`MOST_LATE`].
//!
//! Invariants
//! - One word is all there is to share: each frame takes its time from it, in the order of asking.
//! - Who has to wait keeps its frame's time, and asks for the next when it has sent. So those who
//!   always have something to send have their turns one after the other.
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

    /// Is there a limit?
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.mbps.is_some()
    }

    /// When the next frame may leave. The time is that frame's, of so many bytes, whether it does or
    /// not.
    pub(crate) fn reserve(&self, bytes: u32, now: Instant) -> Instant {
        let Some(mbps) = self.mbps else { return now };
        // Bits by Mb/s are microseconds. Rounded, not cut: errors of many frames even out.
        let gap = (u64::from(bytes) * 8 * 1000 * PARTS + u64::from(mbps) / 2) / u64::from(mbps);
        let earliest = now.as_nanos().saturating_sub(MOST_LATE.as_nanos() as u64) * PARTS;
        let after = |next: u64| Some(next.max(earliest) + gap);
        // Never refused.
        let (Ok(next) | Err(next)) =
            self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, after);
        Instant::from_nanos(next.max(earliest).div_ceil(PARTS))
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
        // What the time before has earned is used up first.
        while pace.reserve(1250, at(1_000_000)) < at(1_000_000) {}
        // A thousand bits more at ten a nanosecond, whoever asks and whenever.
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
