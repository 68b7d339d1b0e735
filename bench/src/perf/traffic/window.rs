//! The measured part of a transfer.

use crate::perf::measure::Bandwidth;
use crate::perf::plan::{Plan, Span};

/// Messages completed within the margins of a run.
///
/// The window is from the first completion after the first margin to the last one before the second
/// margin. Without margins it is from the beginning of the run to the last completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Times between which completions count.
    span: Span,
    /// Time and number of messages at the beginning.
    first: Option<(u64, u64)>,
    /// Time and number of messages at the last completion.
    last: (u64, u64),
}

impl Window {
    /// Creates the window of a transfer that begins `now`.
    pub(super) fn new(plan: &Plan, now: u64) -> Self {
        let span = Span::of(plan, now);
        Self { span, first: (span.begin == now).then_some((now, 0)), last: (now, 0) }
    }

    /// Notes that `total` messages are completed in all.
    #[inline]
    pub(super) fn note(&mut self, now: u64, total: u64) {
        if self.first.is_none() && now >= self.span.begin {
            self.first = Some((now, total));
        }
        if now <= self.span.end {
            self.last = (now, total);
        }
    }

    /// Returns the messages of the window. Without a completion in it there are none.
    pub(super) fn sample(&self, size: u32) -> Bandwidth {
        let (begin, before) = self.first.unwrap_or(self.last);
        Bandwidth {
            messages: self.last.1.saturating_sub(before),
            size: u64::from(size),
            elapsed_ns: self.last.0.saturating_sub(begin),
            peak_rate: 0.0,
        }
    }

    /// Returns the messages since the last call, for the rows of an endless run.
    pub(super) fn lap(&mut self, now: u64, total: u64, size: u32) -> Bandwidth {
        let (begin, before) = self.first.replace((now, total)).unwrap_or((now, total));
        Bandwidth {
            messages: total.saturating_sub(before),
            size: u64::from(size),
            elapsed_ns: now.saturating_sub(begin),
            peak_rate: 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::{Amount, Measure, Operation};
    use std::time::Duration;

    fn plan(amount: Amount, margin: u64) -> Plan {
        let mut plan = Plan::new(Operation::Write, Measure::Bandwidth);
        plan.amount = amount;
        plan.local.margin = Duration::from_secs(margin);
        plan
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn without_margins_all_of_the_run_counts() {
        let mut window = Window::new(&plan(Amount::Iterations(10), 0), 5);
        window.note(25, 4);
        window.note(45, 10);
        let sample = window.sample(8);
        assert_eq!((sample.messages, sample.elapsed_ns, sample.size), (10, 40, 8));
    }

    #[test]
    fn margins_are_left_out() {
        let mut window = Window::new(&plan(Amount::Duration(Duration::from_secs(8)), 2), 0);
        for second in 1..=8 {
            window.note(second * SECOND, second * 100);
        }
        let sample = window.sample(8);
        assert_eq!((sample.messages, sample.elapsed_ns), (400, 4 * SECOND));
    }

    #[test]
    fn a_window_without_a_completion_has_no_messages() {
        let window = Window::new(&plan(Amount::Duration(Duration::from_secs(8)), 2), 0);
        assert_eq!(window.sample(8).messages, 0);
    }

    #[test]
    fn laps_follow_each_other() {
        let mut window = Window::new(&plan(Amount::Endless, 0), 0);
        let one = window.lap(SECOND, 100, 8);
        let two = window.lap(3 * SECOND, 150, 8);
        assert_eq!((one.messages, one.elapsed_ns), (100, SECOND));
        assert_eq!((two.messages, two.elapsed_ns), (50, 2 * SECOND));
    }
}
