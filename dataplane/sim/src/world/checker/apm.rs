//! Expected behaviour of path migration: the oracle's own state table, and its own copy of both
//! paths.
//!
//! Read first: IBA 17.2.8.
//!
//! ```text
//!                owner: REARM                MigReq 0 by the primary
//!     MIGRATED ----------------> REARM ----------------------------> ARMED
//!        ^                         | MigReq 1 by the alternate         |
//!        '-------------------------+-----------------------------------'
//!          owner: MIGRATED · retries exhausted · MigReq 1 by the alternate
//! ```
//!
//! A peer in ARMED may migrate before its MigReq 0 has arrived; hence the transition from REARM.
//!
//! Invariants
//! - Nothing here is derived from the core. Inputs are those that the simulator saw; results are
//!   what the core must report: its state, its path, its events.

use core::time::Duration;

use uroce_wire::{Gid, Pkey};

use uroce_transport::{AltPath, DropReason, Instant, PathMigState, QpAttr, ack_timeout};

/// State of a QP's path migration, as the oracle tracks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stand {
    Migrated,
    Rearm,
    Armed,
}

/// Event that may change a [`Stand`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Push {
    /// The owner sets REARM, with an alternate path loaded.
    OwnerRearms,
    /// The owner sets MIGRATED.
    OwnerMigrates,
    /// A packet with MigReq 0 came by the path in use.
    PeerPrepares,
    /// A packet with MigReq 1 came by the alternate path.
    PeerMigrates,
    /// A transport retry was charged when none was left.
    Exhausted,
}

/// The state after a push; `None` if the push must be refused or changes nothing.
pub(crate) fn next(stand: Stand, push: Push) -> Option<Stand> {
    match (stand, push) {
        (Stand::Migrated, Push::OwnerRearms) => Some(Stand::Rearm),
        (Stand::Rearm, Push::PeerPrepares) => Some(Stand::Armed),
        (Stand::Rearm, Push::PeerMigrates) => Some(Stand::Migrated),
        (Stand::Armed, Push::OwnerMigrates | Push::PeerMigrates | Push::Exhausted) => {
            Some(Stand::Migrated)
        }
        _ => None,
    }
}

/// A path as one end sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    pub(crate) port: u8,
    pub(crate) here: Gid,
    pub(crate) there: Gid,
    pub(crate) pkey: Pkey,
    pub(crate) timeout: u8,
}

impl Way {
    /// The path in use of a QP with these attributes.
    pub(crate) fn in_use(attr: &QpAttr) -> Way {
        let QpAttr { port, pkey, timeout, .. } = *attr;
        Way { port, here: attr.path.encap.src, there: attr.path.encap.dst, pkey, timeout }
    }

    /// The alternate path `alt`.
    pub(crate) fn of(alt: &AltPath) -> Way {
        let AltPath { port, pkey, timeout, .. } = *alt;
        Way { port, here: alt.path.encap.src, there: alt.path.encap.dst, pkey, timeout }
    }

    /// Returns whether a packet with this origin came by this path, with its P_Key.
    pub(crate) fn fits(&self, came: &Came) -> bool {
        let is_way = (self.port, self.here, self.there) == (came.port, came.dst, came.src);
        is_way && came.pkey.matches(self.pkey)
    }
}

/// Origin of a packet, and its MigReq bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Came {
    pub(crate) port: u8,
    pub(crate) src: Gid,
    pub(crate) dst: Gid,
    pub(crate) pkey: Pkey,
    pub(crate) mig_req: bool,
}

/// Events that an input must cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Due {
    /// Number of PATH_MIG events.
    pub(crate) migrations: u8,
    /// Number of PATH_MIG_ERR events.
    pub(crate) errors: u8,
}

/// Expected migration state of one QP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Apm {
    pub(crate) stand: Stand,
    pub(crate) primary: Way,
    pub(crate) alternate: Option<Way>,
    /// The former path, and the time until which its packets are accepted.
    former: Option<(Way, Instant)>,
}

impl Apm {
    pub(crate) fn new(primary: Way) -> Apm {
        Apm { stand: Stand::Migrated, primary, alternate: None, former: None }
    }

    /// Loads an alternate path. It replaces the former path, because a QP stores only one of them.
    pub(crate) fn load(&mut self, alternate: Way) {
        (self.alternate, self.former) = (Some(alternate), None);
    }

    /// Applies a state that the owner requested and the QP granted. An error if it had to be
    /// refused.
    pub(crate) fn asked(&mut self, wanted: PathMigState, now: Instant) -> Result<Due, String> {
        let push = match wanted {
            PathMigState::Rearm if self.alternate.is_some() => Push::OwnerRearms,
            PathMigState::Migrated => Push::OwnerMigrates,
            _ => return Err(format!("{wanted} was granted")),
        };
        match next(self.stand, push) {
            None => Err(format!("{wanted} was granted in {:?}", self.stand)),
            Some(_) => Ok(self.push(push, now)),
        }
    }

    /// Applies a push, if the table has a transition for it.
    pub(crate) fn push(&mut self, push: Push, now: Instant) -> Due {
        let Some(to) = next(self.stand, push) else { return Due::default() };
        self.stand = to;
        if to != Stand::Migrated {
            return Due::default();
        }
        let alternate = self.alternate.take().unwrap_or(self.primary);
        let left = core::mem::replace(&mut self.primary, alternate);
        self.former = Some((left, now + grace(left.timeout)));
        Due { migrations: 1, errors: 0 }
    }

    /// Checks how the QP handled a packet (taken, or dropped for a reason) and returns the events
    /// that it must cause.
    pub(crate) fn came(
        &mut self,
        came: &Came,
        dropped: Option<DropReason>,
        now: Instant,
    ) -> Result<Due, String> {
        let by_primary = self.primary.fits(came);
        let by_alternate = self.alternate.is_some_and(|way| way.fits(came));
        let is_armed = self.stand == Stand::Armed;
        if is_armed && came.mig_req && !by_alternate {
            return match dropped {
                Some(DropReason::PathMigration) => Ok(Due { migrations: 0, errors: 1 }),
                _ => Err(format!("{came:?} asks for another path, and is not refused for it")),
            };
        }
        // On the path in use, MigReq 1 does not ask a QP in REARM to migrate.
        let asks = came.mig_req && by_alternate && (is_armed || !by_primary);
        let follows = asks && self.stand != Stand::Migrated;
        let by_former = self.former.is_some_and(|(way, until)| way.fits(came) && now < until);
        let is_heard = match self.stand {
            Stand::Migrated => by_primary || by_former,
            Stand::Rearm => by_primary || follows,
            Stand::Armed => by_primary || by_alternate,
        };
        let is_off = is_off_path(dropped);
        if is_heard == is_off || !is_heard && dropped.is_none() {
            return Err(format!("{came:?} is dropped for {dropped:?}; {self:?}"));
        }
        Ok(match came.mig_req {
            true if follows => self.push(Push::PeerMigrates, now),
            false if by_primary => self.push(Push::PeerPrepares, now),
            _ => Due::default(),
        })
    }

    /// Checks that the QP's attributes agree with the expected state and paths.
    pub(crate) fn agrees(&self, attr: &QpAttr) -> Result<(), String> {
        let stand = match attr.path_mig_state {
            PathMigState::Migrated => Stand::Migrated,
            PathMigState::Rearm => Stand::Rearm,
            PathMigState::Armed => Stand::Armed,
        };
        let way = Way::in_use(attr);
        let alternate = attr.alt_path.as_ref().map(Way::of);
        if (stand, way, alternate) == (self.stand, self.primary, self.alternate) {
            Ok(())
        } else {
            Err(format!("it is {stand:?} by {way:?}, or {alternate:?}; {self:?} is right"))
        }
    }
}

/// Time for which a former path is accepted: its ACK timeout, or for ever if it has none.
fn grace(timeout: u8) -> Duration {
    ack_timeout(timeout).unwrap_or(Duration::from_nanos(u64::MAX))
}

/// Returns whether a packet was dropped because of its addresses, port or P_Key.
pub(crate) fn is_off_path(dropped: Option<DropReason>) -> bool {
    use DropReason::{BadPkey, PathMigration, WrongSource};
    matches!(dropped, Some(WrongSource | BadPkey | PathMigration))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_six_ways_and_no_other() {
        use Push as P;
        let stands = [Stand::Migrated, Stand::Rearm, Stand::Armed];
        let pushes =
            [P::OwnerRearms, P::OwnerMigrates, P::PeerPrepares, P::PeerMigrates, P::Exhausted];
        let ways: Vec<_> = stands
            .into_iter()
            .flat_map(|stand| pushes.map(|push| (stand, push, next(stand, push))))
            .filter_map(|(stand, push, to)| Some((stand, push, to?)))
            .collect();
        let expected = [
            (Stand::Migrated, P::OwnerRearms, Stand::Rearm),
            (Stand::Rearm, P::PeerPrepares, Stand::Armed),
            (Stand::Rearm, P::PeerMigrates, Stand::Migrated),
            (Stand::Armed, P::OwnerMigrates, Stand::Migrated),
            (Stand::Armed, P::PeerMigrates, Stand::Migrated),
            (Stand::Armed, P::Exhausted, Stand::Migrated),
        ];
        assert_eq!(ways, expected);
    }
}
