//! Configuration of an engine and of its ports.

use crate::fault::LossConfig;
use crate::mbuf::Mempool;
use crate::port::Port;
use uroce_shared::seat::idle::{Driver, IdlePolicy};
use uroce_wire::{Gid, Mac, PathMtu};

/// Most lcores of an engine.
pub const MAX_LCORES: usize = 64;
/// Most ports of an engine: ports are numbered from 1 in eight bits.
pub const MAX_PORTS: usize = 255;
/// Most QPs of an engine; leaves 16 generations in a 24-bit number.
pub const MAX_QPS: u32 = 1 << 20;
/// Most memory regions of an engine; leaves 16 generations in the 24 bits of a key that name it.
pub const MAX_MRS: u32 = 1 << 20;
/// Most addresses of a port.
pub const MAX_GIDS: usize = 64;

/// Bytes of an Ethernet payload that IPv6, UDP, the transport headers and the invariant CRC may
/// take. Linux uses the same sum to derive a path MTU from an interface's MTU.
pub const ROCE_OVERHEAD: u16 = 40 + 8 + 12 + 4 + 28 + 4;

/// Returns the largest path MTU with packets that fit into an Ethernet payload of `mtu` bytes.
pub fn path_mtu_of(mtu: u16) -> Option<PathMtu> {
    let room = u32::from(mtu.saturating_sub(ROCE_OVERHEAD));
    let sizes = [PathMtu::B4096, PathMtu::B2048, PathMtu::B1024, PathMtu::B512, PathMtu::B256];
    sizes.into_iter().find(|size| size.bytes() <= room)
}

/// The configuration of [`Engine::start`](crate::Engine::start).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// One lcore per entry, 1 to [`MAX_LCORES`]: the CPU its thread is pinned to, if any.
    pub lcores: Vec<Option<usize>>,
    /// Most QPs at a time, 1 to [`MAX_QPS`]. Each costs about 40 bytes of address space per lcore,
    /// and 60 in all, even if it is never created.
    pub max_qps: u32,
    /// Most memory regions and windows at a time, 1 to [`MAX_MRS`]. Each costs 8 bytes even if it
    /// is never registered.
    pub max_mrs: u32,
    /// Most address handles at a time, 1 to [`MAX_AHS`](crate::MAX_AHS). Each costs 8 bytes even if
    /// it is never created.
    pub max_ahs: u32,
    /// The policy of an lcore without work.
    pub idle: IdlePolicy,
    /// The threads that run the lcores' turns.
    pub driver: Driver,
}

impl Default for EngineConfig {
    /// Makes a configuration with one unpinned lcore that polls, 4096 QPs, 2^20 memory regions and
    /// 4096 address handles.
    fn default() -> EngineConfig {
        EngineConfig {
            lcores: vec![None],
            max_qps: 4096,
            max_mrs: 1 << 20,
            max_ahs: 4096,
            idle: IdlePolicy::default(),
            driver: Driver::default(),
        }
    }
}

/// The addresses of a port on its network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortAddresses {
    /// Its Ethernet address.
    pub mac: Mac,
    /// Its 802.1Q VLAN, 1 to 4094; `None` if only untagged frames are for the port.
    pub vlan: Option<u16>,
    /// Its IP addresses, at most [`MAX_GIDS`].
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
    /// The mempool of the frames that it sends.
    pub pool: Mempool,
    /// The addresses of frames for the port.
    pub addresses: PortAddresses,
    /// Loss to be injected, for tests.
    pub loss: LossConfig,
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
}
