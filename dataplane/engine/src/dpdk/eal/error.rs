//! Errors of starting EAL, with DPDK's log, and the errnos that it names.

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
        /// Its errnos.
        errnos: Vec<i32>,
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
    /// The arguments ask for a telemetry socket, which cannot be made.
    #[error(
        "EAL could not make the telemetry socket: {log}; choose a shorter file prefix or \
         RUNTIME_DIRECTORY, or leave out --telemetry"
    )]
    Telemetry {
        /// DPDK's log of the attempt.
        log: String,
    },
    /// The control CPUs are not available to this process, or no thread could be started on them.
    #[error("no thread on the control CPUs: {0}{hint}", hint = of_cpu_set(.0))]
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

/// Returns what to do about control CPUs that the kernel refuses.
fn of_cpu_set(error: &io::Error) -> &'static str {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::INVAL) => {
            ": none of them is in this process's cpuset: list others under control_cpus of [eal], \
             or leave it out"
        }
        _ => "",
    }
}

/// Words by which DPDK's log names an error of the operating system. Where DPDK returns only -1,
/// the log is the only source.
const NAMES: &[(&str, i32)] = &[
    ("Too many open files", libc::EMFILE),
    ("Resource temporarily unavailable", libc::EAGAIN),
    ("memory", libc::ENOMEM),
    ("Address already in use", libc::EADDRINUSE),
    ("ermission denied", libc::EACCES),
    ("not permitted", libc::EPERM),
];

/// The errno of an error of the operating system, followed by those that DPDK's log names.
pub(crate) fn errnos_of(error: Option<&io::Error>, log: &str) -> Vec<i32> {
    let own = error.and_then(|error| match error.kind() {
        _ if error.raw_os_error().is_some() => error.raw_os_error(),
        io::ErrorKind::PermissionDenied => Some(libc::EACCES),
        _ => None,
    });
    let named = NAMES.iter().filter(|(words, _)| log.contains(words));
    own.into_iter().chain(named.map(|(_, errno)| *errno)).collect()
}

impl EalError {
    /// The errnos behind the error, of the operating system or named in DPDK's log.
    pub fn errnos(&self) -> Vec<i32> {
        let also = |errno, log| {
            let mut errnos = errnos_of(None, log);
            errnos.push(errno);
            errnos
        };
        match self {
            Self::NoMemory { log } => also(libc::ENOMEM, log),
            Self::Permission { log } => also(libc::EACCES, log),
            Self::PrefixBusy { log, .. }
            | Self::Device { log }
            | Self::Arguments { log }
            | Self::Telemetry { log } => errnos_of(None, log),
            Self::Other { error, log } => errnos_of(Some(error), log),
            Self::Affinity(error) => errnos_of(Some(error), ""),
            Self::Spent { errnos, .. } => errnos.clone(),
            Self::OtherConfig | Self::NoLcoreLeft | Self::Program | Self::Nic { .. } => Vec::new(),
        }
    }

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
        if says(&["TELEMETRY: Error"]) {
            return Self::Telemetry { log };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_errno_of_dpdk_comes_before_those_of_its_log() {
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let log = "EAL: Cannot set up DMA remapping, error 12 (Cannot allocate memory)";
        assert_eq!(errnos_of(Some(&denied), log), [libc::EACCES, libc::ENOMEM]);
        assert_eq!(errnos_of(Some(&io::ErrorKind::NotFound.into()), ""), []);
        assert_eq!(errnos_of(Some(&io::ErrorKind::PermissionDenied.into()), ""), [libc::EACCES]);
    }

    #[test]
    fn the_log_names_errors_of_the_operating_system() {
        let cases = [
            ("EAL: Cannot open /dev/vfio/7: Permission denied", libc::EACCES),
            (
                "net_af_packet0: could not open AF_PACKET socket:Operation not permitted",
                libc::EPERM,
            ),
            ("call to mmap failed: Resource temporarily unavailable", libc::EAGAIN),
            ("memif_listener_create(): bind: Address already in use", libc::EADDRINUSE),
            ("EAL: eal_worker_thread_create: Too many open files", libc::EMFILE),
        ];
        for (log, errno) in cases {
            assert_eq!(errnos_of(None, log), [errno], "{log}");
        }
        let error = EalError::NoMemory { log: String::new() };
        assert_eq!(error.errnos(), [libc::ENOMEM]);
    }
}
