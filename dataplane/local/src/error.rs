//! Errors of joining, and of taking a queue.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A process that holds a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The member's number.
    pub number: u8,
    /// Its process number; 0 if the process is in a PID namespace that this process does not see.
    pub pid: u32,
    /// The program's name, as the kernel has it; empty if it cannot be read.
    pub program: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, self.program.as_str()) {
            (0, _) => write!(f, "{}: a process of another PID namespace", self.number),
            (pid, "") => write!(f, "{}: process {pid}", self.number),
            (pid, program) => write!(f, "{}: process {pid} ({program})", self.number),
        }
    }
}

/// Error of [`Member::join`](crate::Member::join). Nothing is left behind then.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The asked number is not one of 1..=64.
    #[error("{0} is no number of a member: 1 to 64")]
    Number(u8),
    /// The number of queues, or the length of frames, is out of range.
    #[error(
        "a member has 1 to 32 queues and frames of 14 to 16128 bytes, not {queues} and {frame_max}"
    )]
    Size {
        /// The configured number of queues.
        queues: u16,
        /// The configured length.
        frame_max: usize,
    },
    /// Another process has the asked number.
    #[error("number {} is taken, by process {} ({})", .0.number, .0.pid, .0.program)]
    Taken(Holder),
    /// All numbers are taken.
    #[error("all {} numbers of {} are taken: {}", holders.len(), directory.display(), list(holders))]
    Full {
        /// The directory.
        directory: PathBuf,
        /// The members, in order of their numbers.
        holders: Vec<Holder>,
    },
    /// The directory belongs to another user, or others may write to it.
    #[error("{}: {problem}", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// The problem with the directory, and its remedy.
        problem: String,
    },
    /// The system refused a step.
    #[error("{}: {step}: {error}", directory.display())]
    System {
        /// The directory.
        directory: PathBuf,
        /// The step.
        step: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl JoinError {
    /// Returns the system's error number, if a system call has failed.
    pub fn errno(&self) -> Option<i32> {
        match self {
            JoinError::System { error, .. } => error.raw_os_error(),
            _ => None,
        }
    }
}

fn list(holders: &[Holder]) -> String {
    holders.iter().map(Holder::to_string).collect::<Vec<_>>().join(", ")
}

/// Error of [`Member::queue`](crate::Member::queue).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum QueueError {
    /// There is no such queue.
    #[error("queue {index} of a member with {queues}")]
    OutOfRange {
        /// The asked queue.
        index: u16,
        /// The number of queues.
        queues: u16,
    },
    /// The queue has an owner.
    #[error("queue {index} is taken")]
    Taken {
        /// The asked queue.
        index: u16,
    },
}
