//! Why a measurement did not come to a result: one sentence for the person at the terminal.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::time::Duration;

/// What can go wrong between the command line and the last row of a table.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// Options that do not go together, or a value out of range.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The two ends were started with options that differ.
    #[error("the two ends were started with different options: {0}")]
    Disagree(String),
    /// The other end failed, and said why.
    #[error("the other end failed: {0}")]
    Peer(String),
    /// The other end closed the connection before the test was over.
    #[error("the other end is gone (it closed the TCP connection before the test was over)")]
    PeerGone,
    /// Nothing happened for too long.
    #[error("nothing happened for {:.0} s while {waiting}", limit.as_secs_f64())]
    TimedOut {
        /// What was waited for.
        waiting: &'static str,
        /// How long.
        limit: Duration,
    },
    /// The stack refused a call.
    #[error("{step}: {source}")]
    Stack {
        /// What was tried.
        step: &'static str,
        /// The stack's answer.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A work request ended with an error.
    #[error("a work request of {operation} ended with: {status}")]
    Completion {
        /// What it did.
        operation: &'static str,
        /// How it ended.
        status: uroce::WcStatus,
    },
    /// `--verify` found bytes that are not what was sent.
    #[error("verification failed: {0}")]
    Corrupt(String),
    /// A child process of the quickstart failed.
    #[error("{0}")]
    Child(String),
}

/// Adds to an error what was being done.
pub(crate) trait Step<T> {
    /// Names the step that failed.
    fn step(self, step: &'static str) -> Result<T, BenchError>;
}

impl<T, E: Error + Send + Sync + 'static> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, BenchError> {
        self.map_err(|error| BenchError::Stack { step, source: Box::new(error) })
    }
}

impl BenchError {
    /// An error of the operating system.
    pub(crate) fn io(what: impl Display, source: io::Error) -> Self {
        Self::Io { what: what.to_string(), source }
    }

    /// A wrong command line.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self::Usage(text.to_string())
    }
}
