//! Peers that are asked for patience: an application may take its time.
//!
//! A request or reply that is answered soon costs no message more; a peer hears of one that is not
//! before it would repeat it.

use std::time::Duration;

use uroce_cm::Instant;
use uroce_wire::cm::{CmTimeout, PrivateData};

use super::Driver;
use crate::connect::around::Around;
use crate::connect::connection::{Change, Stage};
use crate::connect::{CmId, PortSpace};

/// How long the application may take before the peer is asked.
const SOON: Duration = Duration::from_millis(100);
/// How long it may take then: 69 s, as on Linux.
const SERVICE_TIMEOUT: CmTimeout = CmTimeout::from_code(24);

impl Driver {
    /// The application has been asked.
    pub(super) fn await_application(&mut self, now: Instant, id: CmId) {
        self.unanswered.push_back((now + SOON, id));
    }

    /// Asks those peers for patience whose wishes still wait.
    //= check J7 — before the peer would repeat its message
    pub(super) fn ask_for_patience(&mut self, around: &Around<'_>) {
        while let Some((_, id)) = self.unanswered.pop_front_if(|(due, _)| *due <= around.now) {
            let Some(connection) = self.connections.get(&id) else { continue };
            let waits = matches!(connection.stage, Stage::Requested | Stage::Answered)
                || matches!(connection.change, Some(Change::Asked(_)));
            if let Some(conn) = connection.conn
                && waits
                && connection.space == PortSpace::Tcp
            {
                let _ = self.cm.mra(around.now, conn, SERVICE_TIMEOUT, PrivateData::default());
            }
        }
    }
}
