//! Automatic path migration.

use core::time::Duration;

/// What a QP's migrations have come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MigrationStats {
    /// Migrations since the QP left RESET, whoever asked for them.
    pub count: u32,
    /// Of the last one of an RC QP: the time from the last good acknowledgement before it to the
    /// first one on the new path; `None` as long as that has not come.
    pub failover: Option<Duration>,
}
