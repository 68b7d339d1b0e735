//! Troubles: disturbances that last for a while. A link loses everything or holds everything back,
//! an lcore stands still, a node has no packet buffers.
//!
//! Invariants
//! - Each frame that a trouble hits is entered in its connection's fault log.
//! - No random trouble lasts longer than [`TROUBLE_MAX`].

use core::time::Duration;

use crate::world::names::At;
use crate::world::{Event, World};
use uroce_transport::Instant;

/// Longest random trouble.
pub(crate) const TROUBLE_MAX: Duration = Duration::from_millis(20);

/// Largest number of frames that wait for a stalled lcore: the size of the port's receive ring.
const BACKLOG_MAX: u32 = 512;

impl World {
    /// Cuts the links from one node to another for a while: everything is lost.
    pub fn cut(&mut self, from: u16, to: u16, span: Duration) {
        let until = self.now() + span;
        for link in &mut self.links[usize::from(from)][usize::from(to)] {
            link.cut_until = until;
        }
    }

    /// Clogs the links from one node to another for a while: frames arrive at the end of it, in
    /// order.
    pub fn clog(&mut self, from: u16, to: u16, span: Duration) {
        let until = self.now() + span;
        for link in &mut self.links[usize::from(from)][usize::from(to)] {
            link.clogged_until = until;
        }
    }

    /// Stalls a node's lcore for a while. A stall that goes on is not cut short: what was put off
    /// to its end would stay put off, while the lcore takes the frames that come until then.
    pub fn stall(&mut self, node: u16, span: Duration) {
        let until = self.now() + span;
        let node = self.node_mut(node);
        node.stalled_until = node.stalled_until.max(until);
    }

    /// Takes all packet buffers from a node for a while.
    pub fn starve(&mut self, node: u16, span: Duration) {
        let until = self.now() + span;
        self.node_mut(node).starved_until = until;
    }

    /// Schedules the next random trouble, if the settings have any.
    pub(crate) fn expect_trouble(&mut self) {
        if let Some(pace) = self.settings.trouble_pace {
            let lag = Duration::from_nanos(self.rng.u64(1..=2 * pace.as_nanos() as u64));
            self.agenda.enter(self.agenda.now() + lag, Event::Trouble);
        }
    }

    /// Causes a random trouble.
    pub(crate) fn make_trouble(&mut self) {
        if self.settings.trouble_pace.is_none() {
            return;
        }
        self.faults.troubles += 1;
        // Spans are distributed logarithmically.
        let max = TROUBLE_MAX.as_nanos() as u64;
        let span = Duration::from_nanos(max >> self.rng.u32(..12));
        let nodes = self.nodes.len() as u16;
        let here = self.rng.u16(..nodes);
        let there = (here + self.rng.u16(1..nodes)) % nodes;
        match self.rng.u8(..5) {
            0 => self.cut(here, there, span),
            1 => {
                self.cut(here, there, span);
                self.cut(there, here, span);
            }
            2 => self.clog(here, there, span),
            3 => self.stall(here, span),
            _ => self.starve(here, span),
        }
        self.note(|| format!("trouble around nodes {here} and {there} for {span:?}"));
        self.expect_trouble();
    }

    /// Ends the troubles of nodes, and schedules no more. A stall that goes on ends by itself, with
    /// all that was put off.
    pub(crate) fn end_troubles(&mut self) {
        self.settings.trouble_pace = None;
        for node in &mut self.nodes {
            node.starved_until = Instant::ZERO;
        }
    }

    /// Postpones an event while its node's lcore is stalled. Returns false if it is not.
    pub(crate) fn put_off(&mut self, event: Event) -> bool {
        let number = match event {
            Event::Arrive { to, .. } => to,
            Event::Timer(at) | Event::Kick(at) => at.node,
            Event::Queue { .. } | Event::Wake(_) | Event::Trouble => return false,
        };
        let now = self.now();
        let node = self.node_mut(number);
        let until = node.stalled_until;
        if now >= until {
            node.backlog = 0;
            return false;
        }
        if let Event::Arrive { frame, .. } = event {
            node.backlog += 1;
            let is_lost = node.backlog > BACKLOG_MAX;
            self.blame(self.flying[frame as usize].connection);
            if is_lost {
                self.lose(number, frame);
                return true;
            }
        }
        self.agenda.enter(until, event);
        true
    }

    /// Loses an arriving frame if the node has no buffer. Returns false if it has.
    pub(crate) fn lacks_buffer(&mut self, to: u16, place: u32) -> bool {
        let is_starved = self.now() < self.node(to).starved_until;
        if is_starved {
            self.blame(self.flying[place as usize].connection);
            self.lose(to, place);
        }
        is_starved
    }

    pub(crate) fn lose(&mut self, to: u16, place: u32) {
        let flight = core::mem::take(&mut self.flying[place as usize]);
        self.landed(to, &flight);
        self.free_places.push(place);
        self.outlet.pool.push(flight.frame);
        self.faults.lost += 1;
    }

    /// Time that a QP with a full sink must wait, if its node has no packet buffers.
    pub(crate) fn starved_for(&mut self, at: At) -> Option<Duration> {
        let now = self.now();
        let until = self.node(at.node).starved_until;
        if now >= until {
            return None;
        }
        self.blame(self.slot(at).connection);
        Some(until.since(now))
    }

    /// Returns whether the node's lcore is stalled.
    pub(crate) fn is_stalled(&self, at: At) -> bool {
        self.now() < self.node(at.node).stalled_until
    }
}
