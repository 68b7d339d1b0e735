//! Five figures of a sample: least, quartiles, most, as a box plot draws them.

use serde::{Deserialize, Serialize};

/// Statistics of several values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BoxStats {
    /// Least value.
    pub(crate) min: f64,
    /// First quartile.
    pub(crate) q1: f64,
    /// Median.
    pub(crate) median: f64,
    /// Third quartile.
    pub(crate) q3: f64,
    /// Greatest value.
    pub(crate) max: f64,
}

impl BoxStats {
    /// Computes the statistics; of no values all are 0. Quartiles between two values are
    /// interpolated linearly (method 7 of Hyndman and Fan, as in R and NumPy).
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Self::default() };
        let at = |share: f64| {
            let place = share * last as f64;
            let low = place.floor() as usize;
            let high = (low + 1).min(last);
            sorted[low] + (sorted[high] - sorted[low]) * (place - low as f64)
        };
        Self { min: at(0.0), q1: at(0.25), median: at(0.5), q3: at(0.75), max: at(1.0) }
    }

    /// Returns the statistics of the values times `factor`, which is positive.
    pub(crate) fn times(&self, factor: f64) -> Self {
        let Self { min, q1, median, q3, max } = *self;
        Self {
            min: min * factor,
            q1: q1 * factor,
            median: median * factor,
            q3: q3 * factor,
            max: max * factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_r() {
        let stats = BoxStats::of(&[10.0, 1.0, 2.0, 4.0, 7.0, 8.0]);
        // quantile(c(1, 2, 4, 7, 8, 10))
        assert_eq!(stats, BoxStats { min: 1.0, q1: 2.5, median: 5.5, q3: 7.75, max: 10.0 },);
        assert_eq!(BoxStats::of(&[3.0]).times(2.0).q3, 6.0);
        assert_eq!(BoxStats::of(&[]), BoxStats::default());
    }
}
