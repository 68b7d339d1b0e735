//! Errors of starting EAL, with DPDK's log.

use super::EalConfig;
use std::io;

/// The reason why [`Eal::init`](super::Eal::init) or a thread's registration failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// EAL runs in this process with another configuration, and cannot be restarted.
    #[error("EAL already runs in this process with another configuration")]
    OtherConfig,
    /// An earlier start has failed in this process; DPDK cannot start again.
    #[error("EAL cannot be started again in this process, where {reason}")]
    Spent {
        /// The first failure.
        reason: String,
    },
    /// The requested memory is not available.
    #[error("EAL found too little memory: {log}")]
    NoMemory {
        /// DPDK's log of the attempt.
        log: String,
    },
    /// Another running process uses the file prefix.
    #[error("file prefix {prefix:?} is used by another running process: {log}")]
    PrefixBusy {
        /// The prefix.
        prefix: String,
        /// DPDK's log of the attempt.
        log: String,
    },
    /// A device of the configuration does not exist or its arguments are wrong.
    #[error("EAL could not make a configured device: {log}")]
    Device {
        /// DPDK's log of the attempt.
        log: String,
    },
    /// EAL refuses the arguments.
    #[error("EAL refused its arguments: {log}")]
    Arguments {
        /// DPDK's log of the attempt.
        log: String,
    },
    /// Files, hugepages or devices are not accessible to this user.
    #[error("EAL lacks a permission: {log}")]
    Permission {
        /// DPDK's log of the attempt.
        log: String,
    },
    /// The control CPUs are not available to this process, or no thread could be started on them.
    #[error("no thread on the control CPUs: {0}")]
    Affinity(io::Error),
    /// All of DPDK's lcore numbers are taken.
    #[error("no lcore number is left for this thread")]
    NoLcoreLeft,
    /// The program has tried to start DPDK itself, and failed.
    #[error("DPDK was started in this process by the program, without success")]
    Program,
    /// A NIC of the configuration cannot be used as it is.
    #[error("NIC {address} {reason}")]
    Nic {
        /// The NIC's PCI address.
        address: String,
        /// The obstacle, and the remedy.
        reason: String,
    },
    /// Another error.
    #[error("EAL failed: {error}: {log}")]
    Other {
        /// DPDK's errno.
        error: io::Error,
        /// DPDK's log of the attempt.
        log: String,
    },
}

impl EalError {
    /// Makes the error of a failed start. DPDK has one errno for several causes, which are
    /// distinguished by its log.
    pub(super) fn explain(errno: i32, log: String, config: &EalConfig) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| log.contains(word));
        if says(&["Cannot create lock", "is another primary"]) {
            let prefix = config.file_prefix.clone().unwrap_or_default();
            return Self::PrefixBusy { prefix, log };
        }
        if says(&["vdev", "failed to parse device", "failed to initialize"]) {
            return Self::Device { log };
        }
        if says(&["Cannot get hugepage information", "not enough memory", "Cannot init memory"]) {
            return Self::NoMemory { log };
        }
        match rustix::io::Errno::from_raw_os_error(errno) {
            rustix::io::Errno::ALREADY => Self::Program,
            rustix::io::Errno::NOMEM => Self::NoMemory { log },
            rustix::io::Errno::NODEV => Self::Device { log },
            rustix::io::Errno::INVAL => Self::Arguments { log },
            rustix::io::Errno::ACCESS | rustix::io::Errno::PERM => Self::Permission { log },
            _ => Self::Other { error: io::Error::from_raw_os_error(errno), log },
        }
    }
}
