//! What an EEC needs of the requester ([`crate::rd`]): one message at a time, which may be given
//! up.

use uroce_wire::PathMtu;

use super::Requester;
use crate::attr::Attributes;
use crate::send_queue::SendQueue;
use crate::time::Instant;
use crate::wqe::{SendOp, SendWr};
use uroce_wire::Srqn;

impl Requester {
    /// Takes a copy of the oldest WQE of `from`, to be sent next. Nothing else is in the queue.
    pub(crate) fn begin_message(
        &mut self,
        from: &SendQueue,
        rnr_left: Option<u8>,
        attr: &Attributes,
    ) {
        self.sq.copy_front(from, attr.path_mtu);
        self.retry.set_rnr_left(rnr_left.unwrap_or(attr.rnr_retry));
    }

    /// Puts a message of one packet without payload in the queue, which is empty.
    pub(crate) fn begin_resync(&mut self, path_mtu: PathMtu) {
        let wr = SendWr {
            wr_id: 0,
            op: SendOp::Send { imm: None },
            signaled: true,
            solicited: false,
            fence: false,
            srqn: Srqn::default(),
        };
        // The queue is empty, and the request suits it.
        let _ = self.sq.post(&wr, &[], crate::QpType::Rc, path_mtu);
    }

    /// Gives up everything in the queue, without completions. The next message has the PSN after
    /// the newest that was sent.
    pub(crate) fn abandon(&mut self, attr: &Attributes) {
        self.sq.clear();
        if seeded!(RdPsnReused) {
            self.end_psn = self.unacked_psn;
        }
        self.cursor = self.sq.head();
        self.begun = self.cursor;
        (self.rd_atomic, self.unasked) = (0, 0);
        (self.next_psn, self.unacked_psn) = (self.end_psn, self.end_psn);
        self.trip.forget_timed();
        self.retry.retune(attr);
    }

    /// Forgets credits that the peer has given: messages that were given up are not in its count,
    /// and receives are those of many RD QPs.
    pub(crate) fn ignore_credits(&mut self) {
        self.is_limited = false;
    }

    /// End of the RNR wait that goes on, and the retries that are left after it; `None` if none
    /// goes on.
    pub(crate) fn rnr_wait(&self) -> Option<(Instant, u8)> {
        self.retry.rnr_wait()
    }
}
