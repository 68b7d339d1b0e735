//! Sniffed: copies of the frames that a port sends, for raw QPs that are sniffers.
//!
//! The copies wait for the lcore's next turn, since a QP cannot be given a frame while another QP
//! sends. Received frames need no copies ([`crate::rx`]).
//!
//! Invariants
//! - Nothing here slows down the sender: a frame for which there is no room, or no mbuf to spare,
//!   is counted and is sent without a copy.

use super::Lane;
use super::tx_lane::TxLane;
use crate::counters::{CounterBlock, EngineCounter};
use crate::dpdk::mbuf::{Mbuf, MbufBatch};

/// Batches of copies that may wait: as many packets as a turn sends.
const BATCHES: usize = 4;

/// Copies that wait for the next turn.
#[derive(Debug, Default)]
pub(crate) struct Sniffed {
    batches: [MbufBatch; BATCHES],
    missed: u64,
    /// Whether the port has no sniffer left, though the control plane could not say so yet.
    pub(crate) is_over: bool,
}

impl Sniffed {
    /// Returns whether no copy waits.
    pub(super) fn is_empty(&self) -> bool {
        self.batches.iter().all(MbufBatch::is_empty)
    }

    /// Takes a copy of a frame.
    pub(super) fn take(&mut self, frame: &Mbuf, tx: &mut TxLane) {
        if self.is_over {
            return;
        }
        let batch = self.batches.iter_mut().find(|batch| batch.room() > 0);
        let (Some(batch), Some(copy)) = (batch, tx.spare_copy_of(frame)) else {
            self.missed += 1;
            return;
        };
        let pushed = batch.push(copy);
        debug_assert!(pushed.is_ok(), "the batch has room");
    }
}

impl Lane {
    /// Sets the place of copies of sent frames, or none; returns the former one.
    pub(crate) fn set_sniffed(&mut self, sniffed: Option<Box<Sniffed>>) -> Option<Box<Sniffed>> {
        let former = std::mem::replace(&mut self.sniffed, sniffed);
        self.watch();
        former
    }

    /// Returns whether the link is set down.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns whether the port has a sniffer.
    pub(crate) fn is_sniffed(&self) -> bool {
        self.sniffed.as_ref().is_some_and(|sniffed| !sniffed.is_over)
    }

    /// Ends the copying: the port has no sniffer any more. The lcore frees nothing, so the place of
    /// the copies stays for the control plane.
    #[cold]
    pub(crate) fn end_sniffing(&mut self) {
        if let Some(sniffed) = &mut self.sniffed {
            sniffed.is_over = true;
            sniffed.batches.iter_mut().for_each(MbufBatch::clear);
        }
        self.watch();
    }

    /// Takes the oldest copies that wait; none if there are no more. Counts the frames that were
    /// not copied.
    pub(crate) fn take_sniffed(&mut self, counters: &CounterBlock) -> MbufBatch {
        let Some(sniffed) = &mut self.sniffed else { return MbufBatch::new() };
        counters.add(EngineCounter::SniffMissed, std::mem::take(&mut sniffed.missed));
        let full = sniffed.batches.iter_mut().find(|batch| !batch.is_empty());
        full.map(std::mem::take).unwrap_or_default()
    }
}
