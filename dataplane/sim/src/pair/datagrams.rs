//! Reliable datagrams of a pair of which the ends are EECs.

use uroce_wire::{ImmDt, Qkey};

use super::{PD, Pair, RDD};
use crate::world::names::At;
use uroce_transport::{
    QpChange, QpInit, QpState, QpType, RdAddress, RdAttr, RecvWr, SendOp, SendWr, Sge,
};

impl Pair {
    /// Adds an RD QP in RTS at an end's node, with the Q_Key, access and RNR timer of that half.
    pub fn add_rd(&mut self, end: usize) -> At {
        self.add_rd_as(end, |_| ())
    }

    /// Adds an RD QP in RTS, with parameters changed by `change`.
    pub fn add_rd_as(&mut self, end: usize, change: impl FnOnce(&mut QpInit)) -> At {
        let at = self.add_rd_in_reset(end, change);
        for change in self.rd_changes(end) {
            self.world.modify(at, &change).expect("a legal change");
        }
        at
    }

    /// Adds an RD QP in RESET, with parameters changed by `change`.
    pub fn add_rd_in_reset(&mut self, end: usize, change: impl FnOnce(&mut QpInit)) -> At {
        let node = self.ends[end].node;
        let mut init = QpInit { rdd: RDD, ..QpInit::new(QpType::Rd, self.terms.caps) };
        change(&mut init);
        let tag = 0x4000 + self.world.node(node).slots.len() as u32;
        self.world.add_qp(node, tag, PD, &init)
    }

    /// The changes of an RD QP from RESET to INIT, to RTR and to RTS, by the terms.
    pub fn rd_changes(&self, end: usize) -> [QpChange; 3] {
        let me = &self.terms.half[end];
        let attr = RdAttr {
            access: me.access,
            max_dest_rd_atomic: me.max_dest_rd_atomic,
            min_rnr_timer: me.min_rnr_timer,
        };
        QpChange::reliable_datagram_steps(me.qkey, &attr)
    }

    /// Destination `to` for requests of an end, by the first EEC.
    pub fn rd_address(&self, end: usize, to: At) -> RdAddress {
        let qkey: Qkey = self.terms.half[1 - end].qkey;
        RdAddress { eecn: self.qpn(end), dest_qpn: self.world.qp(to).qpn(), qkey }
    }

    /// Posts a signalled request of the RD QP `from` to `to`, by the first EEC, and returns its
    /// number.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post_rd(&mut self, from: At, to: At, op: SendOp, sges: &[Sge]) -> u64 {
        let address = self.rd_address(usize::from(from.node), to);
        self.post_rd_as(from, &address, op, sges, |_| ())
    }

    /// Posts a request of the RD QP `from` to any destination, changed by `change`, and returns its
    /// number.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn post_rd_as(
        &mut self,
        from: At,
        to: &RdAddress,
        op: SendOp,
        sges: &[Sge],
        change: impl FnOnce(&mut SendWr),
    ) -> u64 {
        let mut wr = self.send_wr(op);
        change(&mut wr);
        self.world.post_datagram(from, &wr, to, sges).expect("a QP that takes sends");
        wr.wr_id
    }

    /// Posts a SEND of the first `len` bytes of the local region.
    pub fn rd_send(&mut self, from: At, to: At, len: u32) -> u64 {
        let sge = self.local[usize::from(from.node)].sge(0, len);
        self.post_rd(from, to, SendOp::Send { imm: None }, &[sge])
    }

    /// Posts a WRITE of the first `len` bytes to the start of the peer's region, with immediate
    /// data if given.
    pub fn rd_write(&mut self, from: At, to: At, len: u32, imm: Option<u32>) -> u64 {
        let end = usize::from(from.node);
        let op = self.write_op(end, 0, imm.map(ImmDt));
        self.post_rd(from, to, op, &[self.local[end].sge(0, len)])
    }

    /// Posts a READ of the first `len` bytes of the peer's region.
    pub fn rd_read(&mut self, from: At, to: At, len: u32) -> u64 {
        let end = usize::from(from.node);
        let source = self.remote[1 - end];
        let op = SendOp::Read { va: source.va(0), rkey: source.rkey() };
        self.post_rd(from, to, op, &[self.local[end].sge(self.landing(), len)])
    }

    /// Posts a fetch and add to the first word of the peer's region.
    pub fn rd_fetch_add(&mut self, from: At, to: At, add: u64) -> u64 {
        let end = usize::from(from.node);
        let word = self.remote[1 - end];
        let op = SendOp::FetchAdd { va: word.va(0), rkey: word.rkey(), add };
        self.post_rd(from, to, op, &[self.local[end].sge(self.landing(), 8)])
    }

    /// Posts a compare and swap of the first word of the peer's region.
    pub fn rd_compare_swap(&mut self, from: At, to: At, compare: u64, swap: u64) -> u64 {
        let end = usize::from(from.node);
        let word = self.remote[1 - end];
        let op = SendOp::CompareSwap { va: word.va(0), rkey: word.rkey(), compare, swap };
        self.post_rd(from, to, op, &[self.local[end].sge(self.landing(), 8)])
    }

    /// Posts a receive of `len` bytes to an RD QP; all receives of a node use the same buffer.
    ///
    /// # Panics
    /// If the QP refuses the request.
    pub fn rd_recv(&mut self, at: At, len: u32) -> u64 {
        let sge = self.local[usize::from(at.node)].sge(self.inbox(), len);
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        self.world.post_recv(at, &RecvWr { wr_id }, &[sge]).expect("a QP that takes receives");
        wr_id
    }

    /// State of any QP.
    pub fn state_at(&self, at: At) -> QpState {
        self.world.qp(at).state()
    }
}
