//! The world's loop: takes one event after the other and lets the nodes handle it as an lcore
//! would.
//!
//! Invariants
//! - A QP is polled for packets after each input, at once or a little later.
//! - A timer event is early or on time, never late: a deadline that has moved is entered again.

use core::time::Duration;

use crate::world::checker::apm::Due;
use crate::world::names::At;
use crate::world::{Event, LAZY_MAX_NS, Step, TURN, World};
use uroce_transport::Progress;

impl World {
    /// Takes and handles the next event.
    pub fn step(&mut self) -> Step {
        let Some(event) = self.agenda.take() else { return Step::Idle };
        if self.put_off(event) {
            return Step::Done;
        }
        match event {
            Event::Wake(token) => return Step::Wake(token),
            Event::Queue { to, frame } => self.enqueue(to, frame),
            Event::Arrive { to, frame } => self.arrive(to, frame),
            Event::Timer(at) => self.expire(at),
            Event::Kick(at) => {
                self.slot_mut(at).is_kicked = false;
                self.poll(at);
                self.set_timer(at);
                self.settle_woken();
            }
            Event::Trouble => self.make_trouble(),
        }
        Step::Done
    }

    /// Handles a timer event. It may be outdated, so that nothing is due; a QP must tolerate that.
    fn expire(&mut self, at: At) {
        let now = self.now();
        let slot = self.slot_mut(at);
        if slot.timer_at.is_some_and(|due| due <= now) {
            slot.timer_at = None;
        }
        self.with_qp(at, |qp, now, env| qp.handle_timeout(now, env));
        self.check_reports(at, Due::default());
        self.settle(at);
    }

    /// Polls the QP for packets after an input, at once or soon.
    pub(crate) fn settle(&mut self, at: At) {
        if !self.slot(at).is_kicked {
            let is_lazy = self.settings.lazy_rate > 0.0 && self.rng.f64() < self.settings.lazy_rate;
            if self.is_stalled(at) {
                self.kick(at, Duration::ZERO);
            } else if is_lazy {
                let lag = Duration::from_nanos(self.rng.u64(1..LAZY_MAX_NS));
                self.kick(at, lag);
            } else {
                self.poll(at);
            }
        }
        self.set_timer(at);
        self.settle_woken();
    }

    /// Polls the QPs that another one has changed.
    pub(crate) fn settle_woken(&mut self) {
        while let Some(at) = self.outlet.woken.pop() {
            self.settle(at);
        }
    }

    fn poll(&mut self, at: At) {
        let budget = self.settings.budget;
        let progress = self.with_qp(at, |qp, now, env| qp.poll_transmit(now, budget, env));
        match progress {
            Progress::Idle => {}
            Progress::More => self.kick(at, TURN),
            Progress::Blocked => {
                let wait = self.starved_for(at).unwrap_or(TURN);
                self.kick(at, wait);
            }
        }
        self.depart();
        self.tap_polled(at);
        self.check_reports(at, Due::default());
    }

    /// Sends the frames that were built for the last input.
    pub(crate) fn depart(&mut self) {
        let mut departures = core::mem::take(&mut self.outlet.departures);
        for departure in departures.drain(..) {
            self.launch(departure);
        }
        self.outlet.departures = departures;
    }

    fn kick(&mut self, at: At, lag: Duration) {
        self.slot_mut(at).is_kicked = true;
        self.agenda.enter(self.agenda.now() + lag, Event::Kick(at));
    }

    fn set_timer(&mut self, at: At) {
        let slot = &mut self.nodes[usize::from(at.node)].slots[usize::from(at.qp)];
        let Some(due) = slot.qp().next_timeout() else { return };
        if slot.timer_at.is_none_or(|timer| due < timer) {
            // Never in the past, or the event would not match its deadline.
            let due = due.max(self.agenda.now());
            slot.timer_at = Some(due);
            self.agenda.enter(due, Event::Timer(at));
        }
    }
}
