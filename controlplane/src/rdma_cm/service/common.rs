//! The parts of the service that every connection uses.

use std::collections::{HashMap, VecDeque};

use uroce_cm::{Cm, CmConfig, CmLimits, ConnId, State};
use uroce_transport::{Instant, QpState, QpType};
use uroce_wire::cm::CaGuid;
use uroce_wire::{Psn, Qpn};

use crate::call::{Count, RequestError};
use crate::rdma_cm::connection::{Listener, OwnQp};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::outbox::Outbox;
use crate::rdma_cm::port_space::PortSpaces;
use crate::rdma_cm::{CmId, ConnError, ConnQp, PeerRdQp, PortSpace};

uroce_transport::counted! {
    /// Counters of the service.
    pub enum Tally {
        Active "cm_active_established" "A connection established that this side began."
        Passive "cm_passive_established" "A connection established that a peer began."
        Resolved "cm_resolved" "A UD QP found by its port."
        Rejected "cm_rejected" "A connection that the peer refused."
        Unreachable "cm_unreachable" "A connection to a peer that did not answer."
        Failed "cm_failed" "A connection that failed for a reason of this side."
        Disconnected "cm_disconnected" "A connection ended."
        Refused "cm_requests_refused" "A peer's request refused for its parameters."
        BacklogFull "cm_backlog_full" "A peer's request refused: its listener's backlog is full."
        AlternateLoaded "cm_alternate_loaded" "An alternate path loaded by LAP, on either side."
        AlternateRefused "cm_alternate_refused" "A peer's alternate path refused."
        CommEst "cm_comm_est" "A connection established by a packet before its RTU."
        Migrated "cm_path_migrated" "A connection moved to the alternate path of its QP."
        NotFound "cm_not_found" "A connection that an index names and that does not exist."
    }
}

/// The parts of the service that every connection uses: protocol, indices, listeners, queues.
#[derive(Debug)]
pub(crate) struct Common {
    pub(super) cm: Cm,
    pub(super) ports: PortSpaces,
    pub(super) listeners: HashMap<CmId, Listener>,
    /// Ids of the connections that `uroce-cm` has.
    pub(super) by_conn: HashMap<ConnId, CmId>,
    /// Ids of the connections that hold a QPN.
    pub(super) by_qpn: HashMap<Qpn, CmId>,
    /// Connections with unresolved neighbours. Some of these connections may be over.
    pub(super) resolving: Vec<CmId>,
    /// Number of connections in `resolving` that have to send a REP and have started to resolve a
    /// neighbour.
    pub(super) replies_asking: usize,
    /// Connections with a message that the application has to answer, each with the time at which
    /// an MRA is due. Some may be answered or over.
    pub(super) unanswered: VecDeque<(Instant, CmId)>,
    pub(super) outbox: Outbox,
    last_id: u64,
    tally: [u64; Tally::ALL.len()],
}

impl Common {
    pub(super) fn new(ca_guid: u64, seed: [u8; 16]) -> Common {
        let ports = PortSpaces::new(u32::from_ne_bytes([seed[0], seed[1], seed[2], seed[3]]));
        let config = CmConfig { ca_guid: CaGuid(ca_guid), limits: CmLimits::default(), seed };
        Common {
            cm: Cm::new(config),
            ports,
            listeners: HashMap::new(),
            by_conn: HashMap::new(),
            by_qpn: HashMap::new(),
            resolving: Vec::new(),
            replies_asking: 0,
            unanswered: VecDeque::new(),
            outbox: Outbox::default(),
            last_id: 0,
            tally: [0; Tally::ALL.len()],
        }
    }

    pub(super) fn count(&mut self, what: Tally) {
        self.tally[what as usize] += 1;
    }

    pub(super) fn counts(&self) -> Vec<Count> {
        let tally =
            |what: &Tally| Count::new(what.name(), what.description(), self.tally[*what as usize]);
        Tally::ALL.iter().map(tally).chain(self.outbox.counts()).collect()
    }

    /// Returns the state of a connection of `uroce-cm`; [`State::Idle`] if there is none.
    pub(in crate::rdma_cm) fn state(&self, conn: Option<ConnId>) -> State {
        conn.and_then(|conn| self.cm.state(conn)).unwrap_or(State::Idle)
    }

    pub(super) fn next_id(&mut self) -> CmId {
        self.last_id += 1;
        CmId(self.last_id)
    }

    /// Checks that a QP can be used for a connection, and an RD QP to be named with it. Returns
    /// what the service records of them.
    pub(super) fn own_qp(
        &self,
        qp: ConnQp,
        space: PortSpace,
        rd_qp: Option<Qpn>,
        context: &mut ServiceContext<'_>,
    ) -> Result<OwnQp, RequestError> {
        let own = match qp {
            ConnQp::Foreign { qpn, qp_type, psn, has_srq, stops_with_peer } => OwnQp {
                qpn,
                qp_type,
                psn,
                has_srq,
                rd_qp: None,
                is_driven: false,
                is_kept: true,
                stops_with_peer,
            },
            ConnQp::Driven(qpn) | ConnQp::Begun(qpn) => {
                let info = context.query_qp(qpn)?;
                let is_fresh = matches!(info.attr.state, QpState::Reset | QpState::Init);
                if !is_fresh && !info.qp_type.is_datagram() {
                    return Err(ConnError::WrongState.into());
                }
                let (qp_type, has_srq) = (info.qp_type, info.has_srq);
                let (psn, is_kept) = (Psn::default(), matches!(qp, ConnQp::Begun(_)));
                let (is_driven, stops_with_peer, rd_qp) = (true, true, None);
                OwnQp { qpn, qp_type, psn, has_srq, rd_qp, is_driven, is_kept, stops_with_peer }
            }
        };
        let fits = match space.connects() {
            true => own.qp_type.is_connected(),
            false => own.qp_type == QpType::Ud,
        };
        match fits {
            false => Err(ConnError::WrongService(own.qpn).into()),
            true if space.connects() && self.by_qpn.contains_key(&own.qpn) => {
                Err(ConnError::QpInUse(own.qpn).into())
            }
            true => {
                let rd_qp = rd_qp.map(|rd_qp| named(rd_qp, own.qp_type, context)).transpose()?;
                Ok(OwnQp { rd_qp, ..own })
            }
        }
    }
}

/// Returns what the peer of a QP of service `with` is told of the RD QP `qpn`.
fn named(
    qpn: Qpn,
    with: QpType,
    context: &mut ServiceContext<'_>,
) -> Result<PeerRdQp, RequestError> {
    let info = context.query_qp(qpn)?;
    //= check R44 — only an EEC has a peer that is told of an RD QP, which has a Q_Key from INIT on
    if (with, info.qp_type) != (QpType::Eec, QpType::Rd) {
        return Err(ConnError::WrongService(qpn).into());
    }
    if info.attr.state == QpState::Reset {
        return Err(ConnError::WrongState.into());
    }
    Ok(PeerRdQp { qpn, qkey: info.attr.qkey })
}
