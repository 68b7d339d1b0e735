//! Requests that need a neighbour's address: they stand aside until it is known.

use uroce_engine::multicast_mac;
use uroce_transport::{AttrMask, QpChange, QpState, QpType, rule};
use uroce_wire::{Encap, Mac, Qpn};

use super::Thread;
use super::requests::answer;
use crate::path::neighbour::{Neighbours, Resolution};
use crate::path::{AddressVector, PathError, Route};
use crate::request::{ModifyQp, Reply, RequestError};

/// A request that waits for a neighbour's address.
#[derive(Debug)]
pub(super) struct Waiting {
    route: Route,
    then: Then,
}

#[derive(Debug)]
pub(super) enum Then {
    Modify { modify: ModifyQp, dest_qpn: Qpn },
    Tell(Reply<Mac>),
    Handle(Reply<Encap>),
}

/// One of [`Route`]'s two ways to be found.
type FindRoute = fn(&AddressVector, u8, &Neighbours) -> Result<Route, PathError>;

impl Thread {
    pub(super) fn modify(&mut self, modify: ModifyQp) {
        let Some(vector) = modify.vector else {
            return self.command(modify, None);
        };
        let (attr, qp_type) = match self.control.query_qp(modify.qpn) {
            Ok(info) => (info.attr, info.qp_type),
            Err(error) => return answer(&modify.reply, Err(error.into())),
        };
        if !may_take_path(qp_type, attr.state, &modify.change) {
            // The core refuses it, whatever the path is, and says why.
            return self.command(modify, Some(Encap::default()));
        }
        let port = modify.change.port.unwrap_or(attr.port);
        let dest_qpn = modify.change.dest_qpn.unwrap_or(attr.dest_qpn);
        match self.route(&vector, port) {
            Ok(route) => {
                self.waiting.push(Waiting { route, then: Then::Modify { modify, dest_qpn } });
            }
            Err(error) => answer(&modify.reply, Err(error.into())),
        }
    }

    /// The Ethernet address of a path's next hop.
    pub(super) fn resolve(&mut self, port: u8, vector: &AddressVector, reply: Reply<Mac>) {
        match self.route(vector, port) {
            Ok(route) => self.waiting.push(Waiting { route, then: Then::Tell(reply) }),
            Err(error) => answer(&reply, Err(error.into())),
        }
    }

    /// A group's Ethernet address follows from its own; a host's is asked for.
    pub(super) fn resolve_handle(&mut self, port: u8, vector: &AddressVector, reply: Reply<Encap>) {
        let Some(mac) = multicast_mac(vector.dgid) else {
            return match self.route(vector, port) {
                Ok(route) => self.waiting.push(Waiting { route, then: Then::Handle(reply) }),
                Err(error) => answer(&reply, Err(error.into())),
            };
        };
        let encap = self.find(vector, port, Route::to_group).map(|route| {
            let neighbours = &self.ports.neighbours[usize::from(route.port) - 1];
            route.handle_encap(neighbours, mac)
        });
        answer(&reply, encap.map_err(RequestError::from));
    }

    fn command(&mut self, modify: ModifyQp, path: Option<Encap>) {
        let change = QpChange { path: path.map(Into::into), ..*modify.change };
        let result = self.control.modify_qp(modify.qpn, &change);
        answer(&modify.reply, result.map_err(RequestError::from));
    }

    fn route(&self, vector: &AddressVector, port: u8) -> Result<Route, PathError> {
        self.find(vector, port, Route::find)
    }

    fn find(&self, vector: &AddressVector, port: u8, find: FindRoute) -> Result<Route, PathError> {
        let neighbours = self.ports.neighbours.get(usize::from(port).wrapping_sub(1));
        neighbours.ok_or(PathError::NoPort(port)).and_then(|own| find(vector, port, own))
    }

    /// Goes on with the requests whose neighbours are known by now, or will never be.
    pub(super) fn resume(&mut self) {
        let now = self.now();
        for waiting in std::mem::take(&mut self.waiting) {
            let neighbours = &mut self.ports.neighbours[usize::from(waiting.route.port) - 1];
            match neighbours.resolve(now, waiting.route.next_hop) {
                Resolution::Pending => self.waiting.push(waiting),
                Resolution::Failed => {
                    self.counts.unresolved += 1;
                    waiting.then.refuse(waiting.route.no_answer().into());
                }
                Resolution::Ready(mac) => self.resolved(waiting, mac),
            }
        }
        self.ask_neighbours();
    }

    fn resolved(&mut self, waiting: Waiting, mac: Mac) {
        let Waiting { route, then } = waiting;
        match then {
            Then::Tell(reply) => answer(&reply, Ok(mac)),
            Then::Handle(reply) => {
                let neighbours = &self.ports.neighbours[usize::from(route.port) - 1];
                answer(&reply, Ok(route.handle_encap(neighbours, mac)));
            }
            Then::Modify { modify, dest_qpn } => {
                let neighbours = &self.ports.neighbours[usize::from(route.port) - 1];
                let path = route.encap(neighbours, mac, modify.qpn, dest_qpn);
                self.command(modify, Some(path));
            }
        }
    }

    /// Answers what still waits: nobody will.
    pub(super) fn refuse_waiting(&mut self) {
        for waiting in self.waiting.drain(..) {
            waiting.then.refuse(RequestError::Gone);
        }
    }
}

impl Then {
    fn refuse(self, error: RequestError) {
        match self {
            Then::Modify { modify, .. } => answer(&modify.reply, Err(error)),
            Then::Tell(reply) => answer(&reply, Err(error)),
            Then::Handle(reply) => answer(&reply, Err(error)),
        }
    }
}

/// Whether a change that brings a path has all that its transition needs beside it.
fn may_take_path(qp_type: QpType, from: QpState, change: &QpChange) -> bool {
    let Some(rule) = rule(qp_type, from, change.state.unwrap_or(from)) else { return false };
    let given = change.mask() | AttrMask::AV;
    (rule.required | rule.optional).contains(given) && given.contains(rule.required)
}

#[cfg(test)]
mod tests;
