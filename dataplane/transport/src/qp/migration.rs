//! Automatic path migration: a connection continues on an alternate path when its path fails.
//!
//! Read first: IBA 17.2.8.
//!
//! ```text
//!            software: REARM            MigReq 0 seen
//!  MIGRATED ─────────────────> REARM ─────────────────> ARMED
//!     ^                          │                        │ software: MIGRATED
//!     │                          │ MigReq 1 seen on       │ retries exhausted
//!     └───────── migrates ───────┴─ the alternate path ───┘ MigReq 1 seen on the alternate path
//! ```
//!
//! Invariants
//! - In REARM and ARMED an alternate path is loaded.
//! - A migration swaps the two paths and restarts the retry counter. Outstanding packets are sent
//!   again on the new path. Packets from the former path are accepted for one local ACK timeout,
//!   because packets that the peer sent before its own migration may still be on the way; the PSN
//!   checks prevent a second execution.
//! - MigReq is 1 in MIGRATED and 0 otherwise, in every packet of the connection.
//!
//! A peer that is ARMED may migrate before its MigReq 0 has arrived here. Therefore REARM can
//! migrate directly; without that transition such a connection would be lost. In REARM, MigReq 1 on
//! the path in use has no meaning, because the peer may not have loaded its alternate path yet.
//!
//! Not here: detecting that a path is down (the environment calls [`Qp::migrate`]), agreeing on an
//! alternate path with the peer.

use core::time::Duration;

use uroce_wire::{Bth, Gid};

use super::Qp;
use super::service::Service;
use super::state::{ModifyError, QpState};
use crate::attr::{AltPath, PackedPath, PathMigState, QpChange};
use crate::context::Context;
use crate::counter::Counter;
use crate::drop_reason::DropReason;
use crate::env::{AsyncEvent, Env};
use crate::time::Instant;
use crate::timer::ack_timeout;

/// Statistics of a QP's migrations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MigrationStats {
    /// Migrations since the QP left RESET, for any reason.
    pub count: u32,
    /// Failover time of the last migration of an RC QP: from the last good acknowledgement before
    /// it to the first one on the new path, or from the migration itself if there was no
    /// acknowledgement before. `None` until the first acknowledgement on the new path.
    pub failover: Option<Duration>,
}

/// Events of the path migration state machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// Software requests REARM.
    Rearm,
    /// Software requests MIGRATED, or the port is down.
    Migrate,
    /// The transport retry counter has run out.
    Exhausted,
    /// A packet with MigReq 0 arrived.
    Ready,
    /// A packet with MigReq 1 arrived on the alternate path, and not on the path in use.
    Request,
    /// A packet with MigReq 1 arrived on another path, possibly the path in use.
    Astray,
}

/// Effect of an [`Event`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// Nothing changes.
    Stay,
    /// The event is not allowed: software gets an error, a packet is dropped with an event.
    Refused,
    Goto(PathMigState),
    /// The paths are swapped, and the state becomes MIGRATED.
    Migrates,
}

/// The transition table of path migration.
//= check I3 — REARM by software, ARMED by the peer's MigReq 0
//= check I4 — MIGRATED by software, or by the peer's request on the alternate path
//= check I8 — nothing else
pub(super) const fn next(state: PathMigState, event: Event) -> Effect {
    use Effect::{Goto, Migrates, Refused, Stay};
    use Event::{Astray, Exhausted, Migrate, Ready, Rearm, Request};
    use PathMigState::{Armed, Migrated};
    match (state, event) {
        (Migrated, Rearm) => Goto(PathMigState::Rearm),
        (PathMigState::Rearm, Ready) => Goto(Armed),
        (PathMigState::Rearm, Request) => Migrates,
        (Armed, Migrate | Exhausted | Request) => Migrates,
        //= check I7 — a request for a path other than the alternate changes nothing, is reported
        (Armed, Astray) => Refused,
        (_, Rearm | Migrate) => Refused,
        //= check I2 — a peer that always or never sets MigReq is served as usual
        (_, Exhausted | Ready | Request | Astray) => Stay,
    }
}

/// Migration state of a QP, besides the paths.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Migration {
    /// Time until which packets from the former path are accepted.
    former_until: Instant,
    /// In nanoseconds: the start of the last migration's failover, or its duration; see `phase`.
    failover: u64,
    count: u32,
    phase: Phase,
}

/// Progress of the failover measurement.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Phase {
    #[default]
    None,
    /// `failover` is a point in time, the start.
    Begun,
    /// `failover` is a duration.
    Over,
}

impl Migration {
    /// Returns whether the first acknowledgement on the new path is still to come.
    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.phase == Phase::Begun
    }
}

/// Source of a packet: its addresses, and the local port that received it, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) src: Gid,
    pub(super) dst: Gid,
    pub(super) port: u8,
}

impl Qp {
    /// Statistics of the QP's migrations.
    pub fn migration(&self) -> MigrationStats {
        let Migration { count, failover, phase, .. } = self.migration;
        let failover = (phase == Phase::Over).then_some(Duration::from_nanos(failover));
        MigrationStats { count, failover }
    }

    /// Migrates if the QP is ARMED, as a Modify QP to MIGRATED does; returns whether it migrated.
    /// The environment calls it when the path is known to be down.
    pub fn migrate(&mut self, now: Instant, env: &mut impl Env) -> bool {
        let is_live = self.attr.state.sends() || self.attr.state == QpState::Sqe;
        let migrates =
            is_live && next(self.attr.path_mig_state, Event::Migrate) == Effect::Migrates;
        if migrates {
            self.switch_paths(now, env);
        }
        migrates
    }

    /// Loads an alternate path on which the control planes of both ends have agreed, and arms the
    /// QP, as far as it is not armed already. The path gets the P_Key, rate and timeout of the path
    /// in use. Unlike a Modify QP this is possible in RTR too: the receiving end of a connection
    /// may stay there. Returns false, and changes nothing, if the QP handles no packets of a
    /// connection.
    pub fn adopt_alternate(&mut self, alternate: &AltPath) -> bool {
        let is_connected = !self.qp_type().is_datagram() && self.attr.state.serves_requests();
        if !is_connected {
            return false;
        }
        self.attr.apply(&QpChange { alt_path: Some(*alternate), ..QpChange::default() });
        self.tune_alternate();
        if next(self.attr.path_mig_state, Event::Rearm) != Effect::Refused {
            self.attr.path_mig_state = PathMigState::Rearm;
        }
        true
    }

    /// Gives the alternate path, if one is loaded, the P_Key, rate and timeout of the path in use.
    /// For paths of [`adopt_alternate`](Qp::adopt_alternate), after each Modify QP.
    pub fn tune_alternate(&mut self) {
        self.attr.tune_alternate();
    }

    /// Sends one packet without effect, by which the peer learns this end's state of migration, and
    /// which it answers with its own. Nothing waits for the answer. Returns whether it was sent:
    /// only an RC QP in RTS that has nothing outstanding sends it, as any other packet does the
    /// same.
    pub fn nudge(&mut self, now: Instant, env: &mut impl Env) -> bool {
        let context = Context { by: self.by, recv_pd: self.recv_pd, attr: &self.attr, now };
        match &mut self.service {
            Service::Rc(rc) if self.attr.state == QpState::Rts => rc.requester.nudge(&context, env),
            _ => false,
        }
    }

    /// Checks the migration state that a change to state `to` requests.
    //= check I8 — refused at once, and nothing changes
    pub(super) fn check_migration(
        &self,
        change: &QpChange,
        to: QpState,
    ) -> Result<(), ModifyError> {
        let state = self.attr.path_mig_state;
        let Some(wanted) = change.path_mig_state else { return Ok(()) };
        match wanted {
            PathMigState::Armed => Err(ModifyError::ArmedBySoftware),
            PathMigState::Rearm if next(state, Event::Rearm) == Effect::Refused => {
                Err(ModifyError::NotMigrated(state))
            }
            PathMigState::Rearm if change.alt_path.is_none() && !self.attr.has_alternate() => {
                Err(ModifyError::NoAlternatePath)
            }
            PathMigState::Migrated if next(state, Event::Migrate) == Effect::Refused => {
                Err(ModifyError::NotArmed(state))
            }
            PathMigState::Migrated if to != QpState::Rts => Err(ModifyError::MigrationState(to)),
            PathMigState::Rearm | PathMigState::Migrated => Ok(()),
        }
    }

    /// Applies the migration state of a change that [`check_migration`](Qp::check_migration) has
    /// allowed.
    pub(super) fn change_migration(&mut self, now: Instant, change: &QpChange, env: &mut impl Env) {
        match change.path_mig_state {
            Some(PathMigState::Rearm) => self.attr.path_mig_state = PathMigState::Rearm,
            Some(PathMigState::Migrated) => self.switch_paths(now, env),
            Some(PathMigState::Armed) | None => {}
        }
    }

    /// Handles an exhausted retry counter. Returns true if the QP has migrated and tries again.
    //= check I5 — instead of the error, for any cause that charges the counter
    //= check I6 — the second time the QP is not ARMED, and the error is the usual one
    #[cold]
    pub(super) fn survives_exhaustion(&mut self, now: Instant, env: &mut impl Env) -> bool {
        let migrates = next(self.attr.path_mig_state, Event::Exhausted) == Effect::Migrates
            && !seeded!(DiesThoughArmed)
            || seeded!(MigratesTwice) && self.attr.other().is_some();
        if migrates {
            self.switch_paths(now, env);
        }
        migrates
    }

    /// Checks a packet of a connection that did not come by the path in use, or that arrives in
    /// REARM or ARMED.
    #[inline(never)]
    pub(super) fn check_other_path(
        &mut self,
        now: Instant,
        origin: Origin,
        bth: &Bth,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let attr = &self.attr;
        let is_on_path = self.is_on_path(origin);
        let state = attr.path_mig_state;
        let other =
            attr.other().filter(|path| path.leads_back(origin.src, origin.dst, origin.port));
        let matches = |path: &PackedPath| bth.pkey.matches(path.pkey());
        if state == PathMigState::Migrated {
            return match other {
                _ if is_on_path => check_pkey(bth.pkey.matches(attr.pkey)),
                //= check I11 — packets from the former path are accepted for one ACK timeout
                Some(path) if self.hears_former(now) => check_pkey(matches(path)),
                _ => Err(DropReason::WrongSource),
            };
        }
        let is_on_alternate = other.is_some_and(matches);
        let is_request = is_on_alternate && !(is_on_path && state == PathMigState::Rearm)
            || seeded!(AlternateNotValidated);
        let event = match bth.mig_req {
            false => Event::Ready,
            true if is_request => Event::Request,
            true if seeded!(ArmedByAnyMigReq) => Event::Ready,
            true => Event::Astray,
        };
        match next(state, event) {
            Effect::Migrates => {
                self.switch_paths(now, env);
                return Ok(());
            }
            Effect::Refused => {
                env.event(AsyncEvent::PathMigErr);
                return Err(DropReason::PathMigration);
            }
            Effect::Goto(_) | Effect::Stay => {}
        }
        // In ARMED the peer may use both paths.
        let is_armed = state == PathMigState::Armed;
        match other {
            _ if is_on_path && bth.pkey.matches(attr.pkey) => {}
            _ if is_armed && is_on_alternate => {}
            _ if is_on_path => return Err(DropReason::BadPkey),
            Some(_) if is_armed => return Err(DropReason::BadPkey),
            _ => return Err(DropReason::WrongSource),
        }
        if let Effect::Goto(state) = next(state, event) {
            self.attr.path_mig_state = state;
        }
        Ok(())
    }

    /// Ends the failover measurement when an acknowledgement has come on the new path.
    #[cold]
    pub(super) fn measure_failover(&mut self, now: Instant, origin: Origin) {
        if self.is_on_path(origin) {
            let begun = Instant::from_nanos(self.migration.failover);
            self.migration.failover =
                u64::try_from(now.since(begun).as_nanos()).unwrap_or(u64::MAX);
            self.migration.phase = Phase::Over;
        }
    }

    /// Returns whether a packet came by the path in use.
    #[inline]
    pub(super) fn is_on_path(&self, origin: Origin) -> bool {
        self.attr.template.leads_back(origin.src, origin.dst) && origin.port == self.attr.port
    }

    pub(super) fn hears_former(&self, now: Instant) -> bool {
        let is_recent = now < self.migration.former_until || seeded!(FormerPathForEver);
        is_recent && !self.attr.has_alternate()
    }

    /// Migrates: the next packet leaves on the alternate path, with MigReq 1.
    //= check D10 — an ATOMIC that is repeated keeps its PSN, by which its answer is found
    //= check I10 — PSNs and queues are unchanged, so any packet may be the first on the new path
    //= check I4 — both ends report it
    //= check I9 — a QP that has migrated is MIGRATED: the peer's request then changes nothing
    #[cold]
    fn switch_paths(&mut self, now: Instant, env: &mut impl Env) {
        let former_timeout = self.attr.swap_paths();
        self.attr.path_mig_state = PathMigState::Migrated;
        let forever = Duration::from_nanos(u64::MAX);
        self.migration.former_until = now + ack_timeout(former_timeout).unwrap_or(forever);
        self.migration.count = self.migration.count.saturating_add(1);
        self.restart_reaction();
        if !seeded!(FormerRate) {
            //= check S2 — the alternate path has brought its own rate
            self.retune_pace();
        }
        if let Some(rc) = self.service.reliable_mut() {
            let begun = rc.requester.last_progress().unwrap_or(now);
            (self.migration.failover, self.migration.phase) = (begun.as_nanos(), Phase::Begun);
            rc.requester.resume(&self.attr);
        }
        env.count(Counter::PathMigrations);
        env.event(AsyncEvent::PathMig);
        if seeded!(PathMigTwice) {
            env.event(AsyncEvent::PathMig);
        }
    }
}

//= check E12 — each path has its own P_Key
fn check_pkey(matches: bool) -> Result<(), DropReason> {
    if matches { Ok(()) } else { Err(DropReason::BadPkey) }
}

#[cfg(test)]
mod tests;
