//! The topology of a world: nodes, their addresses, the paths that join them, and their QPs.
//!
//! ```text
//!              rail 0, port 1                      rail 0, port 1
//!     node 0 <---------------- links[0][1][0] ----------------> node 1
//!            <---------------- links[0][1][1] ---------------->
//!              rail 1, port 2 (or port 1 again)    rail 1
//! ```
//!
//! Invariants
//! - The n-th addresses of two nodes are joined by one link in each direction.
//! - A frame leaves by the rail of its QP's port and source address, and arrives by the same rail
//!   at the peer.

use core::time::Duration;
use std::collections::VecDeque;

use uroce_wire::{Gid, Mac, Qpn};

use crate::faults::Rates;
use crate::record::{Fate, Sighting};
use crate::world::World;
use crate::world::link::Link;
use crate::world::names::{At, Rail};
use crate::world::node::{Node, Slot};
use crate::world::tap::Flight;
use uroce_transport::{Instant, Pd, Qp, QpInit};

/// Largest number of rails of a world.
pub(crate) const RAILS: usize = 2;

/// Counts of frames on one rail, in one direction between two nodes or in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RailTally {
    /// Frames sent by QPs.
    pub sent: u64,
    /// Copies made by duplication.
    pub copied: u64,
    /// Frames lost on the way.
    pub lost: u64,
    /// Frames that have arrived.
    pub landed: u64,
}

impl RailTally {
    /// Number of frames in flight.
    pub fn flying(&self) -> u64 {
        self.sent + self.copied - self.lost - self.landed
    }

    /// Adds the counts of another link.
    pub fn add(&mut self, other: &RailTally) {
        self.sent += other.sent;
        self.copied += other.copied;
        self.lost += other.lost;
        self.landed += other.landed;
    }
}

impl World {
    /// Adds a node with an address at port 1 and returns its number.
    pub fn add_node(&mut self, gid: Gid, mac: Mac) -> u16 {
        let number = self.nodes.len() as u16;
        self.nodes.push(Node::new(Rail { gid, mac, port: 1 }, self.settings.most_held));
        self.port_free_at.push([Instant::ZERO; RAILS]);
        for row in &mut self.links {
            row.push([Link::default(); RAILS]);
        }
        self.links.push(vec![[Link::default(); RAILS]; self.nodes.len()]);
        number
    }

    /// Adds another address to a node, at the same port or at another one.
    ///
    /// # Panics
    /// If the node has two addresses already, or the port is not 1 or 2.
    pub fn add_rail(&mut self, node: u16, rail: Rail) {
        assert!((1..=RAILS as u8).contains(&rail.port), "ports are 1 and 2");
        let rails = &mut self.node_mut(node).rails;
        assert!(rails.len() < RAILS, "a node has at most two addresses");
        rails.push(rail);
    }

    /// Adds a QP in RESET. `tag` goes into the high bits of its number.
    ///
    /// # Panics
    /// If the node has 256 QPs.
    pub fn add_qp(&mut self, node: u16, tag: u32, pd: Pd, init: &QpInit) -> At {
        let slots = &mut self.nodes[usize::from(node)].slots;
        let index = slots.len();
        assert!(index < 256, "a node of the simulator has at most 256 QPs");
        slots.push(Slot::new(Qp::new(Qpn::new(tag << 8 | index as u32), pd, init), *init));
        At { node, qp: index as u16 }
    }

    /// Connects two QPs, so that frames of one go to the node of the other.
    pub fn join(&mut self, a: At, b: At) {
        let connection = self.fault_log.len();
        self.fault_log.push(VecDeque::new());
        for (at, peer) in [(a, b), (b, a)] {
            let slot = self.slot_mut(at);
            slot.peer = peer;
            slot.connection = connection;
        }
    }

    /// Sets the fault rates from one node to another, on all rails.
    pub fn set_rates(&mut self, from: u16, to: u16, rates: Rates) {
        for link in &mut self.links[usize::from(from)][usize::from(to)] {
            link.rates = rates;
        }
    }

    /// Sets the fault rates from one node to another, on one rail.
    pub fn set_rail_rates(&mut self, from: u16, to: u16, rail: usize, rates: Rates) {
        self.links[usize::from(from)][usize::from(to)][rail].rates = rates;
    }

    /// Cuts a rail from one node to another until it is [`mended`](World::mend_rail).
    pub fn cut_rail(&mut self, from: u16, to: u16, rail: usize) {
        self.links[usize::from(from)][usize::from(to)][rail].is_cut = true;
    }

    /// Mends a rail from one node to another.
    pub fn mend_rail(&mut self, from: u16, to: u16, rail: usize) {
        self.links[usize::from(from)][usize::from(to)][rail].is_cut = false;
    }

    /// Counts of the frames from one node to another on a rail.
    pub fn rail_tally(&self, from: u16, to: u16, rail: usize) -> RailTally {
        self.links[usize::from(from)][usize::from(to)][rail].tally
    }

    /// Counts of all frames on a rail.
    pub fn rail_total(&self, rail: usize) -> RailTally {
        let mut total = RailTally::default();
        self.links.iter().flatten().for_each(|rails| total.add(&rails[rail].tally));
        total
    }

    /// Lets a frame that no QP has sent arrive at node `to` after `lag`, as if from node `from`.
    pub fn inject(&mut self, from: u16, to: u16, frame: Vec<u8>, lag: Duration) {
        self.inject_by(0, from, to, frame, lag);
    }

    /// Lets a frame that no QP has sent arrive by rail `rail`; see [`inject`](World::inject).
    pub fn inject_by(&mut self, rail: usize, from: u16, to: u16, frame: Vec<u8>, lag: Duration) {
        let at = self.now();
        if let Some(record) = &mut self.record {
            record.see(Sighting {
                at,
                from: usize::from(from),
                to: usize::from(to),
                rail,
                fate: Fate { is_crafted: true, ..Fate::default() },
                frame: frame.clone(),
            });
        }
        self.fly(to, Flight::unknown(frame, rail), self.now() + lag);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Pair, Rails};
    use uroce_transport::Side;

    /// A pair with both ends in RTS on the second rail.
    fn on_the_second_rail(rails: Rails) -> Pair {
        let mut pair = Pair::reset(|terms| terms.rails = rails);
        for end in [0, 1] {
            for mut change in pair.changes(end) {
                let rail = pair.node(end).rail(1);
                change.port = change.port.map(|_| rail.port);
                change.path = change.path.map(|_| pair.path_on(end, 1).into());
                pair.world.modify(pair.at(end), &change).unwrap();
            }
        }
        pair
    }

    #[test]
    fn a_frame_goes_by_the_rail_of_its_address_and_only_a_cut_of_that_one_stops_it() {
        for rails in [Rails::TwoPorts, Rails::OnePort] {
            let mut pair = on_the_second_rail(rails);
            pair.world.cut_rail(0, 1, 0);
            pair.write(0, 3000);
            pair.run();
            assert_eq!(pair.take(0, Side::Send).len(), 1, "{rails:?}");
            let [first, second] = [0, 1].map(|rail| pair.world.rail_total(rail));
            assert_eq!((first.sent, second.lost, second.flying()), (0, 0, 0));
            pair.world.cut_rail(0, 1, 1);
            pair.write(0, 3000);
            pair.run_until(|pair| pair.world.rail_tally(0, 1, 1).lost > 12);
            pair.world.mend_rail(0, 1, 1);
            pair.run();
            assert_eq!(pair.take(0, Side::Send).len(), 1, "{rails:?}");
            let tally = pair.world.rail_tally(0, 1, 1);
            assert_eq!(tally.sent, tally.lost + tally.landed);
        }
    }
}
