//! Begin and end of the measured part of a run by time, as they are passed.

use super::Event;
use crate::perf::plan::{Plan, Span};

/// Reports the begin and the end of the measured part, each once.
pub(super) struct Phases {
    span: Span,
    /// Both are reported already, or never are: the run is not by time.
    begun: bool,
    ended: bool,
}

impl Phases {
    /// Creates the state of a run that begins `now`.
    pub(super) fn new(plan: &Plan, now: u64) -> Self {
        let counted = plan.amount.iterations().is_some();
        Self { span: Span::of(plan, now), begun: counted, ended: counted }
    }

    /// Tells whether time alone makes something to report. If not, a loop need not read the clock
    /// for it.
    #[inline]
    pub(super) fn are_due(&self) -> bool {
        !self.begun || (!self.ended && self.span.end != u64::MAX)
    }

    /// Reports what has come by `now`. Returns whether what ends now is measured: it begins after
    /// the first call in the measured part.
    #[inline]
    pub(super) fn note(&mut self, now: u64, event: &mut dyn FnMut(Event<'_>)) -> bool {
        if !self.begun && now >= self.span.begin {
            self.begun = true;
            event(Event::Begin);
            return false;
        }
        if now > self.span.end {
            self.finish(event);
        }
        self.span.has(now)
    }

    /// Reports that the run is over, and its measured part with it.
    pub(super) fn finish(&mut self, event: &mut dyn FnMut(Event<'_>)) {
        if !std::mem::replace(&mut self.ended, true) {
            event(Event::End);
        }
    }

    /// Returns the end of a run by time; `u64::MAX` for other runs.
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.span.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::{Amount, Measure, Operation};
    use std::time::Duration;

    /// Returns what is reported and measured at each of the times of a run that begins at 0.
    fn told(amount: Amount, margin: u64, times: &[u64]) -> String {
        let mut plan = Plan::new(Operation::Write, Measure::Latency);
        plan.amount = amount;
        plan.local.margin = Duration::from_nanos(margin);
        let mut phases = Phases::new(&plan, 0);
        let mut text = String::new();
        let name = |event: Event<'_>| if matches!(event, Event::Begin) { '<' } else { '>' };
        for &now in times {
            let measured = phases.note(now, &mut |event| text.push(name(event)));
            text.push(if measured { 'x' } else { '.' });
        }
        phases.finish(&mut |event| text.push(name(event)));
        text
    }

    #[test]
    fn begin_and_end_are_reported_once() {
        let timed = Amount::Duration(Duration::from_nanos(100));
        assert_eq!(told(timed, 20, &[5, 15, 25, 50, 80, 81, 90]), "..<.xx>..");
        assert_eq!(told(timed, 20, &[25, 50]), "<.x>");
        assert_eq!(told(timed, 0, &[5, 50, 99]), "<.xx>");
        assert_eq!(told(timed, 20, &[5]), ".>");
        assert_eq!(told(Amount::Iterations(5), 0, &[5, 50]), "xx");
        assert_eq!(told(Amount::Endless, 0, &[5, 50]), "<.x>");
    }
}
