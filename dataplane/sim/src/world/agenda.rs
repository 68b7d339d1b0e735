//! The virtual clock: a queue of events, and the time of the event taken last.
//!
//! Invariants
//! - Time never goes back.
//! - Events of one instant happen in the order in which they were entered, so a run is
//!   reproducible.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use uroce_transport::Instant;

/// The current time and the events to come.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    now: Instant,
    queue: BinaryHeap<Reverse<Entry<E>>>,
    entered: u64,
}

#[derive(Debug)]
struct Entry<E> {
    when: Instant,
    turn: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Agenda<E> {
        Agenda { now: Instant::ZERO, queue: BinaryHeap::new(), entered: 0 }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Enters an event at `when`; an event in the past happens now.
    pub(crate) fn enter(&mut self, when: Instant, event: E) {
        let when = when.max(self.now);
        self.queue.push(Reverse(Entry { when, turn: self.entered, event }));
        self.entered += 1;
    }

    /// Time at which the next event is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.queue.peek().map(|Reverse(entry)| entry.when)
    }

    /// Advances the time to the next event and takes it.
    pub(crate) fn take(&mut self) -> Option<E> {
        let Reverse(entry) = self.queue.pop()?;
        self.now = self.now.max(entry.when);
        Some(entry.event)
    }

    /// Advances the time to `when`. Events due before then happen late, in their order.
    pub(crate) fn jump_to(&mut self, when: Instant) {
        self.now = self.now.max(when);
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.when, self.turn).cmp(&(other.when, other.turn))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_by_turn() {
        let mut agenda = Agenda::new();
        for (when, name) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            agenda.enter(Instant::from_nanos(when), name);
        }
        let order: String = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(order, "bdac");
        agenda.enter(Instant::ZERO, 'e');
        agenda.take();
        assert_eq!(agenda.now(), Instant::from_nanos(5), "an event in the past happens now");
    }
}
