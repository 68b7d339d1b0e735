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

use bitflags::bitflags;
use uroce_wire::Psn;

use crate::time::{Instant, Stamp};

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

/// Number of packets with AckReq that are not timed after one that is, while there are no losses.
const UNTIMED: u8 = 15;

/// Age at which the least round trip is measured anew: the path may have changed.
const LEAST_KEPT: u32 = 2_000_000_000;

/// Number of round trips without an answer after which a probe is sent.
const QUIET_TRIPS: u32 = 4;

/// Shortest time without an answer after which a probe is sent: longer than the turns of a busy
/// peer.
const QUIET_MIN: Duration = Duration::from_micros(50);

#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// Mean of the latest samples in nanoseconds, rising faster than falling; 0 before the first.
    mean: u32,
    /// Least of the samples that are not too old, in nanoseconds; 0 before the first.
    least: u32,
    /// Time of that sample.
    least_at: Stamp,
    /// PSN of the packet that is timed, if one is timed.
    timed: Psn,
    timed_at: Stamp,
    /// First PSN of which the peer has no other copy, after a loss.
    fresh_from: Psn,
    /// Time at which the packet that a sequence NAK asked for was last sent again.
    resent_at: Stamp,
    window: u16,
    flags: Flags,
    /// Probes sent since the last answer.
    probes: u8,
}

const _: () = assert!(size_of::<RoundTrip>() == 32);

bitflags! {
    #[derive(Clone, Copy, Default, Debug)]
    struct Flags: u8 {
        /// A packet is timed.
        const TIMING = 1;
        /// At least half of the window was used when it was sent.
        const USED = 1 << 1;
        /// The path is to be emptied to measure the least round trip.
        const DRAINING = 1 << 2;
        /// A packet was lost within the latest [`CALM`] packets.
        const LOSSY = 1 << 3;
    }
}

impl Default for RoundTrip {
    fn default() -> RoundTrip {
        RoundTrip {
            mean: 0,
            least: 0,
            least_at: Stamp::default(),
            timed: Psn::default(),
            timed_at: Stamp::default(),
            fresh_from: Psn::default(),
            resent_at: Stamp::default(),
            window: MAX_IN_FLIGHT,
            flags: Flags::default(),
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

    /// Returns whether the packet with `psn` should request an acknowledgement only to be timed,
    /// when the path is empty.
    #[inline]
    pub(super) fn wants_sample(&self, psn: Psn) -> bool {
        self.flags.contains(Flags::DRAINING) && self.is_fresh(psn)
    }

    /// Returns whether the peer can have no other copy of the packet with `psn`.
    #[inline]
    fn is_fresh(&self, psn: Psn) -> bool {
        !self.is_lossy() || !psn.is_before(self.fresh_from)
    }

    /// Called when a packet that requests an acknowledgement has been sent, with `in_flight` packets
    /// before it unacknowledged.
    /// Returns the number of such packets that need not be told of until the next.
    pub(super) fn asked(&mut self, psn: Psn, in_flight: u32, now: Instant) -> u8 {
        let is_empty = !self.flags.contains(Flags::DRAINING) || in_flight < DRAINED;
        if is_empty && !self.flags.contains(Flags::TIMING) && self.is_fresh(psn) {
            self.flags |= Flags::TIMING;
            self.flags.set(Flags::USED, in_flight * 2 >= u32::from(self.window));
            (self.timed, self.timed_at) = (psn, Stamp::of(now));
        }
        if self.mean == 0 || self.is_lossy() { 0 } else { UNTIMED }
    }

    /// Returns whether a packet was lost not long ago.
    #[inline]
    pub(super) fn is_lossy(&self) -> bool {
        self.flags.contains(Flags::LOSSY)
    }

    /// Returns whether an answer is news: a packet is timed, was lost, or was sent as a probe.
    #[inline]
    pub(super) fn is_attentive(&self) -> bool {
        self.probes > 0 || self.flags.intersects(Flags::TIMING.union(Flags::LOSSY))
    }

    /// Called when the peer has acknowledged everything before `limit`. Returns whether the time of
    /// the next probe changes: there is a new sample, or probes had been sent.
    pub(super) fn acknowledged(&mut self, limit: Psn, now: Instant) -> bool {
        let is_sampled = self.flags.contains(Flags::TIMING) && self.timed.is_before(limit);
        if is_sampled {
            self.sample(now);
        }
        if self.is_lossy() && limit.distance_from(self.fresh_from) > CALM {
            self.flags -= Flags::LOSSY | Flags::DRAINING;
            self.window = MAX_IN_FLIGHT;
        }
        core::mem::take(&mut self.probes) > 0 || is_sampled
    }

    /// Takes the answer to the timed packet as a sample.
    fn sample(&mut self, now: Instant) {
        self.flags -= Flags::TIMING;
        let sample = self.timed_at.age(now).max(1);
        self.mean = match self.mean {
            0 => sample,
            // A queue that grows must not look like silence.
            mean if sample > mean => mean + (sample - mean) / 2,
            mean => mean - (mean - sample) / 8,
        };
        let was_draining = self.flags.contains(Flags::DRAINING);
        if self.least == 0 || sample <= self.least || was_draining {
            (self.least, self.least_at) = (sample, Stamp::of(now));
        }
        self.flags -= Flags::DRAINING;
        if !self.is_lossy() || was_draining {
            return;
        }
        self.flags.set(Flags::DRAINING, self.least_at.age(now) > LEAST_KEPT);
        let window = u64::from(self.window);
        // Packets that only wait in queues, of a window that is full.
        let queued = window * u64::from(sample - self.least.min(sample)) / u64::from(sample);
        if queued > QUEUED_MOST {
            self.window = (self.window - self.window / 8).max(MIN_IN_FLIGHT);
        } else if queued < QUEUED_LEAST && self.flags.contains(Flags::USED) {
            self.window = (self.window + self.window / 8).min(MAX_IN_FLIGHT);
        }
    }

    /// Called when packets are sent again. The peer has no
    /// copy of those from `fresh_from` on.
    pub(super) fn lost(&mut self, fresh_from: Psn) {
        if !self.is_lossy() {
            self.flags |= Flags::LOSSY;
            // Without a sample there is no probe, and a loss in the small window would wait long.
            self.flags.set(Flags::DRAINING, self.mean > 0);
            self.window = MIN_IN_FLIGHT;
        }
        self.fresh_from = fresh_from;
        self.flags -= Flags::TIMING;
    }

    /// Called when the packet that a sequence NAK asked for is about to be sent again.
    pub(super) fn resent(&mut self, now: Instant) {
        self.resent_at = Stamp::of(now);
    }

    /// Returns whether a mean round trip has passed since then, so that a further NAK means that
    /// the packet was lost again. False before the first sample.
    pub(super) fn is_resent_long_ago(&self, now: Instant) -> bool {
        self.mean > 0 && self.resent_at.age(now) > self.mean
    }

    /// Called when the answer to the timed packet may come late for another reason than the path.
    pub(super) fn forget_timed(&mut self) {
        self.flags -= Flags::TIMING;
    }

    /// Called when a probe is due.
    pub(super) fn probed(&mut self) {
        self.probes = self.probes.saturating_add(1);
        self.flags -= Flags::TIMING;
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
