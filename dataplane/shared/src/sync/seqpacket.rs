//! Sequenced-packet Unix sockets: messages with file descriptors between processes of one machine.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Largest number of descriptors in a message.
pub const FDS_MAX: usize = 64;

/// Makes a socket that is closed on `exec`, with further flags.
///
/// # Errors
/// The process has no descriptor left.
pub fn socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | flags, None)
}

/// Sends a message with up to [`FDS_MAX`] descriptors.
///
/// # Errors
/// The other end is closed; or there is no room, and the socket is non-blocking.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message into `bytes`. Returns its length, 0 at the end of the connection, and its
/// descriptors, which are closed on `exec`. A longer message is cut off, and so is one with more
/// than [`FDS_MAX`] descriptors.
///
/// # Errors
/// There is no message and the socket is non-blocking, or the connection failed.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(bytes)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let len = rustix::net::recvmsg(socket, &mut bytes, &mut control, flags)?.bytes;
    let mut received = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = part {
            received.extend(fds);
        }
    }
    Ok((len, received))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_crosses_with_its_descriptors() {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (a, b) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (read, write) = std::io::pipe().unwrap();
        send(&a, b"some words", &[read.as_fd(), write.as_fd()]).unwrap();
        let mut bytes = [0; 16];
        let (len, fds) = receive(&b, &mut bytes).unwrap();
        assert_eq!((&bytes[..len], fds.len()), (&b"some words"[..], 2));
        rustix::io::write(&fds[1], b"x").unwrap();
        assert_eq!(rustix::io::read(&read, &mut [0]), Ok(1));
        drop(a);
        assert_eq!(receive(&b, &mut bytes).unwrap().0, 0);
    }
}
