//! Removes run-time directories that dead processes of ours left behind.
//!
//! EAL makes a directory per file prefix and leaves it at exit; with a prefix per process they
//! would pile up. A directory is removed if it bears our prefix, is older than a minute (a younger
//! one may belong to a process that is starting), and no live process holds the lock on its
//! `config`.
//!
//! Not here: the directory of this process. Closing a file drops its record locks, so a process
//! must not open its own `config` a second time; ours is younger than a minute, or not made yet.

use rustix::fs::{FlockOperation, fcntl_lock};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What prefixes of ours begin with.
pub(super) const PREFIX: &str = "uroce-";

const MIN_AGE: Duration = Duration::from_secs(60);

/// Removes what is dead. What cannot be looked at is left alone.
pub(super) fn sweep() {
    let Ok(entries) = fs::read_dir(base()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_dead(&entry.path()) {
            // Two processes may sweep at once: the loser finds nothing.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Where EAL keeps run-time directories: it looks at the same two things.
fn base() -> PathBuf {
    let root = if rustix::process::getuid().is_root() {
        PathBuf::from("/var/run")
    } else {
        std::env::var_os("XDG_RUNTIME_DIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
    };
    root.join("dpdk")
}

fn is_dead(directory: &Path) -> bool {
    let old = fs::metadata(directory)
        .and_then(|metadata| metadata.modified())
        .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > MIN_AGE));
    if !old {
        return false;
    }
    match File::options().read(true).write(true).open(directory.join("config")) {
        Ok(config) => fcntl_lock(&config, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}
