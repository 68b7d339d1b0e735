//! Queues of other sizes for a QP that has nothing in its own.

use core::mem::swap;

use super::Qp;
use super::service::Service;
use crate::queue::QpCaps;
use crate::recv_queue::RecvQueue;
use crate::send_queue::SendQueue;

/// A send and a receive queue, made outside of a QP, whose own may be exchanged for them.
#[derive(Debug)]
pub struct WorkQueues {
    sq: SendQueue,
    rq: RecvQueue,
}

impl WorkQueues {
    /// Empty queues. All the memory that they will ever need is taken here.
    pub fn new(caps: &QpCaps, uses_srq: bool) -> WorkQueues {
        WorkQueues { sq: SendQueue::new(caps), rq: RecvQueue::new(caps, uses_srq) }
    }
}

impl Qp {
    /// Exchanges the QP's queues for `queues`, which are empty and of the same kind of receives;
    /// leaves its own there. Says whether it did: not while a work request is in a queue.
    pub fn exchange_queues(&mut self, queues: &mut WorkQueues) -> bool {
        if self.send_wrs() > 0 || self.recv_wrs() > 0 {
            return false;
        }
        let WorkQueues { sq, rq } = queues;
        let (own_sq, own_rq) = match &mut self.service {
            Service::Rc(rc) => (&mut rc.requester.sq, &mut rc.responder.rq),
            Service::Uc(uc) => (&mut uc.requester.sq, &mut uc.responder.rq),
            Service::Ud(ud) => (&mut ud.requester.sq, &mut ud.responder.rq),
        };
        // What the requester remembers of the queue are positions in it.
        sq.begin_at(own_sq.head());
        swap(own_sq, sq);
        swap(own_rq, rq);
        true
    }
}
