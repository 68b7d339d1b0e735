//! Calls that wait for their neighbours' Ethernet addresses.

use uroce_engine::multicast_mac;
use uroce_transport::{AltPath, AttrMask, PathAttr, QpAttr, QpChange, QpState, QpType, rule};
use uroce_wire::{Mac, Qpn};

use super::Thread;
use crate::call::{Reply, RequestError};
use crate::config::SelectiveRepeat;
use crate::failover::Failover;
use crate::log;
use crate::path::neighbour::Neighbours;
use crate::path::prefix::is_link_local;
use crate::path::route::NextHop;
use crate::path::{AddressVector, AlternateVector, PathError, Route};

/// A call that waits for the next hops of its routes.
#[derive(Debug)]
pub(super) struct Waiting {
    routes: Vec<Route>,
    then: Then,
}

/// A Modify QP with paths that have to be resolved.
#[derive(Debug)]
pub(crate) struct ModifyQp {
    pub(crate) qpn: Qpn,
    pub(crate) change: QpChange,
    pub(crate) vector: Option<AddressVector>,
    pub(crate) alternate: Option<AlternateVector>,
}

/// The step of a call that follows the resolution of its routes.
#[derive(Debug)]
enum Then {
    /// Executes the Modify QP. The routes are those of its primary and of its alternate path, in
    /// this order, as far as it has these paths.
    Modify { modify: Box<ModifyQp>, qp_type: QpType, attr: Box<QpAttr>, reply: Reply<()> },
    /// Replies with the next hop's Ethernet address.
    Tell(Reply<Mac>),
    /// Replies with the path of an address handle.
    Handle(Reply<PathAttr>),
}

impl Thread {
    /// Executes a Modify QP. Its paths are resolved first.
    pub(crate) fn modify(&mut self, mut modify: Box<ModifyQp>, reply: Reply<()>) {
        if modify.vector.is_none() && modify.alternate.is_none() {
            return reply.give(self.command(&modify, None, [None; 2]));
        }
        let (attr, qp_type) = match self.control.query_qp(modify.qpn) {
            Ok(info) => (Box::new(info.attr), info.qp_type),
            Err(error) => return reply.give(Err(error.into())),
        };
        if !may_take_paths(qp_type, attr.state, &modify) {
            // The engine refuses the change whatever its paths are, and returns the reason.
            let path = PathAttr::default();
            return reply.give(self.command(&modify, Some(qp_type), [Some(path); 2]));
        }
        self.tell_failover();
        // The path goes where the program believes the QP to be.
        let home = self.failover.as_ref().and_then(|of| of.port_of_program(modify.qpn));
        let port = modify.change.port.or(home).unwrap_or(attr.port);
        modify.change.port = modify.change.port.or(home.filter(|_| modify.vector.is_some()));
        let primary = modify.vector.map(|vector| self.route(&vector, port));
        let alternate =
            modify.alternate.map(|alternate| self.route(&alternate.vector, alternate.port));
        match primary.into_iter().chain(alternate).collect() {
            Ok(routes) => {
                let then = Then::Modify { modify, qp_type, attr, reply };
                self.waiting.push(Waiting { routes, then })
            }
            Err(error) => reply.give(Err(error.into())),
        }
    }

    /// Resolves the Ethernet address of a path's next hop. For an address of the device itself, it
    /// is the Ethernet address of the port that has the address.
    pub(crate) fn resolve(&mut self, port: u8, vector: &AddressVector, reply: Reply<Mac>) {
        let dst = vector.dgid.to_ip();
        let own = |(number, neighbours): &(u8, &Neighbours)| {
            let routes = neighbours.routes();
            let is_here = !is_link_local(dst) || *number == port;
            is_here && routes.is_own(dst) && routes.own_hop() == NextHop::Own
        };
        match self.route(vector, port) {
            Ok(_) if let Some((_, own)) = (1..).zip(&self.ports.neighbours).find(own) => {
                reply.give(Ok(own.mac()));
            }
            Ok(route) => {
                self.waiting.push(Waiting { routes: vec![route], then: Then::Tell(reply) })
            }
            Err(error) => reply.give(Err(error.into())),
        }
    }

    /// Resolves the path of an address handle. A group's Ethernet address is derived from its GID.
    pub(crate) fn resolve_handle(
        &mut self,
        port: u8,
        vector: &AddressVector,
        reply: Reply<PathAttr>,
    ) {
        let Some(mac) = multicast_mac(vector.dgid) else {
            let then = Then::Handle(reply);
            return match self.route(vector, port) {
                Ok(route) => self.waiting.push(Waiting { routes: vec![route], then }),
                Err(error) => then.refuse(error.into()),
            };
        };
        let ports = &self.ports.neighbours;
        let path = Route::to_group(vector, port, ports)
            .map(|route| route.handle_path(&ports[usize::from(port) - 1], mac));
        reply.give(path.map_err(RequestError::from));
    }

    /// Executes a Modify QP with the resolved paths. The type is that of a QP with paths.
    fn command(
        &mut self,
        modify: &ModifyQp,
        qp_type: Option<QpType>,
        [primary, alternate]: [Option<PathAttr>; 2],
    ) -> Result<(), RequestError> {
        // With this change an RC QP gets the attributes of its connection.
        let connects = qp_type == Some(QpType::Rc) && modify.change.state == Some(QpState::Rtr);
        let alternate = modify.alternate.zip(alternate);
        let alternate = alternate.map(|(alternate, path)| alternate.resolved(path));
        let change = QpChange {
            path: primary.filter(|_| modify.vector.is_some()),
            alt_path: alternate.map(|path| self.displaced(modify.qpn, path)),
            selective_repeat: self.selective_repeat_of(modify, connects),
            keepalive_ms: self.keepalive_of(modify, connects),
            ..modify.change
        };
        let result = self.control.modify_qp(modify.qpn, &change);
        log::modify_qp(modify.qpn, &change, &result);
        if let (Ok(()), Some(told)) = (&result, &mut self.told) {
            told.push((modify.qpn, change));
        }
        Ok(result?)
    }

    /// Returns the alternate path to load for a program that asks for this one: another one if the
    /// QP is on this one, unseen by the program.
    fn displaced(&mut self, qpn: Qpn, alternate: AltPath) -> AltPath {
        let is_known = |of: &&Failover| of.port_of_program(qpn).is_some();
        let Some(failover) = self.failover.as_ref().filter(is_known) else { return alternate };
        match self.control.query_qp(qpn) {
            Ok(info) => failover.displaced(qpn, &info.attr, alternate),
            Err(_) => alternate,
        }
    }

    /// Returns the attribute `selective_repeat` of a Modify QP. If the application does not give
    /// it, the QP's connection decides, and for a QP without a connection the configuration.
    fn selective_repeat_of(&self, modify: &ModifyQp, connects: bool) -> Option<bool> {
        let change = &modify.change;
        if change.selective_repeat.is_some() || !connects {
            return change.selective_repeat;
        }
        let agreed = self.service.agreement(modify.qpn, change.dest_qpn);
        let is_wanted = agreed.unwrap_or(self.selective_repeat == SelectiveRepeat::Always);
        is_wanted.then_some(true)
    }

    /// Returns the attribute `keepalive_ms` of a Modify QP. If the application does not give it,
    /// the QP's connection decides.
    fn keepalive_of(&mut self, modify: &ModifyQp, connects: bool) -> Option<u32> {
        let change = &modify.change;
        if change.keepalive_ms.is_some() || !connects {
            return change.keepalive_ms;
        }
        let now = self.now();
        let (service, context) = self.split(now);
        service.keepalive_ms(modify.qpn, change.dest_qpn, &context)
    }

    fn route(&self, vector: &AddressVector, port: u8) -> Result<Route, PathError> {
        Route::find(vector, port, &self.ports.neighbours)
    }

    /// Tries the waiting calls again, and completes those that are resolved or have failed.
    pub(super) fn resume(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            match self.look_up(&waiting.routes) {
                Ok(None) => self.waiting.push(waiting),
                Ok(Some(macs)) => {
                    tracing::debug!(?macs, "path resolved");
                    self.resolved(waiting, &macs);
                }
                Err(error) => {
                    tracing::debug!(%error, "path not resolved");
                    self.counts.unresolved += 1;
                    waiting.then.refuse(error.into());
                }
            }
        }
        self.ask_neighbours();
    }

    /// Returns the next hops' Ethernet addresses; `None` while one is being resolved.
    fn look_up(&mut self, routes: &[Route]) -> Result<Option<Vec<Mac>>, PathError> {
        let now = self.now();
        let mut macs = Vec::new();
        for route in routes {
            let neighbours = &mut self.ports.neighbours[usize::from(route.port) - 1];
            // No early return at an unresolved hop: the resolution of all hops starts at once.
            macs.extend(route.resolve(now, neighbours)?);
        }
        Ok((macs.len() == routes.len()).then_some(macs))
    }

    fn resolved(&mut self, waiting: Waiting, macs: &[Mac]) {
        let Waiting { routes, then } = waiting;
        let of = |route: &Route| &self.ports.neighbours[usize::from(route.port) - 1];
        let mut found = routes.iter().zip(macs.iter().copied());
        match then {
            Then::Tell(reply) => {
                reply.give(found.next().map(|(_, mac)| mac).ok_or(RequestError::Gone))
            }
            Then::Handle(reply) => {
                let path = found.next().map(|(route, mac)| route.handle_path(of(route), mac));
                reply.give(path.ok_or(RequestError::Gone));
            }
            Then::Modify { modify, qp_type, attr, reply } => {
                let dest = modify.change.dest_qpn.unwrap_or(attr.dest_qpn);
                let mut paths =
                    found.map(|(route, mac)| route.path(of(route), mac, modify.qpn, dest));
                let primary = modify.vector.and_then(|_| paths.next());
                let alternate = modify.alternate.and_then(|_| paths.next());
                drop(paths);
                reply.give(self.command(&modify, Some(qp_type), [primary, alternate]));
            }
        }
    }

    /// Refuses all waiting calls. Called when the thread ends.
    pub(super) fn refuse_waiting(&mut self) {
        for waiting in self.waiting.drain(..) {
            waiting.then.refuse(RequestError::Gone);
        }
        for word in self.last_words.drain(..) {
            word.refuse();
        }
    }
}

impl Then {
    fn refuse(self, error: RequestError) {
        match self {
            Then::Modify { reply, .. } => reply.give(Err(error)),
            Then::Tell(reply) => reply.give(Err(error)),
            Then::Handle(reply) => reply.give(Err(error)),
        }
    }
}

/// Tells whether a change with paths is allowed in this state and has all required attributes.
fn may_take_paths(qp_type: QpType, from: QpState, modify: &ModifyQp) -> bool {
    let to = modify.change.state.unwrap_or(from);
    let Some(rule) = rule(qp_type, from, to) else { return false };
    let mut given = modify.change.mask();
    given.set(AttrMask::AV, modify.vector.is_some());
    given.set(AttrMask::ALT_PATH, modify.alternate.is_some());
    (rule.required | rule.optional).contains(given) && given.contains(rule.required)
}

#[cfg(test)]
mod tests;
