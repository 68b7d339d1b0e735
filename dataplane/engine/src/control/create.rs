//! Create QP: makes everything that a QP will ever need and gives it to its lcore.

use super::{Control, ControlError, QpHandle, QpSpec, Record};
use crate::lcore::command::CreateQp;
use crate::qp::completions::Completions;
use crate::qp::context::{QpContext, QpEvents, Queues};
use std::cell::RefCell;
use std::sync::Arc;
use uroce_shared::queue::places::QpPlaces;
use uroce_shared::queue::{
    MAX_SGE, MAX_WR, QpShared, RecvQueueEnd, RingSpec, SendQueueEnd, SendSpec, SharedReceiveQueue,
    core_caps, recv_queue, send_queue,
};
use uroce_shared::table::qp_table::Place;
use uroce_shared::wake::events::{EventRaiser, Subject};
use uroce_transport::{MAX_INLINE_DATA, Qp, QpCaps, QpInit, QpType, Rdd};
use uroce_wire::Qpn;

/// QPNs that no new QP gets: 0, the general services interface, and multicast.
const NEVER: [u32; 3] = [0, 1, 0xff_ffff];

/// The place of a new QP.
struct Site {
    qpn: Qpn,
    index: u32,
    lcore: usize,
    events: EventRaiser,
    places: QpPlaces,
}

impl Control {
    /// Creates a QP. All its memory is allocated here, none later.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn create_qp(&mut self, spec: &QpSpec) -> Result<QpHandle, ControlError> {
        if spec.qp_type == QpType::Gsi {
            return Err(ControlError::QpType(spec.qp_type));
        }
        if spec.qp_type.is_raw() && self.ports.iter().any(|port| !port.port.carries_frames()) {
            return Err(ControlError::NoFrames);
        }
        let is_target = spec.qp_type == QpType::XrcRecv;
        let misused = |srq: &Arc<SharedReceiveQueue>| spec.qp_type.is_xrc() || srq.is_named();
        if spec.xrcd.is_some() != is_target || spec.srq.as_ref().is_some_and(misused) {
            return Err(ControlError::XrcDomain);
        }
        let is_rd = matches!(spec.qp_type, QpType::Rd | QpType::Eec);
        let is_eec = spec.qp_type == QpType::Eec;
        if spec.rdd.is_some() != is_rd || is_eec && spec.srq.is_some() {
            return Err(ControlError::RdDomain);
        }
        let caps = caps_of(spec)?;
        let home = spec.rdd.as_ref().map(|domain| domain.home());
        let lcore = self.choose_lcore(home.or(spec.lcore))?;
        let (index, qpn) = self.take_number().ok_or(ControlError::NoQpLeft)?;
        let Some(events) = self.shared.events.admit(Subject::Qp(qpn)) else {
            self.slots.give_back(index);
            return Err(ControlError::NoEventsLeft);
        };
        let Some(places) = self.shared.places.begin(index, qpn) else {
            self.slots.give_back(index);
            return Err(ControlError::NoQpLeft);
        };
        let site = Site { qpn, index, lcore, events: events.raiser(), places };
        let (context, sq, rq) = self.build_qp(spec, &caps, site);
        // If the call fails, the lcore may still accept the QP later, so the slot is not used
        // again.
        let created = self.call(lcore, CreateQp { index, context })?;
        created.map_err(|_| ControlError::LcoreDied(lcore))?;
        self.lcores[lcore].qps += 1;
        let (qp_type, has_srq) = (spec.qp_type, has_no_receives(spec));
        self.qps.put(Record::new(qpn, index, lcore, qp_type, has_srq, caps));
        Ok(QpHandle { qpn, lcore, sq, rq, events })
    }

    /// Keeps a QPN from being given to a new QP until it is [released](Control::release_qpn), even
    /// after its QP was destroyed: packets to it may still be under way.
    //= check J9 — not another QP's before it is released
    pub fn hold_qpn(&mut self, qpn: Qpn) {
        self.held.insert(qpn);
    }

    /// Ends [`hold_qpn`](Control::hold_qpn).
    pub fn release_qpn(&mut self, qpn: Qpn) {
        self.held.remove(&qpn);
    }

    /// Keeps the QPN of a QP that was destroyed without its owner from being given to a new QP,
    /// until the owner [destroys](Control::destroy_qp) it, too.
    pub fn abandon_qpn(&mut self, qpn: Qpn) {
        self.abandoned.insert(qpn);
    }

    /// Takes a free slot and makes its QPN, which must not be held or abandoned.
    fn take_number(&mut self) -> Option<(u32, Qpn)> {
        let (numbers, held, abandoned) = (self.qps.numbers(), &self.held, &self.abandoned);
        let is_held = |number| {
            let qpn = Qpn::new(number);
            held.contains(&qpn) || abandoned.contains(&qpn)
        };
        let name = |at, life| numbers.qpn(at, life);
        let count = held.len() + abandoned.len();
        let (index, number) = self.slots.take_unless(name, &NEVER, is_held, count)?;
        Some((index, Qpn::new(number)))
    }

    fn choose_lcore(&self, wish: Option<usize>) -> Result<usize, ControlError> {
        match wish {
            Some(lcore) if lcore < self.lcores.len() => Ok(lcore),
            Some(lcore) => Err(ControlError::NoSuchLcore(lcore)),
            None => {
                let least = self.lcores.iter().enumerate().min_by_key(|(_, link)| link.qps);
                Ok(least.map_or(0, |(lcore, _)| lcore))
            }
        }
    }

    fn build_qp(
        &self,
        spec: &QpSpec,
        caps: &QpCaps,
        site: Site,
    ) -> (Box<QpContext>, SendQueueEnd, RecvQueueEnd) {
        let QpSpec { qp_type, pd, send_cq, recv_cq, srq, xrcd, .. } = spec;
        let Site { qpn, index, lcore, events, places } = site;
        let place = Place { index, owner: lcore };
        let (queues, shared, sq, rq) =
            self.build_queues(place, places, *qp_type, caps, has_no_receives(spec));
        let cqs = [send_cq, recv_cq].map(Arc::clone);
        cqs.iter().for_each(|cq| cq.add_lcore(lcore));
        let completions = Completions::new(cqs, index);
        let events = QpEvents { raiser: events, notices: spec.notices.then_some(index) };
        let init = QpInit {
            srq: srq.as_ref().map(|srq| srq.pd()),
            rdd: spec.rdd.as_ref().map_or(Rdd::default(), |domain| domain.number()),
            congestion: spec.congestion.unwrap_or(self.congestion),
            notification: self.notification,
            ..QpInit::new(*qp_type, core_caps(caps))
        };
        let qp = Qp::new(qpn, *pd, &init);
        let xrcd = xrcd.as_ref().map(|domain| domain.number());
        let context = QpContext::new(qp, queues, shared, completions, events, srq.clone(), xrcd);
        (Box::new(context), sq, rq)
    }

    /// Makes both ends of a QP's queues, and the state that they share.
    pub(super) fn build_queues(
        &self,
        Place { index, owner }: Place,
        places: QpPlaces,
        qp_type: QpType,
        caps: &QpCaps,
        uses_srq: bool,
    ) -> (Queues, Arc<QpShared>, SendQueueEnd, RecvQueueEnd) {
        let shared = Arc::new(QpShared::new(places));
        let ring = |depth, max_sge| RingSpec {
            shared: Arc::clone(&shared),
            doorbell: Arc::clone(&self.lcores[owner].doorbell),
            index,
            depth,
            max_sge,
        };
        let send = SendSpec { qp_type, max_inline: caps.max_inline_data };
        let (sq, sq_feed) = send_queue(ring(caps.max_send_wr, caps.max_send_sge), send);
        let depth = if uses_srq { 0 } else { caps.max_recv_wr };
        let (rq, rq_feed) = recv_queue(ring(depth, caps.max_recv_sge), uses_srq);
        (Queues { sq: sq_feed, rq: RefCell::new(rq_feed) }, shared, sq, rq)
    }
}

/// Returns whether the QP has no receive queue of its own.
fn has_no_receives(spec: &QpSpec) -> bool {
    spec.srq.is_some() || spec.qp_type.is_xrc() || spec.qp_type == QpType::Eec
}

/// Returns the sizes of the QP's queues, if they are possible.
fn caps_of(spec: &QpSpec) -> Result<QpCaps, ControlError> {
    let caps = match &spec.srq {
        // The core holds one receive of any shared queue at a time, and posts of sends are refused.
        None if matches!(spec.qp_type, QpType::XrcRecv | QpType::Eec) => {
            let (max_send_wr, max_send_sge, max_inline_data) = (1, 1, 0);
            let (max_recv_wr, max_recv_sge) = (1, MAX_SGE);
            QpCaps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        }
        None if spec.qp_type == QpType::XrcSend => {
            QpCaps { max_recv_wr: 0, max_recv_sge: 1, ..spec.caps }
        }
        // The core holds one receive of the shared queue at a time.
        Some(srq) => QpCaps { max_recv_wr: 1, max_recv_sge: srq.max_sge(), ..spec.caps },
        None => spec.caps,
    };
    check_caps(caps)
}

/// Returns the sizes if queues can have them.
pub(super) fn check_caps(caps: QpCaps) -> Result<QpCaps, ControlError> {
    let sends = (1..=MAX_WR).contains(&caps.max_send_wr);
    let receives = caps.max_recv_wr <= MAX_WR;
    let sges = [caps.max_send_sge, caps.max_recv_sge];
    let sges = sges.iter().all(|sge| (1..=MAX_SGE).contains(sge));
    let inline = caps.max_inline_data <= MAX_INLINE_DATA;
    if sends && receives && sges && inline { Ok(caps) } else { Err(ControlError::Caps(caps)) }
}
