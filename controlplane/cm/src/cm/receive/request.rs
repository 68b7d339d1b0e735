//! Handler of REQ. It checks for duplicates, bad parameters, crossing requests, stale connections
//! and listeners, in this order.

use uroce_transport::Instant;
use uroce_wire::cm::{
    CaGuid, CommId, Message, MessageRejected, PrivateData, RejectReason, Req, TransportService,
};
use uroce_wire::{Gid, PathMtu, Qpn};

use super::Cm;
use crate::agreement::split_offer;
use crate::cm::clamped;
use crate::cm::common::Common;
use crate::cm::connect::{is_connectable, is_rd_qpn};
use crate::conn::{Conn, End, Kind};
use crate::state::{Event, State};
use crate::{CloseReason, CmEvent, ConnId, MadAddr, MadDrop, Path, RdEnd, Request};

impl Cm {
    pub(super) fn on_req(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        transaction: u64,
        req: &Req,
    ) -> Result<(), MadDrop> {
        if let Some(id) = self.table.by_remote_comm(req.local_ca_guid, req.local_comm_id) {
            let step = |conn: &mut Conn, common: &mut Common| conn.on_known_req(addr, req, common);
            return Err(self.with(id, step).unwrap_or(MadDrop::UnknownId));
        }
        if self.awaits_rtu(addr, req) {
            return Err(MadDrop::Unexpected);
        }
        let verdict = self.check_req(addr, req).and_then(|()| self.check_stale(now, addr, req));
        let refuse = |cm: &mut Cm, reason, ari: &[u8]| {
            let ids = (CommId(0), req.local_comm_id);
            Err(cm.common.refuse(addr, transaction, ids, MessageRejected::Req, reason, ari))
        };
        if let Err(reason) = verdict {
            let mtu = [PathMtu::B4096.code()];
            let ari = if reason == RejectReason::INVALID_PATH_MTU { &mtu[..] } else { &[] };
            return refuse(self, reason, ari);
        }
        // A REQ to our own host arrives at its sender. The connection that sent it is not its own
        // peer.
        let asker = self.table.by_comm(req.local_comm_id);
        let peer = self.table.peers(req.service_id, addr.src).find(|&id| Some(id) != asker);
        if let Some(id) = peer {
            let is_same = self.table.get(id).is_some_and(|conn| conn.kind == Kind::of(req));
            return match is_same {
                true => self.on_crossing_req(addr, transaction, id, req),
                false => refuse(self, RejectReason::INVALID_TRANSPORT_TYPE, &[]),
            };
        }
        match self.check_room_for_req(now, req) {
            Ok(()) => {
                self.take_req(addr, transaction, req);
                Ok(())
            }
            Err(reason) => refuse(self, reason, &[]),
        }
    }

    /// Checks the parameters that every REQ must have, whatever its consumer would accept.
    fn check_req(&self, addr: &MadAddr, req: &Req) -> Result<(), RejectReason> {
        //= check J5 — a REQ that cannot be served is refused with the reason.
        if req.transport_service == TransportService::Extended && !req.is_xrc() {
            return Err(RejectReason::INVALID_TRANSPORT_TYPE);
        }
        if req.path_mtu().is_none() {
            return Err(RejectReason::INVALID_PATH_MTU);
        }
        let is_possible = match RdEnd::of_req(req) {
            Some(end) => is_rd_qpn(req.local_qpn) && is_connectable(end.eecn),
            None => is_connectable(req.local_qpn),
        };
        if !is_possible {
            return Err(RejectReason::UNSUPPORTED);
        }
        // The path must lead back to the sender of the REQ: no host connects on behalf of another.
        if req.primary.local_gid != addr.src || req.primary.remote_gid != addr.dst {
            return Err(RejectReason::INVALID_GID);
        }
        //= check R41 — a REQ for a channel that this side does not have is refused
        let has_channel = self.named_channel(addr, req).map(|conn| conn.state);
        if Kind::of(req) == Kind::RdQp && has_channel != Some(State::Established) {
            return Err(RejectReason::RDC_DOES_NOT_EXIST);
        }
        Ok(())
    }

    /// Finds the channel that a REQ says exists, in any state.
    fn named_channel(&self, addr: &MadAddr, req: &Req) -> Option<&Conn> {
        let conn = self.table.get(self.table.by_qpn(Qpn::new(req.remote_eecn))?)?;
        let peer = conn.remote_rd.map(|end| (conn.remote_guid, end.eecn));
        let is_between = peer == Some((req.local_ca_guid, Qpn::new(req.local_eecn)));
        Some(conn).filter(|conn| conn.kind == Kind::Rdc && is_between && conn.knows(addr.src))
    }

    /// Tells whether a REQ is for a channel that its sender may have established, by an RTU that
    /// has not arrived. The sender repeats the REQ.
    fn awaits_rtu(&self, addr: &MadAddr, req: &Req) -> bool {
        let channel = self.named_channel(addr, req).filter(|_| Kind::of(req) == Kind::RdQp);
        channel.is_some_and(|conn| matches!(conn.state, State::RepSent | State::MraRepRcvd))
    }

    //= check J4 — a REQ for a queue pair that is in a connection with us proves that the connection
    //= check J4 — is gone: it is torn down, and the REQ refused until its TimeWait is over. A REQ
    //= check J4 — from another address proves nothing about either: one of the two senders uses the
    //= check J4 — CA GUID of the other, and neither may harm the other's connection.
    fn check_stale(&mut self, now: Instant, addr: &MadAddr, req: &Req) -> Result<(), RejectReason> {
        let end = Kind::of(req).end(req.local_qpn, RdEnd::of_req(req));
        let old = end.and_then(|end| self.stale(req.local_ca_guid, end, addr.src));
        let Some(old) = old else { return Ok(()) };
        self.with(old, |conn, common| conn.tear_down(now, common));
        Err(RejectReason::STALE_CONNECTION)
    }

    /// Finds the connection to queue pair or EE context `end` of channel adapter `guid`, if its
    /// peer has the GID `at`.
    pub(super) fn stale(&self, guid: CaGuid, end: End, at: Gid) -> Option<ConnId> {
        let old = self.table.by_remote_end(guid, end)?;
        self.table.get(old).filter(|conn| conn.knows(at)).map(|_| old)
    }

    /// Handles a REQ that crosses our own in peer-to-peer mode. The side with the greater CA GUID,
    /// or the greater QPN or EECN if both are equal, stays the active side.
    fn on_crossing_req(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        id: ConnId,
        req: &Req,
    ) -> Result<(), MadDrop> {
        //= check J10 — of two REQs that cross exactly one yields.
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        let ours = (self.common.config.ca_guid, conn.local_number().unwrap_or_default());
        let theirs = RdEnd::of_req(req).map_or(req.local_qpn, |end| end.eecn);
        let next = conn.state.after(Event::RecvPeerReq).ok_or(MadDrop::Unexpected)?;
        if ours >= (req.local_ca_guid, theirs) {
            return Err(MadDrop::Unexpected);
        }
        self.with(id, |conn, common| {
            conn.state = next;
            (conn.repeated, conn.deadline) = (None, None);
            conn.learn_req(addr, transaction, req, &common.config.limits);
            conn.tell_request(addr, req, common);
        });
        Ok(())
    }

    fn check_room_for_req(&mut self, now: Instant, req: &Req) -> Result<(), RejectReason> {
        let Some(listener) = self.table.listeners.get(&req.service_id).copied() else {
            return Err(RejectReason::INVALID_SERVICE_ID);
        };
        let has_room = listener.pending < listener.backlog && self.has_room_for_stranger(now);
        if has_room { Ok(()) } else { Err(RejectReason::NO_RESOURCES) }
    }

    //= check J13 — unknown senders occupy bounded room; the one that does not answer is given up
    //= check J13 — first, and an established connection is never touched.
    pub(super) fn has_room_for_stranger(&mut self, now: Instant) -> bool {
        let limits = self.common.config.limits;
        if self.table.half_open().len() >= limits.half_open {
            self.evict(now);
        }
        self.table.half_open().len() < limits.half_open
            && self.table.len() < limits.connections
            && self.common.events.len() < limits.queue
    }

    /// Gives up the oldest half-open connection that waits for the answer to a repeated REP.
    fn evict(&mut self, now: Instant) {
        if let Some(id) = self.table.oldest_silent() {
            self.common.counters.evicted += 1;
            self.with(id, |conn, common| conn.give_up(now, common));
        }
    }

    fn take_req(&mut self, addr: &MadAddr, transaction: u64, req: &Req) {
        let comm = self.comm_id();
        let mut conn = Conn::new(comm, req.service_id, Path::of_peer(addr.port, &req.primary));
        conn.state = State::Idle.after(Event::RecvReq).unwrap_or(State::Idle);
        conn.listener = Some(req.service_id);
        conn.learn_req(addr, transaction, req, &self.common.config.limits);
        let id = self.table.insert(conn);
        self.with(id, |conn, common| conn.tell_request(addr, req, common));
    }
}

impl Conn {
    //= check J2 — a copy of a REQ makes no second connection; it gets the answer of the first.
    fn on_known_req(&self, addr: &MadAddr, req: &Req, common: &mut Common) -> MadDrop {
        if !self.knows(addr.src) || !self.is_with(req) {
            return MadDrop::Forged;
        }
        match self.state {
            State::MraReqSent => self.answer_again(common),
            State::RepSent => self.rep_again(common),
            State::TimeWait => {
                let ids = (self.local_comm, req.local_comm_id);
                let (message, reason) = (MessageRejected::Req, RejectReason::STALE_CONNECTION);
                common.refuse(&self.addr.reversed(), self.asked, ids, message, reason, &[]);
                MadDrop::Duplicate
            }
            _ => MadDrop::Duplicate,
        }
    }

    /// Sends the REP of the connection again.
    fn rep_again(&self, common: &mut Common) -> MadDrop {
        if let Some(repeated) = &self.repeated {
            common.send(self.addr, &repeated.message, repeated.transaction);
        }
        MadDrop::Duplicate
    }

    /// Ends a connection that its peer no longer has.
    pub(super) fn tear_down(&mut self, now: Instant, common: &mut Common) {
        let event = match self.state {
            State::Established => {
                let (dreq, transaction) = (self.dreq(PrivateData::default()), common.random.next());
                common.send(self.addr, &Message::Dreq(dreq), transaction);
                Event::RecvRejStale
            }
            State::DreqSent | State::DreqRcvd | State::TimeWait => Event::RecvRejStale,
            _ => {
                let reason = RejectReason::STALE_CONNECTION;
                self.send_rej(reason, &[], PrivateData::default(), common);
                Event::SendRej
            }
        };
        self.close(now, event, CloseReason::Stale, common);
    }

    fn tell_request(&self, addr: &MadAddr, req: &Req, common: &mut Common) {
        let req = Req { private_data: split_offer(req.private_data).1, ..*req };
        let selective_repeat = self.offered.has_selective_repeat();
        let request = Request { addr: *addr, service_id: req.service_id, selective_repeat, req };
        self.tell(CmEvent::Request(Box::new(request)), common);
    }

    /// Stores the peer's parameters from its REQ.
    fn learn_req(&mut self, addr: &MadAddr, transaction: u64, req: &Req, limits: &crate::CmLimits) {
        self.remote_comm = Some(req.local_comm_id);
        self.remote_guid = req.local_ca_guid;
        self.kind = Kind::of(req);
        //= check R40 — EECN, Q_Key and QPN of the asking side
        (self.remote_qpn, self.remote_rd) = (Some(req.local_qpn), RdEnd::of_req(req));
        if self.kind == Kind::RdQp {
            let eecn = Qpn::new(req.remote_eecn);
            self.local_rd = Some(RdEnd { eecn, ..RdEnd::default() });
        }
        self.offered = split_offer(req.private_data).0;
        self.addr = addr.reversed();
        self.primary = Path::of_peer(addr.port, &req.primary);
        let has_own = req.alternate.is_present() && self.kind != Kind::RdQp;
        let alternate = has_own.then_some(req.alternate);
        self.alternate = alternate.map(|path| Path::of_peer(addr.port, &path));
        self.set_time_wait(Some(limits.time_wait));
        self.asked = transaction;
        self.max_retries = req.max_cm_retries;
        let answer = clamped(req.local_cm_response_timeout, limits.response_timeout);
        let way = clamped(req.primary.local_ack_timeout, limits.response_timeout);
        self.interval = answer.duration() + way.duration();
    }
}
