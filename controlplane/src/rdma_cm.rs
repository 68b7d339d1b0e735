//! Connections by IP address and port: the application's interface to the connection manager.
//!
//! Read first: IBA 12; Annex A11 for service IDs and the header in private data.
//!
//! ```text
//!   cm_listen ──> Listener                cm_connect ──> path ── REQ ──> … REP ── RTR, RTS ── RTU
//!   REQ ──> ConnectRequest ── cm_accept ──> INIT, RTR ── REP ──> … RTU, or a packet ── RTS
//!                     both sides: Established … Disconnected (QP in ERR) … TimewaitExit
//! ```
//!
//! The service ID contains port space and port as in Linux's `rdma_cm`. The private data of a
//! request begins with the address header of Annex A11. Either end may be an unmodified Linux
//! program.

mod channel;
mod connection;
mod context;
mod error;
mod event;
mod outbox;
mod param;
mod port_space;
mod qp;
mod service;
mod sink;
mod source;

pub use channel::CmChannel;
pub use error::ConnError;
pub use event::{AlternateFailure, AlternateRequest, ConnEvent, ConnectRequest};
pub use param::{
    Agreed, AlternatePolicy, BindOptions, ConnParam, ConnQp, ConnectSpec, Datagrams, PathSpec,
    PeerRdQp, ResolvedPath,
};
pub use port_space::is_own_node;
pub use sink::CmSink;

pub(crate) use connection::Connection;
pub(crate) use context::ServiceContext;
pub(crate) use service::{Common, ConnSeen, Proposal, Service};

/// Identifier of a bound address, a listener, a connection, the look-up of a UD QP, or the
/// resolution of a path. A value is not used again while the device is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CmId(pub(crate) u64);

/// Port space of a service ID. Numbers are those of Linux's `enum rdma_ucm_port_space`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PortSpace {
    /// Connections of RC, UC and XRC QPs and of EECs, 0x0106.
    Tcp,
    /// Look-ups of UD QPs by port, 0x0111.
    Udp,
    /// Connections, as of [`PortSpace::Tcp`], that Linux's programs use for XRC, 0x013f.
    Ib,
}

impl PortSpace {
    /// Returns whether its requests make connections; otherwise they look up UD QPs.
    pub const fn connects(self) -> bool {
        !matches!(self, PortSpace::Udp)
    }
}
