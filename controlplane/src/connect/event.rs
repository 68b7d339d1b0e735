//! What a connection tells its application.

use std::net::SocketAddr;

use uroce_transport::QpType;
use uroce_wire::{PathMtu, Qpn};

use super::param::{Agreed, Datagrams, ResolvedPath};
use super::{CmId, PortSpace};
use crate::request::RequestError;

/// Something happened to a listener or connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CmEvent {
    /// Whose it is. With [`CmEventKind::ConnectRequest`] this is the new connection's.
    pub id: CmId,
    /// What happened.
    pub kind: CmEventKind,
}

/// What happened. Names are those of `RDMA_CM_EVENT_*` where there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CmEventKind {
    /// The way to an address is known ([`cm_resolve`](crate::Device::cm_resolve)).
    AddressResolved(ResolvedPath),
    /// The way to an address is not found.
    AddressError(RequestError),
    /// A peer wants to connect. To be accepted, rejected or destroyed.
    ConnectRequest(Box<ConnectRequest>),
    /// The peer has accepted a connection whose QP is the caller's business: it is to be taken to
    /// RTR and RTS, and `cm_establish` called then.
    ConnectResponse {
        /// What Modify QP takes.
        agreed: Agreed,
        /// From the peer's application.
        private_data: Vec<u8>,
    },
    /// The QPs are connected. Both may send.
    Established {
        /// What both sides have agreed on.
        agreed: Agreed,
        /// From the peer's application, where it accepted.
        private_data: Vec<u8>,
    },
    /// A UD QP that was asked for, or that asked for ours.
    Resolved {
        /// Where datagrams go.
        datagrams: Datagrams,
        /// From the peer's application.
        private_data: Vec<u8>,
    },
    /// The peer, or its stack, does not want the connection. It is over.
    Rejected {
        /// Reason code of REJ, 28 being the application's, or status code of SIDR_REP.
        reason: u16,
        /// From the peer's application.
        private_data: Vec<u8>,
    },
    /// No answer came within all retries. The connection is over.
    Unreachable,
    /// Something of this side failed: no path, or a refused Modify QP. The connection is over.
    ConnectError(RequestError),
    /// The connection has ended; a QP of the device is in ERR.
    Disconnected {
        /// From the peer's application, where it has ended it.
        private_data: Vec<u8>,
    },
    /// The QPN of the ended connection may be used again.
    TimewaitExit,
    /// The peer wants another alternate path ([`AlternatePolicy::Ask`](super::AlternatePolicy)).
    AlternateRequest(AlternateRequest),
    /// The peer has another alternate path, and so have we: it was accepted and loaded.
    AlternateChanged(AlternateRequest),
    /// What became of `cm_load_alternate`.
    AlternateLoaded(Result<(), AlternateFailure>),
}

impl CmEventKind {
    /// Can it come any number of times in a connection's life?
    pub(crate) fn repeats(&self) -> bool {
        matches!(
            self,
            CmEventKind::AlternateRequest(_)
                | CmEventKind::AlternateChanged(_)
                | CmEventKind::AlternateLoaded(_)
        )
    }
}

/// A peer's wish to connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    /// Who hears it.
    pub listener: CmId,
    /// A connection, or a question for a UD QP.
    pub space: PortSpace,
    /// The address and port that it is for.
    pub local: SocketAddr,
    /// Whom it comes from.
    pub peer: SocketAddr,
    /// The peer's QP; 0 with a question for a UD QP.
    pub peer_qpn: Qpn,
    /// The service that its QP has, and ours must have.
    pub qp_type: QpType,
    /// READs and ATOMICs that the peer would have outstanding here.
    pub responder_resources: u8,
    /// READs and ATOMICs that the peer would serve.
    pub initiator_depth: u8,
    /// The peer heeds end-to-end flow control.
    pub flow_control: bool,
    /// Transport retries that the peer asks for.
    pub retry_count: u8,
    /// RNR retries that the peer asks for.
    pub rnr_retry_count: u8,
    /// The path MTU that the peer asks for.
    pub path_mtu: PathMtu,
    /// The peer offers an alternate path.
    pub has_alternate: bool,
    /// The peer's receives come from an SRQ.
    pub has_srq: bool,
    /// What Modify QP takes, before this side has said what it brings; not with a question for a
    /// UD QP.
    pub agreed: Option<Agreed>,
    /// From the peer's application: up to 56 bytes, with a question for a UD QP up to 180.
    pub private_data: Vec<u8>,
}

/// A peer's wish for another alternate path, as this side sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AlternateRequest {
    /// Our address.
    pub local: std::net::IpAddr,
    /// The peer's address.
    pub peer: std::net::IpAddr,
}

/// Why the peer did not take another alternate path, or we could not offer it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlternateFailure {
    /// The peer said no: status code of APR.
    #[error("the peer refuses the alternate path: APR status {0}")]
    Refused(u8),
    /// The peer did not answer. Linux never does on RoCE. The connection is as it was.
    #[error("no answer about the alternate path")]
    NoAnswer,
    /// This side could not load it.
    #[error(transparent)]
    Local(RequestError),
}
