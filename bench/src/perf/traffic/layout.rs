//! Places of the slots in a worker's memory.
//!
//! Its `local` slots are used by its own work requests, its `target` slots are read, written or
//! filled by the peer's. Measurements use one slot of each kind, verification several, so that many
//! messages can be in flight.

use crate::perf::plan::{Plan, Service};
use std::ops::Range;
use uroce::GRH_LEN;

/// Largest number of slots of a verified worker.
const SLOTS_MAX: u32 = 64;
/// Largest number of bytes of a verified worker's local slots; there is at least one slot.
const SLOT_BYTES_MAX: usize = 32 << 20;
/// Alignment of slots: whole pages.
const SLOT_ALIGN: usize = 4096;

/// Places of a worker's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Number of slots of each kind.
    pub(super) slots: u32,
    stride: usize,
    /// Bytes in front of a received message: for a datagram the place of its GRH.
    head: usize,
}

impl Layout {
    /// Creates a layout with slots of at least `least` bytes.
    pub(super) fn new(plan: &Plan, least: u32) -> Self {
        let head = if plan.service == Service::Ud { GRH_LEN } else { 0 };
        let stride = (plan.size_max().max(least) as usize + head).next_multiple_of(SLOT_ALIGN);
        let fit = u32::try_from(SLOT_BYTES_MAX / stride).unwrap_or(u32::MAX);
        // Receive requests for all SENDs of a round are posted before the round.
        let shared = if plan.shares_receives() { plan.qps } else { 1 };
        let received = if plan.takes_receives() { plan.rx_depth / shared } else { u32::MAX };
        let wanted = plan.tx_depth.max(16).min(received);
        let slots = if plan.verify { fit.min(wanted).clamp(1, SLOTS_MAX) } else { 1 };
        Self { slots, stride, head }
    }

    pub(super) fn bytes(&self) -> usize {
        2 * self.slots as usize * self.stride
    }

    /// Returns the offset of the target slots.
    pub(super) fn targets(&self) -> usize {
        self.slots as usize * self.stride
    }

    /// Returns local slot `index`, for our work requests.
    pub(super) fn local(&self, index: u32, size: u32) -> Range<usize> {
        let start = (index % self.slots) as usize * self.stride;
        start..start + size as usize
    }

    /// Returns target slot `index`, for the peer's requests.
    pub(super) fn target(&self, index: u32, size: u32) -> Range<usize> {
        let start = self.targets() + (index % self.slots) as usize * self.stride + self.head;
        start..start + size as usize
    }

    /// Returns target slot `index` with the bytes in front of a received message.
    pub(super) fn receive(&self, index: u32, size: u32) -> Range<usize> {
        let Range { start, end } = self.target(index, size);
        start - self.head..end
    }

    /// Returns the length in the completion of a received message with `size` bytes.
    pub(super) fn byte_len(&self, size: u32) -> u32 {
        size + self.head as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::{Measure, Operation};

    #[test]
    fn slots_do_not_overlap() {
        let plan = Plan { verify: true, ..Plan::new(Operation::Write, Measure::Bandwidth) };
        let layout = Layout::new(&plan, 0);
        let mut ranges: Vec<_> = (0..layout.slots)
            .flat_map(|slot| [layout.local(slot, 65536), layout.target(slot, 65536)])
            .collect();
        ranges.sort_by_key(|range| range.start);
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert_eq!(ranges.last().map(|range| range.end), Some(layout.bytes()));
        assert_eq!(layout.local(0, 1), layout.local(layout.slots, 1));
    }

    #[test]
    fn only_verification_has_many_slots_and_few_large_ones() {
        let plan = Plan::new(Operation::Write, Measure::Bandwidth);
        assert_eq!(Layout::new(&plan, 0).slots, 1);
        let large = Plan { verify: true, sizes: vec![16 << 20], ..plan.clone() };
        assert_eq!(Layout::new(&large, 0).slots, 2);
        let huge = Plan { verify: true, sizes: vec![512 << 20], ..plan };
        assert_eq!(Layout::new(&huge, 0).slots, 1);
        let send = Plan::new(Operation::Send, Measure::Bandwidth);
        let few = Plan { verify: true, rx_depth: 3, ..send };
        assert_eq!(Layout::new(&few, 0).slots, 3);
    }

    #[test]
    fn a_slot_holds_the_buffer_that_perftests_programs_go_round_in() {
        let plan = Plan { sizes: vec![64], ..Plan::new(Operation::Write, Measure::Bandwidth) };
        assert_eq!(Layout::new(&plan, 0).bytes(), 2 * 4096);
        assert_eq!(Layout::new(&plan, 65536).bytes(), 2 * 65536);
    }
}
