//! Ports: any DPDK ethdev behind one face.
//!
//! A [`Port`] is a configured, started device. Its data path is in [`QueuePair`]s, receive queue
//! *i* with transmit queue *i*, each taken by the one thread that polls it.
//!
//! ```text
//!   Port::open ── probe ── configure ── queues ── start ──► queue_pair(0) ─► lcore 0
//!     mac, mtu, link, stats, capabilities                   queue_pair(1) ─► lcore 1
//! ```
//!
//! Invariants
//! - A queue pair has one owner at a time (`QueuePair` is not `Clone` and not `Sync`).
//! - The device runs until the `Port` and all its queue pairs are dropped, then stops and closes.
//! - Offloads are off: RoCEv2's own check is the ICRC, which no NIC computes for us.
//!
//! Not here: packets' meaning; kernel netdevs behind a port; which lcore takes which queue.

#![allow(unsafe_code)]

mod af_packet;
mod config;
mod error;
mod link;
mod memif;
mod queue;
pub mod ring;
mod signal;
mod socket;
pub mod vdev;

pub use config::{Capabilities, Link, PortConfig, PortStats};
pub use error::{PortError, QueueError};
pub use queue::QueuePair;

use crate::eal::{Eal, c_string, lock, take_log};
use crate::mbuf::Mempool;
use crate::sync::{AtomicBool, Ordering};
use crate::waker::Waker;
use link::Watch;
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Arc, Mutex};
use uroce_wire::Mac;

/// Bytes that an Ethernet frame has beside its payload: header, one VLAN tag, CRC.
pub const FRAME_OVERHEAD: u16 = 14 + 4 + 4;

/// A started port.
#[derive(Debug)]
pub struct Port {
    device: Arc<Device>,
}

/// The device and what it needs to live; closes when the last user is gone.
#[derive(Debug)]
struct Device {
    eal: &'static Eal,
    id: u16,
    /// Whether `open` made the device, which then also goes.
    probed_here: bool,
    mac: Mac,
    mtu: u16,
    capabilities: Capabilities,
    /// Per queue pair, whether somebody has it. The lock also serializes control calls, which
    /// DPDK wants from one thread at a time.
    taken: Mutex<Vec<bool>>,
    /// Its receive queues have interrupts of DPDK's kind.
    has_interrupts: bool,
    /// Receive queues draw from it.
    _pool: Mempool,
    under: Under,
    watch: Arc<Watch>,
    /// An administrator has taken the link down; of a ring the cable is cut instead.
    is_down: AtomicBool,
}

/// What lies under a device and must outlive it.
#[derive(Debug, Default)]
struct Under {
    /// Joins a memif port to its peer.
    link: Option<memif::Link>,
    /// Has an interface of the kernel's receive what is addressed to others.
    _listening: Option<OwnedFd>,
    /// The rings of a ring port, and which of the two it is.
    rings: Option<(Arc<ring::Rings>, usize)>,
    /// The sockets of a port of net_af_packet, one a queue.
    sockets: Vec<RawFd>,
}

impl Port {
    /// Opens the device that `config.device` names, creating it if it does not exist.
    ///
    /// # Errors
    ///
    /// See [`PortError`]; a device that was created here is removed again.
    pub fn open(eal: &'static Eal, config: &PortConfig, pool: &Mempool) -> Result<Self, PortError> {
        let mut open_ports = lock(&eal.open_ports);
        let name = config.device.split(',').next().unwrap_or_default();
        let found = find(name);
        let probed_here = found.is_none();
        let mut under = Under::default();
        let sockets = af_packet::is_af_packet(&config.device).then(socket::packet_sockets);
        let id = match found {
            Some(id) => id,
            None if memif::is_memif(&config.device) => {
                let (prepared, devargs) = memif::Link::prepare(&config.device, config.queue_pairs)?;
                under.link = Some(prepared);
                probe(&devargs, name)?
            }
            None => probe(&af_packet::fit(&config.device, config.mtu)?, name)?,
        };
        if open_ports.contains(&id) {
            return Err(PortError::AlreadyOpen { device: name.to_owned() });
        }
        let claimed = Claimed { id, probed_here };
        if let (Some(before), true) = (sockets, probed_here) {
            under.sockets = socket::opened_since(&before, config.queue_pairs);
        }
        under._listening = af_packet::listen(&config.device);
        let port = Self::start(eal, claimed, config, pool, under)?;
        open_ports.insert(id);
        Ok(port)
    }

    /// Configures and starts a device that nobody else uses; removes it on failure.
    fn start(
        eal: &'static Eal,
        claimed: Claimed,
        config: &PortConfig,
        pool: &Mempool,
        mut under: Under,
    ) -> Result<Self, PortError> {
        let started = config::start(claimed.id, config, pool).and_then(|started| {
            under.link.as_mut().map_or(Ok(()), |link| link.attach(claimed.id))?;
            Ok(started)
        });
        let started = match started {
            Ok(started) => started,
            Err(error) => {
                claimed.release();
                return Err(error);
            }
        };
        let device = Device {
            eal,
            id: claimed.id,
            probed_here: claimed.probed_here,
            mac: started.mac,
            mtu: config.mtu,
            capabilities: started.capabilities,
            taken: Mutex::new(vec![false; usize::from(started.queue_pairs)]),
            has_interrupts: started.has_interrupts,
            _pool: pool.clone(),
            watch: link::watch(claimed.id),
            is_down: AtomicBool::new(false),
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
    /// [`QueueError`] if there is no such pair or somebody has it.
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

    /// Number of queue pairs.
    pub fn queue_pairs(&self) -> u16 {
        lock(&self.device.taken).len() as u16
    }

    /// DPDK's number of the port.
    pub fn id(&self) -> u16 {
        self.device.id
    }

    /// Source address of our frames: the configured one, else the device's, else one derived from
    /// the device's name.
    pub fn mac(&self) -> Mac {
        self.device.mac
    }

    /// Largest Ethernet payload, bytes.
    pub fn mtu(&self) -> u16 {
        self.device.mtu
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.device.capabilities
    }

    /// The link's present state. For memif and vhost it is up while the peer is connected, for a
    /// ring while neither end was taken down.
    pub fn link(&self) -> Link {
        let _control = lock(&self.device.taken);
        let Link { up, speed_mbps } = link(self.device.id);
        Link { up: up && self.device.is_let_up(), speed_mbps }
    }

    /// Takes the link down or lets it up again. The driver goes on; what passes nevertheless is for
    /// the lcores to drop.
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

    /// Does the link tell of itself, so that nobody need look at it all the time?
    pub(crate) fn tells_of_link(&self) -> bool {
        let Under { link, rings, .. } = &self.device.under;
        self.device.capabilities.link_interrupt || link.is_some() || rings.is_some()
    }

    /// This thread is woken when the link may have moved.
    pub(crate) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        self.device.watch.set_waker(waker);
    }

    /// May the link have moved since [`take_link_moved`](Port::take_link_moved) said so last?
    pub(crate) fn has_link_moved(&self) -> bool {
        self.device.watch.has_moved()
    }

    pub(crate) fn take_link_moved(&self) -> bool {
        self.device.watch.take_moved()
    }

    /// Has the process at the other end of the link ended, or left its place to another, since the
    /// last call? Only memif links know.
    pub(crate) fn take_peer_ended(&self) -> bool {
        self.device.under.link.as_ref().is_some_and(memif::Link::take_peer_ended)
    }

    /// Counters that every driver has, since the device was started.
    pub fn stats(&self) -> PortStats {
        let mut stats = dpdk_sys::uroce_port_stats::default();
        let _control = lock(&self.device.taken);
        // SAFETY: the port is open as long as `self`, and `stats` is writable. On failure it stays
        // zero.
        unsafe { dpdk_sys::uroce_port_stats(self.device.id, &mut stats) };
        stats.into()
    }

    /// The driver's own counters by name.
    pub fn xstats(&self) -> Vec<(String, u64)> {
        let _control = lock(&self.device.taken);
        // SAFETY: the port is open; with capacity 0 nothing is written.
        let total = unsafe { dpdk_sys::uroce_port_xstats(self.id(), std::ptr::null_mut(), 0) };
        let mut all = vec![dpdk_sys::uroce_xstat::default(); usize::try_from(total).unwrap_or(0)];
        let capacity = all.len() as u32;
        // SAFETY: `all` is writable for `capacity` elements.
        let got = unsafe { dpdk_sys::uroce_port_xstats(self.id(), all.as_mut_ptr(), capacity) };
        all.truncate(usize::try_from(got).unwrap_or(0));
        all.iter().map(|xstat| (text(&xstat.name), xstat.value)).collect()
    }
}

impl Device {
    /// Has the driver call us when the link moves, if it can.
    fn listen(&self) {
        if self.capabilities.link_interrupt {
            // SAFETY: the port is open, and the function is there as long as the process. A port
            // that refuses is looked at now and then anyway.
            unsafe { dpdk_sys::uroce_port_watch(self.id, Some(link::on_interrupt)) };
        }
    }

    /// Has nobody taken the link down?
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
        link::unwatch(self.id);
        if let Some((rings, end)) = &self.under.rings {
            rings.cable.leave(*end);
        }
        if let Some(link) = &self.under.link {
            link.detach();
        }
        Claimed { id: self.id, probed_here: self.probed_here }.release();
        open_ports.remove(&self.id);
    }
}

/// An ethdev that is ours to configure and to close.
struct Claimed {
    id: u16,
    probed_here: bool,
}

impl Claimed {
    /// Closes it. What fails then has no one to tell: the port is gone in any case.
    fn release(self) {
        let close = match self.probed_here {
            true => dpdk_sys::uroce_port_remove,
            false => dpdk_sys::uroce_port_close,
        };
        // SAFETY: the port exists and nobody polls it: queue pairs keep the `Device` alive. The
        // caller holds the lock of `open_ports`.
        unsafe { close(self.id) };
    }
}

/// The link's state, of an open port.
fn link(id: u16) -> Link {
    let mut link = dpdk_sys::uroce_link::default();
    // SAFETY: `link` is writable, and the callers keep the port open.
    let code = unsafe { dpdk_sys::uroce_port_link(id, &mut link) };
    let speed_mbps = (link.speed_mbps != u32::MAX).then_some(link.speed_mbps);
    Link { up: code == 0 && link.up != 0, speed_mbps }
}

/// Stops and starts a port whose queues nobody uses meanwhile. Did it? If not, the port is stopped,
/// and may be restarted again.
fn restart(id: u16) -> bool {
    // SAFETY: the port is open: the caller holds the lock that closing it takes first.
    let code = unsafe { dpdk_sys::uroce_port_restart(id) };
    code == 0
}

/// The number of the port of that name.
fn find(name: &str) -> Option<u16> {
    let name = c_string(name);
    // SAFETY: EAL runs, as the callers hold an `Eal`; the name is terminated and only read.
    let id = unsafe { dpdk_sys::uroce_port_find(name.as_ptr()) };
    u16::try_from(id).ok()
}

/// Creates the device; its port's number.
fn probe(devargs: &str, name: &str) -> Result<u16, PortError> {
    take_log();
    let arguments = c_string(devargs);
    // SAFETY: EAL runs; the string is terminated and copied; the caller holds the lock of
    // `open_ports`, so devices come one at a time.
    let code = unsafe { dpdk_sys::uroce_device_probe(arguments.as_ptr()) };
    match find(name) {
        Some(id) if code == 0 => Ok(id),
        _ => Err(PortError::probe(name, -code, take_log())),
    }
}

/// The text of a C array, up to its terminator.
fn text(array: &[c_char]) -> String {
    // SAFETY: `c_char` and `u8` have one layout, and the slice's length is kept.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    CStr::from_bytes_until_nul(bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Turns a shim's result into an error that names the step.
fn check(code: c_int, step: &'static str) -> Result<(), PortError> {
    if code >= 0 { Ok(()) } else { Err(PortError::step(step, -code, take_log())) }
}
