//! Errors of the measurements, each as one sentence for the user.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::time::Duration;

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// Options do not go together, or a value is out of range.
    #[error("{0}")]
    Usage(String),
    /// The operating system refused a call.
    #[error("{what}: {source}")]
    Io {
        /// The attempted operation.
        what: String,
        /// The system's error.
        source: io::Error,
    },
    /// The two ends were started with different options.
    #[error("the two ends were started with different options: {0}")]
    Disagree(String),
    /// The other end failed and sent the reason.
    #[error("the other end failed: {0}")]
    Peer(String),
    /// The other end closed the connection before the test was over.
    #[error("the other end is gone (it closed the TCP connection before the test was over)")]
    PeerGone,
    /// A wait has timed out.
    #[error("nothing happened for {:.0} s while {waiting}", limit.as_secs_f64())]
    TimedOut {
        /// The awaited event.
        waiting: &'static str,
        /// Length of the wait.
        limit: Duration,
    },
    /// The stack refused a call.
    #[error("{step}: {source}")]
    Stack {
        /// The attempted operation.
        step: &'static str,
        /// The stack's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A work request completed with an error.
    #[error("a work request of {operation} ended with: {status}")]
    Completion {
        /// Operation of the work request.
        operation: &'static str,
        /// Status of the completion.
        status: uroce::WcStatus,
    },
    /// A work request of `loss` completed with an error.
    #[error(
        "with a loss of {loss} each way {source}; a longer --ack-timeout lets retries wait longer"
    )]
    Lossy {
        /// Probability of a loss.
        loss: f64,
        /// The error of the work request.
        source: Box<BenchError>,
    },
    /// `--verify` found bytes that differ from those sent.
    #[error("verification failed: {0}")]
    Corrupt(String),
    /// An average is below the limit that the command line has set.
    #[error("the average {what} of {measured:.6} {unit} is below the limit of {limit} {unit}")]
    BelowLimit {
        /// The measured quantity.
        what: &'static str,
        /// Its average.
        measured: f64,
        /// Lowest value of a success.
        limit: f64,
        /// Unit of both.
        unit: &'static str,
    },
    /// A NIC lacks properties that `nic-check` has looked for.
    #[error("the NIC lacks {count} of the properties, see NO above")]
    Lacking {
        /// Their number.
        count: usize,
    },
    /// A report has no result.
    #[error("none of the {count} measurements has a result, see the reasons above")]
    NoResult {
        /// Number of measurements.
        count: usize,
    },
    /// Figures of a report are worse than those of another.
    #[error("{count} figures are worse, see above")]
    Worse {
        /// Their number.
        count: usize,
    },
    /// A child process of the quickstart failed.
    #[error("{0}")]
    Child(String),
}

/// Adds the attempted operation to an error.
pub(crate) trait Step<T> {
    /// Names the operation that failed.
    fn step(self, step: &'static str) -> Result<T, BenchError>;
}

impl<T, E: Error + Send + Sync + 'static> Step<T> for Result<T, E> {
    fn step(self, step: &'static str) -> Result<T, BenchError> {
        self.map_err(|error| BenchError::Stack { step, source: Box::new(error) })
    }
}

impl BenchError {
    /// Creates an error of the operating system.
    pub(crate) fn io(what: impl Display, source: io::Error) -> Self {
        Self::Io { what: what.to_string(), source }
    }

    /// Tells whether nothing was measured for want of what the command line, the configuration, the
    /// machine or the container must have.
    pub(crate) fn is_of_setup(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            Self::Stack { source, .. } => {
                source.is::<uroce::OpenError>() || source.is::<uroce::ConfigError>()
            }
            _ => false,
        }
    }

    /// Creates an error of the command line.
    pub(crate) fn usage(text: impl Display) -> Self {
        Self::Usage(text.to_string())
    }
}
