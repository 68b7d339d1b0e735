//! Posting work of a pair, with short forms for the common requests.

use uroce_wire::{ImmDt, Placement, Selectivity, Srqn};

use super::{Pair, SRQN};
use uroce_transport::{QpType, RecvWr, SendOp, SendWr, Sge};

impl Pair {
    /// Posts a signalled send work request and returns its number.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post(&mut self, end: usize, op: SendOp, sges: &[Sge]) -> u64 {
        self.post_wr(end, op, sges, true)
    }

    /// Posts a send work request, signalled or not, and returns its number.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post_wr(&mut self, end: usize, op: SendOp, sges: &[Sge], signaled: bool) -> u64 {
        self.post_as(end, op, sges, |wr| wr.signaled = signaled)
    }

    /// Posts a send work request changed by `change`, and returns its number.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post_as(
        &mut self,
        end: usize,
        op: SendOp,
        sges: &[Sge],
        change: impl FnOnce(&mut SendWr),
    ) -> u64 {
        let mut wr = self.send_wr(op);
        change(&mut wr);
        self.world.post_send(self.ends[end], &wr, sges).expect("a QP that takes sends");
        wr.wr_id
    }

    /// Posts a signalled send work request with inline data, and returns its number.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post_inline(&mut self, end: usize, op: SendOp, data: &[u8]) -> u64 {
        let wr = self.send_wr(op);
        self.world.post_inline(self.ends[end], &wr, data).expect("a QP that takes inline data");
        wr.wr_id
    }

    /// A signalled send work request with the next number.
    pub fn send_wr(&mut self, op: SendOp) -> SendWr {
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        SendWr { wr_id, op, signaled: true, solicited: false, fence: false, srqn: SRQN }
    }

    /// Posts a WRITE of the first `len` bytes of the local region to the start of the peer's.
    pub fn write(&mut self, end: usize, len: u32) -> u64 {
        let op = self.write_op(end, 0, None);
        self.post(end, op, &[self.local[end].sge(0, len)])
    }

    /// Posts a WRITE of the first `len` bytes to the second half of the peer's region.
    pub fn write_far(&mut self, end: usize, len: u32) -> u64 {
        let op = self.write_op(end, self.terms.region / 2, None);
        self.post(end, op, &[self.local[end].sge(0, len)])
    }

    /// Posts a WRITE with immediate data of the first `len` bytes.
    pub fn write_imm(&mut self, end: usize, len: u32, imm: u32) -> u64 {
        let op = self.write_op(end, 0, Some(ImmDt(imm)));
        self.post(end, op, &[self.local[end].sge(0, len)])
    }

    /// A WRITE operation to `offset` in the peer's region.
    pub fn write_op(&self, end: usize, offset: u32, imm: Option<ImmDt>) -> SendOp {
        let target = self.remote[1 - end];
        SendOp::Write { va: target.va(u64::from(offset)), rkey: target.rkey(), imm }
    }

    /// Posts a SEND of the first `len` bytes of the local region.
    pub fn send(&mut self, end: usize, len: u32) -> u64 {
        self.post(end, SendOp::Send { imm: None }, &[self.local[end].sge(0, len)])
    }

    /// Posts a SEND with immediate data of the first `len` bytes.
    pub fn send_imm(&mut self, end: usize, len: u32, imm: u32) -> u64 {
        let op = SendOp::Send { imm: Some(ImmDt(imm)) };
        self.post(end, op, &[self.local[end].sge(0, len)])
    }

    /// Posts a datagram with the first `len` bytes of the local region, from a UD QP to its peer.
    pub fn send_to(&mut self, end: usize, len: u32, imm: Option<u32>) -> u64 {
        let op = self.send_to_op(end, imm);
        self.post(end, op, &[self.local[end].sge(0, len)])
    }

    /// A datagram operation to the peer, with the peer's Q_Key.
    pub fn send_to_op(&self, end: usize, imm: Option<u32>) -> SendOp {
        SendOp::SendTo {
            ah: self.handles[end],
            dest_qpn: self.qpn(1 - end),
            qkey: self.terms.half[1 - end].qkey,
            imm: imm.map(ImmDt),
        }
    }

    /// Posts a READ of the first `len` bytes of the peer's region.
    pub fn read(&mut self, end: usize, len: u32) -> u64 {
        let from = self.remote[1 - end];
        let op = SendOp::Read { va: from.va(0), rkey: from.rkey() };
        self.post(end, op, &[self.local[end].sge(self.landing(), len)])
    }

    /// Posts a fetch and add to the first word of the peer's region.
    pub fn fetch_add(&mut self, end: usize, add: u64) -> u64 {
        let word = self.remote[1 - end];
        let op = SendOp::FetchAdd { va: word.va(0), rkey: word.rkey(), add };
        self.post(end, op, &[self.local[end].sge(self.landing(), 8)])
    }

    /// Posts an ATOMIC WRITE of the first 8 bytes of the local region to the start of the peer's.
    pub fn atomic_write(&mut self, end: usize) -> u64 {
        let word = self.remote[1 - end];
        let op = SendOp::AtomicWrite { va: word.va(0), rkey: word.rkey() };
        self.post(end, op, &[self.local[end].sge(0, 8)])
    }

    /// Posts a FLUSH of the first `len` bytes of the peer's region.
    pub fn flush(&mut self, end: usize, len: u32, placement: Placement) -> u64 {
        let op = self.flush_op(end, len, placement);
        self.post(end, op, &[])
    }

    /// A FLUSH operation of the first `len` bytes of the peer's region.
    pub fn flush_op(&self, end: usize, len: u32, placement: Placement) -> SendOp {
        let target = self.remote[1 - end];
        let (va, rkey, selectivity) = (target.va(0), target.rkey(), Selectivity::Range);
        SendOp::Flush { va, rkey, len, placement, selectivity }
    }

    /// Posts a compare and swap of the first word of the peer's region.
    pub fn compare_swap(&mut self, end: usize, compare: u64, swap: u64) -> u64 {
        let word = self.remote[1 - end];
        let op = SendOp::CompareSwap { va: word.va(0), rkey: word.rkey(), compare, swap };
        self.post(end, op, &[self.local[end].sge(self.landing(), 8)])
    }

    /// Posts a receive of `len` bytes; all receives of an end use the same buffer.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn recv(&mut self, end: usize, len: u32) -> u64 {
        self.post_recv(end, &[self.local[end].sge(self.inbox(), len)])
    }

    /// Posts a receive with this scatter list.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post_recv(&mut self, end: usize, sges: &[Sge]) -> u64 {
        if self.terms.type_of(end) == QpType::XrcRecv {
            return self.post_named_recv(end, SRQN, sges);
        }
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        self.world
            .post_recv(self.ends[end], &RecvWr { wr_id }, sges)
            .expect("a QP that takes receives");
        wr_id
    }

    /// Posts a receive to an XRC shared receive queue of an end's node.
    pub fn post_named_recv(&mut self, end: usize, srqn: Srqn, sges: &[Sge]) -> u64 {
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        let queue = self.world.node_mut(end as u16).named_mut(srqn);
        queue.receives.push_back((RecvWr { wr_id }, sges.to_vec()));
        wr_id
    }

    /// Posts a receive of `len` bytes to the shared receive queue of an end's node.
    pub fn shared_recv(&mut self, end: usize, len: u32) -> u64 {
        self.post_shared_recv(end, &[self.local[end].sge(self.inbox(), len)])
    }

    /// Posts a receive to the shared receive queue of an end's node.
    pub fn post_shared_recv(&mut self, end: usize, sges: &[Sge]) -> u64 {
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        self.world.node_mut(end as u16).srq.push_back((RecvWr { wr_id }, sges.to_vec()));
        wr_id
    }
}
