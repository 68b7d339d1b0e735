//! End of connections, and release of their QPNs.
//!
//! Read first: IBA 12.9.

use uroce_cm::CloseReason;
use uroce_transport::{QpChange, QpState};
use uroce_wire::Qpn;
use uroce_wire::cm::{PrivateData, RejectReason, SidrStatus};

use super::{Driver, Tally, private_data};
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::connection::{Next, OwnQp, Stage};
use crate::connect::source::find_own;
use crate::connect::{CmError, CmEventKind, CmId, PortSpace};

/// Most bytes of an application's private data in a DREQ.
const DREQ_DATA: usize = 220;

impl Driver {
    /// Holds the QPN for the connection until `uroce-cm` releases the connection.
    pub(super) fn hold(&mut self, id: CmId, qp: Option<OwnQp>, around: &mut Around<'_>) {
        if let Some(own) = qp {
            self.by_qpn.insert(own.qpn, id);
            around.control.hold_qpn(own.qpn);
        }
    }

    fn release(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get(&id) else { return };
        if let Some(own) = connection.qp
            && self.by_qpn.get(&own.qpn) == Some(&id)
        {
            self.by_qpn.remove(&own.qpn);
            around.control.release_qpn(own.qpn);
        }
    }

    pub(crate) fn reject(
        &mut self,
        id: CmId,
        reason: RejectReason,
        data: &[u8],
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let connection = self.connection(id)?;
        if !matches!(connection.stage, Stage::Requested | Stage::Answered) {
            return Err(CmError::WrongState.into());
        }
        if connection.space == PortSpace::Udp {
            self.refuse_datagrams(id, SidrStatus::REJECTED, data, around)?;
        } else if let Some(conn) = connection.conn {
            let data = private_data(data)?;
            self.cm.reject(around.now, conn, reason, &[], data).map_err(CmError::Protocol)?;
        }
        self.orphan(id);
        Ok(())
    }

    pub(crate) fn establish(
        &mut self,
        id: CmId,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        match self.connection(id)?.stage {
            Stage::Answered => self.ready(id, around),
            Stage::Replied => {
                self.communication_established(id, around);
                Ok(())
            }
            _ => Err(CmError::WrongState.into()),
        }
    }

    pub(crate) fn disconnect(
        &mut self,
        id: CmId,
        data: &[u8],
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        if data.len() > DREQ_DATA {
            return Err(CmError::PrivateData { len: data.len(), max: DREQ_DATA }.into());
        }
        let connection = self.connection(id)?;
        let conn = match (connection.stage, connection.conn) {
            _ if connection.space == PortSpace::Udp => return Err(CmError::WrongState.into()),
            (Stage::Established, Some(conn)) => conn,
            // The peer, or another thread, has disconnected before.
            (Stage::Ending | Stage::Over, _) => return Ok(()),
            _ => return Err(CmError::WrongState.into()),
        };
        connection.stage = Stage::Ending;
        self.stop_qp(id, around);
        self.cm.disconnect(around.now, conn, data).map_err(CmError::Protocol)?;
        Ok(())
    }

    /// Handles a DREQ: moves the QP to ERR and sends a DREP.
    pub(super) fn disconnected(&mut self, id: CmId, data: &[u8], around: &mut Around<'_>) {
        self.stop_qp(id, around);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(conn) = connection.conn {
            let _ = self.cm.disconnect(around.now, conn, &[]);
        }
        if !matches!(connection.stage, Stage::Ending | Stage::Over) {
            connection.stage = Stage::Over;
            self.count(Tally::Disconnected);
            self.tell(id, CmEventKind::Disconnected { private_data: data.to_vec() });
        }
    }

    /// Ends all connections of a port after the one process at the other end of its link has ended.
    /// Their QPs go to ERR. Connections to the device's own addresses go on.
    pub(crate) fn peer_ended(&mut self, port: u8, around: &mut Around<'_>) {
        let is_own = |ip| find_own(&around.ports.neighbours, ip, port).is_some();
        let of_peer = self.connections.iter().filter(|(_, connection)| {
            connection.primary.port == port && !is_own(connection.primary.addresses().1)
        });
        let mut ended: Vec<CmId> = of_peer.map(|(id, _)| *id).collect();
        ended.sort_unstable();
        for id in ended {
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.take_back();
            if let Some(conn) = connection.conn {
                self.cm.peer_ended(around.now, conn);
            }
        }
        self.take_events(around);
    }

    /// Handles the end of a connection, or of an attempt to connect. The QPN is still held.
    pub(super) fn closed(&mut self, id: CmId, reason: CloseReason, around: &mut Around<'_>) {
        self.leave_backlog(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let stage = std::mem::replace(&mut connection.stage, Stage::Over);
        if stage == Stage::Requested {
            // The peer has given up. If the application has not taken the request yet, it never
            // will.
            if connection.channel.forget(id) {
                connection.is_orphan = true;
            }
        }
        let was_up = matches!(stage, Stage::Established | Stage::Ending);
        let kind = match reason {
            CloseReason::RejectedByUs => None,
            _ if stage == Stage::Over => None,
            CloseReason::Rejected(rej) if !was_up => {
                let (reason, private_data) = (rej.reason.0, rej.private_data.0.to_vec());
                Some((Tally::Rejected, CmEventKind::Rejected { reason, private_data }))
            }
            CloseReason::Unreachable => Some((Tally::Unreachable, CmEventKind::Unreachable)),
            CloseReason::Disconnected(data) => {
                let private_data = data.map(|data| data.0.to_vec()).unwrap_or_default();
                Some((Tally::Disconnected, CmEventKind::Disconnected { private_data }))
            }
            CloseReason::Rejected(_) | CloseReason::DisconnectUnanswered | CloseReason::Stale => {
                let private_data = Vec::new();
                Some((Tally::Disconnected, CmEventKind::Disconnected { private_data }))
            }
        };
        self.stop_qp(id, around);
        if let Some((tally, kind)) = kind {
            self.count(tally);
            self.tell(id, kind);
        }
    }

    /// Handles the end of TimeWait: no packet of the connection is in flight any more.
    //= check J9 — from now on, not before, its QPN may be another QP's
    pub(super) fn released(&mut self, id: CmId, around: &mut Around<'_>) {
        self.release(id, around);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(conn) = connection.conn.take() {
            self.by_conn.remove(&conn);
        }
        connection.stage = Stage::Over;
        let had_qp = connection.space == PortSpace::Tcp && connection.qp.is_some();
        if connection.is_orphan {
            self.connections.remove(&id);
        } else if had_qp {
            self.tell(id, CmEventKind::TimewaitExit);
        }
    }

    /// Ends a connection, or an attempt to connect, because of an error on this side.
    pub(super) fn fail(&mut self, id: CmId, error: RequestError, around: &mut Around<'_>) {
        self.stop_qp(id, around);
        self.count(Tally::Failed);
        self.tell(id, CmEventKind::ConnectError(error));
        self.end(id, RejectReason::NO_QP, around);
    }

    /// Ends the connection in `uroce-cm` without reporting an event.
    fn end(&mut self, id: CmId, reason: RejectReason, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let stage = std::mem::replace(&mut connection.stage, Stage::Over);
        let Some(conn) = connection.conn else {
            self.release(id, around);
            if self.connections.get(&id).is_some_and(|connection| connection.is_orphan) {
                self.connections.remove(&id);
            }
            return;
        };
        let space = connection.space;
        let _ = match stage {
            Stage::Over | Stage::Ending => return,
            Stage::Established if space == PortSpace::Udp => return,
            Stage::Established => self.cm.disconnect(around.now, conn, &[]),
            Stage::Requested if space == PortSpace::Udp => {
                let _ = self.refuse_datagrams(id, SidrStatus::REJECTED, &[], around);
                return;
            }
            Stage::Asked if space == PortSpace::Udp => {
                let _ = self.cm.destroy(around.now, conn);
                return self.released(id, around);
            }
            _ => self.cm.reject(around.now, conn, reason, &[], PrivateData::default()),
        };
    }

    pub(crate) fn destroy(
        &mut self,
        id: CmId,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        if let Some(listener) = self.listeners.get(&id) {
            let channel = listener.channel.clone();
            self.unlisten(id, around);
            channel.forget(id);
            return Ok(());
        }
        if self.stop_look_up(id) {
            return Ok(());
        }
        self.connection(id)?;
        self.give_up(id, around);
        Ok(())
    }

    /// Ends a connection for an application that destroys its id.
    pub(super) fn give_up(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get(&id) else { return };
        let is_connecting = matches!(connection.stage, Stage::Asked | Stage::Resolving(Next::Join));
        if connection.stage == Stage::Established {
            self.stop_qp(id, around);
            self.count(Tally::Disconnected);
        }
        self.orphan(id);
        let reason = if is_connecting { RejectReason::TIMEOUT } else { RejectReason::CONSUMER };
        self.end(id, reason, around);
    }

    /// Reports no further event of the id.
    fn orphan(&mut self, id: CmId) {
        self.leave_backlog(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.is_orphan = true;
        connection.channel.forget(id);
        if connection.conn.is_none() && connection.stage == Stage::Over {
            self.connections.remove(&id);
        }
    }

    /// Ends the connection of a QP that is being destroyed.
    pub(crate) fn qp_destroyed(&mut self, qpn: Qpn, around: &mut Around<'_>) {
        let Some(id) = self.by_qpn.get(&qpn).copied() else { return };
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(own) = &mut connection.qp {
            own.is_driven = false;
        }
        if !matches!(connection.stage, Stage::Over | Stage::Ending) {
            self.count(Tally::Disconnected);
            self.tell(id, CmEventKind::Disconnected { private_data: Vec::new() });
            self.end(id, RejectReason::NO_QP, around);
        }
    }

    /// Ends all connections. Called when the device closes.
    pub(crate) fn close(&mut self, around: &mut Around<'_>) {
        let ids: Vec<CmId> = self.connections.keys().copied().collect();
        for id in ids {
            self.give_up(id, around);
        }
        self.turn(around);
    }

    /// Moves a QP to ERR if the driver modifies it. Later calls have no effect.
    fn stop_qp(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(own) = &mut connection.qp
            && own.is_driven
            && connection.space == PortSpace::Tcp
        {
            // From now on the application modifies the QP, for example resets it.
            own.is_driven = false;
            // An error means that the QP is destroyed.
            let _ = around.modify_qp(own.qpn, &QpChange::to(QpState::Err));
        }
    }
}
