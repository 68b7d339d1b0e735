//! Active side: connects, or looks up a UD QP.
//!
//! Read first: IBA 12.9; Annex A11.

use std::net::SocketAddr;
use std::sync::Arc;

use uroce_cm::{ConnectParams, Path, RdEnd};
use uroce_transport::{MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC, QpType};
use uroce_wire::cm::{CmTimeout, Failover, IpHeader, PrivateData, Rep, TransportService};
use uroce_wire::{PathMtu, Pkey};

use super::common::{Common, Tally};
use super::{Service, private_data, service_id};
use crate::call::RequestError;
use crate::rdma_cm::connection::{Connection, Next, OwnQp};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::param::REQ_DATA;
use crate::rdma_cm::source::{Way, choose};
use crate::rdma_cm::{
    Agreed, CmId, CmSink, ConnError, ConnEvent, ConnParam, ConnectSpec, PeerRdQp, qp,
};

/// Time in which either side answers a message before the message is repeated: 268 ms. A Linux peer
/// that needs more time sends an MRA.
pub(super) const RESPONSE_TIMEOUT: CmTimeout = CmTimeout::from_code(16);
/// Largest number of repetitions of a message that is not answered.
pub(super) const CM_RETRIES: u8 = 15;
/// Largest number of bytes of an application's private data in a SIDR_REQ.
const SIDR_DATA: usize = 216 - IpHeader::LEN;

impl Service {
    /// Connects a QP, or looks up a UD QP.
    pub(crate) fn connect(
        &mut self,
        channel: Arc<dyn CmSink>,
        spec: ConnectSpec,
        context: &mut ServiceContext<'_>,
    ) -> Result<CmId, RequestError> {
        let max = if spec.space.connects() { REQ_DATA } else { SIDR_DATA };
        check_param(&spec.param, max)?;
        let primary = choose(context.ports, &spec.path)?;
        let alternate = spec.alternate.map(|path| choose(context.ports, &path)).transpose()?;
        let path_mtu = path_mtu(&spec.param, &primary, alternate.as_ref(), context)?;
        let own_qp = |qp| self.common.own_qp(qp, spec.space, spec.param.rd_qp, context);
        let qp = spec.qp.map(own_qp).transpose()?;
        if qp.is_none() && spec.space.connects() {
            return Err(ConnError::NoQp.into());
        }
        // The other end of XRC connects.
        if let Some(target) = qp.filter(|own| own.qp_type == QpType::XrcRecv) {
            return Err(ConnError::WrongService(target.qpn).into());
        }
        let source_port = match spec.source_port {
            0 => self.common.ports.free(spec.space).ok_or(ConnError::NoPortLeft)?,
            port => port,
        };
        let id = self.new_id()?;
        let mut connection = Connection {
            local: SocketAddr::new(primary.addresses().0, source_port),
            peer: SocketAddr::new(primary.addresses().1, spec.port),
            qp,
            param: spec.param,
            alternate,
            path_mtu,
            next: Some(Next::Ask),
            ..Connection::new(id, channel, spec.space, primary)
        };
        tracing::debug!(id = id.0, peer = %connection.peer, ?qp, "connect");
        if spec.space.connects() {
            connection.hold(&mut self.common, context);
        }
        connection.step(&mut self.common, context);
        connection.log_transition(&self.common);
        self.connections.insert(id, connection);
        Ok(id)
    }
}

impl Connection {
    /// Sends the REQ or SIDR_REQ. Called when the neighbours of all paths are resolved.
    pub(super) fn ask(
        &mut self,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        match self.space.connects() {
            true => self.send_req(common, context),
            false => self.send_sidr_req(common, context),
        }
    }

    fn send_req(
        &mut self,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let psn = common.cm.starting_psn();
        let own = self.qp.as_mut().ok_or(ConnError::NoQp)?;
        if own.is_driven {
            own.psn = psn;
            context
                .modify_qp(own.qpn, &qp::to_init(own.qp_type, self.primary.port, &self.param))?;
        }
        let params = ConnectParams {
            selective_repeat: self.offers_selective_repeat(context),
            ..self.connect_params()?
        };
        let conn = common.cm.connect(context.now, &params).map_err(ConnError::Protocol)?;
        self.conn = Some(conn);
        common.by_conn.insert(conn, self.id);
        Ok(())
    }

    //= check A28 — offered for an RC QP that can use it, unless the private data is too long
    fn offers_selective_repeat(&self, context: &mut ServiceContext<'_>) -> bool {
        let room = self.param.leaves_room(REQ_DATA) && context.agrees_on_selective_repeat();
        let own = self.qp.filter(|own| room && own.qp_type == QpType::Rc);
        own.is_some_and(|own| own.is_driven || context.awaits_rtr(own.qpn))
    }

    /// Handles a REP.
    pub(super) fn accepted(
        &mut self,
        rep: &Rep,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(own) = self.qp else { return };
        let param = &self.param;
        let rd = (own.qp_type == QpType::Eec).then(|| RdEnd::of_rep(rep));
        let qpn = rep.qpn(own.qp_type == QpType::XrcSend);
        self.agreed = Some(Agreed {
            peer_qpn: rd.map_or(qpn, |end| end.eecn),
            peer_rd_qp: PeerRdQp::named(qpn, rd),
            rq_psn: own.psn,
            sq_psn: rep.starting_psn,
            path_mtu: self.path_mtu,
            max_dest_rd_atomic: param.responder_resources.min(rep.initiator_depth),
            max_rd_atomic: param.initiator_depth.min(rep.responder_resources),
            retry_cnt: param.retry_count,
            rnr_retry: rep.rnr_retry_count,
            timeout: param.ack_timeout,
            port: self.primary.port,
            vector: self.primary.vector,
            flow_control: rep.end_to_end_flow_control,
            peer_has_srq: rep.srq,
            selective_repeat: self.conn.is_some_and(|conn| common.cm.selective_repeat(conn)),
        });
        self.private_data = rep.private_data.0.to_vec();
        if rep.failover != Failover::Accepted {
            self.alternate = None;
        }
        self.next = Some(Next::Join);
        self.step(common, context);
    }

    /// Takes the QP to RTR and RTS and sends the RTU. Called after a REP, when the neighbours are
    /// resolved.
    pub(super) fn join(
        &mut self,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let (Some(own), Some(agreed)) = (self.qp, self.agreed) else {
            return Err(ConnError::WrongState.into());
        };
        if !own.is_driven {
            let private_data = std::mem::take(&mut self.private_data);
            self.await_application(context.now, common);
            self.tell(ConnEvent::ConnectResponse { agreed, private_data });
            return Ok(());
        }
        //= check J17 — the REP has come
        self.to_rtr(&own, &agreed, context)?;
        let is_armed = self.alternate_path.is_some();
        context.modify_qp(own.qpn, &qp::to_rts(own.qp_type, &agreed, is_armed))?;
        self.ready(common)?;
        self.hand_over();
        let private_data = std::mem::take(&mut self.private_data);
        self.tell(ConnEvent::Established { agreed, private_data });
        Ok(())
    }

    /// Sends the RTU. Called when the QP can send.
    pub(super) fn ready(&mut self, common: &mut Common) -> Result<(), RequestError> {
        let conn = self.conn.ok_or(ConnError::WrongState)?;
        let data = PrivateData::default();
        common.cm.ready(conn, data).map_err(ConnError::Protocol)?;
        self.was_established = true;
        common.count(Tally::Active);
        Ok(())
    }

    /// Takes the QP from INIT to RTR, with the resolved paths. Called if the service modifies the
    /// QP.
    pub(super) fn to_rtr(
        &self,
        own: &OwnQp,
        agreed: &Agreed,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let path = self.primary_path.ok_or(ConnError::WrongState)?;
        let idle = self.keepalive_ms(context);
        let change = qp::to_rtr(own.qp_type, agreed, &self.param, path, self.alternate_path, idle);
        Ok(context.modify_qp(own.qpn, &change)?)
    }

    /// Returns the idle time of the connection's keepalive in milliseconds; 0 means none.
    pub(super) fn keepalive_ms(&self, context: &ServiceContext<'_>) -> u32 {
        self.param.keepalive_ms.unwrap_or_else(|| context.keepalive_ms(self.primary.port))
    }

    /// Builds the private data of a REQ or SIDR_REQ: the address header, then the application's
    /// bytes.
    pub(super) fn request_data<const MAX: usize>(&self) -> Result<PrivateData<MAX>, ConnError> {
        let header =
            IpHeader { src_port: self.local.port(), src: self.local.ip(), dst: self.peer.ip() };
        let mut bytes = [0; IpHeader::LEN];
        header.emit(&mut bytes);
        private_data(&[&bytes[..], &self.param.private_data].concat())
    }

    fn connect_params(&self) -> Result<ConnectParams, RequestError> {
        let own = self.qp.ok_or(ConnError::NoQp)?;
        let param = &self.param;
        let (local_qpn, rd) = own.told();
        Ok(ConnectParams {
            service_id: service_id(self.space, self.peer.port()),
            local_qpn,
            rd,
            rdc_exists: false,
            starting_psn: own.psn,
            transport_service: match own.qp_type {
                QpType::Uc => TransportService::Uc,
                QpType::XrcSend => TransportService::Extended,
                QpType::Eec => TransportService::Rd,
                _ => TransportService::Rc,
            },
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            pkey: Pkey::DEFAULT,
            path_mtu: self.path_mtu,
            srq: own.has_srq,
            flow_control: param.flow_control,
            primary: cm_path(&self.primary, param.ack_timeout),
            alternate: self.alternate.as_ref().map(|way| cm_path(way, param.ack_timeout)),
            peer_to_peer: param.peer_to_peer,
            remote_cm_response_timeout: RESPONSE_TIMEOUT,
            local_cm_response_timeout: RESPONSE_TIMEOUT,
            max_cm_retries: CM_RETRIES,
            selective_repeat: false,
            private_data: self.request_data()?,
        })
    }
}

/// Converts a path for `uroce-cm`. A hop limit below 2 becomes 64.
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
        //= check S4 — the rate of this path, of a REQ or of a LAP
        packet_rate: vector.static_rate.code(),
        local_ack_timeout: CmTimeout::from_code(ack_timeout),
    }
}

/// Checks that all values are in range and that the private data has at most `max` bytes.
pub(super) fn check_param(param: &ConnParam, max: usize) -> Result<(), ConnError> {
    let len = param.private_data.len();
    if len > max {
        return Err(ConnError::PrivateData { len, max });
    }
    let counts = [param.retry_count, param.rnr_retry_count];
    let own_timeout = param.own_ack_timeout.unwrap_or_default();
    let codes = [param.min_rnr_timer, param.ack_timeout, own_timeout];
    let fits = param.responder_resources <= MAX_RD_ATOMIC
        && param.initiator_depth <= MAX_INIT_RD_ATOMIC
        && counts.iter().all(|count| *count <= 7)
        && codes.iter().all(|code| *code <= 31);
    if fits { Ok(()) } else { Err(ConnError::OutOfRange) }
}

/// Returns the path MTU for the REQ, which the ports of both paths must support.
fn path_mtu(
    param: &ConnParam,
    primary: &Way,
    alternate: Option<&Way>,
    context: &ServiceContext<'_>,
) -> Result<PathMtu, ConnError> {
    let mut max = context.path_mtu(primary.port).ok_or(ConnError::OutOfRange)?;
    if let Some(way) = alternate {
        let other = context.path_mtu(way.port).ok_or(ConnError::OutOfRange)?;
        max = if other.bytes() < max.bytes() { other } else { max };
    }
    let asked = param.path_mtu.unwrap_or(max);
    if asked.bytes() <= max.bytes() { Ok(asked) } else { Err(ConnError::OutOfRange) }
}
