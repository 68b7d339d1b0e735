//! Counters: one block per lcore, written by its owner only; any thread may read it at any time.
//!
//! Invariants
//! - An lcore counts with a plain load and store: no locked instruction, no shared cache line.
//! - A counter never goes down while the engine runs.
//!
//! Not here: names of the transport's counters and drop reasons (they come with their enums).

use crate::distribution::RoundTripBlock;
use uroce_shared::sync::{AtomicU64, Ordering};
use uroce_transport::{Counter, DropReason};

uroce_transport::counted! {
    /// The counters of the engine itself.
    pub enum EngineCounter {
        RxPackets "rdma_rx_packets" "A RoCEv2 packet received whose invariant CRC is right."
        RxBytes "rdma_rx_bytes" "Bytes of these packets, Ethernet headers included."
        TxPackets "rdma_tx_packets" "A RoCEv2 packet sent."
        TxBytes "rdma_tx_bytes" "Bytes of these packets, Ethernet headers included."
        RxOther "rx_other_packets" "A frame received that is not RoCEv2, for the control plane."
        RxGsi "rx_gsi_packets" "A packet to QP 1 received, for the control plane."
        TxOther "tx_other_packets" "A frame of the control plane sent."
        RxRaw "rx_raw_frames" "A frame received for raw queue pairs; a sniffer's copies are not counted."
        TxRaw "tx_raw_frames" "A frame of a raw queue pair sent."
        SniffMissed "rx_sniffer_missed" "A frame that a sniffer has not seen, because too many were waiting for it or for want of an mbuf."
        Looped "looped_packets" "A packet to an address of the device's own, sent and received here."
        HandedOver "rx_handed_over" "A packet handed over to the QP's own lcore."
        TxFull "tx_full" "A turn in which the port took no more frames; they went later."
        NoMbuf "tx_no_mbuf" "A turn in which the mempool was empty; packets went later."
        RxLost "rx_injected_loss" "A received frame dropped by the configured loss."
        TxLost "tx_injected_loss" "A frame to be sent dropped by the configured loss."
        RxDuplicated "rx_injected_duplicates" "A received frame that was doubled on purpose."
        TxDuplicated "tx_injected_duplicates" "A frame to be sent that was doubled on purpose."
        RxReordered "rx_injected_reorders" "A received frame held back so that others overtake it."
        TxReordered "tx_injected_reorders" "A frame to be sent held back so that others overtake it."
        RxCorrupted "rx_injected_corruption" "A received frame with a bit inverted on purpose."
        TxCorrupted "tx_injected_corruption" "A frame to be sent with a bit inverted on purpose."
        RxDelayed "rx_injected_delays" "A received frame delayed on purpose."
        TxDelayed "tx_injected_delays" "A frame to be sent delayed on purpose."
        BottleneckServed "bottleneck_served" "A frame that has left a port's bottleneck."
        BottleneckMarked "bottleneck_marked" "A frame marked with CE by a port's bottleneck."
        BottleneckDropped "bottleneck_dropped" "A frame dropped by a port's bottleneck, whose queue was full."
        BottleneckDepth "bottleneck_depth_max" "The longest that a bottleneck's queue has been, in bytes; the sum of all ports."
        RxLinkDown "rx_link_down" "A frame dropped that came in by a port whose link is down."
        TxLinkDown "tx_link_down" "A frame dropped that was to leave by a port whose link is down."
        TxStuck "tx_stuck" "A frame dropped since its port had taken none for 200 ms, or a second before its link came up."
        Forwarded "forwarded_frames" "A received frame sent on by a port that forwards."
        ForwardDropped "forward_dropped" "A received frame dropped by a port that forwards: by mode rxonly, or because it was too long to be sent or there was no room."
        CqOverrun "cq_overrun" "A completion that found its completion queue full."
    }
}

const DROPS: usize = DropReason::ALL.len();
const TRANSPORT: usize = Counter::ALL.len();
const ENGINE: usize = EngineCounter::ALL.len();
const ALL: usize = ENGINE + TRANSPORT + DROPS;

/// The counters of one lcore.
#[derive(Debug)]
pub(crate) struct CounterBlock {
    values: [AtomicU64; ALL],
    /// Round trips of the lcore's QPs.
    pub(crate) round_trips: RoundTripBlock,
}

impl CounterBlock {
    pub(crate) fn new() -> CounterBlock {
        CounterBlock {
            values: std::array::from_fn(|_| AtomicU64::new(0)),
            round_trips: RoundTripBlock::new(),
        }
    }

    /// Adds 1 to a counter of the engine. Called by the owner only.
    #[inline]
    pub(crate) fn count(&self, counter: EngineCounter) {
        self.add(counter, 1);
    }

    /// Adds `amount` to a counter of the engine. Called by the owner only.
    #[inline]
    pub(crate) fn add(&self, counter: EngineCounter, amount: u64) {
        self.add_at(counter as usize, amount);
    }

    /// Adds 1 to a counter of the transport. Called by the owner only.
    #[inline]
    pub(crate) fn count_transport(&self, counter: Counter) {
        self.add_at(ENGINE + counter as usize, 1);
    }

    /// Counts a drop. Called by the owner only.
    #[inline]
    pub(crate) fn count_drop(&self, reason: DropReason) {
        self.add_at(ENGINE + TRANSPORT + reason as usize, 1);
    }

    /// Returns the present value of a counter of the transport.
    #[inline]
    pub(crate) fn transport(&self, counter: Counter) -> u64 {
        self.values[ENGINE + counter as usize].load(Ordering::Relaxed)
    }

    /// Returns how many frames the lcore has received and sent, whatever their kind.
    pub(crate) fn frames(&self) -> (u64, u64) {
        let of = |counter: EngineCounter| self.values[counter as usize].load(Ordering::Relaxed);
        let sum = |all: &[EngineCounter]| all.iter().map(|of_one| of(*of_one)).sum();
        use EngineCounter::{ForwardDropped, Forwarded, RxOther, RxPackets, RxRaw};
        use EngineCounter::{TxOther, TxPackets, TxRaw};
        (
            sum(&[RxPackets, RxOther, RxRaw, Forwarded, ForwardDropped]),
            sum(&[TxPackets, TxOther, TxRaw, Forwarded]),
        )
    }

    #[inline]
    fn add_at(&self, at: usize, amount: u64) {
        let value = &self.values[at];
        value.store(value.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

/// A reading of all counters: of one lcore, or the sum over several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    values: [u64; ALL],
}

impl Counters {
    pub(crate) fn read<'a>(blocks: impl IntoIterator<Item = &'a CounterBlock>) -> Counters {
        let mut values = [0u64; ALL];
        for block in blocks {
            for (sum, value) in values.iter_mut().zip(&block.values) {
                *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
            }
        }
        Counters { values }
    }

    /// Returns a counter of the engine.
    pub fn engine(&self, counter: EngineCounter) -> u64 {
        self.values[counter as usize]
    }

    /// Returns a counter of the transport.
    pub fn transport(&self, counter: Counter) -> u64 {
        self.values[ENGINE + counter as usize]
    }

    /// Returns the number of frames dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.values[ENGINE + TRANSPORT + reason as usize]
    }

    /// Returns the number of frames dropped for any reason.
    pub fn dropped_in_all(&self) -> u64 {
        self.values[ENGINE + TRANSPORT..].iter().sum()
    }

    /// Returns the differences to `earlier`, a reading of the same engine.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let mut values = self.values;
        for (value, before) in values.iter_mut().zip(&earlier.values) {
            *value = value.wrapping_sub(*before);
        }
        Counters { values }
    }

    /// Returns name, description and value of each counter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let engine = EngineCounter::ALL.iter().map(|c| (c.name(), c.description()));
        let transport = Counter::ALL.iter().map(|c| (c.name(), c.description()));
        let drops = DropReason::ALL.iter().map(|r| (r.name(), r.description()));
        let names = engine.chain(transport).chain(drops);
        names.zip(&self.values).map(|((name, text), &value)| (name, text, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_counter_has_its_own_place_and_name() {
        let block = CounterBlock::new();
        EngineCounter::ALL.iter().for_each(|&counter| block.add(counter, 1));
        Counter::ALL.iter().for_each(|&counter| block.count_transport(counter));
        DropReason::ALL.iter().for_each(|&reason| block.count_drop(reason));
        let counters = Counters::read([&block]);
        let by_name: BTreeMap<_, _> =
            counters.iter().map(|(name, _, value)| (name, value)).collect();
        assert_eq!(by_name.len(), ALL, "names differ");
        assert!(by_name.values().all(|&value| value == 1));
    }

    #[test]
    fn readings_sum_over_lcores_and_subtract() {
        let (a, b) = (CounterBlock::new(), CounterBlock::new());
        a.add(EngineCounter::RxBytes, 5);
        let before = Counters::read([&a, &b]);
        b.add(EngineCounter::RxBytes, 7);
        b.count_drop(DropReason::BadIcrc);
        let after = Counters::read([&a, &b]);
        assert_eq!(after.engine(EngineCounter::RxBytes), 12);
        let since = after.since(&before);
        assert_eq!(since.engine(EngineCounter::RxBytes), 7);
        assert_eq!(since.dropped(DropReason::BadIcrc), 1);
        assert_eq!(since.dropped_in_all(), 1);
    }
}
