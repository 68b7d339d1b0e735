//! Active side: connects, or looks up a UD QP.
//!
//! Read first: IBA 12.9; Annex A11.

use std::net::SocketAddr;
use std::sync::Arc;

use uroce_cm::{ConnectParams, Path};
use uroce_transport::{MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC, QpType};
use uroce_wire::cm::{CmTimeout, Failover, IpHeader, PrivateData, Rep, TransportService};
use uroce_wire::{PathMtu, Pkey};

use super::{Driver, Tally, private_data, service_id};
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::connection::{Connection, Next, OwnQp, Stage};
use crate::connect::source::{Way, choose};
use crate::connect::{
    Agreed, CmError, CmEventKind, CmId, CmSink, ConnParam, ConnectSpec, PortSpace, qp,
};

/// Time in which either side answers a message before it is repeated: 268 ms. A Linux peer that
/// needs more time sends an MRA.
pub(super) const RESPONSE_TIMEOUT: CmTimeout = CmTimeout::from_code(16);
/// Repetitions of a message.
pub(super) const CM_RETRIES: u8 = 15;
/// Most bytes of an application's private data in a REQ, and in a SIDR_REQ below.
const REQ_DATA: usize = 92 - IpHeader::LEN;
const SIDR_DATA: usize = 216 - IpHeader::LEN;

impl Driver {
    pub(crate) fn connect(
        &mut self,
        channel: Arc<dyn CmSink>,
        spec: ConnectSpec,
        around: &mut Around<'_>,
    ) -> Result<CmId, RequestError> {
        let max = if spec.space == PortSpace::Tcp { REQ_DATA } else { SIDR_DATA };
        check_param(&spec.param, max)?;
        let primary = choose(around.ports, &spec.path)?;
        let alternate = spec.alternate.map(|path| choose(around.ports, &path)).transpose()?;
        let path_mtu = path_mtu(&spec.param, &primary, alternate.as_ref(), around)?;
        let qp = spec.qp.map(|qp| self.own_qp(qp, spec.space, around)).transpose()?;
        if qp.is_none() && spec.space == PortSpace::Tcp {
            return Err(CmError::NoQp.into());
        }
        let source_port = match spec.source_port {
            0 => self.ports.free(spec.space).ok_or(CmError::NoPortLeft)?,
            port => port,
        };
        let id = self.new_id()?;
        let connection = Connection {
            local: SocketAddr::new(primary.addresses().0, source_port),
            peer: SocketAddr::new(primary.addresses().1, spec.port),
            qp,
            param: spec.param,
            alternate,
            path_mtu,
            ..Connection::new(channel, spec.space, Stage::Resolving(Next::Ask), primary)
        };
        self.connections.insert(id, connection);
        if spec.space == PortSpace::Tcp {
            self.hold(id, qp, around);
        }
        self.step(id, around);
        Ok(id)
    }

    /// Sends the REQ or SIDR_REQ. Called when the neighbours of all paths are resolved.
    pub(super) fn ask(&mut self, id: CmId, around: &mut Around<'_>) {
        let result = match self.connections.get(&id).map(|connection| connection.space) {
            Some(PortSpace::Tcp) => self.send_req(id, around),
            Some(PortSpace::Udp) => self.send_sidr_req(id, around),
            None => return,
        };
        if let Err(error) = result {
            self.fail(id, error, around);
        }
    }

    fn send_req(&mut self, id: CmId, around: &mut Around<'_>) -> Result<(), RequestError> {
        let psn = self.cm.starting_psn();
        let connection = self.connections.get_mut(&id).ok_or(CmError::UnknownId(id))?;
        let own = connection.qp.as_mut().ok_or(CmError::NoQp)?;
        if own.is_driven {
            own.psn = psn;
            around.modify_qp(own.qpn, &qp::to_init(connection.primary.port, &connection.param))?;
        }
        let params = connect_params(connection)?;
        let conn = self.cm.connect(around.now, &params).map_err(CmError::Protocol)?;
        connection.conn = Some(conn);
        connection.stage = Stage::Asked;
        self.by_conn.insert(conn, id);
        Ok(())
    }

    /// Handles a REP.
    pub(super) fn accepted(&mut self, id: CmId, rep: &Rep, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(own) = connection.qp else { return };
        let param = &connection.param;
        connection.agreed = Some(Agreed {
            peer_qpn: rep.local_qpn,
            rq_psn: own.psn,
            sq_psn: rep.starting_psn,
            path_mtu: connection.path_mtu,
            max_dest_rd_atomic: param.responder_resources.min(rep.initiator_depth),
            max_rd_atomic: param.initiator_depth.min(rep.responder_resources),
            retry_cnt: param.retry_count,
            rnr_retry: rep.rnr_retry_count,
            timeout: param.ack_timeout,
            port: connection.primary.port,
            vector: connection.primary.vector,
            flow_control: rep.end_to_end_flow_control,
            peer_has_srq: rep.srq,
        });
        connection.private_data = rep.private_data.0.to_vec();
        if rep.failover != Failover::Accepted {
            connection.alternate = None;
        }
        connection.stage = Stage::Resolving(Next::Join);
        self.step(id, around);
    }

    /// Takes the QP to RTR and RTS and sends the RTU. Called after a REP, when the neighbours are
    /// resolved.
    pub(super) fn join(&mut self, id: CmId, around: &mut Around<'_>) {
        if let Err(error) = self.try_join(id, around) {
            self.fail(id, error, around);
        }
    }

    fn try_join(&mut self, id: CmId, around: &mut Around<'_>) -> Result<(), RequestError> {
        let connection = self.connections.get_mut(&id).ok_or(CmError::UnknownId(id))?;
        let (Some(own), Some(agreed)) = (connection.qp, connection.agreed) else {
            return Err(CmError::WrongState.into());
        };
        if !own.is_driven {
            connection.stage = Stage::Answered;
            let private_data = std::mem::take(&mut connection.private_data);
            self.await_application(around.now, id);
            self.tell(id, CmEventKind::ConnectResponse { agreed, private_data });
            return Ok(());
        }
        connection.to_rtr(&own, &agreed, around)?;
        let is_armed = connection.alternate_path.is_some();
        around.modify_qp(own.qpn, &qp::to_rts(own.qp_type, &agreed, is_armed))?;
        self.ready(id, around)?;
        let connection = self.connection(id)?;
        connection.hand_over();
        let private_data = std::mem::take(&mut connection.private_data);
        self.tell(id, CmEventKind::Established { agreed, private_data });
        Ok(())
    }

    /// Sends the RTU. Called when the QP can send.
    pub(super) fn ready(&mut self, id: CmId, around: &mut Around<'_>) -> Result<(), RequestError> {
        let connection = self.connections.get_mut(&id).ok_or(CmError::UnknownId(id))?;
        let conn = connection.conn.ok_or(CmError::WrongState)?;
        self.cm.ready(around.now, conn, PrivateData::default()).map_err(CmError::Protocol)?;
        connection.stage = Stage::Established;
        self.count(Tally::Active);
        Ok(())
    }
}

impl Connection {
    /// Takes a QP that the driver modifies from INIT to RTR, with the resolved paths.
    pub(super) fn to_rtr(
        &self,
        own: &OwnQp,
        agreed: &Agreed,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let path = self.primary_path.ok_or(CmError::WrongState)?;
        let change = qp::to_rtr(own.qp_type, agreed, &self.param, path, self.alternate_path);
        Ok(around.modify_qp(own.qpn, &change)?)
    }

    /// Builds the private data of a REQ or SIDR_REQ: the address header, then the application's
    /// bytes.
    pub(super) fn request_data<const MAX: usize>(&self) -> Result<PrivateData<MAX>, CmError> {
        let header =
            IpHeader { src_port: self.local.port(), src: self.local.ip(), dst: self.peer.ip() };
        let mut bytes = [0; IpHeader::LEN];
        header.emit(&mut bytes);
        private_data(&[&bytes[..], &self.param.private_data].concat())
    }
}

fn connect_params(connection: &Connection) -> Result<ConnectParams, RequestError> {
    let own = connection.qp.ok_or(CmError::NoQp)?;
    let param = &connection.param;
    Ok(ConnectParams {
        service_id: service_id(connection.space, connection.peer.port()),
        local_qpn: own.qpn,
        starting_psn: own.psn,
        transport_service: match own.qp_type {
            QpType::Uc => TransportService::Uc,
            _ => TransportService::Rc,
        },
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        retry_count: param.retry_count,
        rnr_retry_count: param.rnr_retry_count,
        pkey: Pkey::DEFAULT,
        path_mtu: connection.path_mtu,
        srq: own.has_srq,
        flow_control: param.flow_control,
        primary: cm_path(&connection.primary, param.ack_timeout),
        alternate: connection.alternate.as_ref().map(|way| cm_path(way, param.ack_timeout)),
        peer_to_peer: param.peer_to_peer,
        remote_cm_response_timeout: RESPONSE_TIMEOUT,
        local_cm_response_timeout: RESPONSE_TIMEOUT,
        max_cm_retries: CM_RETRIES,
        private_data: connection.request_data()?,
    })
}

/// Converts a path for `uroce-cm`.
pub(super) fn cm_path(way: &Way, ack_timeout: u8) -> Path {
    let vector = &way.vector;
    Path {
        port: way.port,
        local: way.source,
        remote: vector.dgid,
        flow_label: vector.flow_label,
        traffic_class: vector.traffic_class,
        hop_limit: if vector.hop_limit > 1 { vector.hop_limit } else { 64 },
        sl: vector.service_level,
        packet_rate: vector.static_rate.code(),
        local_ack_timeout: CmTimeout::from_code(ack_timeout),
    }
}

/// Checks that all values are in range and that the private data has at most `max` bytes.
pub(super) fn check_param(param: &ConnParam, max: usize) -> Result<(), CmError> {
    let len = param.private_data.len();
    if len > max {
        return Err(CmError::PrivateData { len, max });
    }
    let counts = [param.retry_count, param.rnr_retry_count];
    let own_timeout = param.own_ack_timeout.unwrap_or_default();
    let codes = [param.min_rnr_timer, param.ack_timeout, own_timeout];
    let fits = param.responder_resources <= MAX_RD_ATOMIC
        && param.initiator_depth <= MAX_INIT_RD_ATOMIC
        && counts.iter().all(|count| *count <= 7)
        && codes.iter().all(|code| *code <= 31);
    if fits { Ok(()) } else { Err(CmError::OutOfRange) }
}

/// Returns the path MTU for the REQ, which the ports of both paths must support.
fn path_mtu(
    param: &ConnParam,
    primary: &Way,
    alternate: Option<&Way>,
    around: &Around<'_>,
) -> Result<PathMtu, CmError> {
    let mut max = around.path_mtu(primary.port).ok_or(CmError::OutOfRange)?;
    if let Some(way) = alternate {
        let other = around.path_mtu(way.port).ok_or(CmError::OutOfRange)?;
        max = if other.bytes() < max.bytes() { other } else { max };
    }
    let asked = param.path_mtu.unwrap_or(max);
    if asked.bytes() <= max.bytes() { Ok(asked) } else { Err(CmError::OutOfRange) }
}
