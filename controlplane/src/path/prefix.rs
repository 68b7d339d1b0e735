//! IP addresses with prefix lengths, and networks.
//!
//! Invariants
//! - An [`IpPrefix`] is the address of a host; an [`IpNetwork`] has no bits set behind its prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use smoltcp::wire::{IpCidr, Ipv4Cidr, Ipv6Cidr};

/// A host's address and the prefix length of its link, as in `192.0.2.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpPrefix(IpCidr);

/// Reason for which a text is not an [`IpPrefix`] or [`IpNetwork`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The text does not have the form `address/length`.
    #[error("{0:?} is not of the form 192.0.2.1/24 or 2001:db8::1/64")]
    Syntax(String),
    /// The prefix length exceeds the length of the address.
    #[error("prefix length {len} of {address} is longer than the address")]
    Length {
        /// The address.
        address: IpAddr,
        /// The prefix length.
        len: u8,
    },
    /// The address cannot be a host's: it is multicast, broadcast, unspecified, loopback or
    /// v4-mapped.
    #[error("{0} is not a host's address on a network")]
    NotAHost(IpAddr),
    /// A network's address has bits set behind its prefix.
    #[error("{address}/{len} has bits behind its prefix")]
    HostBits {
        /// The address.
        address: IpAddr,
        /// The prefix length.
        len: u8,
    },
}

impl IpPrefix {
    /// Creates the address of a host with the prefix length of its link.
    ///
    /// # Errors
    ///
    /// [`PrefixError::Length`], or [`PrefixError::NotAHost`] if the address is multicast,
    /// unspecified, loopback, v4-mapped, or the network or broadcast address of its IPv4 network.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let prefix = Self(cidr(address, len)?);
        if is_unicast(address) && !address.is_loopback() && !prefix.is_edge_of_network(address) {
            Ok(prefix)
        } else {
            Err(PrefixError::NotAHost(address))
        }
    }

    /// Returns the host's address.
    pub fn address(&self) -> IpAddr {
        self.0.address().into()
    }

    /// Returns the prefix length in bits.
    pub fn len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Tells whether the prefix has no bits, so that it contains every address of its IP version.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells whether `ip` has the same IP version and the same prefix.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains_addr(&ip.into())
    }

    /// Returns the link's network.
    pub fn network(&self) -> IpNetwork {
        IpNetwork(match self.0 {
            IpCidr::Ipv4(own) => IpCidr::Ipv4(own.network()),
            IpCidr::Ipv6(own) => {
                let host = u128::MAX.checked_shr(own.prefix_len().into()).unwrap_or(0);
                let address = Ipv6Addr::from(u128::from(own.address()) & !host);
                IpCidr::Ipv6(Ipv6Cidr::new(address, own.prefix_len()))
            }
        })
    }

    /// Tells whether `ip` is the network or broadcast address of this IPv4 network. A /31 or /32
    /// has none (RFC 3021).
    pub(super) fn is_edge_of_network(&self, ip: IpAddr) -> bool {
        match (self.0, ip) {
            (IpCidr::Ipv4(own), IpAddr::V4(v4)) => own
                .broadcast()
                .is_some_and(|broadcast| v4 == broadcast || v4 == own.network().address()),
            _ => false,
        }
    }
}

impl fmt::Display for IpPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for IpPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = address_and_len(text)?;
        IpPrefix::new(address, len)
    }
}

/// Destinations of a route, as in `198.51.100.0/24`. `0.0.0.0/0` and `::/0` contain all addresses
/// of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpNetwork(IpCidr);

impl IpNetwork {
    /// All IPv4 addresses, `0.0.0.0/0`.
    pub const IPV4: Self = Self(IpCidr::Ipv4(Ipv4Cidr::new(Ipv4Addr::UNSPECIFIED, 0)));
    /// All IPv6 addresses, `::/0`.
    pub const IPV6: Self = Self(IpCidr::Ipv6(Ipv6Cidr::new(Ipv6Addr::UNSPECIFIED, 0)));

    /// Creates the network with this address, which has no bits set behind its prefix.
    ///
    /// # Errors
    ///
    /// [`PrefixError::Length`], or [`PrefixError::HostBits`] if a bit behind the prefix is set.
    pub fn new(address: IpAddr, len: u8) -> Result<Self, PrefixError> {
        let network = cidr(address, len)?;
        let trailing_zeros = match address {
            IpAddr::V4(v4) => u32::from(v4).trailing_zeros(),
            IpAddr::V6(v6) => u128::from(v6).trailing_zeros(),
        };
        if trailing_zeros + u32::from(len) < bits(address).into() {
            return Err(PrefixError::HostBits { address, len });
        }
        Ok(Self(network))
    }

    /// Tells whether `ip` is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains_addr(&ip.into())
    }

    /// Returns the prefix length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a length of bits, not of a collection")]
    pub fn len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Tells whether the network is an IPv4 network.
    pub fn is_ipv4(&self) -> bool {
        matches!(self.0, IpCidr::Ipv4(_))
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for IpNetwork {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = address_and_len(text)?;
        IpNetwork::new(address, len)
    }
}

/// Splits a text at its slash.
fn address_and_len(text: &str) -> Result<(IpAddr, u8), PrefixError> {
    let syntax = || PrefixError::Syntax(text.to_owned());
    let (address, len) = text.split_once('/').ok_or_else(syntax)?;
    Ok((address.parse().map_err(|_| syntax())?, len.parse().map_err(|_| syntax())?))
}

/// Returns the number of bits of an address.
fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn cidr(address: IpAddr, len: u8) -> Result<IpCidr, PrefixError> {
    match len <= bits(address) {
        true => Ok(IpCidr::new(address.into(), len)),
        false => Err(PrefixError::Length { address, len }),
    }
}

/// Tells whether an address can be one host's: not multicast, broadcast, unspecified or v4-mapped.
pub(crate) fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_unspecified() && v4 != Ipv4Addr::BROADCAST,
        IpAddr::V6(v6) => {
            !v6.is_multicast() && !v6.is_unspecified() && v6.to_ipv4_mapped().is_none()
        }
    }
}

/// Tells whether an address is an IPv6 link-local one.
pub(crate) fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Returns the link-local address for an Ethernet address (modified EUI-64, RFC 4291).
pub fn link_local(mac: [u8; 6]) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.map(u16::from);
    let (first, second, third) = ((a ^ 2) << 8 | b, c << 8 | 0xff, 0xfe00 | d);
    Ipv6Addr::new(0xfe80, 0, 0, 0, first, second, third, e << 8 | f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
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
    fn the_network_of_an_address_has_no_bits_behind_the_prefix() {
        for (own, network) in [
            ("192.0.2.129/25", "192.0.2.128/25"),
            ("192.0.2.1/32", "192.0.2.1/32"),
            ("2001:db8::ff:1/112", "2001:db8::ff:0/112"),
            ("2001:db8::1/128", "2001:db8::1/128"),
        ] {
            assert_eq!(own.parse::<IpPrefix>().unwrap().network().to_string(), network);
        }
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
    fn link_local_addresses_follow_rfc_4291() {
        let mac = [0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde];
        assert_eq!(link_local(mac), "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    }
}
