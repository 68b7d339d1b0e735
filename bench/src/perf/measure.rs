//! Statistics: histograms of latencies, bandwidth as messages over time, medians of runs.
//!
//! Invariants
//! - Recording neither allocates nor loses precision: sums are exact integers, quantiles have three
//!   digits (and are exact below 2 µs).
//! - The standard deviation is that of the sample, from the exact sums. (perftest rounds each
//!   deviation to an `int`, and its `t_max` is not the maximum; here both are exact.)
//!
//! Not here: units of the report. Times are in nanoseconds, rates in bytes per second.

mod bandwidth;
mod latency;

pub(crate) use bandwidth::{Bandwidth, Timeline};
pub(crate) use latency::{Latency, Quantiles};

/// Returns the median of the values: of an even number the mean of the middle two, of none 0.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[len / 2],
        len => (sorted[len / 2 - 1] + sorted[len / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_of_any_order() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[5.0]), 5.0);
        assert_eq!(median(&[9.0, 1.0, 4.0]), 4.0);
        assert_eq!(median(&[9.0, 1.0, 4.0, 6.0]), 5.0);
    }
}
