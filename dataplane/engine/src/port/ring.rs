//! Two ports crossed back to back inside one process.
//!
//! What one sends the other receives, mbuf by mbuf, without a copy: the fastest port there is, and
//! the one that needs nothing from the machine.
//!
//! Invariants
//! - Ring *i* from a port has one producer, the owner of its queue pair *i*, and one consumer, the
//!   owner of the other's: the rings are made for that.
//! - The rings outlive both ports; frames left in them are freed with them.
//! - Who takes one end's link down takes the other's down.
//!
//! Not here: a limit on rate, delay, loss. A full ring refuses frames, nothing else happens.

use super::link::Cable;
use super::{Claimed, Port, PortConfig, PortError, Under};
use crate::bell::Bell;
use crate::eal::{Eal, c_string, lock, take_log};
use crate::mbuf::Mempool;
use std::ptr::NonNull;
use std::sync::Arc;

/// Most queue pairs: what the driver's tables hold (`RTE_PMD_RING_MAX_RX_RINGS`).
const QUEUES_MAX: u16 = 16;
/// Longest name, so that DPDK's names of ports and rings are not cut.
const NAME_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Rings {
    rings: Vec<NonNull<dpdk_sys::rte_ring>>,
    pub(super) cable: Cable,
    /// Of each end and each of its receive queues, what wakes its owner.
    pub(super) bells: [Box<[Arc<Bell>]>; 2],
}

// SAFETY: the rings are touched through the ports' queues, one thread at each end, and by `drop`
// when no port is left.
unsafe impl Send for Rings {}
// SAFETY: as above; `&Rings` offers nothing.
unsafe impl Sync for Rings {}

impl Drop for Rings {
    fn drop(&mut self) {
        for ring in &self.rings {
            // SAFETY: the ring is live and no port uses it any more: each holds this value. Its
            // entries are mbufs that were sent and not received, which nobody else owns.
            unsafe { dpdk_sys::uroce_ring_free(ring.as_ptr()) };
        }
    }
}

/// Makes two ports, `<name>0` and `<name>1`, joined by rings of `size − 1` frames per queue and
/// direction. `pool` is theirs to receive from; each frame keeps the mempool it was sent from.
///
/// `size` is a power of two up to 32768, `queues` 1 to 16, `name` at most 16 bytes and new.
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
    // SAFETY: EAL runs, as `ring_pair`'s caller has an `Eal`; the name is terminated and copied.
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
) -> Result<Port, PortError> {
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
    let port = Port::start(eal, Claimed { id, probed_here: true }, config, pool, under)?;
    open_ports.insert(id);
    Ok(port)
}
