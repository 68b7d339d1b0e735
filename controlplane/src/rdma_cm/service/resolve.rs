//! Neighbour resolution for connections: the Ethernet addresses of the next hops of the primary and
//! the alternate path.

use super::{Common, Service};
use crate::path::PathError;
use crate::rdma_cm::connection::{Connection, Next, Stage};
use crate::rdma_cm::context::ServiceContext;

/// Largest number of accepted requests that resolve neighbours at a time. Unknown senders may have
/// sent the requests; the limit leaves room in the neighbour table for other traffic.
const REPLIES_MAX: usize = 256;

impl Service {
    /// Continues the connections with unresolved neighbours, the oldest first.
    pub(super) fn resolve_waiting(&mut self, context: &mut ServiceContext<'_>) {
        self.common.replies_asking = 0;
        for id in std::mem::take(&mut self.common.resolving) {
            // The connection may be gone.
            self.with(id, |connection, common| {
                connection.step(common, context);
                connection.step_change(common, context);
            });
        }
    }
}

impl Connection {
    /// Resolves the connection's neighbours, and takes its next step once they are resolved.
    pub(super) fn step(&mut self, common: &mut Common, context: &mut ServiceContext<'_>) {
        let Stage::Resolving(next) = self.stage(&common.cm) else { return };
        //= check J13 — beyond the limit, a connection waits without asking for its neighbour
        if next == Next::Reply && common.replies_asking >= REPLIES_MAX {
            return common.resolving.push(self.id);
        }
        match self.look_up(next, context) {
            Ok(true) => self.take_step(next, common, context),
            Ok(false) => {
                common.replies_asking += usize::from(next == Next::Reply);
                common.resolving.push(self.id);
            }
            Err(error) => self.fail(error.into(), common, context),
        }
    }

    fn take_step(&mut self, next: Next, common: &mut Common, context: &mut ServiceContext<'_>) {
        tracing::debug!(id = self.id.0, ?next, "neighbours resolved");
        self.next = None;
        let result = match next {
            Next::Ask => self.ask(common, context),
            Next::Join => self.join(common, context),
            Next::Reply => self.reply(common, context),
        };
        if let Err(error) = result {
            self.fail(error, common, context);
        }
    }

    /// Resolves all paths of the connection. Returns whether all are resolved. An alternate path
    /// that cannot be resolved is an error before the REQ is sent, and is left out later.
    fn look_up(&mut self, next: Next, context: &mut ServiceContext<'_>) -> Result<bool, PathError> {
        let own = self.qp.map(|qp| qp.qpn).unwrap_or_default();
        let agreed = self.agreed.as_ref();
        let peer = agreed.map(|agreed| agreed.peer_qpn).unwrap_or_default();
        let timeout = agreed.map_or(self.param.ack_timeout, |agreed| agreed.timeout);
        self.primary_path = context.path(&self.primary, own, peer)?;
        self.alternate_path = None;
        // Both paths are resolved at the same time, not one after the other.
        if let Some(alternate) = &self.alternate {
            match context.alternate(alternate, own, peer, timeout) {
                Ok(path) => self.alternate_path = path,
                Err(error) if next == Next::Ask => return Err(error),
                Err(_) => self.alternate = None,
            }
        }
        let has_alternate = self.alternate.is_none() || self.alternate_path.is_some();
        Ok(self.primary_path.is_some() && has_alternate)
    }
}
