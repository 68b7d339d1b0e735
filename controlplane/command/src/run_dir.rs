//! The run directory: locks, sockets and trees of one user's processes.
//!
//! The directory is `$XDG_RUNTIME_DIR/uroce`; for root, `/run/uroce`; otherwise `/tmp/uroce-UID`.
//! The first of these is used that can be made and that no other user may write to. So no other
//! user can take an identity, or listen where a client looks for a process.
//!
//! Not here: the directories of memif links, which DPDK's driver needs apart (`uroce-engine`).

#![allow(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Longest path of the run directory in bytes. The path of a socket in it must be shorter than 108
/// bytes.
const LEN_MAX: usize = 80;

/// Directory of the control sockets in the run directory.
pub const CONTROL: &str = "control";

/// The reason why there is no directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// No candidate of the run directory can be used.
    #[error("no directory for sockets and locks: {tried}")]
    NoDirectory {
        /// The candidates and what is wrong with each, one a line.
        tried: String,
    },
    /// A directory within the run directory cannot be made.
    #[error("{}: {error}", path.display())]
    File {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Returns whether the program has privileges that its user does not have (setuid, file
/// capabilities).
pub fn is_privileged() -> bool {
    // SAFETY: `getauxval` has no preconditions.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

/// Returns an environment variable. `None` in a privileged program, because the program's user must
/// not choose which files it opens or writes.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|_| !is_privileged())
}

/// Returns the run directory. It is made if it does not exist.
///
/// # Errors
///
/// [`RunDirError::NoDirectory`] if no candidate can be used.
pub fn run_dir() -> Result<PathBuf, RunDirError> {
    let mut tried = String::new();
    for candidate in candidates() {
        match prepare(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => {
                tried.push_str(&format!("\n  {}: {error}", candidate.display()));
            }
        }
    }
    Err(RunDirError::NoDirectory { tried })
}

/// Returns a directory in the run directory. It is made if it does not exist.
///
/// # Errors
///
/// See [`RunDirError`].
pub fn sub_dir(name: &str) -> Result<PathBuf, RunDirError> {
    let path = run_dir()?.join(name);
    prepare(&path).map_err(|error| RunDirError::File { path: path.clone(), error })?;
    Ok(path)
}

/// Returns the run directories that the processes of this user may use, whether or not they exist;
/// for root, those of all users. The best one is first.
pub fn known() -> Vec<PathBuf> {
    let mut known = candidates();
    let user = rustix::process::geteuid();
    known.push(PathBuf::from(format!("/run/user/{}/uroce", user.as_raw())));
    if user.is_root() {
        let in_dir = |dir: &str| {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        let is_ours = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("uroce-"))
        };
        known.extend(in_dir("/run/user").into_iter().map(|user| user.join("uroce")));
        known.extend(in_dir("/tmp").into_iter().filter(is_ours));
    }
    let mut seen = std::collections::BTreeSet::new();
    known.retain(|path| seen.insert(path.clone()));
    known
}

/// Returns the candidates of the run directory, best first.
fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let mut candidates = Vec::new();
    if let Some(runtime) = variable("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        candidates.push(Path::new(&runtime).join("uroce"));
    }
    if user.is_root() {
        candidates.push(PathBuf::from("/run/uroce"));
    }
    candidates.push(PathBuf::from(format!("/tmp/uroce-{}", user.as_raw())));
    candidates
}

/// Makes the directory if necessary, and checks that only this user can use it.
fn prepare(path: &Path) -> io::Result<()> {
    prepare_for(path, 0o700)
}

/// Makes the directory with this mode if necessary, and checks that only this user may write to it.
///
/// # Errors
///
/// A system call has failed, or the directory is not safe; the text of the error tells why.
pub fn prepare_for(path: &Path, mode: u32) -> io::Result<()> {
    if path.as_os_str().len() > LEN_MAX || !path.is_absolute() {
        return Err(io::Error::other("the path must be absolute, and shorter for sockets in it"));
    }
    make_own(path, mode)
}

/// Makes and checks a directory as [`prepare_for`] does, but with a path of any length: it is not
/// for sockets.
///
/// # Errors
///
/// The errors of [`prepare_for`].
pub fn make_own(path: &Path, mode: u32) -> io::Result<()> {
    match fs::DirBuilder::new().mode(mode).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // A symbolic link is not followed: another user may have put it there.
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Err(io::Error::other("is not a directory"));
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("belongs to another user"));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other("other users may write to it"));
    }
    // This fails, for example, on a file system that is mounted read-only.
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_others_could_change_is_refused() {
        let base = PathBuf::from(format!("/tmp/uroce-run-dir-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir(&base).unwrap();
        let own = base.join("own");
        prepare(&own).unwrap();
        prepare(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o700);
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(&own).is_err());
        symlink("/tmp", base.join("link")).unwrap();
        assert!(prepare(&base.join("link")).is_err());
        fs::write(base.join("file"), "").unwrap();
        assert!(prepare(&base.join("file")).is_err());
        assert!(prepare(&base.join("x".repeat(LEN_MAX))).is_err());
        assert!(prepare(Path::new("relative")).is_err());
        fs::remove_dir_all(&base).unwrap();
    }
}
