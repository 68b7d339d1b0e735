//! Events of listeners and connections.

use std::net::SocketAddr;

use uroce_transport::QpType;
use uroce_wire::{PathMtu, Qpn};

use super::param::{Agreed, Datagrams, ResolvedPath};
use super::{CmId, PortSpace};
use crate::call::RequestError;

/// An event of a listener, a connection or a look-up. Names are those of Linux's `RDMA_CM_EVENT_*`
/// where one exists.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnEvent {
    /// The path to an address is resolved ([`cm_resolve`](crate::Device::cm_resolve)).
    AddressResolved(ResolvedPath),
    /// The path to an address could not be resolved.
    AddressError(RequestError),
    /// A peer requests a connection. The event has the id of the new connection, which the
    /// application accepts, rejects or destroys.
    ConnectRequest(Box<ConnectRequest>),
    /// The peer has accepted the connection. Reported if the application modifies the QP
    /// ([`ConnQp::Foreign`](super::ConnQp::Foreign)). The application takes the QP to RTR and RTS,
    /// then calls [`cm_establish`](crate::Device::cm_establish).
    ConnectResponse {
        /// Attributes for Modify QP.
        agreed: Agreed,
        /// Private data of the peer.
        private_data: Vec<u8>,
    },
    /// The connection is established; both sides may send.
    Established {
        /// Parameters that both sides have agreed on.
        agreed: Agreed,
        /// Private data of the peer's REP, or of its RTU.
        private_data: Vec<u8>,
    },
    /// The UD QP of a look-up is found.
    Resolved {
        /// Destination of the datagrams.
        datagrams: Datagrams,
        /// Private data of the peer.
        private_data: Vec<u8>,
    },
    /// The peer's application or its stack rejected the connection, which is over.
    Rejected {
        /// Reason code of the REJ (28 is the application's), or status code of the SIDR_REP.
        reason: u16,
        /// Private data of the peer.
        private_data: Vec<u8>,
    },
    /// The peer did not answer within all retries. The connection is over.
    Unreachable,
    /// The connection failed on the local side: there is no path, or Modify QP was refused. The
    /// connection is over.
    ConnectError(RequestError),
    /// The connection has ended. A QP that the control plane modifies is in ERR.
    Disconnected {
        /// Private data of the peer's DREQ or DREP; empty without one.
        private_data: Vec<u8>,
    },
    /// TimeWait is over: the QPN of the ended connection may be used again.
    TimewaitExit,
    /// The peer proposes another alternate path ([`AlternatePolicy::Ask`](super::AlternatePolicy)).
    AlternateRequest(AlternateRequest),
    /// The alternate path that the peer proposed is accepted. It is loaded into the QP and armed,
    /// unless the application modifies the QP.
    AlternateChanged(AlternateRequest),
    /// Outcome of [`cm_load_alternate`](crate::Device::cm_load_alternate).
    AlternateLoaded(Result<(), AlternateFailure>),
}

impl ConnEvent {
    /// Tells whether the connection is over with this event: it has ended, or was not established.
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            ConnEvent::Rejected { .. }
                | ConnEvent::Unreachable
                | ConnEvent::ConnectError(_)
                | ConnEvent::Disconnected { .. }
        )
    }

    /// Tells whether this kind of event can occur any number of times for one connection.
    pub(crate) fn repeats(&self) -> bool {
        matches!(
            self,
            ConnEvent::AlternateRequest(_)
                | ConnEvent::AlternateChanged(_)
                | ConnEvent::AlternateLoaded(_)
        )
    }
}

/// A peer's request for a connection or for a UD QP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// The listener that received the request.
    pub listener: CmId,
    /// [`PortSpace::Tcp`] for a connection, [`PortSpace::Udp`] for the look-up of a UD QP.
    pub space: PortSpace,
    /// Destination address and port of the request.
    pub local: SocketAddr,
    /// Source address and port of the request.
    pub peer: SocketAddr,
    /// The peer's QPN; its EECN if `qp_type` is [`QpType::Eec`]; 0 for a look-up.
    pub peer_qpn: Qpn,
    /// Transport service of the QP that can accept. [`QpType::Eec`] stands for an EEC: the service
    /// is RD.
    pub qp_type: QpType,
    /// READs and ATOMICs that the peer asks to have outstanding at this side.
    pub responder_resources: u8,
    /// READs and ATOMICs that the peer executes at a time.
    pub initiator_depth: u8,
    /// The peer uses end-to-end flow control.
    pub flow_control: bool,
    /// Transport retries that the peer asks for, 0 to 7.
    pub retry_count: u8,
    /// RNR retries that the peer asks for, 0 to 7.
    pub rnr_retry_count: u8,
    /// Path MTU that the peer asks for.
    pub path_mtu: PathMtu,
    /// The request has an alternate path that this side can use.
    pub has_alternate: bool,
    /// The peer receives from an SRQ.
    pub has_srq: bool,
    /// Attributes for Modify QP, before this side's limits are applied; `None` for a look-up.
    pub agreed: Option<Agreed>,
    /// Private data of the peer's application: up to 56 bytes for a connection, 180 for a look-up.
    pub private_data: Vec<u8>,
}

/// Addresses of an alternate path that the peer proposes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternateRequest {
    /// Local address.
    pub local: std::net::IpAddr,
    /// The peer's address.
    pub peer: std::net::IpAddr,
}

/// Reason for which an alternate path that we proposed was not loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlternateFailure {
    /// The peer refused it, with this status code in the APR.
    #[error("the peer refuses the alternate path: APR status {0}")]
    Refused(u8),
    /// The peer did not answer. Linux never answers on RoCE. The connection is unchanged.
    #[error("no answer about the alternate path")]
    NoAnswer,
    /// The local side could not load the path.
    #[error(transparent)]
    Local(RequestError),
}
