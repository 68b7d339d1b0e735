//! The receiving half of a lane: frames from the port, less those that injected loss or a link that
//! is set down takes away.

use super::Lane;
use super::loss::Loss;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::MbufBatch;
use uroce_transport::DropReason;
use uroce_wire::Frame;

/// State for the frames that come from a port.
#[derive(Debug)]
pub(crate) struct RxLane {
    /// Injected loss.
    pub(crate) loss: Loss,
    /// How many of the multi-segment frames that the port has dropped are counted already.
    not_linear: u64,
}

impl RxLane {
    pub(super) fn new(loss: Loss) -> RxLane {
        RxLane { loss, not_linear: 0 }
    }
}

impl Lane {
    /// Appends the next frames from the port to a batch.
    #[inline]
    pub(crate) fn take_burst(&mut self, burst: &mut MbufBatch, counters: &CounterBlock) {
        self.queue.rx_burst(burst);
        if self.queue.multi_segment_drops() != self.rx.not_linear {
            self.count_not_linear(counters);
        }
    }

    /// Counts the multi-segment frames that the port itself has dropped since the last call: the
    /// port hands over single segments only.
    #[cold]
    fn count_not_linear(&mut self, counters: &CounterBlock) {
        let drops = self.queue.multi_segment_drops();
        for _ in self.rx.not_linear..drops {
            counters.count_drop(DropReason::NotLinear);
        }
        self.rx.not_linear = drops;
    }

    /// Returns whether [`watch_burst`](Lane::watch_burst) has anything to do.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// Gives the tap copies of a burst, and applies injected loss to it; drops all of it if the
    /// link is set down.
    #[inline(never)]
    pub(crate) fn watch_burst(&mut self, burst: &mut MbufBatch, counters: &CounterBlock) {
        if self.is_cut {
            counters.add(EngineCounter::RxLinkDown, burst.len() as u64);
            return burst.clear();
        }
        if self.tap.is_some() {
            burst.as_slice().iter().for_each(|frame| self.tap_received(frame));
        }
        if !self.rx.loss.is_on() {
            return;
        }
        let mut kept = MbufBatch::new();
        for mbuf in burst.drain() {
            let is_roce = matches!(Frame::parse(mbuf.as_slice()), Ok(Frame::Roce(_)));
            if is_roce && self.rx.loss.loses() {
                counters.count(EngineCounter::RxLost);
            } else {
                let pushed = kept.push(mbuf);
                debug_assert!(pushed.is_ok(), "both batches have the same capacity");
            }
        }
        *burst = kept;
    }
}
