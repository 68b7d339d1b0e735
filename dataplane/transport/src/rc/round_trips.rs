//! Record of the round trips that [`super::rtt`] measures.
//!
//! Invariants
//! - It is small, because every RC QP has one. The distribution is that of all QPs of an lcore,
//!   which gets each sample by [`Output::round_trip`](crate::env::Output::round_trip).

/// Round trips of a QP's requests, in nanoseconds.
///
/// A round trip is the time from the turn of an lcore that has sent a request to the turn that has
/// received its acknowledgement or response: with the wire, the NICs, and the peer's own time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTripStats {
    /// Number of samples since the QP left RESET or the record was cleared; at least 1.
    pub samples: u32,
    /// Shortest one.
    pub min_ns: u32,
    /// Mean of all.
    pub mean_ns: u32,
    /// Longest one.
    pub max_ns: u32,
    /// The last one.
    pub last_ns: u32,
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RoundTrips {
    sum: u64,
    samples: u32,
    min: u32,
    max: u32,
    last: u32,
}

const _: () = assert!(size_of::<RoundTrips>() == 24);

impl RoundTrips {
    #[inline]
    pub(super) fn record(&mut self, nanos: u32) {
        let is_first = self.samples == 0;
        // With a million samples a second it would take more than an hour until none counts.
        if let Some(samples) = self.samples.checked_add(1) {
            self.samples = samples;
            self.sum += u64::from(nanos);
        }
        self.min = if is_first { nanos } else { self.min.min(nanos) };
        self.max = self.max.max(nanos);
        self.last = nanos;
    }

    pub(crate) fn clear(&mut self) {
        *self = RoundTrips::default();
    }

    /// Returns what was recorded; `None` if nothing was.
    pub(crate) fn stats(&self) -> Option<RoundTripStats> {
        let RoundTrips { sum, samples, min, max, last } = *self;
        // Between two numbers of 32 bits.
        let mean_ns = sum.checked_div(samples.into())? as u32;
        Some(RoundTripStats { samples, min_ns: min, mean_ns, max_ns: max, last_ns: last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_extremes_mean_and_the_last_sample_until_it_is_cleared() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.stats(), None);
        [5000, u32::MAX, 1000].into_iter().for_each(|nanos| trips.record(nanos));
        let mean_ns = ((6000 + u64::from(u32::MAX)) / 3) as u32;
        let max_ns = u32::MAX;
        let stats = RoundTripStats { samples: 3, min_ns: 1000, mean_ns, max_ns, last_ns: 1000 };
        assert_eq!(trips.stats(), Some(stats));
        trips.clear();
        assert_eq!(trips.stats(), None);
    }

    #[test]
    fn more_samples_than_can_be_counted_keep_the_mean() {
        let mut trips = RoundTrips { sum: 7 * u64::from(u32::MAX), samples: u32::MAX, ..of_one(7) };
        trips.record(9);
        let stats = trips.stats().expect("samples");
        assert_eq!((stats.samples, stats.min_ns, stats.mean_ns), (u32::MAX, 7, 7));
        assert_eq!((stats.max_ns, stats.last_ns), (9, 9));
    }

    fn of_one(nanos: u32) -> RoundTrips {
        let mut trips = RoundTrips::default();
        trips.record(nanos);
        trips
    }
}
