//! Bandwidth of one thread: messages, their size, the time they took.

use serde::{Deserialize, Serialize};

/// Largest number of messages for which perftest computes a peak. For more it prints 0.
const PEAK_MESSAGES_MAX: u64 = 20_000;

/// Messages over time, in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    /// Messages completed.
    pub(crate) messages: u64,
    /// Payload bytes of each message.
    pub(crate) size: u64,
    /// Time from the first post to the last completion, in ns.
    pub(crate) elapsed_ns: u64,
    /// Messages per nanosecond in the best window; 0 if none was computed.
    pub(crate) peak_rate: f64,
}

impl Bandwidth {
    /// Returns the average payload bytes per second.
    pub(crate) fn bytes_per_second(&self) -> f64 {
        self.messages_per_second() * self.size as f64
    }

    /// Returns the payload bytes per second in the best window.
    pub(crate) fn peak_bytes_per_second(&self) -> f64 {
        self.peak_rate * 1e9 * self.size as f64
    }

    /// Returns the average messages per second.
    pub(crate) fn messages_per_second(&self) -> f64 {
        self.messages as f64 / (self.elapsed_ns.max(1) as f64 / 1e9)
    }

    /// Returns the payload rate in Gb/s of 10⁹ bits.
    pub(crate) fn gbps(&self) -> f64 {
        self.bytes_per_second() * 8.0 / 1e9
    }

    /// Adds the other direction in perftest's way: the sum has our messages, and the sums of the
    /// rates and peaks.
    pub(crate) fn plus(&self, other: &Bandwidth) -> Bandwidth {
        let rate = self.messages_per_second() + other.messages_per_second();
        let elapsed = self.messages as f64 * 1e9 / rate.max(f64::MIN_POSITIVE);
        Bandwidth {
            messages: self.messages,
            size: self.size,
            elapsed_ns: elapsed.round() as u64,
            peak_rate: self.peak_rate + other.peak_rate,
        }
    }
}

/// Times at which messages were posted and completed, to compute the peak.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// Time of each message's post, in ns.
    posted: Vec<u64>,
    /// Total number of completed messages, and the time, in ns.
    completed: Vec<(u64, u64)>,
    wanted: bool,
}

impl Timeline {
    /// Creates a timeline. It records only if a peak is wanted and perftest would compute one.
    pub(crate) fn new(messages: Option<u64>, wanted: bool) -> Self {
        let count = messages.filter(|&count| wanted && count <= PEAK_MESSAGES_MAX);
        let capacity = count.unwrap_or(0) as usize;
        Self {
            posted: Vec::with_capacity(capacity),
            completed: Vec::with_capacity(capacity),
            wanted: count.is_some(),
        }
    }

    /// Tells whether times are recorded.
    #[inline]
    pub(crate) fn wanted(&self) -> bool {
        self.wanted
    }

    /// Records the post of `count` messages.
    #[inline]
    pub(crate) fn post(&mut self, count: u64, now: u64) {
        if self.wanted {
            self.posted.extend((0..count).map(|_| now));
        }
    }

    /// Records that `total` messages are completed in all.
    #[inline]
    pub(crate) fn complete(&mut self, total: u64, now: u64) {
        if self.wanted {
            self.completed.push((total, now));
        }
    }

    /// Returns the messages per nanosecond in the best window from a post to a completion.
    ///
    /// The window with the greatest ratio is found by Dinkelbach's iteration: for a rate `r`, one
    /// pass finds the window with the largest "messages minus `r` times duration", and its rate is
    /// the next `r`. perftest tries all pairs.
    pub(crate) fn peak(&self) -> f64 {
        let mut rate = 0.0;
        for _ in 0..64 {
            let better = self.best_window(rate);
            if better <= rate {
                break;
            }
            rate = better;
        }
        rate
    }

    /// Returns the rate of the window that gains most over `rate`.
    fn best_window(&self, rate: f64) -> f64 {
        let start = self.posted.first().copied().unwrap_or(0);
        let since = |time: u64| time.saturating_sub(start) as f64;
        let mut best = (0.0, 0.0);
        let mut lowest = (f64::INFINITY, 0u64, 0u64);
        let mut next = 0;
        for &(total, end) in &self.completed {
            while let Some(&posted) = self.posted.get(next).filter(|_| (next as u64) < total) {
                let value = next as f64 - rate * since(posted);
                if value < lowest.0 {
                    lowest = (value, next as u64, posted);
                }
                next += 1;
            }
            let gain = total as f64 - rate * since(end) - lowest.0;
            let duration = end.saturating_sub(lowest.2).max(1) as f64;
            if gain > best.0 {
                best = (gain, (total - lowest.1) as f64 / duration);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_pairs(timeline: &Timeline) -> f64 {
        let mut best = 0.0f64;
        for (index, &posted) in timeline.posted.iter().enumerate() {
            for &(total, end) in &timeline.completed {
                if total > index as u64 {
                    let duration = end.saturating_sub(posted).max(1) as f64;
                    best = best.max((total - index as u64) as f64 / duration);
                }
            }
        }
        best
    }

    #[test]
    fn rates_count_payload_and_decimal_bits() {
        let sample =
            Bandwidth { messages: 1000, size: 65536, elapsed_ns: 1_000_000, peak_rate: 0.002 };
        assert_eq!(sample.messages_per_second(), 1e6);
        assert!((sample.gbps() - 524.288).abs() < 1e-9);
        assert_eq!(sample.peak_bytes_per_second(), 2e6 * 65536.0);
    }

    #[test]
    fn the_peak_is_that_of_the_best_of_all_windows() {
        let mut seed = 7u64;
        let mut random = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % limit
        };
        for messages in [1u64, 2, 17, 300] {
            let mut timeline = Timeline::new(Some(messages), true);
            let mut now = 1_000_000;
            for index in 0..messages {
                now += random(50);
                timeline.post(1, now);
                if random(3) == 0 || index + 1 == messages {
                    now += 1 + random(400);
                    timeline.complete(index + 1, now);
                }
            }
            let (fast, slow) = (timeline.peak(), all_pairs(&timeline));
            assert!((fast - slow).abs() < 1e-9 * slow, "{messages}: {fast} against {slow}");
        }
    }

    #[test]
    fn no_peak_beyond_perftests_limit_or_when_not_wanted() {
        for (messages, wanted) in [(Some(20_001), true), (Some(5), false), (None, true)] {
            let mut timeline = Timeline::new(messages, wanted);
            timeline.post(1, 1);
            timeline.complete(1, 2);
            assert!(!timeline.wanted());
            assert_eq!(timeline.peak(), 0.0);
        }
    }

    #[test]
    fn the_rates_of_two_directions_add_up_and_the_messages_are_ours() {
        let of = |messages, elapsed_ns| Bandwidth { messages, size: 8, elapsed_ns, peak_rate: 0.1 };
        for (one, two) in [(of(100, 10_000), of(100, 20_000)), (of(300, 10_000), of(100, 30_000))] {
            let sum = one.plus(&two);
            assert_eq!((sum.messages, sum.peak_rate), (one.messages, 0.2));
            let rates = one.bytes_per_second() + two.bytes_per_second();
            assert!((sum.bytes_per_second() / rates - 1.0).abs() < 1e-3, "{sum:?}");
        }
        let nothing = Bandwidth::default();
        assert_eq!(nothing.plus(&nothing), nothing);
    }
}
