//! Ids that are bound to an address and port, among them the listeners.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Common, Service, service_id};
use crate::call::RequestError;
use crate::rdma_cm::connection::{Connection, Listener, Stage};
use crate::rdma_cm::context::ServiceContext;
use crate::rdma_cm::source::find_own;
use crate::rdma_cm::{BindOptions, CmId, CmSink, ConnError, PortSpace, is_own_node};

/// Largest number of requests that wait at one service ID, whatever backlogs its listeners have
/// asked for.
pub(super) const BACKLOG_MAX: u32 = 4096;

impl Service {
    /// Binds a new id to an address and listens there. Returns the id, and the address with the
    /// port that was chosen for port 0.
    pub(crate) fn listen(
        &mut self,
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        backlog: u32,
        context: &mut ServiceContext<'_>,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let (id, address) = self.bind(channel, space, address, options, context)?;
        match self.begin_listening(id, backlog) {
            Ok(()) => Ok((id, address)),
            Err(error) => {
                self.unlisten(id, context);
                Err(error)
            }
        }
    }

    /// Binds a new id to an address without listening there. Returns the id, and the address with
    /// the port that was chosen for port 0.
    pub(crate) fn bind(
        &mut self,
        channel: Arc<dyn CmSink>,
        space: PortSpace,
        address: SocketAddr,
        options: BindOptions,
        context: &mut ServiceContext<'_>,
    ) -> Result<(CmId, SocketAddr), RequestError> {
        let ip = address.ip();
        if !is_own_node(ip) && find_own(&context.ports.neighbours, ip, 1).is_none() {
            return Err(ConnError::NoSuchAddress(ip).into());
        }
        let id = self.new_id()?;
        let port = self.common.ports.bind(space, address, options, id)?;
        let address = SocketAddr::new(ip, port);
        let eecs = options.eecs;
        let listener = Listener { channel, space, address, eecs, backlog: None, waiting: 0 };
        self.common.listeners.insert(id, listener);
        Ok((id, address))
    }

    /// Lets a bound id receive requests. If it listens already, only its backlog changes.
    pub(crate) fn begin_listening(&mut self, id: CmId, backlog: u32) -> Result<(), RequestError> {
        let Common { cm, ports, listeners, .. } = &mut self.common;
        let listener = listeners.get_mut(&id).ok_or(ConnError::UnknownId(id))?;
        let backlog = Some(backlog.clamp(1, BACKLOG_MAX));
        if listener.backlog.is_none() {
            let (space, port) = (listener.space, listener.address.port());
            let is_first = ports.listen(space, port, id)?;
            if is_first {
                let service = service_id(space, port);
                cm.listen(service, BACKLOG_MAX as usize).map_err(ConnError::Protocol)?;
            }
        }
        listener.backlog = backlog;
        Ok(())
    }

    /// Tells whether there is a listener for requests to an address and port.
    pub(crate) fn is_heard(&self, space: PortSpace, to: SocketAddr) -> bool {
        self.common.ports.listener(space, to).is_some()
    }

    /// Removes a listener, or a bound id that does not listen. Requests that wait for it are
    /// rejected.
    pub(super) fn unlisten(&mut self, id: CmId, context: &mut ServiceContext<'_>) {
        let Some(listener) = self.common.listeners.remove(&id) else { return };
        let (space, port) = (listener.space, listener.address.port());
        let is_heard = self.common.ports.release(space, port, id);
        if listener.backlog.is_some() && !is_heard {
            // The id was the port's last listener, so `uroce-cm` stops listening for the service
            // ID.
            let _ = self.common.cm.unlisten(service_id(space, port));
        }
        let of_it = self.connections.iter().filter(|(_, connection)| {
            connection.listener == Some(id) && connection.stage(&self.common.cm) == Stage::Requested
        });
        let waiting: Vec<CmId> = of_it.map(|(id, _)| *id).collect();
        for id in waiting {
            self.with_known(id, |connection, common| connection.give_up(common, context));
        }
    }
}

impl Connection {
    /// Removes the request from its listener's backlog, if it is in one.
    pub(super) fn leave_backlog(&mut self, common: &mut Common) {
        if let Some(listener) = self.listener.take()
            && let Some(listener) = common.listeners.get_mut(&listener)
        {
            listener.waiting -= 1;
        }
    }
}
