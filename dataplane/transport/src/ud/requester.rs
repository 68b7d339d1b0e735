//! UD requester: turns each send WQE into one datagram.
//!
//! Read first: IBA 9.8.
//!
//! Invariants
//! - A WQE completes when the sink has taken its datagram.
//!
//! Not here: the effect of a local error (SQE, [`crate::qp`]), the path of an address handle (the
//! sink).

use uroce_wire::{Bth, Deth, ExtHeaders, OpCode, Psn, Qkey, Qpn};

use crate::attr::Attributes;
use crate::context::{Context, Step};
use crate::cqe::WcStatus;
use crate::env::{Env, Outbound, Output, Path, TransmitError};
use crate::queue::QpCaps;
use crate::send_queue::SendQueue;
use crate::time::Instant;
use crate::wqe::SendOp;

/// Bit of controlled Q_Keys: if a work request's Q_Key has it, the QP's own Q_Key is sent instead.
const CONTROLLED: u32 = 1 << 31;

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) sq: SendQueue,
    next_psn: Psn,
    /// Time at which the path of the oldest datagram takes a packet, after [`Step::Paced`].
    paced_until: Instant,
}

impl Requester {
    pub(crate) fn new(caps: &QpCaps) -> Requester {
        Requester { sq: SendQueue::new(caps), next_psn: Psn::default(), paced_until: Instant::ZERO }
    }

    /// Starts the requester in RTS: the first packet will have the attributes' SQ PSN.
    pub(crate) fn start(&mut self, attr: &Attributes) {
        self.next_psn = attr.sq_psn;
    }

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
    }

    pub(crate) fn depth(&self) -> u32 {
        self.sq.len()
    }

    /// Returns whether no message is in progress: always, because a datagram is sent as a whole.
    pub(crate) fn is_quiet(&self) -> bool {
        true
    }

    /// Time at which to try again after [`Step::Paced`].
    pub(crate) fn paced_until(&self) -> Instant {
        self.paced_until
    }

    /// Sends the oldest WQE's datagram.
    pub(crate) fn transmit(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let Some(wqe) = self.sq.front() else { return Step::Idle };
        //= check H4 — in SQD no new message starts
        if context.attr.state != crate::QpState::Rts {
            return Step::Idle;
        }
        let SendOp::SendTo { ah, dest_qpn, qkey, imm } = wqe.op else {
            unreachable!("posts are of the service")
        };
        //= check L4 — a datagram longer than the path MTU is a local error
        if wqe.len > context.mtu() {
            return Step::Failed(WcStatus::LocLenErr);
        }
        let opcode = match imm {
            Some(_) => OpCode::UD_SEND_ONLY_WITH_IMMEDIATE,
            None => OpCode::UD_SEND_ONLY,
        };
        let solicited = wqe.solicited;
        let bth = Bth { dest_qpn, solicited, ..context.bth(opcode, self.next_psn, wqe.len) };
        let is_ours = qkey.0 & CONTROLLED != 0;
        let qkey: Qkey = if is_ours { context.attr.qkey } else { qkey };
        let deth = Deth { qkey, src_qpn: context.by.qpn };
        let ext = ExtHeaders { deth, imm: imm.unwrap_or_default(), ..ExtHeaders::default() };
        let payload = self.sq.payload(self.sq.head(), wqe, 0, wqe.len);
        let packet = Outbound { path: Path::Ah(ah), bth, ext, by: context.by, payload };
        let len = match env.transmit(&packet) {
            Ok(len) => len,
            Err(TransmitError::Full) => return Step::Blocked,
            Err(TransmitError::Paced(until)) => {
                self.paced_until = until;
                return Step::Paced;
            }
            Err(TransmitError::Memory(_)) => return Step::Failed(WcStatus::LocProtErr),
            Err(TransmitError::UnknownAh) => return Step::Failed(WcStatus::LocQpOpErr),
        };
        self.next_psn = self.next_psn.next();
        self.complete_front(context.by.qpn, WcStatus::Success, env);
        Step::Sent(len)
    }

    /// Completes the oldest WQE with `status`.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        self.sq.complete_front(qpn, status, out);
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.sq.flush(qpn, out);
    }
}
