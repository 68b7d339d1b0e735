//! Choice of the port and address vector for a pair of IP addresses.
//!
//! Not here: the next hop's Ethernet address ([`crate::path`]).

use std::cmp::Reverse;
use std::net::IpAddr;

use uroce_wire::Gid;

use super::{PathSpec, is_own_node};
use crate::path::neighbour::Neighbours;
use crate::path::prefix::is_link_local;
use crate::path::source::Source;
use crate::path::{AddressVector, PathError};
use crate::port_watch::Ports;

/// A path to a peer: local port, source GID and address vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// Local port, from 1.
    pub(super) port: u8,
    pub(super) source: Gid,
    pub(super) vector: AddressVector,
}

impl Way {
    /// Returns the addresses of both ends, the local one first.
    pub(super) fn addresses(&self) -> (IpAddr, IpAddr) {
        (self.source.to_ip(), self.vector.dgid.to_ip())
    }
}

/// Returns the path for `spec`. If `spec` has no source, the best source of all ports is used. A
/// loopback or unspecified destination means the device itself.
pub(super) fn choose(ports: &Ports, spec: &PathSpec) -> Result<Way, PathError> {
    let source = named_source(spec);
    let destination = match is_own_node(spec.destination) {
        true => source.or_else(|| own_address(ports, spec.destination)),
        false => None,
    };
    let spec = PathSpec { destination: destination.unwrap_or(spec.destination), ..*spec };
    Ok(way(ports, &spec, ports.source_for(spec.destination, source)?))
}

/// Returns an address of the device itself. Prefers, in this order, the IP version of `like`, a
/// port that is up, an address that is not link-local, and the address that comes first.
fn own_address(ports: &Ports, like: IpAddr) -> Option<IpAddr> {
    let all = ports.neighbours.iter().zip(&ports.watches).flat_map(|(neighbours, watch)| {
        let own = neighbours.routes().own().prefixes();
        own.map(|own| (own.address(), watch.is_up()))
    });
    let ranked = all.zip(0..).map(|((ip, is_up), order)| {
        ((ip.is_ipv4() == like.is_ipv4(), is_up, !is_link_local(ip), Reverse(order)), ip)
    });
    ranked.max().map(|(_, ip)| ip)
}

/// Returns the path to a multicast group.
pub(super) fn choose_for_group(ports: &Ports, spec: &PathSpec) -> Result<Way, PathError> {
    Ok(way(ports, spec, ports.source_for_group(spec.destination, named_source(spec))?))
}

fn named_source(spec: &PathSpec) -> Option<IpAddr> {
    spec.source.filter(|source| !is_own_node(*source))
}

fn way(ports: &Ports, spec: &PathSpec, source: Source) -> Way {
    let Source { port, sgid_index } = source;
    let dgid = Gid::from(spec.destination);
    let vector = AddressVector { sgid_index, dgid, ..spec.vector };
    let neighbours = &ports.neighbours[usize::from(port) - 1];
    let source = neighbours.routes().own().gid(sgid_index).unwrap_or_default();
    Way { port, source, vector }
}

/// Returns the port with the local address `source`, and the address's GID index. Port `first` is
/// preferred if it has the address: several ports may have one link-local address.
pub(super) fn find_own(ports: &[Neighbours], source: IpAddr, first: u8) -> Option<(u8, u8)> {
    let holds = |(neighbours, port): (&Neighbours, u8)| Some((port, index_of(neighbours, source)?));
    let mut holders = ports.iter().zip(1..).filter_map(holds);
    holders.clone().find(|(port, _)| *port == first).or_else(|| holders.next())
}

/// Returns the GID index of a port's address.
pub(super) fn index_of(neighbours: &Neighbours, source: IpAddr) -> Option<u8> {
    neighbours.routes().own().index(source)
}

#[cfg(test)]
mod tests {
    use uroce_wire::Mac;

    use super::*;
    use crate::path::gid_table::GidTable;
    use crate::path::route::Routes;

    #[test]
    fn of_the_ports_with_an_address_the_first_asked_for_is_taken() {
        let port = |own: &[&str]| {
            let own: Vec<_> = own.iter().map(|text| text.parse().unwrap()).collect();
            Neighbours::new(Mac::default(), None, Routes::new(GidTable::new(&own), vec![]))
        };
        let ports = [port(&["192.0.2.1/24", "fe80::1/64"]), port(&["fe80::1/64"])];
        let find = |text: &str, first| find_own(&ports, text.parse().unwrap(), first);
        assert_eq!(find("fe80::1", 1), Some((1, 1)));
        assert_eq!(find("fe80::1", 2), Some((2, 0)));
        assert_eq!(find("192.0.2.1", 2), Some((1, 0)));
        assert_eq!(find("192.0.2.2", 1), None);
    }
}
