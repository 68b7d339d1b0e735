//! Paths: from a peer's GID to the headers of every packet of a QP.
//!
//! ```text
//!   AddressVector ── route ──> next hop ── neighbour ──> MAC ──> Encap ──> engine's template
//!                         └──> own ── Mac::LOOPBACK ──────────────┘
//! ```
//!
//! A path to an address of the device itself, on any port, is resolved at once, and its packets
//! never leave the process. A link-local address is valid on its own port only.
//!
//! Invariants
//! - A path to another host uses an Ethernet address that the neighbour has confirmed within the
//!   last [`REACHABLE`](neighbour::REACHABLE) time.
//! - Source and destination have the same IP version.
//! - A path is resolved when Modify QP or an address handle sets it, and does not change
//!   afterwards. If the neighbour moves to another Ethernet address later, a Modify QP from SQD to
//!   SQD with the same vector resolves it again, or the connection migrates to its alternate path.
//!
//! Not here: the decision to migrate a connection (`uroce-transport`, and `port_watch` for links
//! that go down).

pub mod gid_table;
pub mod neighbour;
pub mod prefix;
pub mod route;
pub(crate) mod source;

use std::net::IpAddr;

use uroce_transport::{AltPath, Instant, PathAttr, StaticRate};
use uroce_wire::{Encap, Gid, Mac, Pkey, Qpn, udp_source_port};

use neighbour::{Neighbours, Resolution};
use prefix::is_link_local;
use route::{NextHop, RouteError, Routes};

/// Hop limit of a path that names none. Packets with 0 or 1 would not leave the link.
const HOP_LIMIT: u8 = 64;

/// Address vector: destination and packet headers of a connected QP or of an address handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    /// Local address: index into the GID table of the QP's port.
    pub sgid_index: u8,
    /// Address of the peer, of the same IP version.
    pub dgid: Gid,
    /// IPv4 TOS or IPv6 traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// IPv6 flow label, 20 bits. It also chooses the UDP source port unless it is 0.
    pub flow_label: u32,
    /// UDP source port, 0xC000 to 0xFFFF, by which a network with several paths (ECMP) chooses one;
    /// 0: chosen by the flow label, or without one by both QP numbers.
    pub udp_source_port: u16,
    /// IPv4 TTL or IPv6 hop limit; 0 and 1 become 64.
    pub hop_limit: u8,
    /// Service level, 0 to 7: the priority (PCP) of the port's VLAN tag, if the port has one and
    /// gives the DSCP none.
    pub service_level: u8,
    /// Highest rate of the path; the QP or address handle does not send faster.
    pub static_rate: StaticRate,
}

impl AddressVector {
    /// Creates a vector to a peer with everything else at its default.
    pub fn to(dgid: Gid) -> Self {
        Self { dgid, ..Self::default() }
    }
}

/// Alternate path for Modify QP, which a connection uses after a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternateVector {
    /// Address vector of the peer, with a GID index of `port`.
    pub vector: AddressVector,
    /// Local port, from 1.
    pub port: u8,
    /// P_Key on this path.
    pub pkey: Pkey,
    /// Local ACK timeout on this path, 4.096 µs · 2^code, 0 (never) to 31.
    pub timeout: u8,
}

impl AlternateVector {
    /// Builds the transport's attribute from the resolved path.
    pub(crate) fn resolved(&self, path: PathAttr) -> AltPath {
        AltPath { path, port: self.port, pkey: self.pkey, timeout: self.timeout }
    }
}

/// Reason for which there is no path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The device has no port with this number.
    #[error("there is no port {0}")]
    NoPort(u8),
    /// The port has no GID with this index.
    #[error("port {port} has no GID with index {index}")]
    NoGid {
        /// Port, from 1.
        port: u8,
        /// GID index.
        index: u8,
    },
    /// No port of the device has this address.
    #[error("no port has the address {0}")]
    NoAddress(IpAddr),
    /// The local address and the peer's have different IP versions.
    #[error("source {src} and destination {dst} have different IP versions")]
    Versions {
        /// Local address.
        src: IpAddr,
        /// Address of the peer.
        dst: IpAddr,
    },
    /// The service level is above 7.
    #[error("service level {0} is not within 0 to 7")]
    ServiceLevel(u8),
    /// The UDP source port is not of the dynamic range.
    #[error("UDP source port {0} is not within 49152 to 65535, nor 0 for a port of uroce's choice")]
    SourcePort(u16),
    /// There is no route to the peer.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// The next hop did not answer ARP or neighbour discovery.
    #[error("no answer from {next_hop}, through which {dst} is reached")]
    NoAnswer {
        /// Address of the peer.
        dst: IpAddr,
        /// Address of the next hop on the link: the peer or a gateway.
        next_hop: IpAddr,
    },
}

/// A checked address vector with its next hop, to be resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    vector: AddressVector,
    source: Gid,
    pub(crate) port: u8,
    next_hop: NextHop,
}

impl Route {
    /// Finds the next hop of `vector` from port `port`, counted from 1. `ports` are all ports of
    /// the device.
    pub(crate) fn find(
        vector: &AddressVector,
        port: u8,
        ports: &[Neighbours],
    ) -> Result<Self, PathError> {
        let next_hop = |routes: &Routes, dst| {
            let owner = ports.iter().map(Neighbours::routes).find(|routes| routes.is_own(dst));
            // On another link the link-local address belongs to another host.
            let owner = owner.filter(|_| !is_link_local(dst));
            owner.map_or_else(|| routes.next_hop(dst), |owner| Ok(owner.own_hop()))
        };
        Self::between(vector, port, ports, next_hop)
    }

    /// Checks a vector to a multicast group, which needs no route: a group exists on every link.
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
        if (1..0xc000).contains(&vector.udp_source_port) {
            return Err(PathError::SourcePort(vector.udp_source_port));
        }
        Ok(Self { vector: *vector, source, port, next_hop: next_hop(routes, dst)? })
    }

    /// Returns the Ethernet address of the next hop; `None` while it is being resolved, an error if
    /// the next hop does not answer. `neighbours` are those of the route's port.
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

    /// Builds the path of an address handle, for datagrams between any QPs. Without a flow label
    /// the destination address chooses the UDP source port.
    pub(crate) fn handle_path(&self, neighbours: &Neighbours, mac: Mac) -> PathAttr {
        let [.., a, b, c] = self.vector.dgid.0;
        let dest = Qpn::new(u32::from_be_bytes([0, a, b, c]));
        self.path(neighbours, mac, Qpn::default(), dest)
    }

    /// Builds the path of packets from QP `qpn` to QP `dest`.
    //= check H13 — each field of the vector becomes one of the headers
    pub(crate) fn path(&self, neighbours: &Neighbours, mac: Mac, qpn: Qpn, dest: Qpn) -> PathAttr {
        let vector = &self.vector;
        let encap = Encap {
            src_mac: neighbours.mac(),
            dst_mac: mac,
            vlan: neighbours.tag(vector.traffic_class, vector.service_level),
            src: self.source,
            dst: vector.dgid,
            traffic_class: vector.traffic_class,
            flow_label: vector.flow_label & 0xf_ffff,
            hop_limit: if vector.hop_limit > 1 { vector.hop_limit } else { HOP_LIMIT },
            src_port: match vector.udp_source_port {
                0 => udp_source_port(vector.flow_label, qpn, dest),
                //= check E17 — a port that was set
                port => port,
            },
        };
        PathAttr { encap, rate: vector.static_rate }
    }
}

/// Returns the neighbours of a port, counted from 1.
pub(crate) fn of_port(ports: &[Neighbours], port: u8) -> Result<&Neighbours, PathError> {
    let at = usize::from(port).checked_sub(1);
    at.and_then(|at| ports.get(at)).ok_or(PathError::NoPort(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::ethernet::Vlan;

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
            udp_source_port: 0,
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
    fn a_dscp_may_have_a_priority_of_its_own() {
        let port = neighbours().with_dscp_prio([(26, 3)].into());
        let pcp = |traffic_class| {
            let vector = AddressVector {
                traffic_class,
                service_level: 5,
                ..AddressVector::to(gid("192.0.2.2"))
            };
            let path = find(vector).unwrap().handle_path(&port, Mac([2, 0, 0, 0, 0, 2]));
            path.encap.vlan.map(|tag| tag.pcp)
        };
        // With both values of a sender's ECN bits.
        assert_eq!([26 << 2, 26 << 2 | 2, 25 << 2, 0].map(pcp), [3, 3, 5, 5].map(Some));
    }

    #[test] //= check E17 test
    fn a_source_port_that_is_set_is_used() {
        let to = |udp_source_port| AddressVector {
            udp_source_port,
            flow_label: 7,
            ..AddressVector::to(gid("192.0.2.9"))
        };
        let (own, dest) = (Qpn::new(0x11), Qpn::new(0x22));
        for port in [0xc000, 0xc123, 0xffff] {
            let path = find(to(port)).unwrap().path(&neighbours(), Mac::default(), own, dest);
            assert_eq!(path.encap.src_port, port);
        }
        for port in [1, 4791, 0xbfff] {
            assert_eq!(find(to(port)).unwrap_err(), PathError::SourcePort(port));
        }
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
            assert_eq!(own.next_timeout(), None, "no request is sent");
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
