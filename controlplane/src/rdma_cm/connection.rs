//! State of a listener or a connection in the service.

use std::net::SocketAddr;
use std::sync::Arc;

use uroce_cm::{Cm, ConnId, RdEnd, State};
use uroce_transport::{AltPath, PathAttr, QpType};
use uroce_wire::{Gid, PathMtu, Psn, Qpn};

use super::service::Common;
use super::source::Way;
use super::{Agreed, CmId, CmSink, ConnEvent, ConnParam, PeerRdQp, PortSpace};

/// An id bound to an address and port. It may listen.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) channel: Arc<dyn CmSink>,
    pub(super) space: PortSpace,
    pub(super) address: SocketAddr,
    /// It receives the requests of EECs instead of those of QPs.
    pub(super) eecs: bool,
    /// Largest number of requests that may wait; `None` while the id does not listen.
    pub(super) backlog: Option<u32>,
    /// Number of requests in the backlog: the application has neither accepted nor rejected them,
    /// nor moved them to another channel.
    pub(super) waiting: u32,
}

/// Stage of a connection: the state of `uroce-cm`, and whether neighbours are being resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Neighbours are being resolved, for the step that follows.
    Resolving(Next),
    /// A REQ or SIDR_REQ is sent.
    Asked,
    /// A request is reported; the application has to accept or reject it.
    Requested,
    /// A REP is reported. The application is taking its own QP to RTS.
    Answered,
    /// A REP is sent.
    Replied,
    Established,
    /// The connection is being closed, by a DREQ or for another reason.
    Ending,
    /// The connection is over.
    Over,
}

/// Step of a connection that follows the resolution of its neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Send the REQ or SIDR_REQ.
    Ask,
    /// After a REP: take the QP to RTR and RTS, send the RTU.
    Join,
    /// Take the QP to RTR, send the REP.
    Reply,
}

/// A new alternate path that is being loaded into an established connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Our proposal: its neighbour is being resolved, then a LAP is sent.
    Proposing(Way),
    /// Our proposal: the LAP is sent.
    Proposed(Way, AltPath),
    /// The application's proposal waits until a LAP of the control plane is answered.
    Next(Way),
    /// The peer's proposal: it is reported to the application.
    Asked(Way),
    /// The peer's proposal: its neighbour is being resolved, then the QP is modified and an APR
    /// sent.
    Accepting(Way),
}

/// QP of a connection, or EEC; its EECN stands where a QP's QPN does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnQp {
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    pub(super) psn: Psn,
    pub(super) has_srq: bool,
    /// If it is an EEC: the RD QP that the peer is told of.
    pub(super) rd_qp: Option<PeerRdQp>,
    /// The service modifies the QP.
    pub(super) is_driven: bool,
    /// The application modifies the QP once it is in RTS; the service no longer does.
    pub(super) is_kept: bool,
    /// The QP goes to ERR when the peer's process has ended, even if the service has stopped
    /// modifying the QP.
    pub(super) stops_with_peer: bool,
}

impl OwnQp {
    /// Returns the numbers for a REQ or REP: the QPN, and what RD has beside it.
    //= check R44 — the EECN, and the QPN and Q_Key of an RD QP if there is one
    pub(super) fn told(&self) -> (Qpn, Option<RdEnd>) {
        if self.qp_type != QpType::Eec {
            return (self.qpn, None);
        }
        let PeerRdQp { qpn, qkey } = self.rd_qp.unwrap_or_default();
        (qpn, Some(RdEnd { eecn: self.qpn, qkey }))
    }
}

/// A connection, or the look-up of a UD QP.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) id: CmId,
    pub(super) channel: Arc<dyn CmSink>,
    /// No further event is reported: the id was destroyed, its request or reply was rejected, the
    /// device closes, or the peer gave up a request that was not yet delivered.
    pub(super) is_orphan: bool,
    /// The listener, while the connection counts in its backlog.
    pub(super) listener: Option<CmId>,
    pub(super) space: PortSpace,
    /// Step that follows once the neighbours are resolved; `None` if no step waits for them.
    pub(super) next: Option<Next>,
    /// The connection has been established.
    pub(super) was_established: bool,
    /// The end of the connection has been reported, or needs no report.
    pub(super) is_over: bool,
    /// The connection of `uroce-cm`, while there is one.
    pub(super) conn: Option<ConnId>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) qp: Option<OwnQp>,
    /// Service of the QP that can accept the peer's request.
    pub(super) asked_for: Option<QpType>,
    pub(super) param: ConnParam,
    pub(super) primary: Way,
    pub(super) primary_path: Option<PathAttr>,
    pub(super) alternate: Option<Way>,
    /// Addresses, ours and the peer's, of an alternate path on which both control planes agree.
    /// While it is set, a `change` is theirs: the application gets no events of it, and what the
    /// application does comes before it.
    pub(super) agreed_alternate: Option<(Gid, Gid)>,
    pub(super) alternate_path: Option<AltPath>,
    /// The peer's REQ has an alternate path, even if this side cannot use it.
    pub(super) asked_for_alternate: bool,
    /// Path MTU of our REQ.
    pub(super) path_mtu: PathMtu,
    pub(super) agreed: Option<Agreed>,
    pub(super) change: Option<Change>,
    /// Private data of the peer, until it is reported with an event.
    pub(super) private_data: Vec<u8>,
    /// State of `uroce-cm` that was logged last.
    pub(super) logged: State,
}

impl Connection {
    /// Creates a connection with the addresses of its primary path.
    pub(super) fn new(
        id: CmId,
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        primary: Way,
    ) -> Connection {
        let (local, peer) = primary.addresses();
        Connection {
            id,
            channel,
            is_orphan: false,
            listener: None,
            space,
            next: None,
            was_established: false,
            is_over: false,
            logged: State::Idle,
            conn: None,
            local: SocketAddr::new(local, 0),
            peer: SocketAddr::new(peer, 0),
            qp: None,
            asked_for: None,
            param: ConnParam::default(),
            primary,
            primary_path: None,
            alternate: None,
            agreed_alternate: None,
            alternate_path: None,
            asked_for_alternate: false,
            path_mtu: PathMtu::B1024,
            agreed: None,
            change: None,
            private_data: Vec::new(),
        }
    }

    /// Returns the stage of the connection. It follows from the state of `uroce-cm`, except while a
    /// step waits for neighbours, and once the end has been reported.
    pub(super) fn stage(&self, cm: &Cm) -> Stage {
        if self.is_over {
            return Stage::Over;
        }
        if let Some(next) = self.next {
            return Stage::Resolving(next);
        }
        match self.conn.and_then(|conn| cm.state(conn)) {
            None | Some(State::Idle) => Stage::Over,
            Some(State::ReqSent | State::MraReqRcvd | State::SidrReqSent) => Stage::Asked,
            Some(State::ReqRcvd | State::MraReqSent | State::SidrReqRcvd) => Stage::Requested,
            Some(State::RepRcvd | State::MraRepSent) => Stage::Answered,
            Some(State::RepSent | State::MraRepRcvd) => Stage::Replied,
            Some(State::Established) => Stage::Established,
            // An accepted look-up stays in TimeWait, to answer copies of its request.
            Some(State::TimeWait) if !self.space.connects() && self.was_established => {
                Stage::Established
            }
            Some(State::DreqSent | State::DreqRcvd | State::TimeWait) => Stage::Ending,
        }
    }

    /// Tells whether this is a peer's request that the application has not accepted; it may have
    /// rejected the request. Every other connection of [`PortSpace::Tcp`] has a QP.
    pub(super) fn is_unanswered_request(&self) -> bool {
        self.space.connects() && self.qp.is_none()
    }

    /// Tells whether neither the application nor `uroce-cm` uses the connection any more.
    pub(super) fn is_finished(&self) -> bool {
        self.is_orphan && self.is_over && self.conn.is_none()
    }

    /// Reports an event to the application, unless the connection is an orphan.
    pub(super) fn tell(&self, event: ConnEvent) {
        if !self.is_orphan {
            self.channel.give(self.id, event);
        }
    }

    /// Logs the state of `uroce-cm` if it has changed.
    pub(super) fn log_transition(&mut self, common: &Common) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        let state = common.state(self.conn);
        if state != self.logged {
            let (peer, from) = (self.peer, self.logged);
            tracing::debug!(id = self.id.0, %peer, ?from, to = ?state, "connection");
            self.logged = state;
        }
    }

    /// Gives up what the control planes have agreed on. An answer that is still to come has no
    /// effect.
    pub(super) fn drop_agreed(&mut self) {
        if self.agreed_alternate.take().is_some() {
            self.change = None;
        }
    }

    /// Called when the QP is in RTS. The service stops modifying a QP that the application keeps.
    pub(super) fn hand_over(&mut self) {
        if let Some(own) = &mut self.qp {
            own.is_driven &= !own.is_kept;
        }
    }

    /// Called when the peer's process has ended. If the QP is in use and `stops_with_peer` is set,
    /// the service modifies the QP again, to take it to ERR.
    pub(super) fn take_back(&mut self, cm: &Cm) {
        let is_in_use = matches!(self.stage(cm), Stage::Replied | Stage::Established);
        if let Some(own) = &mut self.qp {
            own.is_driven |= own.stops_with_peer && is_in_use;
        }
    }
}
