//! UD queue pairs by IP address and port: service ID resolution.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use uroce_controlplane::Device;
use uroce_controlplane::connect::{
    CmChannel, CmEventKind, CmId, ConnParam, ConnectSpec, Datagrams, PortSpace,
};
use uroce_wire::cm::SidrStatus;
use uroce_wire::{Qkey, Qpn};

use super::listener::{Ear, Unanswered};
use super::{CmError, Destination};
use crate::ah::AddressHandle;
use crate::context::Context;
use crate::pd::ProtectionDomain;
use crate::qp::QpControl;

/// Where datagrams to a service go.
#[derive(Debug)]
pub struct DatagramPeer {
    /// The way.
    pub ah: AddressHandle,
    /// The peer's queue pair.
    pub qpn: Qpn,
    /// The Q_Key that it takes datagrams by.
    pub qkey: Qkey,
    /// What the peer's application has sent with them: 136 bytes, of which it may have given the
    /// first only; the rest is zero.
    pub private_data: Vec<u8>,
}

/// Asks the listener at an IP address and port for its UD queue pair, with up to 180 bytes for its
/// application, and waits at most so long.
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
        match channel.next(left).ok_or(CmError::TimedOut)?.kind {
            CmEventKind::Resolved { datagrams, private_data } => {
                drop(question);
                let Datagrams { qpn, qkey, port, vector } = datagrams;
                return Ok(DatagramPeer {
                    ah: pd.create_ah(port, &vector)?,
                    qpn,
                    qkey,
                    private_data,
                });
            }
            CmEventKind::Rejected { reason, private_data } => {
                // SIDR's codes have eight bits.
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

/// A question under way.
struct Question<'a> {
    device: &'a Device,
    id: CmId,
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        // Where the control plane is gone, so is the question.
        let _ = self.device.cm_destroy(self.id);
    }
}

/// Hears questions for UD queue pairs, at an IP address and port. Dropping it refuses those that
/// wait.
#[derive(Debug)]
pub struct DatagramListener {
    ear: Ear,
}

impl DatagramListener {
    /// Listens as [`Listener::bind`](super::Listener::bind) does.
    ///
    /// # Errors
    ///
    /// See [`CmError`].
    pub fn bind(
        context: &Context,
        address: SocketAddr,
        backlog: u32,
    ) -> Result<DatagramListener, CmError> {
        Ok(DatagramListener { ear: Ear::new(context, PortSpace::Udp, address, backlog)? })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.ear.address()
    }

    /// The oldest question; waits for one at most so long.
    pub fn next(&self, timeout: Duration) -> Option<DatagramRequest> {
        self.ear.next(timeout).map(|request| DatagramRequest { request })
    }
}

impl AsFd for DatagramListener {
    /// Readable while a question waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ear.as_fd()
    }
}

/// A peer's question for a UD queue pair. Dropping it refuses it.
#[derive(Debug)]
pub struct DatagramRequest {
    request: Unanswered,
}

impl DatagramRequest {
    /// What the peer's application has sent with it: 180 bytes, of which the peer may have given the
    /// first only; the rest is zero.
    pub fn private_data(&self) -> &[u8] {
        &self.request.details().private_data
    }

    /// Whom it comes from.
    pub fn peer_addr(&self) -> SocketAddr {
        self.request.details().peer
    }

    /// The address and port that it is for.
    pub fn local_addr(&self) -> SocketAddr {
        self.request.details().local
    }

    /// Gives the peer a UD queue pair, its number and Q_Key, and up to 136 bytes for its
    /// application. A queue pair in RESET is taken to RTS first, with `rdma_cm`'s Q_Key. It may be
    /// given to any number of peers.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the question is refused then.
    pub fn answer(self, qp: &impl AsRef<QpControl>, private_data: &[u8]) -> Result<(), CmError> {
        let param = ConnParam { private_data: private_data.to_vec(), ..ConnParam::default() };
        self.request.accept(qp.as_ref(), &param)
    }

    /// Refuses it, with up to 136 bytes for the peer's application.
    ///
    /// # Errors
    ///
    /// See [`CmError`]; the question is refused without them then.
    pub fn refuse(self, private_data: &[u8]) -> Result<(), CmError> {
        self.request.reject(private_data)
    }
}
