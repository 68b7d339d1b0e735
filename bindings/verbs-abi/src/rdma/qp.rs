//! Queue pairs of ids: `rdma_create_qp`, and what Modify QP takes of those that programs keep to
//! themselves.
//!
//! Not here: their states once they connect, which the connection drives.

use std::ffi::c_int;

use uroce::cm::raw::{ConnQp, PortSpace};
use uroce::{QpChange, QpState, QpType, Qpn};

use super::address;
use super::id::{self, Id, State};
use crate::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_INIT_ATTR_PD, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_UDP_QKEY, ibv_comp_channel,
    ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::ibv::pd::Pd;
use crate::ibv::{channel, cq, modify, qp};
use crate::runtime::Device;

/// READs and ATOMICs that a queue pair has outstanding at most, each way.
const MAX_RD_ATOMIC: u8 = 16;
/// What only a reliable connection has.
const RELIABLE: ibv_qp_attr_mask = IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_MAX_QP_RD_ATOMIC;
/// Minimum RNR NAK timer code: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// The number of the queue pair that an id has, if it has one.
///
/// # Errors
///
/// EINVAL: it is none of the device's.
pub(crate) fn of(id: &Entry<Id>, device: &'static Device) -> Result<Option<Qpn>, Errno> {
    let pointer = id.qp();
    if pointer.is_null() {
        return Ok(None);
    }
    let qp = qp::get(pointer)?;
    if std::ptr::eq(qp.context.device, device) {
        Ok(Some(qp.control.qpn()))
    } else {
        Err(Errno::EINVAL)
    }
}

impl Entry<Id> {
    /// Has its queue pair, if it is one of ours, show a state that the connection has taken it to.
    pub(crate) fn note_qp_state(&self, state: QpState) {
        if let Ok(qp) = qp::get(self.qp()) {
            qp::note_state(&qp, state);
        }
    }

    /// Takes its queue pair, if it is one of ours, to ERR; a connection may have done so.
    pub(crate) fn stop_qp(&self) {
        if let Ok(qp) = qp::get(self.qp()) {
            // One that cannot be stopped does nothing any more.
            let _ = qp.control.modify(&QpChange::to(QpState::Err), None);
            qp::note_state(&qp, QpState::Err);
        }
    }
}

/// Takes the queue pair of an id that accepts to RTS, before the peer hears of it: programs rely on
/// its attributes, and may post, as soon as they have accepted.
pub(crate) fn begin(id: &Entry<Id>, state: &State) -> Result<ConnQp, Errno> {
    let qp = qp::get(id.qp())?;
    for to in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        // SAFETY: a C structure of numbers.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = to;
        let mask = init_attr(id, state, &mut attr)?;
        let is_rc = qp.control.qp_type() == QpType::Rc;
        modify::modify(&qp, &attr, if is_rc { mask } else { mask & !RELIABLE })?;
    }
    let (qpn, qp_type) = (qp.control.qpn(), qp.control.qp_type());
    Ok(ConnQp::Foreign { qpn, qp_type, psn: id.psn, has_srq: qp.srq.is_some() })
}

/// Creates the queue pair of an id, of what the program leaves open with parts of the id's own, and
/// makes it ready for receives; of datagrams, for sends.
fn create(id: &Entry<Id>, init: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let rdma_cm_id { verbs, pd: own_pd, srq: own_srq, .. } = id.view();
    if id.state().device.is_none() || !id.qp().is_null() {
        return Err(Errno::EINVAL);
    }
    if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || init.pd.is_null() {
        init.comp_mask |= IBV_QP_INIT_ATTR_PD;
        init.pd = own_pd;
    }
    if crate::ibv::context::context_of(Pd::registry().get(init.pd)?.context.public()) != verbs {
        return Err(Errno::EINVAL);
    }
    if init.srq.is_null() {
        init.srq = own_srq;
    }
    let made = Queues::complete(id, init)?;
    let mut created = || {
        // SAFETY: a structure of ours, and pointers that are looked up.
        let pointer = unsafe { qp::create_qp_ex(verbs, init) };
        if pointer.is_null() {
            return Err(Errno::last());
        }
        make_ready(id, pointer).inspect_err(|_| {
            // SAFETY: the one that was just created.
            unsafe { qp::ibv_destroy_qp(pointer) };
        })?;
        Ok(pointer)
    };
    let pointer = created().inspect_err(|_| made.undo(id))?;
    id.update(|c| {
        c.qp = pointer;
        c.pd = init.pd;
    });
    Ok(())
}

/// Completion queues that were made for an id.
struct Queues {
    send: bool,
    recv: bool,
}

impl Queues {
    /// Fills in the completion queues that the program leaves open: the id's, made if it has none.
    fn complete(id: &Entry<Id>, init: &mut ibv_qp_init_attr_ex) -> Result<Queues, Errno> {
        let rdma_cm_id { send_cq, recv_cq, .. } = id.view();
        let mut made = Queues { send: false, recv: false };
        if init.recv_cq.is_null() && recv_cq.is_null() {
            let (channel, cq) = queue(id, init.cap.max_recv_wr)?;
            made.recv = true;
            id.update(|c| (c.recv_cq_channel, c.recv_cq) = (channel, cq));
        }
        if init.send_cq.is_null() && send_cq.is_null() {
            let (channel, cq) = queue(id, init.cap.max_send_wr).inspect_err(|_| made.undo(id))?;
            made.send = true;
            id.update(|c| (c.send_cq_channel, c.send_cq) = (channel, cq));
        }
        let rdma_cm_id { send_cq, recv_cq, .. } = id.view();
        if init.recv_cq.is_null() {
            init.recv_cq = recv_cq;
        }
        if init.send_cq.is_null() {
            init.send_cq = send_cq;
        }
        Ok(made)
    }

    fn undo(&self, id: &Entry<Id>) {
        destroy_queues(id, self.send, self.recv);
    }
}

/// A completion queue with a channel of its own, for so many work requests.
fn queue(id: &Entry<Id>, len: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
    let verbs = id.view().verbs;
    // SAFETY: what is passed is looked up.
    let events = unsafe { channel::ibv_create_comp_channel(verbs) };
    if events.is_null() {
        return Err(Errno::last());
    }
    let len = c_int::try_from(len.max(1)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: as above.
    let queue = unsafe { cq::ibv_create_cq(verbs, len, id.c().cast(), events, 0) };
    if queue.is_null() {
        let error = Errno::last();
        // SAFETY: the one that was just created.
        unsafe { channel::ibv_destroy_comp_channel(events) };
        return Err(error);
    }
    Ok((events, queue))
}

/// Destroys completion queues that were made for an id, and waits until their events are
/// acknowledged.
fn destroy_queues(id: &Entry<Id>, send: bool, recv: bool) {
    let nothing = (std::ptr::null_mut(), std::ptr::null_mut());
    let it = id.view();
    if recv && !it.recv_cq_channel.is_null() {
        destroy_queue(it.recv_cq_channel, it.recv_cq);
        id.update(|c| (c.recv_cq_channel, c.recv_cq) = nothing);
    }
    if send && !it.send_cq_channel.is_null() {
        destroy_queue(it.send_cq_channel, it.send_cq);
        id.update(|c| (c.send_cq_channel, c.send_cq) = nothing);
    }
}

fn destroy_queue(events: *mut ibv_comp_channel, queue: *mut ibv_cq) {
    // SAFETY: what the program may have written is looked up.
    unsafe { cq::ibv_destroy_cq(queue) };
    // SAFETY: as above.
    unsafe { channel::ibv_destroy_comp_channel(events) };
}

/// RESET to INIT, of datagrams to RTS.
fn make_ready(id: &Entry<Id>, pointer: *mut crate::abi::ibv_qp) -> Result<(), Errno> {
    let qp = qp::get(pointer)?;
    let states: &[_] = match id.space {
        PortSpace::Tcp => &[IBV_QPS_INIT],
        PortSpace::Udp => &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS],
    };
    for state in states {
        // SAFETY: a C structure of numbers.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = *state;
        let mask = init_attr(id, &id.state(), &mut attr)?;
        modify::modify(&qp, &attr, mask)?;
    }
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: what programs pass is theirs or NULL.
        let mut init = unsafe { entry::read(qp_init_attr) }?;
        create(&id, &mut init)?;
        // SAFETY: not NULL, as was seen above.
        unsafe { entry::write(qp_init_attr, init) }
    })
}

pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: what programs pass is theirs or NULL.
        let given = unsafe { entry::read(qp_init_attr) }?;
        // SAFETY: a C structure of numbers and of pointers that may be NULL.
        let mut init: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        init.qp_context = given.qp_context;
        init.send_cq = given.send_cq;
        init.recv_cq = given.recv_cq;
        init.srq = given.srq;
        init.cap = given.cap;
        init.qp_type = given.qp_type;
        init.sq_sig_all = given.sq_sig_all;
        init.comp_mask = IBV_QP_INIT_ATTR_PD;
        init.pd = pd;
        create(&id, &mut init)?;
        let got = ibv_qp_init_attr {
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            cap: init.cap,
            ..given
        };
        // SAFETY: not NULL, as was seen above.
        unsafe { entry::write(qp_init_attr, got) }
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        let id = id::get(id)?;
        let pointer = id.qp();
        // SAFETY: what the program may have written is looked up.
        let result = unsafe { qp::ibv_destroy_qp(pointer) };
        if result != 0 {
            return Err(Errno::of(result));
        }
        id.update(|c| c.qp = std::ptr::null_mut());
        destroy_queues(&id, true, true);
        Ok(())
    });
}

/// Fills in what Modify QP takes on the way to the state that `attr` names.
fn init_attr(
    id: &Entry<Id>,
    state: &State,
    attr: &mut ibv_qp_attr,
) -> Result<ibv_qp_attr_mask, Errno> {
    match (attr.qp_state, id.space) {
        (IBV_QPS_INIT, _) => to_init(id, state, attr),
        (IBV_QPS_RTR, PortSpace::Udp) => Ok(IBV_QP_STATE),
        (IBV_QPS_RTS, PortSpace::Udp) => {
            attr.sq_psn = id.psn.value();
            Ok(IBV_QP_STATE | IBV_QP_SQ_PSN)
        }
        (IBV_QPS_RTR, PortSpace::Tcp) => to_rtr(id, state, attr),
        (IBV_QPS_RTS, PortSpace::Tcp) => to_rts(state, attr),
        _ => Err(Errno::EINVAL),
    }
}

fn to_init(
    id: &Entry<Id>,
    state: &State,
    attr: &mut ibv_qp_attr,
) -> Result<ibv_qp_attr_mask, Errno> {
    if state.device.is_none() {
        return Err(Errno::EINVAL);
    }
    attr.port_num = id.view().port_num;
    attr.pkey_index = 0;
    let common = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if id.space == PortSpace::Udp {
        attr.qkey = RDMA_UDP_QKEY;
        return Ok(common | IBV_QP_QKEY);
    }
    attr.qp_access_flags = match state.agreed.map(|agreed| agreed.max_dest_rd_atomic) {
        // What the peer may do is not known yet.
        None => 0,
        Some(0) => IBV_ACCESS_REMOTE_WRITE,
        Some(_) => IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
    };
    Ok(common | IBV_QP_ACCESS_FLAGS)
}

fn to_rtr(
    id: &Entry<Id>,
    state: &State,
    attr: &mut ibv_qp_attr,
) -> Result<ibv_qp_attr_mask, Errno> {
    let agreed = state.agreed.ok_or(Errno::EINVAL)?;
    attr.ah_attr = address::ah_attr(&agreed.vector, agreed.port);
    attr.path_mtu = address::mtu(agreed.path_mtu);
    attr.dest_qp_num = agreed.peer_qpn.value();
    // The connection's own is another where it drives the queue pair.
    let is_ours = state.is_passive || id.qp().is_null();
    attr.rq_psn = if is_ours { id.psn.value() } else { agreed.rq_psn.value() };
    attr.max_dest_rd_atomic = agreed.max_dest_rd_atomic.min(MAX_RD_ATOMIC);
    attr.min_rnr_timer = MIN_RNR_TIMER;
    Ok(IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER)
}

fn to_rts(state: &State, attr: &mut ibv_qp_attr) -> Result<ibv_qp_attr_mask, Errno> {
    let agreed = state.agreed.ok_or(Errno::EINVAL)?;
    attr.sq_psn = agreed.sq_psn.value();
    attr.timeout = state.options.ack_timeout.unwrap_or(agreed.timeout);
    attr.retry_cnt = agreed.retry_cnt;
    attr.rnr_retry = agreed.rnr_retry;
    attr.max_rd_atomic = agreed.max_rd_atomic.min(MAX_RD_ATOMIC);
    Ok(IBV_QP_STATE
        | IBV_QP_SQ_PSN
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_MAX_QP_RD_ATOMIC)
}

pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        if qp_attr_mask.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: what programs pass is theirs or NULL.
        let mut attr = unsafe { entry::read(qp_attr) }?;
        let mask = init_attr(&id, &id.state(), &mut attr)?;
        // SAFETY: not NULL, as was seen above.
        unsafe { entry::write(qp_attr, attr) }?;
        // SAFETY: as above. A mask has few bits.
        unsafe { entry::write(qp_attr_mask, mask.cast_signed()) }
    })
}
