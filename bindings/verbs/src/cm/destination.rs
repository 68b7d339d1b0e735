//! The peer to connect to, and the path there.

use std::net::{IpAddr, SocketAddr};

use uroce_controlplane::rdma_cm::PathSpec;

/// The peer to connect to, and the path there. A `SocketAddr` converts to a destination with the
/// defaults in all other fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The peer's port number.
    pub port: u16,
    /// The local port number, which is sent to the peer. 0 selects a free one.
    pub source_port: u16,
    /// The primary path to the peer, with its static rate.
    pub path: PathSpec,
    /// The alternate path, armed at both ends once they are connected.
    pub alternate: Option<PathSpec>,
}

impl Destination {
    /// The destination at this address and port, without an alternate path.
    pub fn to(address: SocketAddr) -> Destination {
        let (port, path) = (address.port(), PathSpec::to(address.ip()));
        Destination { port, source_port: 0, path, alternate: None }
    }

    /// Sets the local address of the primary path.
    pub fn from(mut self, source: IpAddr) -> Destination {
        self.path.source = Some(source);
        self
    }

    /// Sets the alternate path, from a local address to one of the peer's.
    pub fn alternate(mut self, source: IpAddr, destination: IpAddr) -> Destination {
        self.alternate = Some(PathSpec { source: Some(source), ..PathSpec::to(destination) });
        self
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Destination {
        Destination::to(address)
    }
}
