//! State of ids, for `show cm`.

use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};

use uroce_wire::Qpn;

use super::Service;
use crate::rdma_cm::connection::{Connection, Listener, Stage};
use crate::rdma_cm::{CmId, PortSpace};

/// State of an id at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ConnSeen {
    pub(crate) id: CmId,
    pub(crate) space: PortSpace,
    pub(crate) state: &'static str,
    pub(crate) local: SocketAddr,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) qpn: Option<Qpn>,
    pub(crate) peer_qpn: Option<Qpn>,
    /// Alternate path: the local and the peer's address.
    pub(crate) alternate: Option<(IpAddr, IpAddr)>,
    /// Number of requests that wait for the application; `None` if the id does not listen.
    pub(crate) waiting: Option<u32>,
    /// No further event of the id is reported. The id stays until its last messages are exchanged.
    pub(crate) is_orphan: bool,
}

impl Service {
    /// Returns the state of up to `most` ids, in ascending order, beginning with `from`.
    pub(crate) fn ids_seen(&self, from: CmId, most: usize) -> Vec<ConnSeen> {
        // The largest id is on top, and is removed if there are more than `most`.
        let mut first = BinaryHeap::with_capacity(most + 1);
        let ids = self.connections.keys().chain(self.common.listeners.keys());
        for id in ids.filter(|id| **id >= from) {
            first.push(*id);
            if first.len() > most {
                first.pop();
            }
        }
        first.into_sorted_vec().into_iter().filter_map(|id| self.id_seen(id)).collect()
    }

    /// Returns the state of an id; `None` if it does not exist.
    pub(crate) fn id_seen(&self, id: CmId) -> Option<ConnSeen> {
        let connection = self.connections.get(&id).map(|of| self.connection_seen(of));
        connection.or_else(|| self.common.listeners.get(&id).map(|of| listener_seen(id, of)))
    }

    fn connection_seen(&self, of: &Connection) -> ConnSeen {
        ConnSeen {
            id: of.id,
            space: of.space,
            state: match of.stage(&self.common.cm) {
                Stage::Resolving(_) => "RESOLVING",
                Stage::Asked => "REQ SENT",
                Stage::Requested => "REQ RECEIVED",
                Stage::Answered => "REP RECEIVED",
                Stage::Replied => "REP SENT",
                Stage::Established => "ESTABLISHED",
                Stage::Ending => "DISCONNECTING",
                Stage::Over => "OVER",
            },
            local: of.local,
            peer: Some(of.peer),
            qpn: of.qp.map(|own| own.qpn),
            peer_qpn: of.agreed.map(|agreed| agreed.peer_qpn),
            alternate: of.alternate.map(|way| way.addresses()),
            waiting: None,
            is_orphan: of.is_orphan,
        }
    }
}

fn listener_seen(id: CmId, of: &Listener) -> ConnSeen {
    ConnSeen {
        id,
        space: of.space,
        state: if of.backlog.is_some() { "LISTEN" } else { "BOUND" },
        local: of.address,
        peer: None,
        qpn: None,
        peer_qpn: None,
        alternate: None,
        waiting: of.backlog.map(|_| of.waiting),
        is_orphan: false,
    }
}
