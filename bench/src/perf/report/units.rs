//! Units of a report.

use crate::perf::measure::Bandwidth;
use uroce_engine::clock::Clock;

/// Units of bandwidths and times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Units {
    /// Bandwidths are in Gb/s, else in MiB/s.
    pub(crate) gbits: bool,
    /// Times are in cycles, of which there are this many in a nanosecond, else in microseconds.
    pub(crate) cycles_per_ns: Option<f64>,
}

impl Units {
    /// Creates the units of a report.
    pub(crate) fn new(gbits: bool, cycles: bool) -> Self {
        let per_ns = || 1e9 / Clock::new().nanos_of(1_000_000_000).max(1) as f64;
        Self { gbits, cycles_per_ns: cycles.then(per_ns) }
    }

    /// Returns bytes per second of the unit of bandwidths.
    pub(crate) fn bandwidth(&self) -> f64 {
        if self.gbits { 1e9 / 8.0 } else { f64::from(1 << 20) }
    }

    /// Returns the name of the unit of bandwidths.
    pub(crate) fn bandwidth_name(&self) -> &'static str {
        if self.gbits { "Gb/sec" } else { "MiB/sec" }
    }

    /// Returns an average bandwidth.
    pub(crate) fn average(&self, row: &Bandwidth) -> f64 {
        row.bytes_per_second() / self.bandwidth()
    }

    /// Returns a time.
    pub(crate) fn time(&self, ns: f64) -> f64 {
        self.cycles_per_ns.map_or(ns / 1e3, |cycles| ns * cycles)
    }

    /// Returns the name of the unit of times.
    pub(crate) fn time_name(&self) -> &'static str {
        if self.cycles_per_ns.is_some() { "cycles" } else { "usec" }
    }
}
