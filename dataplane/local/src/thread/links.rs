//! Links from their making to the return of their last part.

use super::{Keeper, Peers, Source};
use crate::board::{Board, bit, board_len};
use crate::hello::Hello;
use crate::link::{Far, LinkEnd, LinkState, Sides};
use crate::memory::Memory;
use crate::queue::News;
use rustix::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uroce_shared::sync::eventfd::EventFd;
use uroce_shared::sync::peer::Peer;

/// Longest time for which the report of a member's end waits for queues that still receive the
/// member's frames.
const DRAINING: Duration = Duration::from_millis(100);
/// Longest time for which the next member with a number waits until the owner has forgotten the
/// last one.
const FORGETTING: Duration = Duration::from_millis(100);

/// A link that is up.
#[derive(Debug)]
pub(crate) struct Link {
    pub(super) number: u8,
    pub(super) id: u64,
    pub(super) socket: OwnedFd,
    /// The process at the other end; `None` if the kernel does not tell, and the socket has to do.
    pub(super) peer: Option<Peer>,
    /// Parts that queues have given back.
    returned: usize,
}

/// A link that is over, until all queues have given their parts back.
#[derive(Debug)]
pub(crate) struct Ending {
    number: u8,
    id: u64,
    /// Parts that queues have.
    held: usize,
    /// The time at which the member's end is reported in any case; `None` if it was.
    report_at: Option<Instant>,
}

/// Maps a member's board and takes over its eventfds. `None` if they are not what the message says.
pub(super) fn adopt_board(hello: &Hello, mut fds: Vec<OwnedFd>) -> Option<Board> {
    if fds.len() != usize::from(hello.queues) + 1 {
        return None;
    }
    let memory = Memory::adopt(&fds.remove(0), board_len(hello.queues)).ok()?;
    let events: Option<Box<[EventFd]>> = fds.into_iter().map(EventFd::adopt).collect();
    Some(Board::new(memory, events?))
}

impl Keeper {
    /// Returns the sizes of a link to the sender of a message.
    pub(super) fn sides(&self, hello: &Hello) -> Sides {
        Sides {
            is_higher: self.claim.number() > hello.number,
            own_queues: self.queues.len() as u16,
            peer_queues: hello.queues,
        }
    }

    /// Makes a link of its memory and gives each queue its part. A link to the number before it is
    /// over: its member has ended, or has closed it.
    pub(super) fn install(
        &mut self,
        hello: &Hello,
        sides: Sides,
        memory: Memory,
        board: Board,
        socket: OwnedFd,
    ) {
        if let Some(id) = self.link_to(hello.number).map(|link| link.id) {
            self.end_link(id);
        }
        let id = self.peers.next_id;
        self.peers.next_id += 1;
        let (memory, board) = (Arc::new(memory), Arc::new(board));
        let frame_max = hello.frame_max as usize;
        let far = Far { number: hello.number, id, frame_max, board };
        for (index, queue) in self.queues.iter_mut().enumerate() {
            let end = LinkEnd::new(&far, sides, &memory, index as u16);
            queue.late.push_back(News::Linked(Box::new(end)));
        }
        let peer = Peer::of(&socket);
        self.peers.links.push(Link { number: hello.number, id, socket, peer, returned: 0 });
        self.shared.note_linked(hello.number);
        self.deliver();
    }

    /// Ends the links that have hung up, or the processes of which have ended.
    pub(super) fn watch_links(&mut self, ready: &[Source]) {
        for source in ready {
            // Nothing is sent on an established link, so a message is as good as a hang-up.
            if let Source::Link(id) = source {
                self.end_link(*id);
            }
        }
    }

    /// Ends a link, unless that was done.
    pub(super) fn end_link(&mut self, id: u64) {
        let Some(place) = self.peers.links.iter().position(|link| link.id == id) else { return };
        let link = self.peers.links.swap_remove(place);
        // The other end sees this even if a forked child has the socket too.
        let _ = rustix::net::shutdown(&link.socket, Shutdown::Both);
        let number = link.number;
        for queue in &mut self.queues {
            queue.late.push_back(News::Ended { number, id });
        }
        let held = self.queues.len() - link.returned;
        let report_at = Some(Instant::now() + DRAINING);
        self.peers.ending.push(Ending { number, id, held, report_at });
        self.shared.note_unlinked(number, self.claim.holder(number).is_none());
        self.deliver();
    }

    /// Returns whether the owner is still to hear of the end of this number's last member, or to
    /// forget it. Until then its next member gets no link.
    pub(super) fn is_mourned(&self, number: u8, now: Instant) -> bool {
        let is_ending = |one: &Ending| one.number == number && one.report_at.is_some();
        let is_known = self.shared.known() & bit(number) != 0;
        self.peers.ending.iter().any(is_ending)
            || is_known && now < self.peers.reported[usize::from(number) - 1] + FORGETTING
    }

    /// Takes parts of links back and reports members that have ended.
    pub(super) fn settle(&mut self, now: Instant) {
        self.deliver();
        for index in 0..self.queues.len() {
            let queue = &mut self.queues[index];
            if let Ok(mut home) = queue.home.try_lock()
                && let Some(core) = &mut *home
            {
                core.settle();
            }
            while let Ok(part) = self.queues[index].back.pop() {
                self.take_back(&part);
            }
        }
        let (shared, Peers { ending, reported, .. }) = (&self.shared, &mut self.peers);
        ending.retain_mut(|ending| {
            let is_due = |at: &mut Instant| ending.held == 0 || *at <= now;
            if ending.report_at.take_if(is_due).is_some() {
                reported[usize::from(ending.number) - 1] = now;
                shared.note_ended(ending.number);
            }
            ending.held > 0
        });
    }

    fn take_back(&mut self, part: &LinkEnd) {
        if let Some(link) = self.peers.links.iter_mut().find(|link| link.id == part.id) {
            link.returned += 1;
            if part.state == LinkState::Malformed {
                self.end_link(part.id);
            }
        } else if let Some(ending) = self.peers.ending.iter_mut().find(|one| one.id == part.id) {
            ending.held -= 1;
        }
    }

    /// Sends the queues their news, as many as they have room for.
    pub(super) fn deliver(&mut self) {
        let mut is_new = false;
        for queue in &mut self.queues {
            while let Some(news) = queue.late.pop_front() {
                if let Err(rtrb::PushError::Full(news)) = queue.news.push(news) {
                    queue.late.push_front(news);
                    break;
                }
                is_new = true;
            }
        }
        if is_new {
            self.nudge();
        }
    }
}
