//! Pacing: a QP with a rate limit sends each frame no earlier than its rate allows. The limit is an
//! attribute, or the rate of congestion control, or the lower of both.
//!
//! After a frame of n bytes at rate r the next frame waits n/r. The sum of the waits is exact: a
//! fraction of a nanosecond is added to the next wait, and a QP that is called late catches up.
//!
//! Invariants
//! - Time in which a QP has nothing to send gives it no allowance to send faster later.

use core::time::Duration;

use crate::attr::Attributes;
use crate::time::Instant;

/// Longest delay of its lcore's turns that a QP makes up for by sending without gaps. Longer than a
/// turn of a busy lcore, and short compared with the buffers on the path.
const MOST_LATE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    /// Answers sent since the last request, or since there was nothing more to send.
    pub(super) answers: u8,
    /// Earliest time at which the next frame may leave.
    next: Instant,
    /// Rate in kbit/s; 0 means no limit.
    kbps: u32,
    /// Fraction of a nanosecond that the waits so far lack: `remainder / kbps`.
    remainder: u32,
    /// A frame is waiting for `next`.
    is_waiting: bool,
    /// There has always been something to send since a frame last had to wait.
    is_busy: bool,
    /// Frames are paced, or a reaction point is told of each.
    is_on: bool,
    /// A reaction point is told of each frame.
    has_reaction: bool,
}

impl Pace {
    /// A pace without a limit; `has_reaction` is whether a reaction point is told of each frame.
    pub(super) fn new(has_reaction: bool) -> Pace {
        Pace { is_on: has_reaction, has_reaction, ..Pace::default() }
    }

    /// The limit by the attributes in kbit/s; 0 means none.
    pub(super) fn limit_of(attr: &Attributes) -> u32 {
        let path = attr.rate.mbps().map(|mbps| mbps.saturating_mul(1000));
        let own = (attr.rate_limit > 0).then_some(attr.rate_limit);
        path.into_iter().chain(own).min().unwrap_or(0)
    }

    /// Applies the rate that follows a change of the attributes or of the path.
    pub(super) fn retune(&mut self, kbps: u32) {
        if kbps != self.kbps {
            // A wait that the former rate required does not apply to the new one.
            *self = Pace {
                answers: self.answers,
                kbps,
                is_waiting: self.is_waiting,
                is_on: kbps != 0 || self.has_reaction,
                ..Pace::new(self.has_reaction)
            };
        }
    }

    /// Applies another rate of congestion control. A wait that has begun remains as it is, so that
    /// frequent changes do not add up to a higher rate.
    pub(super) fn adjust(&mut self, kbps: u32) {
        if kbps != self.kbps {
            (self.kbps, self.remainder) = (kbps, 0);
        }
    }

    /// Returns whether frames must pass the pacer.
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    fn is_limited(&self) -> bool {
        self.kbps != 0
    }

    /// Earliest time at which the next frame may leave.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Makes a frame wait until `at`, or longer if the QP's own rate requires it.
    pub(super) fn wait_until(&mut self, at: Instant) {
        self.next = if self.is_limited() { self.next.max(at) } else { at };
        self.is_waiting = true;
        self.is_busy = true;
    }

    /// Accounts for a bare acknowledgement of `bytes` bytes, which was sent without waiting. The
    /// next frame waits for its duration too, but only up to a limit: otherwise a peer that
    /// requires many acknowledgements could keep a slow QP from sending.
    pub(super) fn charge_bare(&mut self, bytes: u32, now: Instant) {
        if self.next <= now + MOST_LATE {
            self.charge(bytes, now);
        }
    }

    /// Accounts for a frame of `bytes` bytes that was sent.
    pub(super) fn charge(&mut self, bytes: u32, now: Instant) {
        if !self.is_limited() {
            return;
        }
        let earliest = match self.is_busy {
            true if seeded!(LatenessKept) => self.next,
            true => Instant::from_nanos(now.as_nanos().saturating_sub(NANOS_LATE)),
            false => now,
        };
        // Millionths of a bit, divided by kbit/s, are nanoseconds.
        let mut unit = 1_000_000;
        if seeded!(KibibitsForKilobits) {
            unit = 1000 * 1000 * 1000 / 1024;
        }
        let due = u64::from(bytes) * 8 * unit + u64::from(self.remainder);
        let kbps = u64::from(self.kbps);
        self.remainder = (due % kbps) as u32;
        if seeded!(PaceDrift) {
            self.remainder = 0;
        }
        self.next = self.next.max(earliest) + Duration::from_nanos(due / kbps);
        self.is_waiting = false;
    }

    /// Called when nothing is left to be sent.
    #[inline]
    pub(super) fn go_idle(&mut self) {
        self.is_waiting = false;
        self.is_busy = false;
    }

    /// The time at which a waiting frame may leave; `None` if no frame waits.
    #[inline]
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.is_waiting.then_some(self.next)
    }

    /// Ends a wait that is over at `now`, so that it causes no further timeout.
    pub(super) fn expire(&mut self, now: Instant) {
        self.is_waiting &= self.next > now;
    }
}

const NANOS_LATE: u64 = MOST_LATE.as_nanos() as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StaticRate;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + nanos)
    }

    /// A pace on a path with this rate and with an own limit in kbit/s.
    fn on_path(rate: StaticRate, rate_limit: u32) -> Pace {
        let mut attr = Attributes::default();
        (attr.rate, attr.rate_limit) = (rate, rate_limit);
        let mut pace = Pace::default();
        pace.retune(Pace::limit_of(&attr));
        pace
    }

    fn limited(rate_limit: u32) -> Pace {
        on_path(StaticRate::MAX, rate_limit)
    }

    #[test]
    fn the_lower_of_the_path_s_rate_and_the_qp_s_own_counts() {
        let rate = StaticRate::from_mbps(10_000).unwrap();
        for (rate_limit, expected) in [(0, 10_000_000), (5, 5), (20_000_000, 10_000_000)] {
            assert_eq!(on_path(rate, rate_limit).kbps, expected);
        }
        assert!(!limited(0).is_limited());
    }

    #[test]
    fn acknowledgements_put_data_off_for_a_millisecond_and_not_for_minutes() {
        let mut pace = limited(1000);
        for nanos in (0..1_000_000_000).step_by(20_000) {
            pace.charge_bare(62, at(nanos));
        }
        let late = pace.next().since(at(1_000_000_000));
        assert!(late < 2 * MOST_LATE, "{late:?}");
        assert!(late > MOST_LATE / 2, "they do count: {late:?}");
    }

    #[test]
    fn a_new_rate_does_not_wait_for_what_the_old_one_was_owed() {
        let mut pace = limited(1);
        pace.charge(4154, at(0));
        assert!(pace.next() > at(33_000_000_000));
        let mut attr = Attributes::default();
        attr.rate_limit = 10_000_000;
        pace.retune(Pace::limit_of(&attr));
        assert!(pace.next() <= at(0));
        // An idle time gives no allowance either.
        pace.charge(1250, at(0));
        assert_eq!(pace.next(), at(1000));
    }

    #[test]
    fn every_rate_is_kept_to_the_nanosecond() {
        for rate in StaticRate::all().filter(|rate| rate.mbps().is_some()) {
            let mut pace = on_path(rate, 0);
            let (mut now, mut bits) = (at(0), 0);
            for len in (60..4160).cycle().take(20_000) {
                pace.charge(len, now);
                bits += u64::from(len) * 8;
                // Called in the very nanosecond in which the frame may leave.
                now = pace.next();
                pace.wait_until(now);
            }
            let mbps = u64::from(rate.mbps().unwrap());
            assert_eq!(now, at(bits * 1000 / mbps), "{rate}");
        }
    }

    #[test]
    fn lateness_is_made_up_for_up_to_the_allowance() {
        // 1000 bytes take 8 µs.
        let mut pace = limited(1_000_000);
        pace.charge(1000, at(0));
        pace.wait_until(pace.next());
        // 92 µs late: eleven and a half frames may leave at once, then the rate applies again.
        for _ in 0..12 {
            assert!(pace.next() <= at(100_000));
            pace.charge(1000, at(100_000));
        }
        assert_eq!(pace.next(), at(104_000));
        pace.wait_until(pace.next());
        // Later than the allowance: the excess is lost.
        let late = at(50_000_000);
        let mut sent = 0;
        while pace.next() <= late {
            pace.charge(1000, late);
            sent += 1;
        }
        assert_eq!(sent, 1_000_000 / 8_000 + 1);
    }

    #[test]
    fn a_qp_without_work_earns_nothing() {
        let mut pace = limited(1_000_000);
        pace.charge(1000, at(0));
        pace.go_idle();
        assert_eq!(pace.wakes_at(), None);
        pace.charge(1000, at(50_000));
        assert_eq!(pace.next(), at(58_000));
        // A wait that is not over yet remains.
        pace.go_idle();
        pace.charge(125, at(51_000));
        assert_eq!(pace.next(), at(59_000));
    }

    #[test]
    fn a_frame_that_waits_is_woken_for_once() {
        let mut pace = limited(1_000_000);
        pace.charge(1000, at(0));
        assert_eq!(pace.wakes_at(), None);
        pace.wait_until(pace.next());
        assert_eq!(pace.wakes_at(), Some(at(8000)));
        pace.expire(at(7999));
        assert_eq!(pace.wakes_at(), Some(at(8000)));
        pace.expire(at(8000));
        assert_eq!(pace.wakes_at(), None);
        // The rate of an address handle's path applies besides the QP's own, or alone if there is
        // none.
        pace.wait_until(at(7000));
        assert_eq!(pace.wakes_at(), Some(at(8000)));
        let mut free = Pace::default();
        free.wait_until(at(9000));
        free.wait_until(at(7000));
        assert_eq!(free.wakes_at(), Some(at(7000)));
    }
}
