//! Raw requester: gives the environment one frame for each send WQE.
//!
//! Invariants
//! - A WQE completes when the sink has taken its frame.
//! - A frame with a static rate is followed by the gap that the rate demands, whatever the rate of
//!   the next one. The sum of the gaps is exact as long as the rate stays the same; a change drops
//!   a fraction of a nanosecond.
//!
//! Not here: the effect of a local error (SQE, [`crate::qp`]).

use core::time::Duration;

use uroce_wire::Qpn;

use crate::attr::Attributes;
use crate::context::{Context, Step};
use crate::cqe::WcStatus;
use crate::env::{Env, FrameError, Framing, OutboundFrame, Output};
use crate::queue::QpCaps;
use crate::rate::StaticRate;
use crate::send_queue::SendQueue;
use crate::time::Instant;
use crate::wqe::SendOp;

/// Longest delay of its lcore's turns that a QP makes up for by sending without gaps.
const MOST_LATE: u64 = 1_000_000;

#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) sq: SendQueue,
    /// Earliest time at which the next frame may leave.
    next: Instant,
    /// Fraction of a nanosecond that the gaps at `rate` lack so far: `remainder / mbps`.
    remainder: u32,
    /// Rate of the last frame.
    rate: StaticRate,
    /// There has always been something to send, and leave to send it, since a frame last had to
    /// wait.
    is_busy: bool,
}

impl Requester {
    pub(crate) fn new(caps: &QpCaps) -> Requester {
        Requester {
            sq: SendQueue::new(caps),
            next: Instant::ZERO,
            remainder: 0,
            rate: StaticRate::MAX,
            is_busy: false,
        }
    }

    /// Starts the requester in RTS. Frames have no numbers, so there is no state to set.
    pub(crate) fn start(&mut self, _attr: &Attributes) {}

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.sq.clear();
        (self.next, self.is_busy) = (Instant::ZERO, false);
    }

    pub(crate) fn depth(&self) -> u32 {
        self.sq.len()
    }

    /// Returns whether no message is in progress: always, because a frame is sent as a whole.
    pub(crate) fn is_quiet(&self) -> bool {
        true
    }

    /// Time at which to try again after [`Step::Paced`].
    pub(crate) fn paced_until(&self) -> Instant {
        self.next
    }

    /// Sends the oldest WQE's frame.
    pub(crate) fn transmit(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let Some(wqe) = self.sq.front() else {
            self.is_busy = false;
            return Step::Idle;
        };
        //= check H4 — in SQD no new message starts
        if context.attr.state != crate::QpState::Rts {
            self.is_busy = false;
            return Step::Idle;
        }
        //= check W6 — the gap after a frame with a static rate
        if self.next > context.now {
            self.is_busy = true;
            return Step::Paced;
        }
        let (framing, rate) = match wqe.op {
            SendOp::Frame { rate, checksums } => (Framing::Whole { checksums }, rate),
            SendOp::Ipv6 { to, rate } => (Framing::Ipv6 { to }, rate),
            _ => unreachable!("posts are of the service"),
        };
        let payload = self.sq.payload(self.sq.head(), wqe, 0, wqe.len);
        let len = match env.transmit_frame(&OutboundFrame { framing, by: context.by, payload }) {
            Ok(len) => len,
            Err(FrameError::Full) => return Step::Blocked,
            Err(FrameError::Memory(_)) => return Step::Failed(WcStatus::LocProtErr),
            Err(FrameError::Length) => return Step::Failed(WcStatus::LocLenErr),
            Err(FrameError::NoLink) => return Step::Failed(WcStatus::LocQpOpErr),
        };
        self.charge(rate, len, context.now);
        self.complete_front(context.by.qpn, WcStatus::Success, env);
        Step::Sent(len)
    }

    /// Reserves the time that a frame of `len` bytes takes at its rate.
    fn charge(&mut self, rate: StaticRate, len: u32, now: Instant) {
        if rate != self.rate {
            (self.rate, self.remainder) = (rate, 0);
        }
        let Some(mbps) = rate.mbps() else { return };
        let earliest = match self.is_busy {
            true => Instant::from_nanos(now.as_nanos().saturating_sub(MOST_LATE)),
            false => now,
        };
        // Thousandths of a bit, divided by Mbit/s, are nanoseconds.
        let due = u64::from(len) * 8 * 1000 + u64::from(self.remainder);
        self.remainder = (due % u64::from(mbps)) as u32;
        let gap = Duration::from_nanos(due / u64::from(mbps));
        self.next = self.next.max(earliest) + gap;
    }

    /// Completes the oldest WQE with `status`.
    pub(crate) fn complete_front(&mut self, qpn: Qpn, status: WcStatus, out: &mut impl Output) {
        self.sq.complete_front(qpn, status, out);
    }

    /// Completes all WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.sq.flush(qpn, out);
    }
}
