//! Connections by IP address and port: what applications see of the connection manager.
//!
//! ```text
//!   cm_listen ──> Listener                cm_connect ──> path ── REQ ──> … REP ── RTR, RTS ── RTU
//!   REQ ──> ConnectRequest ── cm_accept ──> INIT, RTR ── REP ──> … RTU, or a packet ── RTS
//!                     both sides: Established … Disconnected (QP in ERR) … TimewaitExit
//! ```
//!
//! A service id names port space and port as Linux's `rdma_cm` does, and requests carry its header,
//! so either end may be an unmodified Linux program.

mod around;
mod channel;
mod connection;
mod driver;
mod error;
mod event;
mod outbox;
mod param;
mod ports;
mod qp;
mod request;
mod sink;
mod source;

pub use channel::CmChannel;
pub use error::CmError;
pub use event::{AlternateFailure, AlternateRequest, CmEvent, CmEventKind, ConnectRequest};
pub use param::{
    Agreed, AlternatePolicy, BindOptions, ConnParam, ConnQp, ConnectSpec, Datagrams, PathSpec,
    ResolvedPath,
};
pub use ports::is_own_node;
pub use sink::CmSink;

pub(crate) use around::Around;
pub(crate) use driver::Driver;
pub(crate) use request::CmRequest;

/// A listener or a connection. A number is not used again while the device is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CmId(pub(crate) u64);

/// Whose ports they are. Numbers are those of Linux's `enum rdma_ucm_port_space`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum PortSpace {
    /// Connections of RC and UC QPs, 0x0106.
    Tcp,
    /// UD QPs that are asked for by port, 0x0111.
    Udp,
}
