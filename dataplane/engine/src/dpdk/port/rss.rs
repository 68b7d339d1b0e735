//! How a device spreads received packets over its queues (RSS), and changes of its table.

mod toeplitz;

pub(crate) use toeplitz::{Covered, Flow, Hash};

use super::Ethdev;
use crate::dpdk::eal::lock;

/// Drivers that change an entry of the table while packets arrive. Others refuse, or stop the port
/// for it as mlx5 does, or are not known.
const CHANGED_LIVE: &[&str] = &[
    "net_e1000_igb",
    "net_ena",
    "net_i40e",
    "net_iavf",
    "net_ice",
    "net_igc",
    "net_ixgbe",
    "net_ixgbe_vf",
    "net_null",
    "net_virtio",
];

/// Returns whether the driver of that name can change the table while packets arrive.
pub(super) fn is_changed_live(driver: &str) -> bool {
    CHANGED_LIVE.contains(&driver)
}

/// How a device spreads received packets over its queues: the low bits of a packet's hash choose an
/// entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rss {
    pub(crate) hash: Hash,
    /// The queue of each entry; their number is a power of two.
    pub(crate) table: Vec<u16>,
}

impl Rss {
    /// Returns the entry of a flow's packets, if the device hashes them.
    pub(crate) fn entry_of(&self, flow: &Flow) -> Option<usize> {
        Some(self.hash.of(flow)? as usize & (self.table.len() - 1))
    }
}

impl Ethdev {
    /// Returns how the device spreads received packets. `None` if it has one queue, if its driver
    /// does not tell, or if its table cannot be changed while packets arrive.
    pub(crate) fn rss(&self) -> Option<Rss> {
        if self.queue_pairs() < 2 || !self.capabilities().steering {
            return None;
        }
        let table = self.rss_table().filter(|table| table.len().is_power_of_two())?;
        let mut rss = dpdk_sys::uroce_rss::default();
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return None;
        }
        // SAFETY: the port is open, and stays so while the lock is held; `rss` is writable.
        let code = unsafe { dpdk_sys::uroce_port_rss(self.id(), &mut rss) };
        let key = rss.key.get(..usize::from(rss.key_len))?.to_vec();
        let covered = |addresses: u8, ports: u8| match (addresses, ports) {
            (_, 1..) => Some(Covered::Ports),
            (1.., 0) => Some(Covered::Addresses),
            (0, 0) => None,
        };
        let ipv4 = covered(rss.ipv4, rss.ipv4_udp);
        let ipv6 = covered(rss.ipv6, rss.ipv6_udp);
        (code == 0).then_some(Rss { hash: Hash { key, ipv4, ipv6 }, table })
    }

    /// Makes packets of a table's entry arrive at another queue. Returns false if the driver
    /// refuses.
    pub(crate) fn set_rss_entry(&self, entry: usize, queue: u16) -> bool {
        let Ok(entry) = u16::try_from(entry) else { return false };
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return false;
        }
        // SAFETY: the port is open, and stays so while the lock is held.
        let code = unsafe { dpdk_sys::uroce_port_reta_set(self.id(), entry, queue) };
        code == 0
    }
}
