//! Exchange of the work queues of a QP for queues of another size.

use core::mem::swap;

use super::Qp;
use super::service::Service;
use crate::queue::QpCaps;
use crate::rc::Rc;
use crate::recv_queue::RecvQueue;
use crate::send_queue::SendQueue;
use crate::wqe::RdAddress;

/// A send queue and a receive queue outside of a QP, to be exchanged for the QP's own.
#[derive(Debug)]
pub struct WorkQueues {
    sq: SendQueue,
    rq: RecvQueue,
    /// Used by RD QPs.
    addresses: Box<[RdAddress]>,
}

impl WorkQueues {
    /// Creates empty queues. Allocates all memory that they will ever need.
    pub fn new(caps: &QpCaps, uses_srq: bool) -> WorkQueues {
        let sq = SendQueue::new(caps);
        let addresses = RdAddress::of_slots(sq.slots());
        WorkQueues { sq, rq: RecvQueue::new(caps, uses_srq), addresses }
    }
}

impl Qp {
    /// Exchanges the QP's queues for `queues`, which must be empty and of the same `uses_srq`.
    /// Afterwards `queues` holds the former ones. Returns false, without a change, if a work
    /// request is in one of the QP's queues.
    //= check H12 — PSNs and state go on; only the queues are others
    pub fn exchange_queues(&mut self, queues: &mut WorkQueues) -> bool {
        if self.send_wrs() > 0 || self.recv_wrs() > 0 {
            return false;
        }
        let WorkQueues { sq, rq, addresses } = queues;
        let (own_sq, own_rq) = match &mut self.service {
            Service::Rc(rc) => (&mut rc.requester.sq, &mut rc.responder.rq),
            Service::Uc(uc) => (&mut uc.requester.sq, &mut uc.responder.rq),
            Service::Xrc(xrc) => {
                let rc: &mut Rc = xrc;
                (&mut rc.requester.sq, &mut rc.responder.rq)
            }
            Service::Ud(ud) => (&mut ud.requester.sq, &mut ud.responder.rq),
            Service::Rd(rd) => {
                swap(&mut rd.requester.addresses, addresses);
                (&mut rd.requester.sq, &mut rd.responder.rq)
            }
            // Its queue is not the application's.
            Service::Eec(_) => return false,
            Service::Raw(raw) => (&mut raw.requester.sq, &mut raw.responder.rq),
        };
        swap(own_sq, sq);
        swap(own_rq, rq);
        if let Some(rc) = self.service.reliable_mut() {
            rc.requester.restart_positions();
        }
        true
    }
}
