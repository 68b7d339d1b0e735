//! Dispatch of the events of `uroce-cm` to the connections' handlers.

use uroce_cm::{CmEvent, ConnId};

use super::{Common, Service};
use crate::rdma_cm::connection::Connection;
use crate::rdma_cm::context::ServiceContext;

impl Service {
    pub(super) fn handle_event(
        &mut self,
        conn: ConnId,
        event: CmEvent,
        context: &mut ServiceContext<'_>,
    ) {
        match (event, self.common.by_conn.get(&conn).copied()) {
            (CmEvent::Request(request), None) => self.request(conn, &request, context),
            (CmEvent::SidrRequest(request), None) => self.sidr_requested(conn, &request, context),
            (event, Some(id)) => self.with_known(id, |connection, common| {
                connection.handle_event(event, common, context);
            }),
            // The service has refused the request at once, so the event belongs to no id.
            (_, None) => {}
        }
    }
}

impl Connection {
    fn handle_event(
        &mut self,
        event: CmEvent,
        common: &mut Common,
        context: &mut ServiceContext<'_>,
    ) {
        match event {
            CmEvent::Request(request) => self.yielded(&request, common, context),
            // `uroce-cm` reports a SIDR_REQ only once, and then no id belongs to it yet.
            CmEvent::SidrRequest(_) | CmEvent::Patience(_) => {}
            CmEvent::Accepted(rep) => self.accepted(&rep, common, context),
            CmEvent::Established(data) => {
                let data = data.map(|data| data.0.to_vec()).unwrap_or_default();
                self.established(data, common, context);
            }
            CmEvent::DisconnectRequested(data) => self.disconnected(&data.0, common, context),
            CmEvent::LoadAlternate(lap) => self.alternate_proposed(&lap, common, context),
            CmEvent::AlternateAnswered(apr) => self.alternate_answered(&apr, common, context),
            CmEvent::AlternateTimedOut => self.alternate_unanswered(common, context),
            CmEvent::SidrReply(rep) => self.sidr_reply(&rep, common),
            CmEvent::Closed(reason) => self.closed(reason, common, context),
            CmEvent::Released => self.released(common, context),
        }
    }
}
