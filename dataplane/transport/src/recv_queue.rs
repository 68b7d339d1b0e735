//! The receive queue: what all responders do with receive WQEs.
//!
//! What holds: a message fills the oldest WQE; WQEs complete in order. With an SRQ there is at most
//! one WQE here, taken from it when a message needed one, and it completes on this QP.

use uroce_wire::{Qpn, Syndrome};

use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::env::{Accessor, Env, Found, Memory, MemoryFault, Output, SharedReceives, Side};
use crate::queue::{QpCaps, WorkQueue, scatter};
use crate::wqe::{PostError, RecvWqe, RecvWr, Sge};

#[derive(Debug)]
pub(crate) struct RecvQueue {
    work: WorkQueue<RecvWqe>,
    /// WQEs that have left, modulo 2^32.
    left: u32,
}

impl RecvQueue {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> RecvQueue {
        let depth = if uses_srq { 1 } else { caps.max_recv_wr };
        let mut work = WorkQueue::new(depth, caps.max_recv_sge);
        work.is_shared = uses_srq;
        RecvQueue { work, left: 0 }
    }

    pub(crate) fn uses_srq(&self) -> bool {
        self.work.is_shared
    }

    pub(crate) fn len(&self) -> u32 {
        self.work.wqes.len()
    }

    /// Where the next `count` WQEs will be, and their scatter lists.
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

    /// Is there a WQE for a message? One may come from the SRQ for it.
    #[inline]
    pub(crate) fn ensure(&mut self, env: &mut impl Env) -> bool {
        !self.work.wqes.is_empty()
            || self.work.is_shared && self.take_shared(0, env) == Found::Receive
    }

    /// Does the oldest WQE hold a message of `len` bytes? One may come from the SRQ for it; one that
    /// is too small stays there, for any QP.
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
            // An SRQ checks its posts by the same rules, and its lists are no longer than ours.
            let len = sges.iter().map(|sge| sge.len).sum();
            work.push(RecvWqe { wr_id: wr.wr_id, len, num_sge: sges.len() as u8 }, sges);
        })
    }

    /// Bytes that the oldest WQE holds.
    pub(crate) fn front_len(&self) -> u32 {
        self.work.wqes.front().map_or(0, |wqe| wqe.len)
    }

    /// An acknowledgement with the credits that are to be granted now. A message in progress counts
    /// as not received yet, and so does its WQE.
    //= check A19 — a QP with an SRQ has none to grant: other QPs may take what is there
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

    /// Completes the oldest WQE with a message; its number is filled in here.
    pub(crate) fn complete_front(&mut self, mut cqe: Cqe, out: &mut impl Output) {
        let Some(wqe) = self.work.wqes.pop() else { return };
        self.left = self.left.wrapping_add(1);
        (cqe.wr_id, cqe.position) = (wqe.wr_id, self.left);
        out.count(Counter::RecvMessages);
        out.complete(Side::Recv, cqe);
    }

    /// Completes the oldest WQE with an error.
    pub(crate) fn fail_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        let Some(wqe) = self.work.wqes.pop() else { return };
        self.left = self.left.wrapping_add(1);
        out.count(match status {
            WcStatus::WrFlushErr => Counter::RespCqeFlushError,
            _ => Counter::RespCqeError,
        });
        let cqe = Cqe::new(wqe.wr_id, status, WcOpcode::Recv, qpn);
        out.complete(Side::Recv, Cqe { position: self.left, ..cqe });
    }

    /// Completes everything flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        while !self.work.wqes.is_empty() {
            self.fail_front(qpn, WcStatus::WrFlushErr, out);
        }
    }

    pub(crate) fn clear(&mut self) {
        if seeded!(StaleAfterReset) {
            return;
        }
        self.left = self.left.wrapping_add(self.len());
        self.work.wqes.clear();
    }
}
