//! The queue pair: attributes, state, and the way of each input to the role that handles it.
//!
//! What holds: packets are checked for service, state, addresses and P_Key, in this order, before
//! any role sees them; a QP in ERR has flushed everything and sends nothing.
//!
//! Not here: what the roles do ([`crate::rc`], [`crate::uc`], [`crate::ud`]), the transition table
//! ([`state`]).

mod service;
pub(crate) mod state;

use uroce_wire::{Bth, Gid, Packet, PathMtu, Qpn};

use crate::attr::{QpAttr, QpChange, QpType};
use crate::context::{Context, Outcome, Step};
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{Accessor, AsyncEvent, Env, Pd};
use crate::queue::QpCaps;
use crate::time::Instant;
use crate::wqe::{PostError, RecvWr, SendWr, Sge};
use service::Service;
use state::{ModifyError, QpState};

/// Answers that may go out before a request has its turn, if there is one.
const ANSWERS_IN_A_ROW: u8 = 16;

/// A received packet whose ICRC and lengths are right, with the addresses it came with.
#[derive(Clone, Copy, Debug)]
pub struct Inbound<'a> {
    /// Source address.
    pub src: Gid,
    /// Destination address.
    pub dst: Gid,
    /// The IP packet from its header (20 or 40 bytes) on, which a datagram's receiver is given.
    pub l3: &'a [u8],
    /// The packet from BTH on.
    pub packet: Packet<'a>,
}

/// What [`Qp::poll_transmit`] left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Nothing more to send until the next input.
    Idle,
    /// The budget is used up; there is, or may be, more.
    More,
    /// The sink is full; ask again when it has room.
    Blocked,
}

/// What a QP is created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpInit {
    /// Transport service.
    pub qp_type: QpType,
    /// How large its queues are.
    pub caps: QpCaps,
    /// Receives come from a shared receive queue ([`crate::SharedReceives::take_receive`]).
    pub uses_srq: bool,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    by: Accessor,
    attr: QpAttr,
    service: Service,
    /// Answers sent since the last request.
    answers: u8,
    /// The peer has been heard of since RTR.
    has_comm: bool,
    /// An event is to tell that the send queue is drained.
    owes_drained: bool,
}

impl Qp {
    /// A QP in RESET. All the memory it will ever need is taken here.
    pub fn new(qpn: Qpn, pd: Pd, init: &QpInit) -> Qp {
        let QpInit { qp_type, caps, uses_srq } = init;
        Qp {
            by: Accessor { pd, qpn },
            attr: QpAttr::default(),
            service: Service::new(*qp_type, caps, *uses_srq),
            answers: 0,
            has_comm: false,
            owes_drained: false,
        }
    }

    /// The QP's transport service.
    pub fn qp_type(&self) -> QpType {
        self.service.qp_type()
    }

    /// The QP's number.
    pub fn qpn(&self) -> Qpn {
        self.by.qpn
    }

    /// The QP's protection domain.
    pub fn pd(&self) -> Pd {
        self.by.pd
    }

    /// Where the QP stands.
    pub fn state(&self) -> QpState {
        self.attr.state
    }

    /// All attributes, as set last.
    pub fn attr(&self) -> QpAttr {
        self.attr
    }

    /// Has every message that was begun been completed? In SQD: is the send queue drained?
    pub fn is_drained(&self) -> bool {
        self.service.is_quiet()
    }

    /// Send work requests in the queue, completed ones not counted.
    #[inline]
    pub fn send_wrs(&self) -> u32 {
        self.service.send_depth()
    }

    /// Receive work requests in the queue. With an SRQ: those taken from it and not completed.
    #[inline]
    pub fn recv_wrs(&self) -> u32 {
        self.service.rq().len()
    }

    /// Modify QP: goes to another state, changes attributes, or both.
    ///
    /// # Errors
    /// A [`ModifyError`] says which rule of the transition table is broken; nothing changed.
    pub fn modify(&mut self, change: &QpChange, env: &mut impl Env) -> Result<(), ModifyError> {
        let from = self.attr.state;
        let to = state::check(self.qp_type(), from, change)?;
        //= check H6 — an SQD QP takes new attributes only once it is drained
        if from == QpState::Sqd && to == QpState::Sqd && !self.is_drained() {
            return Err(ModifyError::Draining);
        }
        if to == QpState::Err {
            self.enter_error(env);
            return Ok(());
        }
        change.apply_to(&mut self.attr);
        self.attr.state = to;
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (QpState::Init, QpState::Rtr) => self.service.start_responder(&self.attr),
            (QpState::Rtr, QpState::Rts) => self.service.start_requester(&self.attr),
            (QpState::Rts, QpState::Sqd) => {
                self.owes_drained = change.en_sqd_async_notify == Some(true);
                self.tell_drained(env);
            }
            (QpState::Sqd, QpState::Rts) => self.owes_drained = false,
            (QpState::Sqd, QpState::Sqd) => self.service.retune(&self.attr),
            _ => {}
        }
        Ok(())
    }

    /// Takes the QP to ERR for a reason outside of it, such as an overrun CQ.
    pub fn fail(&mut self, env: &mut impl Env) {
        if self.attr.state != QpState::Err {
            env.event(AsyncEvent::QpFatal);
            self.enter_error(env);
        }
    }

    /// Appends a send work request with its scatter/gather list.
    ///
    /// In ERR and SQE it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_send(
        &mut self,
        wr: &SendWr,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.service.post_send(wr, sges, &self.attr)?;
        self.flush_posted(env);
        Ok(())
    }

    /// Appends a send work request whose payload is `data`, copied here.
    ///
    /// In ERR and SQE it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_inline(
        &mut self,
        wr: &SendWr,
        data: &[u8],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.service.post_inline(wr, data, &self.attr)?;
        self.flush_posted(env);
        Ok(())
    }

    /// Appends a receive work request with its scatter list.
    ///
    /// In ERR it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    #[inline]
    pub fn post_recv(
        &mut self,
        wr: &RecvWr,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_recv() {
            return Err(PostError::InvalidState);
        }
        self.service.rq_mut().post(wr, sges)?;
        if self.attr.state == QpState::Err {
            self.service.flush_receives(self.by.qpn, env);
        }
        Ok(())
    }

    /// Takes one packet that names this QP.
    ///
    /// # Errors
    /// The reason why it went no further; it then changed nothing but the expectations of UC.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let packet = &inbound.packet;
        self.check_service(packet)?;
        self.check_addressing(inbound.src, inbound.dst, &packet.bth)?;
        let context = Context { by: self.by, attr: &self.attr, now };
        let outcome = match &mut self.service {
            Service::Rc(rc) if packet.op.is_request() => {
                rc.responder.handle_request(&context, packet, env)?
            }
            Service::Rc(rc) => {
                if !self.attr.state.sends() {
                    return Err(DropReason::NotRequester);
                }
                if let Err(status) = rc.requester.handle_response(&context, packet, env) {
                    self.fail_send(status, env);
                }
                self.tell_drained(env);
                return Ok(());
            }
            Service::Uc(uc) => uc.responder.handle_request(&context, packet, env)?,
            Service::Ud(ud) => ud.responder.handle_datagram(&context, inbound, env)?,
        };
        self.served(outcome, env);
        Ok(())
    }

    /// Takes a packet that names this QP and whose opcode is defined for no service. Of it only the
    /// BTH can be read.
    ///
    /// # Errors
    /// The reason why it went no further; it then changed nothing.
    //= check E7 — answered as an invalid request on RC, dropped on UC and UD
    #[cold]
    pub fn handle_reserved_opcode(
        &mut self,
        now: Instant,
        src: Gid,
        dst: Gid,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        if self.qp_type() != QpType::Rc || !bth.opcode.is_of_rc() {
            return Err(DropReason::ReservedOpCode);
        }
        self.check_addressing(src, dst, bth)?;
        let context = Context { by: self.by, attr: &self.attr, now };
        if let Service::Rc(rc) = &mut self.service {
            let outcome = rc.responder.handle_reserved_opcode(&context, bth, env)?;
            self.served(outcome, env);
        }
        Ok(())
    }

    /// UD: the largest datagram, from now on. The path MTU of a connected QP is an attribute, that
    /// of a UD QP its port's, which the surroundings know. Of no effect on RC and UC.
    pub fn set_port_mtu(&mut self, mtu: PathMtu) {
        if self.qp_type() == QpType::Ud {
            self.attr.path_mtu = mtu;
        }
    }

    /// Time has passed [`next_timeout`](Qp::next_timeout), or perhaps it has.
    pub fn handle_timeout(&mut self, now: Instant, env: &mut impl Env) {
        let Service::Rc(rc) = &mut self.service else { return };
        if !self.attr.state.sends() {
            return;
        }
        let context = Context { by: self.by, attr: &self.attr, now };
        if let Err(status) = rc.requester.handle_timeout(&context, env) {
            self.fail_send(status, env);
        }
    }

    /// Sends up to `budget` packets: answers to the peer first, then requests; but no more than
    /// sixteen answers before a request that can be sent.
    ///
    /// To be called after each input and again as long as it does not say [`Progress::Idle`].
    pub fn poll_transmit(&mut self, now: Instant, budget: u32, env: &mut impl Env) -> Progress {
        for _ in 0..budget {
            match self.transmit_one(now, env) {
                Step::Done => {}
                Step::Idle => return Progress::Idle,
                Step::Blocked => return Progress::Blocked,
                Step::Refused => self.enter_error(env),
                Step::Failed(status) => self.fail_send(status, env),
            }
        }
        Progress::More
    }

    /// When [`handle_timeout`](Qp::handle_timeout) is due next.
    #[inline]
    pub fn next_timeout(&self) -> Option<Instant> {
        match &self.service {
            Service::Rc(rc) => rc.requester.next_timeout(),
            Service::Uc(_) | Service::Ud(_) => None,
        }
    }

    fn transmit_one(&mut self, now: Instant, env: &mut impl Env) -> Step {
        let context = Context { by: self.by, attr: &self.attr, now };
        let answers = self.attr.state.serves_requests();
        if answers && self.answers < ANSWERS_IN_A_ROW {
            match self.service.transmit_answer(&context, env) {
                Step::Idle => {}
                step => {
                    self.answers += u8::from(step == Step::Done);
                    return step;
                }
            }
        }
        if self.attr.state.sends() {
            let step = self.service.transmit_request(&context, env);
            if step != Step::Idle {
                self.answers = 0;
                if self.owes_drained {
                    self.tell_drained(env);
                }
                return step;
            }
        }
        if answers && self.answers == ANSWERS_IN_A_ROW {
            self.answers = 0;
            return self.service.transmit_answer(&context, env);
        }
        Step::Idle
    }

    fn check_service(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        use uroce_wire::Service::{Cnp, Rc, Uc, Ud};
        //= check E9 — an opcode of another service is dropped
        match (packet.op.service, &self.service) {
            (Rc, Service::Rc(_)) | (Uc, Service::Uc(_)) | (Ud, Service::Ud(_)) => Ok(()),
            (Cnp, _) => Err(DropReason::Congestion),
            _ => Err(DropReason::WrongService),
        }
    }

    fn check_addressing(&self, src: Gid, dst: Gid, bth: &Bth) -> Result<(), DropReason> {
        //= check E11 — dropped in Reset and Init (and in ERR)
        if !self.attr.state.serves_requests() {
            return Err(DropReason::QpNotReady);
        }
        //= check E16 — dropped before any state is touched; anybody may send a datagram
        let is_peer = src == self.attr.path.dst && dst == self.attr.path.src;
        if !is_peer && !matches!(self.service, Service::Ud(_)) {
            return Err(DropReason::WrongSource);
        }
        //= check E12 — a P_Key that does not match is dropped and counted
        if !bth.pkey.matches(self.attr.pkey) {
            return Err(DropReason::BadPkey);
        }
        Ok(())
    }

    /// A packet was taken by the responder.
    #[inline]
    fn served(&mut self, outcome: Outcome, env: &mut impl Env) {
        //= check H11 — the first packet of a connection that comes before RTS is told of, once
        if self.attr.state == QpState::Rtr && !self.has_comm {
            self.has_comm = true;
            if self.qp_type() != QpType::Ud {
                env.event(AsyncEvent::CommEst);
            }
        }
        if outcome == Outcome::Failed {
            self.enter_error(env);
        }
    }

    /// In SQE and ERR what is posted does not stay.
    //= check G3 — what is posted in ERR completes flushed, none is lost
    #[inline]
    fn flush_posted(&mut self, env: &mut impl Env) {
        if self.attr.state.flushes_sends() {
            self.service.flush_sends(self.by.qpn, env);
        }
    }

    /// The oldest send WQE failed: completes it with `status`, flushes the rest.
    #[cold]
    fn fail_send(&mut self, status: WcStatus, env: &mut impl Env) {
        self.service.fail_send(self.by.qpn, status, env);
        if self.qp_type() == QpType::Rc {
            return self.enter_error(env);
        }
        //= check H8 — where nothing is owed to a peer the send queue alone fails
        self.attr.state = QpState::Sqe;
        self.owes_drained = false;
        self.service.flush_sends(self.by.qpn, env);
    }

    //= check G1 — everything left completes flushed, in post order, one completion each
    //= check G4 — at whatever step: nothing stays half done, nothing is sent from here on
    //= check G7 — the QP takes no more from its SRQ, and says so once
    #[cold]
    fn enter_error(&mut self, env: &mut impl Env) {
        let was_error = self.attr.state == QpState::Err;
        self.attr.state = QpState::Err;
        self.owes_drained = false;
        self.service.flush_sends(self.by.qpn, env);
        self.service.flush_receives(self.by.qpn, env);
        if self.service.rq().uses_srq() && !was_error {
            env.event(AsyncEvent::LastWqeReached);
        }
    }

    /// Tells that the send queue is drained, if that is to be told and it is.
    //= check H4 — once, after the last acknowledgement
    #[inline]
    fn tell_drained(&mut self, env: &mut impl Env) {
        if self.owes_drained && self.service.is_quiet() {
            self.owes_drained = false;
            env.event(AsyncEvent::SqDrained);
        }
    }

    //= check G5 — a QP taken to Reset keeps nothing of its former life
    fn reset(&mut self) {
        self.attr = QpAttr::default();
        self.service.reset();
        self.answers = 0;
        self.has_comm = false;
        self.owes_drained = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_qp_is_small() {
        // Beside it there are the READ and ATOMIC resources, and the rings as large as asked for.
        let resources = usize::from(crate::MAX_RD_ATOMIC) * 20;
        let size = size_of::<Qp>() + resources;
        assert!(size <= 700, "{size} bytes");
    }
}
