//! Reliable datagrams: what an RD QP and an EEC do for each other.
//!
//! A call of one reaches the other by [`Env::with_other`]. An EEC that is being worked on cannot be
//! reached, so it first ends what it does for an RD QP, and then calls that QP.
//!
//! Not here: the work of an EEC ([`crate::rd`]).

use uroce_wire::{Packet, Qkey, Qpn};

use super::migration::Origin;
use super::service::Service;
use super::state::QpState;
use super::{Handled, Qp};
use crate::attr::Attributes;
use crate::context::Context;
use crate::cqe::{Cqe, WcStatus};
use crate::drop_reason::DropReason;
use crate::env::{AsyncEvent, Env, Found};
use crate::rc::Requester;
use crate::rd::{Front, Rd, Terms, granted, qkey_of};
use crate::time::Instant;
use crate::wqe::{PostError, RdAddress, Rdd, RecvWr, SendWr, Sge};

impl Qp {
    /// Appends a send work request of an RD QP to `to`, with its scatter/gather list.
    ///
    /// In ERR and SQE the request completes flushed at once. If it is the oldest and names an EEC
    /// that it cannot use, it completes in error, and the QP goes to SQE.
    ///
    /// # Errors
    /// A [`PostError`]; nothing was queued.
    pub fn post_datagram(
        &mut self,
        wr: &SendWr,
        to: &RdAddress,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        let mtu = self.attr.path_mtu;
        self.sender()?.requester.post(wr, to, sges, mtu)?;
        self.flush_posted(env);
        self.line_up(env);
        Ok(())
    }

    /// Appends a send work request of an RD QP to `to`, with the payload `data`, which is copied;
    /// otherwise as [`post_datagram`](Qp::post_datagram).
    ///
    /// # Errors
    /// A [`PostError`]; nothing was queued.
    pub fn post_inline_datagram(
        &mut self,
        wr: &SendWr,
        to: &RdAddress,
        data: &[u8],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        let mtu = self.attr.path_mtu;
        self.sender()?.requester.post_inline(wr, to, data, mtu)?;
        self.flush_posted(env);
        self.line_up(env);
        Ok(())
    }

    /// The RD QP, if a send may be posted to it.
    fn sender(&mut self) -> Result<&mut Rd, PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.member_mut().ok_or(PostError::WrongOperation)
    }

    /// Ends what the QP does together with others: an RD QP leaves its EEC, and an EEC fails the
    /// requests that name it. To be called before an RD QP or EEC is destroyed, which follows at
    /// once: an EEC that has ended so still takes RD QPs in its line. No effect on others.
    #[cold]
    pub fn detach(&mut self, env: &mut impl Env) {
        match &mut self.service {
            Service::Rd(_) => self.leave(env),
            Service::Eec(eec) => eec.end(self.by.qpn, WcStatus::LocEecOpErr, env),
            _ => {}
        }
    }

    /// The RD domain of an RD QP or EEC.
    pub fn rdd(&self) -> Option<Rdd> {
        match &self.service {
            Service::Rd(rd) => Some(rd.rdd),
            Service::Eec(eec) => Some(eec.rdd()),
            _ => None,
        }
    }

    /// The roles of an RD QP.
    pub(crate) fn member(&self) -> Option<&Rd> {
        if let Service::Rd(rd) = &self.service { Some(rd) } else { None }
    }

    pub(crate) fn member_mut(&mut self) -> Option<&mut Rd> {
        if let Service::Rd(rd) = &mut self.service { Some(rd) } else { None }
    }

    /// Puts an RD QP in the line of the EEC that its oldest request names, unless it is in it.
    //= check R17 — an EEC that cannot be used is an error of the request
    pub(crate) fn line_up(&mut self, env: &mut impl Env) {
        let (qpn, state) = (self.by.qpn, self.attr.state);
        let Service::Rd(rd) = &mut self.service else { return };
        let is_in_line = rd.requester.eec != Qpn::default();
        let Some(to) = rd.requester.front_address() else { return };
        if is_in_line || state != QpState::Rts {
            return;
        }
        let rdd = rd.rdd;
        rd.requester.eec = to.eecn;
        let joined = env.with_other(to.eecn, |eec, env| eec.join_line(qpn, rdd, env));
        let joined = joined.unwrap_or_else(|| match env.has_eec_elsewhere(to.eecn) {
            true => Err(WcStatus::LocRddViolErr),
            false => Err(WcStatus::InvEecnErr),
        });
        if let Err(status) = joined {
            self.fail_message(status, env);
        }
    }

    /// Takes an RD QP into the line of this EEC.
    ///
    /// # Errors
    /// The status with which a request that names this QP fails.
    fn join_line(&mut self, qpn: Qpn, rdd: Rdd, env: &mut impl Env) -> Result<(), WcStatus> {
        let Service::Eec(eec) = &mut self.service else { return Err(WcStatus::InvEecnErr) };
        if eec.rdd() != rdd {
            return Err(WcStatus::LocRddViolErr);
        }
        if !matches!(self.attr.state, QpState::Rtr | QpState::Rts | QpState::Sqd) {
            return Err(WcStatus::InvEecStateErr);
        }
        eec.push(qpn, env);
        env.wake();
        Ok(())
    }

    /// Takes an RD QP out of the line of its EEC, which gives up its message in progress.
    fn leave(&mut self, env: &mut impl Env) {
        let qpn = self.by.qpn;
        let Service::Rd(rd) = &mut self.service else { return };
        let (eec, next) = (rd.requester.eec, rd.requester.next);
        if eec == Qpn::default() {
            return;
        }
        (rd.requester.eec, rd.requester.next) = (Qpn::default(), Qpn::default());
        let left = env.with_other(eec, |eec, env| eec.withdraw(qpn, next, env));
        debug_assert!(left.is_some(), "an RD QP fails while its EEC is being worked on");
    }

    /// Ends what this EEC does for an RD QP, which has `next` behind it in the line.
    fn withdraw(&mut self, qpn: Qpn, next: Qpn, env: &mut impl Env) {
        let Service::Eec(eec) = &mut self.service else { return };
        eec.withdraw(qpn, next, &self.attr, env);
        self.tell_drained(env);
        env.wake();
    }

    /// An RD QP that enters SQD: a message that was not begun is not begun.
    pub(super) fn step_back(&mut self, env: &mut impl Env) {
        if self.member().is_some_and(|rd| !rd.requester.is_begun) {
            self.leave(env);
        }
    }

    /// Copies the oldest request of an RD QP into the queue of an EEC's requester. Returns it, with
    /// the RNR retries that are left if it was put off before; `None` if there is none to be sent.
    /// The QP has left the line in any case.
    pub(crate) fn give_message(
        &mut self,
        requester: &mut Requester,
        eec: &Attributes,
    ) -> Option<(Front, Option<u8>)> {
        let (by, qkey) = (self.by, self.attr.qkey);
        let may_send = self.attr.state == QpState::Rts;
        let place = &mut self.member_mut()?.requester;
        place.next = Qpn::default();
        let Some(to) = place.front_address().filter(|_| may_send) else {
            place.eec = Qpn::default();
            return None;
        };
        place.resume_at = Instant::ZERO;
        requester.begin_message(&place.sq, place.rnr_left, eec);
        let front = Front { by, to: RdAddress { qkey: qkey_of(&to, qkey), ..to } };
        Some((front, place.rnr_left))
    }

    /// Completes the oldest request of an RD QP, which was carried out.
    pub(crate) fn succeed_message(&mut self, env: &mut impl Env) {
        let qpn = self.by.qpn;
        if let Some(rd) = self.member_mut() {
            rd.requester.complete_front(qpn, WcStatus::Success, env);
            self.tell_drained(env);
        }
    }

    /// Takes the oldest request of an RD QP back from its EEC, of which nothing is in progress.
    pub(crate) fn take_back_message(&mut self, env: &mut impl Env) {
        if let Some(rd) = self.member_mut() {
            (rd.requester.eec, rd.requester.is_begun) = (Qpn::default(), false);
            self.tell_drained(env);
        }
    }

    /// Puts an RD QP in the line of the EEC that its oldest request names, as
    /// [`line_up`](Qp::line_up), which cannot reach the EEC `own`. Returns whether it is that one,
    /// which has to take the QP in its line.
    pub(crate) fn line_up_at(&mut self, own: Qpn, env: &mut impl Env) -> bool {
        let may_send = self.attr.state == QpState::Rts;
        let Some(rd) = self.member_mut().filter(|_| may_send) else { return false };
        let place = &mut rd.requester;
        let is_own = place.front_address().is_some_and(|to| to.eecn == own);
        if is_own && place.eec == Qpn::default() {
            place.eec = own;
            return true;
        }
        self.line_up(env);
        false
    }

    /// Fails the oldest request of an RD QP, which its EEC has ended.
    pub(crate) fn fail_message(&mut self, status: WcStatus, env: &mut impl Env) {
        if let Some(rd) = self.member_mut() {
            (rd.requester.eec, rd.requester.next) = (Qpn::default(), Qpn::default());
            self.fail_send(status, env);
        }
    }

    /// Handles the failure of the message, or RESYNC, that this EEC has in progress.
    //= check R27 — exhausted retries, and a RESYNC that is refused, end the EEC; else the message
    #[cold]
    pub(super) fn fail_eec(&mut self, status: WcStatus, env: &mut impl Env) {
        let Service::Eec(eec) = &mut self.service else { return };
        let is_over = status == WcStatus::RetryExcErr;
        if !is_over && eec.fail_message(status, &self.attr, env) {
            return;
        }
        if !eec.has_message() {
            env.event(AsyncEvent::QpFatal);
        }
        eec.end(self.by.qpn, status, env);
        self.enter_error(env);
        if is_over {
            env.event(AsyncEvent::PeerLost);
        }
    }

    /// What this RD QP allows a request with this Q_Key that comes by an EEC of a domain; `None` if
    /// it takes no such request.
    //= check R12 — an RD QP of the EEC's domain, in a state to receive, with this Q_Key
    pub(crate) fn terms_for(&self, rdd: Rdd, qkey: Qkey) -> Option<Terms> {
        let rd = self.member().filter(|rd| rd.rdd == rdd || seeded!(RdForeignDomain))?;
        let attr = &self.attr;
        let has_key = attr.qkey == qkey || seeded!(RdQkeyUnchecked);
        let takes = attr.state.serves_requests() && has_key;
        takes.then(|| Terms {
            pd: self.by.pd,
            recv_pd: self.recv_pd,
            access: granted(attr.access, attr.max_dest_rd_atomic),
            min_rnr_timer: attr.min_rnr_timer,
            life: rd.responder.life,
        })
    }

    /// Life of an RD QP that serves requests: the number of times that it has lost its receives.
    pub(crate) fn life(&self) -> Option<u32> {
        let rd = self.member().filter(|_| self.attr.state.serves_requests())?;
        Some(rd.responder.life)
    }

    /// Lends the oldest receive of an RD QP to an EEC.
    pub(crate) fn lend_receive(
        &mut self,
        eec: Qpn,
        env: &mut impl Env,
        place: impl FnOnce(&RecvWr, &[Sge]),
    ) -> Found {
        match self.member_mut() {
            Some(rd) => rd.responder.lend(eec, env, place),
            None => Found::Nothing,
        }
    }

    /// Completes the receive of an RD QP that an EEC has filled.
    pub(crate) fn complete_lent(&mut self, eec: Qpn, cqe: Cqe, env: &mut impl Env) {
        let qpn = self.by.qpn;
        if let Some(rd) = self.member_mut() {
            rd.responder.complete_lent(eec, Cqe { qpn, ..cqe }, env);
        }
    }

    /// Handles the refusal of a request to this RD QP by the EEC `eec`, which has withdrawn it from
    /// its line already.
    #[cold]
    pub(crate) fn refused_request(
        &mut self,
        eec: Qpn,
        event: Option<AsyncEvent>,
        env: &mut impl Env,
    ) {
        let Some(rd) = self.member_mut() else { return };
        if rd.requester.eec == eec {
            (rd.requester.eec, rd.requester.next) = (Qpn::default(), Qpn::default());
        }
        if let Some(event) = event {
            env.event(event);
        }
        self.enter_error(env);
    }

    /// Handles a packet to an EEC.
    #[inline(never)]
    pub(super) fn handle_reliable_datagram(
        &mut self,
        now: Instant,
        origin: Origin,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Handled, DropReason> {
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let Service::Eec(eec) = &mut self.service else { return Err(DropReason::WrongService) };
        if packet.op.is_request() {
            //= check R35 — the first one in RTR is an event of the EEC
            //= check R31 — executed once, in the order of the PSNs
            //= check R32 — whatever is lost
            let outcome = eec.handle_request(&context, packet, env)?;
            self.served(outcome, packet.bth.psn, env);
            return Ok(Handled::Done);
        }
        if !self.attr.state.sends() {
            return Err(DropReason::NotRequester);
        }
        let before = eec.requester.unacked_psn();
        let result = eec.handle_response(&context, packet, env)?;
        let unacked = [before, eec.requester.unacked_psn()];
        self.responded(now, origin, packet, unacked, result, env);
        Ok(Handled::Done)
    }
}
