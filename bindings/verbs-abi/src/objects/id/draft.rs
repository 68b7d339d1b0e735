//! Events of ids before they are delivered.

use std::ffi::c_int;
use std::sync::Arc;

use uroce::AddressVector;
use uroce::cm::Agreed;
use uroce::cm::raw::{ConnectRequest, Datagrams};

use crate::abi::rdma_cm_event_type;
use crate::acks::Acks;
use crate::errno::Errno;

/// An event before it is delivered.
pub(crate) struct Draft {
    pub(crate) event: rdma_cm_event_type,
    /// 0, a negative error number, or the reason for which the peer rejected.
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// Private data for the program, at most [`DATA_MAX`](super::super::cm_event::DATA_MAX) bytes.
    pub(crate) private_data: Vec<u8>,
    /// The counter of the event, if it is not the id's.
    pub(crate) acks: Option<Arc<Acks>>,
}

/// The parameters of an event.
#[derive(Clone, Copy)]
pub(crate) enum Param {
    None,
    Conn(Conn),
    Ud(Ud),
}

/// Parameters of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: bool,
    pub(crate) qp_num: u32,
}

/// Parameters of datagrams.
#[derive(Clone, Copy)]
pub(crate) struct Ud {
    pub(crate) vector: AddressVector,
    pub(crate) port: u8,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
    /// The context that the program passed to `rdma_join_multicast`, as an exposed address. It is
    /// returned as private data. 0 if there is none.
    pub(crate) context: usize,
}

impl Draft {
    /// An event without parameters.
    pub(crate) fn plain(event: rdma_cm_event_type) -> Draft {
        Draft { event, status: 0, param: Param::None, private_data: Vec::new(), acks: None }
    }

    /// An event with an error number.
    pub(crate) fn failed(event: rdma_cm_event_type, error: Errno) -> Draft {
        Draft { status: -error.code(), ..Draft::plain(event) }
    }

    pub(crate) fn conn(self, conn: Conn) -> Draft {
        Draft { param: Param::Conn(conn), ..self }
    }

    pub(crate) fn data(self, private_data: Vec<u8>) -> Draft {
        Draft { private_data, ..self }
    }
}

impl From<&Agreed> for Conn {
    fn from(agreed: &Agreed) -> Conn {
        Conn {
            responder_resources: agreed.max_dest_rd_atomic,
            initiator_depth: agreed.max_rd_atomic,
            flow_control: agreed.flow_control,
            retry_count: agreed.retry_cnt,
            rnr_retry_count: agreed.rnr_retry,
            srq: agreed.peer_has_srq,
            qp_num: agreed.peer_qpn.value(),
        }
    }
}

impl From<&ConnectRequest> for Conn {
    fn from(request: &ConnectRequest) -> Conn {
        Conn {
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            flow_control: request.flow_control,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            srq: request.has_srq,
            qp_num: request.peer_qpn.value(),
        }
    }
}

impl From<&Datagrams> for Ud {
    fn from(datagrams: &Datagrams) -> Ud {
        Ud {
            vector: datagrams.vector,
            port: datagrams.port,
            qp_num: datagrams.qpn.value(),
            qkey: datagrams.qkey.0,
            context: 0,
        }
    }
}
