//! The send queue: handling of send WQEs that all requesters share, before and after their packets.
//!
//! Invariants
//! - WQEs complete in the order of posting.
//! - An error completes a WQE even if the WQE did not request a completion.
//!
//! Not here: PSNs and packets (the services'), [`crate::segment`].

use uroce_wire::{PathMtu, Qpn};

use crate::attr::QpType;
use crate::context::packets;
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::env::{AccessKind, Accessor, Memory, MemoryFault, Output, Side};
use crate::gather::Gather;
use crate::queue::{QpCaps, WorkQueue, check_sges, scatter};
use crate::wqe::{BindMw, PostError, SendOp, SendWqe, SendWr, Sge};

#[derive(Debug)]
pub(crate) struct SendQueue {
    work: WorkQueue<SendWqe>,
    /// `max_inline` bytes of inline data for each slot of the ring.
    inline: Box<[u8]>,
}

impl SendQueue {
    pub(crate) fn new(caps: &QpCaps) -> SendQueue {
        let work: WorkQueue<SendWqe> = WorkQueue::new(caps.max_send_wr, caps.max_send_sge);
        let max_inline = caps.max_inline_data;
        let inline = vec![0; work.wqes.slots() * max_inline as usize].into_boxed_slice();
        SendQueue { work, inline }
    }

    /// Position of the oldest WQE.
    #[inline]
    pub(crate) fn head(&self) -> u32 {
        self.work.wqes.head()
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.work.wqes.len()
    }

    /// The places of the next `count` WQEs, and of their scatter/gather lists.
    #[inline]
    pub(crate) fn next_slots(&self, count: usize) -> (&[impl Sized], &[Sge]) {
        self.work.next_slots(count)
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&SendWqe> {
        self.work.wqes.front()
    }

    #[inline]
    pub(crate) fn get(&self, at: u32) -> Option<&SendWqe> {
        self.work.wqes.get(at)
    }

    /// The WQE at position `at`, which must be in the queue.
    #[inline]
    pub(crate) fn at(&self, at: u32) -> &SendWqe {
        &self.work.wqes[at]
    }

    /// The WQE at position `at`, which must be in the queue.
    #[inline]
    pub(crate) fn at_mut(&mut self, at: u32) -> &mut SendWqe {
        &mut self.work.wqes[at]
    }

    pub(crate) fn clear(&mut self) {
        self.work.wqes.clear();
    }

    pub(crate) fn post(
        &mut self,
        wr: &SendWr,
        sges: &[Sge],
        qp_type: QpType,
        path_mtu: PathMtu,
    ) -> Result<(), PostError> {
        let len = self.work.check(sges)?;
        wr.op.check(qp_type, sges.len(), u64::from(len))?;
        let psns = if wr.op.is_local() { 0 } else { packets(len, path_mtu.bytes()) };
        // The cast is exact: the queue's `max_sge` is at most 32.
        let num_sge = sges.len() as u8;
        self.work.push(SendWqe { len, psns, num_sge, ..SendWqe::new(wr) }, sges);
        Ok(())
    }

    pub(crate) fn post_inline(
        &mut self,
        wr: &SendWr,
        data: &[u8],
        qp_type: QpType,
        path_mtu: PathMtu,
    ) -> Result<(), PostError> {
        if data.len() > self.max_inline() {
            return Err(PostError::InlineTooLong);
        }
        self.work.check_room()?;
        wr.op.check_inline(qp_type, data.len())?;
        let first = self.inline_of(self.work.wqes.tail());
        self.inline[first..][..data.len()].copy_from_slice(data);
        let len = data.len() as u32;
        let psns = packets(len, path_mtu.bytes());
        self.work.push(SendWqe { len, psns, is_inline: true, ..SendWqe::new(wr) }, &[]);
        Ok(())
    }

    /// Offset in `inline` at which the data of the WQE at position `at` begins.
    fn inline_of(&self, at: u32) -> usize {
        self.work.wqes.slot(at) * self.max_inline()
    }

    /// Slot that the next WQE posted will have.
    pub(crate) fn next_slot(&self) -> usize {
        self.work.wqes.slot(self.work.wqes.tail())
    }

    /// Slot of the oldest WQE.
    pub(crate) fn slot_of_front(&self) -> usize {
        self.work.wqes.slot(self.head())
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.work.wqes.slots()
    }

    /// Appends a copy of the oldest WQE of `from`, with its list or inline data, for packets of
    /// `path_mtu`. It will complete in any case. The queue has room for it.
    pub(crate) fn copy_front(&mut self, from: &SendQueue, path_mtu: PathMtu) {
        let Some(&wqe) = from.front() else { return };
        let psns = packets(wqe.len, path_mtu.bytes());
        if wqe.is_inline {
            let (to, source) = (self.inline_of(self.work.wqes.tail()), from.inline_of(from.head()));
            let data = &from.inline[source..][..wqe.len as usize];
            self.inline[to..][..data.len()].copy_from_slice(data);
        }
        let sges = from.work.sges(from.head(), wqe.num_sge);
        self.work.push(SendWqe { psns, signaled: true, fence: false, ..wqe }, sges);
    }

    /// Size of the inline data of one WQE in bytes. The number of slots is a power of two.
    #[inline]
    fn max_inline(&self) -> usize {
        self.inline.len() >> self.work.wqes.slots().trailing_zeros()
    }

    /// `len` bytes of a WQE's payload from byte `offset` on.
    #[inline]
    pub(crate) fn payload(&self, at: u32, wqe: &SendWqe, offset: u32, len: u32) -> Gather<'_> {
        if wqe.is_inline {
            //= check F13 — the bytes are those at the time of posting, each time they are sent
            let first = self.inline_of(at) + offset as usize;
            return Gather::bytes(&self.inline[first..][..len as usize]);
        }
        Gather::sges(self.work.sges(at, wqe.num_sge), offset, len)
    }

    /// Checks that the WQE's scatter/gather list grants the access that the operation needs. A
    /// message of one packet is not checked here: building its packet checks the same list.
    //= check F12 — memory that is not granted is found before any packet is sent
    #[inline]
    pub(crate) fn check_memory(
        &self,
        at: u32,
        wqe: &SendWqe,
        by: Accessor,
        memory: &impl Memory,
    ) -> Result<(), WcStatus> {
        let asks = wqe.op.returns_data();
        if !asks && wqe.psns == 1 {
            return Ok(());
        }
        let access = if asks { AccessKind::Write } else { AccessKind::Read };
        if seeded!(BadLkeyAtomic) && wqe.op.is_atomic() {
            return Ok(());
        }
        check_sges(self.work.sges(at, wqe.num_sge), by, access, memory)
            .map_err(|_| WcStatus::LocProtErr)
    }

    /// Writes response data to the WQE's scatter list, from byte `offset` on.
    pub(crate) fn scatter(
        &self,
        at: u32,
        wqe: &SendWqe,
        offset: u32,
        data: &[u8],
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Result<(), WcStatus> {
        scatter(self.work.sges(at, wqe.num_sge), offset, data, by, memory)
            .map_err(|_| WcStatus::LocProtErr)
    }

    /// Completes the oldest WQE and removes it. Reports success if the WQE requested it, and always
    /// an error.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        let position = self.head().wrapping_add(1);
        let Some(wqe) = self.work.wqes.pop() else { return };
        match status {
            WcStatus::Success => out.count(Counter::SendMessages),
            WcStatus::WrFlushErr => out.count(Counter::ReqCqeFlushError),
            _ => out.count(Counter::ReqCqeError),
        }
        //= check G1 — an error completes the WQE even if no completion was requested
        let is_error = status != WcStatus::Success;
        if wqe.signaled || is_error && !seeded!(UnsignaledErrorLost) {
            let opcode = wc_opcode(&wqe.op);
            let byte_len = if wqe.op.returns_data() && !is_error { wqe.len } else { 0 };
            let cqe = Cqe { byte_len, position, ..Cqe::new(wqe.wr_id, status, opcode, qpn) };
            out.complete(Side::Send, cqe);
        }
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        while self.len() > 0 {
            self.complete_front(qpn, WcStatus::WrFlushErr, out);
        }
    }
}

/// Executes an operation that needs no packet.
pub(crate) fn carry_out(
    op: &SendOp,
    by: Accessor,
    memory: &mut impl Memory,
) -> Result<(), MemoryFault> {
    match *op {
        SendOp::LocalInvalidate { rkey } => memory.invalidate(by, rkey),
        SendOp::BindMw { rkey, new_rkey, lkey, va, len, access } => {
            memory.bind(by, &BindMw { rkey, new_rkey, lkey, va, len, access })
        }
        _ => Ok(()),
    }
}

fn wc_opcode(op: &SendOp) -> WcOpcode {
    match op {
        SendOp::Send { .. }
        | SendOp::SendWithInvalidate { .. }
        | SendOp::SendTo { .. }
        | SendOp::Frame { .. }
        | SendOp::Ipv6 { .. } => WcOpcode::Send,
        SendOp::Write { .. } => WcOpcode::RdmaWrite,
        SendOp::Read { .. } => WcOpcode::RdmaRead,
        SendOp::CompareSwap { .. } => WcOpcode::CompSwap,
        SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
        SendOp::AtomicWrite { .. } => WcOpcode::AtomicWrite,
        SendOp::Flush { .. } => WcOpcode::Flush,
        SendOp::LocalInvalidate { .. } => WcOpcode::LocalInv,
        SendOp::BindMw { .. } => WcOpcode::BindMw,
    }
}
