//! Why a call about a listener or connection was refused.

use std::net::{IpAddr, SocketAddr};

use uroce_wire::Qpn;

use super::CmId;

/// Why a call was refused. It changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmError {
    /// No listener or connection has this id (any more).
    #[error("no connection {0:?}")]
    UnknownId(CmId),
    /// Another id is bound to this very address.
    #[error("address {0} is in use")]
    AddressInUse(SocketAddr),
    /// Another id has the port, and one of the two has it at all addresses.
    #[error("the port of {0} is in use at another address, and one of both is all addresses")]
    PortInUse(SocketAddr),
    /// Every port of the ephemeral range is listened on.
    #[error("no port is left")]
    NoPortLeft,
    /// No port of the device has this address.
    #[error("{0} is no address of this device")]
    NoSuchAddress(IpAddr),
    /// No port of the device leads to this address.
    #[error("no port leads to {0}")]
    Unreachable(IpAddr),
    /// More private data than the message has room for.
    #[error("{len} bytes of private data where at most {max} fit")]
    PrivateData {
        /// Bytes given.
        len: usize,
        /// Bytes that fit.
        max: usize,
    },
    /// The call does not go with what the id is or with where its connection stands.
    #[error("not possible in this state of the connection")]
    WrongState,
    /// A UD QP for a connection, or another kind of mismatch between QP and port space.
    #[error("{0:?} has not the service that is asked for")]
    WrongService(Qpn),
    /// The QP has a connection already.
    #[error("{0:?} has a connection already")]
    QpInUse(Qpn),
    /// A connection needs a QP.
    #[error("a connection needs a QP")]
    NoQp,
    /// A count, timer code or depth beyond its range.
    #[error("a connection parameter is out of range")]
    OutOfRange,
    /// The connection manager's rules forbid it.
    #[error(transparent)]
    Protocol(#[from] uroce_cm::CmError),
    /// As many listeners and connections exist as the device can have.
    #[error("no connection is left")]
    TooMany,
}
