//! Attributes of a device's ports before it is opened.

use std::collections::BTreeMap;

use uroce_wire::Mac;

use super::open::{OpenError, addresses};
use crate::config::{Config, DeviceConfig};
use crate::netdev::{NetdevState, Watcher};
use crate::path::gid_table::GidTable;
use crate::path::neighbour::Neighbours;
use crate::path::route::Routes;
use crate::port_watch::{PortAttr, PortWatch, Ports};

/// Returns the attributes that the ports of device `name` would have if it were opened now. An
/// Ethernet address that only the opened device has is zero.
///
/// Returns `None` if an address depends on something that opening creates: a kernel interface, or
/// the Ethernet address from which a link-local address is derived.
///
/// # Errors
///
/// If the configuration is wrong or has no such device, or the kernel's interfaces cannot be read.
pub fn preview(config: &Config, name: &str) -> Result<Option<Vec<PortAttr>>, OpenError> {
    config.check()?;
    let device = config.find(name)?;
    let states = netdevs(device)?;
    let mut ports = Ports::default();
    for port in &device.ports {
        let port = match port.member {
            Some(number) => &port.clone().as_member(number),
            None => port,
        };
        let state = port.netdev_name().and_then(|name| states.get(name)).cloned();
        if port.netdev_name().is_some() && state.is_none() {
            return Ok(None);
        }
        let mac = port.mac.or_else(|| state.as_ref()?.mac);
        if mac.is_none() && port.link_local {
            return Ok(None);
        }
        let mac = mac.unwrap_or(Mac([0; 6]));
        let own = GidTable::new(&addresses(port, mac, state.as_ref()));
        let neighbours = Neighbours::new(mac, port.vlan, Routes::new(own, Vec::new()));
        ports.push(neighbours, PortWatch::new(port, port.mtu, state));
    }
    Ok(Some(ports.table.all()))
}

/// Returns the states of the ports' kernel interfaces, by name. Interfaces that do not exist are
/// left out.
fn netdevs(device: &DeviceConfig) -> Result<BTreeMap<&str, NetdevState>, OpenError> {
    let names: Vec<&str> = device.ports.iter().filter_map(|port| port.netdev_name()).collect();
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let watcher = Watcher::open(&names).map_err(OpenError::Netdevs)?;
    let states = names.into_iter().zip(watcher.states().cloned()).enumerate();
    let there = states.filter(|(at, _)| watcher.exists(*at));
    Ok(there.map(|(_, state)| state).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(text: &str) -> Option<Vec<PortAttr>> {
        let config = Config::from_toml(&format!("[[device]]\nname = \"d\"\n{text}")).unwrap();
        preview(&config, "d").unwrap()
    }

    #[test]
    fn configured_addresses_are_known_before() {
        let ports = ports(
            "[[device.port]]\nethdev = { ring = \"r\" }\nmtu = 4200\nmac = \"02:00:00:00:00:07\"\n\
             ip = [\"192.0.2.1/24\", \"2001:db8::1/64\"]\nlink_local = true\n\
             [[device.port]]\nethdev = { pci = \"0000:01:00.0\" }\nip = [\"198.51.100.1/24\"]",
        )
        .unwrap();
        assert_eq!((ports[0].number, ports[1].number), (1, 2));
        assert_eq!((ports[0].mac, ports[1].mac), (Mac([2, 0, 0, 0, 0, 7]), Mac([0; 6])));
        let text = |port: &PortAttr| format!("{:?}", port.gids);
        assert!(text(&ports[0]).contains("fe80::ff:fe00:7"), "{}", text(&ports[0]));
        assert_eq!(ports[0].gids.len(), 3);
        assert_eq!(ports[1].gids.len(), 1);
        assert_eq!(ports[0].max_path_mtu.unwrap().bytes(), 4096);
    }

    #[test]
    fn what_only_opening_tells_is_not_made_up() {
        let link_local = "[[device.port]]\nethdev = { ring = \"r\" }\nlink_local = true";
        assert_eq!(ports(link_local), None);
        let tap = "[[device.port]]\nethdev = { vdev = \"net_tap0,iface=none-such0\" }\n\
            netdev = \"none-such0\"";
        assert_eq!(ports(tap), None);
    }
}
