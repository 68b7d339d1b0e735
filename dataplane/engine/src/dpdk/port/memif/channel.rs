//! memif's control channel: its sockets, and its messages, of which only the type and the
//! descriptors matter here.
//!
//! A message has 128 bytes, on a sequenced-packet socket, and at most one file descriptor: that of
//! the shared memory or of a ring.
//!
//! Invariants
//! - No socket blocks: a peer that stops, or a full queue of a listener, is no reason to wait.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::sync::seqpacket;

/// The address at which the server listens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A path in the file system.
    File(PathBuf),
    /// A name in Linux's abstract namespace.
    Abstract(String),
}

impl Address {
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Abstract(_) => None,
        }
    }

    fn resolve(&self) -> rustix::io::Result<SocketAddrUnix> {
        match self {
            Self::File(path) => SocketAddrUnix::new(path),
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
        }
    }
}

/// Connects to an address. A listener with a full queue is not waited for (EAGAIN).
pub(super) fn connect(address: &Address) -> rustix::io::Result<OwnedFd> {
    let socket = seqpacket::socket(SocketFlags::NONBLOCK)?;
    rustix::net::connect(&socket, &address.resolve()?)?;
    Ok(socket)
}

/// Listens at an address. A path that a dead process left is replaced.
pub(super) fn listen(address: &Address) -> io::Result<OwnedFd> {
    let socket = seqpacket::socket(SocketFlags::NONBLOCK)?;
    let resolved = address.resolve()?;
    let mut bound = rustix::net::bind(&socket, &resolved);
    if let (Err(Errno::ADDRINUSE), Some(path)) = (bound, address.file()) {
        // A living server accepts connections. The path is removed only if it is a socket that
        // refuses them, which means that no process listens on it.
        let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
        if is_socket && connect(address).err() == Some(Errno::CONNREFUSED) {
            std::fs::remove_file(path)?;
            bound = rustix::net::bind(&socket, &resolved);
        }
    }
    bound?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

pub(super) fn accept(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// The event for which a link thread without a connection has waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Call {
    /// A peer connects.
    Connection,
    /// The process that was connected last has ended.
    PeerEnded,
    /// The link ends.
    End,
}

/// Waits for a connection to `listener`, for the end of the process behind `peer`, or for the end
/// of the link.
pub(super) fn wait(listener: &OwnedFd, end: &EventFd, peer: Option<&OwnedFd>) -> Call {
    loop {
        // Without a peer, `end` stands in its place as well; it is looked at first.
        let fds = [end.as_fd(), peer.map_or(end.as_fd(), AsFd::as_fd), listener.as_fd()];
        match readable(fds, None) {
            [true, ..] => return Call::End,
            [_, true, _] => return Call::PeerEnded,
            [.., true] => return Call::Connection,
            _ => {}
        }
    }
}

/// Waits at most `time` for the end of the link or of a process. Returns whether it has ended.
pub(super) fn ended(end: &impl AsFd, time: Duration) -> bool {
    readable([end.as_fd()], Some(time))[0]
}

/// Ends the driver's connection and waits until the driver has closed its end, which is its last
/// step.
///
/// Returns false after `grace`: a child process of the application may have inherited the driver's
/// descriptor, which is not close-on-exec, and then the close is not seen.
pub(super) fn hang_up(inner: &OwnedFd, grace: Duration) -> bool {
    // This fails if the connection is closed already, which is the same result.
    let _ = rustix::net::shutdown(inner, Shutdown::Write);
    // The driver's remaining messages are read first.
    while readable([inner.as_fd()], Some(grace))[0] {
        if receive(inner).is_err() {
            return true;
        }
    }
    false
}

/// Returns which descriptors can be read or are closed; none after `time`.
fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], time: Option<Duration>) -> [bool; N] {
    let mut polled = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    while poll(&mut polled, time.as_ref()) == Err(Errno::INTR) {}
    polled.map(|fd| !fd.revents().is_empty())
}

/// The two connections that the link thread joins.
#[derive(Debug)]
pub(super) struct Pair {
    /// The connection to the peer.
    pub(super) outer: OwnedFd,
    /// The connection to the driver.
    pub(super) inner: OwnedFd,
}

/// The next event of a pair.
#[derive(Debug)]
pub(super) enum Event {
    FromPeer(Message),
    FromDriver(Message),
    /// One connection was closed, patience ran out, or the link or the peer's process has ended.
    Over,
}

impl Pair {
    /// Waits for the next message. `peer` becomes readable when the peer's process has ended; its
    /// children may still hold its socket open.
    pub(super) fn next(
        &self,
        end: &EventFd,
        peer: Option<&OwnedFd>,
        patience: Option<Duration>,
    ) -> Event {
        let fds = [
            end.as_fd(),
            self.inner.as_fd(),
            self.outer.as_fd(),
            peer.map_or(end.as_fd(), AsFd::as_fd),
        ];
        let event = match readable(fds, patience) {
            [true, ..] => return Event::Over,
            [_, true, ..] => receive(&self.inner).map(Event::FromDriver),
            [_, _, true, _] => receive(&self.outer).map(Event::FromPeer),
            _ => return Event::Over,
        };
        event.unwrap_or(Event::Over)
    }

    pub(super) fn to_driver(&self, message: &Message) -> rustix::io::Result<()> {
        message.send(&self.inner)
    }

    pub(super) fn to_peer(&self, message: &Message) -> rustix::io::Result<()> {
        message.send(&self.outer)
    }
}

/// One message of the control channel.
#[derive(Debug)]
pub(super) struct Message {
    bytes: [u8; Self::LEN],
    fd: Option<OwnedFd>,
}

impl Message {
    /// Message types of memif that matter here.
    pub(super) const ACK: u16 = 1;
    /// Message types that carry a descriptor.
    pub(super) const ADD_REGION: u16 = 4;
    pub(super) const ADD_RING: u16 = 5;
    pub(super) const CONNECT: u16 = 6;
    pub(super) const CONNECTED: u16 = 7;
    pub(super) const DISCONNECT: u16 = 8;

    const LEN: usize = 128;

    /// Returns the descriptor that the message carries.
    pub(super) fn fd(&self) -> Option<&OwnedFd> {
        self.fd.as_ref()
    }

    /// Returns the `N` bytes of a number at offset `at`, in host order.
    pub(super) fn number<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|byte| self.bytes[at + byte])
    }

    /// Returns the message's type, in host order like all of memif.
    pub(super) fn kind(&self) -> u16 {
        u16::from_ne_bytes([self.bytes[0], self.bytes[1]])
    }

    fn send(&self, socket: &OwnedFd) -> rustix::io::Result<()> {
        let fds: Vec<_> = self.fd.iter().map(AsFd::as_fd).collect();
        seqpacket::send(socket, &self.bytes, &fds)
    }
}

/// Receives the next message. Fails at the end, or if it is not a memif message.
fn receive(socket: &OwnedFd) -> rustix::io::Result<Message> {
    let mut message = Message { bytes: [0; Message::LEN], fd: None };
    let (received, fds) = seqpacket::receive(socket, &mut message.bytes)?;
    message.fd = fds.into_iter().next_back();
    // The driver would not close an unexpected descriptor.
    if ![Message::ADD_REGION, Message::ADD_RING].contains(&message.kind()) {
        message.fd = None;
    }
    if received == Message::LEN { Ok(message) } else { Err(Errno::PROTO) }
}

#[cfg(test)]
mod tests {
    use super::*;

    use rustix::net::{AddressFamily, SendFlags, SocketType};

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None).expect("sockets")
    }

    #[test]
    fn a_message_crosses_with_its_descriptor() {
        let (a, b) = pair();
        let (read, write) = rustix::pipe::pipe().expect("pipe");
        let mut bytes = [0; Message::LEN];
        bytes[0] = 4;
        bytes[127] = 9;
        Message { bytes, fd: Some(write) }.send(&a).expect("sent");
        let message = receive(&b).expect("received");
        assert_eq!((message.kind(), message.bytes[127]), (4, 9));
        rustix::io::write(message.fd.expect("a descriptor"), b"x").expect("written");
        let mut byte = [0];
        assert_eq!(rustix::io::read(&read, &mut byte), Ok(1));
    }

    #[test]
    fn an_unexpected_descriptor_is_closed() {
        let (a, b) = pair();
        for kind in 0..=u8::MAX {
            let fd = Some(b.try_clone().expect("a descriptor"));
            let mut bytes = [0; Message::LEN];
            bytes[0] = kind;
            Message { bytes, fd }.send(&a).expect("sent");
            let has_one = receive(&b).expect("received").fd.is_some();
            assert_eq!(has_one, kind == 4 || kind == 5, "{kind}");
        }
    }

    #[test]
    fn a_closed_socket_and_a_short_message_are_the_end() {
        let (a, b) = pair();
        rustix::net::send(&a, b"short", SendFlags::NOSIGNAL).expect("sent");
        assert!(receive(&b).is_err());
        drop(a);
        assert!(receive(&b).is_err());
    }

    #[test]
    fn a_path_without_a_process_is_taken_over_and_a_live_one_is_not() {
        let path = std::env::temp_dir().join(format!("uroce-channel-{}", std::process::id()));
        let address = Address::File(path.clone());
        drop(listen(&address).expect("a new path"));
        let alive = listen(&address).expect("a dead path");
        assert!(listen(&address).is_err());
        drop(alive);
        let _ = std::fs::remove_file(path);
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = std::env::temp_dir().join(format!("uroce-file-{}", std::process::id()));
        std::fs::write(&path, "precious").expect("written");
        assert!(listen(&Address::File(path.clone())).is_err());
        assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
        let _ = std::fs::remove_file(path);
    }
}
