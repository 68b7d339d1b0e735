//! Packets that came early: an lcore keeps them until their QPs can handle them in order.
//!
//! ```text
//!   Handled::Held ─▶ promise ─▶ keep ─▶ [packets] ─▶ take ─▶ Qp::handle_held ─▶ freed
//! ```
//!
//! Invariants
//! - At most `budget` packets are kept, so that the mempools do not run dry because of them.
//! - Each QP that holds a PSN has its packet here. A packet here that its QP does not hold any more
//!   is freed when the QP leaves, enters ERR or RESET, when a packet with its PSN comes, or by
//!   [`sweep`](HeldPackets::sweep).
//! - The table neither allocates nor frees memory once it is made.
//!
//! Not here: which packets are held ([`uroce_transport::Handled::Held`]); the way to their QPs
//! ([`crate::rx`]).

use crate::dpdk::mbuf::{Mbuf, Mempool};
use crate::lane::binding::PortBinding;
use std::collections::HashMap;
use std::time::Duration;
use uroce_transport::Instant;
use uroce_wire::Psn;

/// All lcores together hold at most one in `SHARE` of the mbufs of a mempool that neither a cache
/// nor a port's queue has. The rest is for receiving and sending.
const SHARE: u32 = 2;
/// Least time between two sweeps, in nanoseconds: one takes about 0.1 ms.
const SWEEP_EVERY: u64 = 10_000_000;
/// Longest time for which a packet is held if others need its place: by then a peer that is alive
/// has sent the missing one again.
const LONGEST: Duration = Duration::from_secs(5);

/// A packet that is held, and the time when it came.
#[derive(Debug)]
struct Kept {
    mbuf: Mbuf,
    since: Instant,
}

/// The packets that an lcore keeps for its QPs.
#[derive(Debug)]
pub(crate) struct HeldPackets {
    /// By the QP's slot and the PSN. It has room for twice as many as it gets: then the table never
    /// grows, since places of removed packets are used again before more than half are taken.
    packets: HashMap<(u32, Psn), Kept>,
    budget: usize,
    /// Slot, PSN and time of the packet that is held but has not been handed over by the loop that
    /// has received it.
    promised: Option<(u32, Psn, Instant)>,
    /// Time of the last sweep.
    swept: Instant,
}

/// Returns how many packets each of `lcores` lcores, at most 64, may hold with that mempool.
//= check A27 — a missing packet that is sent again finds an mbuf, whatever is held
fn budget(pool: &Mempool, lcores: usize) -> usize {
    // Two threads may be at work for an lcore. The cache of each may hold one and a half times its
    // size.
    let cached = 3 * pool.cache() * lcores as u32;
    let spare = pool.count().saturating_sub(cached + pool.reserved());
    (spare / SHARE) as usize / lcores.max(1)
}

impl HeldPackets {
    /// Makes the table of one of `lcores` lcores, for as many packets as the smallest of the ports'
    /// mempools can spare.
    pub(crate) fn for_lcore(ports: &[PortBinding], lcores: usize) -> HeldPackets {
        let budgets = ports.iter().map(|binding| budget(&binding.pool, lcores));
        HeldPackets::new(budgets.min().unwrap_or(0))
    }

    /// Makes a table for at most `budget` packets.
    pub(crate) fn new(budget: usize) -> HeldPackets {
        HeldPackets {
            packets: HashMap::with_capacity(2 * budget),
            budget,
            promised: None,
            swept: Instant::ZERO,
        }
    }

    /// Returns whether no packet is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns whether there is room for one more packet.
    pub(crate) fn has_room(&self) -> bool {
        self.packets.len() < self.budget
    }

    /// Notes that the QP in a slot holds the packet that it has just handled.
    #[cold]
    pub(crate) fn promise(&mut self, slot: u32, psn: Psn, now: Instant) {
        self.promised = Some((slot, psn, now));
    }

    /// Keeps the packet that was promised last. A stale packet of the same slot and PSN is freed.
    #[cold]
    pub(crate) fn keep(&mut self, mbuf: Mbuf) {
        debug_assert!(self.promised.is_some() && self.has_room(), "only what can be held is");
        if let Some((slot, psn, since)) = self.promised.take() {
            self.packets.insert((slot, psn), Kept { mbuf, since });
        }
    }

    /// Takes the packet with this PSN of the QP in a slot.
    pub(crate) fn take(&mut self, slot: u32, psn: Psn) -> Option<Mbuf> {
        self.packets.remove(&(slot, psn)).map(|kept| kept.mbuf)
    }

    /// Frees all packets of the QP in a slot.
    #[cold]
    pub(crate) fn free(&mut self, slot: u32) {
        if !self.is_empty() {
            self.packets.retain(|(of, _), _| *of != slot);
        }
    }

    /// Frees packets for which `keeps` returns false, at most once in `SWEEP_EVERY`. It is called
    /// with a QP's slot, a PSN, and whether the packet is held for longer than `LONGEST`. To be
    /// called when there is no room.
    //= check A27 — a peer that has fallen silent does not keep the room of others
    #[cold]
    pub(crate) fn sweep(&mut self, now: Instant, mut keeps: impl FnMut(u32, Psn, bool) -> bool) {
        if now.as_nanos() - self.swept.as_nanos() >= SWEEP_EVERY {
            self.swept = now;
            self.packets
                .retain(|&(slot, psn), kept| keeps(slot, psn, now.since(kept.since) > LONGEST));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::eal::{Eal, EalConfig};
    use crate::dpdk::mbuf::PoolConfig;

    fn pool(count: u32) -> Mempool {
        let eal = Eal::init(&EalConfig::default()).expect("EAL starts");
        let config = PoolConfig { count, cache: 0, room: 256, ..PoolConfig::default() };
        Mempool::create(eal, &config).expect("mempool")
    }

    #[test] //= check A27 test
    fn a_full_table_that_changes_for_long_never_grows() {
        const BUDGET: u32 = 100;
        let pool = pool(255);
        let mut held = HeldPackets::new(BUDGET as usize);
        let before = held.packets.capacity();
        for at in 0..50_000 {
            if at >= BUDGET {
                assert!(!held.has_room());
                assert!(held.take(7, Psn::new(at - BUDGET)).is_some());
            }
            held.promise(7, Psn::new(at), Instant::ZERO);
            held.keep(pool.alloc().expect("one of the freed"));
        }
        // It falls with the places that cannot be used again before the next cleaning.
        assert!(held.packets.capacity() <= before);
        drop(held);
        assert_eq!(pool.available(), pool.count());
    }

    #[test] //= check A27 test
    fn stale_packets_are_freed_by_newer_ones_with_their_slot_and_by_a_sweep() {
        let pool = pool(31);
        let mut held = HeldPackets::new(8);
        let used = || pool.count() - pool.available();
        let mut keep = |slot, psn| {
            held.promise(slot, Psn::new(psn), Instant::ZERO);
            held.keep(pool.alloc().expect("an mbuf"));
        };
        [(1, 10), (1, 11), (2, 10), (2, 10)].iter().for_each(|&(slot, psn)| keep(slot, psn));
        assert_eq!(used(), 3);
        held.free(1);
        assert_eq!(used(), 1);
        let now = Instant::from_nanos(SWEEP_EVERY);
        held.sweep(now, |slot, psn, is_old| (slot, psn, is_old) == (2, Psn::new(10), false));
        assert_eq!(used(), 1);
        held.sweep(now, |_, _, _| false);
        assert_eq!(used(), 1, "not again so soon");
        let late = Instant::ZERO + LONGEST + LONGEST;
        held.sweep(late, |_, _, is_old| !is_old);
        assert!(held.is_empty() && used() == 0);
    }

    #[test]
    fn lcores_share_what_no_cache_and_no_sender_needs() {
        let pool = pool(31);
        assert_eq!((budget(&pool, 1), budget(&pool, 2)), (15, 7));
        // A NIC may hold more than its descriptors.
        pool.reserve(21);
        pool.reserve(3);
        assert_eq!((budget(&pool, 1), budget(&pool, 2)), (5, 2));
    }
}
