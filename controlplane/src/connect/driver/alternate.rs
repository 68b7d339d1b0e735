//! Alternate paths of established connections: LAP and APR, and changes after a migration.
//!
//! Read first: IBA 12.8; IBA 17.2.8 for the migration.
//!
//! ```text
//!   ours:   cm_load_alternate ── neighbour ── LAP ──> … APR ── Modify QP (alternate path, REARM)
//!   theirs: LAP ── policy ── neighbour ── Modify QP (alternate path, REARM) ── APR
//! ```

use uroce_cm::Path;
use uroce_transport::AltPath;
use uroce_wire::cm::{Apr, AprStatus, CmPath, Lap, PrivateData};

use super::active::cm_path;
use super::terms::way_of_peer;
use super::{Driver, Tally};
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::connection::{Change, Connection, Stage};
use crate::connect::source::{Way, choose};
use crate::connect::{
    AlternateFailure, AlternatePolicy, AlternateRequest, CmError, CmEventKind, CmId, PathSpec,
    PortSpace, qp,
};
use crate::path::PathError;

impl Driver {
    pub(crate) fn load_alternate(
        &mut self,
        id: CmId,
        path: &PathSpec,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let way = choose(around.ports, path)?;
        let connection = self.connection(id)?;
        let is_ready = connection.stage == Stage::Established
            && connection.space == PortSpace::Tcp
            && connection.change.is_none();
        if !is_ready {
            return Err(CmError::WrongState.into());
        }
        connection.change = Some(Change::Proposing(way));
        self.step_change(id, around);
        Ok(())
    }

    /// Continues loading an alternate path. Called again once its neighbour is resolved.
    pub(super) fn step_change(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.stage != Stage::Established {
            // The connection has ended meanwhile: there is no QP to load the path into.
            connection.change = None;
            return;
        }
        let (way, is_ours) = match connection.change {
            Some(Change::Proposing(way)) => (way, true),
            Some(Change::Accepting(way)) => (way, false),
            _ => return,
        };
        match (look_up(connection, &way, around), is_ours) {
            (Ok(None), _) => self.resolving.push(id),
            (Ok(Some(path)), true) => self.propose(id, way, path, around),
            (Err(error), true) => self.not_loaded(id, AlternateFailure::Local(error.into())),
            (Ok(Some(path)), false) => self.take_alternate(id, way, path, around),
            (Err(_), false) => self.refuse_alternate(id, AprStatus::INVALID_GID, around),
        }
    }

    fn propose(&mut self, id: CmId, way: Way, path: AltPath, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(conn) = connection.conn else { return };
        let sent = self.cm.load_alternate(
            around.now,
            conn,
            cm_path(&way, path.timeout),
            PrivateData::default(),
        );
        match sent {
            Ok(()) => connection.change = Some(Change::Proposed(way, path)),
            Err(error) => {
                let error = CmError::Protocol(error).into();
                self.not_loaded(id, AlternateFailure::Local(error));
            }
        }
    }

    /// Handles an APR.
    //= check I12 — the peer's status decides; loaded is armed again
    pub(super) fn alternate_answered(&mut self, id: CmId, apr: &Apr, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Some(Change::Proposed(way, path)) = connection.change else { return };
        if apr.status != AprStatus::LOADED {
            return self.not_loaded(id, AlternateFailure::Refused(apr.status.0));
        }
        match load(connection, path, around) {
            Ok(()) => {
                connection.alternate = Some(way);
                connection.change = None;
                self.count(Tally::AlternateLoaded);
                self.tell(id, CmEventKind::AlternateLoaded(Ok(())));
            }
            Err(error) => self.not_loaded(id, AlternateFailure::Local(error)),
        }
    }

    /// Reports that an alternate path was not loaded. The connection is unchanged.
    pub(super) fn not_loaded(&mut self, id: CmId, failure: AlternateFailure) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.change = None;
        self.tell(id, CmEventKind::AlternateLoaded(Err(failure)));
    }

    /// Handles a LAP.
    //= check I12 — a path that is the current one, or leads nowhere, is refused for that
    pub(super) fn alternate_proposed(&mut self, id: CmId, lap: &Lap, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let way = match judge(connection, &lap.alternate, around) {
            Ok(way) => way,
            Err(status) => return self.refuse_alternate(id, status, around),
        };
        let is_driven = connection.qp.is_some_and(|own| own.is_driven);
        match connection.param.alternate_policy {
            AlternatePolicy::Refuse => {
                self.refuse_alternate(id, AprStatus::REJECTED, around);
            }
            // The application modifies the QP and has not been asked: the path could not be loaded.
            AlternatePolicy::Accept if !is_driven => {
                self.refuse_alternate(id, AprStatus::REJECTED, around);
            }
            AlternatePolicy::Ask => {
                connection.change = Some(Change::Asked(way));
                self.await_application(around.now, id);
                self.tell(id, CmEventKind::AlternateRequest(seen(&way)));
            }
            AlternatePolicy::Accept => {
                connection.change = Some(Change::Accepting(way));
                self.step_change(id, around);
            }
        }
    }

    pub(crate) fn answer_alternate(
        &mut self,
        id: CmId,
        accept: bool,
        around: &mut Around<'_>,
    ) -> Result<(), RequestError> {
        let connection = self.connection(id)?;
        let Some(Change::Asked(way)) = connection.change else {
            return Err(CmError::WrongState.into());
        };
        if accept {
            connection.change = Some(Change::Accepting(way));
            self.step_change(id, around);
        } else {
            self.refuse_alternate(id, AprStatus::REJECTED, around);
        }
        Ok(())
    }

    fn take_alternate(&mut self, id: CmId, way: Way, path: AltPath, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if load(connection, path, around).is_err() {
            return self.refuse_alternate(id, AprStatus::UNSUPPORTED, around);
        }
        connection.alternate = Some(way);
        connection.change = None;
        self.answer_lap(id, AprStatus::LOADED, around);
        self.count(Tally::AlternateLoaded);
        self.tell(id, CmEventKind::AlternateChanged(seen(&way)));
    }

    fn refuse_alternate(&mut self, id: CmId, status: AprStatus, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if matches!(connection.change, Some(Change::Asked(_) | Change::Accepting(_))) {
            connection.change = None;
        }
        self.count(Tally::AlternateRefused);
        self.answer_lap(id, status, around);
    }

    fn answer_lap(&mut self, id: CmId, status: AprStatus, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get(&id) else { return };
        let Some(conn) = connection.conn else { return };
        let port = connection.alternate.map_or(connection.primary.port, |way| way.port);
        // An error means that the connection has ended meanwhile; then no answer is needed.
        let _ = self.cm.answer_alternate(around.now, conn, status, port, PrivateData::default());
    }

    /// Moves the connection's messages to its alternate path. Called when its QP has migrated.
    //= check I13 — later messages of the connection take the new path
    pub(super) fn path_migrated(&mut self, id: CmId, around: &Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(alternate) = connection.alternate.take() {
            connection.primary = alternate;
        }
        if let Some(conn) = connection.conn {
            let _ = self.cm.path_migrated(around.now, conn);
        }
        self.count(Tally::Migrated);
    }
}

/// Resolves an alternate path; `None` while its next hop is being resolved.
fn look_up(
    connection: &Connection,
    way: &Way,
    around: &mut Around<'_>,
) -> Result<Option<AltPath>, PathError> {
    let own = connection.qp.map(|qp| qp.qpn).unwrap_or_default();
    let agreed = connection.agreed.as_ref();
    let peer = agreed.map(|agreed| agreed.peer_qpn).unwrap_or_default();
    let timeout = agreed.map_or(connection.param.ack_timeout, |agreed| agreed.timeout);
    around.alternate(way, own, peer, timeout)
}

/// Loads an alternate path into the QP and arms it. A QP that the application modifies is left
/// alone.
fn load(
    connection: &Connection,
    path: AltPath,
    around: &mut Around<'_>,
) -> Result<(), RequestError> {
    match connection.qp {
        Some(own) if own.is_driven => Ok(around.modify_qp(own.qpn, &qp::rearm(path))?),
        _ => Ok(()),
    }
}

/// Checks that a path from a LAP can be the alternate path of this connection.
fn judge(
    connection: &Connection,
    proposed: &CmPath,
    around: &Around<'_>,
) -> Result<Way, AprStatus> {
    let way = way_of_peer(proposed, connection.primary.port, around);
    let way = way.ok_or(AprStatus::INVALID_GID)?;
    let timeout = proposed.local_ack_timeout.code();
    let current: Path = cm_path(&connection.primary, timeout);
    if current.is_same_way(cm_path(&way, timeout)) {
        return Err(AprStatus::IS_CURRENT);
    }
    if connection.change.is_some() || connection.space != PortSpace::Tcp {
        return Err(AprStatus::REJECTED);
    }
    Ok(way)
}

fn seen(way: &Way) -> AlternateRequest {
    let (local, peer) = way.addresses();
    AlternateRequest { local, peer }
}
