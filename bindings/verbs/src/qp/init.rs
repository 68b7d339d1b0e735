//! Parameters for creating a queue pair.

use uroce_transport::{Congestion, QpCaps, QpType};

use crate::cq::CompletionQueue;
use crate::srq::SharedReceiveQueue;

/// Parameters for creating a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a> {
    /// Completion queue of sends.
    pub send_cq: &'a CompletionQueue,
    /// Completion queue of receives. May be the same queue as `send_cq`.
    pub recv_cq: &'a CompletionQueue,
    /// Transport service. Default RC.
    pub qp_type: QpType,
    /// Shared receive queue to take receives from. Default: a receive queue of its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Sizes of the queues.
    pub caps: QpCaps,
    /// The lcore that the QP runs on. Default: the one with the fewest QPs.
    pub lcore: Option<usize>,
    /// Congestion control, for RC and UC. Default: that of the device's configuration.
    pub congestion: Option<Congestion>,
}

impl<'a> QpInit<'a> {
    /// Parameters of an RC queue pair: one completion queue for sends and receives, 128 work
    /// requests in each direction with up to 4 slices each.
    pub fn new(cq: &'a CompletionQueue) -> QpInit<'a> {
        let caps = QpCaps {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 0,
        };
        QpInit {
            send_cq: cq,
            recv_cq: cq,
            qp_type: QpType::Rc,
            srq: None,
            caps,
            lcore: None,
            congestion: None,
        }
    }

    /// Sets the transport service.
    pub fn qp_type(mut self, qp_type: QpType) -> QpInit<'a> {
        self.qp_type = qp_type;
        self
    }

    /// Takes receives from a shared receive queue, which may be in another protection domain.
    pub fn srq(mut self, srq: &'a SharedReceiveQueue) -> QpInit<'a> {
        self.srq = Some(srq);
        self
    }

    /// Sets the congestion control.
    pub fn congestion(mut self, congestion: Congestion) -> QpInit<'a> {
        self.congestion = Some(congestion);
        self
    }

    /// Reserves room for inline data in each send: up to 1024 bytes.
    pub fn max_inline(mut self, bytes: u32) -> QpInit<'a> {
        self.caps.max_inline_data = bytes;
        self
    }
}
