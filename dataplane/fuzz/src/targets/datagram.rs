//! Z14: packets with any fields and a right ICRC, given to an EEC with two RD QPs that send and
//! receive, fail and begin anew.
//!
//! Invariants
//! - Requests to the RD QPs write to open memory and to receives, and to nothing else.
//! - Each receive and each send of an RD QP completes at most once; sends complete in order.
//! - No request takes the EEC out of RTS.
//! - Every packet that leaves is one of RD, to the peer's EEC. Requests carry the Q_Key and an RD
//!   QP, and one message is sent at a time.

use super::peer::{
    CLOSED, LEN, LOCAL, MTU, OPEN, OURS, PD, QKEY, THEIRS, World, buffer, carries_data, first_psn,
    packet_bytes, path,
};
use crate::Input;
use std::collections::VecDeque;
use uroce_transport::{
    AccessFlags, Inbound, Instant, Qp, QpCaps, QpChange, QpInit, QpState, QpType, RdAddress,
    RdAttr, RecvWr, RtrAttr, RtsAttr, SendOp, SendWr, Side, WcStatus,
};
use uroce_wire::{
    Bth, ExtHeaders, NakCode, OpCode, Operation, Packet, PathMtu, Psn, Qkey, Qpn, Rkey, Srqn,
    Syndrome, Va,
};

/// The RD QPs.
const MEMBERS: [Qpn; 2] = [Qpn::new(0x31), Qpn::new(0x32)];
/// RD QPs of the peer.
const SOURCES: [Qpn; 2] = [Qpn::new(0x51), Qpn::new(0x52)];

const CAPS: QpCaps = QpCaps {
    max_send_wr: 8,
    max_recv_wr: 8,
    max_send_sge: 2,
    max_recv_sge: 2,
    max_inline_data: 64,
};

/// Requests of one RD QP that have not completed.
#[derive(Default)]
struct Open {
    sends: VecDeque<u64>,
    recvs: Vec<u64>,
}

struct Siege {
    world: World,
    open: [Open; 2],
    now: Instant,
    /// The PSN that is expected next, as far as answers show it.
    expected: Psn,
    /// PSN and source of the request that was sent last.
    asked: (Psn, Qpn),
    next_wr_id: u64,
    /// A response has come, or a timer has expired: either may end the EEC.
    may_end: bool,
}

pub(super) fn run(input: &mut Input<'_>) {
    let mut siege = Siege::new(first_psn(input));
    for _ in 0..64 {
        if input.is_empty() || siege.state() != QpState::Rts {
            break;
        }
        siege.may_end = false;
        match input.below(16) {
            0..=2 => siege.post_send(input),
            3 | 4 => siege.post_recv(input),
            5 => siege.leave(input),
            6 => siege.expire(),
            _ => siege.attack(input),
        }
        siege.poll();
        siege.check(input);
    }
}

impl Siege {
    fn new(psn: Psn) -> Siege {
        let mut world = World::new();
        let eec = Qp::new(OURS, PD, &QpInit::new(QpType::Eec, CAPS));
        world.put(eec);
        for qpn in MEMBERS {
            world.put(Qp::new(qpn, PD, &QpInit::new(QpType::Rd, CAPS)));
        }
        let rtr = RtrAttr {
            path_mtu: PathMtu::B256,
            dest_qpn: THEIRS,
            rq_psn: psn,
            max_dest_rd_atomic: 2,
            min_rnr_timer: 12,
        };
        let rts =
            RtsAttr { sq_psn: psn, timeout: 14, retry_cnt: 1, rnr_retry: 1, max_rd_atomic: 2 };
        let steps = [
            QpChange::to_init(1),
            QpChange { path: Some(path().into()), ..QpChange::to_rtr(QpType::Eec, &rtr) },
            QpChange::to_rts(QpType::Eec, &rts),
        ];
        let open = [Open::default(), Open::default()];
        let (now, asked) = (Instant::from_nanos(1_000_000), (psn, MEMBERS[0]));
        let mut siege =
            Siege { world, open, now, expected: psn, asked, next_wr_id: 1, may_end: false };
        siege.change(OURS, &steps);
        for qpn in MEMBERS {
            siege.begin(qpn);
        }
        siege
    }

    /// Runs `work` on a QP.
    fn on<R>(&mut self, qpn: Qpn, work: impl FnOnce(&mut Qp, &mut World) -> R) -> R {
        self.world.work_on(qpn, work).expect("a QP that exists")
    }

    fn state(&mut self) -> QpState {
        self.on(OURS, |qp, _| qp.state())
    }

    fn change(&mut self, qpn: Qpn, steps: &[QpChange]) {
        let now = self.now;
        for step in steps {
            let result = self.on(qpn, |qp, world| qp.modify(now, step, world));
            result.expect("a regular way up");
        }
    }

    /// Takes an RD QP from RESET to RTS.
    fn begin(&mut self, qpn: Qpn) {
        let attr = RdAttr { access: AccessFlags::all(), max_dest_rd_atomic: 1, min_rnr_timer: 12 };
        self.change(qpn, &QpChange::reliable_datagram_steps(QKEY, &attr));
    }

    fn post_send(&mut self, input: &mut Input<'_>) {
        let member = input.below(2);
        let (va, rkey) = (Va(OPEN.1), Rkey(OPEN.0));
        let op = match input.below(5) {
            0 => SendOp::Write { va, rkey, imm: None },
            1 => SendOp::Read { va, rkey },
            2 => SendOp::FetchAdd { va, rkey, add: 1 },
            _ => SendOp::Send { imm: None },
        };
        let len = if op.is_atomic() { 8 } else { input.pick(&[0, 100, 256, 700]) };
        let to = RdAddress {
            eecn: if input.below(8) == 1 { Qpn::new(0x99) } else { OURS },
            dest_qpn: SOURCES[input.below(2)],
            qkey: QKEY,
        };
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        let (signaled, solicited, fence, srqn) = (true, false, false, Srqn::default());
        let wr = SendWr { wr_id, op, signaled, solicited, fence, srqn };
        let sge = buffer(wr_id, len);
        self.open[member].sends.push_back(wr_id);
        let posted =
            self.on(MEMBERS[member], |qp, world| qp.post_datagram(&wr, &to, &[sge], world));
        if posted.is_err() {
            self.open[member].sends.pop_back();
        }
    }

    fn post_recv(&mut self, input: &mut Input<'_>) {
        let member = input.below(2);
        let wr_id = self.next_wr_id;
        self.next_wr_id += 1;
        let sge = buffer(wr_id, input.pick(&[700, 300, 40, 0]));
        self.open[member].recvs.push(wr_id);
        let wr = RecvWr { wr_id };
        let posted = self.on(MEMBERS[member], |qp, world| qp.post_recv(&wr, &[sge], world));
        if posted.is_err() {
            self.open[member].recvs.pop();
        }
    }

    /// Takes an RD QP to ERR, or through RESET back to RTS.
    fn leave(&mut self, input: &mut Input<'_>) {
        let member = input.below(2);
        let (qpn, now) = (MEMBERS[member], self.now);
        if input.below(2) == 0 {
            return self.on(qpn, |qp, world| qp.fail(world));
        }
        let reset = QpChange::to(QpState::Reset);
        self.on(qpn, |qp, world| qp.modify(now, &reset, world)).expect("from any state");
        self.open[member] = Open::default();
        self.begin(qpn);
    }

    /// Lets the EEC's next timer expire.
    fn expire(&mut self) {
        let due = self.on(OURS, |qp, _| qp.next_timeout());
        let Some(due) = due else { return };
        self.now = self.now.max(due);
        let now = self.now;
        self.on(OURS, |qp, world| qp.handle_timeout(now, world));
        // Exhausted retries end the EEC.
        self.may_end = true;
    }

    fn attack(&mut self, input: &mut Input<'_>) {
        let (bth, ext, payload) = self.craft(input);
        let bytes = packet_bytes(&bth, &ext, &payload);
        let Ok(packet) = Packet::parse(&bytes) else { return };
        let (src, dst) = (path().dst, path().src);
        let l3 = [0x45; 20];
        let inbound = Inbound { src, dst, port: 1, l3: &l3, frame: &[], packet };
        let now = self.now;
        self.may_end |= packet.op.is_response();
        let result = self.on(OURS, |qp, world| qp.handle_packet(now, &inbound, world));
        let reached = result.map_or_else(|reason| 1 + reason as u32, |_| 0);
        input.reach(bth.opcode.0.into(), reached);
    }

    /// A packet with fields that are right, nearly right, or random.
    fn craft(&self, input: &mut Input<'_>) -> (Bth, ExtHeaders, Vec<u8>) {
        let byte = input.u8();
        let opcode = OpCode(if byte >= 0xf0 { input.u8() } else { 0x40 | (byte % 0x16) });
        let is_response = opcode.info().is_some_and(|row| row.is_response());
        let flags = input.u8();
        let base = if is_response { self.asked.0 } else { self.expected };
        let psn = match flags & 7 {
            0 => base.plus(1 + u32::from(input.u8() % 8)),
            1 => base.minus(1 + u32::from(input.u8() % 8)),
            2 if flags & 0x80 != 0 => Psn::new(input.u32()),
            _ => base,
        };
        let len = match input.below(5) {
            _ if !carries_data(opcode) => 0,
            0 => input.below(256),
            1 => MTU + 4,
            _ => MTU,
        };
        let member = MEMBERS[input.below(2)];
        let dest_qpn = match is_response {
            _ if input.below(16) == 1 => Qpn::new(0x77),
            true => self.asked.1,
            false => member,
        };
        let bth = Bth {
            opcode,
            psn,
            dest_qpn,
            ack_req: flags & 16 == 0,
            pad_count: (len as u8).wrapping_neg() & 3,
            ..Bth::default()
        };
        (bth, extension(input, len as u32), vec![0x77; len])
    }

    fn poll(&mut self) {
        let now = self.now;
        self.on(OURS, |qp, world| qp.poll_transmit(now, 64, world));
        for sent in std::mem::take(&mut self.world.sent) {
            let row = sent.bth.opcode.info().expect("a known opcode");
            assert!(sent.bth.opcode.is_of_rd(), "{}", row.name);
            assert_eq!(sent.ext.rdeth.eecn, THEIRS.value());
            assert!(sent.len as usize <= MTU);
            if row.is_request() {
                assert_eq!(sent.ext.deth.qkey, QKEY);
                assert!(MEMBERS.contains(&sent.ext.deth.src_qpn));
                self.asked = (sent.bth.psn, sent.ext.deth.src_qpn);
                continue;
            }
            match sent.ext.aeth.syndrome {
                _ if row.operation != Operation::Acknowledge => {}
                Syndrome::Ack { .. } => self.expected = sent.bth.psn.next(),
                Syndrome::RnrNak { timer } => assert_eq!(timer, 12),
                Syndrome::Nak(code) => {
                    assert!(!matches!(code, NakCode::Reserved(_)));
                    self.expected = sent.bth.psn;
                }
                Syndrome::Reserved(byte) => panic!("syndrome {byte:02x}"),
            }
        }
    }

    fn check(&mut self, input: &mut Input<'_>) {
        assert!(self.world.closed.iter().all(|byte| *byte == 0x5a), "closed memory was written");
        for written in self.world.written.drain(..) {
            let region = if written.is_remote { OPEN } else { LOCAL };
            let is_inside = written.va >= region.1 && written.va + written.len <= region.1 + LEN;
            assert!(is_inside, "{written:?}");
        }
        for (side, cqe) in std::mem::take(&mut self.world.done) {
            let member = MEMBERS.iter().position(|qpn| *qpn == cqe.qpn).expect("an RD QP");
            let open = &mut self.open[member];
            match side {
                Side::Send => {
                    assert_eq!(open.sends.pop_front(), Some(cqe.wr_id), "out of order");
                }
                Side::Recv => {
                    let at = open.recvs.iter().position(|wr_id| *wr_id == cqe.wr_id);
                    open.recvs.remove(at.expect("a receive that was posted, once"));
                }
            }
            let status = if cqe.status == WcStatus::Success { 0 } else { 1 };
            input.reach(0x1_0000 + side as u32, status);
        }
        assert!(self.may_end || self.state() == QpState::Rts, "an EEC ended for no reason");
    }
}

fn extension(input: &mut Input<'_>, len: u32) -> ExtHeaders {
    let mut ext = ExtHeaders::default();
    let offset = match input.below(4) {
        0 => LEN - u64::from(input.u8()),
        1 => (u64::from(input.u16()) % LEN) & !7,
        _ => 0,
    };
    let va = OPEN.1.wrapping_add(offset);
    let rkey = match input.below(8) {
        0 => Rkey(input.u32()),
        1 => Rkey(CLOSED.0),
        _ => Rkey(OPEN.0),
    };
    ext.reth.va = Va(va);
    ext.reth.rkey = rkey;
    ext.reth.dma_len = match input.below(4) {
        0 => u32::from(input.u16() % 2000),
        1 => MTU as u32 + u32::from(input.u8()),
        _ => len,
    };
    ext.atomic.va = Va(va & !7);
    ext.atomic.rkey = rkey;
    ext.aeth.syndrome =
        Syndrome::from_byte(input.pick(&[0x1f, 0x1f, 0x2c, 0x60, 0x61, 0x62, 0x64]));
    ext.rdeth.eecn = OURS.value();
    ext.deth.qkey = if input.below(16) == 1 { Qkey(!QKEY.0) } else { QKEY };
    ext.deth.src_qpn = SOURCES[input.below(2)];
    ext
}

/// Inputs from which the search begins.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(14);
    (0..8).map(|_| std::iter::repeat_with(|| rng.u8(..)).take(400).collect()).collect()
}
