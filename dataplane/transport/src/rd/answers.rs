//! The responder half of an EEC: requests to the RD QPs that they name.
//!
//! Read first: IBA 9.7.4 (validation of inbound requests; for RD also EEC, domain and Q_Key).
//!
//! The order of the checks is that of RC's responder, with the RD QP after the order of the
//! opcodes: state, path and P_Key of the EEC, PSN, order, RD QP, then operation, receive, length
//! and key by what the RD QP allows.
//!
//! Invariants
//! - All packets of a message come from one RD QP and go to one RD QP, which has had its receives
//!   all the time.
//! - After a refusal the EEC takes a RESYNC and nothing else. The refused packet is refused again,
//!   because the refusal may be lost; so is an earlier packet, with its own PSN, because a response
//!   before the refusal may be lost.
//! - A READ or ATOMIC is answered again only to the RD QP that asked, for the one that it named.
//!   If that cannot be, it is refused as long as it may be the peer's message in progress: silence
//!   would use up the retries of the peer's EEC, and end it with all its RD QPs. That refusal ends
//!   nothing here, because the request may be an old copy.

use uroce_wire::{NakCode, Operation, Packet, Psn, Qpn};

use super::Terms;
use super::eec::Eec;
use super::served::Served;
use crate::attr::{AccessFlags, Attributes, MAX_RD_ATOMIC};
use crate::context::{Context, Outcome, Step};
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{Accessor, AsyncEvent, Env, Pd};
use crate::inbound::{asks, is_allowed};
use crate::rc::Repeated;

/// Distance of the PSN that is half of all PSNs away, which may be ahead as well as behind. A
/// RESYNC there is taken as ahead: that is where it comes after a READ of as many PSNs, the longest
/// there is, which was lost. A copy of a RESYNC that comes after just such a READ is not told from
/// it.
const FARTHEST: i32 = -(1 << 23);

/// A message of the peer that is in progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Serves {
    /// RD QP that it goes to.
    qpn: Qpn,
    /// Life of that QP when the message began.
    life: u32,
    /// RD QP of the peer.
    source: Qpn,
}

/// A READ or ATOMIC that is kept with its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// RD QP that the request has named.
    by: Accessor,
    /// Life of that QP when the request came.
    life: u32,
    /// RD QP of the peer.
    source: Qpn,
}

impl Default for Asked {
    fn default() -> Asked {
        let by = Accessor { pd: Pd(0), qpn: Qpn::default() };
        Asked { by, life: 0, source: Qpn::default() }
    }
}

impl Eec {
    /// Handles a request packet of the peer's requester.
    pub(crate) fn handle_request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        if packet.op.operation == Operation::Resync {
            return self.handle_resync(context, packet, env);
        }
        //= check R14 — a refusal that was lost is repeated
        if let Some((psn, code)) = self.refusal {
            if packet.bth.psn.distance_from(psn) > 0 || seeded!(RdRefusalLost) {
                return Err(DropReason::AfterNak);
            }
            self.responder.refuse_again(packet.bth.psn, code);
            return Ok(Outcome::Alive);
        }
        let (eec, rdd, dest) = (context.by.qpn, self.rdd(), packet.bth.dest_qpn);
        let (source, qkey) = (packet.ext.deth.src_qpn, packet.ext.deth.qkey);
        let expected = self.responder.expected_psn();
        // An older packet does not change where answers go.
        let is_old = packet.bth.psn.distance_from(expected) < 0;
        if !is_old || seeded!(RdAnswerMisled) {
            self.source = source;
        }
        let terms = env.with_other(dest, |qp, _| qp.terms_for(rdd, qkey)).flatten();
        if is_old
            && let Some(repeated) = self.responder.repeated(packet, context.mtu())
            && let Some(code) = self.denial(packet, repeated.place, terms.as_ref())
        {
            env.count(Counter::DuplicateRequest);
            let is_told = self.deny(packet.bth.psn, repeated, code, context, env);
            return if is_told { Ok(Outcome::Alive) } else { Err(DropReason::OldRead) };
        }
        //= check R34 — the message in progress goes on between the same two RD QPs
        let is_its = |terms: &Terms| {
            let serves = Serves { qpn: dest, life: terms.life, source };
            self.serves.is_none_or(|now| now == serves)
        };
        let before = self.responder.next_place();
        let served = &mut Served::inbound(env, eec, source, dest);
        let terms = match terms {
            Some(terms) if is_its(&terms) || !self.responder.fits_now(packet) => terms,
            _ => {
                let result = self.responder.refuse_datagram(context, packet, served);
                self.refusal = self.responder.refusal();
                return result;
            }
        };
        let attr = attributes(context.attr, &terms);
        let by = Accessor { pd: terms.pd, qpn: dest };
        let own = Context { by, recv_pd: terms.recv_pd, attr: &attr, now: context.now };
        let result = self.responder.handle_request(&own, packet, served);
        let (has_borrowed, event) = (served.has_borrowed, served.event);
        if has_borrowed {
            self.lender = dest;
        }
        if self.responder.next_place() != before {
            let place = usize::from(before % MAX_RD_ATOMIC);
            self.asked[place] = Asked { by, life: terms.life, source };
        }
        if self.responder.is_refusing() {
            let victim = self.victim(packet, terms.access, context.attr, env);
            self.refuse(self.responder.refusal(), victim, event, context, env);
        } else if self.responder.expected_psn() != expected {
            let serves = Serves { qpn: dest, life: terms.life, source };
            self.serves = self.responder.is_in_message().then_some(serves);
        }
        result
    }

    /// The RD QP that a refused request harms: the one of the message in progress, if it is in the
    /// life that the message began in, otherwise the one that the request names. None if the EEC
    /// lacks what the request needs, and the RD QP does not.
    fn victim(
        &self,
        packet: &Packet<'_>,
        access: AccessFlags,
        eec: &Attributes,
        env: &mut impl Env,
    ) -> Option<Qpn> {
        if let Some(Serves { qpn, life, .. }) = self.serves {
            return Some(qpn).filter(|qpn| lives(*qpn, life, env));
        }
        let lacks_room = asks(packet) && eec.max_dest_rd_atomic == 0 && is_allowed(packet, access);
        (!lacks_room).then_some(packet.bth.dest_qpn)
    }

    /// The code with which a repeated READ or ATOMIC is refused that was stored at `place`; `None`
    /// if it may be answered again. `terms` are those of the RD QP that it names now.
    //= check R24 — not for another RD QP, nor when access is no longer granted
    fn denial(&self, packet: &Packet<'_>, place: u8, terms: Option<&Terms>) -> Option<NakCode> {
        let asked = self.asked_at(place);
        let names = (asked.by.qpn, asked.source) == (packet.bth.dest_qpn, packet.ext.deth.src_qpn);
        let terms = terms.filter(|terms| names && terms.life == asked.life);
        let Some(terms) = terms else { return Some(NakCode::InvalidRdRequest) };
        let reads = packet.op.operation == Operation::ReadRequest;
        let is_denied = reads && !terms.access.contains(AccessFlags::REMOTE_READ);
        is_denied.then_some(NakCode::InvalidRequest)
    }

    /// Refuses to answer a stored request again, or further, from `psn` on, if it may be the peer's
    /// message in progress. Returns whether it may be.
    //= check R24 — told, so that the peer gives up the message and not the EEC
    fn deny(
        &mut self,
        psn: Psn,
        repeated: Repeated,
        code: NakCode,
        context: &Context<'_>,
        env: &mut impl Env,
    ) -> bool {
        if !repeated.is_newest || seeded!(RdDenialSilent) {
            return false;
        }
        self.source = self.asked_at(repeated.place).source;
        let served = &mut Served::answers(env, context.by.qpn, self.source);
        self.responder.deny(psn, code, served);
        true
    }

    fn asked_at(&self, place: u8) -> Asked {
        self.asked[usize::from(place % MAX_RD_ATOMIC)]
    }

    /// Notes that a request was refused for a fault of the RD QP `victim`, or of a request to it:
    /// that QP goes to ERR, as the QP of RC would.
    //= check R13 — the RD QP goes to ERR, the EEC does not
    fn refuse(
        &mut self,
        refusal: Option<(Psn, NakCode)>,
        victim: Option<Qpn>,
        event: Option<AsyncEvent>,
        context: &Context<'_>,
        env: &mut impl Env,
    ) {
        self.refusal = refusal;
        let Some(victim) = victim else { return };
        let next = super::line::next_of(victim, env);
        self.withdraw(victim, next, context.attr, env);
        env.with_other(victim, |qp, env| qp.refused_request(context.by.qpn, event, env));
    }

    /// Handles a RESYNC: the peer's requester has given its message up.
    //= check R21 — any PSN from the expected one on; the message in progress is forgotten
    //= check R22 — a repeated RESYNC is acknowledged again
    fn handle_resync(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        let psn = packet.bth.psn;
        let distance = psn.distance_from(self.responder.expected_psn());
        if distance < 0 && distance != FARTHEST {
            if self.refusal.is_some() {
                return Err(DropReason::AfterNak);
            }
            env.count(Counter::DuplicateRequest);
            self.responder.acknowledge_again();
            return Ok(Outcome::Alive);
        }
        env.count(Counter::RdResyncs);
        self.source = packet.ext.deth.src_qpn;
        if !seeded!(RdReceiveKept) {
            self.end_receive(context.by.qpn, WcStatus::RemAbortErr, env);
        }
        (self.serves, self.refusal) = (None, None);
        self.responder.resync(psn);
        Ok(Outcome::Alive)
    }

    /// Completes the receive of the message in progress, if it has one, with an error.
    //= check R23 — the receive of a message that was given up completes in error, its QP goes on
    pub(super) fn end_receive(&mut self, eec: Qpn, status: WcStatus, env: &mut impl Env) {
        if self.responder.rq.len() == 0 {
            return;
        }
        let source = self.serves.map_or(self.source, |serves| serves.source);
        let served = &mut Served::inbound(env, eec, source, self.lender);
        let lender = self.lender;
        self.responder.rq.fail_front(lender, status, served);
    }

    /// Sends one answer to the peer, if one is due.
    #[inline(never)]
    pub(crate) fn transmit_answer(
        &mut self,
        context: &Context<'_>,
        is_held: bool,
        env: &mut impl Env,
    ) -> Step {
        let mtu = context.mtu();
        self.revoke_replies(context, env);
        let mut own = *context;
        let mut source = self.source;
        let due = self.responder.due(mtu);
        if let Some(due) = due {
            //= check R24 — a READ is answered from the memory of the RD QP that it named
            let asked = self.asked_at(due.repeated.place);
            (own.by, source) = (asked.by, asked.source);
        }
        let served = &mut Served::answers(env, context.by.qpn, source);
        let step = self.responder.transmit(&own, is_held, served);
        let (event, sent_len) = (served.event, served.sent_len);
        if let Some(due) = due {
            let code = NakCode::RemoteAccessError;
            if self.responder.is_refusing() && self.refusal.is_none() {
                // The memory of a READ has gone away.
                let refusal = Some((due.psn, code));
                self.refuse(refusal, Some(own.by.qpn), event, context, env);
            } else if step == Step::Done {
                // So has that of a READ that was answered before and is asked for again.
                self.deny(due.psn, due.repeated, code, context, env);
            }
        }
        if step == Step::Refused { Step::Sent(sent_len) } else { step }
    }

    /// Refuses a READ that is still to be answered if the RD QP that it named has left since.
    //= check R24 — nothing is read for an RD QP that has failed, was reset or destroyed
    fn revoke_replies(&mut self, context: &Context<'_>, env: &mut impl Env) {
        let mtu = context.mtu();
        while let Some(due) = self.responder.due(mtu).filter(|due| due.reads) {
            let asked = self.asked_at(due.repeated.place);
            if lives(asked.by.qpn, asked.life, env) {
                return;
            }
            let code = NakCode::InvalidRdRequest;
            let served = &mut Served::answers(env, context.by.qpn, asked.source);
            if let Some(psn) = self.responder.revoke_reply(mtu, served) {
                self.source = asked.source;
                self.refusal = Some((psn, code));
            } else {
                // It was answered before.
                self.deny(due.psn, due.repeated, code, context, env);
            }
        }
    }
}

/// Returns whether an RD QP serves requests, in this life.
fn lives(qpn: Qpn, life: u32, env: &mut impl Env) -> bool {
    env.with_other(qpn, |qp, _| qp.life()).flatten() == Some(life)
}

/// The attributes by which a request to an RD QP is checked.
fn attributes(attr: &Attributes, terms: &Terms) -> Attributes {
    let mut attr = *attr;
    (attr.access, attr.min_rnr_timer) = (terms.access, terms.min_rnr_timer);
    attr
}

/// The access that an RD QP grants: no FLUSH, and without room for READs and ATOMICs, neither.
//= check R8 — FLUSH over RD is left out: an invalid request
//= check R33 — otherwise as its attributes say
pub(crate) fn granted(access: AccessFlags, max_dest_rd_atomic: u8) -> AccessFlags {
    let answered = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC;
    let taken = if max_dest_rd_atomic == 0 { AccessFlags::empty() } else { answered };
    access & (AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | taken)
}
