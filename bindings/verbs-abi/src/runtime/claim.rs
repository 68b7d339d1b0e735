//! Locks that give each identity to one process: `flock`s on files in the run directory.
//!
//! There are two kinds. A *claim* is held by the process that has an identity and by the children
//! that it forks. The *engine* lock is held by the one process of such a family that runs the
//! identity's engine. The kernel releases a lock with its last descriptor, however a process ends,
//! so a file that stays behind is not locked.
//!
//! Invariants
//! - A lock covers all ports of an identity, or none.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::place;
use super::problem::Problem;

/// Number of attempts to take a lock while other processes test it, and the pause between them.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// The two kinds of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To have an identity.
    Claim,
    /// To run the identity's engine.
    Engine,
}

/// A lock. It is released when this value, and all copies of it in processes forked meanwhile, are
/// gone.
#[derive(Debug)]
pub(crate) struct Lock {
    _files: Vec<File>,
}

/// The process that holds a lock, as text for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder(String);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Takes a lock of this kind on all these resources, if no process holds it for any of them.
///
/// # Errors
///
/// [`Problem`] if a lock file cannot be made or locked. A lock held by another process is not an
/// error but the inner `Err`.
pub(crate) fn take(kind: Kind, resources: &[String]) -> Result<Result<Lock, Holder>, Problem> {
    match resources {
        [] => Ok(Ok(Lock { _files: Vec::new() })),
        _ => take_in(&place::sub_dir("claims")?, kind, resources),
    }
}

/// Returns the process that holds a lock of this kind on any of these resources. `None` if no
/// process does. Another process can take the lock during this call.
///
/// # Errors
///
/// [`Problem`] if a lock file cannot be read or tested.
pub(crate) fn look(kind: Kind, resources: &[String]) -> Result<Option<Holder>, Problem> {
    match resources {
        [] => Ok(None),
        _ => look_in(&place::sub_dir("claims")?, kind, resources),
    }
}

fn look_in(directory: &Path, kind: Kind, resources: &[String]) -> Result<Option<Holder>, Problem> {
    for resource in resources {
        let path = directory.join(file_name(kind, resource));
        let problem = |error: io::Error| Problem::File { path: path.clone(), error };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(problem(error)),
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Some(holder(&mut file))),
            Err(error) => return Err(problem(error.into())),
        }
    }
    Ok(None)
}

fn take_in(
    directory: &Path,
    kind: Kind,
    resources: &[String],
) -> Result<Result<Lock, Holder>, Problem> {
    let mut files = Vec::new();
    for resource in resources {
        let path = directory.join(file_name(kind, resource));
        let problem = |error: io::Error| Problem::File { path: path.clone(), error };
        let mut file = open(&path).map_err(problem)?;
        match lock(&file) {
            Ok(()) => sign(&mut file).map_err(problem)?,
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Err(holder(&mut file))),
            Err(error) => return Err(problem(error.into())),
        }
        files.push(file);
    }
    Ok(Ok(Lock { _files: files }))
}

/// Locks a file, unless a process holds the lock. A process that tests the lock has it only for a
/// moment, so this tries repeatedly.
fn lock(file: &File) -> rustix::io::Result<()> {
    for _ in 0..ATTEMPTS {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            // This fails, too, if a process holds the lock.
            Err(rustix::io::Errno::WOULDBLOCK) => {
                flock(file, FlockOperation::NonBlockingLockShared)?;
            }
            other => return other,
        }
        flock(file, FlockOperation::Unlock)?;
        thread::sleep(PAUSE);
    }
    Err(rustix::io::Errno::WOULDBLOCK)
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path)
}

/// A file name with a readable part for people and a digest that tells resources apart.
fn file_name(kind: Kind, resource: &str) -> PathBuf {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' };
    let readable: String = resource.chars().map(plain).take(40).collect();
    let kind = if kind == Kind::Claim { "claim" } else { "engine" };
    PathBuf::from(format!("{readable}-{:016x}.{kind}", place::digest(resource)))
}

/// Writes the process's number and name to the file.
fn sign(file: &mut File) -> io::Result<()> {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(format!("{} {}\n", std::process::id(), name.trim()).as_bytes())
}

/// Describes the holder of a locked file: the process that signed it, or a child of that process if
/// it has ended.
fn holder(file: &mut File) -> Holder {
    let mut text = String::new();
    let signed = file.rewind().and_then(|()| file.take(100).read_to_string(&mut text));
    let line = text.lines().next().unwrap_or_default();
    let (pid, name) = line.split_once(' ').unwrap_or((line, "?"));
    if signed.is_err() || pid.parse::<u32>().is_err() {
        return Holder("another process".to_owned());
    }
    if Path::new("/proc").join(pid).exists() {
        Holder(format!("{name} (process {pid})"))
    } else {
        Holder(format!("a child of {name} (process {pid}, which has ended)"))
    }
}

#[cfg(test)]
#[path = "claim/tests.rs"]
mod tests;
