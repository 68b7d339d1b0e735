//! Distribution of round trips: one block per lcore, written by its owner only.
//!
//! Bucket 0 has the times up to 256 ns. Above that, each power of two is divided into four buckets
//! of one width, so the bound of a bucket is at most 25 % above each time in it.

use uroce_shared::sync::{AtomicU64, Ordering};

/// Bits of the first bucket's bound.
const FIRST_BITS: u32 = 8;
/// Buckets up to 2^32 ns, which is more than any sample.
const BUCKETS: usize = 1 + (u32::BITS - FIRST_BITS) as usize * 4;

/// Returns the bucket of a time in nanoseconds.
fn bucket_of(nanos: u32) -> usize {
    let below = nanos.saturating_sub(1);
    match below.checked_ilog2() {
        Some(bits @ FIRST_BITS..) => {
            let quarter = (below >> (bits - 2)) & 3;
            1 + ((bits - FIRST_BITS) * 4 + quarter) as usize
        }
        _ => 0,
    }
}

/// Returns the longest time of a bucket in nanoseconds.
fn bound_of(bucket: usize) -> u64 {
    match bucket.checked_sub(1) {
        None => 1 << FIRST_BITS,
        Some(at) => (5 + at as u64 % 4) << (FIRST_BITS - 2 + at as u32 / 4),
    }
}

/// The round trips of one lcore.
#[derive(Debug)]
pub(crate) struct RoundTripBlock {
    sum: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

impl RoundTripBlock {
    pub(crate) fn new() -> RoundTripBlock {
        RoundTripBlock {
            sum: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Adds a round trip. Called by the owner only.
    #[inline]
    pub(crate) fn record(&self, nanos: u32) {
        let add = |value: &AtomicU64, amount: u64| {
            value.store(value.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
        };
        add(&self.sum, nanos.into());
        add(&self.buckets[bucket_of(nanos)], 1);
    }
}

/// Measured round trips of RC requests, by their time: of all lcores of an engine since its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoundTripDistribution {
    sum: u64,
    buckets: [u64; BUCKETS],
}

impl RoundTripDistribution {
    pub(crate) fn read<'a>(
        blocks: impl IntoIterator<Item = &'a RoundTripBlock>,
    ) -> RoundTripDistribution {
        let mut all = RoundTripDistribution { sum: 0, buckets: [0; BUCKETS] };
        for block in blocks {
            all.sum = all.sum.wrapping_add(block.sum.load(Ordering::Relaxed));
            for (sum, value) in all.buckets.iter_mut().zip(&block.buckets) {
                *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
            }
        }
        all
    }

    /// Returns the sum of all times in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum
    }

    /// Returns the buckets in ascending order: the longest time of each in nanoseconds, and its
    /// number of samples.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(bucket, count)| (bound_of(bucket), *count))
    }

    /// Returns the difference to `earlier`, a reading of the same engine.
    pub fn since(&self, earlier: &RoundTripDistribution) -> RoundTripDistribution {
        let mut since = self.clone();
        since.sum = since.sum.wrapping_sub(earlier.sum);
        for (count, before) in since.buckets.iter_mut().zip(&earlier.buckets) {
            *count = count.wrapping_sub(*before);
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_bucket_with_the_next_bound() {
        let mut before = 0;
        for bucket in 0..BUCKETS {
            let bound = bound_of(bucket);
            assert!(bound > before, "{bucket}");
            let last = u32::try_from(bound).unwrap_or(u32::MAX);
            assert_eq!(bucket_of(last), bucket, "{bound}");
            assert_eq!(bucket_of(before as u32 + 1), bucket, "{bound}");
            assert!(bucket == 0 || bound * 4 <= (before + 1) * 5, "{bound} after {before}");
            before = bound;
        }
        assert_eq!((before, bucket_of(0)), (1 << 32, 0));
    }

    #[test]
    fn readings_sum_over_lcores_and_subtract() {
        let (a, b) = (RoundTripBlock::new(), RoundTripBlock::new());
        a.record(1000);
        let before = RoundTripDistribution::read([&a, &b]);
        b.record(1000);
        b.record(u32::MAX);
        let since = RoundTripDistribution::read([&a, &b]).since(&before);
        assert_eq!(since.sum_ns(), 1000 + u64::from(u32::MAX));
        let filled: Vec<(u64, u64)> = since.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(1024, 1), (1 << 32, 1)]);
    }
}
