//! The receive queue: handling of receive WQEs that all responders share.
//!
//! Invariants
//! - A message fills the oldest WQE; WQEs complete in order.
//! - With an SRQ the queue holds at most one WQE, which was taken from the SRQ when a message
//!   needed it, and which completes on this QP.

use uroce_wire::{Header, Packet, Qpn, Syndrome};

use crate::counter::Counter;
use crate::cqe::{Cqe, Extra, WcOpcode, WcStatus};
use crate::env::{Accessor, Env, Found, Memory, MemoryFault, Output, SharedReceives, Side};
use crate::queue::{QpCaps, WorkQueue, scatter};
use crate::wqe::{PostError, RecvWqe, RecvWr, Sge};

#[derive(Debug)]
pub(crate) struct RecvQueue {
    work: WorkQueue<RecvWqe>,
}

impl RecvQueue {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> RecvQueue {
        let depth = if uses_srq { 1 } else { caps.max_recv_wr };
        let mut work = WorkQueue::new(depth, caps.max_recv_sge);
        work.is_shared = uses_srq;
        RecvQueue { work }
    }

    pub(crate) fn uses_srq(&self) -> bool {
        self.work.is_shared
    }

    pub(crate) fn len(&self) -> u32 {
        self.work.wqes.len()
    }

    /// The places of the next `count` WQEs, and of their scatter lists.
    #[inline]
    pub(crate) fn next_slots(&self, count: usize) -> (&[impl Sized], &[Sge]) {
        self.work.next_slots(count)
    }

    pub(crate) fn post(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        if self.work.is_shared {
            return Err(PostError::HasSrq);
        }
        let len = self.work.check(sges)?;
        self.work.push(RecvWqe { wr_id: wr.wr_id, len, num_sge: sges.len() as u8 }, sges);
        Ok(())
    }

    /// Returns whether there is a WQE for a message. With an SRQ, takes one from it if needed.
    #[inline]
    pub(crate) fn ensure(&mut self, env: &mut impl Env) -> bool {
        !self.work.wqes.is_empty()
            || self.work.is_shared && self.take_shared(0, env) == Found::Receive
    }

    /// Checks whether the oldest WQE has room for a message of `len` bytes. With an SRQ, takes one
    /// from it if needed; one that is too small stays in the SRQ.
    pub(crate) fn ensure_room(&mut self, len: u32, env: &mut impl Env) -> Found {
        match self.work.wqes.front() {
            Some(wqe) if wqe.len >= len => Found::Receive,
            Some(_) => Found::TooSmall,
            None if self.work.is_shared => self.take_shared(len, env),
            None => Found::Nothing,
        }
    }

    fn take_shared(&mut self, room: u32, receives: &mut impl SharedReceives) -> Found {
        let work = &mut self.work;
        receives.take_receive(room, |wr, sges| {
            // An SRQ checks posts by the same rules, and its lists are no longer than this queue's.
            let len = sges.iter().map(|sge| sge.len).sum();
            work.push(RecvWqe { wr_id: wr.wr_id, len, num_sge: sges.len() as u8 }, sges);
        })
    }

    /// Passes the oldest WQE to `place` and removes it, without a completion. Returns its number.
    pub(crate) fn lend(&mut self, place: impl FnOnce(&RecvWr, &[Sge])) -> Option<u64> {
        let at = self.work.wqes.head();
        let RecvWqe { wr_id, num_sge, .. } = *self.work.wqes.pop()?;
        place(&RecvWr { wr_id }, self.work.sges(at, num_sge));
        Some(wr_id)
    }

    /// Number of WQEs that have left the queue, modulo 2^32.
    pub(crate) fn left(&self) -> u32 {
        self.work.wqes.head()
    }

    /// Returns whether the oldest WQE has room for a packet's payload after `received` bytes of its
    /// message; counts a payload that is too long.
    #[inline]
    pub(crate) fn has_room(&self, received: u32, payload: &[u8], out: &mut impl Output) -> bool {
        let len = self.work.wqes.front().map_or(0, |wqe| wqe.len);
        let fits = payload.len() as u32 <= len.saturating_sub(received);
        if !fits {
            out.count(Counter::RespLocalLengthError);
        }
        fits
    }

    /// An acknowledgement with the current number of credits. A message in progress counts as not
    /// received yet, so its WQE is included.
    //= check A19 — a QP with an SRQ grants no credits: other QPs may take its receives
    #[inline]
    pub(crate) fn ack(&self, receives: &impl SharedReceives) -> Syndrome {
        if self.work.is_shared {
            return Syndrome::UNLIMITED;
        }
        Syndrome::ack(self.len() + receives.receives_waiting())
    }

    /// Writes message data to the oldest WQE, from byte `offset` of its scatter list on.
    #[inline]
    pub(crate) fn scatter(
        &self,
        offset: u32,
        data: &[u8],
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Result<(), MemoryFault> {
        let Some(wqe) = self.work.wqes.front() else { return Ok(()) };
        let sges = self.work.sges(self.work.wqes.head(), wqe.num_sge);
        scatter(sges, offset, data, by, memory)
    }

    /// Completes the oldest WQE with a message of `byte_len` bytes, of which this is the last
    /// packet.
    //= check L6 — length, immediate data and invalidated key as received
    #[inline]
    pub(crate) fn complete_message(
        &mut self,
        qpn: Qpn,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
        out: &mut impl Output,
    ) {
        let op = packet.op;
        let cqe = Cqe {
            byte_len,
            imm: (op.has(Header::ImmDt) && !seeded!(ImmLost)).then_some(packet.ext.imm),
            extra: match op.has(Header::Ieth) {
                true => Extra::Invalidated(packet.ext.ieth.rkey),
                false => Extra::Nothing,
            },
            solicited: packet.bth.solicited && !seeded!(SolicitedLost),
            ..Cqe::new(0, WcStatus::Success, opcode, qpn)
        };
        self.complete_front(cqe, out);
    }

    /// Completes the oldest WQE with `cqe`; `wr_id` and `position` are filled in here.
    pub(crate) fn complete_front(&mut self, mut cqe: Cqe, out: &mut impl Output) {
        let position = self.work.wqes.head().wrapping_add(1);
        let Some(wqe) = self.work.wqes.pop() else { return };
        (cqe.wr_id, cqe.position) = (wqe.wr_id, position);
        out.count(Counter::RecvMessages);
        out.complete(Side::Recv, cqe);
    }

    /// Completes the oldest WQE with an error.
    pub(crate) fn fail_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        let position = self.work.wqes.head().wrapping_add(1);
        let Some(wqe) = self.work.wqes.pop() else { return };
        out.count(match status {
            WcStatus::WrFlushErr => Counter::RespCqeFlushError,
            _ => Counter::RespCqeError,
        });
        let cqe = Cqe::new(wqe.wr_id, status, WcOpcode::Recv, qpn);
        out.complete(Side::Recv, Cqe { position, ..cqe });
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        while !self.work.wqes.is_empty() {
            self.fail_front(qpn, WcStatus::WrFlushErr, out);
        }
    }

    pub(crate) fn clear(&mut self) {
        if seeded!(StaleAfterReset) {
            return;
        }
        self.work.wqes.clear();
    }
}
