//! System calls that need raw pointers: locks of byte ranges, and the signal mask.
//!
//! The locks are those of POSIX: they belong to the process, so a forked child has none of them,
//! and they end with it, however it ends. They do not keep two threads of one process apart.

#![allow(unsafe_code)]

use rustix::io::Errno;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};

/// The state of a byte's lock, for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locked {
    /// No other process has it.
    No,
    /// A process has it, with this number here, or 0 if it is in a PID namespace out of sight.
    By(u32),
}

fn request(kind: i32, byte: u8) -> libc::flock {
    // SAFETY: a `flock` is integers only.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = libc::off_t::from(byte);
    lock.l_len = 1;
    lock
}

/// Locks a byte for this process, or unlocks it. Returns false if another process has it.
///
/// # Errors
/// The file system has no locks, or the kernel has none left.
pub(crate) fn set_lock(file: &OwnedFd, byte: u8, is_locked: bool) -> io::Result<bool> {
    let lock = request(if is_locked { libc::F_WRLCK } else { libc::F_UNLCK }, byte);
    // SAFETY: the file is open, and `lock` is a complete `flock`, which is only read.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) };
    let error = io::Error::last_os_error();
    match code {
        0.. => Ok(true),
        _ if [Errno::AGAIN, Errno::ACCESS].contains(&errno(&error)) => Ok(false),
        _ => Err(error),
    }
}

/// Returns which other process has a byte's lock.
pub(crate) fn lock_of(file: &OwnedFd, byte: u8) -> Locked {
    let mut lock = request(libc::F_WRLCK, byte);
    // SAFETY: the file is open, and `lock` is a complete `flock`, which the kernel may overwrite.
    let code = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    if code < 0 || i32::from(lock.l_type) == libc::F_UNLCK {
        return Locked::No;
    }
    Locked::By(u32::try_from(lock.l_pid).unwrap_or(0))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Blocks all signals on the calling thread, so that no handler of the application runs there.
pub(crate) fn block_signals() {
    let mut all = MaybeUninit::uninit();
    // SAFETY: `all` is writable, and the call fills it.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` was filled above; the former mask is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut()) };
}
