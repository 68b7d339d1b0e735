//! Connections that wait for neighbours.

use super::Driver;
use crate::connect::CmId;
use crate::connect::around::Around;
use crate::connect::connection::{Connection, Next, Stage};
use crate::path::PathError;

/// Accepted requests whose neighbours are asked for at a time. Strangers may have sent them, and the
/// neighbour table has room for others, too.
const REPLIES_MAX: usize = 256;

impl Driver {
    /// Goes on with a connection that waits for neighbours, if they are known.
    pub(super) fn step(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let Stage::Resolving(next) = connection.stage else { return };
        //= check J13 — who was accepted beyond that waits without a question
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
        // Counted again: the first to wait are the first to ask.
        self.replies_asking = 0;
        for id in std::mem::take(&mut self.resolving) {
            self.step(id, around);
            self.step_change(id, around);
        }
    }
}

/// Are the headers of all paths known? An alternate path that leads nowhere is an error where it is
/// the application's wish; where the peer has named it the connection does without.
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
    // Both neighbours are asked at once.
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
