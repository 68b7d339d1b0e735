//! The process at the other end of a memif link, as the kernel tells of it.
//!
//! The socket alone does not tell whether it has ended: a process that takes its link down closes
//! the socket and lives on, and a child that a process has forked keeps its socket open. A process
//! descriptor becomes readable when the process has ended, and not before.
//!
//! Not here: what that means to connections.

use super::channel;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// `SO_PEERPIDFD` of Linux 6.5: the peer's process descriptor, whatever PID namespace it is in. The
/// C library's headers may be older.
const SO_PEERPIDFD: libc::c_int = 77;

/// A process that a socket was connected to.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its number as this process sees it; 0 where it does not.
    pid: libc::pid_t,
    descriptor: OwnedFd,
}

impl Peer {
    /// The process that made the other end of a connected Unix socket; `None` where the kernel does
    /// not give a descriptor of it: one older than 5.3, or of another PID namespace before 6.5.
    pub(super) fn of(socket: &OwnedFd) -> Option<Peer> {
        // SAFETY: `ucred` is three numbers, which the kernel writes.
        let pid = unsafe { option::<libc::ucred>(socket, libc::SO_PEERCRED) }?.pid;
        // SAFETY: the option is a number.
        let given = unsafe { option::<libc::c_int>(socket, SO_PEERPIDFD) };
        let descriptor = match given {
            // SAFETY: a descriptor that the kernel has just made for this call.
            Some(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            None => pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?,
        };
        Some(Peer { pid, descriptor })
    }

    /// Readable from when the process has ended.
    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Whether the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        channel::ended(&self.descriptor, Duration::ZERO)
    }

    /// Whether `other`, which has taken its place on the link, is known to be another process.
    pub(super) fn is_replaced_by(&self, other: &Peer) -> bool {
        self.has_ended() || (self.pid != 0 && other.pid != 0 && self.pid != other.pid)
    }
}

/// A socket option of the socket's own level, if the kernel has it.
///
/// # Safety
///
/// `T` is the option's type: the kernel writes all of it.
unsafe fn option<T>(socket: &OwnedFd, name: libc::c_int) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the socket is open, and `value` is writable for `len` bytes.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if code != 0 || len as usize != size_of::<T>() {
        return None;
    }
    // SAFETY: by the caller's promise, and `len` bytes are all.
    Some(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};
    use std::process::{Command, Stdio};

    #[test]
    fn the_peer_of_an_own_socket_is_this_process_which_lives() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (a, b) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let peer = Peer::of(&a).expect("this kernel tells");
        assert_eq!(peer.pid, std::process::id().cast_signed());
        drop(b);
        assert!(!peer.has_ended(), "a socket that closes is no end");
        assert!(!peer.is_replaced_by(&Peer::of(&a).expect("as before")));
    }

    #[test]
    fn a_process_has_ended_when_it_was_killed_and_another_takes_its_place() {
        let start = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let of = |child: &std::process::Child| {
            let pid = child.id().cast_signed();
            let descriptor = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
            Peer { pid, descriptor }
        };
        let (mut one, mut other) = (start(), start());
        let (first, second) = (of(&one), of(&other));
        assert!(!first.has_ended() && first.is_replaced_by(&second));
        one.kill().unwrap();
        one.wait().unwrap();
        assert!(first.has_ended() && !second.has_ended());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
