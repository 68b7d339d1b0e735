//! Binding: a port with its addresses, its mempool, its injected loss and its bottleneck.

use super::bottleneck::BottleneckConfig;
use super::loss::LossConfig;
use crate::dpdk::mbuf::Mempool;
use crate::limits::MAX_GIDS;
use crate::port::Port;
use uroce_wire::{Gid, Mac, PathMtu};

/// Bytes of an Ethernet payload that IPv6, UDP, the transport headers and the invariant CRC may
/// take. Linux uses the same sum to derive a path MTU from an interface's MTU.
pub const ROCE_OVERHEAD: u16 = 40 + 8 + 12 + 4 + 28 + 4;

/// Returns the largest path MTU at which each packet fits into an Ethernet payload of `mtu` bytes;
/// `None` if there is none.
pub fn path_mtu_of(mtu: u16) -> Option<PathMtu> {
    let room = u32::from(mtu.saturating_sub(ROCE_OVERHEAD));
    let sizes = [PathMtu::B4096, PathMtu::B2048, PathMtu::B1024, PathMtu::B512, PathMtu::B256];
    sizes.into_iter().find(|size| size.bytes() <= room)
}

/// The addresses of a port on its network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortAddresses {
    /// The port's Ethernet address.
    pub mac: Mac,
    /// The port's 802.1Q VLAN, 1 to 4094; `None` if only frames without a VLAN are for the port.
    pub vlan: Option<u16>,
    /// The port's IP addresses, at most [`MAX_GIDS`].
    pub gids: Vec<Gid>,
}

impl PortAddresses {
    /// Returns whether a port can have these addresses.
    pub(crate) fn is_valid(&self) -> bool {
        let vlan = self.vlan.is_none_or(|vlan| (1..=4094).contains(&vlan));
        vlan && self.gids.len() <= MAX_GIDS
    }
}

/// A port for the engine to use, and its parameters.
#[derive(Debug)]
pub struct PortBinding {
    /// The port; lcore *i* takes queue pair *i*.
    pub port: Port,
    /// The mempool of the frames that are sent through the port.
    pub pool: Mempool,
    /// The port's addresses: it receives the frames that are sent to them.
    pub addresses: PortAddresses,
    /// Loss to be injected, for tests.
    pub loss: LossConfig,
    /// Bottleneck to be put before the port, for tests; `None` for none.
    pub bottleneck: Option<BottleneckConfig>,
}

/// Ports, counted from 1, up to 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortSet(u32);

impl PortSet {
    /// Returns whether a port is one of them.
    pub(crate) fn has(self, port: u8) -> bool {
        self.0 & bit(port) != 0
    }
}

impl FromIterator<u8> for PortSet {
    fn from_iter<T: IntoIterator<Item = u8>>(ports: T) -> PortSet {
        PortSet(ports.into_iter().fold(0, |all, port| all | bit(port)))
    }
}

/// The bit of a port; 0 if there can be no such port.
fn bit(port: u8) -> u32 {
    1u32.checked_shl(u32::from(port).wrapping_sub(1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtu_follows_linux() {
        assert_eq!(path_mtu_of(1500), Some(PathMtu::B1024));
        assert_eq!(path_mtu_of(4191), Some(PathMtu::B2048));
        assert_eq!(path_mtu_of(4192), Some(PathMtu::B4096));
        assert_eq!(path_mtu_of(9000), Some(PathMtu::B4096));
        assert_eq!(path_mtu_of(351), None);
        assert_eq!(path_mtu_of(0), None);
    }

    #[test]
    fn a_set_has_the_ports_that_it_is_made_of() {
        let set: PortSet = [1, 3, 32].into_iter().collect();
        let has: Vec<u8> = (0..=255).filter(|port| set.has(*port)).collect();
        assert_eq!(has, [1, 3, 32]);
        assert!(![0, 33, 255].into_iter().collect::<PortSet>().has(0));
    }
}
