//! The process at the other end of a Unix socket.
//!
//! The socket alone does not show whether that process has ended: a process that takes its link
//! down closes the socket and continues, and a forked child keeps its parent's socket open. A
//! process descriptor becomes readable when the process has ended, and not before.
//!
//! Not here: the consequences for connections.

#![allow(unsafe_code)]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `SO_PEERPIDFD` of Linux 6.5: gives the peer's process descriptor, in whatever PID namespace the
/// peer is. Older headers of the C library lack it.
const SO_PEERPIDFD: libc::c_int = 77;

/// A process that is or was at the other end of a socket.
#[derive(Debug)]
pub struct Peer {
    /// Its process number in this process's PID namespace; 0 if it has none there.
    pid: libc::pid_t,
    descriptor: OwnedFd,
}

impl Peer {
    /// Returns the process that made the other end of a connected Unix socket. `None` if the kernel
    /// gives no descriptor of it: before Linux 5.3, or before 6.5 for another PID namespace.
    pub fn of(socket: &OwnedFd) -> Option<Peer> {
        let pid = Credentials::of(socket)?.pid.cast_signed();
        // SAFETY: `SO_PEERPIDFD` is a C int.
        let given = unsafe { option::<libc::c_int>(socket, SO_PEERPIDFD) };
        let descriptor = match given {
            // SAFETY: the kernel has just made this descriptor for this call, and nothing else owns
            // it.
            Some(fd) => unsafe { OwnedFd::from_raw_fd(fd) },
            None => pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?,
        };
        Some(Peer { pid, descriptor })
    }

    /// Returns the process descriptor, which is readable once the process has ended.
    pub fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.descriptor, PollFlags::IN)];
        let mut look = || poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        loop {
            match look() {
                Err(Errno::INTR) => {}
                ready => return ready.is_ok_and(|count| count > 0),
            }
        }
    }

    /// Returns whether `other`, which is now connected in its place, is known to be another
    /// process.
    pub fn is_replaced_by(&self, other: &Peer) -> bool {
        self.has_ended() || (self.pid != 0 && other.pid != 0 && self.pid != other.pid)
    }
}

/// The process that made the other end of a connected Unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// Its process number; 0 if it has none in this process's PID namespace.
    pub pid: u32,
    /// Its user, as a number of this process's user namespace.
    pub uid: u32,
}

impl Credentials {
    /// Returns the credentials that the other end of a socket had when it connected or listened.
    pub fn of(socket: &OwnedFd) -> Option<Credentials> {
        // SAFETY: `SO_PEERCRED` is a `ucred`.
        let given = unsafe { option::<libc::ucred>(socket, libc::SO_PEERCRED) }?;
        Some(Credentials { pid: u32::try_from(given.pid).ok()?, uid: given.uid })
    }
}

/// Returns a socket option of level `SOL_SOCKET`, if the kernel has it.
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
    // SAFETY: the kernel has written all `len` bytes of a `T`, as the caller guarantees.
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
