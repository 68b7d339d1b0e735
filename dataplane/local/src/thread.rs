//! The member's thread: makes links, notices their end, and tells the queues.
//!
//! ```text
//!   listener ── accept ──▶ incoming ── hello ──┐
//!   wanted ──▶ attempts ── connect, welcome ───┴─▶ links ── hang-up, process ended ──▶ ending
//! ```
//!
//! It sleeps in one `poll` until a descriptor is ready, a queue calls, or a time is over. It is
//! never on the data path: if it is late, queues wait for links only.
//!
//! Invariants
//! - Every wait for another process ends: attempts and incoming connections have deadlines, all
//!   sockets are non-blocking, and one that is silent keeps no other one from being served.
//! - There is at most one link to a number. Where both ends ask at once, the connection that the
//!   lower number has made counts.
//! - Only a process that has the lock of its number, and belongs to this user, gets a link.

mod attempts;
mod incoming;
mod links;

use crate::MEMBERS_MAX;
use crate::board::{Board, bit, numbers};
use crate::claim::Claim;
use crate::hello::{Hello, Kind};
use crate::link::LinkEnd;
use crate::queue::{Home, News};
use crate::shared::Shared;
use attempts::Attempt;
use incoming::Incoming;
use links::{Ending, Link};
use rtrb::{Consumer, Producer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest sleep while queues hold ends of links that are over, or have not taken their news.
const SETTLING: Duration = Duration::from_millis(5);

/// Longest sleep in any case: nothing wakes the thread when the program closes its descriptors.
const LOOK: Duration = Duration::from_secs(1);

/// The thread's end of a queue.
#[derive(Debug)]
pub(crate) struct QueueWire {
    pub(crate) news: Producer<News>,
    pub(crate) back: Consumer<Box<LinkEnd>>,
    pub(crate) home: Arc<Home>,
    /// News for which the ring has had no room.
    pub(crate) late: VecDeque<News>,
}

/// The state that the thread of a member owns.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) claim: Arc<Claim>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) board: Arc<Board>,
    /// The file of the board.
    pub(crate) board_file: OwnedFd,
    pub(crate) listener: OwnedFd,
    pub(crate) queues: Vec<QueueWire>,
    pub(crate) frame_max: usize,
    pub(crate) life: u64,
    pub(crate) peers: Peers,
}

/// The state of all other members, as far as this one has to do with them.
#[derive(Debug)]
pub(crate) struct Peers {
    attempts: Vec<Attempt>,
    incoming: VecDeque<Incoming>,
    links: Vec<Link>,
    ending: Vec<Ending>,
    /// When the end of the last member with number *n* was reported, at *n* − 1.
    reported: [Instant; MEMBERS_MAX as usize],
    /// Identity of the next link.
    next_id: u64,
    /// The time until which no connection is accepted, as there was no descriptor for it.
    deaf_until: Option<Instant>,
}

impl Default for Peers {
    fn default() -> Peers {
        Peers {
            attempts: Vec::new(),
            incoming: VecDeque::new(),
            links: Vec::new(),
            ending: Vec::new(),
            reported: [Instant::now(); MEMBERS_MAX as usize],
            next_id: 0,
            deaf_until: None,
        }
    }
}

/// The source of a readable descriptor in the thread's `poll`.
#[derive(Clone, Copy, Debug)]
enum Source {
    Bell,
    Listener,
    /// Number of the member that is asked.
    Attempt(u8),
    /// Place in `incoming`.
    Incoming(usize),
    /// Identity of the link.
    Link(u64),
}

impl Keeper {
    /// Serves until the member ends.
    pub(crate) fn run(mut self) {
        self.announce();
        while !self.shared.is_over() {
            let ready = self.wait();
            if !self.shared.bell().is_ours() {
                return self.abandon();
            }
            self.shared.answer();
            let now = Instant::now();
            self.watch_links(&ready);
            self.hear(&ready, now);
            self.accept(&ready, now);
            self.advance(&ready, now);
            for number in numbers(self.shared.take_wanted()) {
                self.begin_attempt(number, now);
            }
            self.settle(now);
        }
        self.close();
    }

    /// Sleeps until there is something to do. Returns what is ready.
    fn wait(&self) -> Vec<Source> {
        let Peers { attempts, incoming, links, deaf_until, .. } = &self.peers;
        let mut watched: Vec<(Source, BorrowedFd<'_>)> =
            vec![(Source::Bell, self.shared.bell().as_fd())];
        if deaf_until.is_none() {
            watched.push((Source::Listener, self.listener.as_fd()));
        }
        for attempt in attempts {
            let socket = attempt.socket().map(|socket| (Source::Attempt(attempt.number), socket));
            watched.extend(socket);
        }
        for (place, one) in incoming.iter().enumerate() {
            watched.push((Source::Incoming(place), one.socket.as_fd()));
        }
        for link in links {
            watched.push((Source::Link(link.id), link.socket.as_fd()));
            let process = link.peer.as_ref().map(|peer| peer.descriptor().as_fd());
            watched.extend(process.map(|process| (Source::Link(link.id), process)));
        }
        let mut polled: Vec<_> =
            watched.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let time = self.next_deadline().map(|at| at.saturating_duration_since(Instant::now()));
        let time = Timespec::try_from(time.unwrap_or(LOOK).min(LOOK)).unwrap_or_default();
        // A closed descriptor is ready, and a failing poll shows none; `run` looks at the bell.
        let _ = poll(&mut polled, Some(&time));
        let is_ready = |(_, fd): &(_, &PollFd<'_>)| !fd.revents().is_empty();
        watched.iter().zip(&polled).filter(is_ready).map(|((source, _), _)| *source).collect()
    }

    /// Returns the next time at which something is to be done without an event.
    fn next_deadline(&self) -> Option<Instant> {
        let Peers { attempts, incoming, ending, deaf_until, .. } = &self.peers;
        let settles = !ending.is_empty() || self.queues.iter().any(|queue| !queue.late.is_empty());
        let settling = settles.then(|| Instant::now() + SETTLING);
        let attempts = attempts.iter().map(|attempt| attempt.next_step());
        let incoming = incoming.iter().map(|one| one.deadline);
        attempts.chain(incoming).chain(*deaf_until).chain(settling).min()
    }

    /// Tells all members that this one is there.
    fn announce(&mut self) {
        let others = self.claim.others();
        self.shared.note_present(others);
        let hello = self.hello(Kind::Present).emit();
        for number in numbers(others) {
            // A member that cannot be told now finds this one by its lock when it needs it.
            if let Ok(socket) = attempts::connect(&self.claim, number) {
                let _ = uroce_shared::sync::seqpacket::send(&socket, &hello, &[]);
            }
        }
    }

    /// Returns a message of this member.
    fn hello(&self, kind: Kind) -> Hello {
        Hello {
            kind,
            number: self.claim.number(),
            queues: self.queues.len() as u16,
            frame_max: self.frame_max as u32,
            life: self.life,
        }
    }

    /// Returns the descriptors that go with a `Link` or a `Welcome`.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let events = self.board.events().iter().map(AsFd::as_fd);
        std::iter::once(self.board_file.as_fd()).chain(events)
    }

    /// Wakes queues that wait for something that has changed.
    fn nudge(&self) {
        crate::board::publish_fence();
        for queue in 0..self.queues.len() {
            self.board.notify(queue as u16, self.claim.number());
        }
    }

    /// No link to a member can be made now.
    fn refuse(&self, number: u8) {
        self.shared.note_refused(number, self.claim.holder(number).is_none());
        self.nudge();
    }

    /// Ends all links.
    fn close(&mut self) {
        self.peers.attempts.clear();
        self.peers.incoming.clear();
        for id in self.peers.links.iter().map(|link| link.id).collect::<Vec<_>>() {
            self.end_link(id);
        }
        self.shared.close();
        self.deliver();
    }

    /// The program has closed descriptors that are not its own, and the bell among them. The
    /// numbers of the others may be its own files by now. So all stay as they are, and the claim
    /// with them.
    #[cold]
    fn abandon(self) {
        self.shared.close();
        std::mem::forget(self);
    }

    /// Returns the link to a member, if there is one.
    fn link_to(&self, number: u8) -> Option<&Link> {
        self.peers.links.iter().find(|link| link.number == number)
    }

    /// Returns whether a number is another member's.
    fn is_other(&self, number: u8) -> bool {
        bit(number) != bit(self.claim.number())
    }
}

#[cfg(test)]
mod tests;
