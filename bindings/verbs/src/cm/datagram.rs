//! Service ID resolution: finds a peer's UD queue pair by IP address and port.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use uroce_controlplane::Device;
use uroce_controlplane::rdma_cm::{
    BindOptions, CmChannel, CmId, ConnEvent, ConnParam, ConnectSpec, Datagrams, PortSpace,
};
use uroce_wire::cm::SidrStatus;
use uroce_wire::{Qkey, Qpn};

use super::listener::{Ear, Unanswered};
use super::{CmError, Destination};
use crate::ah::AddressHandle;
use crate::context::Context;
use crate::pd::ProtectionDomain;
use crate::qp::QpControl;

/// A peer's UD queue pair, as [`resolve_datagram`] found it.
#[derive(Debug)]
pub struct DatagramPeer {
    /// Address handle for the path to the peer.
    pub ah: AddressHandle,
    /// Number of the peer's queue pair.
    pub qpn: Qpn,
    /// Q_Key of the peer's queue pair.
    pub qkey: Qkey,
    /// Private data that the peer's application sent with its answer: 136 bytes, padded with zeros.
    pub private_data: Vec<u8>,
}

/// Asks the listener at an IP address and port for its UD queue pair. `private_data` of up to 180
/// bytes goes to the peer's application. Blocks until the answer arrives or `timeout` has passed.
///
/// # Errors
///
/// See [`CmError`].
pub fn resolve_datagram(
    pd: &ProtectionDomain,
    to: impl Into<Destination>,
    private_data: &[u8],
    timeout: Duration,
) -> Result<DatagramPeer, CmError> {
    let to = to.into();
    let device = &pd.shared().device;
    let channel = CmChannel::new().map_err(CmError::Channel)?;
    let spec = ConnectSpec {
        space: PortSpace::Udp,
        port: to.port,
        source_port: to.source_port,
        path: to.path,
        alternate: None,
        qp: None,
        param: ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() },
    };
    let question = Question { device, id: device.cm_connect(&channel, spec)? };
    let end = Instant::now().checked_add(timeout);
    loop {
        let left = end.map_or(timeout, |end| end.saturating_duration_since(Instant::now()));
        match channel.next(left).ok_or(CmError::TimedOut)?.1 {
            ConnEvent::Resolved { datagrams, private_data } => {
                drop(question);
                let Datagrams { qpn, qkey, port, vector } = datagrams;
                return Ok(DatagramPeer {
                    ah: pd.create_ah(port, &vector)?,
                    qpn,
                    qkey,
                    private_data,
                });
            }
            ConnEvent::Rejected { reason, private_data } => {
                // SIDR status codes have eight bits.
                let status = SidrStatus(reason as u8);
                return Err(CmError::NotResolved { status, private_data });
            }
            other => {
                if let Some(error) = CmError::of(other) {
                    return Err(error);
                }
            }
        }
    }
}

/// A request for a UD queue pair that waits for its answer. Dropping it ends the request.
struct Question<'a> {
    device: &'a Device,
    id: CmId,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        // This fails only if the control plane has ended, and the request with it.
        let _ = self.device.cm_destroy(self.id);
    }
}

/// Accepts requests for UD queue pairs at an IP address and port. Dropping it refuses the pending
/// ones.
#[derive(Debug)]
pub struct DatagramListener {
    ear: Ear,
}

impl DatagramListener {
    /// Listens at an address of the device. See [`Listener::bind`](super::Listener::bind).
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn bind(
        context: &Context,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<DatagramListener, CmError> {
        Ok(DatagramListener {
            ear: Ear::new(context, PortSpace::Udp, address, BindOptions::default(), backlog)?,
        })
    }

    /// The address and port of this listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.ear.address()
    }

    /// Takes the oldest request. Blocks until there is one or `timeout` has passed (`None`).
    pub fn next(&self, timeout: Duration) -> Option<DatagramRequest> {
        self.ear.next(timeout).map(|request| DatagramRequest { request })
    }
}

impl AsFd for DatagramListener {
    /// The descriptor is readable while a request is pending.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ear.as_fd()
    }
}

/// A peer's request for a UD queue pair. Dropping it refuses the request.
#[derive(Debug)]
pub struct DatagramRequest {
    request: Unanswered,
}

impl DatagramRequest {
    /// Private data that the peer's application sent with the request: 180 bytes, padded with
    /// zeros.
    pub fn private_data(&self) -> &[u8] {
        &self.request.details().private_data
    }

    /// The peer's address and port.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.details().peer
    }

    /// The address and port that the request was sent to.
    pub fn local_addr(&self) -> SocketAddr {
        self.request.details().local
    }

    /// Answers with the number and Q_Key of a UD queue pair, and up to 136 bytes of private data
    /// for the peer's application. A queue pair in RESET is taken to RTS first, with the default
    /// Q_Key of `rdma_cm`. One queue pair may be given to any number of peers.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the request is refused.
    pub fn answer(self, qp: &impl AsRef<QpControl>, private_data: &[u8]) -> Result<(), CmError> {
        let param = ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() };
        self.request.accept(qp.as_ref(), &param)
    }

    /// Refuses the request, with up to 136 bytes of private data for the peer's application.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the request is refused without private data.
    pub fn refuse(self, private_data: &[u8]) -> Result<(), CmError> {
        self.request.reject(private_data)
    }
}
