//! Links inside the process: two devices that name the same ring are its ends.
//!
//! Invariants
//! - The first to claim a name makes the link and has one end; the second has the other. A third
//!   is refused.
//! - A name is free again when both ends are given back, or when the first is given back before
//!   there was a second.
//!
//! The table of names is the process's, as DPDK's names of rings are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uroce_engine::eal::Eal;
use uroce_engine::mbuf::Mempool;
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::{Port, PortError};

/// What a device wants of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// The link's name, 1 to 16 bytes.
    pub name: String,
    /// Queue pairs, the same at both ends.
    pub queue_pairs: u16,
    /// Frames that each queue holds; a power of two up to 32768. The first end's counts.
    pub frames: u32,
    /// Largest Ethernet payload in bytes, the same at both ends.
    pub mtu: u16,
}

/// Why an end could not be had.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// Both ends are taken, or one was given back while the other is still open.
    #[error("both ends of ring {0:?} are taken")]
    Taken(String),
    /// The ends do not agree.
    #[error("the other end of ring {name:?} has {pairs} lcores and MTU {mtu}")]
    Differs {
        /// The link.
        name: String,
        /// The other end's queue pairs.
        pairs: u16,
        /// The other end's MTU.
        mtu: u16,
    },
    /// DPDK could not make it.
    #[error(transparent)]
    Port(#[from] PortError),
}

#[derive(Debug)]
struct Link {
    queue_pairs: u16,
    mtu: u16,
    /// The second end, until somebody claims it.
    waiting: Option<Port>,
    leases: u8,
}

static LINKS: Mutex<BTreeMap<String, Link>> = Mutex::new(BTreeMap::new());

/// The right to an end; to be dropped after its port.
#[derive(Debug)]
pub struct RingLease {
    name: String,
}

/// Takes an end of the link that `spec` names; makes it if it does not exist.
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

/// Each critical section leaves the table whole, so a panic elsewhere does not spoil it.
fn lock() -> MutexGuard<'static, BTreeMap<String, Link>> {
    LINKS.lock().unwrap_or_else(PoisonError::into_inner)
}
