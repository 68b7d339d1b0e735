//! The process at the other end of a Unix socket.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The process that connected or listened at the other end, at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Number of the process; `None` if it is in a PID namespace that this process does not see.
    pub pid: Option<u32>,
    /// User as which it ran, in this process's user namespace.
    pub uid: u32,
}

/// Returns the process at the other end of a connection.
///
/// # Errors
///
/// A system call has failed.
// rustix expects a process number other than 0. The number of a process in another namespace is 0.
pub fn peer(connection: &UnixStream) -> io::Result<Peer> {
    let mut of = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let size = size_of::<libc::ucred>();
    // The structure has 12 bytes, so its size fits.
    let mut len = size as libc::socklen_t;
    let place = (&raw mut of).cast();
    let fd = connection.as_raw_fd();
    // SAFETY: `place` has room for `len` bytes, and any bytes are a valid `ucred`.
    let result =
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut len) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let pid = u32::try_from(of.pid).ok().filter(|pid| *pid != 0);
    Ok(Peer { pid, uid: of.uid })
}

/// Returns whether the process that listened for a connection has ended. A forked child of it may
/// have a copy of the descriptor. Then clients can connect, but nothing serves them.
pub fn is_orphan(connection: &UnixStream) -> bool {
    let number = peer(connection).ok().and_then(|peer| peer.pid);
    let pid = number.and_then(|number| rustix::process::Pid::from_raw(number.cast_signed()));
    let found = pid.map(rustix::process::test_kill_process);
    matches!(found, Some(Err(rustix::io::Errno::SRCH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_pair_is_this_process() {
        let (near, _far) = UnixStream::pair().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(peer(&near).unwrap(), Peer { pid: Some(std::process::id()), uid });
        assert!(!is_orphan(&near));
    }
}
