//! Ways to peers: `route` and `neigh`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Prefix;
#[cfg(feature = "tree")]
use super::number::number;

/// Changes of the routes of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Add a route to a port, for paths that are set from now on; `save config` has none of it
    Add(RouteVia),
    /// Remove a route of a port; paths that are set already keep their next hop
    Del(RouteVia),
}

/// A route: the router for a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Args))]
pub struct RouteVia {
    /// Number of the port
    #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
    pub port: u16,
    /// The network, or `default` for all addresses of the router's IP version
    #[cfg_attr(feature = "tree", arg(value_name = "NETWORK/LEN|default"))]
    pub to: Network,
    /// Address of the router, which is another host on the port's link
    #[cfg_attr(feature = "tree", arg(long, value_name = "ROUTER", required = true))]
    pub via: IpAddr,
}

/// Destinations of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// All addresses of an IP version.
    Default,
    /// The network with this address and length; the process checks them.
    Of(Prefix),
}

impl FromStr for Network {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Network, Self::Err> {
        match text {
            "default" => Ok(Network::Default),
            text => text.parse().map(Network::Of),
        }
    }
}

/// Changes of the neighbours of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "tree", derive(clap::Subcommand))]
#[serde(rename_all = "snake_case")]
pub enum Neigh {
    /// Give a neighbour a fixed Ethernet address, which is not asked for and which no packet
    /// changes; `save config` has none of it
    Add {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// IP address of the neighbour, which is on the port's link
        #[cfg_attr(feature = "tree", arg(value_name = "ADDRESS"))]
        address: IpAddr,
        /// Its Ethernet address
        #[cfg_attr(feature = "tree", arg(value_name = "MAC"))]
        mac: Ethernet,
    },
    /// Forget a neighbour, fixed or not; it is asked for its Ethernet address before its next path
    Del {
        /// Number of the port
        #[cfg_attr(feature = "tree", arg(value_name = "PORT", value_parser = number::<u16>))]
        port: u16,
        /// IP address of the neighbour
        #[cfg_attr(feature = "tree", arg(value_name = "ADDRESS"))]
        address: IpAddr,
    },
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ethernet(pub [u8; 6]);

impl fmt::Display for Ethernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Ethernet {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Ethernet, Self::Err> {
        // `from_str_radix` takes a sign.
        let is_byte = |part: &&str| part.len() == 2 && !part.starts_with(['+', '-']);
        let byte = |part: &str| Some(part).filter(is_byte).map(|of| u8::from_str_radix(of, 16));
        let bytes: Option<Result<Vec<u8>, _>> = text.split(':').map(byte).collect();
        let bytes = bytes.and_then(Result::ok).and_then(|bytes| <[u8; 6]>::try_from(bytes).ok());
        bytes.map(Ethernet).ok_or("not an Ethernet address, as in 02:00:5e:10:00:01")
    }
}

#[cfg(all(test, feature = "tree"))]
mod tests {
    use super::*;
    use crate::Request;
    use crate::tree::{Line, parse};

    #[test]
    fn a_route_has_a_network_and_a_router() {
        let via = "192.0.2.254".parse().unwrap();
        let add = Route::Add(RouteVia { port: 1, to: Network::Default, via });
        let line = Line::Request(Request::Route(add));
        assert_eq!(parse("route add 1 default via 192.0.2.254").unwrap(), Some(line));
        let of = Prefix { address: "198.51.100.0".parse().unwrap(), len: 24 };
        let del = Route::Del(RouteVia { port: 0, to: Network::Of(of), via });
        let line = Line::Request(Request::Route(del));
        assert_eq!(parse("ro d 0 198.51.100.0/24 via 192.0.2.254").unwrap(), Some(line));
        for wrong in
            ["route add 0 default", "route add 0 all via 192.0.2.1", "route add 0 ::/0 ::1"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_neighbour_has_an_ethernet_address() {
        let (address, mac) = ("2001:db8::7".parse().unwrap(), Ethernet([2, 0, 0x5e, 0x10, 0, 1]));
        let add = Line::Request(Request::Neigh(Neigh::Add { port: 0, address, mac }));
        assert_eq!(parse("neigh add 0 2001:db8::7 02:00:5E:10:00:01").unwrap(), Some(add));
        assert_eq!(mac.to_string(), "02:00:5e:10:00:01");
        let del = Line::Request(Request::Neigh(Neigh::Del { port: 0, address }));
        assert_eq!(parse("neigh del 0 2001:db8::7").unwrap(), Some(del));
        for wrong in ["2:0:0:0:0:1", "02:00:00:00:00", "02:00:00:00:00:01:02", "+2:00:00:00:00:01"]
        {
            assert!(wrong.parse::<Ethernet>().is_err(), "{wrong}");
        }
        assert!(parse("neigh add 0 192.0.2.1").is_err());
    }
}
