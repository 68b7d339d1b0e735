//! Attempts to make a link: the connecting side of the handshake.

use super::{Keeper, Source};
use crate::claim::Claim;
use crate::hello::{Hello, Kind};
use crate::memory::Memory;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use uroce_shared::sync::seqpacket;

/// Longest time for which a member is asked for a link.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Pause before a member is asked once more: it may be about to listen, or has many connections
/// waiting.
const RETRY: Duration = Duration::from_millis(2);
/// Pause for the other member's attempt, which was made at the same time and counts.
const CROSSED: Duration = Duration::from_millis(50);

/// An attempt to make a link to one member.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(super) number: u8,
    state: State,
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    /// The member is asked once more at that time.
    Pausing(Instant),
    /// The member was asked on this connection.
    Asked(OwnedFd),
}

impl Attempt {
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Pausing(_) => None,
            State::Asked(socket) => Some(socket.as_fd()),
        }
    }

    pub(super) fn next_step(&self) -> Instant {
        match self.state {
            State::Pausing(until) => until.min(self.deadline),
            State::Asked(_) => self.deadline,
        }
    }
}

/// Connects to a member without waiting.
pub(super) fn connect(claim: &Claim, number: u8) -> rustix::io::Result<OwnedFd> {
    let address = claim.directory().address(number)?;
    let socket = seqpacket::socket(SocketFlags::NONBLOCK)?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

impl Keeper {
    /// A queue has frames for a member.
    pub(super) fn begin_attempt(&mut self, number: u8, now: Instant) {
        let is_known = self.link_to(number).is_some()
            || self.peers.attempts.iter().any(|attempt| attempt.number == number);
        if is_known || !self.is_other(number) {
            return;
        }
        let state = State::Pausing(now);
        self.peers.attempts.push(Attempt { number, state, deadline: now + ATTEMPT });
        self.advance(&[], now);
    }

    /// Returns whether this member has asked another one, and that has not answered.
    pub(super) fn has_asked(&self, number: u8) -> bool {
        self.peers.attempts.iter().any(|one| one.number == number && one.socket().is_some())
    }

    /// Takes back what a member was asked. It is asked once more if no link comes of its own
    /// question.
    pub(super) fn withdraw(&mut self, number: u8) {
        let until = Instant::now() + RETRY;
        for attempt in self.peers.attempts.iter_mut().filter(|attempt| attempt.number == number) {
            attempt.state = State::Pausing(until);
        }
    }

    /// Ends the attempt for a member, if there is one.
    pub(super) fn drop_attempt(&mut self, number: u8) {
        self.peers.attempts.retain(|attempt| attempt.number != number);
    }

    /// Takes the next step of each attempt that is ready for one.
    pub(super) fn advance(&mut self, ready: &[Source], now: Instant) {
        let mut attempts = std::mem::take(&mut self.peers.attempts);
        for mut attempt in attempts.drain(..) {
            let is_ready = ready.iter().any(
                |source| matches!(source, Source::Attempt(number) if *number == attempt.number),
            );
            let next = match attempt.state {
                State::Pausing(until) if until <= now => self.ask(attempt.number, now),
                State::Asked(socket) if is_ready => self.answered(attempt.number, socket, now),
                state => Some(state),
            };
            // `None`: the link is made, or cannot be made.
            let Some(state) = next else { continue };
            attempt.state = state;
            match now < attempt.deadline {
                true => self.peers.attempts.push(attempt),
                false => self.refuse(attempt.number),
            }
        }
    }

    fn ask(&self, number: u8, now: Instant) -> Option<State> {
        if self.claim.holder(number).is_none() {
            self.refuse(number);
            return None;
        }
        if self.is_mourned(number, now) {
            return Some(State::Pausing(now + RETRY));
        }
        let asked = connect(&self.claim, number).and_then(|socket| {
            let fds: Vec<_> = self.descriptors().collect();
            seqpacket::send(&socket, &self.hello(Kind::Link).emit(), &fds)?;
            Ok(socket)
        });
        // Whatever the error is, it may pass before the deadline.
        Some(asked.map_or(State::Pausing(now + RETRY), State::Asked))
    }

    fn answered(&mut self, number: u8, socket: OwnedFd, now: Instant) -> Option<State> {
        let mut bytes = [0; Hello::LEN + 1];
        let (len, fds) = match seqpacket::receive(&socket, &mut bytes) {
            Err(Errno::AGAIN | Errno::INTR) => return Some(State::Asked(socket)),
            received => received.unwrap_or_default(),
        };
        let again = |pause| Some(State::Pausing(now + pause));
        let Some(hello) = Hello::parse(&bytes[..len]) else { return again(RETRY) };
        match hello.kind {
            _ if hello.number != number => again(RETRY),
            Kind::Crossed => again(CROSSED),
            Kind::Welcome if self.is_holder(&socket, number) => {
                match self.welcomed(hello, fds, socket) {
                    Some(()) => None,
                    None => again(CROSSED),
                }
            }
            _ => again(RETRY),
        }
    }

    fn welcomed(&mut self, hello: Hello, mut fds: Vec<OwnedFd>, socket: OwnedFd) -> Option<()> {
        if fds.is_empty() {
            return None;
        }
        // Closed before the program hears of the link: it may then close all descriptors.
        let file = fds.remove(0);
        let sides = self.sides(&hello);
        let memory = Memory::adopt(&file, sides.layout().len()).ok()?;
        drop(file);
        let board = super::links::adopt_board(&hello, fds)?;
        self.install(&hello, sides, memory, board, socket);
        Some(())
    }
}
