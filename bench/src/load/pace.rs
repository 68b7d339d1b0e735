//! Times at which messages are due, and the messages that ask for a completion.

use std::time::Duration;

/// Intended times. Messages are numbered from 1; the first is due at the start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Messages per ns; `None` if each is due as soon as there is room for it.
    rate: Option<f64>,
    /// Number of messages; without a rate it is not known before the end.
    pub(super) total: u64,
}

impl Pace {
    /// Creates the times for a rate in messages per second. There is at least one message.
    pub(super) fn new(rate: Option<f64>, time: Duration) -> Self {
        let total = rate.map_or(u64::MAX, |rate| ((rate * time.as_secs_f64()) as u64).max(1));
        Self { rate: rate.map(|rate| rate / 1e9), total }
    }

    /// Tells whether the number of messages is not known before the end.
    pub(super) fn is_endless(&self) -> bool {
        self.rate.is_none()
    }

    /// Returns the number of messages that are due this many ns after the start.
    #[inline]
    pub(super) fn due(&self, elapsed: u64) -> u64 {
        match self.rate {
            Some(rate) => ((elapsed as f64 * rate) as u64 + 1).min(self.total),
            None => self.total,
        }
    }

    /// Returns the time at which a message is due, in ns after the start, if there is one.
    #[inline]
    pub(super) fn time_of(&self, number: u64) -> Option<u64> {
        self.rate.map(|rate| ((number - 1) as f64 / rate) as u64)
    }
}

/// Messages that ask for a completion: one in each group, at a random place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signals {
    every: u64,
    seed: u64,
}

impl Signals {
    /// Creates the places for groups of `every` messages.
    pub(super) fn new(every: u32, seed: u64) -> Self {
        Self { every: u64::from(every.max(1)), seed }
    }

    /// Tells whether the completion of a message is asked for.
    #[inline]
    pub(super) fn has(&self, number: u64) -> bool {
        let group = number / self.every;
        number % self.every == mixed(self.seed ^ group) % self.every
    }
}

/// SplitMix64's output function: equal inputs give equal values, and neighbours unlike ones.
#[inline]
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_the_rate_whatever_happened_before() {
        let pace = Pace::new(Some(1e6), Duration::from_millis(2));
        assert_eq!(pace.total, 2000);
        assert_eq!([0, 999, 1000, 1_500_000].map(|ns| pace.due(ns)), [1, 1, 2, 1501]);
        assert_eq!(pace.due(u64::MAX), 2000);
        assert_eq!([1, 2, 2000].map(|number| pace.time_of(number)), [0, 1000, 1_999_000].map(Some));
    }

    #[test]
    fn no_message_is_due_before_its_time() {
        let pace = Pace::new(Some(1.234e6), Duration::from_secs(1));
        for elapsed in (0..1_000_000).step_by(97) {
            let due = pace.due(elapsed);
            assert!(pace.time_of(due).expect("a rate") <= elapsed, "{elapsed}");
            assert!(pace.time_of(due + 1).expect("a rate") + 1 >= elapsed, "{elapsed}");
        }
    }

    #[test]
    fn without_a_rate_all_messages_are_due_and_none_has_a_time() {
        let pace = Pace::new(None, Duration::from_secs(1));
        assert_eq!((pace.due(0), pace.time_of(7)), (u64::MAX, None));
        assert_eq!(Pace::new(Some(0.1), Duration::from_secs(1)).total, 1);
    }

    #[test]
    fn each_group_has_one_completion_at_no_constant_place() {
        let signals = Signals::new(16, 1);
        let places: Vec<u64> = (0..16_000).filter(|number| signals.has(*number)).collect();
        assert_eq!(places.len(), 1000);
        for place in 0..16 {
            let count = places.iter().filter(|number| **number % 16 == place).count();
            assert!((30..100).contains(&count), "{count} at {place}");
        }
        assert!((0..100).all(|number| Signals::new(1, 5).has(number)));
    }
}
