//! Latencies of one thread.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Longest latency that is distinguished from longer ones, in ns.
const LONGEST: u64 = 60_000_000_000;

/// Latencies measured by one thread.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u64,
    sum_of_squares: u128,
    /// All latencies in their order, if they are kept.
    kept: Option<Vec<u64>>,
}

/// Statistics of latencies, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    /// Number of iterations.
    pub(crate) count: u64,
    /// Shortest latency.
    pub(crate) min: f64,
    /// Longest latency.
    pub(crate) max: f64,
    /// Mean.
    pub(crate) mean: f64,
    /// Standard deviation of the sample.
    pub(crate) stdev: f64,
    /// Median, perftest's `t_typical`.
    pub(crate) p50: f64,
    /// 90 % quantile.
    pub(crate) p90: f64,
    /// 99 % quantile.
    pub(crate) p99: f64,
    /// 99.9 % quantile.
    pub(crate) p99_9: f64,
    /// 99.99 % quantile.
    pub(crate) p99_99: f64,
    /// 99.999 % quantile.
    pub(crate) p99_999: f64,
}

impl Latency {
    /// Creates an empty record of statistics.
    pub(crate) fn new() -> Self {
        Self::keeping(false)
    }

    /// Creates an empty record, which also keeps every latency if `keep` is set.
    pub(crate) fn keeping(keep: bool) -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3)
            .expect("1 ns to a minute with three digits are valid bounds");
        let kept = keep.then(Vec::new);
        Self { histogram, min: u64::MAX, max: 0, sum: 0, sum_of_squares: 0, kept }
    }

    /// Adds a latency in ns.
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        self.sum += ns;
        self.sum_of_squares += u128::from(ns) * u128::from(ns);
        if let Some(kept) = &mut self.kept {
            kept.push(ns);
        }
    }

    /// Returns all latencies in their order, if they are kept.
    pub(crate) fn kept(&self) -> Option<&[u64]> {
        self.kept.as_deref()
    }

    /// Returns the number of latencies.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the histogram, in ns.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// Returns the statistics, with each time divided by `parts`: 2 to report half a round trip,
    /// else 1.
    pub(crate) fn quantiles(&self, parts: f64) -> Quantiles {
        let count = self.count();
        if count == 0 {
            return Quantiles::default();
        }
        let at = |quantile: f64| {
            let ns = self.histogram.value_at_quantile(quantile);
            // A bucket's upper end may lie beyond the longest latency.
            ns.clamp(self.min, self.max) as f64 / parts
        };
        let (n, sum) = (count as f64, self.sum as f64);
        let squares = self.sum_of_squares as f64 - sum * sum / n;
        let variance = if count > 1 { squares.max(0.0) / (n - 1.0) } else { 0.0 };
        Quantiles {
            count,
            min: self.min as f64 / parts,
            max: self.max as f64 / parts,
            mean: sum / n / parts,
            stdev: variance.sqrt() / parts,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            p99_999: at(0.99999),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deviation_is_the_samples() {
        let mut latency = Latency::new();
        for ns in [2, 4, 4, 4, 5, 5, 7, 9] {
            latency.record(ns);
        }
        let report = latency.quantiles(1.0);
        assert_eq!((report.count, report.min, report.max, report.mean), (8, 2.0, 9.0, 5.0));
        assert!((report.stdev - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(report.p50, 4.0);
    }

    #[test]
    fn a_deviation_of_less_than_a_unit_is_not_lost() {
        let mut latency = Latency::new();
        for index in 0..1000 {
            latency.record(500 + index % 2);
        }
        assert!((latency.quantiles(1.0).stdev - 0.5).abs() < 1e-3);
    }

    #[test]
    fn half_a_round_trip_halves_everything_but_the_count() {
        let mut latency = Latency::new();
        (1..=1000u64).for_each(|ns| latency.record(ns));
        let (full, half) = (latency.quantiles(1.0), latency.quantiles(2.0));
        assert_eq!(half.count, 1000);
        assert_eq!((full.p50, half.p50), (500.0, 250.0));
        assert_eq!((full.p99, full.p99_9, full.max), (990.0, 999.0, 1000.0));
        assert!((full.stdev / half.stdev - 2.0).abs() < 1e-12);
    }

    #[test]
    fn quantiles_never_pass_the_longest() {
        let mut latency = Latency::new();
        latency.record(1_000_001);
        let report = latency.quantiles(1.0);
        assert_eq!((report.p99_999, report.max), (1_000_001.0, 1_000_001.0));
        assert_eq!(report.stdev, 0.0);
    }

    #[test]
    fn latencies_are_kept_in_their_order_if_wanted() {
        let (mut all, mut figures) = (Latency::keeping(true), Latency::new());
        for ns in [5, 3, 9] {
            all.record(ns);
            figures.record(ns);
        }
        assert_eq!(all.kept(), Some(&[5, 3, 9][..]));
        assert_eq!(figures.kept(), None);
        assert_eq!(all.quantiles(1.0), figures.quantiles(1.0));
    }

    #[test]
    fn nothing_measured_is_reported_as_nothing() {
        assert_eq!(Latency::new().quantiles(2.0), Quantiles::default());
    }
}
