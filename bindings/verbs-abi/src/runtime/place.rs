//! The run directory, for locks, sockets and trees of one user's processes, and files in it.
//!
//! Only its user may write to it, so that no other user can take an identity or listen on a link.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use uroce_command::run_dir;

use super::problem::Problem;

/// An environment variable. `None` in a privileged program: its user must not choose which files it
/// opens or writes.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    run_dir::variable(name)
}

/// The run directory. It is made if it does not exist.
///
/// # Errors
///
/// [`Problem::NoRunDir`] if no candidate can be used.
#[allow(dead_code, reason = "uroce-run uses it, the library does not")]
pub(crate) fn run_dir() -> Result<PathBuf, Problem> {
    Ok(run_dir::run_dir()?)
}

/// A directory in the run directory. It is made if it does not exist.
///
/// # Errors
///
/// The errors of [`run_dir`], and [`Problem::File`] if the directory cannot be made.
pub(crate) fn sub_dir(name: &str) -> Result<PathBuf, Problem> {
    Ok(run_dir::sub_dir(name)?)
}

/// A directory in `base`, which only its user may write to. Both are made if they do not exist.
///
/// # Errors
///
/// [`Problem::File`] if the directory cannot be made or used.
#[allow(dead_code, reason = "the library uses it, uroce-run does not")]
pub(crate) fn dir_in(base: &Path, name: &str) -> Result<PathBuf, Problem> {
    let path = base.join(name);
    let base = fs::DirBuilder::new().recursive(true).mode(0o700).create(base);
    let made = base.and_then(|()| run_dir::make_own(&path, 0o700));
    made.map_err(|error| Problem::File { path: path.clone(), error })?;
    Ok(path)
}

/// Returns a directory for files that a program may need after it has changed its user. If the user
/// is root and /run/uroce-lib can be made, the directory is below it, and all users may read it.
/// Otherwise it is that of [`sub_dir`].
///
/// # Errors
///
/// The errors of [`sub_dir`].
#[allow(dead_code, reason = "uroce-run makes links, the library does not")]
pub(crate) fn public_dir(name: &str) -> Result<PathBuf, Problem> {
    let base = Path::new("/run/uroce-lib");
    let path = base.join(name);
    let is_root = rustix::process::geteuid().is_root();
    let made =
        || run_dir::prepare_for(base, 0o755).and_then(|()| run_dir::prepare_for(&path, 0o755));
    if is_root && made().is_ok() { Ok(path) } else { sub_dir(name) }
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

    fn scratch(name: &str) -> PathBuf {
        let path = PathBuf::from(format!("/tmp/uroce-place-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
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
