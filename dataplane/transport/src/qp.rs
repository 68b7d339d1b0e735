//! The queue pair: attributes, state, and the way of each input to the role that handles it.
//!
//! What holds: packets are checked for service, state, addresses and P_Key, in this order, before
//! any role sees them; a QP in ERR has flushed everything and sends nothing.
//!
//! Not here: what the roles do ([`crate::rc`]), the transition table ([`state`]).

pub(crate) mod state;

use uroce_wire::{Bth, Gid, Packet, PathMtu, Qpn, Service};

use crate::attr::{QpAttr, QpChange, QpType};
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{Accessor, Env, Pd};
use crate::queue::QpCaps;
use crate::rc::{Context, Requester, Responder, Step};
use crate::time::Instant;
use crate::wqe::{PostError, RecvWr, SendWr, Sge};
use state::{ModifyError, QpState};

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
    qp_type: QpType,
    uses_srq: bool,
    attr: QpAttr,
    requester: Requester,
    responder: Responder,
}

impl Qp {
    /// A QP in RESET. All the memory it will ever need is taken here.
    pub fn new(qpn: Qpn, pd: Pd, init: &QpInit) -> Qp {
        let QpInit { qp_type, caps, uses_srq } = *init;
        Qp {
            by: Accessor { pd, qpn },
            qp_type,
            uses_srq,
            attr: QpAttr::default(),
            requester: Requester::new(&caps),
            responder: Responder::new(&caps),
        }
    }

    /// The QP's transport service.
    pub fn qp_type(&self) -> QpType {
        self.qp_type
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
        self.requester.is_quiet()
    }

    /// Send work requests in the queue, completed ones not counted.
    pub fn send_wrs(&self) -> u32 {
        self.requester.depth()
    }

    /// Receive work requests in the queue.
    pub fn recv_wrs(&self) -> u32 {
        self.responder.depth()
    }

    /// Modify QP: goes to another state, changes attributes, or both.
    ///
    /// # Errors
    /// A [`ModifyError`] says which rule of the transition table is broken; nothing changed.
    pub fn modify(&mut self, change: &QpChange, env: &mut impl Env) -> Result<(), ModifyError> {
        let from = self.attr.state;
        let to = state::check(self.qp_type, from, change)?;
        //= check H6 — an SQD QP takes new attributes only once it is drained
        if from == QpState::Sqd && to == QpState::Sqd && !self.is_drained() {
            return Err(ModifyError::Draining);
        }
        change.apply_to(&mut self.attr);
        self.attr.state = to;
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (_, QpState::Err) => self.flush(env),
            (QpState::Init, QpState::Rtr) => self.responder.start(&self.attr),
            (QpState::Rtr, QpState::Rts) => self.requester.start(&self.attr),
            (QpState::Sqd, QpState::Sqd) => {
                self.requester.retune(&self.attr);
                self.responder.retune(&self.attr);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the QP to ERR for a reason outside of it, such as an overrun CQ.
    pub fn fail(&mut self, env: &mut impl Env) {
        if self.attr.state != QpState::Err {
            self.attr.state = QpState::Err;
            self.flush(env);
        }
    }

    /// Appends a send work request with its scatter/gather list.
    ///
    /// In ERR it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_send(
        &mut self,
        wr: &SendWr,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.requester.post(wr, sges, self.attr.path_mtu)?;
        //= check G3 — what is posted in ERR completes flushed, none is lost
        if self.attr.state == QpState::Err {
            self.requester.flush(self.by.qpn, env);
        }
        Ok(())
    }

    /// Appends a send work request whose payload is `data`, copied here.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_inline(
        &mut self,
        wr: &SendWr,
        data: &[u8],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if !self.attr.state.may_post_send() {
            return Err(PostError::InvalidState);
        }
        self.requester.post_inline(wr, data, self.attr.path_mtu)?;
        if self.attr.state == QpState::Err {
            self.requester.flush(self.by.qpn, env);
        }
        Ok(())
    }

    /// Appends a receive work request with its scatter list.
    ///
    /// In ERR it completes flushed at once.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(
        &mut self,
        wr: &RecvWr,
        sges: &[Sge],
        env: &mut impl Env,
    ) -> Result<(), PostError> {
        if self.uses_srq {
            return Err(PostError::HasSrq);
        }
        if !self.attr.state.may_post_recv() {
            return Err(PostError::InvalidState);
        }
        self.responder.post(wr, sges)?;
        if self.attr.state == QpState::Err {
            self.responder.flush(self.by.qpn, env);
        }
        Ok(())
    }

    /// Takes one packet that names this QP.
    ///
    /// # Errors
    /// The reason why it went no further; it then changed nothing.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let packet = &inbound.packet;
        self.check_packet(inbound)?;
        let context = Context { by: self.by, attr: &self.attr, now };
        if packet.op.is_request() {
            return self.responder.handle_request(&context, packet, env);
        }
        if !self.attr.state.sends() {
            return Err(DropReason::NotRequester);
        }
        match self.requester.handle_response(&context, packet, env) {
            Ok(()) => Ok(()),
            Err(status) => {
                self.fail_send(status, env);
                Ok(())
            }
        }
    }

    /// Takes a packet that names this QP and whose opcode is defined for no service. Of it only the
    /// BTH can be read.
    ///
    /// # Errors
    /// The reason why it went no further; it then changed nothing.
    //= check E7 — answered as an invalid request on RC, dropped on UC and UD
    pub fn handle_reserved_opcode(
        &mut self,
        now: Instant,
        src: Gid,
        dst: Gid,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        const SERVICE: u8 = 0xe0;
        if self.qp_type != QpType::Rc || bth.opcode.0 & SERVICE != 0 {
            return Err(DropReason::ReservedOpCode);
        }
        self.check_addressing(src, dst, bth)?;
        let context = Context { by: self.by, attr: &self.attr, now };
        self.responder.handle_reserved_opcode(&context, bth, env)
    }

    /// UD: the largest datagram, from now on. The path MTU of a connected QP is an attribute, that
    /// of a UD QP its port's, which the surroundings know. Of no effect on RC and UC.
    pub fn set_port_mtu(&mut self, mtu: PathMtu) {
        if self.qp_type == QpType::Ud {
            self.attr.path_mtu = mtu;
        }
    }

    /// Time has passed [`next_timeout`](Qp::next_timeout), or perhaps it has.
    pub fn handle_timeout(&mut self, now: Instant, env: &mut impl Env) {
        if !self.attr.state.sends() {
            return;
        }
        let context = Context { by: self.by, attr: &self.attr, now };
        if let Err(status) = self.requester.handle_timeout(&context, env) {
            self.fail_send(status, env);
        }
    }

    /// Sends up to `budget` packets: answers to the peer first, then requests.
    ///
    /// To be called after each input and again as long as it does not say [`Progress::Idle`].
    pub fn poll_transmit(&mut self, now: Instant, budget: u32, env: &mut impl Env) -> Progress {
        for _ in 0..budget {
            match self.transmit_one(now, env) {
                Step::Sent => {}
                Step::Idle => return Progress::Idle,
                Step::Blocked => return Progress::Blocked,
                Step::Refused => self.fail(env),
                Step::Failed(status) => self.fail_send(status, env),
            }
        }
        Progress::More
    }

    /// When [`handle_timeout`](Qp::handle_timeout) is due next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.requester.next_timeout()
    }

    fn transmit_one(&mut self, now: Instant, env: &mut impl Env) -> Step {
        let context = Context { by: self.by, attr: &self.attr, now };
        if self.attr.state.serves_requests() {
            match self.responder.transmit(&context, env) {
                Step::Idle => {}
                step => return step,
            }
        }
        if self.attr.state.sends() {
            return self.requester.transmit(&context, env);
        }
        Step::Idle
    }

    fn check_packet(&self, inbound: &Inbound<'_>) -> Result<(), DropReason> {
        let packet = &inbound.packet;
        //= check E9 — an opcode of another service is dropped
        match packet.op.service {
            Service::Rc => {}
            Service::Cnp => return Err(DropReason::Congestion),
            _ => return Err(DropReason::WrongService),
        }
        self.check_addressing(inbound.src, inbound.dst, &packet.bth)
    }

    fn check_addressing(&self, src: Gid, dst: Gid, bth: &Bth) -> Result<(), DropReason> {
        //= check E11 — dropped in Reset and Init (and in ERR)
        if !self.attr.state.serves_requests() {
            return Err(DropReason::QpNotReady);
        }
        //= check E16 — dropped before any state is touched
        if src != self.attr.path.dst || dst != self.attr.path.src {
            return Err(DropReason::WrongSource);
        }
        //= check E12 — a P_Key that does not match is dropped and counted
        if !bth.pkey.matches(self.attr.pkey) {
            return Err(DropReason::BadPkey);
        }
        Ok(())
    }

    /// The oldest send WQE failed: completes it with `status`, flushes the rest.
    fn fail_send(&mut self, status: WcStatus, env: &mut impl Env) {
        self.requester.complete_front(self.by.qpn, status, env);
        self.fail(env);
    }

    //= check G1 — everything left completes flushed, in post order, one completion each
    fn flush(&mut self, env: &mut impl Env) {
        self.requester.flush(self.by.qpn, env);
        self.responder.flush(self.by.qpn, env);
    }

    //= check G5 — a QP taken to Reset keeps nothing of its former life
    fn reset(&mut self) {
        self.attr = QpAttr::default();
        self.requester.reset();
        self.responder.reset();
    }
}
