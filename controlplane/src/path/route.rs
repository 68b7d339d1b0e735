//! Routes: which neighbour a destination is reached through.
//!
//! A port knows the prefixes of its own addresses, which are on its link, and static routes, among
//! them a default gateway per IP version. A QP's source address is given with its path (a GID
//! index), so a route chooses the next hop only.
//!
//! Invariants
//! - A next hop is on the link and is not an address of the port's.
//! - The longest prefix wins; of two as long the link, then the route given first.
//!
//! Not here: routing between ports, kernel routing tables.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::gid_table::GidTable;

/// Prefix length of the link-local addresses that each link has.
const LINK_LOCAL_LEN: u8 = 64;

/// An address and the length of the prefix that is on its link, as `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPrefix {
    address: IpAddr,
    len: u8,
}

/// Why a text is no [`IpPrefix`] or [`IpNetwork`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// It has not the form `address/length`.
    #[error("{0:?} is not of the form 192.0.2.1/24 or 2001:db8::1/64")]
    Syntax(String),
    /// The length exceeds the address.
    #[error("prefix length {len} of {address} is more than the address has bits")]
    Length {
        /// The address.
        address: IpAddr,
        /// The length given.
        len: u8,
    },
    /// The address cannot be a host's: multicast, broadcast, unspecified, loopback, v4-mapped.
    #[error("{0} is not a host's address on a network")]
    NotAHost(IpAddr),
    /// A network's address has bits behind its prefix.
    #[error("{address}/{len} has bits behind its prefix")]
    HostBits {
        /// The address.
        address: IpAddr,
        /// The length given.
        len: u8,
    },
}

impl IpPrefix {
    /// A host's address with the prefix of its link.
    ///
    /// # Errors
    ///
    /// [`PrefixError::Length`], or [`PrefixError::NotAHost`] where the address is multicast,
    /// unspecified, loopback, v4-mapped, or its IPv4 network's own or broadcast address.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if len > bits {
            return Err(PrefixError::Length { address, len });
        }
        let prefix = Self { address, len };
        if is_unicast(address) && !address.is_loopback() && !prefix.is_edge_of_network(address) {
            Ok(prefix)
        } else {
            Err(PrefixError::NotAHost(address))
        }
    }

    /// The host's address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Bits of the prefix.
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether the prefix has no bits and so contains every address of its version.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `ip` is of the same version and shares the prefix.
    pub fn contains(&self, ip: IpAddr) -> bool {
        share_prefix(self.address, ip, self.len)
    }

    /// The network's own and its broadcast address, where IPv4 has them (RFC 3021: not in /31).
    fn is_edge_of_network(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(v4) if self.len < 31 && self.contains(ip) => {
                let host = u32::MAX >> self.len;
                matches!(u32::from(v4) & host, 0) || u32::from(v4) & host == host
            }
            _ => false,
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = address_and_len(text)?;
        IpPrefix::new(address, len)
    }
}

/// The destinations of a route, as `198.51.100.0/24`; `0.0.0.0/0` and `::/0` are all of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpNetwork {
    address: IpAddr,
    len: u8,
}

impl IpNetwork {
    /// The network with this address, whose bits behind the prefix are 0.
    ///
    /// # Errors
    ///
    /// [`PrefixError::Length`], or [`PrefixError::HostBits`] where one of them is not.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let (bits, trailing_zeros) = match address {
            IpAddr::V4(v4) => (32, u32::from(v4).trailing_zeros()),
            IpAddr::V6(v6) => (128, u128::from(v6).trailing_zeros()),
        };
        if len > bits {
            return Err(PrefixError::Length { address, len });
        }
        if trailing_zeros < u32::from(bits - len) {
            return Err(PrefixError::HostBits { address, len });
        }
        Ok(Self { address, len })
    }

    /// Whether `ip` is one of the destinations.
    pub fn contains(&self, ip: IpAddr) -> bool {
        share_prefix(self.address, ip, self.len)
    }

    /// Whether the destinations are IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl FromStr for IpNetwork {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = address_and_len(text)?;
        IpNetwork::new(address, len)
    }
}

/// The two sides of a slash.
fn address_and_len(text: &str) -> Result<(IpAddr, u8), PrefixError> {
    let syntax = || PrefixError::Syntax(text.to_owned());
    let (address, len) = text.split_once('/').ok_or_else(syntax)?;
    Ok((address.parse().map_err(|_| syntax())?, len.parse().map_err(|_| syntax())?))
}

/// Are the addresses of one version and alike in their first `len` bits?
fn share_prefix(one: IpAddr, other: IpAddr, len: u8) -> bool {
    match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            let differs = u32::from(one) ^ u32::from(other);
            differs.checked_shr(32 - u32::from(len)).unwrap_or(0) == 0
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            let differs = u128::from(one) ^ u128::from(other);
            differs.checked_shr(128 - u32::from(len)).unwrap_or(0) == 0
        }
        _ => false,
    }
}

/// One host's address: not multicast, broadcast, unspecified, or IPv4 in IPv6's clothes.
pub(crate) fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_unspecified() && v4 != Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => {
            !v6.is_multicast() && !v6.is_unspecified() && v6.to_ipv4_mapped().is_none()
        }
    }
}

/// An IPv6 address that means something on its link only.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// The link-local address that RFC 4291 derives from an Ethernet address (modified EUI-64).
pub fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.map(u16::from);
    let (first, second, third) = ((a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d);
    Ipv6Addr::new(0xfe80, 0, 0, 0, first, second, third, e << 8 | f)
}

/// Why a destination has no next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// Multicast, broadcast or unspecified.
    #[error("{0} is not the address of one host")]
    NotUnicast(IpAddr),
    /// The port's own. QPs of one port cannot be connected to each other.
    #[error("{0} is this port's own address: loopback is not supported")]
    OwnAddress(IpAddr),
    /// No prefix contains it and no route leads there.
    #[error("{0} is not on the port's link and there is no gateway for it")]
    Unreachable(IpAddr),
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
        let any: IpAddr = match via {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        Self { to: IpNetwork { address: any, len: 0 }, via }
    }
}

/// A port's addresses and routes.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    own: GidTable,
    routes: Vec<StaticRoute>,
}

impl Routes {
    /// The routes of a port with these addresses.
    pub fn new(own: GidTable, routes: Vec<StaticRoute>) -> Self {
        Self { own, routes }
    }

    /// The port's addresses.
    pub fn own(&self) -> &GidTable {
        &self.own
    }

    /// The same, to be changed.
    pub fn own_mut(&mut self) -> &mut GidTable {
        &mut self.own
    }

    /// The neighbour to which packets for `dst` go.
    ///
    /// # Errors
    ///
    /// [`RouteError`]; `OwnAddress` for the addresses of this port.
    pub fn next_hop(&self, dst: IpAddr) -> Result<IpAddr, RouteError> {
        self.way(dst).map(|(_, next_hop)| next_hop)
    }

    /// The same with the length of the prefix that leads there.
    pub(crate) fn way(&self, dst: IpAddr) -> Result<(u8, IpAddr), RouteError> {
        if !is_unicast(dst) || self.own.prefixes().any(|own| own.is_edge_of_network(dst)) {
            return Err(RouteError::NotUnicast(dst));
        }
        if dst.is_loopback() || self.is_own(dst) {
            return Err(RouteError::OwnAddress(dst));
        }
        let direct = self.link_len(dst).map(|len| (len, dst));
        let fits = |route: &&StaticRoute| route.to.contains(dst) && self.is_neighbour(route.via);
        let routed = self.routes.iter().filter(fits).map(|route| (route.to.len, route.via));
        // The last of the greatest wins: the link, then the first route.
        let best = routed.rev().chain(direct).max_by_key(|(len, _)| *len);
        best.ok_or(RouteError::Unreachable(dst))
    }

    /// Whether `ip` is an address of the port's.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        self.own.prefixes().any(|own| own.address == ip)
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
            true => Some(own.len),
            false => (of_link && own.address.is_ipv6()).then_some(LINK_LOCAL_LEN),
        };
        self.own.prefixes().filter_map(of).max()
    }

    /// The address to ask for `neighbour` from: one of its prefix, else any of its version.
    pub fn source_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let on_its_link = self.own.prefixes().find(|own| own.contains(neighbour));
        let of_version = |own: &&IpPrefix| own.address.is_ipv4() == neighbour.is_ipv4();
        on_its_link.or_else(|| self.own.prefixes().find(of_version)).map(|own| own.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
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
    fn prefixes_are_read_and_written() {
        for text in ["192.0.2.1/24", "10.0.0.1/31", "10.0.0.1/32", "2001:db8::1/64"] {
            assert_eq!(text.parse::<IpPrefix>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_hosts_address_is_refused_by_name() {
        let syntax = ["", "192.0.2.1", "192.0.2.1/", "192.0.2/24", "a/24", "192.0.2.1/-1"];
        for text in syntax {
            assert_eq!(text.parse::<IpPrefix>(), Err(PrefixError::Syntax(text.into())));
        }
        for text in ["192.0.2.1/33", "2001:db8::1/129"] {
            assert!(matches!(text.parse::<IpPrefix>(), Err(PrefixError::Length { .. })), "{text}");
        }
        let none = [
            "224.0.0.1/4",
            "0.0.0.0/0",
            "192.0.2.0/24",
            "192.0.2.255/24",
            "127.0.0.1/8",
            "255.255.255.255/32",
            "::/0",
            "::1/128",
            "ff02::1/64",
            "::ffff:192.0.2.1/120",
        ];
        for text in none {
            assert!(matches!(text.parse::<IpPrefix>(), Err(PrefixError::NotAHost(_))), "{text}");
        }
    }

    #[test]
    fn a_prefix_of_no_bits_contains_its_version_only() {
        let all: IpPrefix = "192.0.2.1/0".parse().unwrap();
        assert!(all.contains(ip("203.0.113.9")) && !all.contains(ip("2001:db8::9")));
    }

    #[test]
    fn neighbours_are_reached_directly_and_others_through_the_gateway() {
        let routes = routes();
        assert_eq!(routes.next_hop(ip("192.0.2.7")), Ok(ip("192.0.2.7")));
        assert_eq!(routes.next_hop(ip("198.51.100.7")), Ok(ip("192.0.2.254")));
        assert_eq!(routes.next_hop(ip("2001:db8::7")), Ok(ip("2001:db8::7")));
        assert_eq!(routes.next_hop(ip("fe80::7")), Ok(ip("fe80::7")));
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
            assert_eq!(routes.next_hop(ip(dst)), Ok(ip(next_hop)), "{dst}");
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
        assert_eq!(routes.next_hop(ip("10.9.9.9")), Ok(ip("10.9.9.9")));
    }

    #[test]
    fn networks_are_read_and_written() {
        for text in ["0.0.0.0/0", "::/0", "198.51.100.0/24", "10.0.0.1/32", "2001:db8::/32"] {
            assert_eq!(text.parse::<IpNetwork>().unwrap().to_string(), text);
        }
        let (address, len) = (ip("198.51.100.1"), 24);
        let refused = "198.51.100.1/24".parse::<IpNetwork>();
        assert_eq!(refused, Err(PrefixError::HostBits { address, len }));
        assert!(matches!("::/129".parse::<IpNetwork>(), Err(PrefixError::Length { .. })));
        assert!(matches!("10.0.0.0".parse::<IpNetwork>(), Err(PrefixError::Syntax(_))));
    }

    #[test]
    fn what_cannot_be_reached_says_why() {
        let routes = routes();
        let error = |text| routes.next_hop(ip(text)).unwrap_err();
        assert_eq!(error("192.0.2.1"), RouteError::OwnAddress(ip("192.0.2.1")));
        assert_eq!(error("127.0.0.1"), RouteError::OwnAddress(ip("127.0.0.1")));
        assert_eq!(error("2001:db8:1::7"), RouteError::Unreachable(ip("2001:db8:1::7")));
        for text in ["224.0.0.5", "192.0.2.255", "192.0.2.0", "0.0.0.0", "ff02::1", "::"] {
            assert_eq!(error(text), RouteError::NotUnicast(ip(text)));
        }
    }

    #[test]
    fn a_neighbour_is_asked_for_from_an_address_of_its_prefix() {
        let routes = routes();
        assert_eq!(routes.source_for(ip("fe80::7")), Some(ip("fe80::1")));
        assert_eq!(routes.source_for(ip("2001:db8::7")), Some(ip("2001:db8::1")));
        assert_eq!(Routes::default().source_for(ip("fe80::7")), None);
    }

    #[test]
    fn link_local_addresses_follow_rfc_4291() {
        let mac = [0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde];
        assert_eq!(link_local(mac), "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    }
}
