//! Loopback: frames to the device's own addresses, which the same lcore receives in its next turn.
//!
//! They do not depend on the port's link.

use crate::dpdk::mbuf::{Mbuf, MbufBatch};
use uroce_transport::TransmitError;

/// Frames of one port that are looped back, complete with ICRC.
#[derive(Debug)]
pub(crate) struct Loopback {
    frames: MbufBatch,
    /// Frames of raw QPs, which the port receives as if they had come from its link.
    raw: MbufBatch,
    /// Whether the last packet of the port was refused because `frames` was full.
    was_full: bool,
}

impl Loopback {
    pub(super) fn new() -> Loopback {
        Loopback { frames: MbufBatch::new(), raw: MbufBatch::new(), was_full: false }
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
        self.was_full = self.raw.room() == 0;
        !self.was_full
    }

    /// Loops a frame of a raw QP back. There must be room.
    pub(super) fn push_raw(&mut self, frame: Mbuf) {
        let pushed = self.raw.push(frame);
        debug_assert!(pushed.is_ok(), "the caller has looked for room");
    }

    /// Takes the frames of raw QPs that wait to be received.
    pub(crate) fn take_raw(&mut self) -> MbufBatch {
        std::mem::take(&mut self.raw)
    }

    /// Called when a packet was refused for another reason than the loop-back batch.
    #[inline]
    pub(super) fn is_not_to_blame(&mut self) {
        self.was_full = false;
    }

    /// Loops a frame back. There must be room.
    pub(super) fn push(&mut self, frame: Mbuf) {
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
        self.frames.is_empty() && self.raw.is_empty()
    }

    /// Takes the frames that wait to be received.
    pub(crate) fn take(&mut self) -> MbufBatch {
        std::mem::take(&mut self.frames)
    }
}
