//! Automatic path migration of a queue pair.
//!
//! ```text
//!   MIGRATED ── rearm ──> REARM ── the peer says the same ──> ARMED ── migrate, or the path fails ──> MIGRATED
//! ```
//!
//! Both ends load an alternate path and are told to arm; they are armed when each has seen a packet
//! of the other that says so. [`EventKind::PathMig`](crate::EventKind::PathMig) tells of a
//! migration at either end.

use uroce_controlplane::{AlternateVector, RequestError};
use uroce_transport::{PathMigState, QpChange};

use super::QpControl;

impl QpControl {
    /// Loads an alternate path, whose next hop is resolved first. It replaces one that was loaded
    /// before.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn load_alternate_path(&self, alternate: &AlternateVector) -> Result<(), RequestError> {
        self.modify_paths(&QpChange::default(), None, Some(alternate))
    }

    /// MIGRATED to REARM: the QP is ready to migrate to the alternate path that was loaded. It is
    /// ARMED as soon as the peer is ready too and has sent a packet; Query QP tells.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn rearm(&self) -> Result<(), RequestError> {
        self.path_mig_state(PathMigState::Rearm)
    }

    /// ARMED to MIGRATED: the QP leaves its path for the alternate one, and takes the peer along.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn migrate(&self) -> Result<(), RequestError> {
        self.path_mig_state(PathMigState::Migrated)
    }

    fn path_mig_state(&self, state: PathMigState) -> Result<(), RequestError> {
        self.modify(&QpChange { path_mig_state: Some(state), ..QpChange::default() }, None)
    }
}
