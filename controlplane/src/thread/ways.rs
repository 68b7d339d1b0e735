//! Routes and neighbours that commands add and remove.

use std::net::IpAddr;

use uroce_wire::Mac;

use super::Thread;
use crate::config::check::ROUTES_MAX;
use crate::path::neighbour::{ASKED_MAX, FIXED_MAX, Neighbours, NoRoom, host_mac};
use crate::path::prefix::IpNetwork;
use crate::path::route::StaticRoute;

/// Reason for which a route or a neighbour does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WayError {
    /// The kernel finds routes and neighbours.
    #[error("the kernel finds the port's routes and neighbours")]
    OfKernel,
    /// The address is not one of the link.
    #[error("{0} is not another host on the port's link")]
    NotANeighbour(IpAddr),
    /// The address is one of several hosts', or of none.
    #[error("{0} is not the Ethernet address of one host")]
    NotAHost(Mac),
    /// The network has another IP version than the router.
    #[error("{to} and {via} have different IP versions", to = .0.to, via = .0.via)]
    Versions(StaticRoute),
    /// There is a route to the network.
    #[error("the port has a route to {to} via {via} already", to = .0.to, via = .0.via)]
    Exists(StaticRoute),
    /// There is no such route.
    #[error("the port has no route to {to} via {via}", to = .0.to, via = .0.via)]
    NoRoute(StaticRoute),
    /// There is no such neighbour, or it is being asked for its address at this moment.
    #[error("the port knows no neighbour {0}, or is asking for it")]
    NoNeighbour(IpAddr),
    /// There is no room.
    #[error("the port has no room for another one: {0} are the most")]
    Full(usize),
    /// All entries for neighbours are fixed, or being requested.
    #[error("the port is asking for so many neighbours that it has no room: {0} are the most")]
    Busy(usize),
}

impl Thread {
    /// Adds a static route to a port, or removes it. Paths that are set keep their next hops.
    pub(crate) fn change_route(
        &mut self,
        port: u8,
        route: StaticRoute,
        is_added: bool,
    ) -> Result<(), WayError> {
        let routes = self.own_ways(port)?.routes_mut();
        let is_neighbour = routes.is_neighbour(route.via);
        let known = routes.static_routes_mut();
        if !is_added {
            let at = known.iter().position(|of| *of == route).ok_or(WayError::NoRoute(route))?;
            known.remove(at);
            return Ok(());
        }
        if route.to.is_ipv4() != route.via.is_ipv4() {
            return Err(WayError::Versions(route));
        }
        if !is_neighbour {
            return Err(WayError::NotANeighbour(route.via));
        }
        if let Some(there) = known.iter().find(|of| of.to == route.to) {
            return Err(WayError::Exists(*there));
        }
        if known.len() >= ROUTES_MAX {
            return Err(WayError::Full(ROUTES_MAX));
        }
        known.push(route);
        Ok(())
    }

    /// Fixes the Ethernet address of a port's neighbour.
    pub(crate) fn fix_neighbour(&mut self, port: u8, ip: IpAddr, mac: Mac) -> Result<(), WayError> {
        let now = self.now();
        let neighbours = self.own_ways(port)?;
        if !neighbours.routes().is_neighbour(ip) {
            return Err(WayError::NotANeighbour(ip));
        }
        let mac = host_mac(mac).map_err(|_| WayError::NotAHost(mac))?;
        neighbours.fix(now, ip, mac).map_err(|limit| match limit {
            NoRoom::Fixed => WayError::Full(FIXED_MAX),
            NoRoom::Asking => WayError::Busy(ASKED_MAX),
        })
    }

    /// Forgets a port's neighbour, fixed or not.
    pub(crate) fn forget_neighbour(&mut self, port: u8, ip: IpAddr) -> Result<(), WayError> {
        let is_gone = self.own_ways(port)?.remove(ip);
        if is_gone { Ok(()) } else { Err(WayError::NoNeighbour(ip)) }
    }

    /// Returns for each port its own networks and static routes, in the order in which they count.
    pub(crate) fn routes_seen(&self) -> Vec<(Vec<IpNetwork>, Vec<StaticRoute>)> {
        let of_port = |port: &Neighbours| {
            let own = port.routes().own().prefixes().map(|own| own.network()).collect();
            (own, port.routes().static_routes().to_vec())
        };
        self.ports.neighbours.iter().map(of_port).collect()
    }

    /// Returns a port if its routes and neighbours are not the kernel's.
    fn own_ways(&mut self, port: u8) -> Result<&mut Neighbours, WayError> {
        let neighbours = &mut self.ports.neighbours[usize::from(port) - 1];
        if neighbours.is_of_kernel() { Err(WayError::OfKernel) } else { Ok(neighbours) }
    }
}
