//! Congestion control: a QP slows down while the network reports that a queue on its path is long.
//!
//! Read first: Annex A17 (ECN and CNP); Zhu et al., "Congestion Control for Large-Scale RDMA
//! Deployments" (SIGCOMM 2015) for DCQCN; Kumar et al., "Swift" (SIGCOMM 2020) for delay.
//!
//! ```text
//!   reaction point ──── data, ECT(0) ───> switch ── data, CE ──> notification point
//!   (the sender) <─────────────────────── CNP ────────────────── (the receiver)
//!        │
//!        └─ rate ─> pacer of the QP (`qp/pace.rs`)
//! ```
//!
//! The reaction point of a QP is chosen at its creation ([`Congestion`]). The notification point
//! ([`Notification`]) is always on; it is in `qp/notify.rs`.
//!
//! Invariants
//! - A QP has no rate, no wait and no timer until its network has reported something.
//! - Time passes lazily: the rate is brought up to date when the QP sends. A QP that is slowed down
//!   and has nothing to send needs no timer, and finds the rate that it would have by then.
//! - The rate is never below the floor, whatever the peer or a stranger sends.

mod dcqcn;
mod delay;

use core::time::Duration;

use uroce_wire::Psn;

pub use dcqcn::DcqcnParams;
pub use delay::DelayParams;

use crate::time::Instant;
use dcqcn::Dcqcn;
use delay::Delay;

/// Rate at which a QP sends before it is slowed down, in kbit/s, if neither the parameters nor its
/// path name one: 100 Gb/s.
const LINE_KBPS: u64 = 100_000_000;

/// Time after its last frame for which a QP accepts a CNP. Longer than any round trip and than the
/// gap between two frames at a low rate.
const RECENT: Duration = Duration::from_millis(100);

/// Algorithm of a QP's reaction point, with its parameters. Chosen at creation, for RC and UC; a
/// datagram QP has none, because each of its datagrams may take another path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    /// CNPs are counted and ignored.
    #[default]
    None,
    /// DCQCN: the rate follows CNPs. Packets are sent with ECT(0).
    Dcqcn(DcqcnParams),
    /// The rate follows measured round trips, in the form of Swift. For peers that acknowledge
    /// promptly, such as our own; needs nothing of the switches. RC only.
    Delay(DelayParams),
}

/// Notification point of a QP: the CNPs that it sends for received packets with a CE mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notification {
    /// Least time between two CNPs of the QP, in microseconds; default 4, 0 for one CNP per marked
    /// packet. The scope is one QP: each connected QP and each UD QP counts for itself.
    pub min_time_between_cnps_us: u16,
    /// DSCP of CNPs, 0 to 63; default 48, as mlx5's. A CNP is itself not ECN-capable.
    pub cnp_dscp: u8,
    /// Priority (PCP) of CNPs on paths with a VLAN tag, 0 to 7; default 6, as mlx5's.
    pub cnp_802p_prio: u8,
}

impl Default for Notification {
    fn default() -> Notification {
        Notification { min_time_between_cnps_us: 4, cnp_dscp: 48, cnp_802p_prio: 6 }
    }
}

/// What a reaction point is told, and the rate that it answers with. Rates are in kbit/s of whole
/// frames. `now` never goes back.
trait ReactionPoint {
    /// Starts anew, on a path that takes `line_kbps`: nothing is known about it.
    fn restart(&mut self, line_kbps: u64);

    /// Rate that the QP must keep to; `None` if it is not slowed down.
    fn rate_kbps(&self) -> Option<u64>;

    /// Time has passed.
    fn advance(&mut self, _now: Instant) {}

    /// A frame of `bytes` bytes was sent.
    fn sent(&mut self, _bytes: u32) {}

    /// A CNP has come.
    fn notified(&mut self, _now: Instant) {}

    /// A packet was acknowledged `sample` after it was sent.
    fn round_trip(&mut self, _sample: Duration, _now: Instant) {}

    /// A packet was lost.
    fn lost(&mut self, _now: Instant) {}
}

/// What a slow restart of DCQCN has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlowRestart {
    /// Nothing had slowed the QP down before.
    pub(crate) was_free: bool,
    /// The rate was cut; false soon after another cut.
    pub(crate) has_cut: bool,
}

#[derive(Debug)]
enum Algorithm {
    Dcqcn(Dcqcn),
    Delay(Delay),
}

/// Reaction point of a QP.
#[derive(Debug)]
pub(crate) struct Reaction {
    algorithm: Algorithm,
    /// Limit by the attributes, in kbit/s; 0 means none.
    static_kbps: u32,
    /// Time at which the QP last sent a frame.
    last_sent: Option<Instant>,
    /// The round trip being measured: the PSN after its packet, and the time of sending.
    measured: Option<(Psn, Instant)>,
    /// PSN of the packet to send next, as of the last input or frame. Kept for slow restarts only.
    next: Option<Psn>,
}

impl Reaction {
    /// Makes the reaction point that was chosen, if any was.
    pub(crate) fn new(congestion: &Congestion) -> Option<Box<Reaction>> {
        let algorithm = match congestion {
            Congestion::None => return None,
            Congestion::Dcqcn(params) => Algorithm::Dcqcn(Dcqcn::new(params)),
            Congestion::Delay(params) => Algorithm::Delay(Delay::new(params)),
        };
        let (last_sent, measured, next) = (None, None, None);
        let mut reaction = Reaction { algorithm, static_kbps: 0, last_sent, measured, next };
        reaction.restart(0);
        Some(Box::new(reaction))
    }

    /// Returns whether the algorithm needs packets to be ECN-capable.
    pub(crate) fn uses_ecn(&self) -> bool {
        matches!(self.algorithm, Algorithm::Dcqcn(_))
    }

    /// Returns whether the algorithm needs the round trips of packets.
    pub(crate) fn uses_round_trips(&self) -> bool {
        matches!(self.algorithm, Algorithm::Delay(_))
    }

    /// Returns whether losses make the algorithm restart slowly.
    pub(crate) fn restarts_slowly(&self) -> bool {
        matches!(&self.algorithm, Algorithm::Dcqcn(point) if point.restarts_slowly())
    }

    /// Starts anew, for a connection or a path that nothing is known about.
    pub(crate) fn restart(&mut self, static_kbps: u32) {
        self.static_kbps = static_kbps;
        (self.measured, self.next) = (None, None);
        let line = if static_kbps > 0 { u64::from(static_kbps) } else { LINE_KBPS };
        self.point_mut().restart(line);
    }

    /// Applies another limit by the attributes, in kbit/s; 0 means none.
    pub(crate) fn retune(&mut self, static_kbps: u32) {
        if static_kbps != self.static_kbps {
            self.restart(static_kbps);
        }
    }

    /// Returns whether the algorithm slows the QP down.
    pub(crate) fn is_slowing(&self) -> bool {
        self.point().rate_kbps().is_some()
    }

    /// Rate of the QP in kbit/s, the limit by the attributes included; 0 means no limit.
    pub(crate) fn kbps(&self) -> u32 {
        let own = self.point().rate_kbps().map(|kbps| u32::try_from(kbps).unwrap_or(u32::MAX));
        let fixed = (self.static_kbps > 0).then_some(self.static_kbps);
        own.into_iter().chain(fixed).min().unwrap_or(0)
    }

    /// Brings the rate up to `now`.
    #[inline]
    pub(crate) fn advance(&mut self, now: Instant) {
        self.point_mut().advance(now);
    }

    /// A frame of `bytes` bytes was sent.
    #[inline]
    pub(crate) fn sent(&mut self, bytes: u32, now: Instant) {
        self.last_sent = Some(now);
        self.point_mut().sent(bytes);
    }

    /// Handles a CNP from the peer. Returns false, and does nothing, if the algorithm follows no
    /// CNPs or if the QP has sent nothing that the CNP could be about.
    pub(crate) fn notified(&mut self, now: Instant) -> bool {
        let is_recent = self.last_sent.is_some_and(|sent| now.since(sent) <= RECENT);
        if !self.uses_ecn() || !is_recent {
            return false;
        }
        self.advance(now);
        self.point_mut().notified(now);
        true
    }

    /// A packet that requests an acknowledgement was sent; `next` is the PSN after it. Its round
    /// trip is measured unless another packet's is.
    pub(crate) fn measure(&mut self, next: Psn, now: Instant) {
        self.measured.get_or_insert((next, now));
    }

    /// The QP has gone back and sends the packet before `next` again: what is acknowledged next may
    /// be either copy, so nothing is measured.
    pub(crate) fn repeats(&mut self, next: Psn) {
        self.measured = self.measured.filter(|(end, _)| !next.is_before(*end));
    }

    /// An acknowledgement of all packets before `unacked` has come, or a report that the packet
    /// `unacked` is missing.
    pub(crate) fn acknowledged(&mut self, unacked: Psn, is_missing: bool, now: Instant) {
        if is_missing {
            self.measured = None;
            return self.point_mut().lost(now);
        }
        if let Some((_, sent_at)) = self.measured.filter(|(end, _)| !unacked.is_before(*end)) {
            self.measured = None;
            self.point_mut().round_trip(now.since(sent_at), now);
        }
    }

    /// The QP sends the packet `next` next. Returns whether it has gone back since the last call.
    pub(crate) fn goes_back(&mut self, next: Psn) -> bool {
        self.next.replace(next).is_some_and(|before| next.is_before(before))
    }

    /// The QP sends packets again because they were lost. Returns what a slow restart has done;
    /// `None` if there was none.
    pub(crate) fn restart_slowly(&mut self, now: Instant) -> Option<SlowRestart> {
        self.advance(now);
        match &mut self.algorithm {
            Algorithm::Dcqcn(point) if point.restarts_slowly() => Some(point.restart_slowly(now)),
            Algorithm::Dcqcn(_) | Algorithm::Delay(_) => None,
        }
    }

    fn point(&self) -> &dyn ReactionPoint {
        match &self.algorithm {
            Algorithm::Dcqcn(point) => point,
            Algorithm::Delay(point) => point,
        }
    }

    fn point_mut(&mut self) -> &mut dyn ReactionPoint {
        match &mut self.algorithm {
            Algorithm::Dcqcn(point) => point,
            Algorithm::Delay(point) => point,
        }
    }
}
