//! Delay-based reaction point: the rate falls while round trips are longer than a target, and rises
//! while they are not.
//!
//! Read first: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter" (SIGCOMM 2020), section 3. Swift controls a window; this is the same law for the
//! rate of a pacer.
//!
//! Invariants
//! - `min_rate` ≤ rate ≤ the line's rate while the QP is slowed down.
//! - The rate falls at most once in a round trip.
//! - From the first fall on, frames are paced at the line's rate at least: a burst would fill the
//!   sender's own queue, and the delay in it counts too.
//!
//! Not here: the scaling of the target with the number of flows and hops, and the separation of the
//! hosts' delay from the network's.

use core::time::Duration;

use super::ReactionPoint;
use crate::time::Instant;

/// Parameters of the delay-based algorithm. Values out of range act as the nearest one in range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayParams {
    /// Round trip above which the rate falls, in microseconds, at least 1; default 25. It must
    /// exceed the round trip of an empty network, in which the hosts' turns count too.
    pub target_delay_us: u32,
    /// Increase of the rate in each round trip, in Mb/s; default 200.
    pub ai_rate: u32,
    /// Decrease for a delay far above the target, in percent, 0 to 100; default 80.
    pub beta: u8,
    /// Largest decrease at once, in percent, 0 to 100; default 50.
    pub max_mdf: u8,
    /// Floor of the rate in Mb/s, at least 1; default 100.
    pub min_rate: u32,
    /// The line's rate in Mb/s; 0 (default): the path's static rate, or 100 Gb/s if it has none.
    pub max_rate: u32,
}

impl Default for DelayParams {
    fn default() -> DelayParams {
        DelayParams {
            target_delay_us: 25,
            ai_rate: 200,
            beta: 80,
            max_mdf: 50,
            min_rate: 100,
            max_rate: 0,
        }
    }
}

/// One percent, in millionths.
const PERCENT: u64 = 10_000;

/// State of a reaction point. Rates are in kbit/s.
#[derive(Debug)]
pub(super) struct Delay {
    params: DelayParams,
    line: u64,
    /// The rate; the line's until the first fall.
    current: u64,
    /// The latest round trip in nanoseconds.
    round_trip: u64,
    cut_at: Option<Instant>,
    /// Time up to which the rate has risen.
    raised_at: Instant,
    has_fallen: bool,
}

impl Delay {
    pub(super) fn new(params: &DelayParams) -> Delay {
        let params = DelayParams {
            target_delay_us: params.target_delay_us.max(1),
            beta: params.beta.min(100),
            max_mdf: params.max_mdf.min(100),
            min_rate: params.min_rate.max(1),
            ..*params
        };
        let raised_at = Instant::ZERO;
        Delay {
            params,
            line: 0,
            current: 0,
            round_trip: 0,
            cut_at: None,
            raised_at,
            has_fallen: false,
        }
    }

    /// Lowers the rate by `part` of it in millionths, unless it fell less than a round trip ago.
    fn cut(&mut self, part: u64, now: Instant) {
        if self.cut_at.is_some_and(|at| nanos(now.since(at)) < self.round_trip) {
            return;
        }
        let floor = (u64::from(self.params.min_rate) * 1000).min(self.line);
        let part = part.min(u64::from(self.params.max_mdf) * PERCENT);
        self.current = (self.current - self.current * part / (100 * PERCENT)).max(floor);
        self.cut_at = Some(now);
        self.has_fallen = true;
    }

    /// Raises the rate by `ai_rate` for each round trip since it last rose, one at most.
    fn rise(&mut self, now: Instant) {
        let since = nanos(now.since(self.raised_at)).min(self.round_trip);
        let by = u128::from(self.params.ai_rate) * 1000 * u128::from(since);
        let by = (by / u128::from(self.round_trip.max(1))) as u64;
        self.current = (self.current + by).min(self.line);
    }
}

impl ReactionPoint for Delay {
    fn restart(&mut self, line_kbps: u64) {
        let max = u64::from(self.params.max_rate) * 1000;
        self.line = if max > 0 { max.min(line_kbps) } else { line_kbps };
        self.current = self.line;
        self.cut_at = None;
        self.has_fallen = false;
    }

    fn rate_kbps(&self) -> Option<u64> {
        self.has_fallen.then_some(self.current)
    }

    //= check K11 — above the target the rate falls by the excess, below it rises by a constant
    fn round_trip(&mut self, sample: Duration, now: Instant) {
        let target = u64::from(self.params.target_delay_us) * 1000;
        self.round_trip = nanos(sample);
        match self.round_trip.checked_sub(target) {
            None | Some(0) => self.rise(now),
            Some(excess) => {
                let far = u128::from(self.params.beta) * u128::from(PERCENT);
                let part = far * u128::from(excess) / u128::from(self.round_trip);
                self.cut(part as u64, now);
            }
        }
        self.raised_at = now;
    }

    fn lost(&mut self, now: Instant) {
        self.cut(u64::from(self.params.max_mdf) * PERCENT, now);
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
