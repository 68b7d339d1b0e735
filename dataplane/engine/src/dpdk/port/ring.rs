//! Ring ports: two ports of one process connected back to back.
//!
//! Frames that one port sends the other receives, mbuf by mbuf, without a copy. They are the
//! fastest ports, and need nothing from the machine.
//!
//! Invariants
//! - Ring *i* from a port has one producer, the owner of its queue pair *i*, and one consumer, the
//!   owner of the other port's queue pair *i*, as the rings require.
//! - The rings outlive both ports; frames left in them are freed with them.
//! - Taking the link of one end down takes that of the other end down.
//!
//! Not here: limits of rate, delay, loss. A full ring refuses frames; that is all.

use super::link::Cable;
use super::{Claimed, Ethdev, PortConfig, PortError, Under};
use crate::dpdk::eal::{Eal, c_string, lock, take_log};
use crate::dpdk::mbuf::Mempool;
use std::ptr::NonNull;
use std::sync::Arc;
use uroce_shared::wake::bell::Bell;

/// Largest number of queue pairs: the size of the driver's tables (`RTE_PMD_RING_MAX_RX_RINGS`).
const QUEUES_MAX: u16 = 16;
/// Longest name, so that DPDK does not truncate the names of ports and rings.
const NAME_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Rings {
    rings: Vec<NonNull<dpdk_sys::rte_ring>>,
    pub(super) cable: Cable,
    /// For each end and each of its receive queues, the bell that wakes its owner.
    pub(super) bells: [Box<[Arc<Bell>]>; 2],
}

// SAFETY: the rings are used only through the ports' queues, by one thread at each end, and by
// `drop` when no port is left.
unsafe impl Send for Rings {}
// SAFETY: `&Rings` gives no access to the rings; they are used only through the ports' queues.
unsafe impl Sync for Rings {}

impl Drop for Rings {
    fn drop(&mut self) {
        for ring in &self.rings {
            // SAFETY: the ring exists, and no port uses it any more, since each port holds this
            // value. Its entries are mbufs that were sent and not received, so the ring is their
            // only owner.
            unsafe { dpdk_sys::uroce_ring_free(ring.as_ptr()) };
        }
    }
}

/// Makes the devices of [`crate::port::ring::ring_pair`], which has the limits and errors.
pub(crate) fn ring_pair(
    eal: &'static Eal,
    name: &str,
    queues: u16,
    size: u32,
    mtu: u16,
    pool: &Mempool,
) -> Result<(Ethdev, Ethdev), PortError> {
    if name.is_empty() || name.len() > NAME_MAX {
        return Err(PortError::Ring { reason: "the name is empty or too long" });
    }
    if queues == 0 || queues > QUEUES_MAX {
        return Err(PortError::Ring { reason: "a pair has 1 to 16 queues" });
    }
    if !size.is_power_of_two() || !(2..=32768).contains(&size) {
        return Err(PortError::Ring { reason: "the size is not a power of two from 2 to 32768" });
    }
    let count = usize::from(queues);
    let bells = [(); 2].map(|()| (0..count).map(|_| Arc::default()).collect());
    let rings = Vec::with_capacity(2 * count);
    let mut rings = Rings { rings, cable: Cable::default(), bells };
    for index in 0..2 * count {
        rings.rings.push(make_ring(&format!("{name}-{index}"), size)?);
    }
    let mut forth: Vec<_> = rings.rings[..count].iter().map(|ring| ring.as_ptr()).collect();
    let mut back: Vec<_> = rings.rings[count..].iter().map(|ring| ring.as_ptr()).collect();
    let rings: Arc<Rings> = Arc::new(rings);

    let join = |end: u8, rx: &mut [_], tx: &mut [_]| {
        let config =
            PortConfig { queue_pairs: queues, mtu, ..PortConfig::new(format!("{name}{end}")) };
        join(eal, &config, rx, tx, (Arc::clone(&rings), usize::from(end)), pool)
    };
    let first = join(0, &mut back, &mut forth)?;
    let second = join(1, &mut forth, &mut back)?;
    Ok((first, second))
}

fn make_ring(name: &str, size: u32) -> Result<NonNull<dpdk_sys::rte_ring>, PortError> {
    take_log();
    let (name, mut error) = (c_string(name), 0);
    // SAFETY: EAL runs, as the caller of `ring_pair` has an `Eal`; the name is NUL-terminated and
    // copied.
    let ring = unsafe { dpdk_sys::uroce_ring_create(name.as_ptr(), size, -1, &mut error) };
    NonNull::new(ring).ok_or_else(|| PortError::step("making a ring", -error, take_log()))
}

fn join(
    eal: &'static Eal,
    config: &PortConfig,
    rx: &mut [*mut dpdk_sys::rte_ring],
    tx: &mut [*mut dpdk_sys::rte_ring],
    rings: (Arc<Rings>, usize),
    pool: &Mempool,
) -> Result<Ethdev, PortError> {
    let mut open_ports = lock(&eal.open_ports);
    take_log();
    let name = c_string(&config.device);
    // SAFETY: both arrays hold `queue_pairs` live rings, which `rings` keeps alive as long as the
    // port; DPDK copies the arrays and the name; `open_ports` is locked.
    let id = unsafe {
        dpdk_sys::uroce_ring_port(
            name.as_ptr(),
            rx.as_mut_ptr(),
            tx.as_mut_ptr(),
            config.queue_pairs,
            -1,
        )
    };
    let id =
        u16::try_from(id).map_err(|_| PortError::step("making a ring port", -id, take_log()))?;
    let under = Under { rings: Some(rings), ..Under::default() };
    let port = Ethdev::start(eal, Claimed { id, probed_here: true }, config, pool, under)?;
    open_ports.insert(id);
    Ok(port)
}
