//! Ports: one face for all kinds.
//!
//! | kind | what is behind it |
//! | --- | --- |
//! | [`Ethdev`] | any device that DPDK drives ([`crate::dpdk::port`]) |
//! | [`LocalPort`] | the other processes of this machine ([`uroce_local`]) |
//! | [`UdpPort`] | the kernel's UDP sockets ([`uroce_udp`]) |
//!
//! A [`Port`] is started. Its data path is in [`QueuePair`]s, receive queue *i* with transmit queue
//! *i*, each taken by the one thread that polls it.
//!
//! Not here: the content of packets; the kernel's interface behind a port; the assignment of queues
//! to lcores.

mod local;
mod port_id;
mod queue_pair;
mod spare;
mod udp;

pub use crate::dpdk::port::{
    By, Capabilities, FRAME_OVERHEAD, Feature, FlowControl, Link, Negotiated, Pause, PortConfig,
    PortError, PortStats, QueueError, vdev,
};
pub use local::{LocalConfig, LocalError, LocalPort};
pub use queue_pair::QueuePair;
pub use udp::{UdpConfig, UdpError, UdpPort};
pub use uroce_local::{Holder, MEMBERS_MAX, Reservation, mac_of as member_mac};
pub use uroce_udp::mac_of as udp_mac;

use crate::dpdk::eal::Eal;
use crate::dpdk::mbuf::Mempool;
use crate::dpdk::port::rss::Rss;
use crate::dpdk::port::{Ethdev, feature};
use port_id::PortId;
use std::net::IpAddr;
use std::sync::Arc;
use uroce_shared::wake::waker::Waker;
use uroce_wire::Mac;

/// A started port.
#[derive(Debug)]
pub struct Port {
    kind: Kind,
    id: PortId,
}

#[derive(Debug)]
enum Kind {
    Ethdev(Ethdev),
    Local(LocalPort),
    Udp(UdpPort),
}

impl From<Ethdev> for Port {
    fn from(ethdev: Ethdev) -> Port {
        let id = PortId::take(Some(ethdev.id()));
        Port { kind: Kind::Ethdev(ethdev), id }
    }
}

impl From<LocalPort> for Port {
    fn from(local: LocalPort) -> Port {
        let id = PortId::take(None);
        Port { kind: Kind::Local(local), id }
    }
}

impl From<UdpPort> for Port {
    fn from(udp: UdpPort) -> Port {
        let id = PortId::take(None);
        Port { kind: Kind::Udp(udp), id }
    }
}

/// The process at the other end of a link that has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndedPeer {
    /// The peer was the only one on the link.
    Only,
    /// The peer with this Ethernet address.
    At(Mac),
}

impl Port {
    /// Opens the DPDK device that `config.device` names, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`PortError`]; a device that was created here is removed again.
    pub fn open(eal: &'static Eal, config: &PortConfig, pool: &Mempool) -> Result<Port, PortError> {
        Ethdev::open(eal, config, pool).map(Port::from)
    }

    /// Joins the processes of this machine that share a directory.
    ///
    /// # Errors
    ///
    /// [`LocalError`]; nothing is left behind.
    pub fn join(config: LocalConfig, pool: &Mempool) -> Result<Port, LocalError> {
        LocalPort::join(config, pool).map(Port::from)
    }

    /// Opens a port over the kernel's UDP sockets.
    ///
    /// # Errors
    ///
    /// [`UdpError`]; nothing is left behind.
    pub fn over_udp(config: UdpConfig, pool: &Mempool) -> Result<Port, UdpError> {
        UdpPort::open(config, pool).map(Port::from)
    }

    /// Takes queue pair `index`. Dropping it gives it back.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if there is no such pair or it is taken.
    pub fn queue_pair(&self, index: u16) -> Result<QueuePair, QueueError> {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.queue_pair(index).map(QueuePair::from),
            Kind::Local(local) => local.queue_pair(index).map(QueuePair::from),
            Kind::Udp(udp) => udp.queue_pair(index).map(QueuePair::from),
        }
    }

    /// Returns the number of queue pairs.
    pub fn queue_pairs(&self) -> u16 {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.queue_pairs(),
            Kind::Local(local) => local.queue_pairs(),
            Kind::Udp(udp) => udp.queue_pairs(),
        }
    }

    /// Returns the port's number, which no other open port of the process has: DPDK's number of
    /// its first device, or the smallest free one if that is taken or the port is none of DPDK's.
    pub fn id(&self) -> u16 {
        self.id.value()
    }

    /// Returns the port's number among the processes of this machine, 1 to 64; `None` if it is of
    /// another kind.
    pub fn member(&self) -> Option<u8> {
        match &self.kind {
            Kind::Ethdev(_) | Kind::Udp(_) => None,
            Kind::Local(local) => Some(local.member()),
        }
    }

    /// Returns the addresses at which a port over UDP sockets receives, from its opening on; `None`
    /// if it is of another kind.
    pub fn socket_addresses(&self) -> Option<&[IpAddr]> {
        match &self.kind {
            Kind::Ethdev(_) | Kind::Local(_) => None,
            Kind::Udp(udp) => Some(udp.addresses()),
        }
    }

    /// Returns the source address of the port's frames: the configured one, else the device's, else
    /// one derived from the device's name.
    pub fn mac(&self) -> Mac {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.mac(),
            Kind::Local(local) => local.mac(),
            Kind::Udp(udp) => udp.mac(),
        }
    }

    /// Returns whether the port carries frames of any kind: all but those of the kernel's UDP
    /// sockets do.
    pub(crate) fn carries_frames(&self) -> bool {
        !matches!(self.kind, Kind::Udp(_))
    }

    /// Returns the largest Ethernet payload in bytes.
    pub fn mtu(&self) -> u16 {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.mtu(),
            Kind::Local(local) => local.mtu(),
            Kind::Udp(udp) => udp.mtu(),
        }
    }

    /// Returns the device's capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.capabilities(),
            Kind::Local(local) => local.capabilities(),
            Kind::Udp(udp) => udp.capabilities(),
        }
    }

    /// Returns what the device may take over, and whether it does.
    pub fn features(&self) -> Vec<Feature> {
        self.features_with(self.rss().is_some())
    }

    /// Returns the same; `steers` tells whether the device's RSS table is set for QPs.
    pub(crate) fn features_with(&self, steers: bool) -> Vec<Feature> {
        match &self.kind {
            Kind::Ethdev(ethdev) => {
                let mut all = feature::of_device(self.capabilities(), steers);
                all.extend(ethdev.own_features());
                all
            }
            Kind::Local(_) => feature::of_device(self.capabilities(), steers),
            Kind::Udp(udp) => feature::of_kernel(udp.capabilities()),
        }
    }

    /// Returns the link's present state. A memif or vhost link is up while its peer is connected, a
    /// ring while neither end was taken down, a local port while it was not taken down.
    pub fn link(&self) -> Link {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.link(),
            Kind::Local(local) => local.link(),
            Kind::Udp(udp) => udp.link(),
        }
    }

    /// Returns how the link was negotiated, of a device of DPDK with its link up.
    pub fn negotiated(&self) -> Option<Negotiated> {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.negotiated(),
            Kind::Local(_) | Kind::Udp(_) => None,
        }
    }

    /// Takes the link down or up again. The driver goes on; lcores drop the frames that still
    /// arrive.
    pub(crate) fn set_link(&self, up: bool) {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.set_link(up),
            Kind::Local(local) => local.set_link(up),
            Kind::Udp(udp) => udp.set_link(up),
        }
    }

    /// Returns the port's device if it can be reset and removed: a NIC, or a virtual device without
    /// another end.
    pub(crate) fn resettable(&self) -> Option<&Ethdev> {
        match &self.kind {
            Kind::Ethdev(ethdev) => Some(ethdev).filter(|ethdev| ethdev.can_be_reset()),
            Kind::Local(_) | Kind::Udp(_) => None,
        }
    }

    /// Returns whether the port's device is closed for good, as the machine lost it or it was
    /// detached.
    pub fn is_removed(&self) -> bool {
        self.resettable().is_some_and(Ethdev::is_removed)
    }

    /// Puts a device in place of the port's own, which is closed for good. The port keeps its
    /// number.
    pub(crate) fn replace(&mut self, ethdev: Ethdev) {
        self.kind = Kind::Ethdev(ethdev);
    }

    /// Returns whether the link reports its changes, so that it need not be looked at often.
    pub(crate) fn tells_of_link(&self) -> bool {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.tells_of_link(),
            Kind::Local(_) | Kind::Udp(_) => true,
        }
    }

    /// Sets the waker that is used when the link may have changed or a peer has ended.
    pub(crate) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.set_waker(waker),
            Kind::Local(local) => local.set_waker(waker),
            Kind::Udp(udp) => udp.set_waker(waker),
        }
    }

    /// Returns whether the link may have changed since the last
    /// [`take_link_moved`](Port::take_link_moved) that returned true, or a peer has ended.
    pub(crate) fn has_link_moved(&self) -> bool {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.has_link_moved(),
            Kind::Local(local) => local.has_link_moved(),
            Kind::Udp(udp) => udp.has_link_moved(),
        }
    }

    pub(crate) fn take_link_moved(&self) -> bool {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.take_link_moved(),
            Kind::Local(local) => local.take_link_moved(),
            Kind::Udp(udp) => udp.take_link_moved(),
        }
    }

    /// Returns a peer's process that has ended, or was replaced by another, since the last call;
    /// `None` when there is no other. Only memif links and local ports detect this.
    pub(crate) fn take_ended_peer(&self) -> Option<EndedPeer> {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.take_peer_ended().then_some(EndedPeer::Only),
            Kind::Local(local) => local.take_ended_peer().map(EndedPeer::At),
            Kind::Udp(_) => None,
        }
    }

    /// Returns the counters that every driver has, since the device was started.
    pub fn stats(&self) -> PortStats {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.stats(),
            Kind::Local(local) => local.stats(),
            Kind::Udp(udp) => udp.stats(),
        }
    }

    /// Returns the driver's own counters by name.
    pub fn xstats(&self) -> Vec<(String, u64)> {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.xstats(),
            Kind::Local(local) => local.xstats(),
            Kind::Udp(udp) => udp.xstats(),
        }
    }

    /// Returns the table by which the driver spreads received packets over queues (RSS RETA): the
    /// queue of each entry. `None` if the driver has no such table or does not tell it.
    pub fn rss_table(&self) -> Option<Vec<u16>> {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.rss_table(),
            Kind::Local(_) | Kind::Udp(_) => None,
        }
    }

    /// Returns how the device spreads received packets, if its table can be changed while packets
    /// arrive.
    pub(crate) fn rss(&self) -> Option<Rss> {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.rss(),
            Kind::Local(_) | Kind::Udp(_) => None,
        }
    }

    /// Makes packets of an entry of that table arrive at another queue. Returns false if the driver
    /// refuses.
    pub(crate) fn set_rss_entry(&self, entry: usize, queue: u16) -> bool {
        match &self.kind {
            Kind::Ethdev(ethdev) => ethdev.set_rss_entry(entry, queue),
            Kind::Local(_) | Kind::Udp(_) => false,
        }
    }
}

/// Links inside of the process.
pub mod ring {
    use super::Port;
    use crate::dpdk::eal::Eal;
    use crate::dpdk::mbuf::Mempool;
    use crate::dpdk::port::{PortError, ring};

    /// Makes two ports, `<name>0` and `<name>1`, joined by rings of `size − 1` frames per queue and
    /// direction. They receive into mbufs of `pool`; each frame keeps the mempool from which it was
    /// sent.
    ///
    /// `size` is a power of two from 2 to 32768, `queues` 1 to 16, `name` new and at most 16 bytes
    /// long.
    ///
    /// # Errors
    ///
    /// [`PortError::Ring`] if a value is out of range, [`PortError::Step`] if DPDK fails.
    pub fn ring_pair(
        eal: &'static Eal,
        name: &str,
        queues: u16,
        size: u32,
        mtu: u16,
        pool: &Mempool,
    ) -> Result<(Port, Port), PortError> {
        let (first, second) = ring::ring_pair(eal, name, queues, size, mtu, pool)?;
        Ok((first.into(), second.into()))
    }
}
