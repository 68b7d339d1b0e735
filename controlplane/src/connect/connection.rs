//! What the driver knows of a listener or a connection.

use std::net::SocketAddr;
use std::sync::Arc;

use uroce_cm::ConnId;
use uroce_transport::{AltPath, PathAttr, QpType};
use uroce_wire::{PathMtu, Psn, Qpn};

use super::source::Way;
use super::{Agreed, CmId, CmSink, ConnParam, PortSpace};

/// Who has an address and port, and may listen there.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) channel: Arc<dyn CmSink>,
    pub(super) space: PortSpace,
    pub(super) address: SocketAddr,
    /// `None` while it does not listen.
    pub(super) backlog: Option<u32>,
    /// Requests that the application has not accepted yet.
    pub(super) waiting: u32,
}

/// Where a connection stands, as far as it is the driver's business.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Neighbours are being asked for, and then [`Next`] happens.
    Resolving(Next),
    /// REQ or SIDR_REQ is out.
    Asked,
    /// The application is to accept or to reject.
    Requested,
    /// REP came; the application's own QP is not ready yet.
    Answered,
    /// REP is out.
    Replied,
    Established,
    /// DREQ is out, or the connection ended in another way that takes time.
    Ending,
    /// Nothing happens any more.
    Over,
}

/// What waits for neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// REQ or SIDR_REQ.
    Ask,
    /// RTR, RTS and RTU, after REP.
    Join,
    /// RTR and REP.
    Reply,
}

/// Another alternate path on its way into an established connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Ours: its neighbour is being asked for, then LAP.
    Proposing(Way),
    /// Ours: LAP is out.
    Proposed(Way, AltPath),
    /// The peer's: the application is asked.
    Asked(Way),
    /// The peer's: its neighbour is being asked for, then Modify QP and APR.
    Accepting(Way),
}

/// The connection's QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OwnQp {
    pub(super) qpn: Qpn,
    pub(super) qp_type: QpType,
    pub(super) psn: Psn,
    pub(super) has_srq: bool,
    /// Its Modify QP is the driver's business.
    pub(super) is_driven: bool,
    /// When it is in RTS it is the application's, and not driven any more.
    pub(super) is_kept: bool,
    /// It is stopped when the peer's process has ended, whether it is driven or not.
    pub(super) stops_with_peer: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Arc<dyn CmSink>,
    /// The application has given it up: it ends without events.
    pub(super) is_orphan: bool,
    /// Whose backlog it counts in.
    pub(super) listener: Option<CmId>,
    pub(super) space: PortSpace,
    pub(super) stage: Stage,
    /// The CM's, as long as it has one.
    pub(super) conn: Option<ConnId>,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) qp: Option<OwnQp>,
    pub(super) param: ConnParam,
    pub(super) primary: Way,
    pub(super) primary_path: Option<PathAttr>,
    pub(super) alternate: Option<Way>,
    pub(super) alternate_path: Option<AltPath>,
    /// The peer's REQ has an alternate path, whether this side can use it or not.
    pub(super) asked_for_alternate: bool,
    /// The path MTU to ask for.
    pub(super) path_mtu: PathMtu,
    pub(super) agreed: Option<Agreed>,
    pub(super) change: Option<Change>,
    /// From the peer's application, until the event that brings it.
    pub(super) private_data: Vec<u8>,
}

impl Connection {
    /// A connection of which no more is known than where it goes.
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

    /// The QP is in RTS: one that is the caller's from then on is not driven any more.
    pub(super) fn hand_over(&mut self) {
        if let Some(own) = &mut self.qp {
            own.is_driven &= !own.is_kept;
        }
    }

    /// The peer's process has ended: the QP is to be stopped with the connection, also one that was
    /// handed over.
    pub(super) fn take_back(&mut self) {
        let is_in_use = matches!(self.stage, Stage::Replied | Stage::Established);
        if let Some(own) = &mut self.qp {
            own.is_driven |= own.stops_with_peer && is_in_use;
        }
    }
}
