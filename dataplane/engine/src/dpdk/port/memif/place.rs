//! The directory of this process in which link threads and drivers meet.
//!
//! A process has one for all its links. It is locked while there is a link, and removed with the
//! last. The directory of a killed process is removed by a later process, if it is a minute old (a
//! younger one may not be locked yet), is not locked, and has only sockets in it.
//!
//! The directory has only names in it, which take no space in the file system.

use crate::dpdk::eal::lock;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Prefix of the directories' names.
const PREFIX: &str = "uroce-memif-";
/// Age from which a directory without a lock is known to be dead.
const MIN_AGE: Duration = Duration::from_secs(60);
/// Longest path of a directory: the path of a socket in it must be shorter than 108 bytes.
const LEN_MAX: usize = 80;

/// A shared handle of the directory, which is removed with the last handle.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Holds the lock.
    _directory: File,
}

impl Place {
    /// Returns the directory of this process; makes it if there is none.
    ///
    /// # Errors
    ///
    /// The system's error for the last place that was tried.
    pub(super) fn shared() -> io::Result<Arc<Place>> {
        static SHARED: Mutex<Weak<Place>> = Mutex::new(Weak::new());
        let mut shared = lock(&SHARED);
        if let Some(place) = shared.upgrade() {
            return Ok(place);
        }
        let mut result = Err(io::ErrorKind::NotFound.into());
        for base in bases() {
            sweep(&base);
            result = Place::make(&base);
            if result.is_ok() {
                break;
            }
        }
        let place = Arc::new(result?);
        *shared = Arc::downgrade(&place);
        Ok(place)
    }

    fn make(base: &Path) -> io::Result<Place> {
        // A process in another PID namespace may have the same number, so the time is added.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let nanos = now.map_or(0, |time| time.as_nanos() as u64);
        let path = base.join(format!("{PREFIX}{}-{nanos:x}", std::process::id()));
        if path.as_os_str().len() > LEN_MAX {
            return Err(io::ErrorKind::InvalidFilename.into());
        }
        DirBuilder::new().mode(0o700).create(&path)?;
        let directory = File::open(&path)?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Place { path, _directory: directory })
    }

    /// Returns the path of a socket named `name`.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.sock"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // If this fails, a later process removes the directory.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the directories in which one may be made, best first: those that the system clears at
/// the end of a session or at boot, then `/tmp`, which exists for every user.
fn bases() -> impl Iterator<Item = PathBuf> {
    let user = rustix::process::geteuid();
    let is_own = |path: &PathBuf| {
        path.is_absolute() && path.metadata().is_ok_and(|of| of.uid() == user.as_raw())
    };
    // After `su` the variable may be another user's.
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_own);
    let system = user.is_root().then(|| PathBuf::from("/run"));
    session.into_iter().chain(system).chain([PathBuf::from("/tmp")])
}

/// Removes directories that dead processes left. A directory that cannot be read is left alone.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_ours && let Some(_lock) = take_dead(&entry.path()) {
            // If two processes sweep at once, the second finds nothing.
            remove(&entry.path());
        }
    }
}

/// Returns the lock of a directory that is not in use.
fn take_dead(path: &Path) -> Option<File> {
    let metadata = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_dir)?;
    let is_old = metadata.modified().ok()?.elapsed().is_ok_and(|age| age > MIN_AGE);
    let directory = File::open(path).ok().filter(|_| is_old)?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok().map(|()| directory)
}

fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            let _ = fs::remove_file(entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_the_dead_left_is_removed_and_nothing_else() {
        let base = PathBuf::from(format!("/tmp/uroce-sweep-{}", std::process::id()));
        fs::create_dir(&base).unwrap();
        let aged = |name: &str, age: u64| {
            let path = base.join(name);
            fs::create_dir(&path).unwrap();
            UnixListener::bind(path.join("a.sock")).unwrap();
            let directory = File::open(&path).unwrap();
            directory.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
            (path, directory)
        };
        let dead = aged("uroce-memif-1-1", 100).0;
        let young = aged("uroce-memif-1-2", 10).0;
        let (alive, lock) = aged("uroce-memif-1-3", 100);
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let other = aged("uroce-results", 100).0;
        let (filled, directory) = aged("uroce-memif-1-4", 100);
        fs::write(filled.join("text"), "mine").unwrap();
        directory.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
        sweep(&base);
        assert!(!dead.exists());
        assert!([young, alive, other].iter().all(|path| path.join("a.sock").exists()));
        assert!(filled.join("text").exists());
        fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn the_directory_is_shared_and_goes_with_the_last_link() {
        let (one, two) = (Place::shared().unwrap(), Place::shared().unwrap());
        let socket = one.socket("net_memif0");
        assert_eq!(socket, two.socket("net_memif0"));
        let directory = socket.parent().unwrap().to_owned();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o700);
        drop(one);
        assert!(directory.exists());
        drop(two);
        assert!(!directory.exists());
        assert!(Place::shared().unwrap().socket("x").parent().unwrap().exists());
    }
}
