//! Keepalive at the requester: a request without effect, to which any responder answers.
//!
//! Read first: IBA 9.7.5 (duplicate requests).
//!
//! It is an RDMA WRITE Only of no bytes with AckReq, and with the PSN before the next one to be
//! sent. For the peer that is a duplicate of the last request, or of the packet before the first:
//! the PSN check comes before all other checks, and answers with an acknowledgement of the newest
//! packet. A WRITE of no bytes does less than any other request if a responder takes it for a new
//! one: it needs no receive, has no key to check and touches no memory.
//!
//! The peer's answer acknowledges nothing new. Its PSN is not looked at: Soft-RoCE acknowledges an
//! arbitrary PSN if it has not got a request yet.
//!
//! Not here: when a keepalive is due ([`crate::rc::keepalive`]).

use uroce_wire::{Bth, ExtHeaders, OpCode, Reth};

use super::Requester;
use crate::context::{Context, Step};
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::env::{Env, Outbound, Output};
use crate::gather::Gather;
use crate::time::Instant;

impl Requester {
    /// Returns whether nothing is outstanding and nothing is waited for.
    pub(in crate::rc) fn is_idle(&self) -> bool {
        self.unacked_psn == self.end_psn && self.retry.is_idle()
    }

    /// Called while an RNR wait goes on, or a sign of life is waited for: sends a keepalive if one
    /// is due. Requests that are posted meanwhile are sent, and their answers then show whether the
    /// peer lives.
    #[cold]
    pub(super) fn transmit_held(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        if !self.retry.waits_for_life() {
            return Step::Idle;
        }
        let step = self.transmit_requests(context, env);
        if let Step::Sent(_) = step {
            self.end_life(context);
            //= check B1 — the timer of the keepalive is not that of the request
            self.retry.arm(context.attr, context.now);
        }
        if step == Step::Idle && self.retry.owes_probe() {
            return self.transmit_keepalive(context, env);
        }
        step
    }

    /// Sends a keepalive, and waits for its answer.
    fn transmit_keepalive(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let step = self.transmit_empty(context, env);
        if let Step::Sent(_) = step {
            env.count(Counter::Keepalives);
            self.retry.sent_keepalive(context.attr, context.now);
        }
        step
    }

    /// Sends the packet of a keepalive without waiting for an answer, if nothing is outstanding.
    /// Returns whether it was sent.
    pub(crate) fn nudge(&mut self, context: &Context<'_>, env: &mut impl Env) -> bool {
        self.is_idle() && matches!(self.transmit_empty(context, env), Step::Sent(_))
    }

    /// Sends the packet of a keepalive.
    //= check B14 — a WRITE of no bytes, with the PSN before the next one
    fn transmit_empty(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let psn = if seeded!(KeepaliveNew) { self.end_psn } else { self.end_psn.minus(1) };
        let ack_req = !seeded!(KeepaliveUnasked);
        let bth = Bth { ack_req, ..context.bth(OpCode::RC_RDMA_WRITE_ONLY, psn, 0) };
        let ext = ExtHeaders { reth: Reth::default(), ..ExtHeaders::default() };
        let (path, payload) = (context.path(), Gather::EMPTY);
        let Ok(len) = env.transmit(&Outbound { path, bth, ext, by: context.by, payload }) else {
            return Step::Blocked;
        };
        Step::Sent(len)
    }

    /// Begins to wait for a sign of life: sends a keepalive.
    pub(in crate::rc) fn begin_life(&mut self, context: &Context<'_>) {
        self.retry.begin_life(context.attr);
    }

    /// Ends the wait for a sign of life, if it goes on.
    pub(in crate::rc) fn end_life(&mut self, context: &Context<'_>) {
        if self.retry.waits_for_life() {
            self.retry.end_life(context.attr);
            self.retry.set_probe(context.attr, self.trip.quiet());
        }
    }

    /// Returns whether a keepalive has had no answer for the local ACK timeout.
    pub(in crate::rc) fn is_life_overdue(&self, now: Instant) -> bool {
        self.retry.is_life_overdue(now)
    }

    /// Handles a keepalive that has had no answer for the local ACK timeout: sends another.
    //= check B16 — as often as a request
    ///
    /// # Errors
    /// No retry is left.
    pub(in crate::rc) fn repeat_keepalive(
        &mut self,
        out: &mut impl Output,
    ) -> Result<(), WcStatus> {
        out.count(Counter::LocalAckTimeoutErr);
        if self.retry.charge_keepalive() {
            return Ok(());
        }
        out.count(Counter::TransportRetriesExceeded);
        Err(WcStatus::RetryExcErr)
    }

    /// Returns whether the peer has acknowledged something new after `time`.
    pub(in crate::rc) fn has_progress_since(&self, time: Instant) -> bool {
        self.retry.last_progress().is_some_and(|at| at > time)
    }
}
