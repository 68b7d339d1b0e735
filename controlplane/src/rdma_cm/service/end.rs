//! End of connections, and release of their QPNs.
//!
//! Read first: IBA 12.9.

use uroce_cm::CloseReason;
use uroce_engine::port::EndedPeer;
use uroce_transport::{QpChange, QpState, QpType};
use uroce_wire::Qpn;
use uroce_wire::cm::{PrivateData, RejectReason, SidrStatus};

use super::common::{Common, Tally};
use super::{Service, private_data};
use crate::call::RequestError;
use crate::rdma_cm::connection::{Connection, Next, Stage};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::source::find_own;
use crate::rdma_cm::{CmId, ConnError, ConnEvent};

/// Largest number of bytes of an application's private data in a DREQ.
const DREQ_DATA: usize = 220;

impl Service {
    /// A peer's process has ended: ends all connections to it through `port`. A QP goes to ERR if
    /// the service modifies it, or if it is in use and `stops_with_peer` is set. For
    /// [`EndedPeer::Only`], connections to the device's own addresses are kept.
    pub(crate) fn peer_ended(
        &mut self,
        port: u8,
        peer: EndedPeer,
        context: &mut ServiceContext<'_>,
    ) {
        let neighbours = &context.ports.neighbours;
        let is_peer = |connection: &Connection| {
            let ip = connection.primary.addresses().1;
            match (peer, &connection.primary_path) {
                (EndedPeer::Only, _) => find_own(neighbours, ip, port).is_none(),
                (EndedPeer::At(mac), Some(path)) => path.encap.dst_mac == mac,
                (EndedPeer::At(mac), None) => {
                    neighbours[usize::from(port) - 1].last_known(ip) == Some(mac)
                }
            }
        };
        let of_peer = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.primary.port == port && is_peer(connection));
        let mut ended: Vec<CmId> = of_peer.map(|(id, _)| *id).collect();
        ended.sort_unstable();
        tracing::debug!(port, connections = ended.len(), "the peer's process has ended");
        for id in ended {
            self.with_known(id, |connection, common| {
                connection.end_with_peer(common, context);
            });
        }
        self.take_events(context);
    }

    /// Ends the connection of a QP that has got no answer from its peer in all its retries.
    //= check J15 — the connection ends as it does when the peer's process is reported as ended
    pub(super) fn peer_lost(&mut self, id: CmId, context: &mut ServiceContext<'_>) {
        self.with_known(id, |connection, common| {
            let peer = connection.peer;
            tracing::info!(id = id.0, %peer, "the peer does not answer");
            connection.end_with_peer(common, context);
        });
        self.take_events(context);
    }

    /// Destroys an id. No event of it follows.
    pub(crate) fn destroy(
        &mut self,
        id: CmId,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        if let Some(listener) = self.common.listeners.get(&id) {
            let channel = listener.channel.clone();
            self.unlisten(id, context);
            channel.forget(id);
            return Ok(());
        }
        if self.stop_look_up(id) {
            return Ok(());
        }
        self.call(id, |connection, common| {
            connection.give_up(common, context);
            Ok(())
        })
    }

    /// Ends the connection of a QP that has been destroyed.
    pub(crate) fn qp_destroyed(&mut self, qpn: Qpn, context: &mut ServiceContext<'_>) {
        let Some(id) = self.common.by_qpn.get(&qpn).copied() else { return };
        self.with_known(id, |connection, common| connection.qp_destroyed(common, context));
    }

    /// Ends all connections. Called when the device closes.
    pub(crate) fn close(&mut self, context: &mut ServiceContext<'_>) {
        let ids: Vec<CmId> = self.connections.keys().copied().collect();
        for id in ids {
            self.with_known(id, |connection, common| connection.give_up(common, context));
        }
        self.turn(context);
    }
}

impl Connection {
    /// Ends the connection because its peer is gone.
    fn end_with_peer(&mut self, common: &mut Common, context: &ServiceContext<'_>) {
        self.take_back(&common.cm);
        if let Some(conn) = self.conn {
            common.cm.peer_ended(context.now, conn);
        }
    }

    /// Holds the QPN for the connection until `uroce-cm` releases the connection.
    pub(super) fn hold(&self, common: &mut Common, context: &mut ServiceContext<'_>) {
        if let Some(own) = self.qp {
            common.by_qpn.insert(own.qpn, self.id);
            context.control.hold_qpn(own.qpn);
        }
    }

    fn release(&self, common: &mut Common, context: &mut ServiceContext<'_>) {
        if let Some(own) = self.qp
            && common.by_qpn.get(&own.qpn) == Some(&self.id)
        {
            common.by_qpn.remove(&own.qpn);
            context.control.release_qpn(own.qpn);
        }
    }

    /// Rejects the peer's request or reply. No event of the id follows.
    pub(crate) fn reject(
        &mut self,
        reason: RejectReason,
        data: &[u8],
        common: &mut Common,
        context: &ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        if !matches!(self.stage(&common.cm), Stage::Requested | Stage::Answered) {
            return Err(ConnError::WrongState.into());
        }
        if !self.space.connects() {
            self.refuse_datagrams(SidrStatus::REJECTED, data, common, context)?;
        } else if let Some(conn) = self.conn {
            let data = private_data(data)?;
            let rejected = common.cm.reject(context.now, conn, reason, &[], data);
            rejected.map_err(ConnError::Protocol)?;
        }
        self.orphan(common);
        Ok(())
    }

    /// Establishes a connection when its application has taken the QP to RTS.
    pub(crate) fn establish(&mut self, common: &mut Common) -> Result<(), RequestError> {
        match self.stage(&common.cm) {
            Stage::Answered => self.ready(common),
            Stage::Replied => {
                self.communication_established(common);
                Ok(())
            }
            _ => Err(ConnError::WrongState.into()),
        }
    }

    /// Ends the connection at its application's request: moves the QP to ERR and sends a DREQ.
    pub(crate) fn disconnect(
        &mut self,
        data: &[u8],
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        if data.len() > DREQ_DATA {
            return Err(ConnError::PrivateData { len: data.len(), max: DREQ_DATA }.into());
        }
        let conn = match (self.stage(&common.cm), self.conn) {
            _ if !self.space.connects() => return Err(ConnError::WrongState.into()),
            (Stage::Established, Some(conn)) => conn,
            // The peer or another thread has disconnected already.
            (Stage::Ending | Stage::Over, _) => return Ok(()),
            _ => return Err(ConnError::WrongState.into()),
        };
        self.stop_qp(context);
        common.cm.disconnect(context.now, conn, data).map_err(ConnError::Protocol)?;
        Ok(())
    }

    /// Handles a DREQ: moves the QP to ERR and sends a DREP.
    pub(super) fn disconnected(
        &mut self,
        data: &[u8],
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        self.stop_qp(context);
        if let Some(conn) = self.conn {
            let _ = common.cm.disconnect(context.now, conn, &[]);
        }
        if !std::mem::replace(&mut self.is_over, true) {
            common.count(Tally::Disconnected);
            self.tell(ConnEvent::Disconnected { private_data: data.to_vec() });
        }
    }

    /// Handles the end of the connection, or of an attempt to connect. The QPN is still held.
    pub(super) fn closed(
        &mut self,
        reason: CloseReason,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        self.leave_backlog(common);
        let was_over = std::mem::replace(&mut self.is_over, true);
        if !was_over && self.is_unanswered_request() {
            // The peer has given up. A request that is still undelivered is never delivered.
            if self.channel.forget(self.id) {
                self.is_orphan = true;
            }
        }
        let end = match reason {
            CloseReason::RejectedByUs => None,
            _ if was_over => None,
            CloseReason::Rejected(rej) if !self.was_established => {
                let (reason, private_data) = (rej.reason.0, rej.private_data.0.to_vec());
                Some((Tally::Rejected, ConnEvent::Rejected { reason, private_data }))
            }
            CloseReason::Unreachable => Some((Tally::Unreachable, ConnEvent::Unreachable)),
            CloseReason::Disconnected(data) => {
                let private_data = data.map(|data| data.0.to_vec()).unwrap_or_default();
                Some((Tally::Disconnected, ConnEvent::Disconnected { private_data }))
            }
            CloseReason::Rejected(_) | CloseReason::DisconnectUnanswered | CloseReason::Stale => {
                let private_data = Vec::new();
                Some((Tally::Disconnected, ConnEvent::Disconnected { private_data }))
            }
        };
        self.stop_qp(context);
        if let Some((tally, event)) = end {
            common.count(tally);
            self.tell(event);
        }
    }

    /// Handles the end of TimeWait: no packet of the connection is in flight any more.
    //= check J9 — from now on, not before, its QPN may be another QP's
    pub(super) fn released(&mut self, common: &mut Common, context: &mut ServiceContext<'_>) {
        self.release(common, context);
        if let Some(conn) = self.conn.take() {
            common.by_conn.remove(&conn);
        }
        self.is_over = true;
        if self.space.connects() && self.qp.is_some() {
            self.tell(ConnEvent::TimewaitExit);
        }
    }

    /// Ends the connection, or an attempt to connect, because of an error on this side.
    pub(super) fn fail(
        &mut self,
        error: RequestError,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        tracing::debug!(id = self.id.0, %error, "connection failed");
        self.stop_qp(context);
        common.count(Tally::Failed);
        self.tell(ConnEvent::ConnectError(error));
        self.end(self.no_end(), common, context);
    }

    /// The reason to reject a peer for want of this side's QP or EEC.
    fn no_end(&self) -> RejectReason {
        match self.qp.map(|own| own.qp_type) {
            Some(QpType::Eec) => RejectReason::NO_EEC,
            _ => RejectReason::NO_QP,
        }
    }

    /// Ends the connection in `uroce-cm` without reporting an event.
    fn end(&mut self, reason: RejectReason, common: &mut Common, context: &mut ServiceContext<'_>) {
        let stage = self.stage(&common.cm);
        self.is_over = true;
        let Some(conn) = self.conn else { return self.release(common, context) };
        let is_datagram = !self.space.connects();
        // An error means that `uroce-cm` has ended the connection already.
        let _ = match stage {
            Stage::Over | Stage::Ending => return,
            Stage::Established if is_datagram => return,
            Stage::Established => common.cm.disconnect(context.now, conn, &[]),
            Stage::Requested if is_datagram => {
                let _ = self.refuse_datagrams(SidrStatus::REJECTED, &[], common, context);
                return;
            }
            Stage::Asked if is_datagram => {
                let _ = common.cm.destroy(context.now, conn);
                return self.released(common, context);
            }
            _ => common.cm.reject(context.now, conn, reason, &[], PrivateData::default()),
        };
    }

    /// Ends the connection because the application gives up its id, or because the device closes.
    pub(super) fn give_up(&mut self, common: &mut Common, context: &mut ServiceContext<'_>) {
        let stage = self.stage(&common.cm);
        let is_connecting = matches!(stage, Stage::Asked | Stage::Resolving(Next::Join));
        if stage == Stage::Established {
            self.stop_qp(context);
            common.count(Tally::Disconnected);
        }
        self.orphan(common);
        let reason = if is_connecting { RejectReason::TIMEOUT } else { RejectReason::CONSUMER };
        self.end(reason, common, context);
    }

    /// Makes the id report no further event, and drops its undelivered ones.
    fn orphan(&mut self, common: &mut Common) {
        self.leave_backlog(common);
        self.is_orphan = true;
        self.channel.forget(self.id);
    }

    fn qp_destroyed(&mut self, common: &mut Common, context: &mut ServiceContext<'_>) {
        if let Some(own) = &mut self.qp {
            own.is_driven = false;
        }
        if !matches!(self.stage(&common.cm), Stage::Over | Stage::Ending) {
            common.count(Tally::Disconnected);
            self.tell(ConnEvent::Disconnected { private_data: Vec::new() });
            self.end(self.no_end(), common, context);
        }
    }

    /// Moves the QP of a connection to ERR if the service modifies the QP. Only the first call has
    /// an effect. A UD QP is left alone.
    fn stop_qp(&mut self, context: &mut ServiceContext<'_>) {
        if let Some(own) = &mut self.qp
            && own.is_driven
            && self.space.connects()
        {
            // From now on the application may modify the QP, for example reset it.
            own.is_driven = false;
            // An error means that the QP is destroyed.
            let _ = context.modify_qp(own.qpn, &QpChange::to(QpState::Err));
        }
    }
}
