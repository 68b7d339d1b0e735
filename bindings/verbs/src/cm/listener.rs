//! The passive side: listeners, and the requests that they hear.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_controlplane::Device;
use uroce_controlplane::connect::{
    self, CmChannel, CmEventKind, CmId, ConnParam, ConnQp, PortSpace,
};
use uroce_transport::QpType;
use uroce_wire::Qpn;

use super::{CmError, Connection};
use crate::context::Context;
use crate::qp::QpControl;

/// Hears requests to connect, at an IP address and port. Dropping it rejects those that wait.
#[derive(Debug)]
pub struct Listener {
    ear: Ear,
}

impl Listener {
    /// Listens at an address of the device, or at all with an unspecified one; IPv6's unspecified
    /// address hears IPv4, too. Port 0 is one that is free. Up to `backlog` requests wait to be
    /// taken; further ones are rejected.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn bind(context: &Context, address: SocketAddr, backlog: u32) -> Result<Listener, CmError> {
        Ok(Listener { ear: Ear::new(context, PortSpace::Tcp, address, backlog)? })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.ear.address
    }

    /// The oldest request; waits for one at most so long.
    pub fn next(&self, timeout: Duration) -> Option<ConnectRequest> {
        self.ear.next(timeout).map(|request| ConnectRequest { request })
    }
}

impl AsFd for Listener {
    /// Readable while a request waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ear.channel.as_fd()
    }
}

/// A peer's wish to connect. Dropping it rejects it.
#[derive(Debug)]
pub struct ConnectRequest {
    request: Unanswered,
}

impl ConnectRequest {
    /// What the peer's application has sent with it: 56 bytes, of which the peer may have given the
    /// first only; the rest is zero.
    pub fn private_data(&self) -> &[u8] {
        &self.request.details.private_data
    }

    /// Whom it comes from.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.details.peer
    }

    /// The address and port that it is for.
    pub fn local_addr(&self) -> SocketAddr {
        self.request.details.local
    }

    /// The service that the peer's queue pair has, and ours must have.
    pub fn qp_type(&self) -> QpType {
        self.request.details.qp_type
    }

    /// The peer's queue pair.
    pub fn peer_qpn(&self) -> Qpn {
        self.request.details.peer_qpn
    }

    /// Whether the peer offers an alternate path.
    pub fn has_alternate(&self) -> bool {
        self.request.details.has_alternate
    }

    /// Everything that the peer has asked for.
    pub fn details(&self) -> &connect::ConnectRequest {
        &self.request.details
    }

    /// Accepts it with a queue pair in RESET or INIT. That may be posted to once the connection is
    /// established, which is the next event; receives that are to be there for the peer's first
    /// message are posted before, in INIT.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the request is rejected then.
    pub fn accept(
        self,
        qp: &impl AsRef<QpControl>,
        param: &ConnParam,
    ) -> Result<Connection, CmError> {
        let qp = qp.as_ref();
        self.request.check_device(qp)?;
        let channel = CmChannel::new().map_err(CmError::Channel)?;
        let Unanswered { device, id, .. } = &self.request;
        device.cm_set_channel(*id, &channel)?;
        device.cm_accept(*id, ConnQp::Driven(qp.qpn()), param.clone())?;
        let connection = Connection::new(*id, channel, qp.clone());
        self.request.answered();
        Ok(connection)
    }

    /// Rejects it, with up to 148 bytes for the peer's application.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the request is rejected without them then.
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.request.reject(private_data)
    }
}

/// What both kinds of listeners are.
#[derive(Debug)]
pub(super) struct Ear {
    device: Arc<Device>,
    channel: Arc<CmChannel>,
    id: CmId,
    address: SocketAddr,
}

impl Ear {
    pub(super) fn new(
        context: &Context,
        space: PortSpace,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<Ear, CmError> {
        let device = Arc::clone(&context.device);
        let channel = CmChannel::new().map_err(CmError::Channel)?;
        let (id, address) = device.cm_listen(&channel, space, address, backlog)?;
        Ok(Ear { device, channel, id, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn next(&self, timeout: Duration) -> Option<Unanswered> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            let event = self.channel.next(left)?;
            // Anything else is about a peer that has changed its mind.
            if let CmEventKind::ConnectRequest(details) = event.kind {
                let device = Arc::clone(&self.device);
                return Some(Unanswered { device, id: event.id, details, open: true });
            }
        }
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // Where the control plane is gone, nobody listens any more.
        let _ = self.device.cm_destroy(self.id);
    }
}

/// A request to connect, or a question for a UD queue pair.
#[derive(Debug)]
pub(super) struct Unanswered {
    device: Arc<Device>,
    id: CmId,
    details: Box<connect::ConnectRequest>,
    open: bool,
}

impl Unanswered {
    pub(super) fn details(&self) -> &connect::ConnectRequest {
        &self.details
    }

    pub(super) fn check_device(&self, qp: &QpControl) -> Result<(), CmError> {
        if Arc::ptr_eq(&self.device, qp.device()) { Ok(()) } else { Err(CmError::OtherDevice) }
    }

    pub(super) fn accept(self, qp: &QpControl, param: &ConnParam) -> Result<(), CmError> {
        self.check_device(qp)?;
        self.device.cm_accept(self.id, ConnQp::Driven(qp.qpn()), param.clone())?;
        self.answered();
        Ok(())
    }

    pub(super) fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.device.cm_reject(self.id, private_data)?;
        self.answered();
        Ok(())
    }

    fn answered(mut self) {
        self.open = false;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if self.open {
            // Where the control plane is gone, the peer finds out by itself.
            let _ = self.device.cm_destroy(self.id);
        }
    }
}
