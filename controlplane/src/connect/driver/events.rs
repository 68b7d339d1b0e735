//! Dispatch of the events of `uroce-cm` to the driver's handlers.

use uroce_cm::{CmEvent, ConnId};

use super::Driver;
use crate::connect::AlternateFailure;
use crate::connect::around::Around;

impl Driver {
    pub(super) fn handle_event(&mut self, conn: ConnId, event: CmEvent, around: &mut Around<'_>) {
        match event {
            CmEvent::Request(request) => {
                return match self.by_conn.get(&conn).copied() {
                    Some(id) => self.yielded(id, conn, &request, around),
                    None => self.request(conn, *request, around),
                };
            }
            CmEvent::SidrRequest(request) => return self.sidr_requested(conn, &request, around),
            _ => {}
        }
        // A request that the driver refused at once has no id.
        let Some(id) = self.by_conn.get(&conn).copied() else { return };
        match event {
            CmEvent::Request(_) | CmEvent::SidrRequest(_) | CmEvent::Patience(_) => {}
            CmEvent::Accepted(rep) => self.accepted(id, &rep, around),
            CmEvent::Established(data) => {
                let data = data.map(|data| data.0.to_vec()).unwrap_or_default();
                self.established(id, &data, around);
            }
            CmEvent::DisconnectRequested(data) => self.disconnected(id, &data.0, around),
            CmEvent::LoadAlternate(lap) => self.alternate_proposed(id, &lap, around),
            CmEvent::AlternateAnswered(apr) => self.alternate_answered(id, &apr, around),
            CmEvent::AlternateTimedOut => self.not_loaded(id, AlternateFailure::NoAnswer),
            CmEvent::SidrReply(rep) => self.sidr_reply(id, &rep),
            CmEvent::Closed(reason) => self.closed(id, reason, around),
            CmEvent::Released => self.released(id, around),
        }
    }
}
