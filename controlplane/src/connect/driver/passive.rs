//! Passive side: receives requests and accepts them.
//!
//! Read first: IBA 12.9; Annex A11.

use std::net::SocketAddr;

use uroce_cm::{AcceptParams, ConnId, Request};
use uroce_transport::Instant;
use uroce_wire::cm::{CmTimeout, Failover, IpHeader, PrivateData, RejectReason, ServiceId};

use super::active::check_param;
use super::terms::{Terms, terms};
use super::{Driver, Tally, private_data};
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::connection::{Connection, Next, Stage};
use crate::connect::source::Way;
use crate::connect::{
    CmError, CmEventKind, CmId, ConnParam, ConnQp, ConnectRequest, PortSpace, qp,
};

/// Most bytes of an application's private data in a REP.
const REP_DATA: usize = 196;

/// Source and destination of a request, and its listener.
pub(super) struct Caller {
    pub(super) listener: CmId,
    pub(super) space: PortSpace,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
}

impl Driver {
    /// Handles a REQ for a service ID with a listener.
    pub(super) fn request(&mut self, conn: ConnId, request: Request, around: &mut Around<'_>) {
        let result = self.admit(conn, &request, around);
        if let Err(reason) = result {
            self.count(match reason {
                RejectReason::NO_RESOURCES => Tally::BacklogFull,
                _ => Tally::Refused,
            });
            let _ = self.cm.reject(around.now, conn, reason, &[], PrivateData::default());
        }
    }

    //= check J5 — the reason says what is wrong with the request, or that the backlog is full
    fn admit(
        &mut self,
        conn: ConnId,
        request: &Request,
        around: &mut Around<'_>,
    ) -> Result<(), RejectReason> {
        let req = &request.req;
        let caller = self.caller(request.service_id, &req.private_data.0)?;
        let is_theirs = req.primary.local_gid.to_ip() == caller.peer.ip()
            && req.primary.remote_gid.to_ip() == caller.local.ip();
        let Terms { qp_type, primary, alternate, agreed } = terms(req, request.addr.port, around)?;
        if !is_theirs {
            return Err(RejectReason::INVALID_GID);
        }
        let connection = Connection {
            conn: Some(conn),
            agreed: Some(agreed),
            alternate,
            asked_for_alternate: req.alternate.is_present(),
            ..self.incoming(&caller, primary)?
        };
        let event = CmEventKind::ConnectRequest(Box::new(ConnectRequest {
            listener: caller.listener,
            space: caller.space,
            local: caller.local,
            peer: caller.peer,
            peer_qpn: req.local_qpn,
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
        }));
        self.present(conn, connection, event, around.now)
    }

    /// Handles a REQ that crosses ours in peer-to-peer mode and takes precedence. It is accepted
    /// with the parameters of our own request.
    pub(super) fn yielded(
        &mut self,
        id: CmId,
        conn: ConnId,
        request: &Request,
        around: &mut Around<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let own = connection.qp.map(|own| own.qp_type);
        let terms = terms(&request.req, request.addr.port, around);
        let terms = terms.and_then(|terms| match Some(terms.qp_type) == own {
            true => Ok(terms),
            false => Err(RejectReason::INVALID_TRANSPORT_TYPE),
        });
        match terms {
            Ok(Terms { primary, alternate, agreed, .. }) => {
                connection.agreed = Some(agreed.within(&connection.param));
                connection.primary = primary;
                connection.alternate = alternate;
                connection.asked_for_alternate = request.req.alternate.is_present();
                connection.stage = Stage::Resolving(Next::Reply);
                self.step(id, around);
            }
            Err(reason) => {
                self.count(Tally::Refused);
                let private_data = Vec::new();
                self.tell(id, CmEventKind::Rejected { reason: reason.0, private_data });
                let _ = self.cm.reject(around.now, conn, reason, &[], PrivateData::default());
            }
        }
    }

    /// Returns source, destination and listener of a request, by the header in its private data.
    pub(super) fn caller(&self, service: ServiceId, data: &[u8]) -> Result<Caller, RejectReason> {
        let (space, port) = match (service.tcp_port(), service.udp_port()) {
            (Some(port), _) => (PortSpace::Tcp, port),
            (_, Some(port)) => (PortSpace::Udp, port),
            _ => return Err(RejectReason::INVALID_SERVICE_ID),
        };
        let header = IpHeader::parse(data).map_err(|_| RejectReason::UNSUPPORTED)?;
        let local = SocketAddr::new(header.dst, port);
        let listener = self.ports.listener(space, local).ok_or(RejectReason::INVALID_SERVICE_ID)?;
        Ok(Caller { listener, space, local, peer: SocketAddr::new(header.src, header.src_port) })
    }

    /// Creates the connection for a request, if its listener's backlog has room.
    pub(super) fn incoming(
        &self,
        caller: &Caller,
        primary: Way,
    ) -> Result<Connection, RejectReason> {
        let listener = self.listeners.get(&caller.listener);
        let listener = listener.filter(|it| Some(it.waiting) < it.backlog);
        let channel = listener.ok_or(RejectReason::NO_RESOURCES)?.channel.clone();
        Ok(Connection {
            listener: Some(caller.listener),
            local: caller.local,
            peer: caller.peer,
            ..Connection::new(channel, caller.space, Stage::Requested, primary)
        })
    }

    /// Reports a request to the application.
    pub(super) fn present(
        &mut self,
        conn: ConnId,
        connection: Connection,
        event: CmEventKind,
        now: Instant,
    ) -> Result<(), RejectReason> {
        let id = self.new_id().map_err(|_| RejectReason::NO_RESOURCES)?;
        if let Some(listener) = connection.listener.and_then(|id| self.listeners.get_mut(&id)) {
            listener.waiting += 1;
        }
        self.connections.insert(id, connection);
        self.by_conn.insert(conn, id);
        self.await_application(now, id);
        self.tell(id, event);
        Ok(())
    }

    pub(crate) fn accept(
        &mut self,
        id: CmId,
        qp: ConnQp,
        param: ConnParam,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let connection = self.connection(id)?;
        if connection.stage != Stage::Requested {
            return Err(CmError::WrongState.into());
        }
        if connection.space == PortSpace::Udp {
            return self.accept_datagrams(id, qp, &param, around);
        }
        check_param(&param, REP_DATA)?;
        let own = self.own_qp(qp, PortSpace::Tcp, around)?;
        self.leave_backlog(id);
        let connection = self.connection(id)?;
        connection.agreed = connection.agreed.map(|agreed| agreed.within(&param));
        connection.param = param;
        connection.qp = Some(own);
        connection.stage = Stage::Resolving(Next::Reply);
        self.hold(id, Some(own), around);
        self.step(id, around);
        Ok(())
    }

    /// Takes the QP to INIT and RTR and sends the REP. Called when the neighbours are resolved.
    pub(super) fn reply(&mut self, id: CmId, around: &mut Around<'_>) {
        if let Err(error) = self.try_reply(id, around) {
            self.fail(id, error, around);
        }
    }

    fn try_reply(&mut self, id: CmId, around: &mut Around<'_>) -> Result<(), RequestError> {
        let psn = self.cm.starting_psn();
        let connection = self.connections.get_mut(&id).ok_or(CmError::UnknownId(id))?;
        let parts = (connection.qp, connection.agreed, connection.conn);
        let (Some(mut own), Some(mut agreed), Some(conn)) = parts else {
            return Err(CmError::WrongState.into());
        };
        if own.is_driven {
            own.psn = psn;
        }
        agreed.rq_psn = own.psn;
        (connection.qp, connection.agreed) = (Some(own), Some(agreed));
        if own.is_driven {
            let init = qp::to_init(connection.primary.port, &connection.param);
            around.modify_qp(own.qpn, &init)?;
            connection.to_rtr(&own, &agreed, around)?;
        } else {
            // The application modifies the QP and does not learn the alternate path.
            connection.alternate = None;
        }
        let param = &connection.param;
        let accept = AcceptParams {
            local_qpn: own.qpn,
            starting_psn: own.psn,
            responder_resources: agreed.max_dest_rd_atomic,
            initiator_depth: agreed.max_rd_atomic,
            target_ack_delay: CmTimeout::from_code(0),
            failover: match (connection.alternate, connection.asked_for_alternate) {
                (None, true) => Failover::Rejected,
                _ => Failover::Accepted,
            },
            alternate_port: connection.alternate.map_or(0, |way| way.port),
            flow_control: param.flow_control,
            rnr_retry_count: param.rnr_retry_count,
            srq: own.has_srq,
            private_data: private_data(&param.private_data)?,
        };
        self.cm.accept(around.now, conn, &accept).map_err(CmError::Protocol)?;
        connection.stage = Stage::Replied;
        Ok(())
    }

    /// Handles an RTU, or data in its place: takes the QP to RTS.
    pub(super) fn established(&mut self, id: CmId, data: &[u8], around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let (Some(own), Some(agreed)) = (connection.qp, connection.agreed) else { return };
        if connection.stage != Stage::Replied {
            return;
        }
        connection.stage = Stage::Established;
        let is_armed = connection.alternate_path.is_some();
        let change = qp::to_rts(own.qp_type, &agreed, is_armed);
        if own.is_driven
            && let Err(error) = around.modify_qp(own.qpn, &change)
        {
            return self.fail(id, error.into(), around);
        }
        connection.hand_over();
        self.count(Tally::Passive);
        self.tell(id, CmEventKind::Established { agreed, private_data: data.to_vec() });
    }

    /// Handles a packet that arrived at the QP before the RTU.
    //= check H11 — then the connection is established by it
    //= check J3 — a lost RTU delays no connection
    pub(super) fn communication_established(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get(&id) else { return };
        if let (Stage::Replied, Some(conn)) = (connection.stage, connection.conn)
            && self.cm.communication_established(around.now, conn).is_ok()
        {
            self.count(Tally::CommEst);
        }
    }
}
