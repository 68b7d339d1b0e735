//! Ports: one interface for any DPDK ethdev.
//!
//! A [`Ethdev`] is a configured, started device. Its data path is in [`QueuePair`]s, receive queue
//! *i* with transmit queue *i*, each taken by the one thread that polls it.
//!
//! ```text
//!   Ethdev::open ── probe ── configure ── queues ── start ──► queue_pair(0) ─► lcore 0
//!     mac, mtu, link, stats, capabilities                   queue_pair(1) ─► lcore 1
//! ```
//!
//! Invariants
//! - A queue pair has one owner at a time (`QueuePair` is not `Clone` and not `Sync`).
//! - The device runs until the `Ethdev` and all its queue pairs are dropped, then stops and closes.
//!   It is reset or closed earlier only while there is no queue pair ([`away`]).
//! - Offloads of checksums and tags are off: each costs less in software, where the headers are
//!   written and read anyway. RoCEv2's own check is the ICRC, which no NIC computes for uroce.
//!
//! Not here: the content of packets; the kernel's interface behind a port; the assignment of queues
//! to lcores.

#![allow(unsafe_code)]

mod af_packet;
mod af_xdp;
mod arguments;
mod away;
mod config;
mod error;
pub(crate) mod feature;
mod flow_control;
mod link;
mod memif;
mod queue;
pub(crate) mod ring;
pub(crate) mod rss;
mod signal;
mod socket;
pub mod vdev;
mod virtio_user;

pub use config::{Capabilities, Link, Negotiated, PortConfig, PortStats};
pub use error::{PortError, QueueError};
pub use feature::{By, Feature};
pub use flow_control::{FlowControl, Pause};
pub(crate) use queue::QueuePair;

use crate::dpdk::eal::{Eal, c_string, lock, take_log};
use crate::dpdk::mbuf::Mempool;
use link::Watch;
use rustix::net::AddressFamily;
use socket::PacketSockets;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use uroce_shared::sync::wakers::Wakers;
use uroce_shared::sync::{AtomicBool, Ordering};
use uroce_shared::wake::waker::Waker;
use uroce_wire::Mac;

/// Bytes of an Ethernet frame besides its payload: header, one VLAN tag, CRC.
pub const FRAME_OVERHEAD: u16 = 14 + 4 + 4;

/// A started port.
#[derive(Debug)]
pub struct Ethdev {
    device: Arc<Device>,
}

/// The device and everything that it needs; closed when the last user is gone.
#[derive(Debug)]
struct Device {
    eal: &'static Eal,
    id: u16,
    /// Whether `open` created the device; then it is also removed.
    probed_here: bool,
    mac: Mac,
    capabilities: Capabilities,
    /// The configuration with which it was opened.
    config: PortConfig,
    /// For each queue pair, whether it is taken. The lock also serializes control calls, which DPDK
    /// allows from one thread at a time only.
    taken: Mutex<Vec<bool>>,
    /// Whether its receive queues have interrupts of DPDK's kind.
    has_interrupts: bool,
    /// For each queue, what the lcore that polls it sleeps on, if it may sleep.
    sleepers: Mutex<Vec<Option<Arc<Wakers>>>>,
    /// The mempool of its receive queues.
    pool: Mempool,
    under: Under,
    watch: Arc<Watch>,
    /// Whether the link was taken down by an administrator. For a ring the cable is cut instead.
    is_down: AtomicBool,
    /// Whether the lcores have given it back, for a reset or for good. Its link is down then, and
    /// its driver is not asked for anything, since it may have failed.
    is_away: AtomicBool,
    /// Whether it is closed for good. Then its number may be another port's.
    is_removed: AtomicBool,
}

/// Parts below a device that must outlive it.
#[derive(Debug, Default)]
struct Under {
    /// The connection of a memif port to its peer.
    link: Option<memif::Link>,
    /// The claim on the socket of a port on a vhost-user switch.
    _socket: Option<virtio_user::claim::Claim>,
    /// Makes the kernel's interface receive frames for other addresses while it is open.
    _listening: Option<OwnedFd>,
    /// The rings of a ring port, and which of the two ends the port is.
    rings: Option<(Arc<ring::Rings>, usize)>,
    /// The sockets of a port of net_af_packet.
    sockets: PacketSockets,
    /// Whether the sockets of a port of net_af_xdp are in zero-copy mode; `None` if not known.
    zero_copy: Option<bool>,
}

impl Ethdev {
    /// Opens the device that `config.device` names, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// [`PortError`]; a device that was created here is removed again.
    pub fn open(eal: &'static Eal, config: &PortConfig, pool: &Mempool) -> Result<Self, PortError> {
        let mut open_ports = lock(&eal.open_ports);
        let name = config.device.split(',').next().unwrap_or_default();
        if name.contains('=') {
            // DPDK takes it for a search among all devices.
            return Err(PortError::probe(name, libc::EINVAL, String::new()));
        }
        let found = find(name);
        if found.is_none() {
            arguments::check_ignored(&config.device)?;
        }
        let probed_here = found.is_none();
        let mut under = Under::default();
        let sockets =
            af_packet::is_af_packet(&config.device).then(|| socket::sockets(AddressFamily::PACKET));
        let id = match found {
            Some(id) => id,
            None if memif::is_memif(&config.device) => {
                let (prepared, devargs) = memif::Link::prepare(&config.device, config.queue_pairs)?;
                under.link = Some(prepared);
                probe(&devargs, name)?
            }
            None if virtio_user::is_virtio_user(&config.device) => {
                let (id, claim) =
                    virtio_user::open(&config.device, |devargs| probe(devargs, name))?;
                under._socket = claim;
                id
            }
            None => probe(&af_packet::fit(&config.device, config.mtu)?, name)?,
        };
        if open_ports.contains(&id) {
            return Err(PortError::AlreadyOpen { device: name.to_owned() });
        }
        let claimed = Claimed { id, probed_here };
        if let (Some(before), true) = (sockets, probed_here) {
            let queues = af_packet::queues(&config.device);
            under.sockets = PacketSockets::opened_since(&before, queues);
        }
        under._listening = af_packet::listen(&config.device);
        let port = Self::start(eal, claimed, config, pool, under)?;
        open_ports.insert(id);
        Ok(port)
    }

    /// Configures and starts a device that nothing else uses; removes it on failure.
    fn start(
        eal: &'static Eal,
        claimed: Claimed,
        config: &PortConfig,
        pool: &Mempool,
        mut under: Under,
    ) -> Result<Self, PortError> {
        let xdp_before =
            af_xdp::is_af_xdp(&config.device).then(|| socket::sockets(AddressFamily::XDP));
        let started = config::start(claimed.id, config, pool).and_then(|started| {
            under.link.as_ref().map_or(Ok(()), |link| link.attach(claimed.id))?;
            Ok(started)
        });
        let started = match started {
            Ok(started) => started,
            Err(error) => {
                claimed.release();
                return Err(error);
            }
        };
        if let Some(before) = xdp_before {
            under.zero_copy = socket::is_zero_copy(&before);
        }
        let pairs = usize::from(started.queue_pairs);
        let device = Device {
            eal,
            id: claimed.id,
            probed_here: claimed.probed_here,
            mac: started.mac,
            capabilities: started.capabilities,
            config: config.clone(),
            taken: Mutex::new(vec![false; pairs]),
            has_interrupts: started.has_interrupts,
            sleepers: Mutex::new(vec![None; pairs]),
            pool: pool.clone(),
            watch: link::watch(claimed.id),
            is_down: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            under,
        };
        if let Some((rings, end)) = &device.under.rings {
            rings.cable.join(*end, claimed.id);
        }
        device.listen();
        Ok(Self { device: Arc::new(device) })
    }

    /// Takes queue pair `index`. Dropping it gives it back.
    ///
    /// # Errors
    ///
    /// [`QueueError`] if there is no such pair or it is taken.
    pub fn queue_pair(&self, index: u16) -> Result<QueuePair, QueueError> {
        let mut taken = lock(&self.device.taken);
        let pairs = taken.len();
        match taken.get_mut(usize::from(index)) {
            None => Err(QueueError::OutOfRange { index, pairs }),
            Some(true) => Err(QueueError::Taken { index }),
            Some(free) => {
                *free = true;
                Ok(QueuePair::new(Arc::clone(&self.device), index))
            }
        }
    }

    /// Returns the number of queue pairs.
    pub fn queue_pairs(&self) -> u16 {
        lock(&self.device.taken).len() as u16
    }

    /// Returns DPDK's number of the port.
    pub fn id(&self) -> u16 {
        self.device.id
    }

    /// Returns the source address of the port's frames: the configured one, else the device's, else
    /// one derived from the device's name.
    pub fn mac(&self) -> Mac {
        self.device.mac
    }

    /// Returns the largest Ethernet payload in bytes.
    pub fn mtu(&self) -> u16 {
        self.device.config.mtu
    }

    /// Returns the device's capabilities.
    pub fn capabilities(&self) -> &Capabilities {
        &self.device.capabilities
    }

    /// Returns the features that only the driver of this device has.
    pub(crate) fn own_features(&self) -> Option<Feature> {
        let Device { config, under, .. } = &*self.device;
        under.zero_copy.map(|is_on| af_xdp::zero_copy(&config.device, is_on))
    }

    /// Returns the link's present state. A memif or vhost link is up while its peer is connected, a
    /// ring while neither end was taken down.
    pub fn link(&self) -> Link {
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return Link { up: false, speed_mbps: None };
        }
        let Link { up, speed_mbps } = link(self.device.id);
        Link { up: up && self.device.is_let_up(), speed_mbps }
    }

    /// Returns how the link was negotiated, of a link that is up.
    pub fn negotiated(&self) -> Option<Negotiated> {
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return None;
        }
        negotiated(self.device.id)
    }

    /// Takes the link down or up again. The driver goes on; lcores drop the frames that still
    /// arrive.
    pub(crate) fn set_link(&self, up: bool) {
        let Device { id, under, is_down, .. } = &*self.device;
        if let Some((rings, end)) = &under.rings {
            return rings.cable.set(*end, up);
        }
        is_down.store(!up, Ordering::Release);
        if let Some(link) = &under.link {
            link.set(up);
        }
        link::tell(*id);
    }

    /// Returns whether the link reports its changes, so that it need not be looked at often.
    pub(crate) fn tells_of_link(&self) -> bool {
        let Under { link, rings, .. } = &self.device.under;
        self.device.capabilities.link_interrupt || link.is_some() || rings.is_some()
    }

    /// Sets the waker that is used when the link may have changed.
    pub(crate) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        self.device.watch.set_waker(waker);
    }

    /// Returns whether the link may have changed since the last
    /// [`take_link_moved`](Ethdev::take_link_moved) that returned true.
    pub(crate) fn has_link_moved(&self) -> bool {
        self.device.watch.has_moved()
    }

    pub(crate) fn take_link_moved(&self) -> bool {
        self.device.watch.take_moved()
    }

    /// Returns whether the process at the other end of the link has ended, or was replaced by
    /// another, since the last call. Only memif links detect this.
    pub(crate) fn take_peer_ended(&self) -> bool {
        self.device.under.link.as_ref().is_some_and(memif::Link::take_peer_ended)
    }

    /// Returns the counters that every driver has, since the device was started.
    pub fn stats(&self) -> PortStats {
        let mut stats = dpdk_sys::uroce_port_stats::default();
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return stats.into();
        }
        // SAFETY: the port is open, and stays so while the lock is held; `stats` is writable. On
        // failure it stays zero.
        unsafe { dpdk_sys::uroce_port_stats(self.device.id, &mut stats) };
        // net_af_packet does not read what the kernel has dropped.
        stats.rx_missed += self.device.under.sockets.dropped();
        stats.into()
    }

    /// Returns the driver's own counters by name.
    pub fn xstats(&self) -> Vec<(String, u64)> {
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return Vec::new();
        }
        // SAFETY: the port is open; with capacity 0 nothing is written.
        let total = unsafe { dpdk_sys::uroce_port_xstats(self.id(), std::ptr::null_mut(), 0) };
        let mut all = vec![dpdk_sys::uroce_xstat::default(); usize::try_from(total).unwrap_or(0)];
        let capacity = all.len() as u32;
        // SAFETY: `all` is writable for `capacity` elements.
        let got = unsafe { dpdk_sys::uroce_port_xstats(self.id(), all.as_mut_ptr(), capacity) };
        all.truncate(usize::try_from(got).unwrap_or(0));
        all.iter().map(|xstat| (text(&xstat.name), xstat.value)).collect()
    }

    /// Returns the table by which the driver spreads received packets over queues (RSS RETA): the
    /// queue of each entry. `None` if the driver has no such table or does not tell it.
    pub fn rss_table(&self) -> Option<Vec<u16>> {
        let _control = lock(&self.device.taken);
        if self.device.is_away() {
            return None;
        }
        // SAFETY: the port is open; with capacity 0 nothing is written.
        let total = unsafe { dpdk_sys::uroce_port_reta(self.id(), std::ptr::null_mut(), 0) };
        let mut queues = vec![0; usize::try_from(total).ok()?];
        let capacity = u16::try_from(queues.len()).ok()?;
        // SAFETY: `queues` is writable for `capacity` elements.
        let got = unsafe { dpdk_sys::uroce_port_reta(self.id(), queues.as_mut_ptr(), capacity) };
        (got == total).then_some(queues)
    }
}

impl Device {
    /// Makes the driver call us when the link changes, if it can, and the bus when it loses the
    /// device.
    fn listen(&self) {
        if self.capabilities.is_pci() {
            // SAFETY: the port is open, and the function exists as long as the process. A bus that
            // refuses loses no device.
            unsafe { dpdk_sys::uroce_port_watch_removal(self.id, Some(link::on_removal)) };
        }
        if self.capabilities.link_interrupt {
            // SAFETY: the port is open, and the function exists as long as the process. The link of
            // a port that refuses is looked at now and then.
            unsafe { dpdk_sys::uroce_port_watch(self.id, Some(link::on_interrupt)) };
        }
    }

    /// Closes the device, and gives it back to the machine if `is_given_back`. No thread may have a
    /// queue pair of it.
    fn close(&self, open_ports: &mut BTreeSet<u16>, is_given_back: bool) {
        link::unwatch(self.id);
        if let Some((rings, end)) = &self.under.rings {
            rings.cable.leave(*end);
        }
        if let Some(link) = &self.under.link {
            link.detach();
        }
        let is_sibling = |&other: &u16| {
            // SAFETY: both ports are open, since the lock of `open_ports` is held.
            other != self.id && unsafe { dpdk_sys::uroce_port_same_device(other, self.id) } != 0
        };
        // A function may have several ports, and gives them up together.
        let is_last = !open_ports.iter().any(is_sibling);
        if self.capabilities.is_pci() && is_last {
            // SAFETY: the port is open.
            unsafe { dpdk_sys::uroce_port_unwatch_removal(self.id, Some(link::on_removal)) };
        }
        Claimed { id: self.id, probed_here: is_given_back && is_last }.release();
        open_ports.remove(&self.id);
    }

    /// Returns whether the link was not taken down, and the peer is connected.
    fn is_let_up(&self) -> bool {
        let Under { link, rings, .. } = &self.under;
        !self.is_down.load(Ordering::Acquire)
            && link.as_ref().is_none_or(memif::Link::is_connected)
            && rings.as_ref().is_none_or(|(rings, _)| rings.cable.is_whole())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let mut open_ports = lock(&self.eal.open_ports);
        if !self.is_removed() {
            self.close(&mut open_ports, self.probed_here);
        }
        // The next port of that name gets sockets of the same names.
        self.under.link = None;
    }
}

/// An ethdev that this process may configure and has to close.
struct Claimed {
    id: u16,
    probed_here: bool,
}

impl Claimed {
    /// Closes the device. An error is ignored: the port is gone in any case.
    fn release(self) {
        let close = match self.probed_here {
            true => dpdk_sys::uroce_port_remove,
            false => dpdk_sys::uroce_port_close,
        };
        // SAFETY: the port exists, and no thread polls it: the caller has found no queue pair, or
        // is the drop of the `Device`, which queue pairs keep alive. It holds `open_ports`.
        unsafe { close(self.id) };
    }
}

/// Returns the link's state of an open port.
fn link(id: u16) -> Link {
    let link = drivers_link(id);
    let speed_mbps = (link.speed_mbps != u32::MAX).then_some(link.speed_mbps);
    Link { up: link.up != 0, speed_mbps }
}

/// Returns the state that the driver of an open port reports of its link; all zeros after an error.
fn drivers_link(id: u16) -> dpdk_sys::uroce_link {
    let mut link = dpdk_sys::uroce_link::default();
    // SAFETY: `link` is writable, and the callers keep the port open.
    let code = unsafe { dpdk_sys::uroce_port_link(id, &mut link) };
    if code == 0 { link } else { dpdk_sys::uroce_link::default() }
}

/// Returns how the link of an open port was negotiated, if it is up.
fn negotiated(id: u16) -> Option<Negotiated> {
    /// testpmd's names of DPDK's modes, which are bits of a mask in this order.
    const MODES: [&str; 5] = ["off", "auto", "baser", "rs", "llrs"];
    let link = drivers_link(id);
    let mut modes = 0;
    // SAFETY: `modes` is writable, and the callers keep the port open.
    let code = unsafe { dpdk_sys::uroce_port_fec(id, &mut modes) };
    // The mode in use is the only bit while the link is up; 32 zeros name none.
    let fec = MODES.get(modes.trailing_zeros() as usize).copied().filter(|_| code == 0);
    let (full_duplex, autoneg) = (link.full_duplex != 0, link.autoneg != 0);
    let pause = flow_control::pause(id);
    (link.up != 0).then_some(Negotiated { full_duplex, autoneg, fec, pause })
}

/// Stops and starts a port; its queues must not be used meanwhile. Returns false if that failed:
/// then the port is stopped, and may be restarted again.
fn restart(id: u16) -> bool {
    // SAFETY: the port is open: the caller holds a lock that closing it takes first.
    let code = unsafe { dpdk_sys::uroce_port_restart(id) };
    code == 0
}

/// Returns the number of the port of that name.
fn find(name: &str) -> Option<u16> {
    let name = c_string(name);
    // SAFETY: EAL runs, as the callers hold an `Eal`; the name is NUL-terminated and only read.
    let id = unsafe { dpdk_sys::uroce_port_find(name.as_ptr()) };
    u16::try_from(id).ok()
}

/// Creates the device and returns its port's number.
fn probe(devargs: &str, name: &str) -> Result<u16, PortError> {
    take_log();
    let arguments = c_string(devargs);
    // SAFETY: EAL runs; the string is NUL-terminated and copied; the caller holds the lock of
    // `open_ports`, so devices are created one at a time.
    let code = unsafe { dpdk_sys::uroce_device_probe(arguments.as_ptr()) };
    match find(name) {
        Some(id) if code == 0 => Ok(id),
        _ => {
            let error = arguments::explain(devargs, PortError::probe(name, -code, take_log()));
            if code == 0 {
                // SAFETY: EAL runs; the string is NUL-terminated and only read. Nothing uses the
                // device, which is none of Ethernet.
                unsafe { dpdk_sys::uroce_device_remove(arguments.as_ptr()) };
            }
            Err(error)
        }
    }
}

/// Returns the text of a C array, up to its terminator.
fn text(array: &[c_char]) -> String {
    // SAFETY: `c_char` and `u8` have one layout, and the slice's length is kept.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Turns a negative result of the shim into an error that names the step.
fn check(code: c_int, step: &'static str) -> Result<(), PortError> {
    if code >= 0 { Ok(()) } else { Err(PortError::step(step, -code, take_log())) }
}
