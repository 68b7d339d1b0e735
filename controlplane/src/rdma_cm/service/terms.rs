//! Conversion of a peer's parameters to the local view.
//!
//! Not here: the application's decision.

use std::net::IpAddr;

use uroce_cm::{MadAddr, RdEnd, Request};
use uroce_transport::{QpType, StaticRate};
use uroce_wire::PathMtu;
use uroce_wire::cm::{CmPath, RejectReason, TransportService};

use crate::path::AddressVector;
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::param::REP_DATA;
use crate::rdma_cm::source::{Way, find_own};
use crate::rdma_cm::{Agreed, ConnParam, PeerRdQp};

/// Parameters of a REQ as this side's QP needs them.
pub(super) struct Terms {
    pub(super) qp_type: QpType,
    pub(super) primary: Way,
    pub(super) alternate: Option<Way>,
    /// Parameters before this side's limits are applied.
    pub(super) agreed: Agreed,
}

/// Converts the parameters of a REQ, or returns the reason to reject it.
pub(super) fn terms(
    request: &Request,
    context: &ServiceContext<'_>,
) -> Result<Terms, RejectReason> {
    let (req, port) = (&request.req, request.addr.port);
    let qp_type = match req.transport_service {
        TransportService::Rc => QpType::Rc,
        TransportService::Uc => QpType::Uc,
        //= check X10 — the peer has the initiator, so this side's QP is the target
        TransportService::Extended if req.is_xrc() => QpType::XrcRecv,
        //= check R45 — another RD QP for EECs that are connected already is not asked for
        TransportService::Rd if req.rdc_exists => return Err(RejectReason::UNSUPPORTED),
        TransportService::Rd => QpType::Eec,
        _ => return Err(RejectReason::INVALID_TRANSPORT_TYPE),
    };
    let primary = way_of_peer(&req.primary, port, context).ok_or(RejectReason::INVALID_GID)?;
    let max = context.path_mtu(primary.port).ok_or(RejectReason::INVALID_PATH_MTU)?;
    let path_mtu = req.path_mtu().filter(|asked| asked.bytes() <= max.bytes());
    let path_mtu = path_mtu.ok_or(RejectReason::INVALID_PATH_MTU)?;
    let alternate = req.alternate.is_present().then_some(&req.alternate);
    let alternate = alternate.and_then(|path| way_of_peer(path, port, context));
    // The QP has one path MTU: a port that does not support it cannot be the alternate.
    let carries = |max: PathMtu| path_mtu.bytes() <= max.bytes();
    let alternate = alternate.filter(|way| context.path_mtu(way.port).is_some_and(carries));
    let rd = RdEnd::of_req(req);
    let agreed = Agreed {
        peer_qpn: rd.map_or(req.local_qpn, |end| end.eecn),
        peer_rd_qp: PeerRdQp::named(req.local_qpn, rd),
        rq_psn: uroce_wire::Psn::default(),
        sq_psn: req.starting_psn,
        path_mtu,
        max_dest_rd_atomic: req.initiator_depth,
        max_rd_atomic: req.responder_resources,
        retry_cnt: req.retry_count,
        rnr_retry: req.rnr_retry_count,
        timeout: req.primary.local_ack_timeout.code(),
        port: primary.port,
        vector: primary.vector,
        flow_control: req.end_to_end_flow_control,
        peer_has_srq: req.srq,
        selective_repeat: request.selective_repeat
            && qp_type == QpType::Rc
            && context.agrees_on_selective_repeat(),
    };
    Ok(Terms { qp_type, primary, alternate, agreed })
}

impl Agreed {
    /// Applies this side's parameters to those of a request: limits READs and ATOMICs, replaces the
    /// ACK timeout if this side has its own, and does without selective repeat if the private data
    /// leaves no room to accept it.
    pub fn within(self, param: &ConnParam) -> Agreed {
        Agreed {
            max_dest_rd_atomic: self.max_dest_rd_atomic.min(param.responder_resources),
            max_rd_atomic: self.max_rd_atomic.min(param.initiator_depth),
            timeout: param.own_ack_timeout.unwrap_or(self.timeout),
            selective_repeat: self.selective_repeat && param.leaves_room(REP_DATA),
            ..self
        }
    }
}

/// Converts a path of a peer's message, which arrived on `port`, to the local view; `None` if it
/// does not lead to a local address. Values without meaning on RoCE are not refused: only the lower
/// three bits of a service level count, as in an Ethernet priority, and an unknown rate code means
/// no limit.
pub(super) fn way_of_peer(path: &CmPath, port: u8, context: &ServiceContext<'_>) -> Option<Way> {
    const SERVICE_LEVEL: u8 = 7;
    let source: IpAddr = path.remote_gid.to_ip();
    let (port, sgid_index) = find_own(&context.ports.neighbours, source, port)?;
    let vector = AddressVector {
        sgid_index,
        dgid: path.local_gid,
        traffic_class: path.traffic_class,
        flow_label: path.flow_label,
        udp_source_port: 0,
        hop_limit: path.hop_limit,
        service_level: path.sl & SERVICE_LEVEL,
        //= check S4 — the peer's rate becomes that of the own path
        static_rate: StaticRate::from_code(path.packet_rate).unwrap_or_default(),
    };
    Some(Way { port, source: path.remote_gid, vector })
}

/// Returns the path back to the source of a MAD; `None` if the MAD's destination is not a local
/// address any more.
pub(super) fn way_back(from: &MadAddr, context: &ServiceContext<'_>) -> Option<Way> {
    let (port, sgid_index) = find_own(&context.ports.neighbours, from.dst.to_ip(), from.port)?;
    let vector = AddressVector { sgid_index, ..AddressVector::to(from.src) };
    Some(Way { port, source: from.dst, vector })
}
