//! Queue: the end of the fabric that one lcore owns.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

/// Counters of frames. Bytes are those of the frames, from the destination address on.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Frames given to the owner.
    pub rx_frames: u64,
    /// Bytes of them.
    pub rx_bytes: u64,
    /// Frames taken from the owner; one that goes to several members is counted once.
    pub tx_frames: u64,
    /// Bytes of them.
    pub tx_bytes: u64,
    /// Frames that were lost because their receiver has taken nothing for a time.
    pub tx_stuck: u64,
    /// Frames that were lost because no member has their address, or none could be reached.
    pub tx_no_member: u64,
    /// Frames that were lost because they are shorter than a header or longer than their receiver
    /// takes.
    pub tx_length: u64,
    /// Copies of a frame to a group that a member has missed because its ring was full.
    pub tx_missed: u64,
    /// Links that were closed because the other end had broken the rules of the shared memory.
    pub malformed: u64,
}

/// A received frame, still in the shared memory. Another process may change its bytes at any time,
/// not its length.
#[derive(Debug)]
pub struct Frame<'a> {
    len: usize,
    memory: PhantomData<&'a u8>,
}

impl Frame<'_> {
    /// Returns the frame's length in bytes, at least [`FRAME_MIN`](crate::FRAME_MIN) and at most the
    /// member's `frame_max`.
    #[allow(clippy::len_without_is_empty, reason = "a frame is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies the frame's first bytes, as many as `to` has room for. Returns their number.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        to.len().min(self.len)
    }
}

/// One lcore's end of the fabric: sends to all members and receives from all.
#[derive(Debug)]
pub struct Queue {
    event: OwnedFd,
}

impl Queue {
    /// Begins a turn at `now`. Times of all turns have one origin and do not go back.
    pub fn begin(&mut self, _now: Instant) {}

    /// Copies a frame to the ring of the member with its destination address, or, if that is a
    /// group's, to the rings of all present members.
    pub fn send(&mut self, _frame: &[u8]) -> Sent {
        Sent::Lost
    }

    /// Makes all frames that were sent visible, and wakes those of their receivers that sleep.
    pub fn flush(&mut self) {}

    /// Gives up to `max` frames to `take`, from all members in turn. When `take` returns false the
    /// frame stays where it is and is given again by the next call. Returns how many were taken.
    pub fn receive(&mut self, _max: usize, _take: impl FnMut(Frame<'_>) -> bool) -> usize {
        0
    }

    /// Returns the descriptor that is written to, once, when something comes while the queue is
    /// armed. It may be watched edge-triggered.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Arms the queue: from now on what comes wakes the owner. Returns false, and leaves the queue
    /// disarmed, if something is there already.
    pub fn arm(&mut self) -> bool {
        false
    }

    /// Disarms the queue: the owner polls again.
    pub fn disarm(&mut self) {}

    /// Returns the queue's counters.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
