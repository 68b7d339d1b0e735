//! Link: one queue's ends of the rings between its member and another one.

use crate::board::{Board, Target};
use crate::layout::Layout;
use crate::memory::Memory;
use crate::ring::{Consumer, NotPushed, Producer};
use std::sync::Arc;
use std::time::Duration;
use uroce_transport::Instant;

/// Time for which a full ring may stand still before its member counts as stuck: long for a process
/// that runs, short compared with the time of a QP's retries.
pub(crate) const STUCK: Duration = Duration::from_millis(200);

/// One queue's part of a link. The thread makes it, the queue owns it, and gives it back.
#[derive(Debug)]
pub(crate) struct LinkEnd {
    /// The other member.
    pub(crate) number: u8,
    /// Tells the link from earlier and later ones to members of that number.
    pub(crate) id: u64,
    /// Longest frame that the other member takes.
    pub(crate) frame_max: usize,
    pub(crate) tx: Producer,
    /// The queue of the other member that receives what goes through `tx`.
    pub(crate) target: Target,
    /// The rings that this queue receives from.
    pub(crate) rx: Box<[Consumer]>,
    pub(crate) state: LinkState,
    /// Since when the ring has been full and the receiver has not moved.
    pub(crate) full_since: Option<Instant>,
    /// Turns in a row that found nothing.
    pub(crate) quiet_turns: u32,
}

/// The state of a link, from its queue's view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkState {
    /// Frames go both ways.
    Open,
    /// The other member has gone: what it has sent is still received.
    Draining,
    /// The other end has broken the rules.
    Malformed,
}

/// Result of [`LinkEnd::push`] where the frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// The ring is full.
    Full,
    /// The ring is full and has not moved for [`STUCK`].
    Stuck,
    /// The receiver has broken the rules.
    Malformed,
}

/// The two members of a link, from the view of one of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sides {
    /// Whether the own number is the higher one.
    pub(crate) is_higher: bool,
    /// Number of own queues.
    pub(crate) own_queues: u16,
    /// Number of the other member's queues.
    pub(crate) peer_queues: u16,
}

impl Sides {
    /// Returns the layout of the link's memory, which both sides compute alike.
    pub(crate) fn layout(&self) -> Layout {
        match self.is_higher {
            true => Layout::new(self.peer_queues, self.own_queues),
            false => Layout::new(self.own_queues, self.peer_queues),
        }
    }

    /// Returns the sending end of own queue `queue`, and the other member's queue that receives
    /// from it.
    pub(crate) fn transmit(&self, memory: &Arc<Memory>, queue: u16) -> (Producer, u16) {
        let place = self.layout().ring(self.is_higher, queue);
        (Producer::new(Arc::clone(memory), place), queue % self.peer_queues)
    }

    /// Returns the receiving ends of own queue `queue`.
    pub(crate) fn receive(&self, memory: &Arc<Memory>, queue: u16) -> Box<[Consumer]> {
        let layout = self.layout();
        let rings = (0..self.peer_queues).filter(|ring| ring % self.own_queues == queue);
        let consumer = |ring| Consumer::new(Arc::clone(memory), layout.ring(!self.is_higher, ring));
        rings.map(consumer).collect()
    }
}

/// The other member of a link.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    pub(crate) number: u8,
    pub(crate) id: u64,
    pub(crate) frame_max: usize,
    pub(crate) board: Arc<Board>,
}

impl LinkEnd {
    /// Makes the part of own queue `queue` of a link with this memory.
    pub(crate) fn new(far: &Far, sides: Sides, memory: &Arc<Memory>, queue: u16) -> LinkEnd {
        let (tx, to) = sides.transmit(memory, queue);
        LinkEnd {
            number: far.number,
            id: far.id,
            frame_max: far.frame_max,
            tx,
            target: Target { board: Arc::clone(&far.board), queue: to },
            rx: sides.receive(memory, queue),
            state: LinkState::Open,
            full_since: None,
            quiet_turns: 0,
        }
    }

    /// Writes a frame into the ring.
    #[inline]
    pub(crate) fn push(&mut self, frame: &[u8], now: Instant) -> Result<(), Refused> {
        match self.tx.push(frame) {
            Ok(()) => {
                self.full_since = None;
                Ok(())
            }
            Err(NotPushed::Full { has_moved }) => Err(self.full(has_moved, now)),
            Err(NotPushed::Malformed) => Err(Refused::Malformed),
        }
    }

    #[cold]
    fn full(&mut self, has_moved: bool, now: Instant) -> Refused {
        if has_moved {
            self.full_since = None;
        }
        let since = *self.full_since.get_or_insert(now);
        if now.since(since) >= STUCK { Refused::Stuck } else { Refused::Full }
    }

    /// Returns whether a frame can be received.
    pub(crate) fn has_more(&self) -> bool {
        self.rx.iter().any(Consumer::has_more)
    }

    /// The other member has gone: from now on only what it has published is received.
    pub(crate) fn drain(&mut self) {
        let is_sound = self.rx.iter_mut().all(|ring| ring.close().is_ok());
        self.state = if is_sound { LinkState::Draining } else { LinkState::Malformed };
    }
}
