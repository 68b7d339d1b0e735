//! The passive side: listeners and the requests that they receive.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uroce_controlplane::Device;
use uroce_controlplane::rdma_cm::{
    self, BindOptions, CmChannel, CmId, ConnEvent, ConnParam, ConnQp, PeerRdQp, PortSpace,
};
use uroce_transport::QpType;
use uroce_wire::Qpn;

use super::{CmError, Connection};
use crate::context::Context;
use crate::qp::QpControl;

/// Accepts requests for connections at an IP address and port. Dropping it rejects the pending
/// ones.
#[derive(Debug)]
pub struct Listener {
    ear: Ear,
}

impl Listener {
    /// Listens at an address of the device. The unspecified address stands for all addresses; that
    /// of IPv6 includes IPv4. Port 0 selects a free port. Up to `backlog` requests wait to be
    /// taken; more are rejected.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn bind(context: &Context, address: SocketAddr, backlog: u32) -> Result<Listener, CmError> {
        let options = BindOptions::default();
        Ok(Listener { ear: Ear::new(context, PortSpace::Tcp, address, options, backlog)? })
    }

    /// Listens for requests of EE contexts ([`rd`](crate::rd)) instead of those of queue pairs. A
    /// request of the other kind is rejected by either kind of listener, with
    /// [`RejectReason::INVALID_TRANSPORT_TYPE`](super::RejectReason). See [`bind`](Self::bind).
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use uroce::cm::{ConnectParam, Connection, Listener};
    /// use uroce::{ConnectOptions, Context, Qkey, QpInit, RecvWr, SendWr};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let config = uroce::Config::from_toml(r#"
    /// #     [[device]]
    /// #     name = "left"
    /// #     [[device.port]]
    /// #     ethdev = { ring = "rd" }
    /// #     ip = ["192.0.2.1/24"]
    /// #     [[device]]
    /// #     name = "right"
    /// #     [[device.port]]
    /// #     ethdev = { ring = "rd" }
    /// #     ip = ["192.0.2.2/24"]
    /// # "#)?;
    /// # let (left, right) = (Context::open(&config, "left")?, Context::open(&config, "right")?);
    /// const SOON: Duration = Duration::from_secs(10);
    /// let options = ConnectOptions::default();
    /// let listener = Listener::bind_rd(&right, "192.0.2.2:7471".parse()?, 8)?;
    ///
    /// // The client, usually in another process.
    /// let here = left.open_rd_domain()?;
    /// let cq = left.create_cq(16)?;
    /// let mut sender = left.allocate_pd().create_rd_qp(&here, &QpInit::new(&cq))?;
    /// sender.start(Qkey(17), &options)?;
    /// let eec = here.create_eec()?;
    /// let active = Connection::begin(&eec, listener.local_addr(), &ConnectParam::default())?;
    ///
    /// // The server names the RD queue pair that requests are to go to.
    /// let there = right.open_rd_domain()?;
    /// let received = right.create_cq(16)?;
    /// let mut receiver = right.allocate_pd().create_rd_qp(&there, &QpInit::new(&received))?;
    /// receiver.start(Qkey(18), &options)?;
    /// receiver.post_recv(&RecvWr::new(&[]))?;
    /// let request = listener.next(SOON).ok_or("no request in time")?;
    /// let param = ConnectParam { rd_qp: Some(receiver.qpn()), ..ConnectParam::default() };
    /// let passive = request.accept(&there.create_eec()?, &param)?;
    /// passive.wait_established(SOON)?;
    ///
    /// active.wait_established(SOON)?;
    /// let to = active.rd_peer().ok_or("the peer names no queue pair")?;
    /// sender.post_send(&SendWr::send(&[]).signaled(), &to)?;
    /// cq.wait(SOON)?.ok_or("no completion")?.ok()?;
    /// received.wait(SOON)?.ok_or("no message")?.ok()?;
    /// # Ok(()) }
    /// ```
    pub fn bind_rd(
        context: &Context,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<Listener, CmError> {
        let options = BindOptions { eecs: true, ..BindOptions::default() };
        Ok(Listener { ear: Ear::new(context, PortSpace::Tcp, address, options, backlog)? })
    }

    /// The address and port of this listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.ear.address
    }

    /// Takes the oldest request. Blocks until there is one or `timeout` has passed (`None`).
    pub fn next(&self, timeout: Duration) -> Option<ConnectRequest> {
        self.ear.next(timeout).map(|request| ConnectRequest { request })
    }
}

impl AsFd for Listener {
    /// The descriptor is readable while a request is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ear.channel.as_fd()
    }
}

/// A peer's request for a connection. Dropping it rejects the request.
#[derive(Debug)]
pub struct ConnectRequest {
    request: Unanswered,
}

impl ConnectRequest {
    /// Private data that the peer's application sent with the request: 56 bytes, padded with zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.request.details.private_data
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.details.peer
    }

    /// The address and port that the request was sent to.
    pub fn local_addr(&self) -> SocketAddr {
        self.request.details.local
    }

    /// Transport service of the queue pair that can accept, or [`QpType::Eec`] for an EE context.
    pub fn qp_type(&self) -> QpType {
        self.request.details.qp_type
    }

    /// Number of the peer's queue pair or EE context.
    pub fn peer_qpn(&self) -> Qpn {
        self.request.details.peer_qpn
    }

    /// The RD queue pair that the peer names with its EE context, if any.
    pub fn peer_rd_qp(&self) -> Option<PeerRdQp> {
        self.request.details.agreed.and_then(|agreed| agreed.peer_rd_qp)
    }

    /// Whether the peer offers an alternate path.
    pub fn has_alternate(&self) -> bool {
        self.request.details.has_alternate
    }

    /// All fields of the request.
    pub fn details(&self) -> &rdma_cm::ConnectRequest {
        &self.request.details
    }

    /// Accepts the request with a queue pair or an EE context in RESET or INIT. Sends may be posted
    /// after [`ConnEvent::Established`], the next event.
    /// Receives for the peer's first messages are posted before this call, in INIT.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the request is rejected.
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

    /// Rejects the request, with up to 148 bytes of private data for the peer's application.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the request is rejected without private data.
    pub fn reject(self, private_data: &[u8]) -> Result<(), CmError> {
        self.request.reject(private_data)
    }
}

/// The common part of both kinds of listeners.
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
        options: BindOptions,
        backlog: u32,
    ) -> Result<Ear, CmError> {
        let device = Arc::clone(&context.device);
        let channel = CmChannel::new().map_err(CmError::Channel)?;
        let (id, address) = device.cm_listen(&channel, space, address, options, backlog)?;
        Ok(Ear { device, channel, id, address })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn next(&self, timeout: Duration) -> Option<Unanswered> {
        let end = Instant::now().checked_add(timeout);
        loop {
            let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
            let (id, event) = self.channel.next(left)?;
            // Other events concern peers that have given up their requests.
            if let ConnEvent::ConnectRequest(details) = event {
                let device = Arc::clone(&self.device);
                return Some(Unanswered { device, id, details, open: true });
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
        // This fails only if the control plane has ended, and the listener with it.
        let _ = self.device.cm_destroy(self.id);
    }
}

/// A request that was not answered yet, of either kind. Dropping it refuses the request.
#[derive(Debug)]
pub(super) struct Unanswered {
    device: Arc<Device>,
    id: CmId,
    details: Box<rdma_cm::ConnectRequest>,
    open: bool,
}

impl Unanswered {
    pub(super) fn details(&self) -> &rdma_cm::ConnectRequest {
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
            // This fails only if the control plane has ended. Then the peer's request times out.
            let _ = self.device.cm_destroy(self.id);
        }
    }
}
