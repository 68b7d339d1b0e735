//! Passive side: receives requests and accepts them.
//!
//! Read first: IBA 12.9; Annex A11.

use std::net::SocketAddr;

use uroce_cm::{AcceptParams, ConnId, Request};
use uroce_transport::{Instant, QpChange, QpType};
use uroce_wire::cm::{CmTimeout, Failover, IpHeader, PrivateData, RejectReason, ServiceId};

use super::active::check_param;
use super::common::{Common, Tally};
use super::terms::{Terms, terms};
use super::{Service, private_data};
use crate::call::RequestError;
use crate::rdma_cm::connection::{Connection, Next, Stage};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::param::REP_DATA;
use crate::rdma_cm::source::Way;
use crate::rdma_cm::{
    CmId, ConnError, ConnEvent, ConnParam, ConnQp, ConnectRequest, PortSpace, qp,
};

/// Source, destination and listener of a request.
pub(super) struct Caller {
    pub(super) listener: CmId,
    pub(super) space: PortSpace,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl Service {
    /// Handles a REQ for a service ID with a listener.
    pub(super) fn request(
        &mut self,
        conn: ConnId,
        request: &Request,
        context: &mut ServiceContext<'_>,
    ) {
        let result = self.admit(conn, request, context);
        if let Err(reason) = result {
            self.common.count(match reason {
                RejectReason::NO_RESOURCES => Tally::BacklogFull,
                _ => Tally::Refused,
            });
            let _ = self.common.cm.reject(context.now, conn, reason, &[], PrivateData::default());
        }
    }

    //= check J5 — the reason says what is wrong with the request, or that the backlog is full
    fn admit(
        &mut self,
        conn: ConnId,
        request: &Request,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RejectReason> {
        let req = &request.req;
        let caller = self.caller(request.service_id, &req.private_data.0)?;
        let is_theirs = req.primary.local_gid.to_ip() == caller.peer.ip()
            && req.primary.remote_gid.to_ip() == caller.local.ip();
        let Terms { qp_type, primary, alternate, agreed } = terms(request, context)?;
        if !is_theirs {
            return Err(RejectReason::INVALID_GID);
        }
        //= check R45 — a listener serves QPs or EECs, and the REJ of the other kind says so
        let listener = self.common.listeners.get(&caller.listener);
        if listener.map(|it| it.eecs) != Some(qp_type == QpType::Eec) {
            return Err(RejectReason::INVALID_TRANSPORT_TYPE);
        }
        let connection = Connection {
            conn: Some(conn),
            asked_for: Some(qp_type),
            agreed: Some(agreed),
            alternate,
            asked_for_alternate: req.alternate.is_present(),
            ..self.incoming(&caller, primary)?
        };
        let presented = ConnectRequest {
            listener: caller.listener,
            space: caller.space,
            local: caller.local,
            peer: caller.peer,
            peer_qpn: agreed.peer_qpn,
            qp_type,
            responder_resources: req.initiator_depth,
            initiator_depth: req.responder_resources,
            flow_control: req.end_to_end_flow_control,
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry_count,
            path_mtu: agreed.path_mtu,
            has_alternate: alternate.is_some(),
            has_srq: req.srq,
            agreed: Some(agreed),
            private_data: req.private_data.0[IpHeader::LEN..].to_vec(),
        };
        self.present(conn, connection, presented, context.now)
    }

    /// Returns source, destination and listener of a request. Its addresses are those of the header
    /// in its private data.
    pub(super) fn caller(&self, service: ServiceId, data: &[u8]) -> Result<Caller, RejectReason> {
        let tcp = service.tcp_port().map(|port| (PortSpace::Tcp, port));
        let udp = service.udp_port().map(|port| (PortSpace::Udp, port));
        let ib = service.ib_port().map(|port| (PortSpace::Ib, port));
        let (space, port) = tcp.or(udp).or(ib).ok_or(RejectReason::INVALID_SERVICE_ID)?;
        let header = IpHeader::parse(data).map_err(|_| RejectReason::UNSUPPORTED)?;
        let local = SocketAddr::new(header.dst, port);
        let listener =
            self.common.ports.listener(space, local).ok_or(RejectReason::INVALID_SERVICE_ID)?;
        Ok(Caller { listener, space, local, peer: SocketAddr::new(header.src, header.src_port) })
    }

    /// Creates the connection for a request, if its listener's backlog has room.
    pub(super) fn incoming(
        &mut self,
        caller: &Caller,
        primary: Way,
    ) -> Result<Connection, RejectReason> {
        let listener = self.common.listeners.get(&caller.listener);
        let listener = listener.filter(|it| Some(it.waiting) < it.backlog);
        let channel = listener.ok_or(RejectReason::NO_RESOURCES)?.channel.clone();
        Ok(Connection {
            listener: Some(caller.listener),
            local: caller.local,
            peer: caller.peer,
            ..Connection::new(self.common.next_id(), channel, caller.space, primary)
        })
    }

    /// Reports a request to the application.
    pub(super) fn present(
        &mut self,
        conn: ConnId,
        connection: Connection,
        request: ConnectRequest,
        now: Instant,
    ) -> Result<(), RejectReason> {
        self.check_room().map_err(|_| RejectReason::NO_RESOURCES)?;
        let common = &mut self.common;
        if let Some(listener) = connection.listener.and_then(|id| common.listeners.get_mut(&id)) {
            listener.waiting += 1;
        }
        let id = connection.id;
        common.by_conn.insert(conn, id);
        connection.await_application(now, common);
        tracing::debug!(id = connection.id.0, peer = %connection.peer, "request");
        connection.tell(ConnEvent::ConnectRequest(Box::new(request)));
        self.connections.insert(id, connection);
        Ok(())
    }
}

impl Connection {
    /// Handles a REQ that crosses our own REQ in peer-to-peer mode and takes precedence over it.
    /// The peer's REQ is accepted with the parameters of our own.
    pub(super) fn yielded(
        &mut self,
        request: &Request,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        let own = self.qp.map(|own| own.qp_type);
        let terms = terms(request, context);
        let terms = terms.and_then(|terms| match Some(terms.qp_type) == own {
            true => Ok(terms),
            false => Err(RejectReason::INVALID_TRANSPORT_TYPE),
        });
        match terms {
            Ok(Terms { primary, alternate, agreed, .. }) => {
                self.agreed = Some(agreed.within(&self.param));
                self.primary = primary;
                self.alternate = alternate;
                self.asked_for_alternate = request.req.alternate.is_present();
                self.next = Some(Next::Reply);
                self.step(common, context);
            }
            Err(reason) => {
                common.count(Tally::Refused);
                let private_data = Vec::new();
                self.tell(ConnEvent::Rejected { reason: reason.0, private_data });
                if let Some(conn) = self.conn {
                    let data = PrivateData::default();
                    let _ = common.cm.reject(context.now, conn, reason, &[], data);
                }
            }
        }
    }

    /// Accepts a request with a QP.
    pub(crate) fn accept(
        &mut self,
        qp: ConnQp,
        param: ConnParam,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        if self.stage(&common.cm) != Stage::Requested {
            return Err(ConnError::WrongState.into());
        }
        if !self.space.connects() {
            return self.accept_datagrams(qp, &param, common, context);
        }
        check_param(&param, REP_DATA)?;
        let own = common.own_qp(qp, self.space, param.rd_qp, context)?;
        if own.is_driven && Some(own.qp_type) != self.asked_for {
            return Err(ConnError::WrongService(own.qpn).into());
        }
        self.leave_backlog(common);
        self.agreed = self.agreed.map(|agreed| agreed.within(&param));
        self.param = param;
        self.qp = Some(own);
        self.next = Some(Next::Reply);
        self.hold(common, context);
        self.step(common, context);
        Ok(())
    }

    /// Takes the QP to INIT and RTR and sends the REP. Called when the neighbours are resolved.
    pub(super) fn reply(
        &mut self,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let psn = common.cm.starting_psn();
        let parts = (self.qp, self.agreed, self.conn);
        let (Some(mut own), Some(mut agreed), Some(conn)) = parts else {
            return Err(ConnError::WrongState.into());
        };
        if own.is_driven {
            own.psn = psn;
        }
        agreed.rq_psn = own.psn;
        //= check A28 — accepted only if the QP uses selective repeat, or is still to go to RTR
        agreed.selective_repeat =
            agreed.selective_repeat && (own.is_driven || context.uses_selective_repeat(own.qpn));
        (self.qp, self.agreed) = (Some(own), Some(agreed));
        if own.is_driven {
            let init = qp::to_init(own.qp_type, self.primary.port, &self.param);
            context.modify_qp(own.qpn, &init)?;
            self.to_rtr(&own, &agreed, context)?;
        } else {
            // The application modifies the QP and does not get the alternate path.
            self.alternate = None;
        }
        let param = &self.param;
        let (local_qpn, rd) = own.told();
        let accept = AcceptParams {
            local_qpn,
            rd,
            starting_psn: own.psn,
            responder_resources: agreed.max_dest_rd_atomic,
            initiator_depth: agreed.max_rd_atomic,
            target_ack_delay: CmTimeout::from_code(0),
            failover: match (self.alternate, self.asked_for_alternate) {
                (None, true) => Failover::Rejected,
                _ => Failover::Accepted,
            },
            alternate_port: self.alternate.map_or(0, |way| way.port),
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count,
            srq: own.has_srq,
            selective_repeat: agreed.selective_repeat,
            private_data: private_data(&param.private_data)?,
        };
        Ok(common.cm.accept(context.now, conn, &accept).map_err(ConnError::Protocol)?)
    }

    /// Handles an RTU, or a data packet that arrives in its place: takes the QP to RTS.
    //= check J17 — until then it is in RTR
    pub(super) fn established(
        &mut self,
        private_data: Vec<u8>,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        let (Some(own), Some(agreed)) = (self.qp, self.agreed) else { return };
        if self.is_over {
            return;
        }
        self.was_established = true;
        let is_armed = self.alternate_path.is_some();
        let change = qp::to_rts(own.qp_type, &agreed, is_armed);
        if own.is_driven
            && let Err(error) = context.modify_qp(own.qpn, &change)
        {
            return self.fail(error.into(), common, context);
        }
        self.keep_alive(context);
        self.hand_over();
        common.count(Tally::Passive);
        self.tell(ConnEvent::Established { agreed, private_data });
    }

    /// Turns on the keepalive of a QP that the application took to RTR before it accepted the
    /// request. Any other QP gets its keepalive with the change to RTR.
    //= check J15 — the keepalive also covers a QP that the application modifies
    fn keep_alive(&self, context: &mut ServiceContext<'_>) {
        let idle = self.keepalive_ms(context);
        let Some(own) = self.qp.filter(|own| own.qp_type == QpType::Rc && !own.is_driven) else {
            return;
        };
        if idle > 0 {
            let change = QpChange { keepalive_ms: Some(idle), ..QpChange::default() };
            // This has no effect if the application has not taken the QP to RTS yet.
            let _ = context.modify_qp(own.qpn, &change);
        }
    }

    /// Establishes the connection when a packet has arrived at the QP before the RTU.
    //= check H11 — a packet that arrives before the RTU establishes the connection
    //= check J3 — a lost RTU delays no connection
    pub(super) fn communication_established(&self, common: &mut Common) {
        if let (Stage::Replied, Some(conn)) = (self.stage(&common.cm), self.conn)
            && common.cm.communication_established(conn).is_ok()
        {
            common.count(Tally::CommEst);
        }
    }
}
