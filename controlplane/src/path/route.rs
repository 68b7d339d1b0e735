//! Routes: which neighbour a destination is reached through.
//!
//! A port knows the prefixes of its own addresses, which are on its link, and static routes, among
//! them a default gateway per IP version. A QP's source address is given with its path (a GID
//! index), so a route chooses the next hop only.
//!
//! Invariants
//! - A next hop is on the link and is not an address of the port's. To those there is none.
//! - The longest prefix wins; of two as long the link, then the route given first.
//!
//! Not here: addresses of the device's other ports ([`crate::path`]), kernel routing tables.

use std::net::IpAddr;

use uroce_wire::Mac;

use super::gid_table::GidTable;
use super::prefix::{IpNetwork, IpPrefix, is_link_local, is_unicast};

/// Prefix length of the link-local addresses that each link has.
const LINK_LOCAL_LEN: u8 = 64;

/// Why a destination has no next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Multicast, broadcast or unspecified.
    #[error("{0} is not the address of one host")]
    NotUnicast(IpAddr),
    /// The kernel's loopback interface is no port's.
    #[error("{0} is no address of a port: name one, and its packets stay in this process")]
    KernelLoopback(IpAddr),
    /// No prefix contains it and no route leads there.
    #[error("{0} is not on the port's link and there is no gateway for it")]
    Unreachable(IpAddr),
}

/// Where packets for a destination go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// To this neighbour on the link: the destination or a router.
    Neighbour(IpAddr),
    /// Nowhere: the destination is our own.
    Own,
    /// To the port of another process that has our address, too.
    Twin(Mac),
}

/// A static route: packets for that network go to that neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaticRoute {
    /// The destinations.
    pub to: IpNetwork,
    /// The router, of the same IP version. While it is not on the port's link the route does not
    /// count.
    pub via: IpAddr,
}

impl StaticRoute {
    /// The default route of the gateway's IP version.
    pub fn default_via(via: IpAddr) -> Self {
        let to = if via.is_ipv4() { IpNetwork::IPV4 } else { IpNetwork::IPV6 };
        Self { to, via }
    }
}

/// A port's addresses and routes.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    own: GidTable,
    routes: Vec<StaticRoute>,
    twin: Option<Mac>,
}

impl Routes {
    /// The routes of a port with these addresses.
    pub fn new(own: GidTable, routes: Vec<StaticRoute>) -> Self {
        Self { own, routes, twin: None }
    }

    /// With what is for its own addresses sent to the twin of that Ethernet address.
    pub fn with_twin(mut self, twin: Option<Mac>) -> Self {
        self.twin = twin;
        self
    }

    /// The port's addresses.
    pub fn own(&self) -> &GidTable {
        &self.own
    }

    /// The same, to be changed.
    pub fn own_mut(&mut self) -> &mut GidTable {
        &mut self.own
    }

    /// The neighbour to which packets for `dst` go, if it is not the port's own address.
    ///
    /// # Errors
    ///
    /// [`RouteError`].
    pub fn next_hop(&self, dst: IpAddr) -> Result<NextHop, RouteError> {
        match self.is_own(dst) {
            true => Ok(self.own_hop()),
            false => self.way(dst).map(|(_, neighbour)| NextHop::Neighbour(neighbour)),
        }
    }

    /// Where packets for the port's own addresses go.
    pub(crate) fn own_hop(&self) -> NextHop {
        self.twin.map_or(NextHop::Own, NextHop::Twin)
    }

    /// The neighbour that leads to what is not the port's own, and the length of the prefix that
    /// says so.
    pub(crate) fn way(&self, dst: IpAddr) -> Result<(u8, IpAddr), RouteError> {
        if !is_unicast(dst) || self.own.prefixes().any(|own| own.is_edge_of_network(dst)) {
            return Err(RouteError::NotUnicast(dst));
        }
        if dst.is_loopback() {
            return Err(RouteError::KernelLoopback(dst));
        }
        let direct = self.link_len(dst).map(|len| (len, dst));
        let fits = |route: &&StaticRoute| route.to.contains(dst) && self.is_neighbour(route.via);
        let routed = self.routes.iter().filter(fits).map(|route| (route.to.len(), route.via));
        // The last of the greatest wins: the link, then the first route.
        let best = routed.rev().chain(direct).max_by_key(|(len, _)| *len);
        best.ok_or(RouteError::Unreachable(dst))
    }

    /// Whether `ip` is an address of the port's.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.own.prefixes().any(|own| own.address() == ip)
    }

    /// Whether `ip` is on the port's link: in a prefix of its addresses, or link-local (RFC 4861)
    /// where the port has IPv6 at all.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        self.link_len(ip).is_some()
    }

    /// Whether `ip` can be another host on the port's link.
    pub fn is_neighbour(&self, ip: IpAddr) -> bool {
        let is_edge = |own: &IpPrefix| own.is_edge_of_network(ip);
        is_unicast(ip)
            && !ip.is_loopback()
            && !self.is_own(ip)
            && self.is_on_link(ip)
            && !self.own.prefixes().any(is_edge)
    }

    /// The length of the longest prefix of the link that contains `ip`.
    fn link_len(&self, ip: IpAddr) -> Option<u8> {
        let of_link = is_link_local(ip);
        let of = |own: &IpPrefix| match own.contains(ip) {
            true => Some(own.len()),
            false => (of_link && own.address().is_ipv6()).then_some(LINK_LOCAL_LEN),
        };
        self.own.prefixes().filter_map(of).max()
    }

    /// The address to ask for `neighbour` from: one of its prefix, else any of its version.
    pub fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let on_its_link = self.own.prefixes().find(|own| own.contains(neighbour));
        let of_version = |own: &&IpPrefix| own.address().is_ipv4() == neighbour.is_ipv4();
        on_its_link.or_else(|| self.own.prefixes().find(of_version)).map(|own| own.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn hop(text: &str) -> Result<NextHop, RouteError> {
        Ok(NextHop::Neighbour(ip(text)))
    }

    fn routes() -> Routes {
        let prefixes = ["192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"];
        let own = GidTable::new(&prefixes.map(|text| text.parse().unwrap()));
        let to = |to: &str, via| StaticRoute { to: to.parse().unwrap(), via: ip(via) };
        let routes = vec![
            StaticRoute::default_via(ip("192.0.2.254")),
            to("203.0.113.0/24", "192.0.2.253"),
            to("203.0.113.0/25", "192.0.2.252"),
            to("203.0.113.0/25", "192.0.2.251"),
            to("203.0.113.0/26", "198.51.100.1"),
            to("192.0.2.0/24", "192.0.2.250"),
            to("192.0.2.64/26", "192.0.2.249"),
            to("2001:db8:7::/48", "fe80::9"),
        ];
        Routes::new(own, routes)
    }

    #[test]
    fn neighbours_are_reached_directly_and_others_through_the_gateway() {
        let routes = routes();
        assert_eq!(routes.next_hop(ip("192.0.2.7")), hop("192.0.2.7"));
        assert_eq!(routes.next_hop(ip("198.51.100.7")), hop("192.0.2.254"));
        assert_eq!(routes.next_hop(ip("2001:db8::7")), hop("2001:db8::7"));
        assert_eq!(routes.next_hop(ip("fe80::7")), hop("fe80::7"));
    }

    #[test]
    fn the_longest_prefix_with_a_router_on_the_link_wins() {
        let routes = routes();
        let cases = [
            ("203.0.113.200", "192.0.2.253"),
            ("203.0.113.100", "192.0.2.252"),
            // The longest route's router is not on the link.
            ("203.0.113.1", "192.0.2.252"),
            // As long as the link's own prefix, and longer.
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.65", "192.0.2.249"),
            ("2001:db8:7::1", "fe80::9"),
        ];
        for (dst, next_hop) in cases {
            assert_eq!(routes.next_hop(ip(dst)), hop(next_hop), "{dst}");
        }
    }

    #[test]
    fn a_router_counts_while_it_is_on_the_link() {
        let mut routes = routes();
        routes.own_mut().update(&["10.0.0.1/8".parse().unwrap()]);
        assert_eq!(
            routes.next_hop(ip("203.0.113.1")),
            Err(RouteError::Unreachable(ip("203.0.113.1")))
        );
        assert_eq!(routes.next_hop(ip("10.9.9.9")), hop("10.9.9.9"));
    }

    #[test]
    fn what_cannot_be_reached_says_why() {
        let routes = routes();
        let error = |text| routes.next_hop(ip(text)).unwrap_err();
        assert_eq!(error("127.0.0.1"), RouteError::KernelLoopback(ip("127.0.0.1")));
        assert_eq!(error("::1"), RouteError::KernelLoopback(ip("::1")));
        assert_eq!(error("2001:db8:1::7"), RouteError::Unreachable(ip("2001:db8:1::7")));
        for text in ["224.0.0.5", "192.0.2.255", "192.0.2.0", "0.0.0.0", "ff02::1", "::"] {
            assert_eq!(error(text), RouteError::NotUnicast(ip(text)));
        }
    }

    #[test]
    fn an_address_of_the_ports_own_has_no_next_hop_whatever_routes_say() {
        let routes = routes();
        for text in ["192.0.2.1", "2001:db8::1", "fe80::1"] {
            assert_eq!(routes.next_hop(ip(text)), Ok(NextHop::Own));
        }
    }

    #[test]
    fn what_is_for_the_ports_own_addresses_goes_to_its_twin() {
        let twin = Mac([2, 0, 0, 0, 0, 8]);
        let routes = routes().with_twin(Some(twin));
        for text in ["192.0.2.1", "2001:db8::1", "fe80::1"] {
            assert_eq!(routes.next_hop(ip(text)), Ok(NextHop::Twin(twin)));
        }
        assert_eq!(routes.next_hop(ip("192.0.2.7")), hop("192.0.2.7"));
    }

    #[test]
    fn a_neighbour_is_asked_for_from_an_address_of_its_prefix() {
        let routes = routes();
        assert_eq!(routes.source_for(ip("fe80::7")), Some(ip("fe80::1")));
        assert_eq!(routes.source_for(ip("2001:db8::7")), Some(ip("2001:db8::1")));
        assert_eq!(Routes::default().source_for(ip("fe80::7")), None);
    }
}
