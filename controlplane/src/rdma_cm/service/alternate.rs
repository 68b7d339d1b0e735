//! Alternate paths of established connections: LAP and APR, and what follows a migration.
//!
//! Read first: IBA 12.8; IBA 17.2.8 for the migration.
//!
//! ```text
//!   ours:   cm_load_alternate ── neighbour ── LAP ──> … APR ── Modify QP (alternate path, REARM)
//!   theirs: LAP ── policy ── neighbour ── Modify QP (alternate path, REARM) ── APR
//! ```

use uroce_cm::Path;
use uroce_engine::ControlError;
use uroce_transport::{AltPath, ModifyError, QpChange};
use uroce_wire::cm::{Apr, AprStatus, CmPath, Lap, PrivateData};

use super::active::cm_path;
use super::common::{Common, Tally};
use super::terms::way_of_peer;
use crate::call::RequestError;
use crate::path::PathError;
use crate::rdma_cm::connection::{Change, Connection, Stage};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::source::{Way, choose};
use crate::rdma_cm::{
    AlternateFailure, AlternatePolicy, AlternateRequest, ConnError, ConnEvent, PathSpec, qp,
};

/// Private data of the LAP for a path on which the control planes agree. An application gives none
/// to a LAP.
const AGREED: &[u8] = b"uroce failover";

impl Connection {
    /// Proposes another alternate path to the peer.
    pub(crate) fn load_alternate(
        &mut self,
        path: &PathSpec,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let way = choose(context.ports, path)?;
        let waits_for_answer = matches!(self.change, Some(Change::Proposed(..)));
        let is_agreed = self.agreed_alternate.is_some();
        let is_ready = self.stage(&common.cm) == Stage::Established
            && self.space.connects()
            && (self.change.is_none() || is_agreed);
        if !is_ready {
            return Err(ConnError::WrongState.into());
        }
        self.drop_agreed();
        if is_agreed && waits_for_answer {
            // One LAP may be under way.
            self.change = Some(Change::Next(way));
        } else {
            self.change = Some(Change::Proposing(way));
            self.step_change(common, context);
        }
        Ok(())
    }

    /// Continues loading an alternate path. Called again once its neighbour is resolved.
    pub(super) fn step_change(&mut self, common: &mut Common, context: &mut ServiceContext<'_>) {
        if self.stage(&common.cm) != Stage::Established {
            // The connection has ended meanwhile: there is no QP to load the path into.
            self.change = None;
            return;
        }
        let (way, is_ours) = match self.change {
            Some(Change::Proposing(way)) => (way, true),
            Some(Change::Accepting(way)) => (way, false),
            _ => return,
        };
        match (self.look_up_alternate(&way, context), is_ours) {
            (Ok(None), _) => common.resolving.push(self.id),
            (Ok(Some(path)), true) => self.propose(way, path, common, context),
            (Err(error), true) => self.not_loaded(AlternateFailure::Local(error.into())),
            (Ok(Some(path)), false) => self.take_alternate(way, path, common, context),
            (Err(_), false) => self.refuse_alternate(AprStatus::INVALID_GID, common),
        }
    }

    fn propose(
        &mut self,
        way: Way,
        path: AltPath,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        let Some(conn) = self.conn else { return };
        let proposed = cm_path(&way, path.timeout);
        let mark = if self.agreed_alternate.is_some() { AGREED } else { &[] };
        let mark = PrivateData::new(mark).unwrap_or_default();
        match common.cm.load_alternate(context.now, conn, proposed, mark) {
            Ok(()) => self.change = Some(Change::Proposed(way, path)),
            Err(error) => {
                let error = ConnError::Protocol(error).into();
                self.not_loaded(AlternateFailure::Local(error));
            }
        }
    }

    /// Handles an APR.
    //= check I12 — the peer's status decides; a loaded path is armed again
    pub(super) fn alternate_answered(
        &mut self,
        apr: &Apr,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        let (way, path) = match self.change {
            Some(Change::Proposed(way, path)) => (way, path),
            Some(Change::Next(way)) => return self.begin_next(way, common, context),
            _ => return,
        };
        if apr.status != AprStatus::LOADED {
            return self.not_loaded(AlternateFailure::Refused(apr.status.0));
        }
        match self.load(path, context) {
            Ok(()) => {
                self.alternate = Some(way);
                self.change = None;
                common.count(Tally::AlternateLoaded);
                self.tell_of_alternate(ConnEvent::AlternateLoaded(Ok(())));
            }
            Err(error) => self.not_loaded(AlternateFailure::Local(error)),
        }
    }

    /// Handles that no APR has come.
    pub(super) fn alternate_unanswered(
        &mut self,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        match self.change {
            Some(Change::Proposed(..)) => self.not_loaded(AlternateFailure::NoAnswer),
            Some(Change::Next(way)) => self.begin_next(way, common, context),
            _ => {}
        }
    }

    /// Proposes the application's path, now that the LAP of the control plane is answered.
    fn begin_next(&mut self, way: Way, common: &mut Common, context: &mut ServiceContext<'_>) {
        self.change = Some(Change::Proposing(way));
        self.step_change(common, context);
    }

    /// Reports that an alternate path was not loaded. The connection is unchanged.
    pub(super) fn not_loaded(&mut self, failure: AlternateFailure) {
        self.change = None;
        self.tell_of_alternate(ConnEvent::AlternateLoaded(Err(failure)));
    }

    /// Reports an alternate path to the application, unless the application has no part in it.
    fn tell_of_alternate(&self, event: ConnEvent) {
        if self.agreed_alternate.is_none() {
            self.tell(event);
        }
    }

    /// Handles a LAP.
    //= check I12 — the APR's status tells that the path is the current one, or leads nowhere
    pub(super) fn alternate_proposed(
        &mut self,
        lap: &Lap,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        let way = match self.judge(&lap.alternate, context) {
            Ok(way) => way,
            Err(status) => return self.refuse_alternate(status, common),
        };
        let is_driven = self.qp.is_some_and(|own| own.is_driven);
        if lap.private_data.as_ref().starts_with(AGREED) {
            let is_expected = self.agreed_alternate == Some((way.source, way.vector.dgid));
            if !is_expected || self.change.is_some() {
                return self.refuse_alternate(AprStatus::REJECTED, common);
            }
            self.change = Some(Change::Accepting(way));
            return self.step_change(common, context);
        }
        // The applications' path comes before what the control planes agree on.
        self.drop_agreed();
        if self.change.is_some() {
            return self.refuse_alternate(AprStatus::REJECTED, common);
        }
        match self.param.alternate_policy {
            AlternatePolicy::Refuse => {
                self.refuse_alternate(AprStatus::REJECTED, common);
            }
            // The application modifies the QP and is not asked, so the path could not be loaded.
            AlternatePolicy::Accept if !is_driven => {
                self.refuse_alternate(AprStatus::REJECTED, common);
            }
            AlternatePolicy::Ask => {
                self.change = Some(Change::Asked(way));
                self.await_application(context.now, common);
                self.tell(ConnEvent::AlternateRequest(seen(&way)));
            }
            AlternatePolicy::Accept => {
                self.change = Some(Change::Accepting(way));
                self.step_change(common, context);
            }
        }
    }

    /// Answers the alternate path that the peer has proposed.
    pub(crate) fn answer_alternate(
        &mut self,
        accept: bool,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) -> Result<(), RequestError> {
        let Some(Change::Asked(way)) = self.change else {
            return Err(ConnError::WrongState.into());
        };
        if accept {
            self.change = Some(Change::Accepting(way));
            self.step_change(common, context);
        } else {
            self.refuse_alternate(AprStatus::REJECTED, common);
        }
        Ok(())
    }

    fn take_alternate(
        &mut self,
        way: Way,
        path: AltPath,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        if self.load(path, context).is_err() {
            return self.refuse_alternate(AprStatus::UNSUPPORTED, common);
        }
        self.alternate = Some(way);
        self.change = None;
        self.answer_lap(AprStatus::LOADED, common);
        common.count(Tally::AlternateLoaded);
        self.tell_of_alternate(ConnEvent::AlternateChanged(seen(&way)));
        // If the peer proposes this path again, its application does, and the policy counts.
        self.agreed_alternate = None;
    }

    fn refuse_alternate(&mut self, status: AprStatus, common: &mut Common) {
        if matches!(self.change, Some(Change::Asked(_) | Change::Accepting(_))) {
            self.change = None;
        }
        common.count(Tally::AlternateRefused);
        self.answer_lap(status, common);
    }

    fn answer_lap(&self, status: AprStatus, common: &mut Common) {
        let Some(conn) = self.conn else { return };
        let port = self.alternate.map_or(self.primary.port, |way| way.port);
        // An error means that the connection has ended meanwhile; no answer is needed then.
        let _ = common.cm.answer_alternate(conn, status, port, PrivateData::default());
    }

    /// Moves the connection's messages to its alternate path. Called when its QP has migrated.
    //= check I13 — later messages of the connection take the new path
    pub(super) fn path_migrated(&mut self, common: &mut Common) {
        if let Some(alternate) = self.alternate.take() {
            self.primary = alternate;
        }
        if let Some(conn) = self.conn {
            let _ = common.cm.path_migrated(conn);
        }
        common.count(Tally::Migrated);
    }

    /// Resolves an alternate path; `None` while its next hop is being resolved.
    fn look_up_alternate(
        &self,
        way: &Way,
        context: &mut ServiceContext<'_>,
    ) -> Result<Option<AltPath>, PathError> {
        let own = self.qp.map(|qp| qp.qpn).unwrap_or_default();
        let agreed = self.agreed.as_ref();
        let peer = agreed.map(|agreed| agreed.peer_qpn).unwrap_or_default();
        let timeout = agreed.map_or(self.param.ack_timeout, |agreed| agreed.timeout);
        context.alternate(way, own, peer, timeout)
    }

    /// Loads an alternate path into the QP and arms it. A QP that the application modifies is left
    /// alone.
    fn load(&self, path: AltPath, context: &mut ServiceContext<'_>) -> Result<(), RequestError> {
        match self.qp {
            Some(own) if self.agreed_alternate.is_some() => Ok(context.adopt(own.qpn, path)?),
            Some(own) if own.is_driven => {
                let rearm = qp::rearm(path);
                match context.modify_qp(own.qpn, &rearm) {
                    // A path is loaded already, and the connection keeps its state of migration.
                    // If it migrates before the other end has loaded the new one, it may come to
                    // a path that the other end does not accept.
                    Err(ControlError::Modify(ModifyError::NotMigrated(_))) => {
                        let change = QpChange { path_mig_state: None, ..rearm };
                        Ok(context.modify_qp(own.qpn, &change)?)
                    }
                    result => Ok(result?),
                }
            }
            _ => Ok(()),
        }
    }

    /// Checks that a path from a LAP can be the alternate path of this connection.
    fn judge(&self, proposed: &CmPath, context: &ServiceContext<'_>) -> Result<Way, AprStatus> {
        let way = way_of_peer(proposed, self.primary.port, context);
        let way = way.ok_or(AprStatus::INVALID_GID)?;
        let timeout = proposed.local_ack_timeout.code();
        let current: Path = cm_path(&self.primary, timeout);
        if current.is_same_way(cm_path(&way, timeout)) {
            return Err(AprStatus::IS_CURRENT);
        }
        if !self.space.connects() {
            return Err(AprStatus::REJECTED);
        }
        Ok(way)
    }
}

fn seen(way: &Way) -> AlternateRequest {
    let (local, peer) = way.addresses();
    AlternateRequest { local, peer }
}
