//! Changes of a port's addresses by a command.
//!
//! Invariants
//! - A port has only addresses with which its configuration would be accepted.

use std::net::IpAddr;

use crate::config::MTU_IPV6_MIN;
use crate::config::check::ADDRESSES_MAX;
use crate::path::gid_table::GidTable;
use crate::path::prefix::IpPrefix;
use crate::port_watch::PortWatch;

/// Reason for which a port's addresses are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    /// The addresses are those of the port's netdev.
    #[error("it has the addresses of its network interface")]
    OfNetdev,
    /// The port has sockets at its addresses.
    #[error("the addresses of a port over UDP sockets are set when it is opened")]
    OverUdp,
    /// An IPv6 address does not go with the port's MTU.
    #[error("its MTU of {0} is less than {MTU_IPV6_MIN}, which IPv6 needs")]
    Mtu(u16),
    /// The port has the address.
    #[error("it has {0} already")]
    Present(IpPrefix),
    /// The port with this number, another one of the device, has the address.
    #[error("another port of its device has {1}")]
    Elsewhere(u8, IpPrefix),
    /// The port has as many addresses as a configuration may give it.
    #[error("it has {ADDRESSES_MAX} addresses, and a port has no more")]
    Full,
    /// The port does not have the address.
    #[error("it has no {0}")]
    Absent(IpAddr),
    /// The port has the address with another prefix length.
    #[error("it has {0}, with another prefix length")]
    OtherLength(IpPrefix),
}

/// Adds an address to those of a port, or removes it. `holder` is the number of another port of the
/// device that has the address, if there is one.
///
/// # Errors
///
/// [`AddressError`]; nothing has changed then.
pub(super) fn change(
    own: &mut GidTable,
    watch: &PortWatch,
    prefix: IpPrefix,
    is_added: bool,
    holder: Option<u8>,
) -> Result<(), AddressError> {
    if watch.keeps_addresses() {
        return Err(AddressError::OverUdp);
    }
    if watch.follows_addresses() {
        return Err(AddressError::OfNetdev);
    }
    let mut addresses: Vec<IpPrefix> = own.prefixes().copied().collect();
    let present = addresses.iter().position(|of| of.address() == prefix.address());
    match (present, is_added) {
        (Some(at), true) => return Err(AddressError::Present(addresses[at])),
        (None, true) if let Some(port) = holder => {
            return Err(AddressError::Elsewhere(port, prefix));
        }
        (None, true) if addresses.len() >= ADDRESSES_MAX => return Err(AddressError::Full),
        (None, true) if prefix.address().is_ipv6() && watch.mtu() < MTU_IPV6_MIN => {
            return Err(AddressError::Mtu(watch.mtu()));
        }
        (None, true) => addresses.push(prefix),
        (Some(at), false) if addresses[at] != prefix => {
            return Err(AddressError::OtherLength(addresses[at]));
        }
        (Some(at), false) => drop(addresses.remove(at)),
        (None, false) => return Err(AddressError::Absent(prefix.address())),
    }
    own.update(&addresses);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortConfig;

    const OWN: [&str; 2] = ["192.0.2.1/24", "2001:db8::1/64"];

    fn prefix(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    /// Returns what adding, or removing, an address at a port with the addresses [`OWN`] comes to.
    fn outcome(config: &PortConfig, address: &str, is_added: bool) -> Result<(), AddressError> {
        let mut own = GidTable::new(&OWN.map(prefix));
        let before = own.clone();
        let watch = PortWatch::new(config, config.mtu, None);
        let outcome = change(&mut own, &watch, prefix(address), is_added, None);
        assert_eq!(outcome.is_err(), own == before, "a failed call changes nothing");
        outcome
    }

    #[test]
    fn a_port_over_udp_sockets_or_with_its_netdevs_addresses_keeps_them() {
        for (address, is_added) in [("192.0.2.9/24", true), ("192.0.2.1/24", false)] {
            let udp = PortConfig::udp("eth0");
            assert_eq!(outcome(&udp, address, is_added), Err(AddressError::OverUdp));
            let set = udp.ip("192.0.2.1/24").unwrap();
            assert_eq!(outcome(&set, address, is_added), Err(AddressError::OverUdp));
            let netdev = PortConfig::vdev("net_af_packet0,iface=eth0");
            assert_eq!(outcome(&netdev, address, is_added), Err(AddressError::OfNetdev));
        }
    }

    #[test]
    fn a_port_of_a_small_mtu_gets_no_ipv6_address() {
        let port = |mtu| PortConfig::ring("x").mtu(mtu);
        assert_eq!(outcome(&port(1280), "2001:db8::2/64", true), Ok(()));
        let small = port(1279);
        assert_eq!(outcome(&small, "2001:db8::2/64", true), Err(AddressError::Mtu(1279)));
        assert_eq!(outcome(&small, "192.0.2.2/24", true), Ok(()));
        assert_eq!(outcome(&small, "2001:db8::1/64", false), Ok(()));
    }

    #[test]
    fn an_address_is_of_one_port_of_the_device_and_a_port_has_as_many_as_in_a_configuration() {
        let port = PortConfig::ring("x");
        let watch = PortWatch::new(&port, port.mtu, None);
        let mut own = GidTable::new(&OWN.map(prefix));
        let new = prefix("192.0.2.9/24");
        let elsewhere = change(&mut own, &watch, new, true, Some(2));
        assert_eq!(elsewhere, Err(AddressError::Elsewhere(2, new)));
        for n in 0..ADDRESSES_MAX - OWN.len() {
            let next = prefix(&format!("198.51.100.{}/24", n + 1));
            assert_eq!(change(&mut own, &watch, next, true, None), Ok(()));
        }
        assert_eq!(change(&mut own, &watch, new, true, None), Err(AddressError::Full));
        assert_eq!(change(&mut own, &watch, prefix(OWN[0]), false, None), Ok(()));
        assert_eq!(change(&mut own, &watch, new, true, None), Ok(()));
    }

    #[test]
    fn an_address_is_removed_as_the_port_has_it() {
        let port = PortConfig::ring("x");
        assert_eq!(outcome(&port, "192.0.2.1/24", false), Ok(()));
        let own = AddressError::OtherLength(prefix("192.0.2.1/24"));
        assert_eq!(outcome(&port, "192.0.2.1/8", false), Err(own));
        let absent = AddressError::Absent("192.0.2.9".parse().unwrap());
        assert_eq!(outcome(&port, "192.0.2.9/24", false), Err(absent));
        let present = AddressError::Present(prefix("192.0.2.1/24"));
        assert_eq!(outcome(&port, "192.0.2.1/8", true), Err(present));
    }
}
