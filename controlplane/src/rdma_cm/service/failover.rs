//! Alternate paths on which the control planes of both ends have agreed ([`crate::failover`]): LAP
//! and APR load them, without events for the application.

use uroce_cm::MadAddr;
use uroce_wire::mad::Mad;
use uroce_wire::{Gid, Qpn};

use super::{GSI, Letter, Service};
use crate::path::AddressVector;
use crate::rdma_cm::connection::{Change, Connection, Stage};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::source::Way;

/// State of a proposed alternate path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Proposal {
    /// The peer has not answered.
    Waits,
    /// Both ends have loaded it.
    Loaded,
    /// The peer has refused it or has not answered, or the connection is over.
    Failed,
}

impl Service {
    /// Returns whether the connection of a QP is established; `None` if the QP has none.
    pub(crate) fn is_established(&self, qpn: Qpn) -> Option<bool> {
        Some(self.connection_of(qpn)?.stage(&self.common.cm) == Stage::Established)
    }

    /// Accepts the LAP of the peer's control plane for a QP if it has these addresses. Returns
    /// false if the QP has no connection, or one with a path that the applications are loading.
    pub(crate) fn expect_alternate(&mut self, qpn: Qpn, own: Gid, peer: Gid) -> bool {
        let id = self.common.by_qpn.get(&qpn);
        let connection = id.and_then(|id| self.connections.get_mut(id));
        let Some(connection) = connection.filter(|of| of.change.is_none()) else { return false };
        connection.agreed_alternate = Some((own, peer));
        true
    }

    /// Ends what [`expect_alternate`](Self::expect_alternate) or
    /// [`propose_alternate`](Self::propose_alternate) has begun for a QP. Further proposals are the
    /// applications'.
    pub(crate) fn forget_alternate(&mut self, qpn: Qpn) {
        let id = self.common.by_qpn.get(&qpn);
        if let Some(connection) = id.and_then(|id| self.connections.get_mut(id)) {
            connection.drop_agreed();
        }
    }

    /// Proposes a path to the peer of a QP by LAP. Returns false if that is not possible now.
    pub(crate) fn propose_alternate(
        &mut self,
        qpn: Qpn,
        port: u8,
        source: Gid,
        vector: AddressVector,
        context: &mut ServiceContext<'_>,
    ) -> bool {
        let Some(id) = self.common.by_qpn.get(&qpn).copied() else { return false };
        let way = Way { port, source, vector };
        let begun = self.with(id, |connection, common| {
            let is_ready = connection.stage(&common.cm) == Stage::Established
                && connection.space.connects()
                && connection.change.is_none();
            if is_ready {
                connection.agreed_alternate = Some((source, vector.dgid));
                connection.alternate = None;
                connection.change = Some(Change::Proposing(way));
                connection.step_change(common, context);
            }
            is_ready
        });
        begun == Some(true)
    }

    /// Returns the state of the path that was proposed for a QP. Once that is decided, further
    /// proposals are the applications'.
    pub(crate) fn proposal(&mut self, qpn: Qpn) -> Proposal {
        let id = self.common.by_qpn.get(&qpn);
        let Some(of) = id.and_then(|id| self.connections.get_mut(id)) else {
            return Proposal::Failed;
        };
        if of.change.is_some() && !of.is_over {
            return Proposal::Waits;
        }
        let loaded = of.alternate.map(|way| (way.source, way.vector.dgid));
        match of.agreed_alternate.take() {
            agreed if agreed.is_some() && agreed == loaded => Proposal::Loaded,
            _ => Proposal::Failed,
        }
    }

    /// Sends a MAD to QP 1 of a peer, or drops it: the messages of connections need the places of
    /// those that wait.
    pub(crate) fn post(&mut self, addr: MadAddr, mad: Mad, context: &mut ServiceContext<'_>) {
        self.common.outbox.try_post(&Letter { addr, to: GSI, mad }, context);
    }

    fn connection_of(&self, qpn: Qpn) -> Option<&Connection> {
        let connection = self.connections.get(self.common.by_qpn.get(&qpn)?)?;
        Some(connection).filter(|connection| !connection.is_over)
    }
}
