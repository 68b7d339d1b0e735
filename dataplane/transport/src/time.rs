//! Time as the core uses it: an argument of each call, never read from a clock.

use core::ops::Add;
use core::time::Duration;

/// A point in time: nanoseconds since an origin that the caller chooses and keeps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);

    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Instant {
        Instant(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to this instant; zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the end of time (584 years), so that a far deadline never wraps to an early
    /// one.
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// A time as the low 32 bits of its nanoseconds: compared over at most four seconds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Stamp(u32);

impl Stamp {
    pub(crate) fn of(now: Instant) -> Stamp {
        Stamp(now.as_nanos() as u32)
    }

    /// Nanoseconds from this time to `now`, modulo four seconds.
    pub(crate) fn age(self, now: Instant) -> u32 {
        (now.as_nanos() as u32).wrapping_sub(self.0)
    }
}
