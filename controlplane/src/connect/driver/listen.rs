//! Ids bound to an address and port, and listeners among them.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Driver, service_id};
use crate::call::RequestError;
use crate::connect::around::Around;
use crate::connect::connection::{Listener, Stage};
use crate::connect::source::find_own;
use crate::connect::{BindOptions, CmError, CmId, CmSink, PortSpace, is_own_node};

/// Most requests that wait at one service ID, whatever backlog its listeners ask for.
pub(super) const BACKLOG_MAX: u32 = 4096;

impl Driver {
    pub(crate) fn listen(
        &mut self,
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        address: SocketAddr,
        backlog: u32,
        around: &mut Around<'_>,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let (id, address) = self.bind(channel, space, address, BindOptions::default(), around)?;
        match self.begin_listening(id, backlog) {
            Ok(()) => Ok((id, address)),
            Err(error) => {
                self.unlisten(id, around);
                Err(error)
            }
        }
    }

    pub(crate) fn bind(
        &mut self,
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        around: &mut Around<'_>,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let ip = address.ip();
        if !is_own_node(ip) && find_own(&around.ports.neighbours, ip, 1).is_none() {
            return Err(CmError::NoSuchAddress(ip).into());
        }
        let id = self.new_id()?;
        let port = self.ports.bind(space, address, options, id)?;
        let address = SocketAddr::new(ip, port);
        self.listeners.insert(id, Listener { channel, space, address, backlog: None, waiting: 0 });
        Ok((id, address))
    }

    pub(crate) fn begin_listening(&mut self, id: CmId, backlog: u32) -> Result<(), RequestError> {
        let listener = self.listeners.get_mut(&id).ok_or(CmError::UnknownId(id))?;
        let backlog = Some(backlog.clamp(1, BACKLOG_MAX));
        if listener.backlog.is_none() {
            let (space, port) = (listener.space, listener.address.port());
            let is_first = self.ports.listen(space, port, id)?;
            if is_first {
                let service = service_id(space, port);
                self.cm.listen(service, BACKLOG_MAX as usize).map_err(CmError::Protocol)?;
            }
        }
        listener.backlog = backlog;
        Ok(())
    }

    /// Tells whether there is a listener for requests to an address and port.
    pub(crate) fn is_heard(&self, space: PortSpace, to: SocketAddr) -> bool {
        self.ports.listener(space, to).is_some()
    }

    /// Removes a bound id or a listener. Requests waiting for it are rejected.
    pub(super) fn unlisten(&mut self, id: CmId, around: &mut Around<'_>) {
        let Some(listener) = self.listeners.remove(&id) else { return };
        let (space, port) = (listener.space, listener.address.port());
        let is_heard = self.ports.release(space, port, id);
        if listener.backlog.is_some() && !is_heard {
            // The id was the port's last listener, so that `uroce-cm` has one for it.
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

    /// Removes a request from its listener's backlog.
    pub(super) fn leave_backlog(&mut self, id: CmId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(listener) = connection.listener.take()
            && let Some(listener) = self.listeners.get_mut(&listener)
        {
            listener.waiting -= 1;
        }
    }
}
