//! Automatic path migration of a queue pair.
//!
//! ```text
//!   MIGRATED ── rearm ──> REARM ── the peer too ──> ARMED ── migrate, or path failure ──> MIGRATED
//! ```
//!
//! Both ends load an alternate path and rearm. Each is ARMED when it has received a packet which
//! says that the other is ready. [`EventKind::PathMig`](crate::EventKind::PathMig) reports a
//! migration at either end.

use uroce_controlplane::{AlternateVector, RequestError};
use uroce_transport::{PathMigState, QpChange};

use super::QpControl;

impl QpControl {
    /// Loads an alternate path and resolves its next hop. Replaces a path that was loaded before.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn load_alternate_path(&self, alternate: &AlternateVector) -> Result<(), RequestError> {
        self.modify_paths(&QpChange::default(), None, Some(alternate))
    }

    /// Modifies the migration state from MIGRATED to REARM: the QP is ready to migrate to its
    /// alternate path. It is ARMED when the peer is ready too and has sent a packet. Query QP
    /// reports the state.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn rearm(&self) -> Result<(), RequestError> {
        self.path_mig_state(PathMigState::Rearm)
    }

    /// Modifies the migration state from ARMED to MIGRATED: the QP changes to its alternate path,
    /// and its packets make the peer do so too.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    pub fn migrate(&self) -> Result<(), RequestError> {
        self.path_mig_state(PathMigState::Migrated)
    }

    fn path_mig_state(&self, state: PathMigState) -> Result<(), RequestError> {
        self.modify(&QpChange { path_mig_state: Some(state), ..QpChange::default() }, None)
    }
}
