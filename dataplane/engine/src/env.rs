//! The surroundings of a QP on an lcore: what the core asks for, done by the engine's parts.

use crate::context::Route;
use crate::counters::CounterBlock;
use crate::mr_table::Access;
use crate::tx::Lane;
use uroce_transport::{
    AtomicOp, Counter, Cqe, Memory, MemoryFault, Outbound, Output, PacketSink, Pd, Region, Side,
    TransmitError,
};
use uroce_wire::{HeaderTemplate, Rkey, Va};

/// Memory by the key table, packets by the QP's port, completions to a buffer of this turn.
pub(crate) struct QpEnv<'a> {
    pub(crate) memory: &'a Access<'a>,
    pub(crate) lane: &'a mut Lane,
    pub(crate) template: &'a HeaderTemplate,
    pub(crate) route: &'a mut Route,
    pub(crate) pending: &'a mut Vec<(Side, Cqe)>,
    pub(crate) counters: &'a CounterBlock,
}

impl Memory for QpEnv<'_> {
    #[inline]
    fn check(
        &self,
        pd: Pd,
        region: Region,
        access: uroce_transport::Access,
    ) -> Result<(), MemoryFault> {
        self.memory.check(pd, region, access)
    }

    #[inline]
    fn write(&mut self, pd: Pd, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.memory.write(pd, region, bytes)
    }

    fn atomic(&mut self, pd: Pd, rkey: Rkey, va: Va, op: AtomicOp) -> Result<u64, MemoryFault> {
        self.memory.atomic(pd, rkey, va, op)
    }
}

impl PacketSink for QpEnv<'_> {
    #[inline]
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<(), TransmitError> {
        self.lane.transmit(self.template, packet, self.memory, self.counters)
    }
}

impl Output for QpEnv<'_> {
    #[inline]
    fn complete(&mut self, side: Side, cqe: Cqe) {
        if self.pending.len() == self.pending.capacity() {
            self.route.spill(self.pending, self.counters);
        }
        self.pending.push((side, cqe));
    }

    #[inline]
    fn count(&mut self, counter: Counter) {
        self.counters.count_transport(counter);
    }
}
