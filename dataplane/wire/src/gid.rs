//! Global identifiers (GIDs). On RoCEv2 a GID is an IP address; IPv4 is carried v4-mapped.
//!
//! Read first: IBA Annex A17 (GIDs); RFC 4291, 2.5.5.2 (IPv4-mapped addresses).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A 128-bit global identifier in network byte order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address this GID stands for; `::ffff:a.b.c.d` becomes IPv4.
    #[inline]
    pub const fn to_ip(self) -> IpAddr {
        match self.to_ipv4() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(Ipv6Addr::from_octets(self.0)),
        }
    }

    /// The IPv4 address of a v4-mapped GID; `None` for any other GID.
    #[inline]
    pub const fn to_ipv4(self) -> Option<Ipv4Addr> {
        Ipv6Addr::from_octets(self.0).to_ipv4_mapped()
    }
}

impl From<Ipv4Addr> for Gid {
    #[inline]
    fn from(ip: Ipv4Addr) -> Gid {
        Gid(ip.to_ipv6_mapped().octets())
    }
}

impl From<Ipv6Addr> for Gid {
    #[inline]
    fn from(ip: Ipv6Addr) -> Gid {
        Gid(ip.octets())
    }
}

impl From<IpAddr> for Gid {
    #[inline]
    fn from(ip: IpAddr) -> Gid {
        match ip {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => v6.into(),
        }
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from_octets(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_carried_v4_mapped_and_comes_back() {
        let v4 = Ipv4Addr::new(192, 0, 2, 1);
        let gid = Gid::from(v4);
        assert_eq!(gid.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1]);
        assert_eq!(gid.to_ip(), IpAddr::V4(v4));
        assert_eq!(gid.to_string(), "::ffff:192.0.2.1");
        assert_eq!(Gid::from(IpAddr::V4(v4)), gid);
    }

    #[test]
    fn ipv6_is_itself() {
        let v6: Ipv6Addr = "2001:db8::1".parse().unwrap();
        assert_eq!(Gid::from(v6).to_ip(), IpAddr::V6(v6));
        assert_eq!(Gid::from(v6).to_ipv4(), None);
        assert_eq!(Gid::from(IpAddr::V6(v6)).to_string(), "2001:db8::1");
    }
}
