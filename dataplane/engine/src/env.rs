//! The surroundings of a QP on an lcore: what the core asks for, done by the engine's parts.

use crate::context::Route;
use crate::counters::CounterBlock;
use crate::mr_table::Access;
use crate::tx::Lane;
use uroce_transport::{
    Accessor, AsyncEvent, AtomicOp, BindMw, Counter, Cqe, Memory, MemoryFault, Outbound, Output,
    PacketSink, Path, RecvWr, Region, Sge, SharedReceives, Side, TransmitError,
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
        by: Accessor,
        region: Region,
        access: uroce_transport::Access,
    ) -> Result<(), MemoryFault> {
        self.memory.check(by, region, access)
    }

    #[inline]
    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.memory.write(by, region, bytes)
    }

    fn atomic(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        self.memory.atomic(by, rkey, va, op)
    }

    fn bind(&mut self, _by: Accessor, _bind: &BindMw) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow) // there are no windows yet
    }

    fn invalidate(&mut self, _by: Accessor, _rkey: Rkey) -> Result<(), MemoryFault> {
        Err(MemoryFault::NotAWindow)
    }
}

impl SharedReceives for QpEnv<'_> {
    fn take_receive(&mut self, _place: impl FnOnce(&RecvWr, &[Sge])) -> bool {
        false // no QP has an SRQ yet
    }

    fn receives_waiting(&self) -> u32 {
        0 // not counted yet
    }
}

impl PacketSink for QpEnv<'_> {
    #[inline]
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<(), TransmitError> {
        if let Path::Ah(_) = packet.path {
            return Err(TransmitError::UnknownAh); // there are no address handles yet
        }
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

    fn event(&mut self, _event: AsyncEvent) {} // nobody is told yet
}
