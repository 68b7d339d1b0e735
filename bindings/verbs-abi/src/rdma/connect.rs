//! Connections: `rdma_connect`, `rdma_accept` and what ends them.

use std::ffi::{c_int, c_void};

use uroce::cm::Agreed;
use uroce::cm::RejectReason;
use uroce::cm::raw::{
    CmError, ConnParam, ConnQp, ConnectSpec, MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC, PathSpec, PortSpace,
};
use uroce::{AccessFlags, QpType, Qpn, RequestError};

use super::attr::LINUX_RNR_TIMER;
use super::id::{self, Id, Stage, State};
use super::{qp, resolve, sync};
use crate::abi::{IBV_EVENT_COMM_EST, ibv_event_type, rdma_cm_id, rdma_conn_param};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::runtime::Device;

/// Says "as many as possible".
const ANY_DEPTH: u8 = 0xff;
/// Retries where a program says nothing; of a receiver that is not ready, without end.
const RETRIES: u8 = 7;
/// Bytes for the peer's program at most: in a REQ, REP, REJ, and in a SIDR_REQ and SIDR_REP.
const REQ_DATA: usize = 56;
const REP_DATA: usize = 196;
const REJ_DATA: usize = 148;
const SIDR_REQ_DATA: usize = 180;
const SIDR_REP_DATA: usize = 136;

/// Private data of the program's.
///
/// # Errors
///
/// EINVAL: too long, or not there.
///
/// # Safety
///
/// If it is not NULL, `data` points to `len` bytes.
pub(crate) unsafe fn private_data(
    data: *const c_void,
    len: u8,
    max: usize,
) -> Result<Vec<u8>, Errno> {
    let len = usize::from(len);
    if len > max || (len > 0 && data.is_null()) {
        return Err(Errno::EINVAL);
    }
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: not NULL, so by the caller's promise this many bytes.
    Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec())
}

/// How many READs and ATOMICs a program asks for.
fn depth(asked: u8, max: u8) -> Result<u8, Errno> {
    match asked {
        ANY_DEPTH => Ok(max),
        _ if asked <= max => Ok(asked),
        _ => Err(Errno::EINVAL),
    }
}

/// What the program brings to a connection; without any parameters, as much as possible.
///
/// # Safety
///
/// As [`private_data`] of what `param` says.
unsafe fn conn_param(
    param: Option<&rdma_conn_param>,
    state: &State,
    max: usize,
) -> Result<ConnParam, Errno> {
    let mut brought =
        ConnParam { own_ack_timeout: state.options.ack_timeout, ..ConnParam::default() };
    if let Some(timeout) = state.options.ack_timeout {
        brought.ack_timeout = timeout;
    }
    let Some(param) = param else { return Ok(brought) };
    // SAFETY: by the caller's promise.
    brought.private_data =
        unsafe { private_data(param.private_data, param.private_data_len, max) }?;
    brought.responder_resources = depth(param.responder_resources, MAX_RD_ATOMIC)?;
    brought.initiator_depth = depth(param.initiator_depth, MAX_INIT_RD_ATOMIC)?;
    brought.flow_control = param.flow_control != 0;
    brought.retry_count = param.retry_count.min(RETRIES);
    brought.rnr_retry_count = param.rnr_retry_count.min(RETRIES);
    if brought.rnr_retry_count < RETRIES {
        brought.min_rnr_timer = LINUX_RNR_TIMER;
    }
    if brought.responder_resources == 0 {
        brought.access = AccessFlags::REMOTE_WRITE;
    }
    Ok(brought)
}

/// The queue pair of a connection: the id's, which the connection drives, or one that the program
/// keeps to itself and names.
fn conn_qp(
    id: &Entry<Id>,
    device: &'static Device,
    param: Option<&rdma_conn_param>,
) -> Result<ConnQp, Errno> {
    if let Some(qpn) = qp::of(id, device)? {
        return Ok(ConnQp::Begun(qpn));
    }
    let param = param.ok_or(Errno::EINVAL)?;
    if param.qp_num > 0xff_ffff {
        return Err(Errno::EINVAL);
    }
    let qp_type = if id.space == PortSpace::Udp { QpType::Ud } else { QpType::Rc };
    let (qpn, has_srq) = (Qpn::new(param.qp_num), param.srq != 0);
    Ok(ConnQp::Foreign { qpn, qp_type, psn: id.psn, has_srq, stops_with_peer: false })
}

/// # Safety
///
/// As [`private_data`] of what `param` says.
unsafe fn connect(id: &Entry<Id>, param: Option<&rdma_conn_param>) -> Result<(), Errno> {
    let mut state = id.state();
    if state.stage != Stage::RouteResolved {
        return Err(Errno::EINVAL);
    }
    let (Some(device), Some(local), Some(peer)) = (state.device, state.local, state.peer) else {
        return Err(Errno::EINVAL);
    };
    let max = if id.space == PortSpace::Tcp { REQ_DATA } else { SIDR_REQ_DATA };
    // SAFETY: by the caller's promise.
    let brought = unsafe { conn_param(param, &state, max) }?;
    // Who asks for a UD queue pair need not have one.
    let qp = match id.space {
        PortSpace::Tcp => Some(conn_qp(id, device, param)?),
        PortSpace::Udp => None,
    };
    let manager = device.context()?.connection_manager();
    let path = resolve::way_to(id, &mut state, device, &manager, peer)?;
    let mut vector = path.vector;
    vector.traffic_class = state.options.tos.unwrap_or(vector.traffic_class);
    let spec = ConnectSpec {
        space: id.space,
        port: peer.port(),
        source_port: local.port(),
        path: PathSpec { source: Some(path.source), destination: path.vector.dgid.to_ip(), vector },
        alternate: None,
        qp,
        param: brought,
    };
    let cm = manager.connect(&id.post(device), spec)?;
    state.connection = Some((manager, cm));
    state.stage = Stage::Connecting;
    Ok(())
}

/// # Safety
///
/// As [`private_data`] of what `param` says.
unsafe fn accept(id: &Entry<Id>, param: Option<&rdma_conn_param>) -> Result<(), Errno> {
    let mut state = id.state();
    if state.stage != Stage::Requested {
        return Err(Errno::EINVAL);
    }
    let (manager, cm) = state.connection()?;
    let device = state.device.ok_or(Errno::EINVAL)?;
    let max = if id.space == PortSpace::Tcp { REP_DATA } else { SIDR_REP_DATA };
    // SAFETY: by the caller's promise.
    let brought = unsafe { conn_param(param, &state, max) }?;
    // What both sides bring.
    state.min_rnr_timer = brought.min_rnr_timer;
    state.agreed = state.agreed.map(|agreed| Agreed {
        max_dest_rd_atomic: agreed.max_dest_rd_atomic.min(brought.responder_resources),
        max_rd_atomic: agreed.max_rd_atomic.min(brought.initiator_depth),
        ..agreed
    });
    let qp = match conn_qp(id, device, param)? {
        ConnQp::Begun(_) if id.space == PortSpace::Tcp => qp::begin(id, &state)?,
        other => other,
    };
    manager.accept(cm, qp, brought).inspect_err(|_| {
        // It has begun for nothing. A queue pair of datagrams may serve others.
        if id.space == PortSpace::Tcp {
            id.stop_qp();
        }
    })?;
    // A question for a UD queue pair is answered then.
    state.stage = match id.space {
        PortSpace::Tcp => Stage::Accepted,
        PortSpace::Udp => Stage::Connected,
    };
    Ok(())
}

/// What the program's parameters say.
///
/// # Safety
///
/// `param` is NULL or points to parameters of the caller's.
unsafe fn given(param: *const rdma_conn_param) -> Result<Option<rdma_conn_param>, Errno> {
    // SAFETY: not NULL, so by the caller's promise.
    (!param.is_null()).then(|| unsafe { entry::read(param) }).transpose()
}

pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: what programs pass is theirs or NULL.
        let param = unsafe { given(conn_param) }?;
        // SAFETY: its private data is the program's, too.
        unsafe { connect(&id, param.as_ref()) }?;
        sync::complete(&id)
    })
}

pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        // SAFETY: what programs pass is theirs or NULL.
        let param = unsafe { given(conn_param) }?;
        // SAFETY: its private data is the program's, too.
        unsafe { accept(&id, param.as_ref()) }?;
        if id.space == PortSpace::Tcp {
            return sync::complete(&id);
        }
        // A question for a UD queue pair has no further event; the request is answered.
        if id.state().is_sync {
            id::release_event(&id);
        }
        Ok(())
    })
}

/// Rejects a request. The reason is told where a connection was wanted.
///
/// # Safety
///
/// As [`private_data`].
pub(crate) unsafe fn reject_for(
    id: *const rdma_cm_id,
    reason: RejectReason,
    data: *const c_void,
    len: u8,
) -> Result<(), Errno> {
    let id = id::get(id)?;
    let max = if id.space == PortSpace::Tcp { REJ_DATA } else { SIDR_REP_DATA };
    // SAFETY: by the caller's promise.
    let data = unsafe { private_data(data, len, max) }?;
    let mut state = id.state();
    let (manager, cm) = state.connection()?;
    manager.reject(cm, reason, &data)?;
    state.connection = None;
    state.stage = Stage::Ended;
    Ok(())
}

pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    // SAFETY: what programs pass is theirs or NULL.
    entry::minus_one(|| unsafe { reject_for(id, RejectReason::CONSUMER, data, len) })
}

/// The program's own queue pair is ready, after `RDMA_CM_EVENT_CONNECT_RESPONSE`.
pub(crate) unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        let mut state = id.state();
        if state.stage != Stage::Answered || !id.qp().is_null() {
            return Err(Errno::EINVAL);
        }
        let (manager, cm) = state.connection()?;
        manager.establish(cm)?;
        state.stage = Stage::Connected;
        Ok(())
    })
}

/// A packet of the peer's has come to the program's own queue pair.
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        if event != IBV_EVENT_COMM_EST {
            return Err(Errno::EINVAL);
        }
        let state = id.state();
        let (manager, cm) = state.connection()?;
        match state.stage {
            // Its RTU was faster.
            Stage::Connected => Ok(()),
            Stage::Accepted => {
                // That it was faster may wait in the channel, too.
                let _ = manager.establish(cm);
                Ok(())
            }
            _ => Err(Errno::EINVAL),
        }
    })
}

pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        {
            let state = id.state();
            let (manager, cm) = state.connection()?;
            // Whatever the connection has come to: what the program has posted is flushed.
            id.stop_qp();
            match manager.disconnect(cm, &[]) {
                // There is nobody to tell, and no event.
                Err(RequestError::Connection(CmError::WrongState)) => return Ok(()),
                told => told?,
            }
            if state.stage == Stage::Ended {
                return Ok(());
            }
        }
        sync::complete(&id)
    })
}
