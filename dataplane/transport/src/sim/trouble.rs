//! Troubles that last for a while: a link that loses everything or holds everything back, an lcore
//! that stands still, a node without packet buffers.
//!
//! What holds: each frame that a trouble hits is blamed on it in its connection's fault log; none
//! lasts longer than [`TROUBLE_MAX`].

use core::time::Duration;

use super::node::At;
use super::world::{Event, World};
use crate::Instant;

/// The longest trouble that comes by chance.
pub(super) const TROUBLE_MAX: Duration = Duration::from_millis(20);

/// Frames that wait for a stalled lcore at most: the port's receive ring.
const BACKLOG_MAX: u32 = 512;

impl World {
    /// Everything from one node to another is lost for a while.
    pub fn cut(&mut self, from: u16, to: u16, span: Duration) {
        let until = self.now() + span;
        for link in &mut self.links[usize::from(from)][usize::from(to)] {
            link.cut_until = until;
        }
    }

    /// Nothing from one node arrives at another for a while; then all comes at once, in order.
    pub fn clog(&mut self, from: u16, to: u16, span: Duration) {
        let until = self.now() + span;
        for link in &mut self.links[usize::from(from)][usize::from(to)] {
            link.clogged_until = until;
        }
    }

    /// A node's lcore stands still for a while.
    pub fn stall(&mut self, node: u16, span: Duration) {
        let until = self.now() + span;
        let node = self.node_mut(node);
        node.stalled_until = until;
    }

    /// A node has no packet buffers for a while.
    pub fn starve(&mut self, node: u16, span: Duration) {
        let until = self.now() + span;
        self.node_mut(node).starved_until = until;
    }

    /// From now on troubles come by chance, if the settings say so.
    pub(super) fn expect_trouble(&mut self) {
        if let Some(pace) = self.settings.trouble_pace {
            let lag = Duration::from_nanos(self.rng.u64(1..=2 * pace.as_nanos() as u64));
            self.agenda.enter(self.agenda.now() + lag, Event::Trouble);
        }
    }

    /// The time for a trouble has come.
    pub(super) fn make_trouble(&mut self) {
        if self.settings.trouble_pace.is_none() {
            return;
        }
        self.faults.troubles += 1;
        // Short ones as likely as long ones.
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

    /// All troubles are over, and none comes any more.
    pub(super) fn end_troubles(&mut self) {
        self.settings.trouble_pace = None;
        for node in &mut self.nodes {
            (node.stalled_until, node.starved_until) = (Instant::ZERO, Instant::ZERO);
        }
    }

    /// Puts an event off that its node's lcore cannot see to now. False: it can.
    pub(super) fn put_off(&mut self, event: Event) -> bool {
        let number = match event {
            Event::Arrive { to, .. } => to,
            Event::Timer(at) | Event::Kick(at) => at.node,
            Event::Wake(_) | Event::Trouble => return false,
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

    /// Loses a frame that arrives where there is no buffer for it. False: there is one.
    pub(super) fn lacks_buffer(&mut self, to: u16, place: u32) -> bool {
        let is_starved = self.now() < self.node(to).starved_until;
        if is_starved {
            self.blame(self.flying[place as usize].connection);
            self.lose(to, place);
        }
        is_starved
    }

    fn lose(&mut self, to: u16, place: u32) {
        let flight = core::mem::take(&mut self.flying[place as usize]);
        self.landed(to, &flight);
        self.free_places.push(place);
        self.outlet.pool.push(flight.frame);
        self.faults.lost += 1;
    }

    /// How long a QP waits whose packet was not taken, beyond the usual.
    pub(super) fn starved_for(&mut self, at: At) -> Option<Duration> {
        let now = self.now();
        let until = self.node(at.node).starved_until;
        if now >= until {
            return None;
        }
        self.blame(self.slot(at).connection);
        Some(until.since(now))
    }

    /// Does the node's lcore stand still?
    pub(super) fn is_stalled(&self, at: At) -> bool {
        self.now() < self.node(at.node).stalled_until
    }
}
