//! Check of a rate limit by a leaky bucket: its content drains at the rate, and a frame may be
//! added while the content is at most the allowance.
//!
//! Invariants
//! - In any span of time, at most the rate times the span, the allowance and one frame are sent.
//!   Frames that may not wait (bare acknowledgements) come on top; frames that may wait make up for
//!   them.

use core::time::Duration;

use uroce_transport::Instant;

/// Amount that may be sent at once, as time at the rate: the delay of an lcore's turns that a QP
/// makes up for.
pub(crate) const ALLOWANCE: Duration = Duration::from_millis(1);

/// The content, at a rate of `kbps`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bucket {
    kbps: u64,
    /// In bits times 10^6, of which `kbps` drain in a nanosecond.
    level: u64,
    seen: Instant,
}

impl Bucket {
    pub(crate) fn new(kbps: u64) -> Bucket {
        Bucket { kbps, level: 0, seen: Instant::ZERO }
    }

    /// The bucket at another rate. Its content is kept as time, which is the same at both rates.
    pub(crate) fn at_rate(self, kbps: u64) -> Bucket {
        let level = u128::from(self.level) * u128::from(kbps) / u128::from(self.kbps);
        Bucket { kbps, level: level as u64, ..self }
    }

    /// Adds a frame. The error is the time by which the frame is too early; a frame that may not
    /// wait is never too early.
    pub(crate) fn pour(
        &mut self,
        now: Instant,
        bytes: u64,
        may_wait: bool,
    ) -> Result<(), Duration> {
        let passed = now.since(self.seen).as_nanos() as u64;
        self.level = self.level.saturating_sub(passed.saturating_mul(self.kbps));
        self.seen = now;
        let most = ALLOWANCE.as_nanos() as u64 * self.kbps;
        // An excess of less than a nanosecond cannot be kept, so it is ignored.
        let excess = self.level.saturating_sub(most) / self.kbps;
        self.level += bytes * 8_000_000;
        if may_wait && excess > 0 { Err(Duration::from_nanos(excess)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_waits_for_those_before_it_but_for_the_allowance() {
        // 1 Gb/s: 1000 bytes are 8 µs.
        let mut bucket = Bucket::new(1_000_000);
        let at = |micros: u64| Instant::from_nanos(1_000_000_000 + micros * 1000);
        for _ in 0..126 {
            assert_eq!(bucket.pour(at(0), 1000, true), Ok(()), "the allowance is 1 ms");
        }
        assert_eq!(bucket.pour(at(0), 1000, true), Err(Duration::from_micros(8)));
        assert_eq!(bucket.pour(at(0), 60, false), Ok(()));
        assert_eq!(bucket.pour(at(16), 1000, true), Err(Duration::from_nanos(480)));
    }
}
