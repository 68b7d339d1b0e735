//! Answers about connections and paths to peers.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// An id of the connection manager: a listener, a connection or a look-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// RoCE device.
    pub device: String,
    /// CM id.
    pub id: u64,
    /// Port space: TCP, or UDP for look-ups of UD QPs.
    pub space: String,
    /// State: BOUND, LISTEN, RESOLVING, REQ SENT, REQ RECEIVED, REP RECEIVED, REP SENT,
    /// ESTABLISHED, DISCONNECTING or OVER.
    pub state: String,
    /// Local address and port.
    pub local: SocketAddr,
    /// The peer's address and port; `None` for an id that is not a connection.
    pub peer: Option<SocketAddr>,
    /// Number of the local QP.
    pub qpn: Option<u32>,
    /// Number of the peer's QP, once it is known.
    pub peer_qpn: Option<u32>,
    /// Local and peer's address of the alternate path.
    pub alternate: Option<(IpAddr, IpAddr)>,
    /// Number of requests that wait for the application; `None` if the id does not listen.
    pub waiting: Option<u32>,
}

/// Path migration of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qpn: u32,
    /// State of the QP.
    pub state: String,
    /// State of path migration.
    pub migration: String,
    /// Port of the device that the QP uses, from 1.
    pub port: u8,
    /// Address of the peer.
    pub peer: Option<IpAddr>,
    /// Port of the device that the alternate path uses, from 1.
    pub alternate_port: Option<u8>,
    /// Address of the peer on the alternate path.
    pub alternate_peer: Option<IpAddr>,
    /// Migrations since the QP left RESET.
    pub migrations: u32,
    /// Duration of the last failover in microseconds.
    pub failover_us: Option<u64>,
}

/// Sending rate of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// RoCE device.
    pub device: String,
    /// Number of the QP.
    pub qpn: u32,
    /// Limit of the QP's sending rate in kbit/s; 0 means none.
    pub limit_kbps: u32,
    /// Static rate of the QP's path, as a text.
    pub path: String,
}

/// A route of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// RoCE device.
    pub device: String,
    /// Port of the device, from 1.
    pub port: u8,
    /// Destination network, with the length of its prefix.
    pub to: String,
    /// Next router; `None` if the network is on the link itself.
    pub via: Option<IpAddr>,
}

/// A multicast group that a queue pair is attached to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// RoCE device.
    pub device: String,
    /// Port of the device that has joined the group, from 1.
    pub port: u8,
    /// Number of the QP.
    pub qpn: u32,
    /// Address of the group.
    pub group: IpAddr,
}
