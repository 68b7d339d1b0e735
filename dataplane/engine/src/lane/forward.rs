//! Forwarding: what becomes of frames that a port receives, if they go to no QP.
//!
//! Not here: taking them from the port ([`crate::rx`]).

use super::Lane;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::Mbuf;

/// What becomes of the frames that a port receives, instead of going to QPs and the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forward {
    /// They leave unchanged.
    Io {
        /// Port through which they leave, counted from 1.
        to: u8,
    },
    /// They leave through the port that they came from, with their Ethernet addresses swapped.
    Echo,
    /// They are dropped.
    RxOnly,
}

impl Lane {
    /// Sets what becomes of received frames; `None` gives them to QPs and the control plane.
    pub(crate) fn set_forward(&mut self, forward: Option<Forward>) {
        self.forward = forward;
        self.watch();
    }

    /// Returns what becomes of received frames, if the port forwards.
    #[inline]
    pub(crate) fn forward(&self) -> Option<Forward> {
        self.forward
    }

    /// Returns how many frames were to be forwarded through this port and were dropped.
    pub(crate) fn unforwarded(&self) -> u64 {
        self.unforwarded
    }

    /// Queues a frame that was received, or drops and counts it if the link is set down or the port
    /// takes no more.
    pub(crate) fn forward_out(&mut self, frame: Mbuf, counters: &CounterBlock) {
        if self.is_cut {
            self.unforwarded += 1;
            counters.count(EngineCounter::TxLinkDown);
        } else if self.has_room() {
            counters.count(EngineCounter::Forwarded);
            self.tap_sent(&frame, None);
            self.tx.queue(frame);
        } else {
            self.unforwarded += 1;
            counters.count(EngineCounter::ForwardDropped);
        }
    }
}
