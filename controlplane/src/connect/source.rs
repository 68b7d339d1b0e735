//! From IP addresses to a port and an address vector.
//!
//! Not here: the next hop's Ethernet address ([`crate::path`]).

use std::net::IpAddr;

use uroce_wire::Gid;

use super::PathSpec;
use crate::path::neighbour::Neighbours;
use crate::path::source::Source;
use crate::path::{AddressVector, PathError};
use crate::port_watch::Ports;

/// A way to a peer: where it leaves, and by which headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// The local port, from 1.
    pub(super) port: u8,
    pub(super) source: Gid,
    pub(super) vector: AddressVector,
}

impl Way {
    /// The addresses of both ends, ours first.
    pub(super) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.source.to_ip(), self.vector.dgid.to_ip())
    }
}

/// The way that `spec` names or, where it names no source, the best that the ports have.
pub(super) fn choose(ports: &Ports, spec: &PathSpec) -> Result<Way, PathError> {
    Ok(way(ports, spec, ports.source_for(spec.destination, named_source(spec))?))
}

/// The same to a multicast group.
pub(super) fn choose_for_group(ports: &Ports, spec: &PathSpec) -> Result<Way, PathError> {
    Ok(way(ports, spec, ports.source_for_group(spec.destination, named_source(spec))?))
}

fn named_source(spec: &PathSpec) -> Option<IpAddr> {
    spec.source.filter(|source| !source.is_unspecified())
}

fn way(ports: &Ports, spec: &PathSpec, source: Source) -> Way {
    let Source { port, sgid_index } = source;
    let dgid = Gid::from(spec.destination);
    let vector = AddressVector { sgid_index, dgid, ..spec.vector };
    let neighbours = &ports.neighbours[usize::from(port) - 1];
    let source = neighbours.routes().own().gid(sgid_index).unwrap_or_default();
    Way { port, source, vector }
}

/// The port with that address of ours, and the address's GID index.
pub(super) fn find_own(ports: &Ports, source: IpAddr) -> Option<(u8, u8)> {
    let mut numbered = ports.neighbours.iter().zip(1..);
    numbered.find_map(|(neighbours, port)| Some((port, index_of(neighbours, source)?)))
}

/// The GID index of a port's address.
pub(super) fn index_of(neighbours: &Neighbours, source: IpAddr) -> Option<u8> {
    neighbours.routes().own().index(source)
}
