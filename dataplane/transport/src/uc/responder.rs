//! UC responder: executes request packets as long as none is missing.
//!
//! Read first: IBA 9.8.
//!
//! Invariants
//! - A packet that is not the expected one, or that breaks a rule, ends its message: the rest of
//!   the message is dropped, and the next First or Only begins a new one.
//! - Only a whole message consumes a receive WQE; one that a dropped message has partly filled is
//!   filled again.
//! - Nothing is answered.

use uroce_wire::{Header, Operation, Packet, Psn, Qpn};

use crate::attr::Attributes;
use crate::context::{Context, Outcome};
use crate::counter::Counter;
use crate::cqe::{WcOpcode, WcStatus};
use crate::drop_reason::DropReason;
use crate::env::{AccessKind, Env, Output};
use crate::inbound::{Message, check_range, fits_position, is_allowed, needs_receive};
use crate::queue::QpCaps;
use crate::recv_queue::RecvQueue;

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
    expected_psn: Psn,
    message: Message,
}

/// Result for a packet that is not executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The packet is dropped with its message.
    Drop(DropReason),
    /// The oldest receive WQE completes with this status; the QP goes to ERR.
    Fail(WcStatus),
}

const MESSAGE: Verdict = Verdict::Drop(DropReason::MessageDropped);

impl Responder {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> Responder {
        let rq = RecvQueue::new(caps, uses_srq);
        Responder { rq, expected_psn: Psn::default(), message: Message::None }
    }

    /// Starts the responder in RTR: the first packet expected has the attributes' RQ PSN.
    pub(crate) fn start(&mut self, attr: &Attributes) {
        self.message = Message::None;
        self.expected_psn = attr.rq_psn;
    }

    /// Empties the queue and the state, without completions.
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
        self.message = Message::None;
    }

    /// Completes all receive WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.rq.flush(qpn, out);
        self.message = Message::None;
    }

    /// Handles a request packet of the peer's requester.
    //= check L1 — a packet that breaks a rule drops its message silently, the receive WQE stays
    pub(crate) fn handle_request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        match self.request(context, packet, env) {
            Ok(()) => Ok(Outcome::Alive),
            Err(Verdict::Drop(reason)) => {
                self.message = Message::None;
                Err(reason)
            }
            Err(Verdict::Fail(status)) => {
                self.rq.fail_front(context.by.qpn, status, env);
                Ok(Outcome::Failed)
            }
        }
    }

    fn request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        self.check_psn(packet, env);
        if !self.message.is_followed_by(packet.op) {
            return Err(MESSAGE);
        }
        if !is_allowed(packet, context.attr.access) {
            return Err(MESSAGE);
        }
        if needs_receive(packet) && !self.rq.ensure(env) {
            env.count(Counter::OutOfBuffer);
            return Err(Verdict::Drop(DropReason::NoReceiveWqe));
        }
        self.check_length(context, packet, env)?;
        self.check_rkey(context, packet, env)?;
        self.execute(context, packet, env)
    }

    /// Detects a packet missing before this one. A First or Only begins a new message in any case.
    //= check L2 — a packet out of order drops the message it belongs to
    fn check_psn(&mut self, packet: &Packet<'_>, out: &mut impl Output) {
        let is_expected = packet.bth.psn == self.expected_psn;
        if !is_expected {
            out.count(Counter::OutOfSequence);
        }
        if !is_expected || packet.op.position.is_first() {
            self.message = Message::None;
        }
        self.expected_psn = packet.bth.psn.next();
    }

    fn check_length(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        out: &mut impl Output,
    ) -> Result<(), Verdict> {
        let is_send = packet.op.operation == Operation::Send;
        if is_send && !self.rq.has_room(self.message.received(), packet.payload, out) {
            return Err(MESSAGE);
        }
        let fits = fits_position(packet, context.attr.path_mtu)
            && (is_send || self.message.fits_write(packet));
        if fits { Ok(()) } else { Err(MESSAGE) }
    }

    fn check_rkey(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        if !packet.op.has(Header::Reth) {
            return Ok(());
        }
        let reth = &packet.ext.reth;
        check_range(reth.rkey, reth.va, reth.dma_len, AccessKind::Write, context.by, env.memory())
            .map_err(|_| {
                env.count(Counter::RespRemoteAccessErrors);
                MESSAGE
            })
    }

    fn execute(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let (opcode, byte_len) = match packet.op.operation {
            Operation::Send => {
                let received = self.message.received();
                self.rq
                    .scatter(received, packet.payload, context.recv_by(), env.memory())
                    .map_err(|_| Verdict::Fail(WcStatus::LocProtErr))?;
                let received = received + packet.payload.len() as u32;
                self.message = Message::Send { received };
                (WcOpcode::Recv, received)
            }
            _ => {
                //= check F16 — the peer gets no answer, so it is counted here
                let done = self.message.write(packet, context.by, env.memory()).map_err(|_| {
                    env.count(Counter::RespRemoteAccessErrors);
                    MESSAGE
                })?;
                let Some(total) = done else { return Ok(()) };
                env.count(Counter::WriteRequests);
                (WcOpcode::RecvRdmaWithImm, total)
            }
        };
        if packet.op.position.is_last() {
            self.message = Message::None;
            if needs_receive(packet) {
                self.rq.complete_message(context.by.qpn, packet, opcode, byte_len, env);
            }
        }
        Ok(())
    }
}
