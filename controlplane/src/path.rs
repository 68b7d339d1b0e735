//! Paths: from a peer's GID to the headers in front of every packet of a QP.
//!
//! ```text
//!   AddressVector ── route ──> next hop ── neighbour ──> MAC ──> Encap ──> engine's template
//!                         └──> own ── Mac::LOOPBACK ──────────────┘
//! ```
//!
//! A path to an address of the device's own, of whichever port, is known at once and never leaves
//! the process. A link-local address is its own port's only.
//!
//! Invariants
//! - A path to another host is built on an address that its neighbour confirmed in the last
//!   [`REACHABLE`](neighbour::REACHABLE) time.
//! - Source and destination are of one IP version.
//! - A path is resolved when Modify QP or the address handle sets it and stays as it is. A neighbour
//!   that moves to another Ethernet address later is found again by a Modify QP from SQD to SQD with
//!   the same vector, or the connection migrates to its alternate path.
//!
//! Not here: when a connection migrates (the transport's, and [`crate::port_watch`]'s for links).

pub mod gid_table;
pub mod neighbour;
pub mod prefix;
pub mod route;
pub(crate) mod source;

use std::net::IpAddr;

use uroce_transport::{AltPath, Instant, PathAttr, StaticRate};
use uroce_wire::ethernet::Vlan;
use uroce_wire::{Encap, Gid, Mac, Pkey, Qpn, udp_source_port};

use neighbour::{Neighbours, Resolution};
use prefix::is_link_local;
use route::{NextHop, RouteError, Routes};

/// Hop limit of a path that names none: 0 and 1 would not leave the link.
const HOP_LIMIT: u8 = 64;

/// Where a QP's packets go, as Modify QP takes it, or those of an address handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// Our address: index into the GIDs of the QP's port.
    pub sgid_index: u8,
    /// The peer's address, of the same IP version.
    pub dgid: Gid,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits; also chooses the UDP source port unless it is 0.
    pub flow_label: u32,
    /// TTL or hop limit; 0 and 1 become 64.
    pub hop_limit: u8,
    /// Service level, 0 to 7: the priority (PCP) of the port's VLAN tag, if it has one.
    pub service_level: u8,
    /// The most that the path takes; a QP or an address handle sends no faster on it.
    pub static_rate: StaticRate,
}

impl AddressVector {
    /// The way to a peer with everything else at its default.
    pub fn to(dgid: Gid) -> Self {
        Self { dgid, ..Self::default() }
    }
}

/// An alternate path, as Modify QP takes it: where a connection goes when its own path fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternateVector {
    /// The way to the peer, from a GID of `port`.
    pub vector: AddressVector,
    /// The local port that it leaves by, from 1.
    pub port: u8,
    /// The partition's key on it.
    pub pkey: Pkey,
    /// Local ACK timeout on it, 4.096 µs · 2^code, 0 (never) to 31.
    pub timeout: u8,
}

impl AlternateVector {
    /// What the core takes, once the path is resolved.
    pub(crate) fn resolved(&self, path: PathAttr) -> AltPath {
        AltPath { path, port: self.port, pkey: self.pkey, timeout: self.timeout }
    }
}

/// Why there is no path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The device has no port of this number.
    #[error("there is no port {0}")]
    NoPort(u8),
    /// The port has no GID of this index.
    #[error("port {port} has no GID with index {index}")]
    NoGid {
        /// The port.
        port: u8,
        /// The index.
        index: u8,
    },
    /// No port has this address.
    #[error("no port has the address {0}")]
    NoAddress(IpAddr),
    /// IPv4 and IPv6 cannot talk.
    #[error("source {src} and destination {dst} are not of one IP version")]
    Versions {
        /// Our address.
        src: IpAddr,
        /// The peer's.
        dst: IpAddr,
    },
    /// A service level above 7.
    #[error("service level {0} is not within 0 to 7")]
    ServiceLevel(u8),
    /// No route.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The next hop does not answer ARP or neighbour discovery.
    #[error("no answer from {next_hop}, through which {dst} is reached")]
    NoAnswer {
        /// The peer.
        dst: IpAddr,
        /// Its neighbour on our link: itself or the gateway.
        next_hop: IpAddr,
    },
}

/// An address vector that has passed all checks, waiting for its next hop's address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    vector: AddressVector,
    source: Gid,
    pub(crate) port: u8,
    next_hop: NextHop,
}

impl Route {
    /// Finds the next hop of `vector` from the port of that number; `ports` are all of the device.
    pub(crate) fn find(
        vector: &AddressVector,
        port: u8,
        ports: &[Neighbours],
    ) -> Result<Self, PathError> {
        let next_hop = |routes: &Routes, dst| {
            let owner = ports.iter().map(Neighbours::routes).find(|routes| routes.is_own(dst));
            // On another link a link-local address is somebody else's.
            let owner = owner.filter(|_| !is_link_local(dst));
            owner.map_or_else(|| routes.next_hop(dst), |owner| Ok(owner.own_hop()))
        };
        Self::between(vector, port, ports, next_hop)
    }

    /// The same for a vector to a multicast group, which is on every link.
    pub(crate) fn to_group(
        vector: &AddressVector,
        port: u8,
        ports: &[Neighbours],
    ) -> Result<Self, PathError> {
        Self::between(vector, port, ports, |_, dst| Ok(NextHop::Neighbour(dst)))
    }

    fn between(
        vector: &AddressVector,
        port: u8,
        ports: &[Neighbours],
        next_hop: impl FnOnce(&Routes, IpAddr) -> Result<NextHop, RouteError>,
    ) -> Result<Self, PathError> {
        let index = vector.sgid_index;
        let routes = of_port(ports, port)?.routes();
        let source = routes.own().gid(index).ok_or(PathError::NoGid { port, index })?;
        let (src, dst) = (source.to_ip(), vector.dgid.to_ip());
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(PathError::Versions { src, dst });
        }
        if vector.service_level > 7 {
            return Err(PathError::ServiceLevel(vector.service_level));
        }
        Ok(Self { vector: *vector, source, port, next_hop: next_hop(routes, dst)? })
    }

    /// The Ethernet address of the next hop, if it is known; `neighbours` are those of its port.
    /// Asked in vain it is an error.
    pub(crate) fn resolve(
        &self,
        now: Instant,
        neighbours: &mut Neighbours,
    ) -> Result<Option<Mac>, PathError> {
        let next_hop = match self.next_hop {
            NextHop::Neighbour(next_hop) => next_hop,
            NextHop::Own => return Ok(Some(Mac::LOOPBACK)),
            NextHop::Twin(mac) => return Ok(Some(mac)),
        };
        match neighbours.resolve(now, next_hop) {
            Resolution::Ready(mac) => Ok(Some(mac)),
            Resolution::Pending => Ok(None),
            Resolution::Failed => {
                Err(PathError::NoAnswer { dst: self.vector.dgid.to_ip(), next_hop })
            }
        }
    }

    /// The path of datagrams, from whatever QP to whatever QP. Without a flow label the destination
    /// chooses the UDP source port.
    pub(crate) fn handle_path(&self, neighbours: &Neighbours, mac: Mac) -> PathAttr {
        let [.., a, b, c] = self.vector.dgid.0;
        let dest = Qpn::new(u32::from_be_bytes([0, a, b, c]));
        self.path(neighbours, mac, Qpn::default(), dest)
    }

    /// The path of a QP's packets.
    pub(crate) fn path(&self, neighbours: &Neighbours, mac: Mac, qpn: Qpn, dest: Qpn) -> PathAttr {
        let vector = &self.vector;
        let encap = Encap {
            src_mac: neighbours.mac(),
            dst_mac: mac,
            vlan: neighbours.vlan().map(|vid| Vlan { vid, pcp: vector.service_level }),
            src: self.source,
            dst: vector.dgid,
            traffic_class: vector.traffic_class,
            flow_label: vector.flow_label & 0xf_ffff,
            hop_limit: if vector.hop_limit > 1 { vector.hop_limit } else { HOP_LIMIT },
            src_port: udp_source_port(vector.flow_label, qpn, dest),
        };
        PathAttr { encap, rate: vector.static_rate }
    }
}

/// The neighbours of the port of that number, counted from 1.
pub(crate) fn of_port(ports: &[Neighbours], port: u8) -> Result<&Neighbours, PathError> {
    let at = usize::from(port).checked_sub(1);
    at.and_then(|at| ports.get(at)).ok_or(PathError::NoPort(port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: [&str; 2] = ["192.0.2.1/24", "2001:db8::1/64"];

    fn gid(text: &str) -> Gid {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn neighbours() -> Neighbours {
        let own = gid_table::GidTable::new(&OWN.map(|text| text.parse().unwrap()));
        Neighbours::new(Mac([2, 0, 0, 0, 0, 1]), Some(7), Routes::new(own, vec![]))
    }

    fn find(vector: AddressVector) -> Result<Route, PathError> {
        Route::find(&vector, 1, &[neighbours()])
    }

    #[test]
    fn a_path_has_the_vectors_fields_and_the_ports_tag() {
        let vector = AddressVector {
            sgid_index: 1,
            dgid: gid("2001:db8::2"),
            traffic_class: 0x68,
            flow_label: 0x12345,
            hop_limit: 3,
            service_level: 5,
            static_rate: StaticRate::from_mbps(25_000).unwrap(),
        };
        let route = find(vector).unwrap();
        let (own, dest) = (Qpn::new(0x11), Qpn::new(0x22));
        let path = route.path(&neighbours(), Mac([2, 0, 0, 0, 0, 2]), own, dest);
        let expected = Encap {
            src_mac: Mac([2, 0, 0, 0, 0, 1]),
            dst_mac: Mac([2, 0, 0, 0, 0, 2]),
            vlan: Some(Vlan { vid: 7, pcp: 5 }),
            src: gid("2001:db8::1"),
            dst: gid("2001:db8::2"),
            traffic_class: 0x68,
            flow_label: 0x12345,
            hop_limit: 3,
            src_port: udp_source_port(0x12345, own, dest),
        };
        assert_eq!(path, PathAttr { encap: expected, rate: vector.static_rate });
    }

    #[test]
    fn a_group_needs_no_neighbour_and_is_no_connections_peer() {
        let to = |text| AddressVector::to(gid(text));
        let group = |vector| Route::to_group(&vector, 1, &[neighbours()]);
        let mac = Mac([1, 0, 0x5e, 1, 2, 3]);
        let encap = group(to("239.1.2.3")).unwrap().handle_path(&neighbours(), mac).encap;
        assert_eq!((encap.dst_mac, encap.dst), (mac, gid("239.1.2.3")));
        assert!(encap.src_port >= 0xc000);
        assert!(matches!(group(to("ff0e::1")), Err(PathError::Versions { .. })));
        assert!(group(AddressVector { sgid_index: 1, ..to("ff0e::1") }).is_ok());
        let connected = find(to("239.1.2.3"));
        assert!(matches!(connected, Err(PathError::Route(RouteError::NotUnicast(_)))));
    }

    #[test]
    fn a_hop_limit_that_would_not_leave_the_link_becomes_64() {
        for (given, sent) in [(0, 64), (1, 64), (2, 2), (255, 255)] {
            let vector = AddressVector { hop_limit: given, ..AddressVector::to(gid("192.0.2.9")) };
            let route = find(vector).unwrap();
            let path = route.path(&neighbours(), Mac::default(), Qpn::new(2), Qpn::new(3));
            assert_eq!(path.encap.hop_limit, sent);
        }
    }

    #[test]
    fn every_address_of_the_device_is_known_at_once_from_each_of_its_ports() {
        let other = gid_table::GidTable::new(&["198.51.100.1/24".parse().unwrap()]);
        let other = Neighbours::new(Mac([2, 0, 0, 0, 0, 9]), None, Routes::new(other, vec![]));
        let mut ports = [neighbours(), other];
        for (port, sgid_index, dst) in [
            (1, 0, "192.0.2.1"),
            (1, 1, "2001:db8::1"),
            (1, 0, "198.51.100.1"),
            (2, 0, "192.0.2.1"),
        ] {
            let vector = AddressVector { sgid_index, ..AddressVector::to(gid(dst)) };
            let route = Route::find(&vector, port, &ports).unwrap();
            let own = &mut ports[usize::from(port) - 1];
            let mac = route.resolve(Instant::ZERO, own).unwrap().expect("it is known");
            let encap = route.path(own, mac, Qpn::new(2), Qpn::new(3)).encap;
            assert!(encap.template().is_loopback());
            assert_eq!(own.next_timeout(), None, "nobody is asked");
        }
        let absent = Route::find(&AddressVector::to(gid("192.0.2.1")), 3, &ports).unwrap_err();
        assert_eq!(absent, PathError::NoPort(3));
    }

    #[test]
    fn a_link_local_address_of_another_port_is_a_neighbours() {
        let port = |own: &[&str], last| {
            let own: Vec<_> = own.iter().map(|text| text.parse().unwrap()).collect();
            let routes = Routes::new(gid_table::GidTable::new(&own), vec![]);
            Neighbours::new(Mac([2, 0, 0, 0, 0, last]), None, routes)
        };
        let mut ports = [port(&["fe80::1/64", "fe80::7/64"], 1), port(&["fe80::2/64"], 2)];
        let vector = AddressVector::to(gid("fe80::2"));
        let route = Route::find(&vector, 1, &ports).unwrap();
        assert_eq!(route.resolve(Instant::ZERO, &mut ports[0]), Ok(None), "it is asked for");
        let own = AddressVector::to(gid("fe80::7"));
        let route = Route::find(&own, 1, &ports).unwrap();
        assert_eq!(route.resolve(Instant::ZERO, &mut ports[0]), Ok(Some(Mac::LOOPBACK)));
    }

    #[test]
    fn a_vector_that_leads_nowhere_says_why() {
        let to = |text: &str| AddressVector::to(gid(text));
        let error = |vector| find(vector).unwrap_err();
        let no_gid = AddressVector { sgid_index: 2, ..to("192.0.2.2") };
        assert_eq!(error(no_gid), PathError::NoGid { port: 1, index: 2 });
        assert!(matches!(error(to("2001:db8::2")), PathError::Versions { .. }));
        let level = AddressVector { service_level: 8, ..to("192.0.2.2") };
        assert_eq!(error(level), PathError::ServiceLevel(8));
        let kernels = error(to("127.0.0.1"));
        assert!(matches!(kernels, PathError::Route(RouteError::KernelLoopback(_))));
        assert!(matches!(error(to("10.0.0.1")), PathError::Route(RouteError::Unreachable(_))));
        assert!(matches!(error(to("224.0.0.1")), PathError::Route(RouteError::NotUnicast(_))));
    }
}
