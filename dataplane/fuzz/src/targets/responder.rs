//! Z2: packets with any fields and a right ICRC, given to a responder in any state.
//!
//! Invariants
//! - A dropped packet changes nothing.
//! - A WRITE writes to the range that its first packet names, an ATOMIC or ATOMIC WRITE to its
//!   word, a SEND to the oldest receive; nothing else is written.
//! - Receives complete once each, in order, and at most one per packet except for flushes.
//! - No datagram changes a UD QP's state or fails a receive.
//! - RC, and an XRC target, answers with packets that a responder may send, with at most one
//!   acknowledgement per packet, and goes to ERR after a NAK that ends the connection. UC and UD
//!   answer nothing.
//! - An XRC target serves only requests that name its domain's queue.
//! - With selective repeat a packet that comes early has no effect before its turn. The packets
//!   held, and those that answers list, are the ones that were taken and not given back.

use super::peer::{
    CLOSED, LEN, LOCAL, MTU, OPEN, OURS, QKEY, QUEUE, Sent, THEIRS, Terms, World, buffer,
    carries_data, first_psn, packet_bytes, path, qp_in,
};
use crate::Input;
use std::collections::{BTreeMap, VecDeque};
use uroce_transport::{
    DropReason, Handled, Inbound, Instant, Qp, QpState, QpType, RecvWr, Side, WcStatus,
};
use uroce_wire::{
    Bth, ExtHeaders, Feth, Header, NakCode, OpCode, Operation, Packet, Pkey, Psn, Qkey, Rkey, Srqn,
    Syndrome, Va,
};

const STATES: [QpState; 8] = [
    QpState::Rtr,
    QpState::Rts,
    QpState::Rts,
    QpState::Sqd,
    QpState::Rtr,
    QpState::Reset,
    QpState::Init,
    QpState::Err,
];

/// Headers and payload of a packet.
type Crafted = (Bth, ExtHeaders, Vec<u8>);

struct Siege {
    qp: Qp,
    world: World,
    /// Receives that have not completed: their numbers and lengths.
    posted: VecDeque<(u64, u32)>,
    /// Address and length of the range that the WRITE in progress may write.
    announced: (u64, u64),
    /// The PSN that is expected next, as far as answers show it.
    expected: Psn,
    /// Packets that are held, by PSN.
    held: BTreeMap<u32, Crafted>,
    /// A receive has completed with an error, which ends the QP; RC sends its NAK first.
    has_failed: bool,
}

pub(super) fn run(input: &mut Input<'_>) {
    let qp_type = input.pick(&[QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
    let state = input.pick(&STATES);
    let (uses_srq, psn) = (input.below(2) == 1, first_psn(input));
    let choice = input.u8();
    let is_extended = qp_type == QpType::Rc && choice & 0xe0 == 0x20;
    let qp_type = if is_extended { QpType::XrcRecv } else { qp_type };
    let uses_srq = uses_srq || is_extended;
    let rd_atomic = choice & 3;
    let selective_repeat = qp_type == QpType::Rc && choice & 0xc0 != 0;
    let (retries, keepalive_ms) = (1, 0);
    let terms =
        Terms { qp_type, uses_srq, psn, rd_atomic, retries, selective_repeat, keepalive_ms };
    let mut world = World::new();
    let qp = qp_in(state, &terms, &mut world);
    let (posted, announced, held) = (VecDeque::new(), (0, 0), BTreeMap::new());
    let mut siege = Siege { qp, world, posted, announced, expected: psn, held, has_failed: false };
    for number in 0..input.below(6) as u64 {
        let len = input.pick(&[700, 300, 256, 40, 100, 0]);
        siege.post(number, len, uses_srq);
    }
    for _ in 0..48 {
        if input.is_empty() {
            break;
        }
        let choice = input.u8();
        siege.world.room = if choice & 7 == 7 { 0 } else { u32::MAX };
        siege.world.can_hold = selective_repeat && choice & 0x30 != 0x30;
        siege.attack(input);
        siege.give_held(input);
        siege.check_held();
    }
}

impl Siege {
    fn post(&mut self, number: u64, len: u32, to_srq: bool) {
        let sge = buffer(number, len);
        if to_srq {
            self.world.srq.push_back((number, sge));
        } else if self.qp.post_recv(&RecvWr { wr_id: number }, &[sge], &mut self.world).is_err() {
            return;
        }
        if self.qp.state() == QpState::Err && !to_srq {
            let flushed = self.world.done.pop().expect("flushed at once");
            assert_eq!((flushed.1.wr_id, flushed.1.status), (number, WcStatus::WrFlushErr));
            return;
        }
        self.posted.push_back((number, len));
    }

    fn attack(&mut self, input: &mut Input<'_>) {
        let (bth, ext, payload) = self.craft(input);
        let bytes = packet_bytes(&bth, &ext, &payload);
        let is_foreign = self.qp.qp_type().is_xrc() && ext.xrceth.srqn != QUEUE;
        let before = (self.qp.state(), self.posted.len());
        self.world.written.clear();
        self.world.sent.clear();
        let now = Instant::from_nanos(1_000_000);
        let l3 = [0x45; 20];
        let (src, dst) = (path().dst, path().src);
        let result = match Packet::parse(&bytes) {
            Ok(packet) => {
                let inbound = Inbound { src, dst, port: 1, l3: &l3, frame: &[], packet };
                self.qp.handle_packet(now, &inbound, &mut self.world)
            }
            Err(_) if bth.opcode.info().is_none() => {
                let result =
                    self.qp.handle_reserved_opcode(now, src, dst, 1, &bth, &mut self.world);
                result.map(|()| Handled::Done)
            }
            Err(_) => return,
        };
        let reached = |handled| if handled == Handled::Held { 0xff } else { 0 };
        input.reach(bth.opcode.0.into(), result.map_or_else(|reason| 1 + reason as u32, reached));
        if result == Ok(Handled::Held) {
            assert!(self.world.can_hold && self.world.written.is_empty(), "held, but executed");
            assert!(self.world.done.is_empty() && (self.qp.state(), self.posted.len()) == before);
            let former = self.held.insert(bth.psn.value(), (bth, ext, payload));
            assert!(former.is_none(), "held twice: {:?}", bth.psn);
            self.check_answer(&ext, before.0);
            return;
        }
        if !self.qp.qp_type().is_reliable() && result.is_ok() {
            self.expected = bth.psn.next();
        }
        assert!(!is_foreign || self.world.written.is_empty(), "of another queue, but executed");
        self.check_handled(&(bth, ext, payload), result.map(|_| ()), before);
    }

    /// Checks the effects of a packet. `before` is the state before it and the number of receives.
    fn check_handled(
        &mut self,
        (bth, ext, payload): &Crafted,
        result: Result<(), DropReason>,
        before: (QpState, usize),
    ) {
        assert!(self.world.sent.is_empty(), "sent without being asked to");
        match result {
            Err(reason) => {
                // A receive that was taken from the SRQ and kept is not counted here.
                let after = (self.qp.state(), self.posted.len());
                assert_eq!(after, before, "dropped: {reason:?}");
                assert!(self.world.written.is_empty(), "dropped, but written: {reason:?}");
                assert!(self.world.done.is_empty(), "dropped, but completed: {reason:?}");
            }
            Ok(()) => {
                let serves = matches!(before.0, QpState::Rtr | QpState::Rts | QpState::Sqd);
                assert!(serves || before.0 == QpState::Sqe, "served in {:?}", before.0);
            }
        }
        self.check_written(bth, ext, payload.len() as u64);
        self.check_completed();
        self.check_answer(ext, before.0);
        assert!(self.world.closed.iter().all(|&byte| byte == 0x5a), "closed memory is written");
        assert!(self.qp.qp_type() != QpType::Ud || self.qp.state() == before.0, "UD is ended");
    }

    /// Gives back the held packets that the QP names, or loses one of them.
    fn give_held(&mut self, input: &mut Input<'_>) {
        while let Some(psn) = self.qp.next_held() {
            assert!(self.qp.holds(psn));
            let crafted = self.held.remove(&psn.value()).expect("it was taken");
            if input.below(16) == 15 {
                self.qp.lose_held(psn);
                assert!(!self.qp.holds(psn) && self.qp.next_held().is_none());
                return;
            }
            let (bth, ext, payload) = &crafted;
            let bytes = packet_bytes(bth, ext, payload);
            let packet = Packet::parse(&bytes).expect("it was parsed");
            let before = (self.qp.state(), self.posted.len());
            self.world.written.clear();
            self.world.sent.clear();
            let now = Instant::from_nanos(1_500_000);
            let result = self.qp.handle_held(now, &packet, &mut self.world);
            let what = 0x1000 + u32::from(bth.opcode.0);
            input.reach(what, result.map_or_else(|reason| 1 + reason as u32, |()| 0));
            assert!(!self.qp.holds(psn), "given back twice");
            self.check_handled(&crafted, result, before);
        }
    }

    /// Compares what the QP holds with what was taken. A READ that was executed uses up the PSNs of
    /// its responses, and packets with them, as does the end of the connection.
    fn check_held(&mut self) {
        let Siege { qp, held, expected, world, .. } = self;
        let may_forget = world.room == 0 || qp.state() == QpState::Err;
        held.retain(|&psn, _| {
            let (psn, holds) = (Psn::new(psn), qp.holds(Psn::new(psn)));
            assert!(holds || may_forget || psn.is_before(*expected), "{psn:?} is forgotten");
            holds
        });
        for psn in (0..64).map(|at| self.expected.minus(16).plus(at)) {
            assert_eq!(self.qp.holds(psn), self.held.contains_key(&psn.value()), "{psn:?}");
        }
    }

    /// Checks the list of held packets in an answer for everything before `expected`.
    fn check_bitmap(&self, bitmap: &[u8], expected: Psn) {
        assert!(!bitmap.is_empty() && bitmap.len() <= MTU && bitmap.len().is_multiple_of(8));
        for (at, byte) in (0..).zip(bitmap) {
            for bit in 0..8 {
                let psn = expected.plus(at * 8 + bit);
                assert_eq!(byte >> bit & 1 == 1, self.qp.holds(psn), "{psn:?}");
            }
        }
        let is_beyond = |psn: Psn| psn.distance_from(expected) >= bitmap.len() as i32 * 8;
        let is_full = bitmap.len() == MTU;
        let held = self.held.keys().map(|&psn| Psn::new(psn));
        let mut unlisted = held.filter(|psn| is_beyond(*psn) && self.qp.holds(*psn));
        assert!(is_full || unlisted.next().is_none(), "not listed");
    }

    /// A packet with fields that are right, nearly right, or random.
    fn craft(&self, input: &mut Input<'_>) -> (Bth, ExtHeaders, Vec<u8>) {
        let service = match self.qp.qp_type() {
            QpType::Rc => 0x00,
            QpType::Uc => 0x20,
            QpType::Ud | QpType::Gsi => 0x60,
            QpType::XrcSend | QpType::XrcRecv => 0xa0,
            QpType::Rd | QpType::Eec => 0x40,
            // No opcode is of a raw service.
            QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => 0xc0,
        };
        let byte = input.u8();
        let low = match self.qp.qp_type() {
            QpType::Ud | QpType::Gsi => 0x04 | byte & 1,
            QpType::Rc if (0xe0..0xf0).contains(&byte) => 0x1c | byte & 1,
            _ => byte % 0x18,
        };
        let opcode = OpCode(if byte >= 0xf0 { input.u8() } else { service | low });
        let flags = input.u8();
        let psn = match flags & 7 {
            0 => self.expected.plus(1 + u32::from(input.u8() % 8)),
            1 => self.expected.minus(1 + u32::from(input.u8() % 8)),
            2 if flags & 0x80 != 0 => Psn::new(input.u32()),
            _ => self.expected,
        };
        let len = if carries_data(opcode) {
            match input.below(6) {
                0 => 0,
                1 => input.below(256) + 1,
                2 => usize::from(input.u8() & 7),
                3 => MTU + 4,
                _ => MTU,
            }
        } else if opcode == OpCode::RC_ATOMIC_WRITE {
            input.pick(&[8, 8, 8, 8, 4, 9, 0])
        } else {
            0
        };
        let bth = Bth {
            opcode,
            psn,
            solicited: flags & 8 != 0,
            ack_req: flags & 16 == 0,
            pkey: if flags & 0x60 == 0x60 { Pkey(input.u16()) } else { Pkey::DEFAULT },
            pad_count: (len as u8).wrapping_neg() & 3,
            dest_qpn: OURS,
            ..Bth::default()
        };
        (bth, self.extension(input, len as u32), vec![0x77; len])
    }

    fn extension(&self, input: &mut Input<'_>, len: u32) -> ExtHeaders {
        let mut ext = ExtHeaders::default();
        let offset = match input.below(4) {
            0 => LEN - u64::from(input.u8()),
            1 => 0_u64.wrapping_sub(u64::from(input.u8())),
            2 => (u64::from(input.u16()) % LEN) & !7,
            _ => 0,
        };
        let va = if input.below(16) == 1 { input.u64() } else { OPEN.1.wrapping_add(offset) };
        let rkey = match input.below(8) {
            0 => Rkey(input.u32()),
            1 => Rkey(CLOSED.0),
            2 => Rkey(LOCAL.0),
            _ => Rkey(OPEN.0),
        };
        ext.reth.va = Va(va);
        ext.reth.rkey = rkey;
        ext.reth.dma_len = match input.below(6) {
            0 => 0,
            1 => input.u32(),
            2 => u32::from(input.u16() % 2000),
            3 => MTU as u32 + u32::from(input.u8()),
            _ => len,
        };
        ext.atomic.va = Va(if input.below(4) == 0 { va } else { va & !7 });
        ext.atomic.rkey = rkey;
        ext.ieth.rkey = rkey;
        let byte = input.u8();
        ext.aeth.syndrome = Syndrome::from_byte(byte);
        ext.feth = Feth::parse(&[0, 0, 0, byte]);
        ext.deth.qkey = if input.below(8) == 1 { Qkey(!QKEY.0) } else { QKEY };
        ext.deth.src_qpn = THEIRS;
        if self.qp.qp_type().is_xrc() {
            let other = Srqn::new(QUEUE.value() ^ 1 << (byte % 24));
            ext.xrceth.srqn = if input.below(16) == 1 { other } else { QUEUE };
        }
        ext
    }

    fn check_written(&mut self, bth: &Bth, ext: &ExtHeaders, payload: u64) {
        let Some(row) = bth.opcode.info() else {
            assert!(self.world.written.is_empty());
            return;
        };
        if row.has(Header::Reth)
            && row.operation == Operation::Write
            && !self.world.written.is_empty()
        {
            self.announced = (ext.reth.va.0, ext.reth.dma_len.into());
        }
        let mut total = 0;
        for written in &self.world.written {
            let (begin, len) = match (written.is_remote, row.operation) {
                (true, Operation::Write) => self.announced,
                (true, Operation::CompareSwap | Operation::FetchAdd) => (ext.atomic.va.0, 8),
                (true, Operation::AtomicWrite) => (ext.reth.va.0, 8),
                (false, Operation::Send) => {
                    // The oldest receive that has not completed.
                    let (number, len) = self.posted.front().copied().expect("a receive to fill");
                    (buffer(number, len).va.0, u64::from(len))
                }
                other => panic!("{other:?} writes"),
            };
            assert!(written.va >= begin && written.va + written.len <= begin + len, "{written:?}");
            total += written.len;
        }
        let limit = match row.operation {
            Operation::CompareSwap | Operation::FetchAdd => 8,
            // The GRH area of 40 bytes is written too.
            _ if self.qp.qp_type() == QpType::Ud => payload + 40,
            _ => payload,
        };
        assert!(total <= limit, "more is written than came");
    }

    fn check_completed(&mut self) {
        let mut successes = 0;
        for (side, cqe) in self.world.done.drain(..) {
            assert_eq!(side, Side::Recv, "nothing was sent");
            let posted = self.posted.pop_front().expect("completed without a receive");
            assert_eq!(cqe.wr_id, posted.0, "out of order");
            assert_eq!(cqe.qpn, OURS);
            if cqe.status == WcStatus::Success {
                successes += 1;
                assert!(cqe.byte_len <= posted.1 || cqe.opcode != uroce_transport::WcOpcode::Recv);
            } else {
                assert_ne!(self.qp.qp_type(), QpType::Ud, "a datagram fails {cqe:?}");
                self.has_failed = true;
            }
        }
        assert!(successes <= 1, "one packet completed {successes} receives");
    }

    fn check_answer(&mut self, ext: &ExtHeaders, before: QpState) {
        let now = Instant::from_nanos(2_000_000);
        self.qp.poll_transmit(now, 64, &mut self.world);
        let sent = std::mem::take(&mut self.world.sent);
        let (is_reliable, is_extended) =
            (self.qp.qp_type().is_reliable(), self.qp.qp_type().is_xrc());
        let is_stuck = is_reliable && self.world.room == 0;
        assert!(!self.has_failed || is_stuck || self.qp.state() == QpState::Err, "goes on");
        if !is_reliable || matches!(before, QpState::Reset | QpState::Init) {
            assert!(sent.is_empty(), "an answer where there is none: {sent:?}");
            return;
        }
        let mut acknowledgements = 0;
        let mut is_refused = false;
        for Sent { bth, ext, len, bytes } in &sent {
            let row = bth.opcode.info().expect("a known opcode");
            assert!(row.is_response(), "{}", row.name);
            assert_eq!(bth.opcode.is_of_xrc(), is_extended, "{}", row.name);
            assert_eq!(bth.dest_qpn, THEIRS);
            assert!(*len as usize <= MTU);
            match row.operation {
                Operation::Acknowledge => acknowledgements += 1,
                Operation::SelectiveAcknowledge => {
                    acknowledgements += 1;
                    assert!(matches!(ext.aeth.syndrome, Syndrome::Ack { .. }));
                    self.check_bitmap(bytes, bth.psn.next());
                }
                _ => {}
            }
            match ext.aeth.syndrome {
                _ if !row.has(Header::Aeth) => {}
                Syndrome::Ack { .. } => self.expected = bth.psn.next(),
                Syndrome::RnrNak { timer } => {
                    assert_eq!(timer, 12);
                    self.expected = bth.psn;
                }
                Syndrome::Nak(NakCode::PsnSequenceError) => self.expected = bth.psn,
                Syndrome::Nak(code) => {
                    assert!(!matches!(code, NakCode::Reserved(_)));
                    assert!(is_extended || code != NakCode::InvalidRdRequest);
                    is_refused = true;
                }
                Syndrome::Reserved(byte) => panic!("syndrome {byte:02x}"),
            }
        }
        assert!(acknowledgements <= 1, "{acknowledgements} acknowledgements of one packet");
        assert!(!is_refused || self.qp.state() == QpState::Err, "refused, and goes on");
        let data: u64 = sent.iter().map(|sent| u64::from(sent.len)).sum();
        assert!(data <= u64::from(ext.reth.dma_len).max(LEN), "more data than requested");
        self.check_completed();
    }
}
