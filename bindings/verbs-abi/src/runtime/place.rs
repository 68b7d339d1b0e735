//! The run directory, for locks, sockets and trees of one user's processes.
//!
//! Only its user may write to it, so that no other user can take an identity or listen on a link.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::problem::Problem;

/// Longest path of the run directory in bytes. Paths of sockets in it must be shorter than 108
/// bytes.
const LEN_MAX: usize = 80;

/// Whether the program has privileges that its user does not have (setuid, file capabilities).
pub(crate) fn is_privileged() -> bool {
    // SAFETY: `getauxval` has no preconditions.
    (unsafe { libc::getauxval(libc::AT_SECURE) }) != 0
}

/// An environment variable. `None` in a privileged program: its user must not choose which files it
/// opens or writes.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|_| !is_privileged())
}

/// The run directory. It is made if it does not exist.
///
/// # Errors
///
/// [`Problem::NoRunDir`] if no candidate can be used.
pub(crate) fn run_dir() -> Result<PathBuf, Problem> {
    let mut tried = String::new();
    for candidate in candidates() {
        match prepare(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(error) => {
                tried.push_str(&format!("\n  {}: {error}", candidate.display()));
            }
        }
    }
    Err(Problem::NoRunDir { tried })
}

/// A directory in the run directory. It is made if it does not exist.
///
/// # Errors
///
/// The errors of [`run_dir`], and [`Problem::File`] if the directory cannot be made.
pub(crate) fn sub_dir(name: &str) -> Result<PathBuf, Problem> {
    let path = run_dir()?.join(name);
    prepare(&path).map_err(|error| Problem::File { path: path.clone(), error })?;
    Ok(path)
}

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

/// A directory for files that a program may need after it has changed its user: below
/// /run/uroce-lib, which all users may read, if the user is root and that can be made. Else the
/// same as [`sub_dir`].
///
/// # Errors
///
/// The errors of [`sub_dir`].
#[allow(dead_code, reason = "uroce-run makes links, the library does not")]
pub(crate) fn public_dir(name: &str) -> Result<PathBuf, Problem> {
    let base = Path::new("/run/uroce-lib");
    let path = base.join(name);
    let is_root = rustix::process::geteuid().is_root();
    let made = || prepare_for(base, 0o755).and_then(|()| prepare_for(&path, 0o755));
    if is_root && made().is_ok() { Ok(path) } else { sub_dir(name) }
}

/// Makes the directory if necessary, and checks that only this user can use it.
fn prepare(path: &Path) -> io::Result<()> {
    prepare_for(path, 0o700)
}

/// Makes the directory with this mode if necessary, and checks that only this user may write to it.
fn prepare_for(path: &Path, mode: u32) -> io::Result<()> {
    if path.as_os_str().len() > LEN_MAX || !path.is_absolute() {
        return Err(io::Error::other("the path must be absolute, and shorter for sockets in it"));
    }
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
    // Fails, for one, on a file system that is mounted read-only.
    Ok(access(path, Access::WRITE_OK | Access::EXEC_OK)?)
}

/// Replaces a file atomically: a concurrent reader sees the old or the new text. A file that has
/// this text already is not written.
///
/// # Errors
///
/// [`Problem::File`] if the file cannot be written.
#[allow(dead_code, reason = "uroce-run writes, the library does not")]
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Problem> {
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    let new = unfinished(path);
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        let _ = fs::remove_file(&new);
        Problem::File { path: path.to_owned(), error }
    })
}

/// A temporary name for a file or directory that is renamed to `path` when it is complete. It
/// contains the process's number and PID namespace, so that it is unique even among containers that
/// share the directory.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino());
    path.with_extension(format!("new-{}-{namespace}", std::process::id()))
}

/// A 64-bit hash of a text (FNV-1a), the same in every process.
pub(crate) fn digest(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = PathBuf::from(format!("/tmp/uroce-place-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_directory_that_others_could_change_is_refused() {
        let base = scratch("refused");
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

    #[test]
    fn a_file_is_replaced_at_once_and_left_alone_if_it_is_the_same() {
        let base = scratch("write");
        let file = base.join("a.toml");
        write_file(&file, "one").unwrap();
        let before = fs::metadata(&file).unwrap().ino();
        write_file(&file, "one").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().ino(), before);
        write_file(&file, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(&base).unwrap().count(), 1);
        assert!(write_file(&base.join("none/b"), "x").is_err());
        fs::remove_dir_all(&base).unwrap();
    }
}
