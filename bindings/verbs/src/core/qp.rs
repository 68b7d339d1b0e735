//! State of a queue pair.

use std::sync::Arc;

use uroce_controlplane::{RequestError, random_psn};
use uroce_engine::{EventGuard, QpSpec, RecvQueueEnd, SendQueueEnd};
use uroce_transport::{Congestion, QpCaps, QpType};
use uroce_wire::{Psn, Qpn};

use super::{CqShared, PdShared, RddShared, SrqShared, XrcdShared};

/// A queue pair, which its handles keep alive. Dropping it destroys the QP.
#[derive(Debug)]
pub(crate) struct QpShared {
    pub(crate) pd: Arc<PdShared>,
    pub(crate) qpn: Qpn,
    pub(crate) lcore: usize,
    pub(crate) qp_type: QpType,
    /// The first PSN that the QP sends.
    pub(crate) psn: Psn,
    /// The QP's asynchronous events are delivered while this exists.
    _events: EventGuard,
    _srq: Option<Arc<SrqShared>>,
    _xrcd: Option<Arc<XrcdShared>>,
    _rdd: Option<Arc<RddShared>>,
    _send_cq: Arc<CqShared>,
    _recv_cq: Arc<CqShared>,
}

/// The objects that a queue pair is created with, and its parameters.
pub(crate) struct QpParts<'a> {
    pub(crate) pd: &'a Arc<PdShared>,
    pub(crate) send_cq: &'a Arc<CqShared>,
    pub(crate) recv_cq: &'a Arc<CqShared>,
    pub(crate) srq: Option<&'a Arc<SrqShared>>,
    pub(crate) xrcd: Option<&'a Arc<XrcdShared>>,
    pub(crate) rdd: Option<&'a Arc<RddShared>>,
    pub(crate) qp_type: QpType,
    pub(crate) caps: QpCaps,
    pub(crate) lcore: Option<usize>,
    pub(crate) congestion: Option<Congestion>,
}

impl QpShared {
    /// Creates a QP in RESET. Returns it with the ends of its send and receive queues for posting.
    pub(crate) fn create(
        parts: QpParts<'_>,
    ) -> Result<(Arc<QpShared>, SendQueueEnd, RecvQueueEnd), RequestError> {
        let QpParts { pd, send_cq, recv_cq, srq, xrcd, rdd, .. } = parts;
        let QpParts { qp_type, caps, lcore, congestion, .. } = parts;
        if rdd.is_some_and(|rdd| !Arc::ptr_eq(&rdd.pd.device, &pd.device)) {
            return Err(RequestError::OtherDevice);
        }
        let psn = random_psn().map_err(RequestError::NoRandomness)?;
        let handle = pd.device.create_qp(QpSpec {
            qp_type,
            srq: srq.map(|srq| Arc::clone(&srq.srq)),
            xrcd: xrcd.map(|xrcd| Arc::clone(&xrcd.domain)),
            rdd: rdd.map(|rdd| Arc::clone(&rdd.domain)),
            pd: pd.pd,
            caps,
            send_cq: Arc::clone(&send_cq.cq),
            recv_cq: Arc::clone(&recv_cq.cq),
            lcore,
            notices: false,
            congestion,
        })?;
        let shared = Arc::new(QpShared {
            pd: Arc::clone(pd),
            qpn: handle.qpn,
            lcore: handle.lcore,
            qp_type,
            psn,
            _events: handle.events,
            _srq: srq.cloned(),
            _xrcd: xrcd.cloned(),
            _rdd: rdd.cloned(),
            _send_cq: Arc::clone(send_cq),
            _recv_cq: Arc::clone(recv_cq),
        });
        Ok((shared, handle.sq, handle.rq))
    }
}

impl Drop for QpShared {
    fn drop(&mut self) {
        // This fails only if the QP's lcore is lost. The QP cannot be freed then, and nothing of it
        // runs.
        let _ = self.pd.device.destroy_qp(self.qpn);
    }
}
