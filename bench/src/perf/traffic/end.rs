//! Address of one end, as the two ends exchange it.

use crate::error::{BenchError, Step};
use crate::node::{Node, PORT};
use serde::{Deserialize, Serialize};
use uroce::{Endpoint, Gid, Psn, Qpn, QueuePair, RemoteBuffer, Rkey, SharedReceiveQueue, Srqn, Va};

/// One end of a queue pair's connection, with the memory for the peer's requests. That of RD is the
/// EE context by which the queue pair sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// GID.
    pub(crate) gid: [u8; 16],
    /// Queue pair number.
    pub(crate) qpn: u32,
    /// PSN of the first packet that it sends.
    pub(crate) psn: u32,
    /// Virtual address of the memory.
    pub(crate) va: u64,
    /// R_Key of the memory.
    pub(crate) rkey: u32,
    /// Length of the memory in bytes.
    pub(crate) len: u64,
    /// Number of the XRC shared receive queue; 0 for other services.
    pub(crate) srqn: u32,
    /// Number of the RD EE context; 0 for other services.
    pub(crate) eecn: u32,
    /// Q_Key of the RD queue pair; 0 for other services.
    pub(crate) qkey: u32,
}

impl End {
    pub(super) fn of(
        node: &Node,
        qp: &QueuePair,
        memory: RemoteBuffer,
        srq: Option<&SharedReceiveQueue>,
    ) -> Result<Self, BenchError> {
        let endpoint = qp.endpoint(PORT, node.gid_index).step("our address")?;
        let srqn = srq.and_then(SharedReceiveQueue::xrc_number).map_or(0, Srqn::value);
        Ok(Self { srqn, ..Self::new(&endpoint, memory) })
    }

    /// The end of a connection, without the numbers that only some services have.
    pub(super) fn new(endpoint: &Endpoint, memory: RemoteBuffer) -> Self {
        Self {
            gid: endpoint.gid.0,
            qpn: endpoint.qpn.value(),
            psn: endpoint.psn.value(),
            va: memory.va.0,
            rkey: memory.rkey.0,
            len: memory.len,
            srqn: 0,
            eecn: 0,
            qkey: 0,
        }
    }

    pub(super) fn remote(&self) -> RemoteBuffer {
        RemoteBuffer { va: Va(self.va), rkey: Rkey(self.rkey), len: self.len }
    }

    pub(super) fn endpoint(&self) -> Endpoint {
        Endpoint { gid: Gid(self.gid), qpn: Qpn::new(self.qpn), psn: Psn::new(self.psn) }
    }

    /// The EE context as an end of a connection.
    pub(super) fn ee_context(&self) -> Endpoint {
        Endpoint { qpn: Qpn::new(self.eecn), ..self.endpoint() }
    }
}
