//! Completer: inbound responses become completions, or reasons to send again.
//!
//! Read first: IBA 9.7.6.
//!
//! What holds
//! - Only PSNs from `unacked_psn` up to `end_psn` are believed; anything else is stale.
//! - WQEs complete in order. A READ or ATOMIC is never completed by a later acknowledgement: that
//!   shows that its response was lost, an implied NAK.
//! - A response's payload is written before `unacked_psn` moves past it, and never again.
//!
//! Not here: how the rewound packets are sent ([`super::requester`]).

use uroce_wire::{Aeth, Header, NakCode, Operation, Packet, Psn, Syndrome, credits};

use super::Requester;
use crate::context::Context;
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::env::{Env, Output};
use crate::wqe::SendOp;

/// Whether everything before a response's PSN has been received by the peer, as far as we see.
#[derive(PartialEq, Eq)]
enum Acked {
    All,
    /// A READ or ATOMIC response is missing; it has been, or will be, asked for again.
    Gap,
}

impl Requester {
    /// Takes a response packet of the peer's responder.
    ///
    /// `Err` is the status with which the oldest WQE fails.
    pub(crate) fn handle_response(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let psn = packet.bth.psn;
        //= check A11 — a NAK older than what is outstanding is ignored
        //= check A12 — so is an old ACK
        //= check A13 — and an ACK for what was never sent
        //= check C9 — and the copy of a READ response that has been taken
        let is_old = psn.is_before(self.unacked_psn) && !seeded!(StaleResponseTaken)
            || seeded!(NoPsnWrap) && psn.value() < self.unacked_psn.value();
        if is_old || !psn.is_before(self.end_psn) {
            env.count(Counter::StaleResponse);
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
            _ => self.handle_acknowledge(context, psn, packet.ext.aeth.syndrome, env),
        }
    }

    /// The peer says up to which message it has receives.
    //= check A12 — an ACK that repeats the newest one only brings credits
    fn take_credits(&mut self, aeth: &Aeth) {
        if let Syndrome::Ack { credits: code } = aeth.syndrome {
            let receives = credits(code);
            self.is_limited = receives.is_some();
            self.credit_limit = aeth.msn.plus(receives.unwrap_or(0));
        }
    }

    /// Time may have passed a deadline.
    pub(crate) fn handle_timeout(
        &mut self,
        context: &Context<'_>,
        out: &mut impl Output,
    ) -> Result<(), WcStatus> {
        self.retry.expire_rnr(context.now);
        //= check B12 — however late it is, one look at the timer charges one timeout
        if self.retry.expire_ack(context.now) {
            out.count(Counter::LocalAckTimeoutErr);
            //= check A3 — resume at the oldest unacknowledged PSN
            self.try_again(self.unacked_psn, out)?;
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
                self.acknowledge_before(psn.next(), context, env)?;
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

    fn handle_nak(
        &mut self,
        context: &Context<'_>,
        psn: Psn,
        code: NakCode,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        //= check A17 — a NAK acknowledges everything before its PSN
        if self.acknowledge_before(psn, context, env)? == Acked::Gap {
            return Ok(());
        }
        match code {
            NakCode::PsnSequenceError => {
                //= check A10 — one rewind and one charge, however often the NAK comes
                if self.next_psn == psn || self.retry.is_copy(self.next_psn) {
                    return Ok(());
                }
                self.retry.note_nak(self.end_psn);
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
        let is_current = psn.is_before(self.next_psn);
        let acked = self.acknowledge_before(psn, context, env)?;
        //= check B13 — a repetition while waiting, or before anything was sent again, is ignored
        if self.retry.waits_for_receiver() || !is_current {
            return Ok(());
        }
        // What lacks its response was asked for again before; its timer must not be put off.
        if acked == Acked::Gap && self.next_psn != self.unacked_psn {
            return Ok(());
        }
        env.count(Counter::RnrNakRetryErr);
        if !self.retry.begin_rnr_wait(context.attr, context.now, timer) {
            // The oldest WQE is the one that lacks its response; the one refused has its turn.
            if acked == Acked::Gap {
                return Ok(());
            }
            env.count(Counter::RnrRetriesExceeded);
            return Err(WcStatus::RnrRetryExcErr);
        }
        //= check B6 — behind a missing response, too: what is asked for again waits as long
        //= check B8 — the refused message is sent again from its PSN, with all that followed it
        if acked == Acked::All {
            self.rewind(psn);
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
        if self.acknowledge_before(psn, context, env)? == Acked::Gap {
            return Ok(());
        }
        let Some(wqe) = self.sq.front() else { return Ok(()) };
        if !matches!(wqe.op, SendOp::Read { .. }) {
            return Err(WcStatus::BadRespErr);
        }
        let mtu = context.mtu();
        let offset = psn.distance_from(wqe.first_psn) as u32 * mtu;
        let left = wqe.len - offset;
        //= check C10 — a response of the wrong length ends in an error, nothing is written
        let is_last = left <= mtu;
        let is_whole = packet.payload.len() == left.min(mtu) as usize;
        if packet.op.position.is_last() != is_last || !is_whole {
            return Err(WcStatus::LocLenErr);
        }
        let at = self.sq.head();
        self.sq.scatter(at, wqe, offset, packet.payload, context.by, env)?;
        self.unacked_psn = psn.next();
        if is_last {
            self.succeed_front(context.by.qpn, env);
        }
        self.made_progress(context);
        Ok(())
    }

    fn handle_atomic_ack(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let psn = packet.bth.psn;
        if self.acknowledge_before(psn, context, env)? == Acked::Gap {
            return Ok(());
        }
        let Some(wqe) = self.sq.front() else { return Ok(()) };
        //= check C11 — an ATOMIC response to something else is an error
        if !wqe.op.is_atomic() {
            return Err(WcStatus::BadRespErr);
        }
        let original = packet.ext.atomic_ack.original.to_ne_bytes();
        self.sq.scatter(self.sq.head(), wqe, 0, &original, context.by, env)?;
        self.unacked_psn = psn.next();
        self.succeed_front(context.by.qpn, env);
        self.made_progress(context);
        Ok(())
    }

    /// The peer has received everything before `limit`: completes SENDs and WRITEs up to there.
    //= check A22 — so a later answer makes up for an ACK that was lost
    //= check C19 — in the order of posting: what follows a READ waits for its data
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
            if wqe.op.is_read_or_atomic() && !seeded!(AckCompletesRead) {
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
            self.made_progress(context);
        }
        if acked == Acked::Gap {
            self.handle_implied_nak(limit, context, env)?;
        }
        Ok(acked)
    }

    /// A later response, of `seen` or the PSN before it, came although the oldest READ or ATOMIC
    /// still lacks one.
    //= check C8 — the READ is retried, what follows it is not completed before it
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
        out.count(Counter::ImpliedNakSeqErr);
        self.try_again(psn, out)
    }

    /// Rewinds to `psn` if the retry counter allows one more attempt.
    fn try_again(&mut self, psn: Psn, out: &mut impl Output) -> Result<(), WcStatus> {
        if !self.retry.charge() {
            out.count(Counter::TransportRetriesExceeded);
            return Err(WcStatus::RetryExcErr);
        }
        self.rewind(if seeded!(ResumedPastLoss) { psn.next() } else { psn });
        Ok(())
    }

    /// `unacked_psn` has moved. What was to be sent again before it need not be.
    fn made_progress(&mut self, context: &Context<'_>) {
        if self.next_psn.is_before(self.unacked_psn) {
            self.rewind(self.unacked_psn);
        }
        // What is yet to be sent again does not count: its timer starts when it is.
        let outstanding = self.unacked_psn != self.next_psn;
        self.retry.progress(context.attr, context.now, outstanding);
    }
}
