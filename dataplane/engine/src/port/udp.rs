//! The port over the kernel's UDP sockets: for processes without any privilege.
//!
//! Its lcore makes system calls in its turns, unlike the lcores of all other ports.
//!
//! Not here: sockets, headers and the invariant CRC ([`uroce_udp`]); neighbours and routes, which
//! are the kernel's.

use super::spare::Spare;
use super::{Capabilities, Link, PortStats, QueueError};
use crate::dpdk::eal::lock;
use crate::dpdk::mbuf::{MbufBatch, Mempool};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use uroce_shared::sync::{AtomicBool, Ordering};
use uroce_shared::wake::bed::Bed;
use uroce_shared::wake::waker::Waker;
use uroce_udp::{Endpoint, EndpointConfig, Queue};
use uroce_wire::Mac;

/// Largest MTU that uroce supports.
const MTU_MAX: u16 = 9000;

/// The reason why a port over UDP sockets could not be opened.
pub type UdpError = uroce_udp::OpenError;

/// The configuration of [`Port::over_udp`](super::Port::over_udp).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Network interface.
    pub interface: String,
    /// Its IP addresses, at least one.
    pub addresses: Vec<IpAddr>,
    /// Ethernet address in frames; `None` for one made from the first IP address.
    pub mac: Option<Mac>,
    /// Pairs of a receive and a transmit queue, 1 to 16.
    pub queue_pairs: u16,
    /// Largest Ethernet payload in bytes, up to 9000.
    pub mtu: u16,
}

/// A port over UDP sockets.
#[derive(Debug)]
pub struct UdpPort {
    endpoint: Arc<Endpoint>,
    mtu: u16,
    pool: Mempool,
    capabilities: Capabilities,
    /// Whether the link is set down.
    is_down: AtomicBool,
    /// Whether the link was set down or up since [`take_link_moved`](UdpPort::take_link_moved) was
    /// called last.
    has_moved: AtomicBool,
    waker: Mutex<Option<Arc<Waker>>>,
}

impl UdpPort {
    /// Opens the port's sockets, one per queue pair and address.
    pub(super) fn open(config: UdpConfig, pool: &Mempool) -> Result<UdpPort, UdpError> {
        let UdpConfig { interface, addresses, mac, queue_pairs, mtu } = config;
        let first = addresses.first().copied();
        let mac = mac.or_else(|| first.map(uroce_udp::mac_of)).unwrap_or_default();
        let capabilities = Capabilities {
            name: interface.clone(),
            driver: "udp".to_owned(),
            max_queue_pairs: uroce_udp::QUEUES_MAX,
            max_mtu: Some(MTU_MAX),
            rss: queue_pairs > 1,
            rss_ports: queue_pairs > 1,
            steering: false,
            rx_checksum: true,
            tx_checksum: true,
            vlan_strip: false,
            vlan_insert: false,
            tx_segments: false,
            has_link_interrupt: false,
            link_interrupt: false,
            numa_node: None,
        };
        let config = EndpointConfig { interface, addresses, mac, queues: queue_pairs, mtu };
        Ok(UdpPort {
            endpoint: Arc::new(Endpoint::open(config)?),
            mtu,
            pool: pool.clone(),
            capabilities,
            is_down: AtomicBool::new(false),
            has_moved: AtomicBool::new(false),
            waker: Mutex::new(None),
        })
    }

    pub(super) fn queue_pair(&self, index: u16) -> Result<UdpQueues, QueueError> {
        let queue = self.endpoint.queue(index).map_err(|error| match error {
            uroce_udp::QueueError::OutOfRange { index, queues } => {
                QueueError::OutOfRange { index, pairs: queues.into() }
            }
            uroce_udp::QueueError::Taken { index } => QueueError::Taken { index },
        })?;
        Ok(UdpQueues { queue, spare: Spare::of(&self.pool) })
    }

    pub(super) fn queue_pairs(&self) -> u16 {
        self.endpoint.config().queues
    }

    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.endpoint.config().addresses
    }

    pub(super) fn mac(&self) -> Mac {
        self.endpoint.config().mac
    }

    pub(super) fn mtu(&self) -> u16 {
        self.mtu
    }

    pub(super) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub(super) fn link(&self) -> Link {
        Link { up: !self.is_down.load(Ordering::Acquire), speed_mbps: None }
    }

    pub(super) fn set_link(&self, up: bool) {
        self.is_down.store(!up, Ordering::Release);
        self.has_moved.store(true, Ordering::Release);
        if let Some(waker) = &*lock(&self.waker) {
            waker.wake();
        }
    }

    pub(super) fn set_waker(&self, waker: Option<Arc<Waker>>) {
        *lock(&self.waker) = waker;
    }

    pub(super) fn has_link_moved(&self) -> bool {
        self.has_moved.load(Ordering::Acquire)
    }

    pub(super) fn take_link_moved(&self) -> bool {
        self.has_moved.swap(false, Ordering::AcqRel)
    }

    pub(super) fn stats(&self) -> PortStats {
        let counters = self.endpoint.counters();
        let lost = [&counters.tx_unsendable, &counters.tx_too_long, &counters.tx_unreachable];
        PortStats {
            rx_packets: counters.rx_datagrams.get(),
            tx_packets: counters.tx_datagrams.get(),
            rx_bytes: counters.rx_bytes.get(),
            tx_bytes: counters.tx_bytes.get(),
            rx_missed: counters.rx_no_room.get(),
            rx_errors: counters.rx_errors.get() + counters.rx_too_long.get(),
            tx_errors: lost.map(uroce_udp::Counter::get).iter().sum(),
            ..PortStats::default()
        }
    }

    pub(super) fn xstats(&self) -> Vec<(String, u64)> {
        let counters = self.endpoint.counters().by_name();
        counters.map(|(name, value)| (name.to_owned(), value)).into()
    }
}

/// A queue pair of a port over UDP sockets.
#[derive(Debug)]
pub(super) struct UdpQueues {
    queue: Queue,
    spare: Spare,
}

impl UdpQueues {
    pub(super) fn index(&self) -> u16 {
        self.queue.index()
    }

    pub(super) fn rx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        let Self { queue, spare } = self;
        let before = batch.len();
        queue.receive(batch.room(), |frame| {
            spare.receive(batch, frame.len(), |mbuf| {
                frame.copy_to(mbuf.as_mut_slice());
                if frame.has_good_icrc() {
                    mbuf.set_good_icrc();
                }
            })
        });
        batch.len() - before
    }

    pub(super) fn tx_burst(&mut self, batch: &mut MbufBatch) -> usize {
        let sent = self.queue.send(batch.as_slice().iter().map(|mbuf| mbuf.as_slice()));
        if sent == batch.len() {
            batch.clear();
        } else if sent > 0 {
            let mut rest = MbufBatch::new();
            for mbuf in batch.drain().skip(sent) {
                let pushed = rest.push(mbuf);
                debug_assert!(pushed.is_ok(), "both batches have the same capacity");
            }
            *batch = rest;
        }
        sent
    }

    pub(super) fn listen(&self, bed: &Bed) -> io::Result<()> {
        self.queue.descriptors().try_for_each(|descriptor| bed.wakers().add(descriptor))
    }

    /// Returns false if frames wait that no descriptor will report.
    pub(super) fn arm(&mut self) -> bool {
        !self.queue.has_frames()
    }
}
