//! The round trip of a connection, and the window and the probe time that follow from it.
//!
//! One packet with AckReq is timed at once, and none of which the peer may have two copies, because
//! the answer could belong to either. The clock is that of the turns.
//!
//! The window shrinks after a loss only. Go-back-N sends again everything that was in flight, so a
//! large window is wasted with each loss, and a small one may leave the path empty. What the path
//! holds is not known: on a long one the packets are on the wire, between busy lcores they wait for
//! turns. So the window is moved to and fro and goes on to where the goodput grows, computed from
//! the window, the round trip and the packets from loss to loss.
//!
//! Invariants
//! - The window is [`MAX_IN_FLIGHT`] until the first loss, and again after [`CALM`] packets
//!   without one.

use core::time::Duration;

use bitflags::bitflags;
use uroce_wire::Psn;

use super::round_trips::RoundTrips;
use crate::env::Output;
use crate::time::{Instant, Stamp};

/// Number of request packets that may be unacknowledged at once. Keeps the queues of a slow
/// receiver from overflowing.
pub(super) const MAX_IN_FLIGHT: u16 = 256;

/// Smallest window: four requests for an acknowledgement fit in it.
const MIN_IN_FLIGHT: u16 = 16;

/// Number of packets by which a window may lack being full.
const FULL_WITHIN: u32 = 32;

/// Above this size the window moves in larger steps.
const LARGE: u16 = 96;

/// Samples of the round trip that count for a change of the window.
const TRIPS_A_STEP: i8 = 6;

/// Samples for which the window stays where it was best.
const TRIPS_AT_BEST: u16 = 120;

/// Share of the cost of a packet, as one in so many, that is not the noise of the samples.
const CLEARLY: u64 = 128;

/// An acknowledgement is requested at least once in this many packets.
const MAX_ASK_EVERY: u16 = 32;

/// Number of packets acknowledged without a loss after which the window is large again.
const CALM: i32 = 1 << 16;

/// Number of packets with AckReq that are not timed after one that is, while there are no losses.
const UNTIMED: u8 = 15;

/// Number of round trips without an answer after which a probe is sent.
const QUIET_TRIPS: u32 = 4;

/// Shortest time without an answer after which a probe is sent: longer than the turns of a busy
/// peer.
const QUIET_MIN: Duration = Duration::from_micros(50);

/// Number of probes in vain after which the ACK timer alone is left.
const MAX_PROBES: u8 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// Mean of the latest samples in nanoseconds, rising faster than falling; 0 before the first.
    mean: u32,
    /// PSN of the packet that is timed, if one is timed.
    timed: Psn,
    timed_at: Stamp,
    /// First PSN of which the peer has no other copy, after a loss.
    fresh_from: Psn,
    /// Time of a packet in the samples that count for the next change of the window: its sum, in
    /// sixteenths of a nanosecond.
    pace: u32,
    /// `pace` with the best window.
    best_pace: u32,
    /// Packets in flight when the timed packet was sent, with itself.
    flight: u16,
    /// The best window so far.
    best: u16,
    /// Mean number of packets from one loss to the next.
    spacing: u16,
    window: u16,
    /// Samples that count for the next change of the window; below 0 those yet to be left out.
    trips: i8,
    flags: Flags,
    /// Probes sent since the last answer.
    probes: u8,
}

const _: () = assert!(size_of::<RoundTrip>() == 36);

bitflags! {
    #[derive(Clone, Copy, Default, Debug)]
    struct Flags: u8 {
        /// A packet is timed.
        const TIMING = 1;
        /// At least half of the window was used when it was sent.
        const USED = 1 << 1;
        /// The whole window was used, but for [`FULL_WITHIN`] packets.
        const FULL = 1 << 4;
        /// The window grows; otherwise it shrinks.
        const GROWING = 1 << 2;
        /// A packet was lost within the latest [`CALM`] packets.
        const LOSSY = 1 << 3;
    }
}

impl Default for RoundTrip {
    fn default() -> RoundTrip {
        RoundTrip {
            mean: 0,
            timed: Psn::default(),
            timed_at: Stamp::default(),
            fresh_from: Psn::default(),
            pace: 0,
            best_pace: 0,
            flight: 0,
            best: MAX_IN_FLIGHT,
            spacing: 0,
            window: MAX_IN_FLIGHT,
            trips: 0,
            flags: Flags::default(),
            probes: 0,
        }
    }
}

impl RoundTrip {
    /// Number of packets that may be unacknowledged.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.window.into()
    }

    /// Number of packets of which at least one must request an acknowledgement: a quarter of a
    /// window, so that the loss of one acknowledgement does not stop the QP.
    #[inline]
    pub(super) fn ask_every(&self) -> u8 {
        (self.window / 4).min(MAX_ASK_EVERY) as u8
    }

    /// Returns whether the peer can have no other copy of the packet with `psn`.
    #[inline]
    fn is_fresh(&self, psn: Psn) -> bool {
        !self.is_lossy() || !psn.is_before(self.fresh_from)
    }

    /// Called when a packet that requests an acknowledgement has been sent, with `in_flight`
    /// packets of `window` before it in flight. Returns the number of such packets for which no
    /// call is needed until the next.
    pub(super) fn asked(&mut self, psn: Psn, in_flight: u32, window: u32, now: Instant) -> u8 {
        if !self.flags.contains(Flags::TIMING) && self.is_fresh(psn) {
            self.flags |= Flags::TIMING;
            self.flags.set(Flags::USED, in_flight * 2 >= window);
            self.flags.set(Flags::FULL, in_flight + FULL_WITHIN >= window);
            (self.timed, self.timed_at) = (psn, Stamp::of(now));
            self.flight = (in_flight + 1).min(u16::MAX.into()) as u16;
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
    pub(super) fn acknowledged(
        &mut self,
        limit: Psn,
        now: Instant,
        trips: &mut RoundTrips,
        out: &mut impl Output,
    ) -> bool {
        let is_sampled = self.flags.contains(Flags::TIMING) && self.timed.is_before(limit);
        if is_sampled {
            self.sample(now, trips, out);
        }
        if self.is_lossy() && limit.distance_from(self.fresh_from) > CALM {
            self.flags -= Flags::LOSSY;
            (self.window, self.best, self.trips) = (MAX_IN_FLIGHT, MAX_IN_FLIGHT, -1);
        }
        core::mem::take(&mut self.probes) > 0 || is_sampled
    }

    /// PSN of the packet that is timed, if one is timed.
    pub(super) fn timed(&self) -> Option<Psn> {
        self.flags.contains(Flags::TIMING).then_some(self.timed)
    }

    /// Time of a packet in the last sample, if the whole window was in flight, in sixteenths of a
    /// nanosecond; once for each sample. `None` while the window follows losses.
    pub(super) fn take_pace(&mut self) -> Option<u32> {
        let pace = if self.is_lossy() { 0 } else { core::mem::take(&mut self.pace) };
        (pace > 0).then_some(pace)
    }

    /// Takes the answer to the timed packet as a sample.
    pub(super) fn sample(&mut self, now: Instant, trips: &mut RoundTrips, out: &mut impl Output) {
        self.flags -= Flags::TIMING;
        let sample = self.timed_at.age(now).max(1);
        trips.record(sample);
        out.round_trip(sample);
        self.mean = match self.mean {
            0 => sample,
            // A queue that grows must not look like silence.
            mean if sample > mean => mean + (sample - mean) / 2,
            mean => mean - (mean - sample) / 8,
        };
        let pace = sample.saturating_mul(16) / u32::from(self.flight.max(1));
        if !self.is_lossy() {
            self.pace = if self.flags.contains(Flags::FULL) { pace } else { 0 };
        } else if self.flags.contains(Flags::USED) {
            // The first packet was sent with the former window.
            self.trips += 1;
            self.pace = if self.trips > 0 { self.pace.saturating_add(pace) } else { 0 };
            if self.trips == TRIPS_A_STEP {
                self.move_window();
            }
        }
    }

    /// Moves the window on if its last change was good for the goodput, and back to the best one
    /// if not.
    //= check A24 — a window that a loss does not cost more than it carries
    fn move_window(&mut self) {
        // What a packet costs: its time, and the time of the window that a loss makes worthless.
        let cost = |pace: u32, window: u16| {
            u64::from(pace) * (u64::from(self.spacing) + u64::from(window))
        };
        let (now, best) = (cost(self.pace, self.window), cost(self.best_pace, self.best));
        let grows = self.flags.contains(Flags::GROWING);
        // A smaller window is as good unless it is clearly worse, a larger one only if it is
        // clearly better.
        let is_better = match grows {
            _ if self.window == self.best => true,
            true => now + now / CLEARLY < best,
            false => now < best + best / CLEARLY,
        };
        if is_better {
            (self.best, self.best_pace) = (self.window, self.pace);
        }
        let step = self.window / if self.window > LARGE { 4 } else { 8 };
        let next = match grows {
            _ if !is_better => self.best,
            true => (self.window + step).min(MAX_IN_FLIGHT),
            false => (self.window - step).max(MIN_IN_FLIGHT),
        };
        self.trips = -1;
        if !is_better || next == self.window {
            self.flags.toggle(Flags::GROWING);
            self.trips = -((self.spacing / 16).clamp(1, TRIPS_AT_BEST) as i8);
        }
        self.window = next;
    }

    /// Called when packets are sent again. The peer has no copy of those from `fresh_from` on.
    pub(super) fn lost(&mut self, fresh_from: Psn) {
        let first = (MAX_IN_FLIGHT * 8).into();
        let since = match self.is_lossy() {
            true => fresh_from.distance_from(self.fresh_from).clamp(1, u16::MAX.into()),
            false => first,
        };
        let before = if self.is_lossy() { i32::from(self.spacing) } else { first };
        self.spacing = (before + (since - before) / 4) as u16;
        if self.spacing < self.window {
            // More than one loss in a window: few samples would ever be complete.
            self.window = (self.window - self.window / 4).max(MIN_IN_FLIGHT);
            (self.best, self.trips) = (self.window, -1);
        }
        self.flags |= Flags::LOSSY;
        self.fresh_from = fresh_from;
        self.flags -= Flags::TIMING;
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
    /// before the first sample and after [`MAX_PROBES`] probes.
    pub(super) fn quiet(&self) -> Option<Duration> {
        if self.mean == 0 || self.probes > MAX_PROBES {
            return None;
        }
        let trips = Duration::from_nanos(u64::from(self.mean) * u64::from(QUIET_TRIPS));
        let quiet = trips.max(QUIET_MIN) / if seeded!(ProbeEarly) { 4 } else { 1 };
        Some(quiet * (1 << self.probes))
    }
}
