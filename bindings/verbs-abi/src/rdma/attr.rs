//! `rdma_init_qp_attr`: the attributes of Modify QP for each step of an id's connection, for its
//! own queue pair or for one that the program manages itself.

use std::ffi::c_int;

use uroce::QpType;
use uroce::cm::raw::{MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC};

use super::address;
use crate::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS,
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_UDP_QKEY, ibv_qp_attr, ibv_qp_attr_mask,
    rdma_cm_id,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::objects::id::{self, Id, State};

/// Attributes of a requester, and of a responder, that only reliable services have.
const REQUESTER: ibv_qp_attr_mask = IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
const RESPONDER: ibv_qp_attr_mask = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

/// The attributes that connected queue pairs of this type have.
pub(super) fn attributes_of(qp_type: QpType) -> ibv_qp_attr_mask {
    match qp_type {
        QpType::Rc => !0,
        QpType::XrcSend => !RESPONDER,
        QpType::XrcRecv => !REQUESTER,
        _ => !(REQUESTER | RESPONDER | IBV_QP_TIMEOUT),
    }
}

/// Fills in the attributes for the transition to `attr.qp_state`, and returns their mask.
pub(crate) fn init_attr(
    id: &Entry<Id>,
    state: &State,
    attr: &mut ibv_qp_attr,
) -> Result<ibv_qp_attr_mask, Errno> {
    match (attr.qp_state, id.space.connects()) {
        (IBV_QPS_INIT, _) => to_init(id, state, attr),
        (IBV_QPS_RTR, false) => Ok(IBV_QP_STATE),
        (IBV_QPS_RTS, false) => {
            attr.sq_psn = id.psn.value();
            Ok(IBV_QP_STATE | IBV_QP_SQ_PSN)
        }
        (IBV_QPS_RTR, true) => to_rtr(id, state, attr),
        (IBV_QPS_RTS, true) => to_rts(state, attr),
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
    if !id.space.connects() {
        attr.qkey = RDMA_UDP_QKEY;
        return Ok(common | IBV_QP_QKEY);
    }
    attr.qp_access_flags = match state.agreed.map(|agreed| agreed.max_dest_rd_atomic) {
        // The peer's rights are not known yet.
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
    attr.path_mtu = agreed.path_mtu.code().into();
    attr.dest_qp_num = agreed.peer_qpn.value();
    // A connection that drives the queue pair has chosen the PSN itself.
    let is_ours = state.is_passive || id.qp().is_null();
    attr.rq_psn = if is_ours { id.psn.value() } else { agreed.rq_psn.value() };
    attr.max_dest_rd_atomic = agreed.max_dest_rd_atomic.min(MAX_RD_ATOMIC);
    attr.min_rnr_timer = state.min_rnr_timer;
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
    attr.max_rd_atomic = agreed.max_rd_atomic.min(MAX_INIT_RD_ATOMIC);
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
    // Bytes of the structure in older headers.
    const LEN: usize = std::mem::offset_of!(ibv_qp_attr, rate_limit);
    entry::minus_one(|| {
        let id = id::get(id)?;
        if qp_attr_mask.is_null() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program passes NULL or a valid structure.
        let mut attr = unsafe { entry::read_sized(qp_attr, LEN) }?;
        let its = attributes_of(super::qp::type_of(&id)?);
        let mask = init_attr(&id, &id.state(), &mut attr)? & its;
        // SAFETY: not NULL, as it was read above, and it has `LEN` bytes.
        unsafe { entry::write_sized(qp_attr.cast(), LEN, &attr) }?;
        // SAFETY: not NULL, so it is the program's room for a number.
        unsafe { entry::write(qp_attr_mask, mask.cast_signed()) }
    })
}
