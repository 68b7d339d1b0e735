//! The path that a queue pair may send on, and the MigReq that its packets must have.
//!
//! Read first: IBA 17.2.8.
//!
//! ```text
//!                 the owner re-arms          MigReq 0 arrives
//!     Migrated ---------------------> ReArm ------------------> Armed
//!        ^     MigReq 1, primary            MigReq 0, primary     |
//!        '--------------------------------------------------------'
//!             the first packet with MigReq 1, by the alternate path
//! ```
//!
//! A peer that migrates before its MigReq 0 has arrived is followed from ReArm, which therefore
//! counts as arming.
//!
//! Packets do not show the difference between ReArm and Armed. So Armed here means that the queue
//! pair may be armed. The cause of a migration (owner, retries, peer) is not checked: a tap only
//! sees that it happens, and that no packet leaves on the former path afterwards.

use crate::flaw::{Flaw, Rule, ensure};
use crate::frame::Seen;

/// A path, as all packets on it show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// IP address of the sender.
    pub addr: [u8; 16],
    /// IP address of the peer.
    pub dest_addr: [u8; 16],
    /// P_Key of the packets.
    pub pkey: u16,
}

impl Route {
    fn of(seen: &Seen) -> Route {
        Route { addr: seen.src, dest_addr: seen.dst, pkey: seen.pkey }
    }

    /// The path, as the peer's packets on it show it.
    fn reversed(self) -> Route {
        Route { addr: self.dest_addr, dest_addr: self.addr, ..self }
    }
}

/// A path and its ACK timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimedRoute {
    /// The path, as its packets show it.
    pub route: Route,
    /// ACK timeout in nanoseconds, if there is one.
    pub timeout_ns: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    Migrated,
    ReArm,
    Armed,
}

/// State of path migration of one queue pair.
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

    /// Notes that the owner has set ReArm. The queue pair may have migrated without a packet that
    /// showed it, so both paths are given.
    pub(crate) fn rearm(&mut self, primary: Route, alternate: TimedRoute) {
        *self = Migration::new(primary);
        (self.stand, self.alternate) = (Stand::ReArm, Some(alternate));
    }

    /// Notes that the owner has loaded another alternate path.
    pub(crate) fn load(&mut self, alternate: TimedRoute) {
        self.alternate = Some(alternate);
    }

    /// Notes that a packet of the peer arrives.
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

    /// Checks a packet that is sent. Returns the new path if this packet is the first to show a
    /// migration.
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
