//! The generator of a trial: the messages that are due, those that ask for a completion, and the
//! latency of these.
//!
//! It posts nothing and reads no clock: the caller says what time it is, in ns after the start.

use super::pace::{Pace, Signals};
use super::{Offer, Setting};
use crate::perf::measure::Latency;
use std::ops::Range;
use uroce::WorkCompletion;

/// Messages posted at once.
const LIST: u64 = 32;

/// A trial's generator.
pub(crate) struct Generator<'a> {
    pace: Pace,
    signals: Signals,
    /// Messages that may be under way.
    depth: u64,
    /// Number of the last message; its completion ends the trial.
    last: u64,
    /// Number of the message posted last.
    posted: u64,
    /// Number of the message completed last.
    done: u64,
    latency: Option<&'a mut Latency>,
}

impl<'a> Generator<'a> {
    /// Creates the generator of a trial. Latencies are recorded in `latency`.
    pub(crate) fn new(setting: &Setting, offer: &Offer, latency: Option<&'a mut Latency>) -> Self {
        let pace = Pace::new(offer.rate, offer.time);
        let signals = Signals::new(setting.every(), setting.seed);
        let depth = u64::from(setting.depth());
        Self { pace, signals, depth, last: pace.total, posted: 0, done: 0, latency }
    }

    /// Returns the numbers of messages to post now: those that are due and have room, a list at
    /// most. They count as posted.
    #[inline]
    pub(crate) fn due(&mut self, now: u64) -> Range<u64> {
        let due = self.pace.due(now).min(self.last) - self.posted;
        let count = due.min(self.depth - (self.posted - self.done)).min(LIST);
        let first = self.posted + 1;
        self.posted += count;
        first..first + count
    }

    /// Tells whether a message asks for a completion.
    #[inline]
    pub(crate) fn asks(&self, number: u64) -> bool {
        self.signals.has(number) || number == self.last
    }

    /// Takes completions.
    #[inline]
    pub(crate) fn take(&mut self, polled: &[WorkCompletion], now: u64) {
        let Some(newest) = polled.last() else { return };
        self.done = newest.wr_id;
        if let Some(latency) = &mut self.latency {
            let times = polled.iter().filter_map(|one| self.pace.time_of(one.wr_id));
            times.for_each(|due| latency.record(now.saturating_sub(due)));
        }
    }

    /// Makes the next message the last one, unless all are posted.
    pub(super) fn end(&mut self) {
        if self.posted < self.last {
            self.last = self.posted + 1;
        }
    }

    /// Returns the number of the message completed last.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Tells whether the last message is complete.
    pub(super) fn is_over(&self) -> bool {
        self.done == self.last
    }

    /// Returns the numbers of messages that were due and that were posted. What was due and could
    /// not be posted has waited until now, and is recorded so.
    pub(super) fn close(self, now: u64) -> (u64, u64) {
        let Self { pace, signals, posted, latency, .. } = self;
        if pace.is_endless() {
            return (posted, posted);
        }
        if let Some(latency) = latency {
            let unsent = (posted + 1..=pace.total).filter(|number| signals.has(*number));
            let times = unsent.filter_map(|number| pace.time_of(number));
            times.for_each(|due| latency.record(now.saturating_sub(due)));
        }
        (pace.total, posted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Service;
    use std::time::Duration;

    fn setting() -> Setting {
        Setting { service: Service::Rc, messages: vec![8], mtu: 4096, rx_depth: 512, seed: 1 }
    }

    fn complete(generator: &mut Generator<'_>, number: u64, now: u64) {
        generator.take(&[WorkCompletion { wr_id: number, ..WorkCompletion::default() }], now);
    }

    #[test]
    fn messages_are_posted_when_they_are_due_and_there_is_room() {
        let offer = Offer { rate: Some(1e6), time: Duration::from_micros(1000), stages: false };
        let mut generator = Generator::new(&setting(), &offer, None);
        assert_eq!((generator.due(0), generator.due(0)), (1..2, 2..2));
        assert_eq!(generator.due(4_000), 2..6);
        let mut posted = 5;
        while posted < 128 {
            posted += generator.due(999_000).count();
        }
        assert_eq!((posted, generator.due(999_000)), (128, 129..129), "the queue is full");
        complete(&mut generator, 100, 999_000);
        assert_eq!(generator.due(999_000), 129..161, "a list at most");
    }

    #[test]
    fn what_could_not_be_posted_has_waited_until_the_end() {
        let mut latency = Latency::new();
        let offer = Offer { rate: Some(1e6), time: Duration::from_micros(800), stages: false };
        let mut generator = Generator::new(&setting(), &offer, Some(&mut latency));
        // The first message is complete after 800 µs. Until then the system stands still.
        assert_eq!(generator.due(0), 1..2);
        generator.end();
        assert_eq!(generator.due(800_000), 2..3, "one more, which ends the trial");
        assert!(generator.asks(2));
        complete(&mut generator, 2, 800_000);
        assert!(generator.is_over());
        assert_eq!(generator.close(800_000), (800, 2));
        let quantiles = latency.quantiles(1.0);
        // One in sixteen of 800 is recorded, and the one that ended the trial.
        assert!((50..=52).contains(&quantiles.count), "{quantiles:?}");
        assert!((350_000.0..450_000.0).contains(&quantiles.p50), "{quantiles:?}");
    }
}
