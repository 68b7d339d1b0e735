//! The round trip of a connection, and the window and the probe time that follow from it.
//!
//! One packet with AckReq is timed at once, and none of which the peer may have two copies, because
//! the answer could belong to either. The clock is that of the turns.
//!
//! The window counts after a loss only. Go-back-N sends again everything that was in flight, so a
//! window larger than the path holds is wasted with each loss; without losses it is harmless.
//!
//! Invariants
//! - The window is [`MAX_IN_FLIGHT`] until the first loss, and again after [`CALM`] packets
//!   without one.

use core::time::Duration;

use uroce_wire::Psn;

use crate::time::Instant;

/// Number of request packets that may be unacknowledged at once. Keeps the queues of a slow
/// receiver from overflowing.
pub(super) const MAX_IN_FLIGHT: u16 = 256;

/// Smallest window, and the window from the first loss on: what a rack's path holds at 100 Gb/s with
/// packets of 4096 bytes. The bursts of a busy peer look like a queue and must not make it smaller.
const MIN_IN_FLIGHT: u16 = 32;

/// Below this number of packets in queues the window grows, if it is used.
const QUEUED_LEAST: u64 = 6;

/// Above this number of packets in queues the window shrinks.
const QUEUED_MOST: u64 = 10;

/// Window while the path drains, so that a round trip without queues can be measured.
const DRAINED: u32 = 4;

/// An acknowledgement is requested at least once in this many packets.
const MAX_ASK_EVERY: u16 = 32;

/// Number of packets acknowledged without a loss after which the window is large again.
const CALM: i32 = 1 << 16;

/// Age at which the least round trip is measured anew: the path may have changed.
const LEAST_KEPT: u32 = 2_000_000_000;

/// Number of round trips without an answer after which a probe is sent.
const QUIET_TRIPS: u32 = 4;

/// Shortest time without an answer after which a probe is sent: longer than the turns of a busy
/// peer.
const QUIET_MIN: Duration = Duration::from_micros(50);

/// A time as the low 32 bits of its nanoseconds: compared over at most four seconds.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stamp(u32);

impl Stamp {
    pub(super) fn of(now: Instant) -> Stamp {
        Stamp(now.as_nanos() as u32)
    }

    /// Nanoseconds from this time to `now`, modulo four seconds.
    pub(super) fn age(self, now: Instant) -> u32 {
        (now.as_nanos() as u32).wrapping_sub(self.0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// Mean of the latest samples in nanoseconds, rising faster than falling; 0 before the first.
    mean: u32,
    /// Least of the samples that are not too old, in nanoseconds; 0 before the first.
    least: u32,
    /// Time of that sample.
    least_at: Stamp,
    /// PSN of the packet that is timed, if `is_timing`.
    timed: Psn,
    timed_at: Stamp,
    /// First PSN of which the peer has no other copy, if `is_lossy`.
    fresh_from: Psn,
    /// Packets in flight when it was sent, with itself.
    timed_flight: u16,
    window: u16,
    is_timing: bool,
    /// The path is to be emptied to measure the least round trip.
    is_draining: bool,
    /// A packet was lost within the latest [`CALM`] packets.
    is_lossy: bool,
    /// Probes sent since the last answer.
    probes: u8,
}

const _: () = assert!(size_of::<RoundTrip>() == 32);

impl Default for RoundTrip {
    fn default() -> RoundTrip {
        RoundTrip {
            mean: 0,
            least: 0,
            least_at: Stamp::default(),
            timed: Psn::default(),
            timed_at: Stamp::default(),
            fresh_from: Psn::default(),
            timed_flight: 0,
            window: MAX_IN_FLIGHT,
            is_timing: false,
            is_draining: false,
            is_lossy: false,
            probes: 0,
        }
    }
}

impl RoundTrip {
    /// Number of packets that may be unacknowledged before `psn` is sent.
    #[inline]
    pub(super) fn window(&self, psn: Psn) -> u32 {
        if self.wants_sample(psn) { DRAINED } else { u32::from(self.window) }
    }

    /// Number of packets of which at least one must request an acknowledgement: a quarter of a window, so
    /// that the loss of one acknowledgement does not stop the QP.
    #[inline]
    pub(super) fn ask_every(&self) -> u8 {
        (self.window / 4).min(MAX_ASK_EVERY) as u8
    }

    /// Mean round trip in nanoseconds; 0 before the first sample.
    pub(super) fn mean(&self) -> u32 {
        self.mean
    }

    /// Returns whether the packet with `psn` should request an acknowledgement only to be timed,
    /// when the path is empty.
    #[inline]
    pub(super) fn wants_sample(&self, psn: Psn) -> bool {
        self.is_draining && self.is_fresh(psn)
    }

    /// Returns whether the peer can have no other copy of the packet with `psn`.
    #[inline]
    fn is_fresh(&self, psn: Psn) -> bool {
        !self.is_lossy || !psn.is_before(self.fresh_from)
    }

    /// Called when a packet that requests an acknowledgement has been sent, with `in_flight` packets
    /// before it unacknowledged.
    #[inline]
    pub(super) fn asked(&mut self, psn: Psn, in_flight: u32, now: Instant) {
        let is_empty = !self.is_draining || in_flight < DRAINED;
        if is_empty && !self.is_timing && self.is_fresh(psn) {
            self.is_timing = true;
            (self.timed, self.timed_at) = (psn, Stamp::of(now));
            self.timed_flight = (in_flight + 1).min(MAX_IN_FLIGHT.into()) as u16;
        }
    }

    /// Called when the peer has acknowledged everything before `limit`. Returns whether there is a
    /// new sample.
    #[inline]
    pub(super) fn acknowledged(&mut self, limit: Psn, now: Instant) -> bool {
        let is_sampled = self.is_timing && self.timed.is_before(limit);
        if is_sampled {
            self.sample(now);
        }
        if self.is_lossy && limit.distance_from(self.fresh_from) > CALM {
            (self.is_lossy, self.is_draining) = (false, false);
            self.window = MAX_IN_FLIGHT;
        }
        is_sampled
    }

    /// Takes the answer to the timed packet as a sample.
    fn sample(&mut self, now: Instant) {
        self.is_timing = false;
        let sample = self.timed_at.age(now).max(1);
        self.mean = match self.mean {
            0 => sample,
            // A queue that grows must not look like silence.
            mean if sample > mean => mean + (sample - mean) / 2,
            mean => mean - (mean - sample) / 8,
        };
        if self.least == 0 || sample <= self.least || self.is_draining {
            (self.least, self.least_at) = (sample, Stamp::of(now));
        }
        if !self.is_lossy || self.is_draining {
            self.is_draining = false;
            return;
        }
        self.is_draining = self.least_at.age(now) > LEAST_KEPT;
        let window = u64::from(self.window);
        // Packets that only wait in queues, of a window that is full.
        let queued = window * u64::from(sample - self.least.min(sample)) / u64::from(sample);
        if queued > QUEUED_MOST {
            self.window = (self.window - self.window / 8).max(MIN_IN_FLIGHT);
        } else if queued < QUEUED_LEAST && u64::from(self.timed_flight) * 2 > window {
            self.window = (self.window + self.window / 8).min(MAX_IN_FLIGHT);
        }
    }

    /// Called when packets are sent again. The peer has no
    /// copy of those from `fresh_from` on.
    pub(super) fn lost(&mut self, fresh_from: Psn) {
        if !self.is_lossy {
            self.is_lossy = true;
            // Without a sample there is no probe, and a loss in the small window would wait long.
            self.is_draining = self.mean > 0;
            self.window = MIN_IN_FLIGHT;
        }
        self.fresh_from = fresh_from;
        self.is_timing = false;
    }

    /// Called when the answer to the timed packet may come late for another reason than the path.
    pub(super) fn forget_timed(&mut self) {
        self.is_timing = false;
    }

    /// Called when the peer has answered. Returns whether probes had been sent.
    #[inline]
    pub(super) fn answered(&mut self) -> bool {
        core::mem::take(&mut self.probes) > 0
    }

    /// Called when a probe is due.
    pub(super) fn probed(&mut self) {
        self.probes = self.probes.saturating_add(1);
        self.is_timing = false;
    }

    /// Time without an answer after which the next probe is due: doubled with each probe. `None`
    /// before the first sample.
    pub(super) fn quiet(&self) -> Option<Duration> {
        if self.mean == 0 {
            return None;
        }
        let trips = Duration::from_nanos(u64::from(self.mean) * u64::from(QUIET_TRIPS));
        Some(trips.max(QUIET_MIN) * (1 << self.probes.min(16)))
    }
}
