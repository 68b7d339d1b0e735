//! Alternate paths: which ports and addresses are offered, and which of the peer's are chosen.

use std::cmp::Reverse;

use uroce_transport::{AltPath, QpAttr};
use uroce_wire::{Gid, Qpn};

use super::message::GIDS_MAX;
use crate::path::neighbour::Neighbours;
use crate::path::prefix::is_link_local;
use crate::path::{AddressVector, PathError};
use crate::rdma_cm::ServiceContext;

/// Port and addresses of a path, as this end sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pair {
    /// Local port, from 1.
    pub(super) port: u8,
    pub(super) own: Gid,
    pub(super) peer: Gid,
}

/// A path that may be agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) pair: Pair,
    vector: AddressVector,
}

impl Choice {
    fn new(attr: &QpAttr, pair: Pair, context: &ServiceContext<'_>) -> Option<Choice> {
        Some(Choice { pair, vector: vector(attr, &pair, context).ok()? })
    }

    /// Returns whether the next hop is resolved; false while it is being resolved.
    pub(super) fn resolve(&self, context: &mut ServiceContext<'_>) -> Result<bool, PathError> {
        Ok(context.look_up(self.pair.port, &self.vector)?.is_some())
    }
}

/// Returns the addresses of the ports, other than the QP's, over which it could be reached.
pub(super) fn other_gids(attr: &QpAttr, context: &ServiceContext<'_>) -> Vec<Gid> {
    // Each port's first address of each family comes before all second ones.
    let of_port = |(_, neighbours): (u8, &Neighbours)| {
        let (four, six): (Vec<Gid>, Vec<Gid>) =
            own_gids(neighbours).into_iter().partition(|gid| gid.to_ip().is_ipv4());
        let ranked = [four, six].into_iter().flat_map(|of_family| (0..).zip(of_family));
        ranked.collect::<Vec<(usize, Gid)>>()
    };
    let mut ranked: Vec<_> = other_ports(attr, context).flat_map(of_port).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, gid)| gid).take(GIDS_MAX).collect()
}

/// Returns the paths to the peer's GIDs that leave by another port than the QP's, the best first.
pub(super) fn choices(attr: &QpAttr, peers: &[Gid], context: &ServiceContext<'_>) -> Vec<Choice> {
    let all = &context.ports.neighbours;
    let is_here = |gid: &Gid| all.iter().any(|port| port.routes().is_own(gid.to_ip()));
    let mut ranked = Vec::new();
    for (port, neighbours) in other_ports(attr, context) {
        let routes = neighbours.routes();
        for peer in peers.iter().filter(|peer| !is_here(peer)) {
            let (ip, is_in_use) = (peer.to_ip(), *peer == attr.path.encap.dst);
            let Ok((len, _)) = routes.way(ip) else { continue };
            let source = |own: &Gid| own.to_ip().is_ipv4() == ip.is_ipv4();
            let of_link = routes.source_for(ip).map(Gid::from);
            let own = of_link.or_else(|| own_gids(neighbours).into_iter().find(source));
            let own = own.filter(|own| source(own) && !is_link_local(own.to_ip()));
            let pair = own.map(|own| Pair { port, own, peer: *peer });
            // An address of the peer's that is not in use belongs to another port of it.
            ranked.extend(pair.map(|pair| ((is_in_use, Reverse(len)), pair)));
        }
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    let choices = ranked.into_iter().filter_map(|(_, pair)| Choice::new(attr, pair, context));
    choices.take(GIDS_MAX).collect()
}

/// Returns the path that the peer has chosen if it leaves by another port than the QP's. `own` and
/// `peer` are its addresses as this end sees them.
pub(super) fn chosen(
    attr: &QpAttr,
    own: Gid,
    peer: Gid,
    context: &ServiceContext<'_>,
) -> Option<Choice> {
    let has_it = |(_, neighbours): &(u8, &Neighbours)| own_gids(neighbours).contains(&own);
    let (port, _) = other_ports(attr, context).find(has_it)?;
    Choice::new(attr, Pair { port, own, peer }, context)
}

/// Returns the address vector of a path, with the header fields of the path in use.
pub(super) fn vector(
    attr: &QpAttr,
    pair: &Pair,
    context: &ServiceContext<'_>,
) -> Result<AddressVector, PathError> {
    let Pair { port, own, peer } = *pair;
    let neighbours = crate::path::of_port(&context.ports.neighbours, port)?;
    let index = neighbours.routes().own().index(own.to_ip());
    let used = &attr.path.encap;
    Ok(AddressVector {
        sgid_index: index.ok_or(PathError::NoAddress(own.to_ip()))?,
        traffic_class: used.traffic_class,
        flow_label: used.flow_label,
        hop_limit: used.hop_limit,
        service_level: used.vlan.map_or(0, |vlan| vlan.pcp),
        static_rate: attr.path.rate,
        ..AddressVector::to(peer)
    })
}

/// Resolves a path; `None` while its next hop is being resolved.
pub(super) fn resolve(
    qpn: Qpn,
    attr: &QpAttr,
    pair: &Pair,
    context: &mut ServiceContext<'_>,
) -> Result<Option<AltPath>, PathError> {
    let vector = vector(attr, pair, context)?;
    let Some((route, mac)) = context.look_up(pair.port, &vector)? else { return Ok(None) };
    let neighbours = &context.ports.neighbours[usize::from(pair.port) - 1];
    let path = route.path(neighbours, mac, qpn, attr.dest_qpn);
    Ok(Some(AltPath { path, port: pair.port, pkey: attr.pkey, timeout: attr.timeout }))
}

/// Returns the ports, other than the QP's, that are up and carry its packets.
fn other_ports<'a>(
    attr: &QpAttr,
    context: &'a ServiceContext<'_>,
) -> impl Iterator<Item = (u8, &'a Neighbours)> {
    let (in_use, path_mtu) = (attr.port, attr.path_mtu);
    let ports = &context.ports;
    let fits = move |port: u8| {
        let largest = ports.table.port(port).and_then(|port| port.max_path_mtu);
        largest.is_some_and(|largest| largest.bytes() >= path_mtu.bytes())
    };
    let all = (1..).zip(ports.neighbours.iter().zip(&ports.watches));
    all.filter(move |(port, (_, watch))| *port != in_use && watch.is_up() && fits(*port))
        .map(|(port, (neighbours, _))| (port, neighbours))
}

/// Returns the addresses of a port that are valid on every link.
fn own_gids(neighbours: &Neighbours) -> Vec<Gid> {
    let own = neighbours.routes().own().prefixes().map(|prefix| prefix.address());
    own.filter(|ip| !is_link_local(*ip)).map(Gid::from).collect()
}
