//! Connections that other members make: the listening side of the handshake.

use super::{Keeper, Source};
use crate::board::bit;
use crate::hello::{Hello, Kind};
use crate::memory::Memory;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use uroce_shared::sync::peer::Credentials;
use uroce_shared::sync::seqpacket;

/// Longest time for which a connection may send nothing at first.
const SILENCE: Duration = Duration::from_secs(1);
/// Largest number of connections that have said nothing yet. One more replaces the oldest.
const INCOMING_MAX: usize = 128;
/// Pause after a connection could not be accepted.
const DEAF: Duration = Duration::from_millis(100);

/// A connection that has said nothing yet.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(super) socket: OwnedFd,
    pub(super) deadline: Instant,
}

impl Keeper {
    /// Accepts the connections that wait.
    pub(super) fn accept(&mut self, ready: &[Source], now: Instant) {
        let peers = &mut self.peers;
        peers.deaf_until = peers.deaf_until.filter(|&until| now < until);
        if !ready.iter().any(|source| matches!(source, Source::Listener)) {
            return;
        }
        for _ in 0..INCOMING_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => {
                    if self.peers.incoming.len() == INCOMING_MAX {
                        self.peers.incoming.pop_front();
                    }
                    let deadline = now + SILENCE;
                    self.peers.incoming.push_back(Incoming { socket, deadline });
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.peers.deaf_until = Some(now + DEAF);
                    return;
                }
            }
        }
    }

    /// Reads what connections have said, and gives up those that say nothing.
    pub(super) fn hear(&mut self, ready: &[Source], now: Instant) {
        let incoming = std::mem::take(&mut self.peers.incoming);
        for (place, one) in incoming.into_iter().enumerate() {
            let is_ready =
                ready.iter().any(|source| matches!(source, Source::Incoming(at) if *at == place));
            if is_ready {
                self.greet(one.socket);
            } else if now < one.deadline {
                self.peers.incoming.push_back(one);
            }
        }
    }

    /// Reads the message of a connection. Whatever is not a sound request of a member closes it.
    fn greet(&mut self, socket: OwnedFd) {
        let mut bytes = [0; Hello::LEN + 1];
        let Ok((len, fds)) = seqpacket::receive(&socket, &mut bytes) else { return };
        let Some(hello) = Hello::parse(&bytes[..len]) else { return };
        if !self.is_other(hello.number) || !self.is_holder(&socket, hello.number) {
            return;
        }
        match hello.kind {
            Kind::Present => {
                self.shared.note_present(bit(hello.number));
                self.nudge();
            }
            Kind::Link => self.asked(&hello, fds, socket),
            Kind::Welcome | Kind::Crossed => {}
        }
    }

    /// A member asks for a link.
    fn asked(&mut self, hello: &Hello, fds: Vec<OwnedFd>, socket: OwnedFd) {
        if self.claim.number() < hello.number && self.has_asked(hello.number) {
            // Its own side answers our connection.
            let _ = seqpacket::send(&socket, &self.hello(Kind::Crossed).emit(), &[]);
            return;
        }
        if let Some(id) = self.link_to(hello.number).map(|link| link.id) {
            if has_hung_up(&socket) {
                // It asked before it answered the question that led to this link.
                return;
            }
            // Its member has ended, or has closed the link.
            self.end_link(id);
        }
        if self.is_mourned(hello.number, Instant::now()) {
            // It asks again.
            return;
        }
        let sides = self.sides(hello);
        let Some(board) = super::links::adopt_board(hello, fds) else { return };
        let Ok((file, memory)) = Memory::create(sides.layout().len()) else { return };
        // Before the answer: a member that has it takes a question that is still open for one that
        // was asked after the link had ended.
        self.withdraw(hello.number);
        let fds: Vec<_> = std::iter::once(file.as_fd()).chain(self.descriptors()).collect();
        let welcome = self.hello(Kind::Welcome).emit();
        if seqpacket::send(&socket, &welcome, &fds).is_ok() {
            // Closed before the program hears of the link: it may then close all descriptors.
            drop(file);
            self.drop_attempt(hello.number);
            self.install(hello, sides, memory, board, socket);
        }
    }

    /// Returns whether the process at the other end of a socket has the lock of this number, and
    /// belongs to this user.
    pub(super) fn is_holder(&self, socket: &OwnedFd, number: u8) -> bool {
        let Some(Credentials { pid, uid }) = Credentials::of(socket) else { return false };
        let is_own_user = uid == rustix::process::geteuid().as_raw();
        let holder = self.claim.holder(number);
        // Processes of a PID namespace out of sight are 0 in both.
        is_own_user && holder.is_some_and(|holder| holder == pid || holder == 0 || pid == 0)
    }
}

/// Returns whether the other end of a connection has closed it, and has said nothing more.
fn has_hung_up(socket: &OwnedFd) -> bool {
    let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
    matches!(rustix::net::recv(socket, &mut [0; 1], flags), Ok((_, 0)) | Err(Errno::CONNRESET))
}
