//! `ibv_modify_qp` and `ibv_query_qp`: converts attributes between C and the engine.
//!
//! The transport decides which attributes a transition takes. A change that is refused has no
//! effect.

use std::ffi::c_int;
use std::mem::offset_of;

use uroce::{
    AltPath, AlternateVector, Gid, PathAttr, PathMigState, PathMtu, Pkey, PortAttr, Psn, Qkey,
    QpAttr, QpChange, QpInfo, QpState, QpType, Qpn,
};

use crate::abi::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_ALT_PATH, IBV_QP_AV, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MIG_STATE, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RATE_LIMIT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp,
    ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_rate_limit_attr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::ibv::mr::{flags_of, rights_in};
use crate::ibv::path;
use crate::objects::qp::{self, Qp};
use crate::runtime::Device;

/// The supported attributes: all but `IBV_QP_CAP`. A queue pair keeps its queues' sizes.
const KNOWN: u32 = IBV_QP_STATE
    | IBV_QP_CUR_STATE
    | IBV_QP_EN_SQD_ASYNC_NOTIFY
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_ALT_PATH
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_PATH_MIG_STATE
    | IBV_QP_DEST_QPN
    | IBV_QP_RATE_LIMIT;

/// Converts C's number of a state.
fn state_of(number: u32) -> Result<QpState, Errno> {
    let number = u8::try_from(number).map_err(|_| Errno::EINVAL)?;
    QpState::from_number(number).ok_or(Errno::EINVAL)
}

fn mig_state_of(number: u32) -> Result<PathMigState, Errno> {
    [PathMigState::Migrated, PathMigState::Rearm, PathMigState::Armed]
        .into_iter()
        .find(|state| *state as u32 == number)
        .ok_or(Errno::EINVAL)
}

/// Converts an index of the P_Key table, which has one entry.
fn pkey_of(index: u16) -> Result<Pkey, Errno> {
    if index == 0 { Ok(Pkey::DEFAULT) } else { Err(Errno::EINVAL) }
}

fn qpn_of(number: u32) -> Result<Qpn, Errno> {
    if number > 0xff_ffff { Err(Errno::EINVAL) } else { Ok(Qpn::new(number)) }
}

fn mtu_of(code: u32) -> Result<PathMtu, Errno> {
    let code = u8::try_from(code).map_err(|_| Errno::EINVAL)?;
    PathMtu::from_code(code).ok_or(Errno::EINVAL)
}

/// Converts a path to C's attributes. `ports` are the device's ports, in order.
fn ah_attr_of(path: &PathAttr, port: u8, ports: &[PortAttr]) -> ibv_ah_attr {
    let encap = &path.encap;
    if encap.dst == Gid::default() {
        // No path was set yet.
        return ibv_ah_attr { port_num: port, ..empty_ah_attr() };
    }
    let at = usize::from(port).checked_sub(1);
    let gids = at.and_then(|at| ports.get(at)).map_or(&[][..], |port| &port.gids);
    let sgid_index = gids.iter().position(|gid| *gid == encap.src).unwrap_or(0);
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: encap.dst.0 },
            flow_label: encap.flow_label,
            // A port has fewer than 256 GIDs.
            sgid_index: sgid_index as u8,
            hop_limit: encap.hop_limit,
            traffic_class: encap.traffic_class,
        },
        sl: encap.vlan.map_or(0, |vlan| vlan.pcp),
        static_rate: path.rate.code(),
        is_global: 1,
        port_num: port,
        ..empty_ah_attr()
    }
}

fn empty_ah_attr() -> ibv_ah_attr {
    // SAFETY: a C structure of numbers, for which zeros are valid.
    unsafe { std::mem::zeroed() }
}

/// Converts the attributes in `mask`, except paths.
fn change_of(attr: &ibv_qp_attr, mask: u32) -> Result<QpChange, Errno> {
    let has = |bit: u32| mask & bit != 0;
    Ok(QpChange {
        state: has(IBV_QP_STATE).then(|| state_of(attr.qp_state)).transpose()?,
        cur_state: has(IBV_QP_CUR_STATE).then(|| state_of(attr.cur_qp_state)).transpose()?,
        pkey: has(IBV_QP_PKEY_INDEX).then(|| pkey_of(attr.pkey_index)).transpose()?,
        port: has(IBV_QP_PORT).then_some(attr.port_num),
        access: has(IBV_QP_ACCESS_FLAGS).then(|| rights_in(attr.qp_access_flags)),
        path: None,
        alt_path: None,
        path_mig_state: has(IBV_QP_PATH_MIG_STATE)
            .then(|| mig_state_of(attr.path_mig_state))
            .transpose()?,
        rate_limit: has(IBV_QP_RATE_LIMIT).then_some(attr.rate_limit),
        path_mtu: has(IBV_QP_PATH_MTU).then(|| mtu_of(attr.path_mtu)).transpose()?,
        dest_qpn: has(IBV_QP_DEST_QPN).then(|| qpn_of(attr.dest_qp_num)).transpose()?,
        rq_psn: has(IBV_QP_RQ_PSN).then(|| Psn::new(attr.rq_psn)),
        max_dest_rd_atomic: has(IBV_QP_MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic),
        min_rnr_timer: has(IBV_QP_MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        sq_psn: has(IBV_QP_SQ_PSN).then(|| Psn::new(attr.sq_psn)),
        timeout: has(IBV_QP_TIMEOUT).then_some(attr.timeout),
        retry_cnt: has(IBV_QP_RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: has(IBV_QP_RNR_RETRY).then_some(attr.rnr_retry),
        max_rd_atomic: has(IBV_QP_MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        qkey: has(IBV_QP_QKEY).then_some(Qkey(attr.qkey)),
        en_sqd_async_notify: has(IBV_QP_EN_SQD_ASYNC_NOTIFY)
            .then_some(attr.en_sqd_async_notify != 0),
        selective_repeat: None,
        udp_source_ports: None,
        keepalive_ms: None,
    })
}

fn alternate_of(device: &'static Device, attr: &ibv_qp_attr) -> Result<AlternateVector, Errno> {
    Ok(AlternateVector {
        vector: path::vector(device, &attr.alt_ah_attr)?,
        port: attr.alt_port_num,
        pkey: pkey_of(attr.alt_pkey_index)?,
        timeout: attr.alt_timeout,
    })
}

/// Attributes that the two ends of XRC do not have. As in Linux, programs may give them.
fn ignored(qp_type: QpType) -> u32 {
    match qp_type {
        QpType::XrcSend => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        QpType::XrcRecv => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        _ => 0,
    }
}

/// Modify QP with C's attributes.
///
/// # Errors
///
/// EINVAL, or the error of resolving a path. The queue pair is unchanged.
pub(crate) fn modify(qp: &Entry<Qp>, attr: &ibv_qp_attr, mask: u32) -> Result<(), Errno> {
    modify_connected(qp, attr, mask, None)
}

/// Like [`modify`], and also sets whether the queue pair uses selective repeat. C's structure has
/// no field for it. The two sides agree on it when they connect. `None` leaves it unchanged.
///
/// # Errors
///
/// As for [`modify`].
pub(crate) fn modify_connected(
    qp: &Entry<Qp>,
    attr: &ibv_qp_attr,
    mask: u32,
    selective_repeat: Option<bool>,
) -> Result<(), Errno> {
    if mask & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let mask = mask & !ignored(qp.control.qp_type());
    let change = QpChange { selective_repeat, ..change_of(attr, mask)? };
    let device = qp.context.device;
    let path = (mask & IBV_QP_AV != 0).then(|| path::vector(device, &attr.ah_attr)).transpose()?;
    let alternate =
        (mask & IBV_QP_ALT_PATH != 0).then(|| alternate_of(device, attr)).transpose()?;
    qp.engine()?.modify_paths(&change, path.as_ref(), alternate.as_ref())?;
    if let Some(state) = change.state {
        qp.note_state(state);
        if state == QpState::Reset {
            qp.purge();
        }
    }
    Ok(())
}

/// Converts the result of Query QP.
fn attr_of(qp: &Qp, info: &QpInfo, ports: &[PortAttr]) -> ibv_qp_attr {
    let attr: &QpAttr = &info.attr;
    let alt = attr.alt_path;
    let alt_ah = |alt: AltPath| ah_attr_of(&alt.path, alt.port, ports);
    ibv_qp_attr {
        qp_state: attr.state as u32,
        cur_qp_state: attr.state as u32,
        path_mtu: u32::from(attr.path_mtu.code()),
        path_mig_state: attr.path_mig_state as u32,
        qkey: attr.qkey.0,
        rq_psn: attr.rq_psn.value(),
        sq_psn: attr.sq_psn.value(),
        dest_qp_num: attr.dest_qpn.value(),
        qp_access_flags: flags_of(attr.access),
        cap: qp.cap(),
        ah_attr: ah_attr_of(&attr.path, attr.port, ports),
        alt_ah_attr: alt.map_or_else(empty_ah_attr, alt_ah),
        pkey_index: 0,
        alt_pkey_index: 0,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify),
        sq_draining: u8::from(info.sq_draining),
        max_rd_atomic: attr.max_rd_atomic,
        max_dest_rd_atomic: attr.max_dest_rd_atomic,
        min_rnr_timer: attr.min_rnr_timer,
        port_num: attr.port,
        timeout: attr.timeout,
        retry_cnt: attr.retry_cnt,
        rnr_retry: attr.rnr_retry,
        alt_port_num: alt.map_or(0, |alt| alt.port),
        alt_timeout: alt.map_or(0, |alt| alt.timeout),
        rate_limit: attr.rate_limit,
    }
}

/// The parameters that the queue pair was created with.
fn init_attr_of(qp: &Entry<Qp>) -> ibv_qp_init_attr {
    // SAFETY: a slot is never freed, and these fields are not written after creation.
    let base = unsafe { (*qp.public()).ex.qp_base };
    ibv_qp_init_attr {
        qp_context: base.qp_context,
        send_cq: base.send_cq,
        recv_cq: base.recv_cq,
        srq: base.srq,
        cap: qp.cap(),
        qp_type: base.qp_type,
        sq_sig_all: c_int::from(qp.signals_all),
    }
}

pub(crate) unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    entry::code(|| {
        let qp = qp::get(qp)?;
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read_sized(attr, attr_len(mask.cast_unsigned())) }?;
        modify(&qp, &attr, mask.cast_unsigned())
    })
}

/// Length in bytes of a program's attributes with this mask. Structures of older headers lack the
/// last field, the rate limit.
pub(crate) fn attr_len(mask: ibv_qp_attr_mask) -> usize {
    if mask & IBV_QP_RATE_LIMIT == 0 {
        offset_of!(ibv_qp_attr, rate_limit)
    } else {
        size_of::<ibv_qp_attr>()
    }
}

/// `ibv_query_qp`. Returns all attributes whatever the mask, except that the rate limit is returned
/// only if the mask has it.
pub(crate) unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: c_int,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    entry::code(|| {
        let qp = qp::get(qp)?;
        if attr.is_null() || init.is_null() {
            return Err(Errno::EINVAL);
        }
        let info = qp.engine()?.query()?;
        let ports = qp.context.device.ports()?;
        qp.note_state(info.attr.state);
        let (len, all) = (attr_len(mask.cast_unsigned()), attr_of(&qp, &info, &ports));
        // SAFETY: not NULL, so it is the program's room for attributes of `len` bytes.
        unsafe { entry::write_sized(attr.cast(), len, &all) }?;
        // SAFETY: not NULL, so it is the program's room for the structure.
        unsafe { entry::write(init, init_attr_of(&qp)) }
    })
}

/// `verbs_context.modify_qp_rate_limit`. Burst parameters are not supported.
pub(crate) unsafe extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_rate_limit_attr,
) -> c_int {
    entry::code(|| {
        let qp = qp::get(qp)?;
        // SAFETY: the program passes NULL or a valid structure.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        if attr.max_burst_sz != 0 || attr.typical_pkt_sz != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let change = QpChange { rate_limit: Some(attr.rate_limit), ..QpChange::default() };
        Ok(qp.engine()?.modify(&change, None)?)
    })
}
