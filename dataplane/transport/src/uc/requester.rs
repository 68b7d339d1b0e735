//! UC requester: turns send WQEs into request packets, each sent once.
//!
//! Read first: IBA 9.8.
//!
//! Invariants
//! - `next_psn` lies in the oldest WQE once that WQE is begun.
//! - A WQE completes when the sink has taken its last packet.
//!
//! Not here: the effect of a local error (SQE, [`crate::qp`]).

use uroce_wire::{OpCode, Psn, Qpn};

use crate::attr::Attributes;
use crate::context::{Context, Step};
use crate::cqe::WcStatus;
use crate::env::{Env, Output, TransmitError};
use crate::queue::QpCaps;
use crate::segment::data_packet;
use crate::send_queue::{SendQueue, carry_out};

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) sq: SendQueue,
    next_psn: Psn,
    /// A packet of the oldest WQE has been sent, so its PSNs are fixed.
    is_begun: bool,
}

impl Requester {
    pub(crate) fn new(caps: &QpCaps) -> Requester {
        Requester { sq: SendQueue::new(caps), next_psn: Psn::default(), is_begun: false }
    }

    /// Starts the requester in RTS: the first packet will have the attributes' SQ PSN.
    pub(crate) fn start(&mut self, attr: &Attributes) {
        self.next_psn = attr.sq_psn;
    }

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        self.is_begun = false;
    }

    pub(crate) fn depth(&self) -> u32 {
        self.sq.len()
    }

    /// Returns whether no message is in progress.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_begun
    }

    /// Sends the next packet of the oldest WQE.
    pub(crate) fn transmit(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if self.sq.len() == 0 {
            return Step::Idle;
        }
        let (at, psn) = (self.sq.head(), self.next_psn);
        if let Err(step) = self.prepare(at, context, env) {
            return step;
        }
        let wqe = self.sq.at(at);
        let is_last = psn.next() == wqe.end();
        let packet = data_packet(&self.sq, at, wqe, psn, context.path(), context, OpCode::uc);
        let len = match env.transmit(&packet) {
            Ok(len) => len,
            Err(TransmitError::Full | TransmitError::Paced(_)) => return Step::Blocked,
            Err(TransmitError::Memory(_) | TransmitError::UnknownAh) => {
                return Step::Failed(WcStatus::LocProtErr);
            }
        };
        self.is_begun = true;
        self.next_psn = psn.next();
        if is_last {
            self.complete_front(context.by.qpn, WcStatus::Success, env);
        }
        Step::Sent(len)
    }

    /// Prepares the oldest WQE, at position `at`, unless it was begun. Checks it and gives it its
    /// PSNs, which it keeps once its first packet has been sent; a local operation is executed
    /// instead.
    fn prepare(&mut self, at: u32, context: &Context<'_>, env: &mut impl Env) -> Result<(), Step> {
        if self.is_begun {
            return Ok(());
        }
        let wqe = self.sq.at(at);
        //= check H4 — in SQD no new message starts
        if context.attr.state != crate::QpState::Rts {
            return Err(Step::Idle);
        }
        if wqe.op.is_local() {
            if carry_out(&wqe.op, context.by, env.memory()).is_err() {
                return Err(Step::Failed(WcStatus::MwBindErr));
            }
            self.complete_front(context.by.qpn, WcStatus::Success, env);
            return Err(Step::Done);
        }
        self.sq.check_memory(at, wqe, context.by, env.memory()).map_err(Step::Failed)?;
        self.sq.at_mut(at).first_psn = self.next_psn;
        Ok(())
    }

    /// Completes the oldest WQE with `status`.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        self.is_begun = false;
        self.sq.complete_front(qpn, status, out);
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.is_begun = false;
        self.sq.flush(qpn, out);
    }
}
