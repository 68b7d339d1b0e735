//! Times of a run, and of its measured part between the margins.

use super::{Amount, Plan};
use std::time::Duration;

/// Times of a run, in ns of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Begin of the measured part.
    pub(crate) begin: u64,
    /// End of the measured part; `u64::MAX` if that is the run's.
    pub(crate) end: u64,
    /// End of a run by time; `u64::MAX` for other runs.
    pub(crate) deadline: u64,
}

impl Span {
    /// Returns the times of a run that begins `now`.
    pub(crate) fn of(plan: &Plan, now: u64) -> Self {
        let Amount::Duration(time) = plan.amount else {
            return Self { begin: now, end: u64::MAX, deadline: u64::MAX };
        };
        let (time, margin) = (time.as_nanos() as u64, plan.local.margin.as_nanos() as u64);
        let end = if margin > 0 { now + time.saturating_sub(margin) } else { u64::MAX };
        Self { begin: now + margin, end, deadline: now + time }
    }

    /// Tells whether a time is in the measured part.
    pub(crate) fn has(&self, now: u64) -> bool {
        (self.begin..=self.end).contains(&now)
    }
}

impl Plan {
    /// Returns the length of the measured part of a run by time.
    pub(crate) fn measured(&self) -> Option<Duration> {
        match self.amount {
            Amount::Duration(time) => Some(time.saturating_sub(self.local.margin * 2)),
            Amount::Iterations(_) | Amount::Endless => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Measure, Operation};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn plan(amount: Amount, margin: u64) -> Plan {
        let mut plan = Plan::new(Operation::Write, Measure::Bandwidth);
        plan.amount = amount;
        plan.local.margin = Duration::from_secs(margin);
        plan
    }

    #[test]
    fn margins_are_cut_from_both_ends_of_a_run_by_time() {
        let plan = plan(Amount::Duration(Duration::from_secs(8)), 2);
        let span = Span::of(&plan, 100 * SECOND);
        assert_eq!([span.begin, span.end, span.deadline], [102, 106, 108].map(|at| at * SECOND));
        assert!(!span.has(span.begin - 1) && span.has(span.begin) && span.has(span.end));
        assert!(!span.has(span.end + 1));
        assert_eq!(plan.measured(), Some(Duration::from_secs(4)));
    }

    #[test]
    fn without_margins_all_of_the_run_is_measured() {
        let timed = plan(Amount::Duration(Duration::from_secs(8)), 0);
        let of = |plan: &Plan| Span::of(plan, 5);
        assert_eq!(of(&timed), Span { begin: 5, end: u64::MAX, deadline: 8 * SECOND + 5 });
        assert_eq!(timed.measured(), Some(Duration::from_secs(8)));
        for amount in [Amount::Iterations(10), Amount::Endless] {
            let plan = plan(amount, 0);
            assert_eq!(of(&plan), Span { begin: 5, end: u64::MAX, deadline: u64::MAX });
            assert_eq!(plan.measured(), None);
        }
    }
}
