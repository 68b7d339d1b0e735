//! Whose turn it is to leave, and when: what a QP sends takes the time that its rate says.
//!
//! After a frame of n bytes at rate r the next one waits n/r. The sum is kept exactly: what is left
//! of a nanosecond goes into the next gap, and a QP that is called late makes up for it.
//!
//! What holds: a QP that had nothing to send earns nothing by that.

use core::time::Duration;

use crate::attr::Attributes;
use crate::time::Instant;

/// How much lateness of its lcore's turns a QP makes up for, by sending without gaps: longer than a
/// turn of a busy lcore, and short beside the buffers on the way.
const MOST_LATE: Duration = Duration::from_millis(1);

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Pace {
    /// Answers sent since the last request.
    pub(super) answers: u8,
    /// The next frame may leave then.
    next: Instant,
    /// In kbit/s; 0: no limit.
    kbps: u32,
    /// What the gaps so far lack, in parts of a nanosecond: `rest / kbps`.
    rest: u32,
    /// A frame waits for `next`.
    is_waiting: bool,
    /// There has been something to send since a frame had to wait last.
    is_busy: bool,
}

impl Pace {
    /// The attributes have changed, or the path has.
    pub(super) fn retune(&mut self, attr: &Attributes) {
        let path = attr.rate.mbps().map(|mbps| mbps.saturating_mul(1000));
        let own = (attr.rate_limit > 0).then_some(attr.rate_limit);
        let kbps = path.into_iter().chain(own).min().unwrap_or(0);
        if kbps != self.kbps {
            (self.kbps, self.rest) = (kbps, 0);
        }
    }

    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.kbps != 0
    }

    /// When the next frame may leave.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// A frame waits until then, or longer if the QP's own rate says so.
    pub(super) fn wait_until(&mut self, at: Instant) {
        self.next = if self.is_limited() { self.next.max(at) } else { at };
        self.is_waiting = true;
        self.is_busy = true;
    }

    /// A frame of so many bytes has left.
    pub(super) fn charge(&mut self, bytes: u32, now: Instant) {
        let earliest = match self.is_busy {
            true => Instant::from_nanos(now.as_nanos().saturating_sub(NANOS_LATE)),
            false => now,
        };
        // Millionths of a bit by kbit/s are nanoseconds.
        let due = u64::from(bytes) * 8_000_000 + u64::from(self.rest);
        let kbps = u64::from(self.kbps);
        self.rest = (due % kbps) as u32;
        self.next = self.next.max(earliest) + Duration::from_nanos(due / kbps);
        self.is_waiting = false;
    }

    /// Nothing is left to be sent.
    #[inline]
    pub(super) fn rest(&mut self) {
        self.is_waiting = false;
        self.is_busy = false;
    }

    /// When a frame that waits may leave.
    #[inline]
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.is_waiting.then_some(self.next)
    }

    /// Time has passed: nobody need be woken for what is past.
    pub(super) fn expire(&mut self, now: Instant) {
        self.is_waiting &= self.next > now;
    }
}

const NANOS_LATE: u64 = MOST_LATE.as_nanos() as u64;
