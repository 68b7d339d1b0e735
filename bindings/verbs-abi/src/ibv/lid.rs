//! Addressing by LID, for programs that do not use GIDs.
//!
//! A port's LID ([`runtime::lid`]) is the low half of its first IPv4 address. A peer's LID is the
//! low half of the peer's IPv4 address; the high half is the port's own. The peer must be in the
//! subnet of the port's address.

use std::net::{IpAddr, Ipv4Addr};

use uroce::config::PortConfig;
use uroce::{Gid, PortAttr};

use super::port;
use crate::errno::Errno;
use crate::runtime::{self, Device};

/// The local and the peer's IPv4 address for a LID.
fn named(config: &PortConfig, lid: u16) -> Result<(Ipv4Addr, Ipv4Addr), Errno> {
    let from = runtime::lid_source(config).filter(|_| lid != 0).ok_or(Errno::EINVAL)?;
    let [a, b, ..] = from.octets();
    let [c, d] = lid.to_be_bytes();
    let to = Ipv4Addr::new(a, b, c, d);
    let mut links = config.ip.iter().filter(|ip| ip.address() == IpAddr::V4(from));
    if links.any(|link| link.contains(IpAddr::V4(to))) {
        Ok((from, to))
    } else {
        Err(Errno::EINVAL)
    }
}

/// The index of the local GID and the GID of the peer for a LID.
///
/// # Errors
///
/// EINVAL for LID 0, for a LID outside the port's subnet, and for a port without a LID.
pub(crate) fn resolve(device: &Device, port: &PortAttr, lid: u16) -> Result<(u8, Gid), Errno> {
    let (from, to) = named(&port::config(device, port.number)?, lid)?;
    let at = port.gids.iter().position(|gid| gid.to_ipv4() == Some(from));
    let at = at.and_then(|at| u8::try_from(at).ok()).ok_or(Errno::EINVAL)?;
    Ok((at, Gid::from(IpAddr::V4(to))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::lid;

    fn port(ip: &str) -> PortConfig {
        let text = format!(
            "[[device]]\nname = \"a\"\n[[device.port]]\n\
             ethdev = {{ ring = \"lid\" }}\nip = {ip}\n"
        );
        uroce::Config::from_toml(&text).unwrap().devices.remove(0).ports.remove(0)
    }

    #[test]
    fn a_lid_names_hosts_of_the_first_ipv4_addresss_link_only() {
        let port = port(r#"["2001:db8::1/64", "192.0.2.1/24", "198.51.100.1/24"]"#);
        assert_eq!(lid(&port), 0x0201);
        let from = Ipv4Addr::new(192, 0, 2, 1);
        assert_eq!(named(&port, 0x0209), Ok((from, Ipv4Addr::new(192, 0, 2, 9))));
        for other in [0, 0x0309, 0x6401, 0xffff] {
            assert_eq!(named(&port, other), Err(Errno::EINVAL), "{other:#x}");
        }
    }

    #[test]
    fn a_port_on_a_link_of_more_than_64k_hosts_or_without_ipv4_has_no_lid() {
        for ip in [r#"["10.0.2.1/15"]"#, r#"["2001:db8::1/64"]"#, "[]"] {
            assert_eq!(lid(&port(ip)), 0, "{ip}");
            assert_eq!(named(&port(ip), 0x0201), Err(Errno::EINVAL), "{ip}");
        }
        assert_eq!(lid(&port(r#"["10.0.2.1/16"]"#)), 0x0201);
    }
}
