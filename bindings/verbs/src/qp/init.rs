//! What a queue pair is created with.

use uroce_transport::{QpCaps, QpType};

use crate::cq::CompletionQueue;
use crate::srq::SharedReceiveQueue;

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a> {
    /// Where its sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where its receives complete; may be the same.
    pub recv_cq: &'a CompletionQueue,
    /// Transport service; RC unless said otherwise.
    pub qp_type: QpType,
    /// Where its receives come from, if not from a queue of its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// How large its queues are.
    pub caps: QpCaps,
    /// The lcore that is to serve it; the least loaded if none is named.
    pub lcore: Option<usize>,
}

impl<'a> QpInit<'a> {
    /// One completion queue for both sides, 128 work requests each way with 4 slices each.
    pub fn new(cq: &'a CompletionQueue) -> QpInit<'a> {
        let caps = QpCaps {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 0,
        };
        QpInit { send_cq: cq, recv_cq: cq, qp_type: QpType::Rc, srq: None, caps, lcore: None }
    }

    /// Of that transport service.
    pub fn qp_type(mut self, qp_type: QpType) -> QpInit<'a> {
        self.qp_type = qp_type;
        self
    }

    /// Receiving from a shared queue, whose protection domain may be another one.
    pub fn srq(mut self, srq: &'a SharedReceiveQueue) -> QpInit<'a> {
        self.srq = Some(srq);
        self
    }

    /// With room for so many bytes of inline data in each send, up to 1024.
    pub fn max_inline(mut self, bytes: u32) -> QpInit<'a> {
        self.caps.max_inline_data = bytes;
        self
    }
}
