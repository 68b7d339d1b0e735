//! Answers to `bench`.

use serde::{Deserialize, Serialize};

/// A measurement of `bench`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bench {
    /// perftest's name of the test, and the words after it.
    pub line: String,
    /// State: running, done, failed, stopped.
    pub state: String,
    /// Time since its start, or to its end, in milliseconds.
    pub elapsed_ms: u64,
    /// Titles of the columns of perftest's table, as far as it has come.
    pub columns: Vec<String>,
    /// Rows of the table, with a value for each column.
    pub rows: Vec<Vec<String>>,
    /// What `uroce-perf` has printed, the last lines of it, with errors among them.
    pub output: Vec<String>,
}
