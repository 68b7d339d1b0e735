//! Queue pairs of ids.

use std::ffi::c_int;

use uroce::Qpn;
use uroce::cm::raw::PortSpace;

use super::address;
use super::id::{self, Id};
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
use crate::runtime::Device;

/// READs and ATOMICs that a queue pair has outstanding at most, each way.
const MAX_RD_ATOMIC: u8 = 16;
/// Minimum RNR NAK timer code: 0.64 ms.
const MIN_RNR_TIMER: u8 = 12;

/// The number of the queue pair that an id has, if it has one.
///
/// # Errors
///
/// It is none of the device's.
pub(crate) fn of(id: &Entry<Id>, _device: &'static Device) -> Result<Option<Qpn>, Errno> {
    if id.qp().is_null() { Ok(None) } else { Err(Errno::EOPNOTSUPP) }
}

/// Fills in what Modify QP takes on the way to the state that `attr` names.
fn init_attr(id: &Entry<Id>, attr: &mut ibv_qp_attr) -> Result<ibv_qp_attr_mask, Errno> {
    match (attr.qp_state, id.space) {
        (IBV_QPS_INIT, _) => to_init(id, attr),
        (IBV_QPS_RTR, PortSpace::Udp) => Ok(IBV_QP_STATE),
        (IBV_QPS_RTS, PortSpace::Udp) => {
            attr.sq_psn = id.psn.value();
            Ok(IBV_QP_STATE | IBV_QP_SQ_PSN)
        }
        (IBV_QPS_RTR, PortSpace::Tcp) => to_rtr(id, attr),
        (IBV_QPS_RTS, PortSpace::Tcp) => to_rts(id, attr),
        _ => Err(Errno::EINVAL),
    }
}

fn to_init(id: &Entry<Id>, attr: &mut ibv_qp_attr) -> Result<ibv_qp_attr_mask, Errno> {
    let state = id.state();
    if state.device.is_none() {
        return Err(Errno::EINVAL);
    }
    let c = id.c();
    // SAFETY: a slot is never freed.
    attr.port_num = unsafe { (*c).port_num };
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

fn to_rtr(id: &Entry<Id>, attr: &mut ibv_qp_attr) -> Result<ibv_qp_attr_mask, Errno> {
    let agreed = id.state().agreed.ok_or(Errno::EINVAL)?;
    attr.ah_attr = address::ah_attr(&agreed.vector, agreed.port);
    attr.path_mtu = address::mtu(agreed.path_mtu);
    attr.dest_qp_num = agreed.peer_qpn.value();
    attr.rq_psn = if id.qp().is_null() { id.psn.value() } else { agreed.rq_psn.value() };
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

fn to_rts(id: &Entry<Id>, attr: &mut ibv_qp_attr) -> Result<ibv_qp_attr_mask, Errno> {
    let state = id.state();
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
        let mask = init_attr(&id, &mut attr)?;
        // SAFETY: not NULL, as was seen above.
        unsafe { entry::write(qp_attr, attr) }?;
        // SAFETY: as above. A mask has few bits.
        unsafe { entry::write(qp_attr_mask, mask.cast_signed()) }
    })
}
