//! Which path a queue pair may send by, and which MigReq goes with it.
//!
//! ```text
//!                 the owner re-arms          MigReq 0 arrives
//!     Migrated ---------------------> ReArm ------------------> Armed
//!        ^     MigReq 1, primary            MigReq 0, primary     |
//!        '--------------------------------------------------------'
//!             the first packet with MigReq 1, by the alternate path
//! ```
//!
//! A peer that migrates before its MigReq 0 has arrived is followed from ReArm, which is the same
//! as to be armed by it.
//!
//! What holds: ReArm and Armed look alike in what is sent. So Armed here means that the queue pair
//! may be armed, and *why* it migrates (its owner, its retries, its peer) is not judged: a tap
//! sees that it does, and that from then on no packet leaves by the path that was left.

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::Seen;

/// A path, as every packet that takes it shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The sender's address.
    pub addr: [u8; 16],
    /// The peer's address.
    pub dest_addr: [u8; 16],
    /// The P_Key.
    pub pkey: u16,
}

impl Route {
    fn of(seen: &Seen) -> Route {
        Route { addr: seen.src, dest_addr: seen.dst, pkey: seen.pkey }
    }

    /// The same path as the peer's packets show it.
    fn reversed(self) -> Route {
        Route { addr: self.dest_addr, dest_addr: self.addr, ..self }
    }
}

/// A path with the ACK timeout that goes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedRoute {
    /// What packets that take it show.
    pub route: Route,
    /// The timeout, if there is one.
    pub timeout_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    Migrated,
    ReArm,
    Armed,
}

/// Path migration of one queue pair.
#[derive(Debug)]
pub(crate) struct Migration {
    stand: Stand,
    primary: Route,
    alternate: Option<TimedRoute>,
    former: Option<Route>,
}

impl Migration {
    pub(crate) fn new(primary: Route) -> Migration {
        Migration { stand: Stand::Migrated, primary, alternate: None, former: None }
    }

    /// The owner has set the state ReArm. It may have migrated without a packet to show it, so
    /// both paths are said.
    pub(crate) fn rearm(&mut self, primary: Route, alternate: TimedRoute) {
        *self = Migration::new(primary);
        (self.stand, self.alternate) = (Stand::ReArm, Some(alternate));
    }

    /// The owner has loaded another path.
    pub(crate) fn load(&mut self, alternate: TimedRoute) {
        self.alternate = Some(alternate);
    }

    /// A packet of the peer arrives.
    pub(crate) fn arrived(&mut self, seen: &Seen) {
        let route = Route::of(seen).reversed();
        let is_by_alternate = self.alternate.is_some_and(|alternate| alternate.route == route);
        let may_go_on = match seen.mig_req {
            false => route == self.primary,
            true => is_by_alternate,
        };
        if self.stand == Stand::ReArm && may_go_on {
            self.stand = Stand::Armed;
        }
    }

    /// A packet leaves. Gives the path it has migrated to, if it shows that first.
    pub(crate) fn sent(&mut self, seen: &Seen) -> Result<Option<TimedRoute>, Flaw> {
        let route = Route::of(seen);
        let mig_req = u8::from(seen.mig_req);
        let (is_primary, is_former) = (route == self.primary, Some(route) == self.former);
        if self.stand == Stand::Migrated {
            ensure(is_primary || !is_former, Rule::FormerPath, mig_req, 1_u8)?;
            self.check_route(&route)?;
            ensure(seen.mig_req, Rule::MigReq, mig_req, 1_u8)?;
            return Ok(None);
        }
        let is_taken = |alternate: &TimedRoute| alternate.route == route;
        let alternate = self.alternate.filter(is_taken).filter(|_| !is_primary || seen.mig_req);
        let Some(alternate) = alternate else {
            self.check_route(&route)?;
            ensure(!seen.mig_req, Rule::MigReqSet, mig_req, 0_u8)?;
            return Ok(None);
        };
        ensure(self.stand == Stand::Armed, Rule::NotArmed, mig_req, 0_u8)?;
        ensure(seen.mig_req, Rule::MigReq, mig_req, 1_u8)?;
        self.stand = Stand::Migrated;
        self.former = Some(self.primary);
        self.primary = route;
        self.alternate = None;
        Ok(Some(alternate))
    }

    fn check_route(&self, route: &Route) -> Result<(), Flaw> {
        let wanted = &self.primary;
        ensure(route.addr == wanted.addr, Rule::Address, route.addr[15], wanted.addr[15])?;
        let (to, wanted_to) = (route.dest_addr, wanted.dest_addr);
        ensure(to == wanted_to, Rule::Address, to[15], wanted_to[15])?;
        ensure(route.pkey == wanted.pkey, Rule::Pkey, route.pkey, wanted.pkey)
    }
}
