//! Checks after each input to a QP: the effects of path migration, draining and pacing.
//!
//! ```text
//!     input ──> QP ──> its reports (events, charges) ──> compared with what [`Apm`] expects
//! ```
//!
//! Invariants
//! - The tap keeps the first disagreement.
//! - A QP that never had an alternate path, a draining send queue or a rate costs nothing here.

pub(crate) mod apm;

use uroce_wirecheck::{Route, TimedRoute};

use crate::world::World;
use crate::world::bucket::Bucket;
use crate::world::checker::apm::{Apm, Came, Due, Push, Stand, Way, is_off_path};
use crate::world::names::At;
use uroce_transport::{
    AsyncEvent, Counter, DropReason, Instant, ModifyError, PathMigState, QpAttr, QpChange, QpState,
    ack_timeout,
};

/// Events and counts that a QP has reported while it handled an input.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Reports {
    migrations: u8,
    migration_errors: u8,
    drained: u8,
    charges: u8,
    gave_up: bool,
}

impl Reports {
    pub(crate) fn event(&mut self, event: AsyncEvent) {
        match event {
            AsyncEvent::PathMig => self.migrations += 1,
            AsyncEvent::PathMigErr => self.migration_errors += 1,
            AsyncEvent::SqDrained => self.drained += 1,
            _ => {}
        }
    }

    pub(crate) fn count(&mut self, counter: Counter) {
        match counter {
            Counter::LocalAckTimeoutErr | Counter::PacketSeqErr | Counter::ImpliedNakSeqErr => {
                self.charges += 1;
            }
            Counter::TransportRetriesExceeded => self.gave_up = true,
            _ => {}
        }
    }

    /// Returns whether the QP has migrated, so that its rail must be derived again.
    pub(crate) fn has_moved(&self) -> bool {
        self.migrations > 0
    }
}

/// Expected state of one QP, besides what the tap sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checker {
    /// Expected migration state, once the QP had an alternate path.
    apm: Option<Apm>,
    /// SQ_DRAINED was requested and has not come yet.
    owes_drained: bool,
    /// The owner has moved the QP to SQD.
    is_draining: bool,
    bucket: Option<Bucket>,
}

impl World {
    /// Number of migrations of all QPs, over all times that they were in use.
    pub(crate) fn migrations(&self) -> u64 {
        self.nodes.iter().flat_map(|node| &node.slots).map(|slot| slot.migrations).sum()
    }

    /// The rail that a QP sends on.
    pub(crate) fn rail_in_use(&self, at: At) -> usize {
        self.slot(at).rail
    }

    /// Migration state of a QP, as the oracle tracks it.
    pub(crate) fn stand(&self, at: At) -> Stand {
        self.slot(at).checker.apm.map_or(Stand::Migrated, |apm| apm.stand)
    }

    /// Checks a QP after `change` was granted.
    pub(crate) fn check_change(&mut self, at: At, before: &QpAttr, change: &QpChange) {
        if self.tap.is_none() {
            return;
        }
        let now = self.now();
        let attr = self.qp(at).attr();
        let mut due = Due::default();
        let slot = self.slot_mut(at);
        if attr.state == QpState::Reset {
            slot.checker = Checker::default();
        }
        if let (None, Some(_)) = (slot.checker.apm, change.alt_path) {
            slot.checker.apm = Some(Apm::new(Way::in_use(before)));
        }
        if let Some(mut apm) = slot.checker.apm {
            let wish = change.path_mig_state.filter(|_| attr.state != QpState::Reset);
            // The change may also have set a new path or a new alternate path.
            if wish != Some(PathMigState::Migrated) {
                apm.primary = Way::in_use(&attr);
            }
            if let Some(alternate) = &change.alt_path {
                apm.load(Way::of(alternate));
            }
            match wish.map(|wanted| apm.asked(wanted, now)) {
                Some(Ok(must)) => due = must,
                Some(Err(what)) => self.complain(at, &what),
                None => {}
            }
            self.slot_mut(at).checker.apm = Some(apm);
        }
        self.tell_tap(at, &attr, change);
        self.set_bucket(at);
        self.check_reports(at, due);
    }

    /// Checks a QP after a change was refused: nothing may have changed.
    pub(crate) fn check_refusal(&mut self, at: At, before: &QpAttr, error: ModifyError) {
        if self.qp(at).attr() != *before {
            self.complain(at, &format!("a change was refused, {error}, and yet made"));
        }
        self.check_reports(at, Due::default());
    }

    /// Passes a change to the tap, which cannot see it on the wire.
    fn tell_tap(&mut self, at: At, attr: &QpAttr, change: &QpChange) {
        let draining = match change.state {
            Some(QpState::Sqd) => Some(true),
            Some(_) => Some(false),
            None => None,
        };
        let checker = &mut self.slot_mut(at).checker;
        if let Some(is_draining) = draining.filter(|is| *is != checker.is_draining) {
            checker.is_draining = is_draining;
            checker.owes_drained = is_draining && change.en_sqd_async_notify == Some(true);
            self.tap_held(at, is_draining);
        }
        if let Some(code) = change.min_rnr_timer {
            self.tap_rnr_timer(at, code);
        }
        if let Some(idle_ms) = change.keepalive_ms {
            self.tap_keepalive(at, idle_ms);
        }
        let alternate = attr.alt_path.as_ref().map(|alt| timed(&Way::of(alt)));
        match (change.path_mig_state, alternate) {
            (Some(PathMigState::Rearm), Some(alternate)) => {
                self.tap_rearmed(at, timed(&Way::in_use(attr)), alternate);
            }
            (_, Some(alternate)) if change.alt_path.is_some() => self.tap_loaded(at, alternate),
            _ => {}
        }
    }

    /// Checks a QP after it was given a packet and has taken or dropped it.
    pub(crate) fn check_packet(&mut self, at: At, came: &Came, dropped: Option<DropReason>) {
        let now = self.now();
        let mut due = Due::default();
        if let Some(mut apm) = self.slot(at).checker.apm.filter(|_| self.tap.is_some()) {
            use DropReason::{Congestion, QpNotReady, WrongService};
            // These reasons are found before the path is checked.
            if !matches!(dropped, Some(QpNotReady | WrongService | Congestion)) {
                match apm.came(came, dropped, now) {
                    Ok(must) => due = must,
                    Err(what) => self.complain(at, &what),
                }
            }
            self.slot_mut(at).checker.apm = Some(apm);
            // The peer uses another path, and its packets are lost: a fault, for `explain`.
            if is_off_path(dropped) {
                self.blame(self.slot(at).connection);
            }
        }
        self.check_reports(at, due);
    }

    /// Checks the reports on an input. `due` must have been reported, and a migration if the
    /// retries ran out.
    pub(crate) fn check_reports(&mut self, at: At, mut due: Due) {
        let reports = core::mem::take(&mut self.slot_mut(at).reports);
        if reports.has_moved() {
            self.derive(at);
            self.tap_migrated(at);
        }
        if self.tap.is_none() {
            return;
        }
        if let Some(mut apm) = self.slot(at).checker.apm {
            let (now, state) = (self.now(), self.qp(at).state());
            let stood = apm.stand;
            if reports.charges > 0 && stood == Stand::Armed && reports.migrations > 0 {
                match self.is_exhausted(at) {
                    Ok(()) => due = apm.push(Push::Exhausted, now),
                    Err(what) => self.complain(at, &what),
                }
            }
            if reports.gave_up && reports.migrations == 0 && stood == Stand::Armed {
                self.complain(at, "its retries ran out, and it does not migrate though armed");
            }
            if (reports.migrations, reports.migration_errors) != (due.migrations, due.errors) {
                let what = format!("{reports:?} of migrations, {due:?} was due; {apm:?}");
                self.complain(at, &what);
            }
            let lives = !matches!(state, QpState::Reset | QpState::Err);
            if let Err(what) = apm.agrees(&self.qp(at).attr())
                && lives
            {
                self.complain(at, &what);
            }
            self.slot_mut(at).checker.apm = Some(apm);
            if reports.migrations > 0 {
                self.slot_mut(at).migrations += 1;
                self.forget_charges(at);
                self.set_bucket(at);
            }
        } else if reports.migrations + reports.migration_errors > 0 {
            self.complain(at, "a migration without an alternate path");
        }
        self.check_draining(at, &reports);
    }

    /// Checks SQ_DRAINED: reported once if requested, when everything is acknowledged, and not
    /// before.
    fn check_draining(&mut self, at: At, reports: &Reports) {
        let Checker { owes_drained, is_draining, .. } = self.slot(at).checker;
        if !is_draining {
            if reports.drained > 0 {
                self.complain(at, "SQ_DRAINED of a send queue that is not being drained");
            }
            return;
        }
        let state = self.qp(at).state();
        let is_quiet = self.tap_is_quiet(at) && self.qp(at).is_drained();
        let is_due = owes_drained && is_quiet && state == QpState::Sqd;
        if reports.drained > 0 && !(owes_drained && is_quiet) {
            self.complain(at, "SQ_DRAINED without a request, too early, or again");
        }
        if reports.drained != u8::from(is_due) {
            let what = format!("SQ_DRAINED {} times, {is_due} is due", reports.drained);
            self.complain(at, &what);
        }
        if reports.drained > 0 || state == QpState::Err {
            self.slot_mut(at).checker.owes_drained = false;
        }
    }

    /// Checks that enough retries were charged since the last progress to use all of them up.
    fn is_exhausted(&self, at: At) -> Result<(), String> {
        let needed = usize::from(self.qp(at).attr().retry_cnt) + 1;
        let progress = self.last_progress(at);
        let charged = self.charges_of(at).iter().filter(|charge| **charge >= progress).count();
        match charged >= needed {
            true => Ok(()),
            false => Err(format!("it migrates after {charged} retries of {needed}")),
        }
    }

    fn complain(&mut self, at: At, what: &str) {
        self.tap_complain(|| format!("{at:?}: {what}"));
    }

    /// Sets the rate that a QP must keep to from now on.
    fn set_bucket(&mut self, at: At) {
        let attr = self.qp(at).attr();
        let path = attr.path.rate.mbps().map(|mbps| u64::from(mbps) * 1000);
        let own = Some(u64::from(attr.rate_limit)).filter(|kbps| *kbps > 0);
        let kbps = path.into_iter().chain(own).min();
        let bucket = &mut self.slot_mut(at).checker.bucket;
        *bucket = kbps.map(|kbps| match bucket.take() {
            Some(bucket) => bucket.at_rate(kbps),
            None => Bucket::new(kbps),
        });
    }

    /// Checks that the QP's rate allows a frame to be sent now.
    pub(crate) fn check_frame(&mut self, from: At, bytes: usize, may_wait: bool) {
        let now: Instant = self.now();
        let Some(bucket) = &mut self.slot_mut(from).checker.bucket else { return };
        if let Err(early) = bucket.pour(now, bytes as u64, may_wait) {
            let what = format!("a frame of {bytes} bytes leaves {early:?} too early for its rate");
            self.complain(from, &what);
        }
    }
}

/// A path as the independent checker's type.
fn timed(way: &Way) -> TimedRoute {
    let timeout_ns = ack_timeout(way.timeout).map(|timeout| timeout.as_nanos() as u64);
    let route = Route { addr: way.here.0, dest_addr: way.there.0, pkey: way.pkey.0 };
    TimedRoute { route, timeout_ns }
}
