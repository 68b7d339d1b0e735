//! Choice of the local port and address for a peer when none is given.
//!
//! The port with the longest prefix for the peer wins, then a port that is up, then the lowest
//! number. Of its addresses, one with the peer's prefix wins, then one with the router's prefix. A
//! link-local peer needs a link-local source, and any other peer a source that is not link-local.
//! The source for an address of the device itself is that address, or the given one; for a
//! link-local address it is one of the same port.

use std::cmp::Reverse;
use std::net::IpAddr;

use super::PathError;
use super::prefix::{IpPrefix, is_link_local};
use super::route::{RouteError, Routes};

/// A local port, from 1, and the index of one of its GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) port: u8,
    pub(crate) sgid_index: u8,
}

/// Chooses the source for packets to `dst`, restricted to `address` if one is given. The first of
/// `ports` is port 1; the flag tells whether the port is up.
///
/// # Errors
///
/// [`PathError::NoAddress`] if no port has `address`, else the reason for which no port leads to
/// `dst`.
pub(crate) fn choose<'a>(
    ports: impl Iterator<Item = (&'a Routes, bool)> + Clone,
    dst: IpAddr,
    address: Option<IpAddr>,
) -> Result<Source, PathError> {
    let mut best = None;
    let mut refusal =
        address.map_or(PathError::Route(RouteError::Unreachable(dst)), PathError::NoAddress);
    // With a given address, a link-local `dst` is the device's own only on that address's port.
    let is_own = |routes: &Routes| {
        let is_here = |address| !is_link_local(dst) || routes.is_own(address);
        routes.is_own(dst) && address.is_none_or(is_here)
    };
    if ports.clone().any(|(routes, _)| is_own(routes)) {
        return holder(ports, dst, address.unwrap_or(dst)).ok_or(refusal);
    }
    for ((routes, up), port) in ports.zip(1..) {
        let has_it = address.is_none_or(|address| routes.is_own(address));
        match routes.way(dst) {
            _ if !has_it => {}
            Err(error) => refusal = error.into(),
            Ok((len, next_hop)) => match sgid_index(routes, dst, next_hop, address) {
                Some(sgid_index) => {
                    let rank = (len, up, Reverse(port));
                    best = best.max(Some((rank, sgid_index)));
                }
                None => refusal = RouteError::Unreachable(dst).into(),
            },
        }
    }
    let (rank, sgid_index) = best.ok_or(refusal)?;
    Ok(Source { port: rank.2.0, sgid_index })
}

/// Returns the port with `address`, and with `dst` as well if that is link-local. A port that is up
/// is preferred, then the lowest number.
fn holder<'a>(
    ports: impl Iterator<Item = (&'a Routes, bool)>,
    dst: IpAddr,
    address: IpAddr,
) -> Option<Source> {
    let holds = |((routes, up), port): ((&Routes, bool), u8)| {
        let sgid_index = routes.own().index(address)?;
        let is_here = !is_link_local(dst) || routes.is_own(dst);
        if !is_here {
            return None;
        }
        Some((up, Reverse(port), sgid_index))
    };
    let (_, Reverse(port), sgid_index) = ports.zip(1..).filter_map(holds).max()?;
    Some(Source { port, sgid_index })
}

/// Chooses the source for packets to a multicast group, which exists on every link: a port with an
/// address of the group's IP version, restricted to `address` if one is given. A port that is up is
/// preferred, then the lowest number.
///
/// # Errors
///
/// [`PathError::NoAddress`] if no port has `address`, else [`RouteError::Unreachable`].
pub(crate) fn choose_for_group<'a>(
    ports: impl Iterator<Item = (&'a Routes, bool)>,
    group: IpAddr,
    address: Option<IpAddr>,
) -> Result<Source, PathError> {
    let mut best = None;
    for ((routes, up), port) in ports.zip(1..) {
        // All neighbours are equally near; the group takes the place of the next hop.
        if let Some(sgid_index) = sgid_index(routes, group, group, address) {
            best = best.max(Some(((up, Reverse(port)), sgid_index)));
        }
    }
    let refusal =
        address.map_or(PathError::Route(RouteError::Unreachable(group)), PathError::NoAddress);
    let ((_, Reverse(port)), sgid_index) = best.ok_or(refusal)?;
    Ok(Source { port, sgid_index })
}

fn sgid_index(
    routes: &Routes,
    dst: IpAddr,
    next_hop: IpAddr,
    address: Option<IpAddr>,
) -> Option<u8> {
    let fits = |own: IpAddr| match address {
        Some(address) => own == address,
        None => own.is_ipv4() == dst.is_ipv4() && is_link_local(own) == is_link_local(dst),
    };
    let candidates = routes.own().entries().filter(|(_, own)| fits(own.address()));
    let rank = |(index, own): (u8, &IpPrefix)| {
        ((own.contains(dst), own.contains(next_hop), Reverse(index)), index)
    };
    candidates.map(rank).max().map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::super::gid_table::GidTable;
    use super::super::route::StaticRoute;
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn port(own: &[&str], gateway: Option<&str>) -> Routes {
        let own: Vec<_> = own.iter().map(|text| text.parse().unwrap()).collect();
        let gateway = gateway.map(|via| StaticRoute::default_via(ip(via)));
        Routes::new(GidTable::new(&own), gateway.into_iter().collect())
    }

    fn from(ports: &[Routes], dst: &str, address: Option<&str>) -> Result<(u8, u8), PathError> {
        let all_up = ports.iter().map(|routes| (routes, true));
        choose(all_up, ip(dst), address.map(ip)).map(|source| (source.port, source.sgid_index))
    }

    #[test]
    fn the_port_with_the_longest_prefix_is_the_way_out() {
        let ports = [
            port(&["192.0.2.1/24"], Some("192.0.2.254")),
            port(&["198.51.100.1/24"], None),
            port(&["198.51.100.129/25"], None),
        ];
        assert_eq!(from(&ports, "192.0.2.9", None), Ok((1, 0)));
        assert_eq!(from(&ports, "198.51.100.9", None), Ok((2, 0)));
        assert_eq!(from(&ports, "198.51.100.200", None), Ok((3, 0)));
        assert_eq!(from(&ports, "203.0.113.1", None), Ok((1, 0)));
    }

    #[test]
    fn of_equal_ports_the_first_that_is_up() {
        let ports = [port(&["192.0.2.1/24"], None), port(&["192.0.2.2/24"], None)];
        assert_eq!(from(&ports, "192.0.2.9", None), Ok((1, 0)));
        let first_down = ports.iter().zip([false, true]);
        let source = choose(first_down, ip("192.0.2.9"), None).unwrap();
        assert_eq!(source, Source { port: 2, sgid_index: 0 });
    }

    #[test]
    fn the_address_is_that_of_the_peers_prefix_then_of_the_routers() {
        let own =
            ["10.0.0.1/8", "192.0.2.1/24", "fe80::1/64", "2001:db8::1/64", "2001:db8:1::1/64"];
        let mut routes = port(&own, Some("192.0.2.254"));
        assert_eq!(from(std::slice::from_ref(&routes), "192.0.2.9", None), Ok((1, 1)));
        assert_eq!(from(std::slice::from_ref(&routes), "203.0.113.1", None), Ok((1, 1)));
        assert_eq!(from(std::slice::from_ref(&routes), "fe80::9", None), Ok((1, 2)));
        assert_eq!(from(std::slice::from_ref(&routes), "2001:db8:1::9", None), Ok((1, 4)));
        routes = port(&own, Some("fe80::254"));
        assert_eq!(from(&[routes], "2001:db8:7::9", None), Ok((1, 3)));
    }

    #[test]
    fn an_address_that_is_given_decides() {
        let ports = [port(&["192.0.2.1/24", "192.0.2.2/24"], None), port(&["192.0.2.3/24"], None)];
        assert_eq!(from(&ports, "192.0.2.9", Some("192.0.2.2")), Ok((1, 1)));
        assert_eq!(from(&ports, "192.0.2.9", Some("192.0.2.3")), Ok((2, 0)));
        let absent = PathError::NoAddress(ip("192.0.2.4"));
        assert_eq!(from(&ports, "192.0.2.9", Some("192.0.2.4")), Err(absent));
        let far = from(&ports, "203.0.113.1", Some("192.0.2.3"));
        assert_eq!(far, Err(RouteError::Unreachable(ip("203.0.113.1")).into()));
    }

    #[test]
    fn an_own_address_is_reached_from_itself_or_from_any_other_that_is_given() {
        let ports = [
            port(&["192.0.2.1/24", "192.0.2.2/24", "2001:db8::1/64"], None),
            port(&["192.0.2.3/24", "198.51.100.1/24"], None),
        ];
        for (own, expected) in [
            ("192.0.2.1", (1, 0)),
            ("192.0.2.2", (1, 1)),
            ("2001:db8::1", (1, 2)),
            ("192.0.2.3", (2, 0)),
            ("198.51.100.1", (2, 1)),
        ] {
            assert_eq!(from(&ports, own, None), Ok(expected), "{own}");
            // The address may belong to another port, on a different link.
            assert_eq!(from(&ports, own, Some("192.0.2.2")), Ok((1, 1)), "{own}");
        }
        let absent = PathError::NoAddress(ip("192.0.2.4"));
        assert_eq!(from(&ports, "192.0.2.1", Some("192.0.2.4")), Err(absent));
    }

    #[test]
    fn a_link_local_address_of_another_port_is_a_peers_on_the_given_ones_link() {
        let ports = [port(&["fe80::1/64", "fe80::7/64"], None), port(&["fe80::2/64"], None)];
        assert_eq!(from(&ports, "fe80::2", Some("fe80::1")), Ok((1, 0)));
        assert_eq!(from(&ports, "fe80::1", Some("fe80::2")), Ok((2, 0)));
        assert_eq!(from(&ports, "fe80::7", Some("fe80::1")), Ok((1, 0)));
        assert_eq!(from(&ports, "fe80::2", None), Ok((2, 0)));
        // Both links may have the same link-local addresses.
        let twins = [port(&["fe80::1/64"], None), port(&["fe80::1/64", "fe80::2/64"], None)];
        assert_eq!(from(&twins, "fe80::2", Some("fe80::1")), Ok((2, 0)));
    }

    #[test]
    fn of_two_ports_with_the_address_one_that_is_up_is_taken() {
        let ports = [port(&["192.0.2.1/24"], None), port(&["192.0.2.1/24"], None)];
        for (up, expected) in [([true, true], 1), ([false, true], 2), ([false, false], 1)] {
            let source = choose(ports.iter().zip(up), ip("192.0.2.1"), None).unwrap();
            assert_eq!(source.port, expected);
        }
    }

    #[test]
    fn a_group_is_reached_from_the_first_port_with_an_address_of_its_version() {
        let ports = [
            port(&["fe80::1/64", "2001:db8::1/64"], None),
            port(&["fe80::2/64", "192.0.2.1/24"], None),
            port(&["192.0.2.2/24", "198.51.100.1/24"], None),
        ];
        let from = |group: &str, address: Option<&str>, up: [bool; 3]| {
            let source = choose_for_group(ports.iter().zip(up), ip(group), address.map(ip));
            source.map(|source| (source.port, source.sgid_index))
        };
        let all = [true; 3];
        assert_eq!(from("ff0e::1", None, all), Ok((1, 1)));
        assert_eq!(from("239.1.2.3", None, all), Ok((2, 1)));
        assert_eq!(from("239.1.2.3", None, [true, false, true]), Ok((3, 0)));
        assert_eq!(from("239.1.2.3", Some("198.51.100.1"), all), Ok((3, 1)));
        let absent = PathError::NoAddress(ip("192.0.2.9"));
        assert_eq!(from("239.1.2.3", Some("192.0.2.9"), all), Err(absent));
        let none = choose_for_group(ports[..1].iter().zip(all), ip("239.1.2.3"), None);
        assert_eq!(none, Err(RouteError::Unreachable(ip("239.1.2.3")).into()));
    }

    #[test]
    fn a_peer_that_no_port_leads_to_says_why() {
        let own = [port(&["192.0.2.1/24"], None)];
        let refused = |dst: &str| from(&own, dst, None).unwrap_err();
        assert_eq!(refused("127.0.0.1"), RouteError::KernelLoopback(ip("127.0.0.1")).into());
        assert_eq!(refused("2001:db8::1"), RouteError::Unreachable(ip("2001:db8::1")).into());
        assert_eq!(refused("224.0.0.1"), RouteError::NotUnicast(ip("224.0.0.1")).into());
        // A link-local peer cannot be reached from the address of another scope.
        let global = [port(&["2001:db8::1/64"], None)];
        let error = from(&global, "fe80::9", None).unwrap_err();
        assert_eq!(error, RouteError::Unreachable(ip("fe80::9")).into());
    }
}
