//! Loopback: frames to the device's own addresses, which the same lcore receives in its next turn.
//!
//! They do not depend on the port's link.

use crate::dpdk::mbuf::{BATCH, Mbuf, MbufBatch};
use uroce_transport::{Pd, TransmitError};

/// Frames of one port that are looped back, complete with ICRC.
#[derive(Debug)]
pub(crate) struct Loopback {
    frames: MbufBatch,
    raw: Box<RawFrames>,
    /// How many frames wait in all: the one thing here that each turn reads.
    waiting: usize,
    /// Whether the last packet of the port was refused because there was no room.
    was_full: bool,
}

/// Frames of raw QPs that wait to be received.
#[derive(Debug)]
pub(crate) struct RawFrames {
    /// Those to the port's own address, which it receives as if they had come from its link.
    pub(crate) own: MbufBatch,
    /// Copies of others, for QPs of other domains than the sender's.
    pub(crate) heard: MbufBatch,
    /// The senders' domains, for each place of `heard`.
    pub(crate) senders: [Pd; BATCH],
}

impl RawFrames {
    const fn new() -> RawFrames {
        RawFrames { own: MbufBatch::new(), heard: MbufBatch::new(), senders: [Pd(0); BATCH] }
    }
}

impl Loopback {
    pub(super) fn new() -> Loopback {
        let (frames, raw) = (MbufBatch::new(), Box::new(RawFrames::new()));
        Loopback { frames, raw, waiting: 0, was_full: false }
    }

    /// Checks that one more frame can be looped back.
    ///
    /// # Errors
    /// [`TransmitError::Full`].
    #[inline]
    pub(super) fn check_room(&mut self) -> Result<(), TransmitError> {
        self.was_full = !self.has_room();
        if self.was_full { Err(TransmitError::Full) } else { Ok(()) }
    }

    /// Returns whether one more frame can be looped back.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.frames.room() > 0
    }

    /// Returns whether one more frame of a raw QP can be looped back. If not, this is the reason
    /// why the port's last packet was refused.
    pub(super) fn has_raw_room(&mut self) -> bool {
        self.was_full = self.raw.own.room() == 0 || self.raw.heard.room() == 0;
        !self.was_full
    }

    /// Loops a frame of a raw QP back that is to the port's own address. There must be room.
    pub(super) fn push_raw(&mut self, frame: Mbuf) {
        self.waiting += 1;
        let pushed = self.raw.own.push(frame);
        debug_assert!(pushed.is_ok(), "the caller has looked for room");
    }

    /// Takes a copy of a frame of a raw QP, for those of other domains. There must be room.
    pub(super) fn push_heard(&mut self, copy: Mbuf, sender: Pd) {
        self.waiting += 1;
        if let Some(place) = self.raw.senders.get_mut(self.raw.heard.len()) {
            *place = sender;
        }
        let pushed = self.raw.heard.push(copy);
        debug_assert!(pushed.is_ok(), "the caller has looked for room");
    }

    /// Takes the frames of raw QPs that wait to be received, if there are any.
    pub(crate) fn take_raw(&mut self) -> Option<RawFrames> {
        if self.waiting == self.frames.len() {
            return None;
        }
        let raw = std::mem::replace(&mut *self.raw, RawFrames::new());
        self.waiting -= raw.own.len() + raw.heard.len();
        Some(raw)
    }

    /// Called when a packet was refused for another reason than the loop-back batch.
    #[inline]
    pub(super) fn is_not_to_blame(&mut self) {
        self.was_full = false;
    }

    /// Loops a frame back. There must be room.
    pub(super) fn push(&mut self, frame: Mbuf) {
        self.waiting += 1;
        let pushed = self.frames.push(frame);
        debug_assert!(pushed.is_ok(), "the caller has looked for room");
    }

    /// Returns, once, whether the last refused packet was refused because there was no room.
    pub(crate) fn take_was_full(&mut self) -> bool {
        std::mem::take(&mut self.was_full)
    }

    /// Returns whether no frame waits to be received.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Takes the frames that wait to be received.
    pub(crate) fn take(&mut self) -> MbufBatch {
        self.waiting -= self.frames.len();
        std::mem::take(&mut self.frames)
    }
}
