//! Errors of a process's surroundings, with advice for its user.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use uroce::ConfigError;
use uroce::config::FailoverError;
use uroce::local::LocalError;
use uroce_command::run_dir::RunDirError;

/// Why a process has no device. The text says what to do about it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The configuration cannot be read, or has an error.
    #[error(
        "{}\nCorrect the file, or name another in UROCE_CONFIG or with uroce-run --config, \
         or unset UROCE_CONFIG: the processes of this machine are then joined among themselves.",
        with_name(file, error)
    )]
    Config { file: PathBuf, error: ConfigError },

    /// Two alternative configurations have devices of different names.
    #[error(
        "{} and {} are alternatives, but their devices are not of the same names. Use the \
         same names, or configure one file only.",
        one.display(), other.display()
    )]
    Alternatives { one: PathBuf, other: PathBuf },

    /// `UROCE_CONFIG` is set but names no file.
    #[error(
        "UROCE_CONFIG names no file. Set it to one or more configuration files, separated by \
         colons, or unset it."
    )]
    NoFile,

    /// An environment variable has a value that cannot be used.
    #[error("{name} is {value:?}, not a number of milliseconds (0 turns keepalives off).")]
    Milliseconds { name: &'static str, value: OsString },

    /// An environment variable has another word than it may have.
    #[error("{name} is {value:?}: {error}.")]
    Word { name: &'static str, value: String, error: FailoverError },

    /// An environment variable asks for something that no device can do.
    #[error("{name} is set, but {reason}.")]
    Useless { name: &'static str, reason: &'static str },

    /// No directory can be used for locks and sockets.
    #[error(
        "no directory for sockets and locks: {tried}\nSet XDG_RUNTIME_DIR to a directory of your \
         own that no other user may write to."
    )]
    NoRunDir { tried: String },

    /// A file in the run directory cannot be made.
    #[error("{}: {error}{}", path.display(), advice(error))]
    File { path: PathBuf, error: io::Error },

    /// The local fabric cannot be used.
    #[error("{error}{}", of_system(error))]
    Fabric { error: LocalError },

    /// Other processes have all identities of the configuration.
    #[error(
        "every identity of the configuration is in use:\n{holders}\nEnd one of these processes, or \
         give this one a port of its own: uroce-run --vdev, --pci or --switch (another port of the \
         switch) with --ip, or --config FILE."
    )]
    Taken { holders: String },
}

impl From<RunDirError> for Problem {
    fn from(error: RunDirError) -> Problem {
        match error {
            RunDirError::File { path, error } => Problem::File { path, error },
            RunDirError::NoDirectory { tried } => Problem::NoRunDir { tried },
            other => Problem::NoRunDir { tried: other.to_string() },
        }
    }
}

impl Problem {
    /// The errno for a C program.
    pub(crate) fn errno(&self) -> rustix::io::Errno {
        match self {
            Self::Config { .. }
            | Self::Alternatives { .. }
            | Self::NoFile
            | Self::Milliseconds { .. }
            | Self::Word { .. }
            | Self::Useless { .. } => rustix::io::Errno::NODEV,
            Self::NoRunDir { .. } => rustix::io::Errno::ACCESS,
            Self::File { error, .. } => {
                rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO)
            }
            Self::Fabric { error } => error
                .errno()
                .map_or(rustix::io::Errno::ACCESS, rustix::io::Errno::from_raw_os_error),
            Self::Taken { .. } => rustix::io::Errno::BUSY,
        }
    }
}

/// The error's text, preceded by the file's name where the error does not contain it.
fn with_name(file: &Path, error: &ConfigError) -> String {
    match error {
        ConfigError::Read { .. } => error.to_string(),
        _ => format!("{}: {error}", file.display()),
    }
}

/// Advice for what the operating system has refused to a member of the local fabric.
fn of_system(error: &LocalError) -> &'static str {
    error.errno().map_or("", |errno| advice(&io::Error::from_raw_os_error(errno)))
}

/// Advice for an error of the operating system. Empty if there is none.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match rustix::io::Errno::from_io_error(error) {
        Some(rustix::io::Errno::MFILE) => {
            "\nThe process has too many files open: raise its limit (ulimit -n)."
        }
        Some(rustix::io::Errno::NFILE) => "\nThe system has too many files open.",
        Some(rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT) => {
            "\nThere is no room: free some."
        }
        Some(rustix::io::Errno::AGAIN) => {
            "\nThe user has too many threads: end some or raise the limit (ulimit -u)."
        }
        Some(rustix::io::Errno::NOMEM) => {
            "\nThere is too little memory: free some, raise the limit (ulimit -v, a container's), \
             or lower eal.memory_mb in the configuration."
        }
        _ => "",
    }
}
