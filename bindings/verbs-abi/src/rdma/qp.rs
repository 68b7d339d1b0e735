//! `rdma_create_qp`: queue pairs of ids.
//!
//! Not here: the attributes for Modify QP ([`super::attr`]); states after the connection has begun,
//! which the connection drives.

use std::ffi::c_int;

use uroce::cm::raw::ConnQp;
use uroce::{QpChange, QpState, QpType, Qpn};

use super::attr::{attributes_of, init_attr};
use super::shared;
use crate::abi::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_XRCD, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS,
    IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_attr,
    ibv_qp_init_attr, ibv_qp_init_attr_ex, rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::ibv::{channel, cq, modify, qp as calls};
use crate::objects::id::{self, Id, State};
use crate::objects::pd::Pd;
use crate::objects::{context, qp};
use crate::runtime::Device;

/// The number of an id's queue pair. `None` if it has none.
///
/// # Errors
///
/// EINVAL if it is not a queue pair of this device.
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

/// The type of an id's queue pair, also of one that the program manages itself.
///
/// # Errors
///
/// EINVAL if the program has written no type of a connection into the id.
pub(super) fn type_of(id: &Entry<Id>) -> Result<QpType, Errno> {
    match id.space.connects() {
        false => Ok(QpType::Ud),
        true => calls::type_of(id.view().qp_type)
            .ok()
            .filter(|it| !it.is_datagram())
            .ok_or(Errno::EINVAL),
    }
}

impl Entry<Id> {
    /// Writes the state that the connection has given the id's queue pair to the public structure,
    /// if it is a queue pair of this library.
    pub(crate) fn note_qp_state(&self, state: QpState) {
        if let Ok(qp) = qp::get(self.qp()) {
            qp.note_state(state);
        }
    }

    /// Modifies the id's queue pair to ERR, if it is a queue pair of this library.
    pub(crate) fn stop_qp(&self) {
        if let Ok(qp) = qp::get(self.qp()) {
            // This fails only if the queue pair is inactive anyway.
            let _ = qp.engine().map(|qp| qp.modify(&QpChange::to(QpState::Err), None));
            qp.note_state(QpState::Err);
        }
    }
}

/// Modifies the queue pair of an accepting id to RTS before the answer is sent. Programs rely on
/// its attributes, and may post sends, as soon as they have accepted.
pub(crate) fn begin(id: &Entry<Id>, state: &State) -> Result<ConnQp, Errno> {
    let qp = qp::get(id.qp())?;
    for to in [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS] {
        // SAFETY: a C structure of numbers, for which zeros are valid.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = to;
        let is_rc = qp.control.qp_type() == QpType::Rc;
        let mask = init_attr(id, state, &mut attr)? & attributes_of(qp.control.qp_type());
        let agreed = state.agreed.filter(|_| is_rc && to == IBV_QPS_RTR);
        let selective_repeat = agreed.map(|agreed| agreed.selective_repeat);
        modify::modify_connected(&qp, &attr, mask, selective_repeat)?;
    }
    let (qpn, qp_type) = (qp.control.qpn(), qp.control.qp_type());
    let (psn, has_srq, stops_with_peer) = (id.psn, qp.srq.is_some(), true);
    Ok(ConnQp::Foreign { qpn, qp_type, psn, has_srq, stops_with_peer })
}

/// Creates the queue pair of an id and modifies it to INIT, or a UD queue pair to RTS. Uses the
/// id's protection domain and queues where the program gives none.
fn create(id: &Entry<Id>, init: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    let rdma_cm_id { verbs, pd: own_pd, srq: own_srq, .. } = id.view();
    if id.state().device.is_none() || !id.qp().is_null() {
        return Err(Errno::EINVAL);
    }
    if init.comp_mask & IBV_QP_INIT_ATTR_PD == 0 || init.pd.is_null() {
        init.comp_mask |= IBV_QP_INIT_ATTR_PD;
        init.pd = own_pd;
    }
    if context::context_of(Pd::registry().get(init.pd)?.context.public()) != verbs {
        return Err(Errno::EINVAL);
    }
    if init.srq.is_null() {
        init.srq = own_srq;
    }
    if init.qp_type == IBV_QPT_XRC_RECV && init.comp_mask & IBV_QP_INIT_ATTR_XRCD == 0 {
        let device = id.state().device.ok_or(Errno::EINVAL)?;
        init.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        init.xrcd = shared::of(device)?.xrcd()?;
    }
    let made = Queues::complete(id, init)?;
    let mut created = || {
        // SAFETY: `init` is valid, and its pointers are looked up.
        let pointer = unsafe { calls::create_qp_ex(verbs, init) };
        if pointer.is_null() {
            return Err(Errno::last());
        }
        make_ready(id, pointer).inspect_err(|_| {
            // SAFETY: the queue pair was just created.
            unsafe { calls::ibv_destroy_qp(pointer) };
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

/// The completion queues that one call has made for an id.
struct Queues {
    send: bool,
    recv: bool,
}

impl Queues {
    /// Fills in the completion queues that the program does not give: the id's, which are made if
    /// it has none.
    fn complete(id: &Entry<Id>, init: &mut ibv_qp_init_attr_ex) -> Result<Queues, Errno> {
        let rdma_cm_id { send_cq, recv_cq, .. } = id.view();
        let mut made = Queues { send: false, recv: false };
        // An XRC queue pair posts no receives, and a target no sends either.
        let (receives, sends) = match init.qp_type {
            IBV_QPT_XRC_RECV => (false, false),
            qp_type => (qp_type != IBV_QPT_XRC_SEND, true),
        };
        if receives && init.recv_cq.is_null() && recv_cq.is_null() {
            let (channel, cq) = queue(id, init.cap.max_recv_wr)?;
            made.recv = true;
            id.update(|c| (c.recv_cq_channel, c.recv_cq) = (channel, cq));
        }
        if sends && init.send_cq.is_null() && send_cq.is_null() {
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

/// Makes a completion queue for `len` work requests, with a channel of its own.
pub(super) fn queue(
    id: &Entry<Id>,
    len: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
    let verbs = id.view().verbs;
    let len = c_int::try_from(len.max(1)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the context is looked up.
    let events = unsafe { channel::ibv_create_comp_channel(verbs) };
    if events.is_null() {
        return Err(Errno::last());
    }
    // SAFETY: the context and the channel are looked up.
    let queue = unsafe { cq::ibv_create_cq(verbs, len, id.c().cast(), events, 0) };
    if queue.is_null() {
        let error = Errno::last();
        // SAFETY: the channel was just created.
        unsafe { channel::ibv_destroy_comp_channel(events) };
        return Err(error);
    }
    Ok((events, queue))
}

/// Destroys completion queues that were made for an id, but not those that a shared receive queue
/// still uses. Waits until their events are acknowledged.
pub(super) fn destroy_queues(id: &Entry<Id>, send: bool, recv: bool) {
    let nothing = (std::ptr::null_mut(), std::ptr::null_mut());
    let it = id.view();
    if recv && !it.recv_cq_channel.is_null() && destroy_queue(it.recv_cq_channel, it.recv_cq) {
        id.update(|c| (c.recv_cq_channel, c.recv_cq) = nothing);
    }
    if send && !it.send_cq_channel.is_null() && destroy_queue(it.send_cq_channel, it.send_cq) {
        id.update(|c| (c.send_cq_channel, c.send_cq) = nothing);
    }
}

/// Destroys a completion queue with its channel. Returns false if the queue is in use.
fn destroy_queue(events: *mut ibv_comp_channel, queue: *mut ibv_cq) -> bool {
    // SAFETY: the pointer is looked up.
    if unsafe { cq::ibv_destroy_cq(queue) } == libc::EBUSY {
        return false;
    }
    // SAFETY: the pointer is looked up.
    unsafe { channel::ibv_destroy_comp_channel(events) };
    true
}

/// Modifies a queue pair from RESET to INIT, or a UD queue pair to RTS.
fn make_ready(id: &Entry<Id>, pointer: *mut crate::abi::ibv_qp) -> Result<(), Errno> {
    let qp = qp::get(pointer)?;
    let states: &[_] = match id.space.connects() {
        true => &[IBV_QPS_INIT],
        false => &[IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS],
    };
    for state in states {
        // SAFETY: a C structure of numbers, for which zeros are valid.
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
        // SAFETY: the program passes NULL or a valid structure.
        let mut init = unsafe { calls::read_ex(qp_init_attr) }?;
        create(&id, &mut init)?;
        let len = calls::ex_len(init.comp_mask);
        // SAFETY: not NULL, as it was read above. Structures of all headers have the `pd` field.
        unsafe { entry::write_sized(qp_init_attr.cast(), len, &init) }
    })
}

pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: the program passes NULL or a valid structure.
        let given = unsafe { entry::read(qp_init_attr) }?;
        let place = (&raw const given).cast();
        // SAFETY: `given` is a local, and the longer structure begins with its fields.
        let mut init: ibv_qp_init_attr_ex =
            unsafe { entry::read_sized(place, size_of::<ibv_qp_init_attr>()) }?;
        (init.comp_mask, init.pd) = (IBV_QP_INIT_ATTR_PD, pd);
        create(&id, &mut init)?;
        // SAFETY: not NULL, as it was read above.
        unsafe { entry::write_sized(qp_init_attr.cast(), size_of::<ibv_qp_init_attr>(), &init) }
    })
}

pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    entry::nothing(|| {
        let id = id::find(id)?;
        let pointer = id.qp();
        // SAFETY: the pointer is looked up.
        let result = unsafe { calls::ibv_destroy_qp(pointer) };
        if result != 0 {
            return Err(Errno::of(result));
        }
        id.update(|c| c.qp = std::ptr::null_mut());
        destroy_queues(&id, true, true);
        Ok(())
    });
}
