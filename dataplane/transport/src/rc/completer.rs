//! Completer: turns inbound responses into completions, or into reasons to send again.
//!
//! Read first: IBA 9.7.6.
//!
//! Invariants
//! - Only responses with a PSN from `unacked_psn` up to `end_psn` are used; all others are stale.
//! - WQEs complete in order. A later acknowledgement never completes a WQE with a response of its
//!   own, such as a READ. It shows that the response was lost: an implied NAK.
//! - A response's payload is written before `unacked_psn` moves past it, and never again.
//!
//! Not here: sending the rewound packets ([`super::requester`]).

mod selective;

use uroce_wire::{Aeth, Header, NakCode, Operation, Packet, Position, Psn, Syndrome, credits};

use super::Requester;
use crate::context::Context;
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::env::{Env, Output};
use crate::send_queue::SendQueue;
use crate::wqe::{SendOp, SendWqe};

/// Whether all requests before a response's PSN are acknowledged by it.
#[derive(PartialEq, Eq)]
enum Acked {
    All,
    /// The response of a READ or ATOMIC is missing; the request has been, or will be, sent again.
    Gap,
}

impl Requester {
    /// Handles a response packet of the peer's responder.
    ///
    /// # Errors
    /// The status with which the oldest WQE fails.
    pub(crate) fn handle_response(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let psn = packet.bth.psn;
        //= check A11 — a NAK older than what is outstanding is ignored
        //= check A12 — an old ACK is ignored
        //= check A13 — an ACK of a PSN that was never sent is ignored
        //= check C9 — a copy of a READ response that was handled before is ignored
        let mut is_old = psn.is_before(self.unacked_psn) && !seeded!(StaleResponseTaken);
        if packet.op.operation == Operation::SelectiveAcknowledge {
            // It acknowledges nothing new if only packets beyond the oldest have come.
            is_old = psn.next().is_before(self.unacked_psn);
        }
        if seeded!(NoPsnWrap) {
            is_old |= psn.value() < self.unacked_psn.value();
        }
        if is_old || !psn.is_before(self.end_psn) {
            env.count(Counter::StaleResponse);
            if !seeded!(KeepaliveDeaf) {
                self.has_heard = true;
                self.end_life(context);
            }
            if psn.next() == self.unacked_psn && packet.op.operation == Operation::Acknowledge {
                self.take_credits(&packet.ext.aeth);
            }
            return Ok(());
        }
        if packet.op.has(Header::Aeth) {
            self.take_credits(&packet.ext.aeth);
        }
        match packet.op.operation {
            Operation::ReadResponse => self.handle_read_response(context, packet, env),
            Operation::AtomicAcknowledge => self.handle_atomic_ack(context, packet, env),
            Operation::SelectiveAcknowledge => self.handle_selective(context, psn, packet, env),
            _ => self.handle_acknowledge(context, psn, packet.ext.aeth.syndrome, env),
        }
    }

    /// Updates the credit limit: the last message that the peer has a receive for.
    //= check A12 — an ACK that repeats the newest one only updates the credits
    fn take_credits(&mut self, aeth: &Aeth) {
        if let Syndrome::Ack { credits: code } = aeth.syndrome {
            let receives = credits(code);
            self.is_limited = receives.is_some();
            self.credit_limit = aeth.msn.plus(receives.unwrap_or(0));
        }
    }

    /// Handles timers that have expired by `context.now`.
    pub(crate) fn handle_timeout(
        &mut self,
        context: &Context<'_>,
        out: &mut impl Output,
    ) -> Result<(), WcStatus> {
        if self.retry.waits_for_life() {
            return Ok(());
        }
        if self.retry.expire_rnr(context.now) {
            self.retry.set_probe(context.attr, self.trip.quiet());
            // With selective repeat, a copy of the refused packet may have been accepted meanwhile,
            // so that nothing is sent again now.
            if self.is_selective() && self.is_waiting() {
                self.retry.arm(context.attr, context.now);
            }
        }
        //= check B12 — however late the call is, it charges one timeout
        if self.retry.expire_ack(context.now) {
            out.count(Counter::LocalAckTimeoutErr);
            self.note_lost(self.end_psn);
            // The peer may have lost what it held.
            if let Some(sent) = &mut self.sent {
                sent.distrust();
            }
            //= check A3 — resume at the oldest unacknowledged PSN
            self.try_again(self.unacked_psn, out)?;
        } else if self.retry.expire_quiet(context.now) {
            //= check A23 — a lost tail is looked for after some round trips, at no charge
            self.trip.probed();
            self.retry.set_probe(context.attr, self.trip.quiet());
        }
        Ok(())
    }

    fn handle_acknowledge(
        &mut self,
        context: &Context<'_>,
        psn: Psn,
        syndrome: Syndrome,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        match syndrome {
            Syndrome::Ack { .. } => {
                //= check A5 — an ACK covers everything before it
                let is_probe = self.retry.is_probed() && psn == self.unacked_psn;
                self.acknowledge_before(psn.next(), context, env)?;
                if is_probe {
                    self.judge_probe(psn, context);
                }
                Ok(())
            }
            Syndrome::RnrNak { timer } => self.handle_rnr_nak(context, psn, timer, env),
            Syndrome::Nak(code) => self.handle_nak(context, psn, code, env),
            Syndrome::Reserved(_) => {
                env.count(Counter::StaleResponse);
                Ok(())
            }
        }
    }

    fn handle_nak<E: Env>(
        &mut self,
        context: &Context<'_>,
        psn: Psn,
        code: NakCode,
        env: &mut E,
    ) -> Result<(), WcStatus> {
        //= check A17 — a NAK acknowledges everything before its PSN
        if self.acknowledge_before(psn, context, env)? == Acked::Gap {
            return Ok(());
        }
        match code {
            NakCode::PsnSequenceError => {
                //= check A10 — one rewind and one charge, for any number of copies of the NAK
                if self.next_psn == psn
                    || self.retry.is_copy(self.next_psn)
                    || self.is_repeated_alone(psn)
                {
                    return Ok(());
                }
                self.retry.note_nak(self.end_psn);
                if let Some(sent) = &mut self.sent {
                    sent.shrink();
                }
                // The peer has dropped what was sent from the missing packet on.
                self.note_lost(if self.retry.is_probed() { self.end_psn } else { psn });
                env.count(Counter::PacketSeqErr);
                self.try_again(psn, env)
            }
            NakCode::InvalidRequest => {
                env.count(Counter::ReqRemoteInvalidRequest);
                Err(WcStatus::RemInvReqErr)
            }
            //= check F1 — the requester completes with a remote access error
            NakCode::RemoteAccessError => {
                env.count(Counter::ReqRemoteAccessErrors);
                Err(WcStatus::RemAccessErr)
            }
            NakCode::RemoteOperationalError => Err(WcStatus::RemOpErr),
            //= check X3 — the requester completes with the status of an invalid domain
            //= check R12 — with RD too
            NakCode::InvalidRdRequest if E::HAS_DOMAIN => {
                env.count(Counter::ReqRemoteXrcViolation);
                Err(WcStatus::RemInvRdReqErr)
            }
            NakCode::InvalidRdRequest | NakCode::Reserved(_) => Err(WcStatus::BadRespErr),
        }
    }

    fn handle_rnr_nak(
        &mut self,
        context: &Context<'_>,
        psn: Psn,
        timer: u8,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let is_current = psn.is_before(self.next_psn) && !self.is_to_be_repeated(psn);
        let acked = self.acknowledge_before(psn, context, env)?;
        //= check B13 — a copy while waiting, or before anything was sent again, is ignored
        // With selective repeat the wait may be for an earlier packet. A copy of it was accepted.
        let is_copy = self.retry.waits_for_receiver() && !self.is_selective();
        if is_copy || !is_current {
            return Ok(());
        }
        // The request without a response was sent again already; its timer must not be restarted.
        if acked == Acked::Gap && self.next_psn != self.unacked_psn {
            return Ok(());
        }
        self.trip.forget_timed();
        env.count(Counter::RnrNakRetryErr);
        if !self.retry.begin_rnr_wait(context.attr, context.now, timer) {
            // The oldest WQE is the one without a response; the refused one fails when it is the
            // oldest.
            if acked == Acked::Gap {
                return Ok(());
            }
            env.count(Counter::RnrRetriesExceeded);
            return Err(WcStatus::RnrRetryExcErr);
        }
        //= check B6 — after a missing response too: its repeated request waits as long
        //= check B8 — the refused message is sent again from its PSN, then all that followed it
        if acked == Acked::All {
            self.go_back_to_refused(psn);
        }
        Ok(())
    }

    fn handle_read_response(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let psn = packet.bth.psn;
        let acked = self.acknowledge_before(psn, context, env)?;
        let is_read = |op: &SendOp| matches!(op, SendOp::Read { .. });
        let wqe = match answered(&self.sq, acked, is_read) {
            Ok(Some(wqe)) => wqe,
            Ok(None) => return Ok(()),
            Err(status) => return self.handle_placed(context, packet, status, env),
        };
        let mtu = context.mtu();
        let offset = psn.distance_from(wqe.first_psn) as u32 * mtu;
        let left = wqe.len - offset;
        //= check C10 — a response of the wrong length is an error, and nothing is written
        let is_last = left <= mtu;
        let is_whole = packet.payload.len() == left.min(mtu) as usize;
        if packet.op.position.is_last() != is_last || !is_whole {
            return Err(WcStatus::LocLenErr);
        }
        let at = self.sq.head();
        self.sq.scatter(at, wqe, offset, packet.payload, context.by, env.memory())?;
        self.finish_response(psn, is_last, context, env);
        Ok(())
    }

    /// Handles a READ response although the oldest WQE is no READ: an empty one answers an ATOMIC
    /// WRITE or FLUSH. Any other is an error, `status` if the WQE is none of these.
    //= check P2 — the answer is a READ response without data
    #[cold]
    fn handle_placed(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        status: WcStatus,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        if !self.sq.front().is_some_and(|wqe| wqe.op.is_placement()) {
            return Err(status);
        }
        if packet.op.position != Position::Only {
            return Err(WcStatus::BadRespErr);
        }
        if !packet.payload.is_empty() {
            return Err(WcStatus::LocLenErr);
        }
        self.finish_response(packet.bth.psn, true, context, env);
        Ok(())
    }

    fn handle_atomic_ack(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let psn = packet.bth.psn;
        let acked = self.acknowledge_before(psn, context, env)?;
        //= check C11 — an ATOMIC response to another request is an error
        let Some(wqe) = answered(&self.sq, acked, SendOp::is_atomic)? else { return Ok(()) };
        let original = packet.ext.atomic_ack.original.to_ne_bytes();
        self.sq.scatter(self.sq.head(), wqe, 0, &original, context.by, env.memory())?;
        self.finish_response(psn, true, context, env);
        Ok(())
    }

    /// Notes that the data of a READ or ATOMIC response is in memory. The oldest WQE succeeds if
    /// the response was its last one.
    #[inline]
    fn finish_response(
        &mut self,
        psn: Psn,
        is_last: bool,
        context: &Context<'_>,
        env: &mut impl Env,
    ) {
        self.unacked_psn = psn.next();
        if is_last {
            self.succeed_front(context.by.qpn, env);
        }
        self.made_progress(context, env);
    }

    /// Notes that the peer has received everything before `limit`: completes SENDs and WRITEs up to
    /// it.
    //= check A22 — so a later answer replaces an ACK that was lost
    //= check C19 — in the order of posting: a request after a READ waits for the READ's data
    fn acknowledge_before(
        &mut self,
        limit: Psn,
        context: &Context<'_>,
        env: &mut impl Env,
    ) -> Result<Acked, WcStatus> {
        let before = self.unacked_psn;
        let mut acked = Acked::All;
        while self.unacked_psn.is_before(limit) {
            let Some(wqe) = self.sq.front() else { break };
            if wqe.op.has_response() && !seeded!(AckCompletesRead) {
                acked = Acked::Gap;
                break;
            }
            let end = wqe.end();
            if limit.is_before(end) {
                self.unacked_psn = limit;
                break;
            }
            self.unacked_psn = end;
            self.succeed_front(context.by.qpn, env);
        }
        if self.unacked_psn != before {
            self.made_progress(context, env);
        }
        if acked == Acked::Gap {
            self.handle_implied_nak(limit, context, env)?;
        }
        Ok(acked)
    }

    /// Handles an implied NAK: a later response, for PSN `seen` or the one before it, arrived
    /// although the oldest READ or ATOMIC has no response yet.
    //= check C8 — the READ is retried, and later requests are not completed before it
    fn handle_implied_nak(
        &mut self,
        seen: Psn,
        context: &Context<'_>,
        out: &mut impl Output,
    ) -> Result<(), WcStatus> {
        let psn = self.unacked_psn;
        if self.next_psn == psn || !self.retry.first_implied(seen, context.attr, context.now) {
            return Ok(());
        }
        self.note_lost(self.end_psn);
        out.count(Counter::ImpliedNakSeqErr);
        self.try_again(psn, out)
    }

    /// Handles an ACK for the probe alone: of the packets that were sent before the probe, the peer
    /// has executed none, or they would be acknowledged with it.
    //= check A23 — what was lost with the tail is sent again from there
    fn judge_probe(&mut self, psn: Psn, context: &Context<'_>) {
        if self.unacked_psn == psn.next() && self.unacked_psn != self.next_psn {
            self.note_lost(self.end_psn);
            match self.sent.as_mut().filter(|sent| sent.is_active()) {
                Some(sent) => sent.lose_before_probe(),
                None => self.go_back(self.unacked_psn),
            }
            self.retry.progress(context.attr, context.now, self.is_waiting());
        }
    }

    /// Rewinds to `psn` if the retry counter allows one more attempt.
    fn try_again(&mut self, psn: Psn, out: &mut impl Output) -> Result<(), WcStatus> {
        self.charge(out)?;
        // What a probe would tell is known, and everything before it is sent again.
        self.retry.take_probed();
        self.go_back(if seeded!(ResumedPastLoss) { psn.next() } else { psn });
        Ok(())
    }

    /// Takes one attempt from the retry counter; fails if none is left.
    fn charge(&mut self, out: &mut impl Output) -> Result<(), WcStatus> {
        if self.retry.charge() {
            return Ok(());
        }
        out.count(Counter::TransportRetriesExceeded);
        Err(WcStatus::RetryExcErr)
    }

    /// Notes that what was sent before `fresh_from` may arrive twice. With selective repeat the
    /// window does not depend on losses.
    fn note_lost(&mut self, fresh_from: Psn) {
        if self.is_selective() {
            self.trip.forget_timed();
        } else {
            self.trip.lost(fresh_from);
        }
    }

    /// Notes that `unacked_psn` has moved. Packets before it need not be sent again.
    fn made_progress(&mut self, context: &Context<'_>, out: &mut impl Output) {
        if self.next_psn.is_before(self.unacked_psn) {
            self.rewind(self.unacked_psn);
        }
        if self.trip.is_attentive()
            && self.trip.acknowledged(self.unacked_psn, context.now, &mut self.trips, out)
        {
            self.retry.set_probe(context.attr, self.trip.quiet());
        }
        if let Some(sent) = &mut self.sent {
            sent.advance(self.unacked_psn);
            if let Some(pace) = self.trip.take_pace() {
                sent.grow(pace);
            }
        }
        // Packets that are yet to be sent again do not count: their timer starts when they are
        // sent.
        self.retry.progress(context.attr, context.now, self.is_waiting());
    }

    /// Returns whether an answer is waited for: the oldest packet is outstanding, and is not yet to
    /// be sent again.
    fn is_waiting(&self) -> bool {
        self.unacked_psn != self.next_psn && !self.is_to_be_repeated(self.unacked_psn)
    }
}

/// The oldest WQE, which a READ or ATOMIC response answers; `None` if the response is to be
/// ignored. `is_request` tells whether a request has responses of this type.
#[inline]
fn answered(
    sq: &SendQueue,
    acked: Acked,
    is_request: impl FnOnce(&SendOp) -> bool,
) -> Result<Option<&SendWqe>, WcStatus> {
    match sq.front() {
        Some(_) if acked == Acked::Gap => Ok(None),
        Some(wqe) if !is_request(&wqe.op) => Err(WcStatus::BadRespErr),
        front => Ok(front),
    }
}
