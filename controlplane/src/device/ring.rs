//! Ring links inside the process: two devices that name the same ring have its two ends.
//!
//! Invariants
//! - The first device to claim a name creates the link and gets one end; the second gets the other.
//!   A third is refused.
//! - A name is free again when both ends are given back, or when the first is given back before
//!   there is a second.
//!
//! There is one table of names per process, as DPDK has one table of ring names.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uroce_engine::eal::Eal;
use uroce_engine::mbuf::Mempool;
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::{Port, PortError};

/// Parameters of one end of a ring link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// Name of the link, 1 to 16 bytes.
    pub name: String,
    /// Queue pairs; both ends must agree.
    pub queue_pairs: u16,
    /// Frames that each queue holds, a power of two up to 32768. The first end decides.
    pub frames: u32,
    /// Largest Ethernet payload in bytes; both ends must agree.
    pub mtu: u16,
}

/// Reason for which an end could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Both ends are claimed, or one was given back while the other is still open.
    #[error("both ends of ring {0:?} are taken")]
    Taken(String),
    /// The parameters differ from those of the other end.
    #[error("the other end of ring {name:?} has {pairs} lcores and MTU {mtu}")]
    Differs {
        /// Name of the link.
        name: String,
        /// Queue pairs of the other end.
        pairs: u16,
        /// MTU of the other end.
        mtu: u16,
    },
    /// DPDK could not create the link.
    #[error(transparent)]
    Port(#[from] PortError),
}

#[derive(Debug)]
struct Link {
    queue_pairs: u16,
    mtu: u16,
    /// The second end, until a device claims it.
    waiting: Option<Port>,
    leases: u8,
}

static LINKS: Mutex<BTreeMap<String, Link>> = Mutex::new(BTreeMap::new());

/// Ownership of one end of a ring link. It must be dropped after the end's port.
#[derive(Debug)]
pub struct RingLease {
    name: String,
}

/// Claims an end of the link that `spec` names, and creates the link if it does not exist.
///
/// # Errors
///
/// See [`RingError`].
pub fn claim(
    eal: &'static Eal,
    spec: &RingSpec,
    pool: &Mempool,
) -> Result<(Port, RingLease), RingError> {
    let RingSpec { name, queue_pairs, frames, mtu } = spec.clone();
    let mut links = lock();
    let port = match links.get_mut(&name) {
        None => {
            let (first, second) = ring_pair(eal, &name, queue_pairs, frames, mtu, pool)?;
            let link = Link { queue_pairs, mtu, waiting: Some(second), leases: 1 };
            links.insert(name.clone(), link);
            first
        }
        Some(Link { waiting: None, .. }) => return Err(RingError::Taken(name)),
        Some(link) if (link.queue_pairs, link.mtu) != (queue_pairs, mtu) => {
            return Err(RingError::Differs { name, pairs: link.queue_pairs, mtu: link.mtu });
        }
        Some(link) => {
            link.leases += 1;
            link.waiting.take().ok_or_else(|| RingError::Taken(name.clone()))?
        }
    };
    Ok((port, RingLease { name }))
}

impl Drop for RingLease {
    fn drop(&mut self) {
        let mut links = lock();
        if let Some(link) = links.get_mut(&self.name) {
            link.leases -= 1;
            if link.leases == 0 {
                links.remove(&self.name);
            }
        }
    }
}

/// Locks the table. No critical section leaves it incomplete, so that a poisoned lock is used.
fn lock() -> MutexGuard<'static, BTreeMap<String, Link>> {
    LINKS.lock().unwrap_or_else(PoisonError::into_inner)
}
