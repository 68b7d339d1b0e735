//! MRA for requests and replies that wait for an application.
//!
//! A message that the application answers within [`SOON`] causes no MRA. For any other the MRA is
//! sent before the peer would repeat it.

use std::time::Duration;

use uroce_cm::Instant;
use uroce_wire::cm::{CmTimeout, PrivateData};

use super::Driver;
use crate::connect::around::Around;
use crate::connect::connection::{Change, Stage};
use crate::connect::{CmId, PortSpace};

/// Time for the application's answer before an MRA is sent.
const SOON: Duration = Duration::from_millis(100);
/// Time for the application's answer that the MRA asks for: 69 s, as on Linux.
const SERVICE_TIMEOUT: CmTimeout = CmTimeout::from_code(24);

impl Driver {
    /// Notes that the application has to answer a message of connection `id`.
    pub(super) fn await_application(&mut self, now: Instant, id: CmId) {
        self.unanswered.push_back((now + SOON, id));
    }

    /// Sends an MRA for each message that has waited for [`SOON`] without an answer.
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
