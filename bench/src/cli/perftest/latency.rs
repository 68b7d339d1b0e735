//! Options of latency tests.

use super::View;
use crate::error::BenchError;
use crate::perf::plan::Plan;
use clap::Args;
use std::time::Duration;

/// Largest number of latencies that are kept to be printed one by one: 128 MiB.
const KEPT_MAX: u64 = 16 << 20;

/// Options of latency tests.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct LatencyArgs {
    /// Print every latency, sorted, above its row, and more quantiles below the table
    // perftest's help has the one name, and its parser the other.
    #[arg(short = 'H', long = "report-histogram", alias = "report-histogrm")]
    histogram: bool,
    /// Print every latency in the order of measurement, above its row
    #[arg(short = 'U', long = "report-unsorted", conflicts_with = "duration")]
    unsorted: bool,
    /// Report cycles of the CPU's counter instead of microseconds
    #[arg(short = 'C', long = "report-cycles")]
    cycles: bool,
    /// Microseconds between a message and the next
    #[arg(long = "latency_gap", default_value_t = 0, value_name = "US")]
    latency_gap: u64,
}

impl LatencyArgs {
    /// Adds the options to a plan, and returns the form of its report.
    pub(super) fn apply(&self, plan: &mut Plan) -> Result<View, BenchError> {
        if self.latency_gap > 1_000_000 {
            return Err(BenchError::usage("--latency_gap must be at most 1000000, a second"));
        }
        plan.local.gap = Duration::from_micros(self.latency_gap);
        // A run by time has quantiles only: it may have any number of latencies.
        let histogram = self.histogram && plan.amount.iterations().is_some();
        plan.local.keep = histogram || self.unsorted;
        if plan.local.keep && plan.amount.iterations() > Some(KEPT_MAX) {
            return Err(BenchError::usage(format!(
                "-H and -U keep every latency, at most {KEPT_MAX}: give a lower -n, or -D with -H \
                 for quantiles only"
            )));
        }
        Ok(View {
            quantiles: self.histogram,
            histogram,
            unsorted: self.unsorted,
            cycles: self.cycles,
            ..View::default()
        })
    }
}
