//! Options of `report`.

use clap::Args;
use std::path::PathBuf;

/// Options of `report`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ReportArgs {
    /// Plan: a TOML file, or one that is built in: minute, default (ten minutes), full (hours)
    #[arg(long, default_value = "default", value_name = "FILE")]
    pub(crate) plan: String,
    /// Folder for the page, index.html, and its results; a report that was stopped there goes on
    #[arg(short = 'o', long, value_name = "DIR", required_unless_present = "compare")]
    pub(crate) output: Option<PathBuf>,
    /// Only compare two reports, which were made before: what changed beyond the noise
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["plan", "output"])]
    pub(crate) compare: Vec<PathBuf>,
}
