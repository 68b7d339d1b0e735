//! The receiving half of a lane: frames from the port, except those that are lost by injected
//! faults or because the link is set down.

use super::Lane;
use super::faults::Faults;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::MbufBatch;
use uroce_transport::DropReason;
use uroce_wire::{Frame, Qpn};

/// State for the frames that come from a port.
#[derive(Debug)]
pub(crate) struct RxLane {
    /// Injected faults.
    pub(super) faults: Option<Box<Faults>>,
    /// Number of multi-segment frames dropped by the port that are already counted.
    not_linear: u64,
}

impl RxLane {
    pub(super) fn new(faults: Option<Box<Faults>>) -> RxLane {
        RxLane { faults, not_linear: 0 }
    }

    /// Returns whether injected loss drops the next looped frame, which is to this QP.
    pub(crate) fn loses(&mut self, qp: Qpn, counters: &CounterBlock) -> bool {
        self.faults.as_mut().is_some_and(|faults| faults.loses(Some(qp), counters))
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

    /// Gives the tap copies of a burst, and applies faults to it; drops all of it if the link is
    /// set down. To be called without frames too, since some may be due.
    #[inline(never)]
    pub(crate) fn watch_burst(&mut self, burst: &mut MbufBatch, counters: &CounterBlock) {
        if self.is_cut {
            counters.add(EngineCounter::RxLinkDown, burst.len() as u64);
            return burst.clear();
        }
        if self.tap.is_some() {
            burst.as_slice().iter().for_each(|frame| self.tap_received(frame));
        }
        if self.rx.faults.is_some() {
            self.fault_burst(burst, counters);
        }
    }

    /// Applies faults to a burst, and appends frames that were held and are due as far as there is
    /// room.
    fn fault_burst(&mut self, burst: &mut MbufBatch, counters: &CounterBlock) {
        let Some(faults) = &mut self.rx.faults else { return };
        let mut kept = MbufBatch::new();
        for mbuf in burst.drain() {
            let is_roce = matches!(Frame::parse(mbuf.as_slice()), Ok(Frame::Roce(_)));
            let passes = match Frame::likely_dest_qpn(mbuf.as_slice()) {
                Some(qp) if is_roce => match faults.loses(Some(qp), counters) {
                    true => None,
                    false => faults.detour(mbuf, Some(qp), self.now, counters),
                },
                _ => Some(mbuf),
            };
            if let Some(mbuf) = passes {
                let pushed = kept.push(mbuf);
                debug_assert!(pushed.is_ok(), "both batches have the same capacity");
            }
        }
        while kept.room() > 0
            && let Some((_, mbuf)) = faults.release(self.now)
        {
            let pushed = kept.push(mbuf);
            debug_assert!(pushed.is_ok(), "the loop checks for room");
        }
        *burst = kept;
    }
}
