//! Listeners.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Driver, service_id};
use crate::connect::around::Around;
use crate::connect::connection::{Listener, Stage};
use crate::connect::source::find_own;
use crate::connect::{CmChannel, CmError, CmId, PortSpace};
use crate::request::RequestError;

/// Requests that may wait at one service id, whatever its listeners ask for.
pub(super) const BACKLOG_MAX: u32 = 4096;

impl Driver {
    pub(super) fn listen(
        &mut self,
        channel: Arc<CmChannel>,
        space: PortSpace,
        address: SocketAddr,
        backlog: u32,
        around: &mut Around<'_>,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let ip = address.ip();
        if !ip.is_unspecified() && find_own(around.ports, ip).is_none() {
            return Err(CmError::NoSuchAddress(ip).into());
        }
        let id = self.new_id()?;
        let taken = match address.port() {
            0 => CmError::NoPortLeft,
            _ => CmError::AddressInUse(address),
        };
        let is_first = !self.ports.is_bound(space, address.port());
        let port = self.ports.bind(space, address, id).ok_or(taken)?;
        if is_first
            && let Err(error) = self.cm.listen(service_id(space, port), BACKLOG_MAX as usize)
        {
            self.ports.release(space, port, id);
            return Err(CmError::Protocol(error).into());
        }
        let address = SocketAddr::new(ip, port);
        let backlog = backlog.clamp(1, BACKLOG_MAX);
        self.listeners.insert(id, Listener { channel, space, address, backlog, waiting: 0 });
        Ok((id, address))
    }

    /// Takes a listener away; what waits for it is rejected.
    pub(super) fn unlisten(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(listener) = self.listeners.remove(&id) else { return };
        let (space, port) = (listener.space, listener.address.port());
        if !self.ports.release(space, port, id) {
            // Nobody else listens there, so the CM knows it.
            let _ = self.cm.unlisten(service_id(space, port));
        }
        let of_it = self.connections.iter().filter(|(_, connection)| {
            connection.listener == Some(id) && connection.stage == Stage::Requested
        });
        let waiting: Vec<CmId> = of_it.map(|(id, _)| *id).collect();
        for id in waiting {
            self.give_up(id, around);
        }
    }

    /// A request no longer waits in its listener's backlog.
    pub(super) fn leave_backlog(&mut self, id: CmId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(listener) = connection.listener.take()
            && let Some(listener) = self.listeners.get_mut(&listener)
        {
            listener.waiting -= 1;
        }
    }
}
