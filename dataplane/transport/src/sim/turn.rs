//! The world's loop: one event after the other, and what a node does about it, as an lcore would.
//!
//! What holds
//! - A QP is asked for packets after each input, at once or a little later.
//! - A timer event is early or on time, never late: a deadline that moved is entered anew.

use core::time::Duration;

use super::node::At;
use super::world::{Event, LAZY_MAX_NS, Step, TURN, World};
use crate::Progress;

impl World {
    /// Takes the next event.
    pub fn step(&mut self) -> Step {
        match self.agenda.take() {
            None => return Step::Idle,
            Some(Event::Wake(token)) => return Step::Wake(token),
            Some(Event::Arrive { to, frame }) => self.arrive(to, frame),
            Some(Event::Timer(at)) => self.expire(at),
            Some(Event::Kick(at)) => {
                self.slot_mut(at).is_kicked = false;
                self.poll(at);
                self.set_timer(at);
            }
        }
        Step::Done
    }

    /// A timer event that an earlier deadline has outrun finds nothing due: a QP is to bear that.
    fn expire(&mut self, at: At) {
        let now = self.now();
        let slot = self.slot_mut(at);
        if slot.timer_at.is_some_and(|due| due <= now) {
            slot.timer_at = None;
        }
        self.with_qp(at, |qp, now, env| qp.handle_timeout(now, env));
        self.settle(at);
    }

    /// After an input: asks the QP for packets, at once or soon.
    pub(super) fn settle(&mut self, at: At) {
        if !self.slot(at).is_kicked {
            let is_lazy = self.settings.lazy_rate > 0.0 && self.rng.f64() < self.settings.lazy_rate;
            if is_lazy {
                let lag = Duration::from_nanos(self.rng.u64(1..LAZY_MAX_NS));
                self.kick(at, lag);
            } else {
                self.poll(at);
            }
        }
        self.set_timer(at);
    }

    fn poll(&mut self, at: At) {
        let budget = self.settings.budget;
        let progress = self.with_qp(at, |qp, now, env| qp.poll_transmit(now, budget, env));
        if progress != Progress::Idle {
            self.kick(at, TURN);
        }
        let mut departures = core::mem::take(&mut self.outlet.departures);
        for departure in departures.drain(..) {
            self.launch(departure);
        }
        self.outlet.departures = departures;
        self.tap_polled(at);
    }

    fn kick(&mut self, at: At, lag: Duration) {
        self.slot_mut(at).is_kicked = true;
        self.agenda.enter(self.agenda.now() + lag, Event::Kick(at));
    }

    fn set_timer(&mut self, at: At) {
        let slot = &mut self.nodes[usize::from(at.node)].slots[usize::from(at.qp)];
        let Some(due) = slot.qp.next_timeout() else { return };
        if slot.timer_at.is_none_or(|timer| due < timer) {
            // Never in the past, or the event would not find its deadline.
            let due = due.max(self.agenda.now());
            slot.timer_at = Some(due);
            self.agenda.enter(due, Event::Timer(at));
        }
    }
}
