//! Steering: makes the packets of a connection arrive at the lcore that owns its QP, where a NIC
//! spreads packets by a table that can be changed.
//!
//! ```text
//!   Modify QP: addresses, UDP ports ─▶ hash ─▶ entry of the NIC's table := the owner's queue
//! ```
//!
//! A uroce peer sends from the UDP port that the path has in the other direction: both ends compute
//! it from the flow label or from both QP numbers. Packets are handed over to the owner where that
//! does not hold: of peers that use other ports, of QPs for which the entry is another lcore's
//! already, of datagrams, and of alternate paths.
//!
//! A peer that uses another port, such as Soft-RoCE, has packets by an entry that no QP has here.
//! When a QP takes that entry for another lcore, they arrive there from then on: some may overtake
//! those that wait in the former queue, once.
//!
//! Invariants
//! - An entry is one lcore's as long as a connected QP of that lcore has it: packets of that QP are
//!   not moved away from it.
//! - A QP for which the entry was another lcore's takes it when it becomes free.
//!
//! Not here: the hash ([`crate::dpdk::port`]); handing packets over ([`crate::rx`]).

use crate::dpdk::port::rss::{Flow, Rss};
use crate::lane::binding::PortBinding;
use crate::port::Port;
use std::collections::HashMap;
use uroce_wire::{Encap, Qpn};

/// Refusals in a row after which a port's table is left as it is: one may pass, as when the queue
/// of a NIC's firmware is full.
const REFUSALS: u32 = 3;
/// Destination port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// The steered flows of all ports.
#[derive(Debug, Default)]
pub(super) struct Steering {
    /// For each port its table, if it has one that can be changed.
    tables: Vec<Option<Table>>,
    /// The flows of QPs at ports that may have tables.
    flows: HashMap<Qpn, Steered>,
}

/// The flow of one QP.
#[derive(Clone, Copy, Debug)]
struct Steered {
    /// The port, counted from 0.
    port: usize,
    lcore: u16,
    flow: Flow,
    /// The entry that it has; `None` if its packets are handed over.
    entry: Option<usize>,
}

/// A NIC's table, and which lcores have its entries.
#[derive(Debug)]
struct Table {
    rss: Rss,
    /// The number of queues: an lcore of a higher number has none.
    queues: u16,
    /// For each entry, the lcore that has it, and the number of its QPs that do.
    holders: Vec<Option<(u16, u32)>>,
    /// Changes that the driver has refused since the last one that it made.
    refusals: u32,
}

impl Steering {
    pub(super) fn new(ports: &[PortBinding]) -> Steering {
        let mut steering = Steering::default();
        steering.tables.resize_with(ports.len(), || None);
        ports.iter().enumerate().for_each(|(at, binding)| steering.begin(at, &binding.port));
        steering
    }

    /// Takes the table of a port, counted from 0, that was started: again, after a reset.
    pub(super) fn begin(&mut self, at: usize, port: &Port) {
        self.tables[at] = port.rss().map(|rss| Table::new(rss, port.queue_pairs()));
        for steered in self.flows.values_mut().filter(|steered| steered.port == at) {
            steered.entry = None;
        }
        self.offer(at, port);
    }

    /// Returns whether packets of QPs at a port, counted from 0, are steered.
    pub(super) fn is_on(&self, at: usize) -> bool {
        self.tables.get(at).is_some_and(Option::is_some)
    }

    /// Steers the QPs at a port that have no entry, as far as theirs are free.
    fn offer(&mut self, at: usize, port: &Port) {
        let without = |steered: &&mut Steered| steered.port == at && steered.entry.is_none();
        for steered in self.flows.values_mut().filter(without) {
            steered.entry = take(&mut self.tables[at], port, &steered.flow, steered.lcore);
        }
    }

    /// Steers a QP's packets on the path that it has got. `at` is the port, counted from 0.
    pub(super) fn steer(
        &mut self,
        qpn: Qpn,
        lcore: u8,
        at: usize,
        ports: &[PortBinding],
        path: &Encap,
    ) {
        self.forget(qpn, ports);
        if path.is_loopback() || !ports[at].port.capabilities().steering {
            return;
        }
        let (src, dst) = (path.dst.to_ip(), path.src.to_ip());
        let flow = Flow { src, dst, src_port: path.src_port, dst_port: ROCE_PORT };
        let lcore = u16::from(lcore);
        let entry = take(&mut self.tables[at], &ports[at].port, &flow, lcore);
        self.flows.insert(qpn, Steered { port: at, lcore, flow, entry });
    }

    /// Called when a QP is reset or destroyed. Its entry is offered to others.
    pub(super) fn forget(&mut self, qpn: Qpn, ports: &[PortBinding]) {
        let Some(Steered { port: at, entry: Some(entry), .. }) = self.flows.remove(&qpn) else {
            return;
        };
        let Some(table) = &mut self.tables[at] else { return };
        if table.give_back(entry) {
            self.offer(at, &ports[at].port);
        }
    }
}

/// Takes the entry of a flow for an lcore, and sets it at the port. A port that refuses several
/// times is left as it is from then on.
fn take(of_port: &mut Option<Table>, port: &Port, flow: &Flow, lcore: u16) -> Option<usize> {
    let table = of_port.as_mut()?;
    let entry = table.take(flow, lcore, |entry| port.set_rss_entry(entry, lcore));
    if table.refusals >= REFUSALS {
        *of_port = None;
        return None;
    }
    entry
}

impl Table {
    fn new(rss: Rss, queues: u16) -> Table {
        let holders = vec![None; rss.table.len()];
        Table { rss, queues, holders, refusals: 0 }
    }

    /// Returns the entry of a flow's packets, which the lcore has from now on; `None` if another
    /// lcore has it, the lcore has no queue, the device does not hash the packets, or `set` refuses
    /// to make the entry lead to the lcore's queue.
    fn take(&mut self, flow: &Flow, lcore: u16, set: impl FnOnce(usize) -> bool) -> Option<usize> {
        let entry = self.rss.entry_of(flow).filter(|_| lcore < self.queues)?;
        let qps = match self.holders[entry] {
            Some((holder, _)) if holder != lcore => return None,
            Some((_, qps)) => qps,
            None => 0,
        };
        if self.rss.table[entry] != lcore {
            if !set(entry) {
                self.refusals += 1;
                return None;
            }
            self.refusals = 0;
            self.rss.table[entry] = lcore;
        }
        self.holders[entry] = Some((lcore, qps + 1));
        Some(entry)
    }

    /// Gives back an entry that was taken. Returns whether it is free: the NIC's table stays as it
    /// is, until an lcore takes the entry.
    fn give_back(&mut self, entry: usize) -> bool {
        if let Some((_, qps)) = &mut self.holders[entry] {
            *qps -= 1;
            if *qps == 0 {
                self.holders[entry] = None;
            }
        }
        self.holders[entry].is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dpdk::port::rss::{Covered, Hash};
    use std::net::IpAddr;

    fn table(entries: usize, queues: u16) -> Table {
        let key = (0..40).map(|at: u8| at.wrapping_mul(41) ^ 0x6d).collect();
        let hash = Hash { key, ipv4: Some(Covered::Ports), ipv6: None };
        let queue = |entry| (entry % usize::from(queues)) as u16;
        Table::new(Rss { hash, table: (0..entries).map(queue).collect() }, queues)
    }

    fn flow(src_port: u16) -> Flow {
        let [src, dst] = [2, 1].map(|host| IpAddr::from([10, 0, 0, host]));
        Flow { src, dst, src_port, dst_port: ROCE_PORT }
    }

    #[test]
    fn an_entry_is_one_lcores_until_its_last_qp_is_gone() {
        let mut table = table(1, 2);
        let take = |table: &mut Table, port, lcore| table.take(&flow(port), lcore, |_| true);
        assert_eq!(take(&mut table, 0xc000, 1), Some(0));
        assert_eq!(take(&mut table, 0xc001, 1), Some(0));
        assert_eq!(take(&mut table, 0xc002, 0), None);
        assert!(!table.give_back(0));
        assert_eq!(take(&mut table, 0xc002, 0), None, "the other QP has it");
        assert!(table.give_back(0));
        assert_eq!(take(&mut table, 0xc002, 0), Some(0));
    }

    #[test]
    fn an_lcore_without_a_queue_takes_nothing() {
        let mut table = table(128, 2);
        assert_eq!(table.take(&flow(0xc000), 2, |_| true), None);
        assert!(table.holders.iter().all(Option::is_none));
        assert!(table.take(&flow(0xc000), 1, |_| true).is_some());
    }

    #[test]
    fn an_entry_that_the_driver_does_not_set_is_not_taken() {
        let mut table = table(1, 2);
        assert_eq!(table.take(&flow(0xc000), 1, |_| false), None);
        assert_eq!((table.refusals, table.holders[0]), (1, None));
        assert_eq!(table.take(&flow(0xc000), 0, |_| false), Some(0), "it leads there already");
        assert!(table.give_back(0));
        assert_eq!(table.take(&flow(0xc000), 1, |_| true), Some(0));
        assert_eq!((table.refusals, table.rss.table[0]), (0, 1));
    }

    #[test]
    fn flows_of_many_ports_have_many_entries() {
        let mut table = table(128, 4);
        let taken =
            (0..64).filter(|&at| table.take(&flow(0xc000 + at), at % 4, |_| true).is_some());
        assert!(taken.count() >= 40, "most find an entry of their own");
    }
}
