//! State of a port that changes while it is used: link, addresses, MTU.
//!
//! A [`PortWatch`] does no I/O: the control-plane thread passes in reports of the driver and the
//! kernel, and acts on the changes that are returned.
//!
//! Invariants
//! - A port is up while the link of its ethdev is up and, if it has a netdev, that is up as well.
//!   The engine keeps both states and reports changes.
//! - The state of a port at the time it is opened is not a change.
//!
//! Not here: effects of a change on QPs. A QP keeps its path when the port loses the address, as on
//! Linux: it still sends from the address and gets no answers until the address comes back or its
//! retries are used up.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uroce_engine::{PortAddresses, path_mtu_of};
use uroce_wire::{Gid, Mac, PathMtu};

use crate::config::{Ethdev, PortConfig};
use crate::netdev::NetdevState;
use crate::path::PathError;
use crate::path::neighbour::Neighbours;
use crate::path::route::Routes;
use crate::path::source::{self, Source};

/// Attributes of a port at one moment. Addresses and MTU may change if the port has a netdev.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAttr {
    /// Port number, from 1.
    pub number: u8,
    /// Ethernet address.
    pub mac: Mac,
    /// Largest Ethernet payload in bytes: the configured MTU, or the netdev's if that is less.
    pub mtu: u16,
    /// Largest path MTU that fits into `mtu`; `None` if not even 256 does.
    pub max_path_mtu: Option<PathMtu>,
    /// VLAN ID of the port's frames; `None` if they are untagged.
    pub vlan: Option<u16>,
    /// GIDs by index, as an [`AddressVector`](crate::AddressVector) names them. An address keeps
    /// its index. A removed address leaves the zero GID, and a new one takes the first such place.
    pub gids: Vec<Gid>,
}

/// Attributes of all ports, shared with application threads. Only the control-plane thread writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortTable(Arc<Mutex<Vec<PortAttr>>>);

impl PortTable {
    pub(crate) fn all(&self) -> Vec<PortAttr> {
        self.lock().clone()
    }

    pub(crate) fn port(&self, number: u8) -> Option<PortAttr> {
        self.lock().iter().find(|port| port.number == number).cloned()
    }

    /// Locks the table. No critical section leaves it incomplete, so that a poisoned lock is used.
    fn lock(&self) -> MutexGuard<'_, Vec<PortAttr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of the ports in the control-plane thread; the first is port 1.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    pub(crate) neighbours: Vec<Neighbours>,
    pub(crate) watches: Vec<PortWatch>,
    pub(crate) table: PortTable,
}

impl Ports {
    /// Adds the next port.
    pub(crate) fn push(&mut self, neighbours: Neighbours, watch: PortWatch) {
        self.neighbours.push(neighbours);
        self.watches.push(watch);
        let number = self.watches.len() as u8;
        self.table.lock().push(self.attr(number));
    }

    /// Copies the port's present attributes into the shared table.
    pub(crate) fn publish(&self, number: u8) {
        let new = self.attr(number);
        if let Some(port) = self.table.lock().iter_mut().find(|port| port.number == number) {
            *port = new;
        }
    }

    /// Returns the port numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        1..=self.watches.len() as u8
    }

    /// Returns the state of an existing port.
    pub(crate) fn watch(&mut self, number: u8) -> &mut PortWatch {
        &mut self.watches[usize::from(number) - 1]
    }

    /// Chooses the port and address for packets to `dst`, restricted to `address` if one is given.
    ///
    /// # Errors
    ///
    /// The errors of [`source::choose`].
    pub(crate) fn source_for(
        &self,
        dst: IpAddr,
        address: Option<IpAddr>,
    ) -> Result<Source, PathError> {
        source::choose(self.ways(), dst, address)
    }

    /// Chooses the port and address for packets to a multicast group.
    ///
    /// # Errors
    ///
    /// The errors of [`source::choose_for_group`].
    pub(crate) fn source_for_group(
        &self,
        group: IpAddr,
        address: Option<IpAddr>,
    ) -> Result<Source, PathError> {
        source::choose_for_group(self.ways(), group, address)
    }

    /// Returns each port's routes, and whether it is up.
    fn ways(&self) -> impl Iterator<Item = (&Routes, bool)> + Clone {
        let ports = self.neighbours.iter().zip(&self.watches);
        ports.map(|(neighbours, watch)| (neighbours.routes(), watch.is_up()))
    }

    fn attr(&self, number: u8) -> PortAttr {
        let at = usize::from(number) - 1;
        self.watches[at].attr(number, &self.neighbours[at])
    }
}

/// Change of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkChange {
    /// The link was up when first looked at, or the other end of an always active port has come. No
    /// event is raised.
    Found,
    /// The link came up.
    Up,
    /// The link went down.
    Down,
    /// The other end of an always active port has gone. The port's state stays ACTIVE.
    PeerLeft,
}

/// State of one port's link and netdev.
#[derive(Debug)]
pub(crate) struct PortWatch {
    /// MTU with which the port was opened.
    mtu: u16,
    follows_addresses: bool,
    /// The port's sockets are at its addresses of the time when it was opened.
    keeps_addresses: bool,
    follows_mac: bool,
    migrate_on_link_down: bool,
    always_active: bool,
    tells_of_peers: bool,
    /// Last state of the netdev, if there is one.
    netdev: Option<NetdevState>,
    /// Last state of the link; `None` before the first report.
    up: Option<bool>,
    /// Whether the port has gone down and the program was not told.
    is_untold: bool,
}

impl PortWatch {
    /// Creates the state of a port with this configuration, MTU and, if it has one, netdev.
    pub(crate) fn new(config: &PortConfig, mtu: u16, netdev: Option<NetdevState>) -> Self {
        let is_udp = matches!(config.ethdev, Ethdev::Udp(_));
        Self {
            mtu,
            // Sockets are opened with the port.
            follows_addresses: config.follows_addresses() && !is_udp,
            keeps_addresses: is_udp,
            follows_mac: config.mac.is_none() && !is_udp,
            migrate_on_link_down: config.migrate_on_link_down,
            always_active: config.always_active,
            tells_of_peers: config.always_active || matches!(config.ethdev, Ethdev::Local(_)),
            netdev,
            up: None,
            is_untold: false,
        }
    }

    /// Tells whether the port's addresses are those of its netdev.
    pub(crate) fn follows_addresses(&self) -> bool {
        self.follows_addresses
    }

    /// Tells whether the port keeps the addresses with which it was opened.
    pub(crate) fn keeps_addresses(&self) -> bool {
        self.keeps_addresses
    }

    /// Tells whether armed QPs migrate away from the port when its link goes down.
    pub(crate) fn migrates_on_link_down(&self) -> bool {
        self.migrate_on_link_down
    }

    /// Tells whether the port's state is ACTIVE regardless of the other end of its link.
    pub(crate) fn is_always_active(&self) -> bool {
        self.always_active
    }

    /// Tells whether the end of a peer's process is reported and ends the connections to it.
    pub(crate) fn tells_of_peers(&self) -> bool {
        self.tells_of_peers
    }

    /// Tells whether the port is up by the last report.
    pub(crate) fn is_up(&self) -> bool {
        self.always_active || self.up == Some(true)
    }

    /// Tells whether the netdev is up; `None` if there is none.
    pub(crate) fn netdev_up(&self) -> Option<bool> {
        self.netdev.as_ref().map(|netdev| netdev.up)
    }

    /// Records a report of the link, and returns the change if there is one.
    pub(crate) fn set_link(&mut self, up: bool) -> Option<LinkChange> {
        match (self.up.replace(up), up) {
            (None, true) => Some(LinkChange::Found),
            (Some(false), true) if self.always_active => Some(LinkChange::Found),
            (Some(true), false) if self.always_active => Some(LinkChange::PeerLeft),
            (Some(false), true) => Some(LinkChange::Up),
            (Some(true), false) => Some(LinkChange::Down),
            _ => None,
        }
    }

    /// Records whether the port has gone down and the program was not told. Returns whether that
    /// was so before.
    pub(crate) fn set_untold(&mut self, is_untold: bool) -> bool {
        std::mem::replace(&mut self.is_untold, is_untold)
    }

    /// Records that a link without a report is down. Called after the links' first reports.
    pub(crate) fn settle(&mut self) {
        self.up.get_or_insert(false);
    }

    /// Records the state of the netdev, and copies its addresses to a port that follows them.
    /// Returns whether a GID was added or removed, or the Ethernet address changed.
    pub(crate) fn set_netdev(&mut self, state: NetdevState, neighbours: &mut Neighbours) -> bool {
        let mut gids = false;
        // A netdev that is gone has no IP addresses any more, but a port keeps an Ethernet address.
        let mac = state.mac.filter(|mac| self.follows_mac && *mac != neighbours.mac());
        if let Some(mac) = mac {
            neighbours.set_mac(mac);
            gids = true;
        }
        if self.follows_addresses {
            gids |= neighbours.routes_mut().own_mut().update(&state.addresses);
        }
        self.netdev = Some(state);
        gids
    }

    /// Returns the largest Ethernet payload in bytes at present.
    pub(crate) fn mtu(&self) -> u16 {
        let netdev_mtu = self.netdev.as_ref().and_then(|netdev| netdev.mtu);
        let netdev_mtu = netdev_mtu.map_or(u16::MAX, |mtu| u16::try_from(mtu).unwrap_or(u16::MAX));
        self.mtu.min(netdev_mtu)
    }

    /// Returns the port's present attributes.
    pub(crate) fn attr(&self, number: u8, neighbours: &Neighbours) -> PortAttr {
        let mtu = self.mtu();
        PortAttr {
            number,
            mac: neighbours.mac(),
            mtu,
            max_path_mtu: path_mtu_of(mtu),
            vlan: neighbours.vlan(),
            gids: neighbours.routes().own().gids(),
        }
    }
}

/// Returns the addresses for which the lcores accept frames, without empty places.
pub(crate) fn port_addresses(neighbours: &Neighbours) -> PortAddresses {
    let own = neighbours.routes().own().prefixes();
    PortAddresses {
        mac: neighbours.mac(),
        vlan: neighbours.vlan(),
        gids: own.map(|own| own.address().into()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::prefix::IpPrefix;
    use crate::path::route::Routes;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn own(texts: &[&str]) -> Vec<IpPrefix> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn state(up: bool, addresses: &[&str]) -> NetdevState {
        NetdevState { up, mac: Some(MAC), mtu: Some(1500), addresses: own(addresses) }
    }

    fn following() -> (PortWatch, Neighbours) {
        let config = PortConfig::vdev("net_af_packet0,iface=eth0");
        let watch = PortWatch::new(&config, 1500, Some(state(true, &[])));
        (watch, Neighbours::new(MAC, None, Routes::default()))
    }

    #[test]
    fn a_link_that_is_up_at_the_start_is_no_event() {
        let mut watch = PortWatch::new(&PortConfig::ring("x"), 1500, None);
        assert_eq!(watch.set_link(true), Some(LinkChange::Found));
        assert_eq!(watch.set_link(true), None);
        assert_eq!(watch.set_link(false), Some(LinkChange::Down));
        assert_eq!(watch.set_link(false), None);
        assert_eq!(watch.set_link(true), Some(LinkChange::Up));
        let mut late = PortWatch::new(&PortConfig::ring("x"), 1500, None);
        late.settle();
        assert_eq!(late.set_link(true), Some(LinkChange::Up));
    }

    #[test]
    fn a_port_that_is_always_active_has_no_events_of_its_link() {
        let config = PortConfig { always_active: true, ..PortConfig::ring("x") };
        let mut watch = PortWatch::new(&config, 1500, None);
        watch.settle();
        for _ in 0..2 {
            assert!(watch.is_up());
            assert_eq!(watch.set_link(true), Some(LinkChange::Found));
            assert_eq!(watch.set_link(true), None);
            assert_eq!(watch.set_link(false), Some(LinkChange::PeerLeft));
        }
    }

    #[test]
    fn the_netdevs_addresses_are_the_ports() {
        let (mut watch, mut neighbours) = following();
        let two = ["192.0.2.1/24", "2001:db8::1/64"];
        let mut set =
            |addresses: &[&str]| watch.set_netdev(state(true, addresses), &mut neighbours);
        assert!(set(&two));
        assert!(!set(&two));
        assert!(set(&two[1..]));
        let attr = watch.attr(1, &neighbours);
        assert_eq!(
            attr.gids,
            [Gid::default(), "2001:db8::1".parse::<std::net::IpAddr>().unwrap().into()]
        );
        assert_eq!(port_addresses(&neighbours).gids, attr.gids[1..]);
    }

    #[test]
    fn configured_addresses_stay_whatever_the_netdev_has() {
        let config = PortConfig::vdev("net_af_packet0,iface=eth0").ip("192.0.2.1/24").unwrap();
        let config = PortConfig { mac: Some(MAC), ..config };
        let mut watch = PortWatch::new(&config, 1500, Some(state(true, &[])));
        let own = crate::path::gid_table::GidTable::new(&config.ip);
        let mut neighbours = Neighbours::new(MAC, None, Routes::new(own, vec![]));
        let other = NetdevState { mac: Some(Mac([4; 6])), ..state(true, &["192.0.2.9/24"]) };
        assert!(!watch.set_netdev(other, &mut neighbours));
        assert_eq!(watch.attr(1, &neighbours).mac, MAC);
        assert_eq!(port_addresses(&neighbours).gids.len(), 1);
    }

    #[test]
    fn another_ethernet_address_changes_what_all_gids_stand_for() {
        let (mut watch, mut neighbours) = following();
        let moved = NetdevState { mac: Some(Mac([4; 6])), ..state(true, &[]) };
        assert!(watch.set_netdev(moved, &mut neighbours));
        assert_eq!(watch.attr(1, &neighbours).mac, Mac([4; 6]));
        assert!(!watch.set_netdev(NetdevState::default(), &mut neighbours));
        assert_eq!(watch.attr(1, &neighbours).mac, Mac([4; 6]));
    }

    #[test]
    fn the_smaller_mtu_counts() {
        let (mut watch, mut neighbours) = following();
        for (netdev, mtu) in
            [(Some(1400), 1400), (Some(9000), 1500), (Some(1 << 20), 1500), (None, 1500)]
        {
            watch.set_netdev(NetdevState { mtu: netdev, ..state(true, &[]) }, &mut neighbours);
            assert_eq!(watch.attr(1, &neighbours).mtu, mtu);
        }
        watch.set_netdev(NetdevState { mtu: Some(600), ..state(true, &[]) }, &mut neighbours);
        assert_eq!(watch.attr(1, &neighbours).max_path_mtu, Some(PathMtu::B256));
    }
}
