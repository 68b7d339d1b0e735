//! The claim on a switch's socket: one port at a time uses it, whichever process, user or container
//! has the port.
//!
//! The claim is a lock on an empty file beside the socket, `SOCKET.lock`. It ends with its holder,
//! however that ends; a file that stays behind is not locked. Where the file cannot be made, as
//! in a directory of the switch that other users only read, there is no claim.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open, stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// How often the file is opened anew because the former holder has removed it meanwhile.
const ATTEMPTS: u32 = 100;

/// The right to use a socket. The file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Claim {
    path: PathBuf,
    _lock: OwnedFd,
    /// The process that has made the claim: a forked child removes nothing.
    process: u32,
}

impl Claim {
    /// Claims a socket's path. `None` if no lock can be had there.
    ///
    /// # Errors
    ///
    /// The process that has it, for messages.
    pub(super) fn take(socket: &Path) -> Result<Option<Claim>, String> {
        let mut path = OsString::from(socket);
        path.push(".lock");
        let path = PathBuf::from(path);
        for _ in 0..ATTEMPTS {
            let Ok(file) = open_lock(&path) else { return Ok(None) };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_at(&file, &path) => {
                    let process = std::process::id();
                    return Ok(Some(Claim { path, _lock: file, process }));
                }
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(holder(&file)),
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // It is locked still, so no other process has claimed it. A file that stays is found
            // without a lock.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens the file, and makes it if that is possible. A link or pipe of this name is none.
fn open_lock(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    // In a directory like /tmp the kernel refuses O_CREATE for another user's file.
    open(path, flags | OFlags::CREATE, mode).or_else(|_| open(path, flags, Mode::empty()))
}

/// Whether the path still leads to the file.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let identity = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
    fstat(file).is_ok_and(|own| stat(path).is_ok_and(|there| identity(there) == identity(own)))
}

/// Describes the process that holds a file's lock.
fn holder(file: &OwnedFd) -> String {
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = fstat(file).ok().and_then(|stat| pid_of(&locks, stat.st_ino));
    let Some(pid) = pid else { return "another process".to_owned() };
    match fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("{} (process {pid})", name.trim_end()),
        Err(_) => format!("a child of process {pid}, which has ended"),
    }
}

/// The process that has the lock of `flock` on the file with an inode number. The device's number
/// is not compared, because some file systems show another one there.
fn pid_of(locks: &str, inode: u64) -> Option<u32> {
    let suffix = format!(":{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_held = words.next() == Some("FLOCK");
        let (pid, file) = (words.nth(2)?, words.next()?);
        (is_held && file.ends_with(&suffix)).then(|| pid.parse().ok().filter(|pid| *pid != 0))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_among_the_kernels_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 08:01:42 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 812 08:01:42 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 08:01:43 0 EOF\n";
        assert_eq!(pid_of(locks, 42), Some(812));
        assert_eq!(pid_of(locks, 2), None);
        assert_eq!(pid_of(locks, 43), None, "it waits");
        assert_eq!(pid_of("x\n\n3: FLOCK", 42), None);
    }
}
