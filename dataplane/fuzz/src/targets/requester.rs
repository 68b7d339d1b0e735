//! Z3: responses with any fields, and time, given to a requester with outstanding requests.
//!
//! Invariants
//! - Requests complete once each, in the order of posting.
//! - A request succeeds only with a cause: an acknowledgement that covers it, all data of a READ,
//!   the result of an ATOMIC. It fails only with a cause: the NAK that its status names, exhausted
//!   retries after a timeout or a NAK, or a response that does not match.
//! - Only the oldest request's own buffer is written; a dropped packet changes nothing.
//! - With selective repeat, if no request is a READ or ATOMIC, a packet is not sent again once it
//!   is acknowledged, nor, except for the oldest, while a credible selective acknowledgement lists
//!   it.

use super::peer::{
    LOCAL, MTU, OPEN, OURS, Sent, THEIRS, Terms, World, buffer, first_psn, packet_bytes, path,
    qp_in,
};
use crate::Input;
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;
use uroce_transport::{Inbound, Instant, Qp, QpState, QpType, SendOp, SendWr, Side, WcStatus};
use uroce_wire::{
    Bth, ExtHeaders, NakCode, OpCode, Operation, Packet, Pkey, Placement, Psn, Reth, Rkey,
    Selectivity, Syndrome, Va,
};

/// A posted request that has not completed.
#[derive(Clone, Copy, Debug)]
struct Request {
    wr_id: u64,
    op: SendOp,
    len: u32,
    /// First PSN; set when its first packet is first sent.
    first: Option<Psn>,
}

impl Request {
    fn psns(&self) -> u32 {
        self.len.div_ceil(MTU as u32).max(1)
    }

    fn last(&self) -> Option<Psn> {
        self.first.map(|first| first.plus(self.psns() - 1))
    }
}

/// Delivered responses and timeouts that may be the cause of a completion.
#[derive(Default)]
struct Causes {
    /// All requests before this distance from the first PSN may have been acknowledged.
    acknowledged: i32,
    read_data: BTreeSet<u32>,
    atomic_results: BTreeSet<u32>,
    naks: BTreeSet<u8>,
    has_rnr: bool,
    has_answer: bool,
    has_timed_out: bool,
}

/// What the peer has told with selective acknowledgements, as far as it may be true.
#[derive(Default)]
struct Told {
    /// The oldest PSN that is not acknowledged.
    unacked: Psn,
    held: BTreeSet<u32>,
}

impl Told {
    /// Notes that everything before `limit` is acknowledged, unless `limit` lies outside of what is
    /// outstanding. Returns whether it was noted.
    fn acknowledge(&mut self, limit: Psn, end: Psn) -> bool {
        if limit.is_before(self.unacked) || end.is_before(limit) {
            return false;
        }
        self.unacked = limit;
        self.held.retain(|&psn| !Psn::new(psn).is_before(limit));
        true
    }

    /// Notes what a bitmap lists, if all of it was sent and the oldest packet is not in it.
    fn take(&mut self, bitmap: &[u8], end: Psn) {
        let listed =
            (0..bitmap.len() as u32 * 8).filter(|at| bitmap[*at as usize / 8] >> (at % 8) & 1 == 1);
        let listed: Vec<Psn> = listed.map(|at| self.unacked.plus(at)).collect();
        if listed.iter().all(|psn| psn.is_before(end) && *psn != self.unacked) {
            self.held.extend(listed.iter().map(|psn| psn.value()));
        }
    }
}

struct Siege {
    qp: Qp,
    world: World,
    now: Instant,
    start: Psn,
    /// One past the newest PSN sent.
    end: Psn,
    requests: VecDeque<Request>,
    causes: Causes,
    told: Told,
    is_selective: bool,
    has_keepalive: bool,
    /// No request is a READ or ATOMIC.
    is_plain: bool,
    has_failed: bool,
}

pub(super) fn run(input: &mut Input<'_>) {
    let start = first_psn(input);
    let (rd_atomic, choice) = (1 + input.below(4) as u8, input.u8());
    let (selective_repeat, is_plain) = (choice & 0x80 != 0, choice & 0xc0 == 0xc0);
    let has_keepalive = choice & 0x20 != 0;
    let qp_type = QpType::Rc;
    let terms = Terms {
        qp_type,
        uses_srq: false,
        psn: start,
        rd_atomic,
        retries: choice & 7,
        selective_repeat,
        keepalive_ms: if has_keepalive { 20 } else { 0 },
    };
    let mut world = World::new();
    let qp = qp_in(QpState::Rts, &terms, &mut world);
    let mut siege = Siege {
        qp,
        world,
        now: Instant::from_nanos(1_000_000),
        start,
        end: start,
        requests: VecDeque::new(),
        causes: Causes::default(),
        told: Told { unacked: start, ..Told::default() },
        is_selective: selective_repeat,
        has_keepalive,
        is_plain,
        has_failed: false,
    };
    // A connection with a keepalive has few requests, so that nothing is outstanding soon.
    let posts = if has_keepalive { input.below(3) } else { 1 + input.below(8) };
    for wr_id in 0..posts as u64 {
        siege.post(input, wr_id);
    }
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        match input.below(8) {
            0 => siege.pass_time(input),
            1 | 2 => siege.transmit(input),
            _ => siege.answer(input),
        }
        siege.check(input);
    }
}

impl Siege {
    fn post(&mut self, input: &mut Input<'_>, wr_id: u64) {
        let (va, rkey) = (Va(OPEN.1), Rkey(OPEN.0));
        let op = match input.below(if self.is_plain { 2 } else { 8 }) {
            0 => SendOp::Send { imm: None },
            1 => SendOp::Write { va, rkey, imm: None },
            2 | 3 => SendOp::Read { va, rkey },
            4 => SendOp::FetchAdd { va, rkey, add: 1 },
            5 => SendOp::CompareSwap { va, rkey, compare: 1, swap: 2 },
            6 => SendOp::AtomicWrite { va, rkey },
            _ => {
                let (placement, selectivity) = (Placement::GLOBAL, Selectivity::Range);
                SendOp::Flush { va, rkey, len: 64, placement, selectivity }
            }
        };
        let len = match op {
            SendOp::Flush { .. } => 0,
            SendOp::AtomicWrite { .. } => 8,
            op if op.is_atomic() => 8,
            _ => input.pick(&[0, 1, 255, 256, 257, 600, 800]),
        };
        let fence = input.below(8) == 0;
        let wr =
            SendWr { wr_id, op, signaled: true, solicited: false, fence, srqn: Default::default() };
        let count = usize::from(!matches!(op, SendOp::Flush { .. }));
        let posted = self.qp.post_send(&wr, &[buffer(wr_id, len)][..count], &mut self.world);
        posted.expect("room for all");
        // The response to an ATOMIC WRITE is empty.
        let len = if op.is_placement() { 0 } else { len };
        self.requests.push_back(Request { wr_id, op, len, first: None });
    }

    fn pass_time(&mut self, input: &mut Input<'_>) {
        let step = Duration::from_micros(1 << input.below(22));
        // The keepalive looks at the connection several times before it is due.
        let times = if self.has_keepalive { 1 + input.below(8) } else { 1 };
        (0..times).for_each(|_| self.pass(step));
    }

    fn pass(&mut self, step: Duration) {
        self.now = self.now + step;
        let is_due = self.qp.next_timeout().is_some_and(|deadline| deadline <= self.now);
        self.causes.has_timed_out |= is_due;
        self.qp.handle_timeout(self.now, &mut self.world);
        if std::mem::take(&mut self.world.timeouts) > 0 {
            self.told.held.clear();
        }
    }

    /// Sends packets, and notes which request has which PSNs.
    fn transmit(&mut self, input: &mut Input<'_>) {
        let budget = 1 + input.below(6) as u32;
        self.qp.poll_transmit(self.now, budget, &mut self.world);
        for sent in std::mem::take(&mut self.world.sent) {
            let row = sent.bth.opcode.info().expect("a known opcode");
            assert!(row.is_request(), "{}", row.name);
            assert_eq!(sent.bth.dest_qpn, THEIRS);
            let psn = sent.bth.psn;
            if self.is_keepalive(&sent) {
                input.reach(0x3000, self.causes.has_timed_out.into());
                continue;
            }
            if psn != self.end {
                // A repetition: the PSN was sent before.
                assert!(psn.is_before(self.end) && !psn.is_before(self.start), "{psn:?}");
                if self.is_plain {
                    assert!(!psn.is_before(self.told.unacked), "{psn:?} is acknowledged");
                    // The oldest packet is also the probe of a silent peer.
                    let is_held = self.told.held.contains(&psn.value());
                    assert!(!is_held || psn == self.told.unacked, "{psn:?} is held");
                    let beyond = psn.distance_from(self.told.unacked);
                    input.reach(0x2000 + beyond as u32, self.told.held.len() as u32);
                }
                continue;
            }
            if row.position.is_first() {
                let begun = self.requests.iter_mut().find(|request| request.first.is_none());
                let begun = begun.expect("nothing was left to be sent");
                begun.first = Some(psn);
                let is_read = row.operation == Operation::ReadRequest;
                self.end = psn.plus(if is_read { begun.psns() } else { 1 });
            } else {
                self.end = psn.next();
            }
        }
    }

    /// Returns whether a packet is a keepalive, which must ask for an answer and have no effect.
    /// Nothing is outstanding then.
    fn is_keepalive(&self, sent: &Sent) -> bool {
        let is_idle = self.requests.front().is_none_or(|request| request.first.is_none());
        let is_keepalive = self.has_keepalive && is_idle && sent.bth.psn.next() == self.end;
        if is_keepalive {
            assert!(sent.bth.opcode == OpCode::RC_RDMA_WRITE_ONLY && sent.bth.ack_req);
            assert_eq!((sent.len, sent.ext.reth), (0, Reth::default()));
        }
        is_keepalive
    }

    fn answer(&mut self, input: &mut Input<'_>) {
        let (bth, ext, payload) = self.craft(input);
        let bytes = packet_bytes(&bth, &ext, &payload);
        let Ok(packet) = Packet::parse(&bytes) else { return };
        let row = packet.op;
        let inbound = Inbound {
            src: path().dst,
            dst: path().src,
            port: 1,
            l3: &[0x45; 20],
            frame: &[],
            packet,
        };
        let before = (self.qp.state(), self.qp.send_wrs());
        let result = self.qp.handle_packet(self.now, &inbound, &mut self.world);
        let is_selective = bth.opcode == OpCode::RC_SELECTIVE_ACKNOWLEDGE;
        assert!(!is_selective || self.is_selective || result.is_err(), "not agreed on");
        input.reach(bth.opcode.0.into(), result.map_or_else(|reason| 1 + reason as u32, |_| 0));
        if let Err(reason) = result {
            assert_eq!((self.qp.state(), self.qp.send_wrs()), before, "dropped: {reason:?}");
            assert!(self.world.written.is_empty() && self.world.done.is_empty());
            return;
        }
        self.listen(&bth, &ext, &payload);
        if self.is_plain {
            let kind = u32::from(is_selective) << 8 | u32::from(ext.aeth.syndrome.to_byte() >> 5);
            input.reach(0x1000 + kind, self.told.held.len() as u32);
        }
        let first = if is_selective { self.start.minus(1) } else { self.start };
        if !row.is_response() || !bth.psn.is_before(self.end) || bth.psn.is_before(first) {
            assert!(self.world.written.is_empty(), "an answer to nothing is written");
            return;
        }
        self.note(&bth, &ext);
    }

    fn craft(&self, input: &mut Input<'_>) -> (Bth, ExtHeaders, Vec<u8>) {
        let byte = input.u8();
        // Requests are handled by the responder and tested by another target.
        let opcode = match byte {
            0xff => OpCode::CNP,
            0xd0..0xf8 => return self.craft_selective(input),
            0xf8.. => OpCode(0x20 | input.u8()),
            _ => OpCode(0x0d + byte % 6),
        };
        let outstanding = self.requests.front().and_then(|request| request.first);
        let base = outstanding.unwrap_or(self.end);
        let psn = match input.below(8) {
            0 => self.end.plus(u32::from(input.u8() % 4)),
            1 => base.minus(u32::from(input.u8() % 4)),
            2 => Psn::new(input.u32()),
            3 => self.end.minus(1),
            _ => base.plus(u32::from(input.u8() % 8)),
        };
        let left = self.requests.front().map_or(0, |request| request.len as usize);
        let len = match (opcode.0, input.below(8)) {
            (0x0d..=0x10, 0) => input.below(256),
            (0x0d | 0x0e, _) => MTU,
            (0x0f, _) => (left + MTU - 1) % MTU + 1,
            (0x10, _) => left.min(MTU),
            (0x81, _) => 16,
            _ => 0,
        };
        let syndrome = match input.below(8) {
            0 => input.u8(),
            1 => 0x20 | input.u8() & 0x1f,
            2 => 0x60,
            3 => 0x60 | input.u8() & 7,
            _ => 0x1f,
        };
        let pad_count = (len as u8).wrapping_neg() & 3;
        let bth =
            Bth { opcode, psn, pad_count, pkey: Pkey::DEFAULT, dest_qpn: OURS, ..Bth::default() };
        let mut ext = ExtHeaders::default();
        ext.aeth.syndrome = Syndrome::from_byte(syndrome);
        ext.atomic_ack.original = 7;
        (bth, ext, vec![0x33; len])
    }

    /// A selective acknowledgement, mostly for what is outstanding, with any bitmap.
    fn craft_selective(&self, input: &mut Input<'_>) -> (Bth, ExtHeaders, Vec<u8>) {
        let psn = match input.below(8) {
            0 => Psn::new(input.u32()),
            1 => self.end.plus(u32::from(input.u8() % 4)).minus(1),
            2 | 3 => self.told.unacked.plus(u32::from(input.u8() % 4)).minus(2),
            _ => self.told.unacked.minus(1),
        };
        let words = input.pick(&[1, 1, 1, 1, 2, 4, 32, 33]);
        let bitmap = (0..words).flat_map(|at| {
            let word = match input.below(8) {
                0 => input.u64(),
                1 => u64::MAX,
                2 => u64::MAX - 1,
                3 => 1 << (input.u8() % 64),
                _ if at > 0 => 0,
                4 => u64::from(input.u16()),
                5 => u64::from(input.u16()) << 16,
                _ => u64::from(input.u8()) << 1,
            };
            word.to_le_bytes()
        });
        let bitmap = bitmap.collect();
        let opcode = OpCode::RC_SELECTIVE_ACKNOWLEDGE;
        let bth = Bth { opcode, psn, pkey: Pkey::DEFAULT, dest_qpn: OURS, ..Bth::default() };
        let mut ext = ExtHeaders::default();
        let syndrome = if input.below(8) == 0 { input.u8() } else { 0x1f };
        ext.aeth.syndrome = Syndrome::from_byte(syndrome);
        (bth, ext, bitmap)
    }

    /// Notes what an acknowledgement tells of the packets that the peer has.
    fn listen(&mut self, bth: &Bth, ext: &ExtHeaders, payload: &[u8]) {
        let (psn, end) = (bth.psn, self.end);
        let row = bth.opcode.info().expect("it was parsed");
        if !psn.is_before(end) {
            return;
        }
        let told = &mut self.told;
        match (row.operation, ext.aeth.syndrome) {
            (Operation::SelectiveAcknowledge, _) if told.acknowledge(psn.next(), end) => {
                told.take(payload, end);
            }
            (Operation::Acknowledge, Syndrome::Ack { .. }) if !psn.is_before(told.unacked) => {
                told.acknowledge(psn.next(), end);
            }
            // The refused packet is sent again, whatever was told before.
            (Operation::Acknowledge, Syndrome::RnrNak { .. }) if told.acknowledge(psn, end) => {
                told.held.remove(&psn.value());
            }
            (Operation::Acknowledge, Syndrome::Nak(_)) => {
                told.acknowledge(psn, end);
            }
            _ => {}
        }
    }

    /// Notes what a response may be the cause of.
    fn note(&mut self, bth: &Bth, ext: &ExtHeaders) {
        let causes = &mut self.causes;
        causes.has_answer = true;
        let at = bth.psn.distance_from(self.start);
        let row = bth.opcode.info().expect("it was parsed");
        let covered = match (row.operation, ext.aeth.syndrome) {
            (Operation::ReadResponse, _) => {
                causes.read_data.insert(bth.psn.value());
                at + 1
            }
            (Operation::AtomicAcknowledge, _) => {
                causes.atomic_results.insert(bth.psn.value());
                at + 1
            }
            (Operation::SelectiveAcknowledge, _) | (_, Syndrome::Ack { .. }) => at + 1,
            (_, Syndrome::RnrNak { .. }) => {
                causes.has_rnr = true;
                at
            }
            (_, Syndrome::Nak(code)) => {
                causes.naks.insert(code.code());
                at
            }
            (_, Syndrome::Reserved(_)) => 0,
        };
        causes.acknowledged = causes.acknowledged.max(covered);
    }

    fn check(&mut self, input: &mut Input<'_>) {
        let front = self.requests.front().copied();
        let written = std::mem::take(&mut self.world.written);
        // One response may complete several requests. If it is written to memory, it answers the
        // first READ or ATOMIC among them.
        let own = self.requests.iter().find(|request| request.op.returns_data());
        for write in written {
            assert!(!write.is_remote && front.is_some());
            let own = own.expect("no request takes data");
            let begin = buffer(own.wr_id, own.len).va.0;
            let is_inside = write.va >= begin && write.va + write.len <= begin + u64::from(own.len);
            assert!(is_inside && begin >= LOCAL.1, "{write:?} for {own:?}");
        }
        for (side, cqe) in std::mem::take(&mut self.world.done) {
            assert_eq!(side, Side::Send);
            let request = self.requests.pop_front().expect("completed twice");
            assert_eq!(cqe.wr_id, request.wr_id, "out of order");
            input.reach(0x100 + cqe.status as u32, u32::from(request.op.has_response()));
            if cqe.status == WcStatus::Success {
                assert!(!self.has_failed, "after a failure");
                self.check_success(&request);
            } else {
                self.check_failure(cqe.status);
            }
        }
        let is_in_error = self.qp.state() == QpState::Err;
        if is_in_error && !self.has_failed && self.has_keepalive {
            // The peer was given up while nothing was outstanding.
            assert!(self.requests.is_empty() && self.causes.has_timed_out);
            self.has_failed = true;
        }
        assert_eq!(self.has_failed, is_in_error);
        assert!(!self.has_failed || self.requests.is_empty(), "not flushed");
    }

    fn check_success(&self, request: &Request) {
        let last = request.last().expect("completed before it was sent");
        assert!(last.is_before(self.end), "completed before it was sent whole");
        let all = |answers: &BTreeSet<u32>| {
            (0..request.psns()).all(|at| {
                let psn = request.first.map(|first| first.plus(at).value());
                psn.is_some_and(|psn| answers.contains(&psn))
            })
        };
        let is_caused = match request.op {
            SendOp::Read { .. } => all(&self.causes.read_data),
            op if op.is_placement() => all(&self.causes.read_data),
            op if op.is_atomic() => all(&self.causes.atomic_results),
            _ => last.distance_from(self.start) < self.causes.acknowledged,
        };
        assert!(is_caused, "{request:?} succeeded without a cause");
    }

    fn check_failure(&mut self, status: WcStatus) {
        let nak = |code: NakCode| self.causes.naks.contains(&code.code());
        let is_caused = match status {
            WcStatus::WrFlushErr => self.has_failed,
            _ if self.has_failed => false,
            WcStatus::RemInvReqErr => nak(NakCode::InvalidRequest),
            WcStatus::RemAccessErr => nak(NakCode::RemoteAccessError),
            WcStatus::RemOpErr => nak(NakCode::RemoteOperationalError),
            WcStatus::RnrRetryExcErr => self.causes.has_rnr,
            WcStatus::RetryExcErr => self.causes.has_timed_out || self.causes.has_answer,
            WcStatus::BadRespErr | WcStatus::LocLenErr => self.causes.has_answer,
            _ => false,
        };
        assert!(is_caused, "{status:?} without a cause");
        self.has_failed = true;
    }
}
