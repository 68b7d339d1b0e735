//! Texts of connections and of paths to peers.

use super::or_dash;
use super::qp::number;
use super::table::Table;
use crate::answer::{Connection, Group, Migration, Rate, Route};

/// Returns one line for each id of the connection manager.
pub(super) fn connections(connections: &[Connection]) -> String {
    let mut table = Table::new(&[
        "Device",
        "ID",
        "Space",
        "State",
        "Local",
        "Peer",
        "QPN",
        "PeerQPN",
        "Alternate",
        "Waiting",
    ]);
    for of in connections {
        table.row([
            of.device.clone(),
            of.id.to_string(),
            of.space.clone(),
            of.state.clone(),
            of.local.to_string(),
            or_dash(of.peer),
            or_dash(of.qpn.map(number)),
            or_dash(of.peer_qpn.map(number)),
            or_dash(of.alternate.map(|(own, peer)| format!("{own} {peer}"))),
            or_dash(of.waiting),
        ]);
    }
    table.text()
}

/// Returns one line about the path migration of each QP.
pub(super) fn migrations(migrations: &[Migration]) -> String {
    let mut table = Table::new(&[
        "Device",
        "QPN",
        "QP state",
        "Migration",
        "Port",
        "Peer",
        "Alternate port",
        "Alternate peer",
        "Migrations",
        "Failover us",
    ]);
    for of in migrations {
        table.row([
            of.device.clone(),
            number(of.qpn),
            of.state.clone(),
            of.migration.clone(),
            of.port.to_string(),
            or_dash(of.peer),
            or_dash(of.alternate_port),
            or_dash(of.alternate_peer),
            of.migrations.to_string(),
            or_dash(of.failover_us),
        ]);
    }
    table.text()
}

/// Returns one line about the sending rate of each QP.
pub(super) fn rates(rates: &[Rate]) -> String {
    let mut table = Table::new(&["Device", "QPN", "Limit kbit/s", "Path"]);
    for of in rates {
        let limit = or_dash(Some(of.limit_kbps).filter(|kbps| *kbps > 0));
        table.row([of.device.clone(), number(of.qpn), limit, of.path.clone()]);
    }
    table.text()
}

/// Returns one line for each route.
pub(super) fn routes(routes: &[Route]) -> String {
    let mut table = Table::new(&["Device", "To", "Via"]);
    for of in routes {
        table.row([format!("{}/{}", of.device, of.port), of.to.clone(), or_dash(of.via)]);
    }
    table.text()
}

/// Returns one line for each QP of each group.
pub(super) fn groups(groups: &[Group]) -> String {
    let mut table = Table::new(&["Device", "Group", "QPN"]);
    for of in groups {
        let port = format!("{}/{}", of.device, of.port);
        table.row([port, of.group.to_string(), number(of.qpn)]);
    }
    table.text()
}
