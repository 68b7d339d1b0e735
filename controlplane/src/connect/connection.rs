//! State of a listener or a connection in the driver.

use std::net::SocketAddr;
use std::sync::Arc;

use uroce_cm::ConnId;
use uroce_transport::{AltPath, PathAttr, QpType};
use uroce_wire::{PathMtu, Psn, Qpn};

use super::source::Way;
use super::{Agreed, CmId, CmSink, ConnParam, PortSpace};

/// An id bound to an address and port. It may listen.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) channel: Arc<dyn CmSink>,
    pub(super) space: PortSpace,
    pub(super) address: SocketAddr,
    /// Most requests that may wait; `None` while the id does not listen.
    pub(super) backlog: Option<u32>,
    /// Number of requests that the application has neither accepted nor refused.
    pub(super) waiting: u32,
}

/// Stage of a connection in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Neighbours are being resolved; the step that follows is [`Next`].
    Resolving(Next),
    /// A REQ or SIDR_REQ is sent.
    Asked,
    /// A request is reported; the application has to accept or reject it.
    Requested,
    /// A REP is reported; the application is making its own QP ready.
    Answered,
    /// A REP is sent.
    Replied,
    Established,
    /// The connection is being closed by a DREQ or otherwise.
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
    /// The peer's proposal: it is reported to the application.
    Asked(Way),
    /// The peer's proposal: its neighbour is being resolved, then the QP is modified and an APR
    /// sent.
    Accepting(Way),
}

/// QP of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnQp {
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    pub(super) psn: Psn,
    pub(super) has_srq: bool,
    /// The driver modifies its state.
    pub(super) is_driven: bool,
    /// The driver stops modifying its state once it is in RTS; the application does so from then
    /// on.
    pub(super) is_kept: bool,
    /// The QP goes to ERR when the peer's process has ended, even if the driver does not modify it.
    pub(super) stops_with_peer: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Arc<dyn CmSink>,
    /// The application has destroyed the id; no further event is reported.
    pub(super) is_orphan: bool,
    /// The listener with the backlog in which the connection counts.
    pub(super) listener: Option<CmId>,
    pub(super) space: PortSpace,
    pub(super) stage: Stage,
    /// The connection of `uroce-cm`, while there is one.
    pub(super) conn: Option<ConnId>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) qp: Option<OwnQp>,
    pub(super) param: ConnParam,
    pub(super) primary: Way,
    pub(super) primary_path: Option<PathAttr>,
    pub(super) alternate: Option<Way>,
    pub(super) alternate_path: Option<AltPath>,
    /// The peer's REQ has an alternate path, even if this side cannot use it.
    pub(super) asked_for_alternate: bool,
    /// Path MTU of our REQ.
    pub(super) path_mtu: PathMtu,
    pub(super) agreed: Option<Agreed>,
    pub(super) change: Option<Change>,
    /// Private data of the peer, until it is reported with an event.
    pub(super) private_data: Vec<u8>,
}

impl Connection {
    /// Creates a connection with the addresses of its primary path.
    pub(super) fn new(
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        stage: Stage,
        primary: Way,
    ) -> Connection {
        let (local, peer) = primary.addresses();
        Connection {
            channel,
            is_orphan: false,
            listener: None,
            space,
            stage,
            conn: None,
            local: SocketAddr::new(local, 0),
            peer: SocketAddr::new(peer, 0),
            qp: None,
            param: ConnParam::default(),
            primary,
            primary_path: None,
            alternate: None,
            alternate_path: None,
            asked_for_alternate: false,
            path_mtu: PathMtu::B1024,
            agreed: None,
            change: None,
            private_data: Vec::new(),
        }
    }

    /// Called when the QP is in RTS. The driver stops modifying a QP that the application keeps.
    pub(super) fn hand_over(&mut self) {
        if let Some(own) = &mut self.qp {
            own.is_driven &= !own.is_kept;
        }
    }

    /// Called when the peer's process has ended. The driver will stop a QP in use with the
    /// connection, even if it has handed the QP over to the application.
    pub(super) fn take_back(&mut self) {
        let is_in_use = matches!(self.stage, Stage::Replied | Stage::Established);
        if let Some(own) = &mut self.qp {
            own.is_driven |= own.stops_with_peer && is_in_use;
        }
    }
}
