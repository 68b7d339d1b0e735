//! Answers about connections and the ways to peers.

use uroce_command::answer::{Connection, Group, Migration, Rate, Route};
use uroce_command::{Answer, Select, SelectCm};
use uroce_engine::QpInfo;
use uroce_wire::Qpn;

use super::super::Served;
use super::{Part, qp};
use crate::call::RequestError;
use crate::path::prefix::IpNetwork;
use crate::path::route::StaticRoute;
use crate::rdma_cm::{CmId, ConnSeen, PortSpace};

/// Number of CM ids in a part.
const PAGE: usize = 256;

/// Answers with ids of the connection manager, in pages.
pub(super) fn connections(
    served: &Served,
    select: SelectCm,
    at: u32,
) -> Result<Part, RequestError> {
    let mut seen = served.calls.call(move |thread| {
        Ok(match select {
            SelectCm::One(id) => thread.connection_seen(CmId(id.into())).into_iter().collect(),
            SelectCm::All | SelectCm::Listen => thread.connections_seen(CmId(at.into()), PAGE),
        })
    })?;
    let last = seen.last().filter(|_| seen.len() == PAGE).map(|last| last.id.0 + 1);
    let next = last.and_then(|next| u32::try_from(next).ok());
    if select == SelectCm::Listen {
        seen.retain(|one| one.waiting.is_some());
    }
    let is_found = !seen.is_empty();
    let rows = seen.into_iter().map(|one| connection(served, one)).collect();
    Ok(Part { answer: Answer::Cm(rows), is_found, next })
}

fn connection(served: &Served, seen: ConnSeen) -> Connection {
    Connection {
        device: served.config.name.clone(),
        id: seen.id.0,
        space: match seen.space {
            PortSpace::Tcp => "TCP",
            PortSpace::Udp => "UDP",
            PortSpace::Ib => "IB",
        }
        .to_owned(),
        state: seen.state.to_owned(),
        local: seen.local,
        peer: seen.peer,
        qpn: seen.qpn.map(Qpn::value),
        peer_qpn: seen.peer_qpn.map(Qpn::value),
        alternate: seen.alternate,
        waiting: seen.waiting,
    }
}

/// Answers with the path migration of QPs.
pub(super) fn migrations(served: &Served, select: Select, at: u32) -> Result<Part, RequestError> {
    qp::each(served, select, at, Answer::Migration, |served, qpn, info: &QpInfo| {
        let attr = &info.attr;
        Migration {
            device: served.config.name.clone(),
            qpn: qpn.value(),
            state: attr.state.to_string(),
            migration: attr.path_mig_state.to_string(),
            port: attr.port,
            peer: qp::address(attr.path.encap.dst),
            alternate_port: attr.alt_path.map(|alt| alt.port),
            alternate_peer: attr.alt_path.and_then(|alt| qp::address(alt.path.encap.dst)),
            migrations: info.migration.count,
            failover_us: info.migration.failover.map(|time| time.as_micros() as u64),
        }
    })
}

/// Answers with the sending rates of QPs.
pub(super) fn rates(served: &Served, select: Select, at: u32) -> Result<Part, RequestError> {
    qp::each(served, select, at, Answer::Rate, |served, qpn, info: &QpInfo| Rate {
        device: served.config.name.clone(),
        qpn: qpn.value(),
        limit_kbps: info.attr.rate_limit,
        path: info.attr.path.rate.to_string(),
    })
}

/// Answers with the multicast groups of a device.
pub(super) fn groups(served: &Served) -> Result<Answer, RequestError> {
    let members = served.calls.call(|thread| Ok(thread.groups_seen()))?;
    let group = |(qpn, gid, port): (Qpn, uroce_wire::Gid, u8)| Group {
        device: served.config.name.clone(),
        port,
        qpn: qpn.value(),
        group: gid.to_ip(),
    };
    let mut rows: Vec<Group> = members.into_iter().map(group).collect();
    rows.sort_by_key(|row| (row.port, row.group, row.qpn));
    Ok(Answer::Mcast(rows))
}

/// Returns the routes of a device: networks of its ports, static routes, gateways.
pub(super) fn routes(served: &Served) -> Result<Answer, RequestError> {
    // A device has at most 16 ports.
    let ports = served.calls.call(|thread| Ok(thread.routes_seen()))?;
    let of_port = |((own, routes), port): ((Vec<IpNetwork>, Vec<StaticRoute>), u8)| {
        let route = |to: String, via| Route { device: served.config.name.clone(), port, to, via };
        let name = |to: IpNetwork| match to.len() {
            0 => "default".to_owned(),
            _ => to.to_string(),
        };
        let own = own.into_iter().map(|network| route(network.to_string(), None));
        let routed = routes.into_iter().map(|of| route(name(of.to), Some(of.via)));
        own.chain(routed).collect::<Vec<_>>()
    };
    Ok(Answer::Route(ports.into_iter().zip(1..).flat_map(of_port).collect()))
}
