//! Packets through a QP: received packets to the role that handles them, packets to send from the
//! roles.
//!
//! Read first: IBA 9.6 (packet header validation); Annex A17 for addresses.
//!
//! Invariants
//! - A packet is checked for service, state, addresses and P_Key, in this order, before any role
//!   handles it.

use uroce_wire::{Bth, Datagram, Encap, Frame, Gid, Mac, Operation, Packet, Psn, udp_source_port};

use super::Qp;
use super::migration::Origin;
use super::notify::is_marked;
use super::service::Service;
use super::state::QpState;
use crate::attr::{PathMigState, QpType};
use crate::context::{Context, Outcome, Step};
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{AsyncEvent, Env};
use crate::raw::InboundFrame;
use crate::rc::Keepalive;
use crate::time::Instant;

/// Number of answers sent in a row before a request is sent, if one is ready.
const ANSWERS_IN_A_ROW: u8 = 16;

/// A received packet with valid ICRC and lengths, and the addresses that it came with.
#[derive(Clone, Copy, Debug)]
pub struct Inbound<'a> {
    /// Source address.
    pub src: Gid,
    /// Destination address.
    pub dst: Gid,
    /// Local port that received it, counted from 1.
    pub port: u8,
    /// IP packet from its header (20 or 40 bytes) on; a datagram's receiver gets the header.
    pub l3: &'a [u8],
    /// The whole frame from its Ethernet header on, for a CNP to the source of a datagram; if it is
    /// empty none is sent.
    pub frame: &'a [u8],
    /// Packet from BTH on.
    pub packet: Packet<'a>,
}

impl Inbound<'_> {
    /// The path back to the source of a datagram, over the router that it came by; `None` if it was
    /// sent to a group, never left its device, or came without its frame.
    pub(super) fn way_back(&self) -> Option<Encap> {
        const HOPS: u8 = 64;
        let Ok(Frame::Roce(datagram)) = Frame::parse(self.frame) else { return None };
        let Datagram { src_mac, dst_mac, vlan, .. } = datagram;
        let (ours, theirs) = (self.packet.bth.dest_qpn, self.packet.ext.deth.src_qpn);
        let has_way = !self.dst.to_ip().is_multicast() && dst_mac != Mac::LOOPBACK;
        has_way.then(|| Encap {
            src_mac: dst_mac,
            dst_mac: src_mac,
            vlan,
            src: self.dst,
            dst: self.src,
            hop_limit: HOPS,
            src_port: udp_source_port(0, ours, theirs),
            ..Encap::default()
        })
    }
}

/// Result of a packet that was not dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handled {
    /// The QP needs it no more.
    Done,
    /// The packet came early: the caller keeps it, with its addresses, until
    /// [`Qp::next_held`] names its PSN.
    Held,
}

/// State in which [`Qp::poll_transmit`] returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// Nothing more to send until the next input.
    Idle,
    /// The budget is used up; there may be more to send.
    More,
    /// The sink is full; call again when it has room.
    Blocked,
}

impl Qp {
    /// Handles one packet that names this QP as its destination. Afterwards [`Qp::next_held`] may
    /// name a held packet that is due.
    ///
    /// # Errors
    /// The reason for which the packet was dropped. Then nothing has changed, except the PSN that
    /// UC expects and its message in progress.
    #[inline]
    pub fn handle_packet(
        &mut self,
        now: Instant,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<Handled, DropReason> {
        let packet = &inbound.packet;
        let origin = Origin { src: inbound.src, dst: inbound.dst, port: inbound.port };
        if let Err(reason) = self.check_service(packet) {
            return self.refuse_service(now, origin, packet, reason, env).map(|()| Handled::Done);
        }
        self.check_addressing(now, origin, &packet.bth, env)?;
        //= check K3 — a packet that is dropped for its headers makes no CNP
        if is_marked(inbound.l3) {
            self.handle_mark(now, inbound, env);
        }
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let outcome = match &mut self.service {
            Service::Rc(rc) if packet.op.is_request() => {
                if seeded!(ProcessedTwice) {
                    let _ = rc.responder.handle_request(&context, packet, env);
                }
                rc.responder.handle_request(&context, packet, env)?
            }
            Service::Rc(rc) => {
                if !self.attr.state.sends() {
                    return Err(DropReason::NotRequester);
                }
                let is_selective = packet.op.operation == Operation::SelectiveAcknowledge;
                if is_selective && !rc.requester.takes_selective() {
                    return Err(DropReason::ReservedOpCode);
                }
                let before = rc.requester.unacked_psn();
                let result = rc.requester.handle_response(&context, packet, env);
                let unacked = [before, rc.requester.unacked_psn()];
                self.responded(now, origin, packet, unacked, result, env);
                return Ok(Handled::Done);
            }
            Service::Xrc(_) => return self.handle_extended(now, origin, packet, env),
            Service::Eec(_) => {
                return self.handle_reliable_datagram(now, origin, packet, env);
            }
            Service::Rd(_) => return Err(DropReason::WrongService),
            Service::Uc(uc) => uc.responder.handle_request(&context, packet, env)?,
            Service::Ud(ud) => match ud.responder.handle_datagram(&context, inbound, env) {
                Err(DropReason::ReceiveTooSmall) if seeded!(LongDatagramEndsQp) => Outcome::Failed,
                result => result.map(|()| Outcome::Alive)?,
            },
            // No packet is of a raw service.
            Service::Raw(_) => return Err(DropReason::WrongService),
        };
        self.served(outcome, packet.bth.psn, env);
        Ok(if outcome == Outcome::Held { Handled::Held } else { Handled::Done })
    }

    /// Handles one frame that a flow rule has chosen this QP for.
    ///
    /// # Errors
    /// The reason for which the frame was dropped. Then nothing has changed.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        frame: &InboundFrame<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let Service::Raw(raw) = &mut self.service else { return Err(DropReason::WrongService) };
        if !self.attr.state.serves_requests() {
            return Err(DropReason::QpNotReady);
        }
        if frame.port != self.attr.port {
            return Err(DropReason::WrongSource);
        }
        raw.responder.handle_frame(&context, frame, raw.qp_type, env)
    }

    /// Finishes a response that the completer has handled. `unacked` is the oldest unacknowledged
    /// PSN before and after it.
    #[inline(always)]
    pub(super) fn responded(
        &mut self,
        now: Instant,
        origin: Origin,
        packet: &Packet<'_>,
        unacked: [Psn; 2],
        result: Result<(), WcStatus>,
        env: &mut impl Env,
    ) {
        if self.reaction.is_some() {
            self.note_response(unacked[1], packet, now, env);
        }
        if self.migration.is_measured() && unacked[0] != unacked[1] {
            self.measure_failover(now, origin);
        }
        if let Err(status) = result {
            self.fail_or_migrate(status, now, env);
        }
        self.tell_drained(env);
    }

    /// Handles a packet to an XRC QP: a request to a target, or a response to an initiator.
    #[inline(never)]
    fn handle_extended(
        &mut self,
        now: Instant,
        origin: Origin,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Handled, DropReason> {
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let Service::Xrc(xrc) = &mut self.service else { return Err(DropReason::WrongService) };
        if packet.op.is_request() {
            let outcome = xrc.handle_request(&context, packet, env)?;
            self.served(outcome, packet.bth.psn, env);
            return Ok(Handled::Done);
        }
        if !self.attr.state.sends() {
            return Err(DropReason::NotRequester);
        }
        let before = xrc.requester.unacked_psn();
        let result = xrc.handle_response(&context, packet, env)?;
        let unacked = [before, xrc.requester.unacked_psn()];
        self.responded(now, origin, packet, unacked, result, env);
        Ok(Handled::Done)
    }

    /// PSN of the held packet that is due, because all before it have come; the caller passes that
    /// packet to [`Qp::handle_held`] and asks again. `None` if there is none.
    #[inline]
    pub fn next_held(&self) -> Option<Psn> {
        match &self.service {
            Service::Rc(rc) => rc.responder.next_held(),
            _ => None,
        }
    }

    /// Returns whether the packet with this PSN is still waited for by the caller. One that is not
    /// may be freed.
    pub fn holds(&self, psn: Psn) -> bool {
        matches!(&self.service, Service::Rc(rc) if rc.responder.holds(psn))
    }

    /// Handles the held packet that [`Qp::next_held`] has named. Its addresses, P_Key and mark were
    /// checked when it came.
    ///
    /// # Errors
    /// The reason for which the packet was dropped, as by [`Qp::handle_packet`].
    pub fn handle_held(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let Service::Rc(rc) = &mut self.service else { return Err(DropReason::WrongService) };
        let outcome = rc.responder.handle_held(&context, packet, env)?;
        self.served(outcome, packet.bth.psn, env);
        Ok(())
    }

    /// Notes that the caller has no packet with this PSN, though it is held. The packet is then
    /// missing like one that was lost.
    #[cold]
    pub fn lose_held(&mut self, psn: Psn) {
        if let Service::Rc(rc) = &mut self.service {
            rc.responder.lose_held(psn);
        }
    }

    /// Handles a packet that is not of the QP's service: drops it unless it is a CNP.
    #[cold]
    fn refuse_service(
        &mut self,
        now: Instant,
        origin: Origin,
        packet: &Packet<'_>,
        reason: DropReason,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        match packet.op.operation {
            Operation::Cnp => self.handle_cnp(now, origin, env),
            _ => Err(reason),
        }
    }

    /// Handles a packet to this QP with an opcode that no service defines. Only its BTH can be
    /// read. `port` is the local port that received it, counted from 1.
    ///
    /// # Errors
    /// The reason for which the packet was dropped; nothing has changed.
    //= check E7 — answered as an invalid request on RC, dropped on UC and UD
    #[cold]
    pub fn handle_reserved_opcode(
        &mut self,
        now: Instant,
        src: Gid,
        dst: Gid,
        port: u8,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let is_its = match self.qp_type() {
            QpType::Rc => bth.opcode.is_of_rc(),
            QpType::XrcRecv => bth.opcode.is_of_xrc(),
            _ => false,
        };
        if !is_its {
            return Err(DropReason::ReservedOpCode);
        }
        self.check_addressing(now, Origin { src, dst, port }, bth, env)?;
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        if let Some(rc) = self.service.reliable_mut() {
            let outcome = rc.responder.handle_reserved_opcode(&context, bth, env)?;
            self.served(outcome, bth.psn, env);
        }
        Ok(())
    }

    /// Handles expired timers. To be called when the time [`next_timeout`](Qp::next_timeout) has
    /// come; an earlier call does no harm.
    pub fn handle_timeout(&mut self, now: Instant, env: &mut impl Env) {
        self.pace.expire(now);
        if let Service::Eec(eec) = &mut self.service {
            eec.expire(now);
        }
        let Some(rc) = self.service.reliable_mut() else { return };
        if !self.attr.state.sends() {
            return;
        }
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let result = rc.handle_timeout(&context, env);
        self.note_timeout(now, env);
        if let Err(status) = result {
            self.fail_or_migrate(status, now, env);
        }
    }

    /// Handles a requester that cannot continue on this path: migrates if it can, otherwise fails
    /// the oldest send WQE with `status`.
    #[cold]
    fn fail_or_migrate(&mut self, status: WcStatus, now: Instant, env: &mut impl Env) {
        if status != WcStatus::RetryExcErr {
            return self.fail_send(status, env);
        }
        if self.survives_exhaustion(now, env) {
            return;
        }
        if self.service.keepalive().is_some_and(|keepalive| keepalive.idle_ms > 0) {
            env.event(AsyncEvent::PeerLost);
        }
        //= check B16 — if no send WQE is there to complete in error, an event reports it
        if self.send_wrs() == 0 && self.qp_type() != QpType::Eec {
            env.event(AsyncEvent::QpFatal);
        }
        self.fail_send(status, env);
    }

    /// Sends up to `budget` packets: answers to the peer first, then requests, but at most sixteen
    /// answers before a request that can be sent.
    ///
    /// To be called after each input, and again until it returns [`Progress::Idle`].
    pub fn poll_transmit(&mut self, now: Instant, budget: u32, env: &mut impl Env) -> Progress {
        for _ in 0..budget {
            match self.transmit_one(now, env) {
                Step::Sent(_) | Step::Done => {}
                Step::Idle => return Progress::Idle,
                Step::Paced => {
                    self.pace.wait_until(self.service.paced_until());
                    return Progress::Idle;
                }
                Step::Blocked => return Progress::Blocked,
                Step::Refused => self.enter_error(env),
                Step::Failed(status) => self.fail_send(status, env),
            }
        }
        Progress::More
    }

    /// Time at which [`handle_timeout`](Qp::handle_timeout) is due next; `None` if no timer runs.
    pub fn next_timeout(&self) -> Option<Instant> {
        let look = self.service.keepalive().and_then(Keepalive::next_look);
        look.into_iter().chain(self.next_near_timeout()).min()
    }

    /// Time of [`next_timeout`](Qp::next_timeout), but without the keepalive, the time of which is
    /// brought forward only by [`modify`](Qp::modify) and [`handle_timeout`](Qp::handle_timeout).
    /// For a caller that asks after each packet whether a timer has to be set earlier.
    #[inline]
    pub fn next_near_timeout(&self) -> Option<Instant> {
        let resend = match &self.service {
            Service::Rc(rc) => rc.requester.next_timeout(),
            Service::Xrc(xrc) => xrc.requester.next_timeout(),
            Service::Eec(eec) => eec.next_timeout(),
            Service::Uc(_) | Service::Ud(_) | Service::Rd(_) | Service::Raw(_) => None,
        };
        match self.pace.wakes_at() {
            None => resend,
            Some(pace) => Some(resend.map_or(pace, |resend| resend.min(pace))),
        }
    }

    #[inline]
    fn transmit_one(&mut self, now: Instant, env: &mut impl Env) -> Step {
        if self.pace.is_on() {
            return self.transmit_paced(now, env);
        }
        self.transmit_next(now, false, env)
    }

    /// Sends one packet of a QP with a rate limit; a bare acknowledgement is sent at once.
    #[cold]
    fn transmit_paced(&mut self, now: Instant, env: &mut impl Env) -> Step {
        self.advance_reaction(now);
        let message = self.measured_message();
        let is_held = self.pace.next() > now;
        let step = self.transmit_next(now, is_held, env);
        match step {
            Step::Sent(_) if seeded!(AcksUnpaid) && is_held => {}
            Step::Sent(bytes) if is_held => self.pace.charge_bare(bytes, now),
            Step::Sent(bytes) => self.pace.charge(bytes, now),
            Step::Idle if is_held => self.pace.wait_until(self.pace.next()),
            Step::Idle => self.pace.go_idle(),
            _ => {}
        }
        if let Step::Sent(bytes) = step {
            self.note_sent(bytes, message, now);
        }
        step
    }

    /// Sends one packet. If `is_held`, the rate holds the QP back and only a bare acknowledgement
    /// may go.
    #[inline(always)]
    fn transmit_next(&mut self, now: Instant, is_held: bool, env: &mut impl Env) -> Step {
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        let answers = self.attr.state.serves_requests();
        if answers && self.pace.answers < ANSWERS_IN_A_ROW {
            match self.service.transmit_answer(&context, is_held, env) {
                Step::Idle => {}
                step => {
                    self.pace.answers += u8::from(matches!(step, Step::Sent(_)));
                    return step;
                }
            }
        }
        if self.attr.state.sends() && !is_held {
            let step = self.service.transmit_request(&context, env);
            if step != Step::Idle {
                // A request that finds no room keeps its turn.
                if step != Step::Blocked {
                    self.pace.answers = 0;
                }
                if self.owes_drained {
                    self.tell_drained(env);
                }
                return step;
            }
        }
        if answers && self.pace.answers == ANSWERS_IN_A_ROW {
            // A request that the rate holds back keeps its turn.
            if !is_held {
                self.pace.answers = 0;
            }
            return self.service.transmit_answer(&context, is_held, env);
        }
        //= check A16 — nothing is left to send: the next ACK goes before the answer to its message
        if !is_held {
            self.pace.answers = 0;
        }
        Step::Idle
    }

    fn check_service(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        use uroce_wire::Service::{Rc, Rd, Uc, Ud, Xrc};
        //= check E9 — an opcode of another service is dropped
        match (packet.op.service, &self.service) {
            (Rc, Service::Rc(_)) | (Uc, Service::Uc(_)) | (Ud, Service::Ud(_)) => Ok(()),
            (Xrc, Service::Xrc(_)) => Ok(()),
            //= check R20 — a packet to another EEC is dropped, whichever QP it was handed to
            (Rd, _) if packet.ext.rdeth.eecn != self.by.qpn.value() => Err(DropReason::UnknownEecn),
            (Rd, Service::Eec(_)) => Ok(()),
            _ => Err(DropReason::WrongService),
        }
    }

    #[inline]
    fn check_addressing(
        &mut self,
        now: Instant,
        origin: Origin,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        //= check E11 — dropped in Reset and Init (and in ERR)
        let state = self.attr.state;
        if !(state.serves_requests() || seeded!(ServesInError) && state == QpState::Err) {
            return Err(DropReason::QpNotReady);
        }
        //= check E16 — dropped before any state changes; a datagram may come from any source
        if matches!(self.service, Service::Ud(_)) {
            if origin.port != self.attr.port {
                return Err(DropReason::WrongSource);
            }
        } else if !self.is_on_path(origin) || self.attr.path_mig_state != PathMigState::Migrated {
            return self.check_other_path(now, origin, bth, env);
        }
        //= check E12 — a P_Key that does not match is dropped and counted
        if !bth.pkey.matches(self.attr.pkey) {
            return Err(DropReason::BadPkey);
        }
        Ok(())
    }

    /// Finishes a packet that the responder has handled.
    #[inline]
    pub(super) fn served(&mut self, outcome: Outcome, psn: Psn, env: &mut impl Env) {
        //= check H11 — the first packet of a connection before RTS is reported, once
        if self.attr.state == QpState::Rtr && !self.has_comm {
            self.begin_comm(psn, env);
        }
        if outcome == Outcome::Failed {
            self.enter_error(env);
        }
    }

    /// Reports the first packet of a connection. An RC packet before the first PSN is only a sign
    /// of life: the peer has sent no message.
    #[cold]
    fn begin_comm(&mut self, psn: Psn, env: &mut impl Env) {
        if self.qp_type() == QpType::Rc && psn.next() == self.attr.rq_psn {
            return;
        }
        self.has_comm = true;
        if !self.qp_type().is_datagram() {
            env.event(AsyncEvent::CommEst);
        }
    }
}
