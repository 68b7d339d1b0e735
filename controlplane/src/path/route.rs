//! Routes of a port: the next hop to a destination.
//!
//! A port has the prefixes of its own addresses, which are on its link, and static routes, among
//! them at most one default gateway per IP version. The source address is given with a path (as a
//! GID index), so that a route chooses the next hop only.
//!
//! Invariants
//! - A next hop is on the link and is not an address of the port itself.
//! - The longest prefix wins. Of two equally long ones the link wins, then the route given first.
//!
//! Not here: addresses of the device's other ports ([`crate::path`]), the kernel's routing tables.

use std::net::IpAddr;

use uroce_wire::Mac;

use super::gid_table::GidTable;
use super::prefix::{IpNetwork, IpPrefix, is_link_local, is_unicast};

/// Prefix length of the link-local addresses that each link has.
const LINK_LOCAL_LEN: u8 = 64;

/// Reason for which a destination has no next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// The address is multicast, broadcast or unspecified.
    #[error("{0} is not the address of one host")]
    NotUnicast(IpAddr),
    /// The address belongs to the kernel's loopback interface, which is no port of the device.
    #[error("{0} is not an address of a port; use one, and its packets stay in this process")]
    KernelLoopback(IpAddr),
    /// The address is in no prefix of the link, and no route leads to it.
    #[error("{0} is not on the port's link and there is no gateway for it")]
    Unreachable(IpAddr),
}

/// Next hop to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The neighbour on the link with this address: the destination or a router.
    Neighbour(IpAddr),
    /// No next hop: the destination is the device itself.
    Own,
    /// The port of another process with the same addresses.
    Twin(Mac),
}

/// A static route: the router for a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaticRoute {
    /// Destinations.
    pub to: IpNetwork,
    /// Router, of the same IP version. The route is ignored while the router is not on the port's
    /// link.
    pub via: IpAddr,
}

impl StaticRoute {
    /// Creates the default route of the gateway's IP version.
    pub fn default_via(via: IpAddr) -> Self {
        let to = if via.is_ipv4() { IpNetwork::IPV4 } else { IpNetwork::IPV6 };
        Self { to, via }
    }
}

/// Addresses and routes of a port.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    own: GidTable,
    routes: Vec<StaticRoute>,
    twin: Option<Mac>,
    /// Whether the kernel has the routes: then it reaches all hosts that can be reached.
    is_of_kernel: bool,
}

impl Routes {
    /// Creates the routes of a port with these addresses.
    pub fn new(own: GidTable, routes: Vec<StaticRoute>) -> Self {
        Self { own, routes, twin: None, is_of_kernel: false }
    }

    /// Sets the Ethernet address of a twin, which receives packets for the port's own addresses.
    pub fn with_twin(mut self, twin: Option<Mac>) -> Self {
        self.twin = twin;
        self
    }

    /// Makes each host one of the link, since the kernel has the routes.
    pub fn of_kernel(mut self) -> Self {
        self.is_of_kernel = true;
        self
    }

    /// Returns the port's addresses.
    pub fn own(&self) -> &GidTable {
        &self.own
    }

    /// Returns the port's addresses for modification.
    pub fn own_mut(&mut self) -> &mut GidTable {
        &mut self.own
    }

    /// Returns the static routes, in the order in which they count.
    pub fn static_routes(&self) -> &[StaticRoute] {
        &self.routes
    }

    /// Returns the static routes for modification.
    pub fn static_routes_mut(&mut self) -> &mut Vec<StaticRoute> {
        &mut self.routes
    }

    /// Returns the next hop for packets to `dst`.
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

    /// Returns the next hop for packets to the port's own addresses.
    pub(crate) fn own_hop(&self) -> NextHop {
        self.twin.map_or(NextHop::Own, NextHop::Twin)
    }

    /// Returns the neighbour for packets to `dst`, which is not the port's own, and the prefix
    /// length of the route.
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
        // `max_by_key` returns the last of several maxima: the link, then the first route.
        let best = routed.rev().chain(direct).max_by_key(|(len, _)| *len);
        best.ok_or(RouteError::Unreachable(dst))
    }

    /// Tells whether `ip` is an address of the port.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.own.prefixes().any(|own| own.address() == ip)
    }

    /// Tells whether `ip` is on the port's link: in a prefix of its addresses, or link-local (RFC
    /// 4861) if the port has an IPv6 address.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        self.link_len(ip).is_some()
    }

    /// Tells whether `ip` can be another host on the port's link.
    pub fn is_neighbour(&self, ip: IpAddr) -> bool {
        let is_edge = |own: &IpPrefix| own.is_edge_of_network(ip);
        is_unicast(ip)
            && !ip.is_loopback()
            && !self.is_own(ip)
            && self.is_on_link(ip)
            && !self.own.prefixes().any(is_edge)
    }

    /// Returns the length of the longest prefix of the link that contains `ip`.
    fn link_len(&self, ip: IpAddr) -> Option<u8> {
        let of_link = is_link_local(ip);
        let of = |own: &IpPrefix| match own.contains(ip) {
            true => Some(own.len()),
            false => (of_link && own.address().is_ipv6()).then_some(LINK_LOCAL_LEN),
        };
        let of_version = |own: &IpPrefix| own.address().is_ipv4() == ip.is_ipv4();
        let of_kernel = self.is_of_kernel && self.own.prefixes().any(of_version);
        let prefixes = self.own.prefixes();
        prefixes.filter_map(of).chain(of_kernel.then_some(0)).max()
    }

    /// Returns the source address of requests for `neighbour`: one with its prefix, else any of its
    /// IP version.
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
            // The router of the longest route is not on the link.
            ("203.0.113.1", "192.0.2.252"),
            // A route as long as the link's own prefix, and a longer one.
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
