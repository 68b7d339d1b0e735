//! The last events of the device, its QPs and its ports, for `show events`.

use std::collections::VecDeque;
use std::time::Instant;

use uroce_engine::EventKind;
use uroce_wire::Qpn;

use super::Thread;

/// Largest number of events that are kept.
pub(crate) const KEPT: usize = 256;

/// Object of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Qp(Qpn),
    /// A port, counted from 1.
    Port(u8),
    /// The device itself.
    Device,
}

/// An event that has happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Happened {
    /// Events before it since the device was opened.
    pub(crate) number: u64,
    pub(crate) at: Instant,
    pub(crate) about: About,
    pub(crate) kind: EventKind,
    /// Whether the program is not told of it.
    pub(crate) is_withheld: bool,
}

/// The last [`KEPT`] events, oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    events: VecDeque<Happened>,
    count: u64,
}

impl Recent {
    pub(super) fn add(&mut self, about: About, kind: EventKind) {
        self.push(about, kind, false);
    }

    /// Adds an event of which the program is not told.
    pub(super) fn add_withheld(&mut self, about: About, kind: EventKind) {
        self.push(about, kind, true);
    }

    fn push(&mut self, about: About, kind: EventKind, is_withheld: bool) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        let (number, at) = (self.count, Instant::now());
        self.events.push_back(Happened { number, at, about, kind, is_withheld });
        self.count += 1;
    }

    /// Returns the last `count` events, oldest first.
    fn last(&self, count: usize) -> Vec<Happened> {
        self.events.iter().skip(self.events.len().saturating_sub(count)).copied().collect()
    }
}

impl Thread {
    /// Returns the last events, oldest first.
    pub(crate) fn last_events(&self, count: usize) -> Vec<Happened> {
        self.recent.last(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_events_are_kept_and_numbered() {
        let mut recent = Recent::default();
        assert!(recent.last(5).is_empty());
        for port in 0..=KEPT {
            recent.add(About::Port(port as u8), EventKind::PortErr);
        }
        let all = recent.last(usize::MAX);
        assert_eq!((all.len(), all[0].number), (KEPT, 1));
        let last: Vec<u64> = recent.last(2).iter().map(|event| event.number).collect();
        assert_eq!(last, [KEPT as u64 - 1, KEPT as u64]);
        recent.add_withheld(About::Port(1), EventKind::PortErr);
        let marks: Vec<bool> = recent.last(2).iter().map(|event| event.is_withheld).collect();
        assert_eq!(marks, [false, true]);
    }
}
