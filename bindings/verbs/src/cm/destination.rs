//! Whom to connect to, and by which way.

use std::net::{IpAddr, SocketAddr};

use uroce_controlplane::connect::PathSpec;

/// Whom to connect to, and by which way. An address with a port is one, with everything else left
/// to the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The peer's port.
    pub port: u16,
    /// Our port, which the peer is told; 0 is any.
    pub source_port: u16,
    /// The way to the peer, its static rate included.
    pub path: PathSpec,
    /// Another way to it, which both ends are armed with once they are connected.
    pub alternate: Option<PathSpec>,
}

impl Destination {
    /// That address.
    pub fn to(address: SocketAddr) -> Destination {
        let (port, path) = (address.port(), PathSpec::to(address.ip()));
        Destination { port, source_port: 0, path, alternate: None }
    }

    /// From this address of ours.
    pub fn from(mut self, source: IpAddr) -> Destination {
        self.path.source = Some(source);
        self
    }

    /// With another way, from an address of ours to one of the peer's.
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
