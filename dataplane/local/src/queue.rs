//! Queue: the end of the fabric that one lcore owns.
//!
//! [`Queue`] is the owner's handle. Behind it a [`Core`] has the links; it stays at home in the
//! [`Member`](crate::Member) while the queue has no owner, and then the member's thread looks after
//! it.

mod counters;
mod news;
mod receive;
mod send;

pub(crate) use counters::Cells;
pub use counters::Counters;
pub(crate) use news::News;

use crate::board::Board;
use crate::link::LinkEnd;
use crate::memory::Memory;
use crate::ring::Slot;
use crate::shared::Shared;
use rtrb::{Consumer, Producer};
use send::{Span, Wait};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use uroce_transport::Instant;

/// The result of [`Queue::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The frame was copied; [`Queue::flush`] makes it visible to its receiver.
    Taken,
    /// There is no room now, or the link is being made: try again in a later turn.
    Full,
    /// The frame has no receiver, or one that does not move, and was counted as lost.
    Lost,
}

/// A received frame, still in the shared memory. Another process may change its bytes at any time,
/// not its length.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    memory: &'a Memory,
    slot: Slot,
}

impl Frame<'_> {
    /// Returns the frame's length in bytes, at least [`FRAME_MIN`](crate::FRAME_MIN) and at most
    /// the member's `frame_max`.
    #[allow(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.slot.len
    }

    /// Copies the frame's first bytes, as many as `to` has room for. Returns their number.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let len = to.len().min(self.slot.len);
        self.memory.read(self.slot.at, &mut to[..len]);
        len
    }
}

/// The place where a queue is while it has no owner.
pub(crate) type Home = Mutex<Option<Box<Core>>>;

/// One lcore's end of the fabric: sends to all members and receives from all.
///
/// In a forked child nothing may be called on it; dropping it there changes nothing for the parent.
#[derive(Debug)]
pub struct Queue {
    /// Only `drop` takes it.
    core: Option<Box<Core>>,
    board: Arc<Board>,
    index: u16,
    home: Arc<Home>,
    /// The process that has taken the queue.
    process: u32,
}

/// A queue's state.
#[derive(Debug)]
pub(crate) struct Core {
    /// Number of the member.
    number: u8,
    index: u16,
    frame_max: usize,
    board: Arc<Board>,
    shared: Arc<Shared>,
    news: Consumer<News>,
    back: Producer<Box<LinkEnd>>,
    counters: Arc<Cells>,
    /// Time of the turn.
    now: Instant,
    /// The link to member *n* at *n* − 1.
    links: Box<[Option<Box<LinkEnd>>]>,
    /// Members to which there is an open link.
    open: u64,
    /// Members that have gone and have frames left.
    draining: u64,
    /// Links that this queue cannot give back now, as the way back is full.
    #[allow(clippy::vec_box, reason = "they go on in their boxes; unboxing one would free memory")]
    stranded: Vec<Box<LinkEnd>>,
    /// Members with rings that have unpublished frames.
    touched: u64,
    /// Members with rings that are looked at in each turn.
    hot: u64,
    /// Number of turns.
    turns: u32,
    /// The member with which the last turn began that had a hot one.
    first: u8,
    /// The member that was last looked at though it was not hot.
    swept: u8,
    /// Waits for links, by member.
    waits: Box<[Wait]>,
    /// The wait of a frame to a group for links.
    group: Span,
    /// Whether the owner is to be woken.
    is_armed: bool,
}

/// State that a queue shares with other parts of its member.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) number: u8,
    pub(crate) index: u16,
    pub(crate) frame_max: usize,
    pub(crate) board: Arc<Board>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) news: Consumer<News>,
    pub(crate) back: Producer<Box<LinkEnd>>,
    pub(crate) counters: Arc<Cells>,
}

impl Core {
    /// Makes a queue without links.
    pub(crate) fn new(parts: Parts) -> Core {
        let members = usize::from(crate::MEMBERS_MAX);
        let Parts { number, index, frame_max, board, shared, news, back, counters } = parts;
        Core {
            number,
            index,
            frame_max,
            board,
            shared,
            news,
            back,
            counters,
            now: Instant::ZERO,
            links: (0..members).map(|_| None).collect(),
            open: 0,
            draining: 0,
            stranded: Vec::with_capacity(members),
            touched: 0,
            hot: 0,
            turns: 0,
            first: 1,
            swept: 1,
            waits: (0..members).map(|_| Wait::default()).collect(),
            group: Span::default(),
            is_armed: false,
        }
    }

    #[inline]
    fn link(&mut self, number: u8) -> Option<&mut LinkEnd> {
        self.links[usize::from(number) - 1].as_deref_mut()
    }
}

impl Queue {
    /// Takes a queue from its home; `None` if it has an owner.
    pub(crate) fn take(home: &Arc<Home>) -> Option<Queue> {
        let core = home.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let (board, index) = (Arc::clone(&core.board), core.index);
        let (home, process) = (Arc::clone(home), std::process::id());
        Some(Queue { core: Some(core), board, index, home, process })
    }

    #[inline]
    fn core(&mut self) -> &mut Core {
        self.core.as_mut().expect("it is taken by drop only")
    }

    /// Begins a turn at `now`. Times of all turns have one origin and do not go back.
    #[inline]
    pub fn begin(&mut self, now: Instant) {
        self.core().now = now;
    }

    /// Copies a frame to the ring of the member with its destination address, or, if that is a
    /// group's, to the rings of all present members.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Sent {
        self.core().send(frame)
    }

    /// Makes all frames that were sent visible, and wakes those of their receivers that sleep.
    #[inline]
    pub fn flush(&mut self) {
        self.core().flush();
    }

    /// Gives up to `max` frames to `take`, from all members in turn. When `take` returns false the
    /// frame stays where it is and is given again by a later call. Returns how many were taken.
    #[inline]
    pub fn receive(&mut self, max: usize, take: impl FnMut(Frame<'_>) -> bool) -> usize {
        self.core().receive(max, take)
    }

    /// Returns the descriptor that is written to, once, when something comes while the queue is
    /// armed. It may be watched edge-triggered.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.board.event(self.index).as_fd()
    }

    /// Arms the queue: from now on what comes wakes the owner. Returns false, and leaves the queue
    /// disarmed, if something is there already.
    pub fn arm(&mut self) -> bool {
        self.core().arm()
    }

    /// Disarms the queue: the owner polls again.
    pub fn disarm(&mut self) {
        self.core().disarm();
    }

    /// Returns the queue's counters.
    pub fn counters(&self) -> Counters {
        self.core.as_ref().map(|core| core.counters.read()).unwrap_or_default()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The rings and the board are the parent's, which goes on with them.
            std::mem::forget(self.core.take());
            return;
        }
        self.flush();
        self.disarm();
        let core = self.core.take();
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = core;
    }
}
