//! MRAs for a peer's messages that wait for the application's answer: REQ, REP and LAP.
//!
//! A message that the application answers within [`SOON`] causes no MRA. For any other message, the
//! MRA is sent before the peer would repeat the message.

use std::time::Duration;

use uroce_cm::Instant;
use uroce_wire::cm::{CmTimeout, PrivateData};

use super::{Common, Service};
use crate::rdma_cm::connection::{Change, Connection, Stage};
use crate::rdma_cm::context::ServiceContext;

/// Time for the application's answer before an MRA is sent.
const SOON: Duration = Duration::from_millis(100);
/// Time that the MRA asks for, so that the application can answer: 69 s, as on Linux.
const SERVICE_TIMEOUT: CmTimeout = CmTimeout::from_code(24);

impl Service {
    /// Sends an MRA for each message that has waited for [`SOON`] without an answer.
    //= check J7 — before the peer would repeat its message
    pub(super) fn ask_for_patience(&mut self, context: &ServiceContext<'_>) {
        let due = |(due, _): &mut (Instant, _)| *due <= context.now;
        while let Some((_, id)) = self.common.unanswered.pop_front_if(due) {
            // The connection may be gone.
            self.with(id, |connection, common| connection.ask_for_patience(common));
        }
    }
}

impl Connection {
    /// Records that the application has to answer a message of the connection.
    pub(super) fn await_application(&self, now: Instant, common: &mut Common) {
        common.unanswered.push_back((now + SOON, self.id));
    }

    fn ask_for_patience(&self, common: &mut Common) {
        let waits = matches!(self.stage(&common.cm), Stage::Requested | Stage::Answered)
            || matches!(self.change, Some(Change::Asked(_)));
        if let Some(conn) = self.conn
            && waits
            && self.space.connects()
        {
            let _ = common.cm.mra(conn, SERVICE_TIMEOUT, PrivateData::default());
        }
    }
}
