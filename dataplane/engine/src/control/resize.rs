//! Resize: gives a QP with empty queues queues of other sizes.

use super::create::check_caps;
use super::{Control, ControlError, Record};
use crate::lcore::command::ResizeQp;
use crate::qp::context::Resized;
use uroce_shared::queue::{RecvQueueEnd, SendQueueEnd, core_caps};
use uroce_shared::table::qp_table::Place;
use uroce_transport::{QpCaps, QpType, WorkQueues};
use uroce_wire::Qpn;

impl Control {
    /// Gives a QP queues of other sizes, in any state, if both are empty. The new ends replace the
    /// former ones, which refuse all posts from then on.
    ///
    /// No thread may post meanwhile: a request that is posted to an old end during the call may be
    /// lost without a completion. If the QP uses a shared receive queue, only the send queue
    /// changes.
    ///
    /// # Errors
    /// [`ControlError::Outstanding`], [`ControlError::Caps`], [`ControlError::RdResize`],
    /// [`ControlError::UnknownQp`]; the QP keeps its old queues then.
    pub fn resize_qp(
        &mut self,
        qpn: Qpn,
        caps: QpCaps,
    ) -> Result<(SendQueueEnd, RecvQueueEnd), ControlError> {
        let record = self.record(qpn)?;
        let Record { index, qp_type, has_srq, .. } = record;
        if matches!(qp_type, QpType::Rd | QpType::Eec) {
            return Err(ControlError::RdResize);
        }
        let caps = match has_srq {
            true => QpCaps {
                max_recv_wr: record.caps.max_recv_wr,
                max_recv_sge: record.caps.max_recv_sge,
                ..caps
            },
            false => caps,
        };
        let caps = check_caps(caps)?;
        let owner = usize::from(record.lcore);
        let places = self.shared.places.begin(index, qpn).ok_or(ControlError::UnknownQp(qpn))?;
        let (queues, shared, sq, rq) =
            self.build_queues(Place { index, owner }, places, qp_type, &caps, has_srq);
        let core = WorkQueues::new(&core_caps(&caps), has_srq);
        let queues = Box::new(Resized { core, queues, shared });
        // The queues that are not used are freed here.
        let (_, is_done) = self.call(owner, ResizeQp { index, queues })?;
        match is_done {
            Some(true) => {}
            Some(false) => return Err(ControlError::Outstanding),
            None => return Err(ControlError::UnknownQp(qpn)),
        }
        self.qps.put(Record { caps, ..record });
        Ok((sq, rq))
    }
}
