//! `route` and `neigh`.

use std::net::IpAddr;
use std::sync::Arc;

use rustix::io::Errno;
use uroce_command::Answer;
use uroce_command::request::{Neigh, Network, Prefix, Route, RouteVia};
use uroce_wire::Mac;

use super::{Console, Failure, Served, find_port};
use crate::path::prefix::IpNetwork;
use crate::path::route::StaticRoute;
use crate::thread::{Thread, WayError};

impl Console {
    /// Changes the routes of a port.
    pub(super) fn route(route: Route, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let (Route::Add(of) | Route::Del(of)) = route;
        let is_added = matches!(route, Route::Add(_));
        let to = static_route(&of)?;
        change(of.port, "`show route` has its routes", devices, move |thread, port| {
            thread.change_route(port, to, is_added)
        })
    }

    /// Changes the neighbours of a port.
    pub(super) fn neigh(neigh: Neigh, devices: &[Arc<Served>]) -> Result<Answer, Failure> {
        let list = "`show neigh` has its neighbours";
        match neigh {
            Neigh::Add { port, address, mac } => {
                change(port, list, devices, move |thread, port| {
                    thread.fix_neighbour(port, address, Mac(mac.0))
                })
            }
            Neigh::Del { port, address } => change(port, list, devices, move |thread, port| {
                thread.forget_neighbour(port, address)
            }),
        }
    }
}

fn static_route(route: &RouteVia) -> Result<StaticRoute, Failure> {
    let RouteVia { to, via, .. } = *route;
    let Network::Of(Prefix { address, len }) = to else { return Ok(StaticRoute::default_via(via)) };
    let to = IpNetwork::new(address, len).map_err(|error| {
        let remedy = match network_of(address, len) {
            Some(network) => format!("give the network: {network}"),
            None => "give it as 198.51.100.0/24".to_owned(),
        };
        Failure::new(Errno::INVAL, error.to_string(), remedy)
    })?;
    Ok(StaticRoute { to, via })
}

/// Returns the network in which an address is, unless the length is too long.
fn network_of(address: IpAddr, len: u8) -> Option<String> {
    let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
    let host = bits.checked_sub(u32::from(len))?;
    let network: IpAddr = match address {
        IpAddr::V4(v4) => {
            IpAddr::from((u32::from(v4) & u32::MAX.checked_shl(host).unwrap_or(0)).to_be_bytes())
        }
        IpAddr::V6(v6) => {
            IpAddr::from((u128::from(v6) & u128::MAX.checked_shl(host).unwrap_or(0)).to_be_bytes())
        }
    };
    Some(format!("{network}/{len}"))
}

/// Changes something of a port on its control-plane thread.
fn change(
    port: u16,
    list: &str,
    devices: &[Arc<Served>],
    change: impl FnOnce(&mut Thread, u8) -> Result<(), WayError> + Send + 'static,
) -> Result<Answer, Failure> {
    let (served, number) = find_port(port, devices)?;
    let changed = served.calls.call(move |thread| Ok(change(thread, number)))?;
    changed.map(|()| Answer::Done).map_err(|error| {
        let (errno, remedy) = match error {
            WayError::OfKernel => (Errno::OPNOTSUPP, "change those: ip route, ip neigh"),
            WayError::NotANeighbour(_) => (Errno::INVAL, "`show route` has the port's networks"),
            WayError::NotAHost(_) => (Errno::INVAL, "give that of the neighbour's own port"),
            WayError::Versions(_) => (Errno::INVAL, "give both as IPv4 or both as IPv6"),
            WayError::Exists(_) => (Errno::EXIST, "remove it first: route del"),
            WayError::NoRoute(_) | WayError::NoNeighbour(_) => (Errno::NOENT, list),
            WayError::Full(_) => (Errno::NOMEM, list),
            WayError::Busy(_) => (Errno::AGAIN, "try again in some seconds"),
        };
        Failure::new(errno, error.to_string(), remedy)
    })
}
