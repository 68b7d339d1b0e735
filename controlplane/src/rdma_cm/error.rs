//! Errors of calls on listeners and connections.

use std::net::{IpAddr, SocketAddr};

use uroce_wire::Qpn;

use super::CmId;

/// Reason for which a call was refused. A refused call has changed nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnError {
    /// No listener or connection has this id, or the id has been destroyed.
    #[error("no connection {0:?}")]
    UnknownId(CmId),
    /// Another id is bound to the same address and port.
    #[error("address {0} is in use")]
    AddressInUse(SocketAddr),
    /// Another id is bound to the port, and one of the two addresses is a wildcard.
    #[error("the port of {0} is in use, and one of the two addresses is a wildcard")]
    PortInUse(SocketAddr),
    /// Every port of the ephemeral range is bound.
    #[error("no port is left")]
    NoPortLeft,
    /// No port of the device has this address.
    #[error("{0} is not an address of this device")]
    NoSuchAddress(IpAddr),
    /// No port of the device leads to this address.
    #[error("no port leads to {0}")]
    Unreachable(IpAddr),
    /// The private data is longer than the message allows.
    #[error("{len} bytes of private data, at most {max} fit")]
    PrivateData {
        /// Number of bytes given.
        len: usize,
        /// Largest number of bytes.
        max: usize,
    },
    /// The call is not allowed for this id or in this state of its connection.
    #[error("not possible in this state of the connection")]
    WrongState,
    /// The QP's transport service is not the one that the call needs, for example that of a UD QP
    /// for a connection, or of an RC QP to accept the request of an EEC.
    #[error("{0:?} has another service than the connection or look-up needs")]
    WrongService(Qpn),
    /// The QP is part of a connection already.
    #[error("{0:?} has a connection already")]
    QpInUse(Qpn),
    /// The call needs a QP and none is given.
    #[error("a connection needs a QP")]
    NoQp,
    /// A count, timer code or depth is out of range.
    #[error("a connection parameter is out of range")]
    OutOfRange,
    /// `uroce-cm` refuses the call.
    #[error(transparent)]
    Protocol(#[from] uroce_cm::CmError),
    /// The device has as many listeners, connections and look-ups as it can have.
    #[error("too many listeners and connections")]
    TooMany,
}
