//! The tap: the independent checker ([`uroce_wirecheck`]) at both ends of every link.
//!
//! Invariants
//! - A frame is checked when it is sent, before a fault can change it.
//! - It is a flaw if a receiver takes a frame that the checker would not read, or refuses one that
//!   the checker has read.

use uroce_wirecheck::{Checker, Flaw, Peer, Rule, Seen, Service, Tally, TimedRoute, Watched, read};

use crate::world::World;
use crate::world::names::At;
use crate::world::node::Slot;
use uroce_transport::{DropReason, Instant, Qp, QpState, QpType, ack_timeout};

/// A frame in flight.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    pub(crate) frame: Vec<u8>,
    /// Rail that it was sent on.
    pub(crate) rail: usize,
    /// QP that sent it, if any.
    pub(crate) from: Option<At>,
    /// Result of the checker, if the frame was checked.
    pub(crate) seen: Option<Seen>,
    /// Number of its connection; `usize::MAX` if it belongs to none.
    pub(crate) connection: usize,
    pub(crate) is_damaged: bool,
}

impl Flight {
    /// A frame that no QP sent.
    pub(crate) fn unknown(frame: Vec<u8>, rail: usize) -> Flight {
        Flight { frame, rail, connection: usize::MAX, ..Flight::default() }
    }
}

/// The checker, and the first flaw found.
#[derive(Debug)]
pub(crate) struct Tap {
    pub(crate) checker: Checker,
    /// Handles of the watched QPs, by node and slot.
    watched: Vec<Vec<Option<Watched>>>,
    found: Option<String>,
}

impl Tap {
    fn watched(&self, at: At) -> Option<Watched> {
        self.watched.get(usize::from(at.node))?.get(usize::from(at.qp)).copied().flatten()
    }

    fn complain(&mut self, what: impl FnOnce() -> String) {
        self.found.get_or_insert_with(what);
    }
}

impl World {
    /// Starts the independent checker for every QP that enters RTS from now on.
    pub fn start_tap(&mut self) {
        let checker = Checker::new();
        self.tap = Some(Tap { checker, watched: Vec::new(), found: None });
    }

    /// Stops the checker: for tests with crafted packets that correct QPs react to.
    pub fn stop_tap(&mut self) {
        self.tap = None;
    }

    /// Checks that a QP that took a packet was in a state that serves requests.
    pub(crate) fn tap_taken(&mut self, at: At, state: QpState, is_taken: bool) {
        if let Some(tap) = self.tap.as_mut().filter(|_| is_taken && !state.serves_requests()) {
            tap.complain(|| format!("{at:?} took a packet in {state}"));
        }
    }

    /// Takes the first flaw that was found, if there is one.
    pub fn take_flaw(&mut self) -> Option<String> {
        self.tap.as_mut()?.found.take()
    }

    /// Time of a requester's last progress, as far as the tap can see.
    pub(crate) fn last_progress(&self, at: At) -> Instant {
        let tap = self.tap.as_ref();
        let progress = tap.and_then(|tap| Some(tap.checker.last_progress_ns(tap.watched(at)?)));
        Instant::from_nanos(progress.unwrap_or_default())
    }

    /// Counts of what a QP has sent in its current use, as far as the tap can see.
    pub(crate) fn tally(&self, at: At) -> Tally {
        let tap = self.tap.as_ref();
        tap.and_then(|tap| Some(tap.checker.tally(tap.watched(at)?))).unwrap_or_default()
    }

    /// Keeps a flaw, if it is the first one.
    pub(crate) fn tap_complain(&mut self, what: impl FnOnce() -> String) {
        if let Some(tap) = &mut self.tap {
            tap.complain(what);
        }
    }

    /// Passes an action of a watched QP's owner to the checker.
    fn tell_checker(&mut self, at: At, tell: impl FnOnce(&mut Checker, Watched)) {
        if let Some(tap) = &mut self.tap
            && let Some(watched) = tap.watched(at)
        {
            tell(&mut tap.checker, watched);
        }
    }

    /// Notes that a QP was re-armed.
    pub(crate) fn tap_rearmed(&mut self, at: At, primary: TimedRoute, alternate: TimedRoute) {
        self.tell_checker(at, |checker, qp| checker.rearm(qp, primary, alternate));
    }

    /// Notes that a QP has a new alternate path.
    pub(crate) fn tap_loaded(&mut self, at: At, alternate: TimedRoute) {
        self.tell_checker(at, |checker, qp| checker.load_alternate(qp, alternate));
    }

    /// Notes that a QP has reported a migration: it may send unacknowledged packets again.
    pub(crate) fn tap_migrated(&mut self, at: At) {
        self.tell_checker(at, Checker::migrated);
    }

    /// Notes that a QP was moved to SQD, or out of it.
    pub(crate) fn tap_held(&mut self, at: At, is_held: bool) {
        self.tell_checker(at, |checker, qp| checker.hold(qp, is_held));
    }

    /// Notes that a QP's RNR NAKs carry another code from now on.
    pub(crate) fn tap_rnr_timer(&mut self, at: At, code: u8) {
        self.tell_checker(at, |checker, qp| checker.set_rnr_timer(qp, code));
    }

    /// Notes that a QP has another idle time from now on.
    pub(crate) fn tap_keepalive(&mut self, at: At, idle_ms: u32) {
        self.tell_checker(at, |checker, qp| checker.set_keepalive(qp, keepalive_ns(idle_ms)));
    }

    /// Returns whether everything that a QP has sent is acknowledged, and no message is in
    /// progress.
    pub(crate) fn tap_is_quiet(&self, at: At) -> bool {
        let tap = self.tap.as_ref();
        tap.and_then(|tap| Some(tap.checker.is_quiet(tap.watched(at)?))).unwrap_or(true)
    }

    /// Sets the time by which timeouts may be late.
    pub(crate) fn set_tap_slack(&mut self, slack: core::time::Duration) {
        if let Some(tap) = &mut self.tap {
            tap.checker.set_slack_ns(slack.as_nanos() as u64);
        }
    }

    /// Starts checking a QP that has entered RTS.
    pub(crate) fn watch(&mut self, at: At) {
        if self.qp(at).qp_type() == QpType::Rd {
            return;
        }
        let Some(tap) = &mut self.tap else { return };
        let node = &self.nodes[usize::from(at.node)];
        let slot = &node.slots[usize::from(at.qp)];
        let Slot { rail, init, .. } = slot;
        let cnp_gap_ns = u64::from(init.notification.min_time_between_cnps_us) * 1000;
        let peer = peer(slot.qp(), node.rail(*rail).gid.0, cnp_gap_ns);
        match tap.watched(at) {
            Some(watched) => tap.checker.begin_again(watched, peer),
            None => {
                let (node, qp) = (usize::from(at.node), usize::from(at.qp));
                if tap.watched.len() <= node {
                    tap.watched.resize(node + 1, Vec::new());
                }
                let row = &mut tap.watched[node];
                if row.len() <= qp {
                    row.resize(qp + 1, None);
                }
                row[qp] = Some(tap.checker.watch(peer));
            }
        }
    }

    /// Checks a frame that a QP sends.
    pub(crate) fn tap_sent(&mut self, from: At, frame: &[u8]) -> Option<Seen> {
        let now = nanos(self.now());
        let tap = self.tap.as_mut()?;
        let watched = tap.watched(from)?;
        match tap.checker.sent(watched, now, frame) {
            Ok(seen) => Some(seen),
            Err(flaw) => {
                tap.complain(|| format!("a packet of {from:?}: {flaw}"));
                None
            }
        }
    }

    /// Checks that a frame was rightly parsed, or rightly dropped, on arrival.
    pub(crate) fn tap_opened(&mut self, flight: &Flight, dropped: Option<DropReason>) {
        let Some(tap) = self.tap.as_mut().filter(|_| flight.seen.is_some()) else { return };
        match dropped {
            Some(reason) if !flight.is_damaged => {
                tap.complain(|| format!("an undamaged packet was dropped: {}", reason.name()));
            }
            None if flight.is_damaged => match read(&flight.frame) {
                // Damage of FECN and BECN, and of the reserved bits beside them, is not covered by
                // the ICRC. A CNP has BECN set; its other fields are covered.
                Ok(_) | Err(Flaw { rule: Rule::ReservedBits | Rule::CnpHeader, .. }) => {}
                Err(flaw) => tap.complain(|| format!("a damaged packet was taken: {flaw}")),
            },
            _ => {}
        }
    }

    /// Notes that a frame with the mark of a congested switch is given to a QP.
    pub(crate) fn tap_marked(&mut self, at: At) {
        self.tell_checker(at, Checker::marked);
    }

    /// Passes a frame that is given to a QP to the checker.
    pub(crate) fn tap_arrived(&mut self, at: At, flight: &Flight) {
        let now = nanos(self.now());
        let (Some(tap), Some(seen)) = (&mut self.tap, &flight.seen) else { return };
        if let Some(watched) = tap.watched(at) {
            tap.checker.arrived(watched, now, seen, &flight.frame);
        }
    }

    /// Tells the checker about a refusal, which the wire does not show yet, after an input to a QP.
    pub(crate) fn tap_settled(&mut self, at: At) {
        let Some(tap) = &mut self.tap else { return };
        let slot = &mut self.nodes[usize::from(at.node)].slots[usize::from(at.qp)];
        if core::mem::take(&mut slot.has_refused)
            && let Some(watched) = tap.watched(at)
        {
            tap.checker.refused(watched);
        }
    }

    /// Checks a QP's state after it has sent all it had to send.
    pub(crate) fn tap_polled(&mut self, at: At) {
        let slot = self.slot_mut(at);
        let state = slot.qp().state();
        let before = core::mem::replace(&mut slot.state_known, state);
        let Some(tap) = &mut self.tap else { return };
        let may_fail_alone = matches!(before, QpState::Rtr | QpState::Rts | QpState::Sqd);
        let is_legal = match state {
            QpState::Err => may_fail_alone || before == QpState::Sqe,
            QpState::Sqe => may_fail_alone,
            _ => false,
        };
        if state != before && !is_legal {
            tap.complain(|| format!("{at:?} went from {before} to {state} by itself"));
        }
        if state == QpState::Err
            && let Some(watched) = tap.watched(at)
        {
            tap.checker.end(watched);
        }
    }
}

fn nanos(now: Instant) -> u64 {
    now.as_nanos()
}

/// The idle time of a keepalive in nanoseconds; `None` if it is off.
fn keepalive_ns(idle_ms: u32) -> Option<u64> {
    (idle_ms > 0).then_some(u64::from(idle_ms) * 1_000_000)
}

/// Terms of a QP for the checker, as plain numbers.
fn peer(qp: &Qp, addr: [u8; 16], cnp_gap_ns: u64) -> Peer {
    let attr = qp.attr();
    Peer {
        service: match qp.qp_type() {
            QpType::Rc => Service::Reliable,
            QpType::Uc => Service::Unreliable,
            QpType::Ud | QpType::Gsi => Service::Datagram,
            // It sends no packets.
            QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => Service::Datagram,
            QpType::XrcSend => Service::Initiator,
            QpType::XrcRecv => Service::Target,
            QpType::Eec => Service::Context,
            QpType::Rd => unreachable!("an RD QP sends nothing by itself"),
        },
        qpn: qp.qpn().value(),
        addr,
        dest_qpn: attr.dest_qpn.value(),
        dest_addr: attr.path.encap.dst.0,
        pkey: attr.pkey.0,
        mtu: attr.path_mtu.bytes(),
        first_psn: attr.sq_psn.value(),
        expected_psn: attr.rq_psn.value(),
        max_reads: u32::from(attr.max_rd_atomic),
        rnr_timer: attr.min_rnr_timer,
        timeout_ns: ack_timeout(attr.timeout).map(|timeout| timeout.as_nanos() as u64),
        cnp_gap_ns,
        selective_repeat: attr.selective_repeat,
        keepalive_ns: keepalive_ns(attr.keepalive_ms),
    }
}
