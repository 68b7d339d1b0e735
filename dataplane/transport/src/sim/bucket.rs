//! How much a rate allows: a bucket that runs out at that rate, and takes a frame while what is in
//! it is no more than the allowance.
//!
//! What holds: in any span of time no more leaves than the rate times that span, the allowance, and
//! one frame; what may not wait (bare acknowledgements) comes on top and is paid for by what can.

use core::time::Duration;

use crate::Instant;

/// What may leave at once after nothing could for a while, as time at the rate: the lateness of an
/// lcore's turns that is made up for.
pub(super) const ALLOWANCE: Duration = Duration::from_millis(1);

/// Bits times 10^6 that are still to run out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bucket {
    kbps: u64,
    /// In bits times 10^6: what `kbps` is in a nanosecond.
    level: u64,
    seen: Instant,
}

impl Bucket {
    pub(super) fn new(kbps: u64) -> Bucket {
        Bucket { kbps, level: 0, seen: Instant::ZERO }
    }

    /// The same content, to run out at another rate. What is owed is time, so it stays the same.
    pub(super) fn at_rate(self, kbps: u64) -> Bucket {
        let level = u128::from(self.level) * u128::from(kbps) / u128::from(self.kbps);
        Bucket { kbps, level: level as u64, ..self }
    }

    /// A frame leaves. `Err` says by how much too early; one that may not wait never is.
    pub(super) fn pour(
        &mut self,
        now: Instant,
        bytes: u64,
        may_wait: bool,
    ) -> Result<(), Duration> {
        let passed = now.since(self.seen).as_nanos() as u64;
        self.level = self.level.saturating_sub(passed.saturating_mul(self.kbps));
        self.seen = now;
        let most = ALLOWANCE.as_nanos() as u64 * self.kbps;
        // Less than a nanosecond is nobody's to keep.
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
