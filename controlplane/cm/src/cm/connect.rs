//! The consumer's calls that set up a connection.
//!
//! Read first: IBA 12.9; Annex A11.

use uroce_transport::Instant;
use uroce_wire::Qpn;
use uroce_wire::cm::{
    CmPath, CmTimeout, CommId, Message, MessageMraed, Mra, PrivateData, RejectReason, Rep, Req,
    Rtu, TransportService,
};

use super::common::Common;
use super::{Cm, check_path, check_range};
use crate::agreement::Features;
use crate::conn::{Conn, Kind};
use crate::state::{Event, LapEvent, State};
use crate::{AcceptParams, CloseReason, CmError, CmEvent, ConnId, ConnectParams, Path};

impl Cm {
    /// Sends a REQ. [`CmEvent::Accepted`] or [`CmEvent::Closed`] reports the outcome. In
    /// peer-to-peer mode [`CmEvent::Request`] may come first, if the peer's REQ takes precedence
    /// over ours.
    ///
    /// # Errors
    /// [`CmError::OutOfRange`] for bad parameters, [`CmError::QpnInUse`], [`CmError::Full`],
    /// [`CmError::ServiceInUse`] for a second peer-to-peer request to the same GID and service,
    /// [`CmError::NoRdc`] if `rdc_exists` and no connection is the channel of the EE context.
    pub fn connect(&mut self, now: Instant, params: &ConnectParams) -> Result<ConnId, CmError> {
        check_connect(params)?;
        let remote_eecn = self.check_ends(params)?;
        self.check_room()?;
        self.check_peer(params)?;
        let comm = self.comm_id();
        let req = self.req(comm, params, remote_eecn);
        let mut conn = Conn::new(comm, params.service_id, params.primary);
        conn.state = State::ReqSent;
        conn.peer_to_peer = params.peer_to_peer;
        conn.kind = Kind::of(&req);
        conn.local_qpn = Some(params.local_qpn);
        conn.local_rd = params.rd;
        conn.alternate = params.alternate;
        let mut private_data = params.private_data;
        //= check A28 — an offer stands behind the consumer's private data, if that leaves room
        conn.offered = Features::selective_repeat(params.selective_repeat).offer(&mut private_data);
        conn.set_time_wait(None);
        conn.max_retries = params.max_cm_retries;
        conn.interval = params.remote_cm_response_timeout.duration()
            + params.primary.local_ack_timeout.duration();
        let id = self.table.insert(conn);
        let req = Message::Req(Req { private_data, ..req });
        self.with(id, |conn, common| conn.send_repeated(now, req, common));
        Ok(id)
    }

    /// Builds a REQ without private data.
    fn req(&self, comm: CommId, params: &ConnectParams, remote_eecn: Qpn) -> Req {
        let rd = params.rd.unwrap_or_default();
        let is_xrc = params.transport_service == TransportService::Extended;
        Req {
            local_comm_id: comm,
            service_id: params.service_id,
            local_ca_guid: self.common.config.ca_guid,
            local_qkey: rd.qkey,
            local_qpn: params.local_qpn,
            local_eecn: rd.eecn.value(),
            remote_eecn: remote_eecn.value(),
            rdc_exists: params.rdc_exists,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            remote_cm_response_timeout: params.remote_cm_response_timeout,
            transport_service: params.transport_service,
            extended_transport_type: if is_xrc { Req::EXTENDED_XRC } else { 0 },
            end_to_end_flow_control: params.flow_control,
            starting_psn: params.starting_psn,
            local_cm_response_timeout: params.local_cm_response_timeout,
            retry_count: params.retry_count,
            pkey: params.pkey,
            path_mtu_code: params.path_mtu.code(),
            rnr_retry_count: params.rnr_retry_count,
            max_cm_retries: params.max_cm_retries,
            srq: params.srq,
            primary: params.primary.to_wire(),
            alternate: params.alternate.map_or(CmPath::default(), |path| path.to_wire()),
            ..Req::default()
        }
    }

    /// Checks that the local end of a REQ can be used. Returns the peer's EE context, if the REQ is
    /// to name it, else 0.
    fn check_ends(&self, params: &ConnectParams) -> Result<Qpn, CmError> {
        let Some(end) = params.rd else {
            self.check_qpn(params.local_qpn)?;
            return Ok(Qpn::default());
        };
        check_rd_qpn(params.local_qpn)?;
        if !params.rdc_exists {
            //= check R43 — as a QPN, an EECN is not used again before its TimeWait is over
            self.check_qpn(end.eecn)?;
            return Ok(Qpn::default());
        }
        let channel = self.channel(end.eecn).and_then(|conn| conn.remote_rd);
        channel.map(|peer| peer.eecn).ok_or(CmError::NoRdc(end.eecn))
    }

    /// Checks that no peer-to-peer request to the same GID and service is pending. If both ends are
    /// this host, two requests may be.
    fn check_peer(&self, params: &ConnectParams) -> Result<(), CmError> {
        let Path { local, remote, .. } = params.primary;
        let most = if local == remote { 2 } else { 1 };
        let asked = self.table.peers(params.service_id, remote).count();
        match params.peer_to_peer && asked >= most {
            true => Err(CmError::ServiceInUse(params.service_id)),
            false => Ok(()),
        }
    }

    /// Accepts the request of a [`CmEvent::Request`]. The queue pair must already be in RTR.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] or [`CmError::State`] if no request waits under `id`,
    /// [`CmError::OutOfRange`] for bad parameters, [`CmError::QpnInUse`], [`CmError::NoRdc`] if
    /// another EE context than the request's is named, or its channel has ended.
    pub fn accept(
        &mut self,
        now: Instant,
        id: ConnId,
        params: &AcceptParams,
    ) -> Result<(), CmError> {
        // In peer-to-peer mode the request belongs to a connection that already has its queue pair.
        let number = params.rd.map_or(params.local_qpn, |end| end.eecn);
        let is_taken = self.table.by_qpn(number).is_some_and(|holder| holder != id);
        let is_channel = self.channel(number).is_some();
        self.call(id, |conn, common| {
            let next = conn.wish(Event::SendRep)?;
            conn.check_accept(params, is_taken, is_channel)?;
            conn.state = next;
            conn.accept(now, params, common);
            Ok(())
        })
    }

    /// Confirms a [`CmEvent::Accepted`] with an RTU. Called when the queue pair is in RTS; the
    /// connection is established from then on.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] or [`CmError::State`] if the peer has not accepted `id`.
    pub fn ready(&mut self, id: ConnId, private_data: PrivateData<224>) -> Result<(), CmError> {
        self.call(id, |conn, common| {
            conn.state = conn.wish(Event::SendRtu)?;
            conn.deadline = None;
            let (local_comm_id, remote_comm_id) = (conn.local_comm, conn.remote_comm_or_none());
            let rtu = Rtu { local_comm_id, remote_comm_id, private_data };
            conn.send_answer(Message::Rtu(rtu), common);
            Ok(())
        })
    }

    /// Rejects a request, or an acceptance. `ari` is additional reject information of up to 72
    /// bytes; its meaning depends on `reason`.
    ///
    /// A request of our own without an answer is withdrawn by a REJ with reason timeout, whatever
    /// `reason` is: the peer's communication ID is unknown, so that the peer finds the request by
    /// our CA GUID.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] or [`CmError::State`] if there is nothing to reject,
    /// [`CmError::OutOfRange`] if `ari` is too long.
    pub fn reject(
        &mut self,
        now: Instant,
        id: ConnId,
        reason: RejectReason,
        ari: &[u8],
        private_data: PrivateData<148>,
    ) -> Result<(), CmError> {
        self.call(id, |conn, common| conn.reject(now, reason, ari, private_data, common))
    }

    /// Sends an MRA: the peer's REQ, REP or LAP will be answered within `service_timeout` from now.
    ///
    /// # Errors
    /// [`CmError::UnknownId`], [`CmError::State`], or [`CmError::NoLap`] if no message of the peer
    /// waits for the consumer's answer.
    pub fn mra(
        &mut self,
        id: ConnId,
        service_timeout: CmTimeout,
        private_data: PrivateData<222>,
    ) -> Result<(), CmError> {
        self.call(id, |conn, common| {
            if conn.state == State::Established {
                return conn.mra_lap(service_timeout, private_data, common);
            }
            let next = conn.wish(Event::SendMra)?;
            let message = match next {
                State::MraReqSent => MessageMraed::Req,
                _ => MessageMraed::Rep,
            };
            conn.state = next;
            let mra = conn.mra(message, service_timeout, private_data);
            conn.send_answer(mra, common);
            Ok(())
        })
    }

    /// Establishes a connection by its first data, which arrived before the RTU, and reports
    /// [`CmEvent::Established`]. Has no effect on an established connection.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] or [`CmError::State`] if `id` does not wait for an RTU.
    pub fn communication_established(&mut self, id: ConnId) -> Result<(), CmError> {
        //= check J3 — received data establishes the connection as the lost RTU would have.
        self.call(id, |conn, common| {
            if conn.state != State::Established {
                let next = conn.wish(Event::CommEst)?;
                conn.established(next);
                conn.tell(CmEvent::Established(None), common);
            }
            Ok(())
        })
    }

    pub(super) fn check_room(&self) -> Result<(), CmError> {
        let has_room = self.table.len() < self.common.config.limits.connections;
        if has_room { Ok(()) } else { Err(CmError::Full) }
    }

    fn check_qpn(&self, qpn: Qpn) -> Result<(), CmError> {
        check_qpn_value(qpn)?;
        if self.holds_qpn(qpn) { Err(CmError::QpnInUse(qpn)) } else { Ok(()) }
    }
}

impl Conn {
    /// Checks a REP's parameters. `is_taken`: another connection has the queue pair, or EE context.
    /// `is_channel`: that other connection is the EE context's channel.
    fn check_accept(
        &self,
        params: &AcceptParams,
        is_taken: bool,
        is_channel: bool,
    ) -> Result<(), CmError> {
        check_range("RNR retry count", params.rnr_retry_count, 7)?;
        let number = match (self.kind, params.rd) {
            (Kind::Qp | Kind::Xrc, None) => params.local_qpn,
            (Kind::Rdc, Some(end)) => {
                check_rd_qpn(params.local_qpn)?;
                end.eecn
            }
            (Kind::RdQp, Some(end)) => {
                check_rd_qpn(params.local_qpn)?;
                let is_named = is_channel && self.used_channel() == Some(end.eecn);
                return if is_named { Ok(()) } else { Err(CmError::NoRdc(end.eecn)) };
            }
            _ => return Err(CmError::OutOfRange("transport service")),
        };
        check_qpn_value(number)?;
        if is_taken { Err(CmError::QpnInUse(number)) } else { Ok(()) }
    }

    fn accept(&mut self, now: Instant, params: &AcceptParams, common: &mut Common) {
        self.local_qpn = Some(params.local_qpn);
        self.local_rd = params.rd;
        if let Some(alternate) = &mut self.alternate {
            alternate.port = params.alternate_port;
        }
        let mut private_data = params.private_data;
        //= check A28 — the REP accepts what was offered and will be used, and nothing else
        let wanted = Features::selective_repeat(params.selective_repeat);
        self.agreed = wanted.answer(self.offered, &mut private_data);
        let (is_xrc, rd) = (self.kind == Kind::Xrc, params.rd.unwrap_or_default());
        let rep = Rep {
            local_comm_id: self.local_comm,
            remote_comm_id: self.remote_comm_or_none(),
            //= check R40 — EECN, Q_Key and QPN of the answering side
            local_qkey: rd.qkey,
            local_qpn: if is_xrc { Qpn::default() } else { params.local_qpn },
            local_eecn: if is_xrc { params.local_qpn.value() } else { rd.eecn.value() },
            starting_psn: params.starting_psn,
            responder_resources: params.responder_resources,
            initiator_depth: params.initiator_depth,
            target_ack_delay: params.target_ack_delay,
            failover: params.failover,
            end_to_end_flow_control: params.flow_control,
            rnr_retry_count: params.rnr_retry_count,
            srq: params.srq || is_xrc,
            local_ca_guid: common.config.ca_guid,
            private_data,
        };
        self.send_repeated(now, Message::Rep(rep), common);
    }

    fn reject(
        &mut self,
        now: Instant,
        reason: RejectReason,
        ari: &[u8],
        private_data: PrivateData<148>,
        common: &mut Common,
    ) -> Result<(), CmError> {
        self.wish(Event::SendRej)?;
        if ari.len() > 72 {
            return Err(CmError::OutOfRange("additional information"));
        }
        if self.remote_comm.is_none() || (reason == RejectReason::TIMEOUT && ari.is_empty()) {
            self.send_rej_timeout(private_data, common);
        } else {
            //= check J5 — the consumer's rejection carries its reason, additional information and
            //= check J5 — private data.
            self.send_rej(reason, ari, private_data, common);
        }
        self.close(now, Event::SendRej, CloseReason::RejectedByUs, common);
        Ok(())
    }

    fn mra(
        &self,
        message: MessageMraed,
        service_timeout: CmTimeout,
        private_data: PrivateData<222>,
    ) -> Message {
        let (local_comm_id, remote_comm_id) = (self.local_comm, self.remote_comm_or_none());
        Message::Mra(Mra { local_comm_id, remote_comm_id, message, service_timeout, private_data })
    }

    fn mra_lap(
        &mut self,
        service_timeout: CmTimeout,
        private_data: PrivateData<222>,
        common: &mut Common,
    ) -> Result<(), CmError> {
        self.lap_in = self.wish_lap_in(LapEvent::SendMra)?;
        let mra = self.mra(MessageMraed::Lap, service_timeout, private_data);
        self.send_lap_answer(mra, common);
        Ok(())
    }

    pub(super) fn established(&mut self, next: State) {
        self.state = next;
        (self.repeated, self.deadline, self.answer) = (None, None, None);
    }
}

fn check_connect(params: &ConnectParams) -> Result<(), CmError> {
    let is_rd = params.transport_service == TransportService::Rd;
    if is_rd != params.rd.is_some() || params.rdc_exists && !is_rd {
        return Err(CmError::OutOfRange("transport service"));
    }
    // Two initiators would not understand each other.
    if params.peer_to_peer && params.transport_service == TransportService::Extended {
        return Err(CmError::OutOfRange("peer-to-peer mode of XRC"));
    }
    if params.rdc_exists && (params.peer_to_peer || params.alternate.is_some()) {
        return Err(CmError::OutOfRange("mode or path of another channel"));
    }
    check_range("retry count", params.retry_count, 7)?;
    check_range("RNR retry count", params.rnr_retry_count, 7)?;
    check_range("CM retries", params.max_cm_retries, 15)?;
    check_path(&params.primary)?;
    params.alternate.iter().try_for_each(check_path)
}

/// Tells whether a QPN can be in a connection: not QP 0 or QP 1, and not the multicast QPN.
pub(super) fn is_connectable(qpn: Qpn) -> bool {
    qpn > Qpn::GSI && qpn != Qpn::MULTICAST
}

/// Tells whether a REQ or REP for reliable datagrams can name this queue pair; 0 stands for none.
pub(super) fn is_rd_qpn(qpn: Qpn) -> bool {
    qpn.value() == 0 || is_connectable(qpn)
}

fn check_rd_qpn(qpn: Qpn) -> Result<(), CmError> {
    if is_rd_qpn(qpn) { Ok(()) } else { Err(CmError::OutOfRange("queue pair number")) }
}

fn check_qpn_value(qpn: Qpn) -> Result<(), CmError> {
    if is_connectable(qpn) { Ok(()) } else { Err(CmError::OutOfRange("queue pair number")) }
}
