//! Resolution of the neighbours of connections.

use super::Driver;
use crate::connect::CmId;
use crate::connect::around::Around;
use crate::connect::connection::{Connection, Next, Stage};
use crate::path::PathError;

/// Most accepted requests that resolve neighbours at a time. Unknown senders may have sent the
/// requests; the limit leaves room in the neighbour table for other traffic.
const REPLIES_MAX: usize = 256;

impl Driver {
    /// Resolves a connection's neighbours, and takes its next step once they are resolved.
    pub(super) fn step(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Stage::Resolving(next) = connection.stage else { return };
        //= check J13 — a connection accepted beyond that waits without asking for its neighbour
        if next == Next::Reply && self.replies_asking >= REPLIES_MAX {
            return self.resolving.push(id);
        }
        match (look_up(connection, next, around), next) {
            (Ok(true), Next::Ask) => self.ask(id, around),
            (Ok(true), Next::Join) => self.join(id, around),
            (Ok(true), Next::Reply) => self.reply(id, around),
            (Ok(false), _) => {
                self.replies_asking += usize::from(next == Next::Reply);
                self.resolving.push(id);
            }
            (Err(error), _) => self.fail(id, error.into(), around),
        }
    }

    pub(super) fn resolve_waiting(&mut self, around: &mut Around<'_>) {
        // The waiting connections are tried in order, so that the oldest come first.
        self.replies_asking = 0;
        for id in std::mem::take(&mut self.resolving) {
            self.step(id, around);
            self.step_change(id, around);
        }
    }
}

/// Resolves all paths of a connection; tells whether that is complete. An alternate path that
/// cannot be resolved is an error if the application has named it, and is left out if the peer has.
fn look_up(
    connection: &mut Connection,
    next: Next,
    around: &mut Around<'_>,
) -> Result<bool, PathError> {
    let own = connection.qp.map(|qp| qp.qpn).unwrap_or_default();
    let agreed = connection.agreed.as_ref();
    let peer = agreed.map(|agreed| agreed.peer_qpn).unwrap_or_default();
    let timeout = agreed.map_or(connection.param.ack_timeout, |agreed| agreed.timeout);
    connection.primary_path = around.path(&connection.primary, own, peer)?;
    connection.alternate_path = None;
    // Both paths start to resolve at once.
    if let Some(alternate) = &connection.alternate {
        match around.alternate(alternate, own, peer, timeout) {
            Ok(path) => connection.alternate_path = path,
            Err(error) if next == Next::Ask => return Err(error),
            Err(_) => connection.alternate = None,
        }
    }
    let has_alternate = connection.alternate.is_none() || connection.alternate_path.is_some();
    Ok(connection.primary_path.is_some() && has_alternate)
}
