//! The tap: the independent checker ([`uroce_wirecheck`]) at both ends of every link.
//!
//! What holds: a frame is judged as it leaves, before a fault can touch it; a receiver that takes
//! a frame which the checker would not read, or refuses one that it read, is in the wrong.

use uroce_wirecheck::{Checker, Flaw, Peer, Rule, Seen, Service, Tally, TimedRoute, Watched, read};

use super::node::{At, Slot};
use super::world::World;
use crate::{DropReason, Instant, Qp, QpState, QpType, ack_timeout};

/// A frame on its way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    pub(super) frame: Vec<u8>,
    /// The rail it takes.
    pub(super) rail: usize,
    /// The QP that sent it, if one did.
    pub(super) from: Option<At>,
    /// What the tap saw in it.
    pub(super) seen: Option<Seen>,
    /// The connection it belongs to, if it belongs to any.
    pub(super) connection: usize,
    pub(super) is_damaged: bool,
}

impl Flight {
    /// A frame of which nothing is known.
    pub(super) fn unknown(frame: Vec<u8>, rail: usize) -> Flight {
        Flight { frame, rail, connection: usize::MAX, ..Flight::default() }
    }
}

/// The checker, and what it has found first.
#[derive(Debug)]
pub(super) struct Tap {
    pub(super) checker: Checker,
    /// Of each node's slots.
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
    /// From now on every QP that comes to RTS is watched by the independent checker.
    pub fn start_tap(&mut self) {
        let checker = Checker::new();
        self.tap = Some(Tap { checker, watched: Vec::new(), found: None });
    }

    /// Nobody watches any more: for tests with packets made by hand that honest QPs react to.
    pub fn stop_tap(&mut self) {
        self.tap = None;
    }

    /// A QP in that state was given a packet.
    pub(super) fn tap_taken(&mut self, at: At, state: QpState, is_taken: bool) {
        if let Some(tap) = self.tap.as_mut().filter(|_| is_taken && !state.serves_requests()) {
            tap.complain(|| format!("{at:?} took a packet in {state}"));
        }
    }

    /// The first flaw that was found in a packet, if there is one.
    pub fn take_flaw(&mut self) -> Option<String> {
        self.tap.as_mut()?.found.take()
    }

    /// When a QP's requester has last come forward, as far as the tap can tell.
    pub(super) fn last_progress(&self, at: At) -> Instant {
        let tap = self.tap.as_ref();
        let progress = tap.and_then(|tap| Some(tap.checker.last_progress_ns(tap.watched(at)?)));
        Instant::from_nanos(progress.unwrap_or_default())
    }

    /// What a QP has sent in its present life, as far as the tap can tell.
    pub(super) fn tally(&self, at: At) -> Tally {
        let tap = self.tap.as_ref();
        tap.and_then(|tap| Some(tap.checker.tally(tap.watched(at)?))).unwrap_or_default()
    }

    /// Keeps what is wrong, if it is the first thing.
    pub(super) fn tap_complain(&mut self, what: impl FnOnce() -> String) {
        if let Some(tap) = &mut self.tap {
            tap.complain(what);
        }
    }

    /// What the owner of a watched QP has done, told to the checker.
    fn tell_checker(&mut self, at: At, tell: impl FnOnce(&mut Checker, Watched)) {
        if let Some(tap) = &mut self.tap
            && let Some(watched) = tap.watched(at)
        {
            tell(&mut tap.checker, watched);
        }
    }

    /// A QP has been re-armed.
    pub(super) fn tap_rearmed(&mut self, at: At, primary: TimedRoute, alternate: TimedRoute) {
        self.tell_checker(at, |checker, qp| checker.rearm(qp, primary, alternate));
    }

    /// A QP has another alternate path.
    pub(super) fn tap_loaded(&mut self, at: At, alternate: TimedRoute) {
        self.tell_checker(at, |checker, qp| checker.load_alternate(qp, alternate));
    }

    /// A QP has said that it has migrated: what is unacknowledged may go out again.
    pub(super) fn tap_migrated(&mut self, at: At) {
        self.tell_checker(at, Checker::migrated);
    }

    /// A QP's send queue is drained, or no more.
    pub(super) fn tap_held(&mut self, at: At, is_held: bool) {
        self.tell_checker(at, |checker, qp| checker.hold(qp, is_held));
    }

    /// A QP's RNR NAKs carry another code.
    pub(super) fn tap_rnr_timer(&mut self, at: At, code: u8) {
        self.tell_checker(at, |checker, qp| checker.set_rnr_timer(qp, code));
    }

    /// Is everything acknowledged that a QP has sent, and no message in the middle?
    pub(super) fn tap_is_quiet(&self, at: At) -> bool {
        let tap = self.tap.as_ref();
        tap.and_then(|tap| Some(tap.checker.is_quiet(tap.watched(at)?))).unwrap_or(true)
    }

    /// Timeouts may be late by this much.
    pub(super) fn set_tap_slack(&mut self, slack: core::time::Duration) {
        if let Some(tap) = &mut self.tap {
            tap.checker.set_slack_ns(slack.as_nanos() as u64);
        }
    }

    /// A QP has come to RTS.
    pub(super) fn watch(&mut self, at: At) {
        let Some(tap) = &mut self.tap else { return };
        let node = &self.nodes[usize::from(at.node)];
        let Slot { qp, rail, .. } = &node.slots[usize::from(at.qp)];
        let peer = peer(qp, node.rail(*rail).gid.0);
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

    /// A frame leaves a QP.
    pub(super) fn tap_sent(&mut self, from: At, frame: &[u8]) -> Option<Seen> {
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

    /// A frame was opened, or dropped for a reason, on arrival. Was that right?
    pub(super) fn tap_opened(&mut self, flight: &Flight, dropped: Option<DropReason>) {
        let Some(tap) = self.tap.as_mut().filter(|_| flight.seen.is_some()) else { return };
        match dropped {
            Some(reason) if !flight.is_damaged => {
                tap.complain(|| format!("an undamaged packet was dropped: {}", reason.name()));
            }
            None if flight.is_damaged => match read(&flight.frame) {
                // Those beside FECN and BECN are not covered by the ICRC.
                Ok(_) | Err(Flaw { rule: Rule::ReservedBits, .. }) => {}
                Err(flaw) => tap.complain(|| format!("a damaged packet was taken: {flaw}")),
            },
            _ => {}
        }
    }

    /// A frame is given to a QP.
    pub(super) fn tap_arrived(&mut self, at: At, seen: Option<&Seen>) {
        let now = nanos(self.now());
        let (Some(tap), Some(seen)) = (&mut self.tap, seen) else { return };
        if let Some(watched) = tap.watched(at) {
            tap.checker.arrived(watched, now, seen);
        }
    }

    /// After an input to a QP: what the tap cannot see from the wire.
    pub(super) fn tap_settled(&mut self, at: At) {
        let Some(tap) = &mut self.tap else { return };
        let slot = &mut self.nodes[usize::from(at.node)].slots[usize::from(at.qp)];
        if core::mem::take(&mut slot.has_refused)
            && let Some(watched) = tap.watched(at)
        {
            tap.checker.refused(watched);
        }
    }

    /// All that a QP had to send has left.
    pub(super) fn tap_polled(&mut self, at: At) {
        let slot = self.slot_mut(at);
        let state = slot.qp.state();
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

/// The terms of a QP, as plain numbers.
fn peer(qp: &Qp, addr: [u8; 16]) -> Peer {
    let attr = qp.attr();
    Peer {
        service: match qp.qp_type() {
            QpType::Rc => Service::Reliable,
            QpType::Uc => Service::Unreliable,
            QpType::Ud | QpType::Gsi => Service::Datagram,
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
    }
}
