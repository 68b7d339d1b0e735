//! Responder: turns inbound request packets into memory effects and acknowledgements.
//!
//! Read first: IBA 9.7.4 and 9.7.5; Annex A17 for what RoCEv2 changes.
//!
//! A request passes [`validate`], then [`execute`], then it is answered. A duplicate ends at the
//! PSN check. The checks have the order of the specification; a packet with two faults is answered
//! for the first.
//!
//! Invariants
//! - `expected_psn` moves only in `execute`, and only forward.
//! - At most one PSN-sequence or RNR NAK is outstanding (`awaits`).
//! - No request is executed twice; requests with a response of their own are
//!   replayed from `resources`.
//! - Answers are sent in the order of the requests: READ data and ATOMIC results first, then one
//!   coalesced ACK or NAK that covers the later requests.
//! - After a NAK that ends the connection no further request is handled.
//! - With selective repeat a packet that comes early is neither checked nor executed before it is
//!   due ([`hold`]).
//!
//! Not here: ICRC, addresses, P_Key (checked before), timers (the responder has none).

mod datagram;
mod execute;
mod hold;
mod named;
mod validate;

use uroce_wire::{
    Aeth, AtomicAckEth, Bth, ExtHeaders, Msn, NakCode, OpCode, Operation, Packet, Psn, Qpn,
    Syndrome, Va,
};

pub(crate) use datagram::Repeated;

use super::resources::{PendingAnswer, Reply, Resources};
use super::selective::Held;
use crate::attr::Attributes;
use crate::context::{Context, Outcome, Step};
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{AsyncEvent, Env, Key, Outbound, Output, Region, TransmitError};
use crate::gather::Gather;
use crate::inbound::Message;
use crate::queue::QpCaps;
use crate::recv_queue::RecvQueue;
use crate::time::Stamp;

/// The ACK or NAK to be sent to the peer. A newer one replaces an older one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    psn: Psn,
    syndrome: Syndrome,
}

/// What the responder waits for after a NAK. Until the expected packet comes there is no NAK of
/// another kind, and a second sequence NAK only if the first one, or what it asked for, was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaits {
    Nothing,
    /// The missing packet, after a sequence NAK.
    Missing,
    /// The refused packet, after an RNR NAK.
    Refused,
}

/// Result for a request packet that is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The packet is finished: a duplicate that was answered, or a packet that was NAKed.
    Done,
    Drop(DropReason),
    /// The packet came early: the caller holds it until its turn comes.
    Hold,
    /// No receive WQE is available: answered with an RNR NAK.
    RnrNak,
    /// The connection ends with this NAK.
    Nak(NakCode),
    /// The connection ends with this NAK, and the oldest receive WQE completes with this status.
    NakAndFail(NakCode, WcStatus),
    /// The oldest receive WQE completes with this status, the QP goes to ERR and sends no answer.
    Fail(WcStatus),
}

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
    expected_psn: Psn,
    msn: Msn,
    message: Message,
    awaits: Awaits,
    /// PSN after the newest packet that was dropped since the NAK.
    gap_end: Psn,
    /// Time of the newest NAK.
    nak_at: Stamp,
    /// Time from a sequence NAK to the packet that it asked for, in nanoseconds; 0 if not known.
    repair: u32,
    resources: Resources,
    answer: Option<Answer>,
    /// `answer` is the NAK that ends the connection.
    is_refusing: bool,
    /// A request came that was not executed, since the keepalive has looked last.
    pub(super) has_heard: bool,
    /// Packets that came early, if the QP has the memory of selective repeat.
    pub(crate) held: Option<Box<Held>>,
}

impl Responder {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> Responder {
        Responder {
            rq: RecvQueue::new(caps, uses_srq),
            expected_psn: Psn::default(),
            msn: Msn::default(),
            message: Message::None,
            awaits: Awaits::Nothing,
            gap_end: Psn::default(),
            nak_at: Stamp::default(),
            repair: 0,
            resources: Resources::new(),
            answer: None,
            is_refusing: false,
            has_heard: false,
            held: None,
        }
    }

    /// Starts the responder in RTR: the first packet expected has the attributes' RQ PSN.
    pub(crate) fn start(&mut self, attr: &Attributes) {
        self.rest();
        self.expected_psn = attr.rq_psn;
        self.msn = Msn::default();
        self.resources.start(attr.max_dest_rd_atomic);
    }

    /// Applies changed attributes of a drained QP.
    pub(crate) fn retune(&mut self, attr: &Attributes) {
        self.resources.set_depth(attr.max_dest_rd_atomic);
    }

    /// Empties the queue and the state, without completions.
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
        self.rest();
    }

    /// Completes all receive WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.rq.flush(qpn, out);
        self.rest();
    }

    /// Handles a request packet of the peer's requester.
    // Held packets are a second caller, for which no other packet is to pay a call.
    #[inline(always)]
    pub(crate) fn handle_request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        if self.is_refusing {
            return Err(DropReason::AfterNak);
        }
        match self.request(context, packet, env) {
            Ok(()) => Ok(Outcome::Alive),
            Err(verdict) => self.pass(verdict, context, env),
        }
    }

    /// Handles a packet with an undefined opcode. Only its PSN is used: it is checked as a request
    /// for an operation that the QP does not allow.
    pub(crate) fn handle_reserved_opcode(
        &mut self,
        context: &Context<'_>,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        if self.is_refusing {
            return Err(DropReason::AfterNak);
        }
        let verdict = match bth.psn.distance_from(self.expected_psn) {
            0 => Verdict::Nak(NakCode::InvalidRequest),
            ..0 => Verdict::Drop(DropReason::ReservedOpCode),
            _ => self.handle_gap(bth.psn, context, env),
        };
        self.pass(verdict, context, env)
    }

    /// Carries out the verdict on a request that is not executed.
    fn pass(
        &mut self,
        verdict: Verdict,
        context: &Context<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        self.has_heard = true;
        match verdict {
            Verdict::Done => {}
            Verdict::Drop(reason) => return Err(reason),
            Verdict::Hold => return Ok(Outcome::Held),
            Verdict::RnrNak => {
                env.count(Counter::OutOfBuffer);
                env.count(Counter::RnrNakSent);
                self.awaits = Awaits::Refused;
                self.gap_end = self.expected_psn.next();
                self.answer_with(Syndrome::RnrNak { timer: context.attr.min_rnr_timer });
            }
            Verdict::Nak(code) => {
                match code {
                    NakCode::RemoteAccessError => env.event(AsyncEvent::QpAccessErr),
                    NakCode::InvalidRequest | NakCode::InvalidRdRequest => {
                        env.event(AsyncEvent::QpReqErr);
                    }
                    _ => {}
                }
                self.refuse(self.expected_psn, code, env);
            }
            Verdict::NakAndFail(code, status) => {
                self.rq.fail_front(context.by.qpn, status, env);
                self.refuse(self.expected_psn, code, env);
            }
            Verdict::Fail(status) => {
                self.rq.fail_front(context.by.qpn, status, env);
                return Ok(Outcome::Failed);
            }
        }
        Ok(Outcome::Alive)
    }

    /// Checks and executes a request in the specification's order; returns at the first failed
    /// check.
    fn request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        //= check A9 — the PSN is checked before the opcode: swapped packets are no invalid request
        self.check_psn(context, packet, env)?;
        self.check_op_sequence(packet)?;
        self.check_op_allowed(context, packet)?;
        self.check_resource(context, packet, env)?;
        self.check_length(context, packet, env)?;
        self.check_rkey(context, packet, env.memory())?;
        self.execute(context, packet, env)?;
        self.acknowledge(packet);
        Ok(())
    }

    /// Makes an ACK due, for everything up to this packet, if the packet requests one. A request
    /// with a response of its own needs none: the response acknowledges it.
    fn acknowledge(&mut self, packet: &Packet<'_>) {
        let is_data = matches!(packet.op.operation, Operation::Send | Operation::Write);
        //= check A16 — an AckReq is always answered
        if packet.bth.ack_req && is_data {
            self.answer_with(Syndrome::UNLIMITED);
        }
    }

    /// Makes an ACK or NAK due. An ACK does not replace a NAK that is still to be sent.
    fn answer_with(&mut self, syndrome: Syndrome) {
        let is_ack = matches!(syndrome, Syndrome::Ack { .. });
        if is_ack && self.owes_nak() {
            return;
        }
        let psn = if is_ack { self.expected_psn.minus(1) } else { self.expected_psn };
        let psn = if seeded!(AckTooFar) && is_ack { psn.next() } else { psn };
        let psn = if seeded!(NakForWrongPsn) && !is_ack { psn.next() } else { psn };
        self.answer = Some(Answer { psn, syndrome });
    }

    /// PSN of the request that is expected next.
    pub(crate) fn expected_psn(&self) -> Psn {
        self.expected_psn
    }

    /// Returns whether a NAK is still to be sent.
    fn owes_nak(&self) -> bool {
        self.answer.is_some_and(|answer| !matches!(answer.syndrome, Syndrome::Ack { .. }))
    }

    /// Ends the connection: earlier answers are still sent, then this NAK, then nothing.
    fn refuse(&mut self, psn: Psn, code: NakCode, out: &mut impl Output) {
        match code {
            NakCode::RemoteAccessError => out.count(Counter::RespRemoteAccessErrors),
            NakCode::InvalidRequest => out.count(Counter::RespRemoteInvalidRequests),
            NakCode::InvalidRdRequest => out.count(Counter::RespXrcViolations),
            _ => {}
        }
        self.is_refusing = true;
        self.answer = Some(Answer { psn, syndrome: Syndrome::Nak(code) });
    }

    /// Sends the next answer packet that is due. If `is_held`, only a bare acknowledgement is sent.
    pub(crate) fn transmit(
        &mut self,
        context: &Context<'_>,
        is_held: bool,
        env: &mut impl Env,
    ) -> Step {
        if let Some(reply) = self.resources.next_reply(context.mtu()) {
            if is_held {
                return Step::Idle;
            }
            return self.transmit_reply(&reply, context, env);
        }
        let Some(Answer { psn, mut syndrome }) = self.answer else { return Step::Idle };
        if let Syndrome::Ack { .. } = syndrome {
            syndrome = self.rq.ack(env);
        }
        let aeth = Aeth { syndrome, msn: self.msn };
        if let Syndrome::Ack { .. } = syndrome
            && self.is_holding()
        {
            return self.transmit_selective(aeth, context, env);
        }
        let bth = context.bth(OpCode::RC_ACKNOWLEDGE, psn, 0);
        let ext = ExtHeaders { aeth, ..ExtHeaders::default() };
        let packet =
            Outbound { path: context.path(), bth, ext, by: context.by, payload: Gather::EMPTY };
        let Ok(len) = env.transmit(&packet) else { return Step::Blocked };
        self.answer = None;
        if !matches!(syndrome, Syndrome::Ack { .. }) {
            self.nak_at = Stamp::of(context.now);
        }
        if self.is_refusing { Step::Refused } else { Step::Sent(len) }
    }

    fn transmit_reply(&mut self, reply: &Reply, context: &Context<'_>, env: &mut impl Env) -> Step {
        let packet = self.reply_packet(reply, self.rq.ack(env), context);
        match env.transmit(&packet) {
            Ok(len) => {
                self.resources.sent(reply);
                Step::Sent(len)
            }
            Err(TransmitError::Full | TransmitError::Paced(_)) => Step::Blocked,
            //= check C7 — a repetition that cannot be answered is dropped: the peer has its answer
            Err(_) if self.resources.give_up(reply) => Step::Done,
            //= check C18 — if memory goes away in the middle of a READ, a NAK ends it
            Err(TransmitError::Memory(_) | TransmitError::UnknownAh) => {
                self.resources.clear();
                env.event(AsyncEvent::QpAccessErr);
                self.refuse(reply.psn, NakCode::RemoteAccessError, env);
                self.transmit(context, false, env)
            }
        }
    }

    fn reply_packet<'a>(
        &self,
        reply: &Reply,
        syndrome: Syndrome,
        context: &Context<'a>,
    ) -> Outbound<'a> {
        let aeth = Aeth { syndrome, msn: self.msn };
        match reply.asked {
            PendingAnswer::Atomic { original } => {
                let bth = context.bth(OpCode::RC_ATOMIC_ACKNOWLEDGE, reply.psn, 0);
                let atomic_ack = AtomicAckEth { original };
                let ext = ExtHeaders { aeth, atomic_ack, ..ExtHeaders::default() };
                Outbound { path: context.path(), bth, ext, by: context.by, payload: Gather::EMPTY }
            }
            PendingAnswer::Read { va, rkey, .. } => {
                //= check C1 — First, Middle and Last, or Only; AETH on all but Middle
                let opcode = match (reply.is_first, reply.is_last) {
                    (true, true) => OpCode::RC_RDMA_READ_RESPONSE_ONLY,
                    (true, false) => OpCode::RC_RDMA_READ_RESPONSE_FIRST,
                    (false, false) => OpCode::RC_RDMA_READ_RESPONSE_MIDDLE,
                    (false, true) => OpCode::RC_RDMA_READ_RESPONSE_LAST,
                };
                let bth = context.bth(opcode, reply.psn, reply.len);
                let va = Va(va.0.wrapping_add(u64::from(reply.offset)));
                let region = Region { key: Key::Remote(rkey), va, len: reply.len };
                let ext = ExtHeaders { aeth, ..ExtHeaders::default() };
                Outbound {
                    path: context.path(),
                    bth,
                    ext,
                    by: context.by,
                    payload: Gather::region(region),
                }
            }
        }
    }

    /// Clears the message in progress and all answers that are due.
    fn rest(&mut self) {
        self.message = Message::None;
        self.awaits = Awaits::Nothing;
        self.repair = 0;
        self.resources.clear();
        self.answer = None;
        self.is_refusing = false;
        if let Some(held) = &mut self.held {
            held.clear();
        }
    }
}
