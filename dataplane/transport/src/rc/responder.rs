//! Responder: inbound request packets become memory effects and acknowledgements.
//!
//! Read first: IBA 9.7.4 and 9.7.5; Annex A17 for what RoCEv2 changes.
//!
//! A request walks [`validate`] → [`execute`] → the answer. Duplicates leave the walk after the
//! PSN check. The order of checks is the specification's; a packet with two faults is answered
//! for the first.
//!
//! What holds
//! - `expected_psn` moves only in `execute`, and only forward.
//! - At most one PSN-sequence or RNR NAK is outstanding (`awaits_expected`).
//! - No request is executed twice; READ and ATOMIC replay from `resources`.
//! - Answers leave in the order of the requests: READ data and ATOMIC results first, then the one
//!   coalesced ACK or NAK that covers what came after them.
//! - After a NAK that ends the connection no request is looked at.
//!
//! Not here: ICRC, addresses, P_Key (checked before), timers (the responder has none).

mod execute;
mod validate;

use uroce_wire::{
    Aeth, AtomicAckEth, Bth, ExtHeaders, Msn, NakCode, OpCode, Operation, Packet, Psn, Qpn, Rkey,
    Syndrome, Va,
};

use super::resources::{Asked, Reply, Resources};
use super::{Context, Step};
use crate::attr::QpAttr;
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::drop_reason::DropReason;
use crate::env::{Env, Key, Outbound, Output, Path, Region, Side, TransmitError};
use crate::gather::Gather;
use crate::queue::{QpCaps, WorkQueue};
use crate::wqe::{PostError, RecvWqe, RecvWr, Sge};

/// The message that request packets are in the middle of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    None,
    /// A SEND into the oldest receive WQE.
    Send {
        received: u32,
    },
    /// A WRITE: where the next byte goes, and how many are still to come.
    Write {
        va: Va,
        rkey: Rkey,
        total: u32,
        left: u32,
    },
}

/// The ACK or NAK that is owed to the peer. A newer one covers an older one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Answer {
    psn: Psn,
    syndrome: Syndrome,
}

/// How a request packet ends that is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// Nothing more is to be done: a duplicate that has been dealt with.
    Done,
    Drop(DropReason),
    /// No receive WQE.
    RnrNak,
    /// The connection ends with this NAK.
    Nak(NakCode),
    /// As `Nak`, and the oldest receive WQE completes with this status.
    NakAndFail(NakCode, WcStatus),
}

#[derive(Debug)]
pub(crate) struct Responder {
    rq: WorkQueue<RecvWqe>,
    expected_psn: Psn,
    msn: Msn,
    message: Message,
    /// A sequence or RNR NAK was given; silence until the expected PSN comes.
    awaits_expected: bool,
    resources: Resources,
    answer: Option<Answer>,
    /// The answer is the NAK that ends the connection.
    is_refusing: bool,
}

impl Responder {
    pub(crate) fn new(caps: &QpCaps) -> Responder {
        Responder {
            rq: WorkQueue::new(caps.max_recv_wr, caps.max_recv_sge, 0),
            expected_psn: Psn::default(),
            msn: Msn::default(),
            message: Message::None,
            awaits_expected: false,
            resources: Resources::new(),
            answer: None,
            is_refusing: false,
        }
    }

    /// Entering RTR: the first packet expected has the attributes' RQ PSN.
    pub(crate) fn start(&mut self, attr: &QpAttr) {
        self.rest();
        self.expected_psn = attr.rq_psn;
        self.msn = Msn::default();
        self.resources.start(attr.max_dest_rd_atomic);
    }

    /// The attributes of a drained QP have changed.
    pub(crate) fn retune(&mut self, attr: &QpAttr) {
        self.resources.set_depth(attr.max_dest_rd_atomic);
    }

    /// Forgets everything, without completions.
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
        self.rest();
    }

    pub(crate) fn depth(&self) -> u32 {
        self.rq.wqes.len()
    }

    pub(crate) fn post(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        let len = self.rq.check(sges)?;
        let num_sge = sges.len() as u32;
        let wr_id = wr.wr_id;
        self.rq.push(sges, |sge_at| RecvWqe { wr_id, len, sge_at, num_sge });
        Ok(())
    }

    /// Completes everything flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        while !self.rq.wqes.is_empty() {
            self.fail_front(qpn, WcStatus::WrFlushErr, out);
        }
        self.rest();
    }

    /// Takes a request packet of the peer's requester.
    pub(crate) fn handle_request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        if self.is_refusing {
            return Err(DropReason::AfterNak);
        }
        match self.request(context, packet, env) {
            Ok(()) | Err(Verdict::Done) => return Ok(()),
            Err(Verdict::Drop(reason)) => return Err(reason),
            Err(Verdict::RnrNak) => {
                env.count(Counter::OutOfBuffer);
                env.count(Counter::RnrNakSent);
                self.awaits_expected = true;
                self.answer_with(Syndrome::RnrNak { timer: context.attr.min_rnr_timer });
            }
            Err(Verdict::Nak(code)) => self.refuse(self.expected_psn, code, env),
            Err(Verdict::NakAndFail(code, status)) => {
                self.fail_front(context.by.qpn, status, env);
                self.refuse(self.expected_psn, code, env);
            }
        }
        Ok(())
    }

    /// A packet of which nothing is known but its PSN: judged as a request of an unknown operation.
    pub(crate) fn handle_reserved_opcode(
        &mut self,
        context: &Context<'_>,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        if self.is_refusing {
            return Err(DropReason::AfterNak);
        }
        if bth.psn != self.expected_psn {
            return Err(DropReason::ReservedOpCode);
        }
        let _ = context;
        self.refuse(self.expected_psn, NakCode::InvalidRequest, env);
        Ok(())
    }

    /// The specification's walk; `?` leaves it with the first failed check.
    fn request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        self.check_psn(context, packet, env)?;
        self.check_op_sequence(packet)?;
        self.check_op_allowed(context, packet)?;
        self.check_resource(packet)?;
        self.check_length(context, packet, env)?;
        self.check_rkey(context, packet, env)?;
        self.execute(context, packet, env)?;
        self.acknowledge(packet);
        Ok(())
    }

    /// Owes the peer an ACK for everything up to here, if it asked for one. The answer to a READ or
    /// ATOMIC is one already.
    fn acknowledge(&mut self, packet: &Packet<'_>) {
        let is_data = matches!(packet.op.operation, Operation::Send | Operation::Write);
        //= check A16 — an AckReq is never left unanswered
        if packet.bth.ack_req && is_data {
            self.answer_with(Syndrome::UNLIMITED);
        }
    }

    /// Owes the peer this answer. An ACK never takes the place of a NAK that is still to go.
    fn answer_with(&mut self, syndrome: Syndrome) {
        let is_ack = matches!(syndrome, Syndrome::Ack { .. });
        let owes_nak =
            self.answer.is_some_and(|answer| !matches!(answer.syndrome, Syndrome::Ack { .. }));
        if is_ack && owes_nak {
            return;
        }
        let psn = if is_ack { self.expected_psn.minus(1) } else { self.expected_psn };
        self.answer = Some(Answer { psn, syndrome });
    }

    /// Ends the connection: what is owed from before goes out, then this NAK, then nothing.
    fn refuse(&mut self, psn: Psn, code: NakCode, out: &mut impl Output) {
        if code == NakCode::RemoteAccessError {
            out.count(Counter::RespRemoteAccessErrors);
        }
        self.is_refusing = true;
        self.answer = Some(Answer { psn, syndrome: Syndrome::Nak(code) });
    }

    /// Sends the next packet that is owed to the peer.
    pub(crate) fn transmit(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if let Some(reply) = self.resources.next_reply(context.mtu()) {
            return self.transmit_reply(&reply, context, env);
        }
        let Some(Answer { psn, syndrome }) = self.answer else { return Step::Idle };
        let bth = response_bth(OpCode::RC_ACKNOWLEDGE, psn, 0, context);
        let ext = ExtHeaders { aeth: Aeth { syndrome, msn: self.msn }, ..ExtHeaders::default() };
        let packet =
            Outbound { path: Path::Connected, bth, ext, by: context.by, payload: Gather::EMPTY };
        if env.transmit(&packet).is_err() {
            return Step::Blocked;
        }
        self.answer = None;
        if self.is_refusing { Step::Refused } else { Step::Sent }
    }

    fn transmit_reply(&mut self, reply: &Reply, context: &Context<'_>, env: &mut impl Env) -> Step {
        let packet = self.reply_packet(reply, context);
        match env.transmit(&packet) {
            Ok(()) => {
                self.resources.sent(reply);
                Step::Sent
            }
            Err(TransmitError::Full) => Step::Blocked,
            //= check C18 — memory that is gone in the middle of a READ ends it with a NAK
            Err(TransmitError::Memory(_) | TransmitError::UnknownAh) => {
                self.resources.clear();
                self.refuse(reply.psn, NakCode::RemoteAccessError, env);
                self.transmit(context, env)
            }
        }
    }

    fn reply_packet(&self, reply: &Reply, context: &Context<'_>) -> Outbound<'static> {
        let aeth = Aeth { syndrome: Syndrome::UNLIMITED, msn: self.msn };
        match reply.asked {
            Asked::Atomic { original } => {
                let bth = response_bth(OpCode::RC_ATOMIC_ACKNOWLEDGE, reply.psn, 0, context);
                let atomic_ack = AtomicAckEth { original };
                let ext = ExtHeaders { aeth, atomic_ack, ..ExtHeaders::default() };
                Outbound { path: Path::Connected, bth, ext, by: context.by, payload: Gather::EMPTY }
            }
            Asked::Read { va, rkey, .. } => {
                //= check C1 — First, Middle and Last, or Only; AETH on all but Middle
                let opcode = match (reply.is_first, reply.is_last) {
                    (true, true) => OpCode::RC_RDMA_READ_RESPONSE_ONLY,
                    (true, false) => OpCode::RC_RDMA_READ_RESPONSE_FIRST,
                    (false, false) => OpCode::RC_RDMA_READ_RESPONSE_MIDDLE,
                    (false, true) => OpCode::RC_RDMA_READ_RESPONSE_LAST,
                };
                let bth = response_bth(opcode, reply.psn, reply.len, context);
                let va = Va(va.0.wrapping_add(u64::from(reply.offset)));
                let region = Region { key: Key::Remote(rkey), va, len: reply.len };
                let ext = ExtHeaders { aeth, ..ExtHeaders::default() };
                Outbound {
                    path: Path::Connected,
                    bth,
                    ext,
                    by: context.by,
                    payload: Gather::region(region),
                }
            }
        }
    }

    /// Completes the oldest receive WQE with the data of a message.
    fn complete_front(&mut self, mut cqe: Cqe, out: &mut impl Output) {
        let Some(wqe) = self.rq.pop(|wqe| wqe.num_sge) else { return };
        cqe.wr_id = wqe.wr_id;
        out.count(Counter::RecvMessages);
        out.complete(Side::Recv, cqe);
    }

    /// Completes the oldest receive WQE with an error.
    fn fail_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        let Some(wqe) = self.rq.pop(|wqe| wqe.num_sge) else { return };
        out.count(match status {
            WcStatus::WrFlushErr => Counter::RespCqeFlushError,
            _ => Counter::RespCqeError,
        });
        out.complete(Side::Recv, Cqe::new(wqe.wr_id, status, WcOpcode::Recv, qpn));
    }

    /// No message and no answer is pending any more.
    fn rest(&mut self) {
        self.message = Message::None;
        self.awaits_expected = false;
        self.resources.clear();
        self.answer = None;
        self.is_refusing = false;
    }
}

fn response_bth(opcode: OpCode, psn: Psn, payload_len: u32, context: &Context<'_>) -> Bth {
    Bth {
        opcode,
        mig_req: true,
        pad_count: (payload_len.wrapping_neg() & 3) as u8,
        pkey: context.attr.pkey,
        dest_qpn: context.attr.dest_qpn,
        psn,
        ..Bth::default()
    }
}

/// Does the packet complete a message that consumes a receive WQE?
fn takes_receive_wqe(packet: &Packet<'_>) -> bool {
    match packet.op.operation {
        Operation::Send => packet.op.position.is_last(),
        Operation::Write => packet.op.has(uroce_wire::Header::ImmDt),
        _ => false,
    }
}
