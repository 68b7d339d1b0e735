//! Establishing and ending connections: `rdma_connect`, `rdma_accept`, `rdma_reject`,
//! `rdma_disconnect`.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use uroce::cm::RejectReason;
use uroce::cm::raw::{
    ConnError, ConnParam, ConnQp, ConnectSpec, MAX_INIT_RD_ATOMIC, MAX_RD_ATOMIC, PathSpec,
};
use uroce::{AccessFlags, Qpn, RequestError};

use super::{path, qp, sync};
use crate::abi::{IBV_EVENT_COMM_EST, ibv_event_type, rdma_cm_id, rdma_conn_param};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Entry;
use crate::objects::id::{self, Id, LINUX_RNR_TIMER, Stage, State, release_event};
use crate::runtime::Device;

/// Value of a program's `responder_resources` or `initiator_depth` for "as many as possible".
const ANY_DEPTH: u8 = 0xff;
/// Largest retry count. For RNR retries it means no limit.
const RETRIES: u8 = 7;
/// Largest number of bytes of private data in a REQ.
const REQ_DATA: usize = 56;
/// Largest number of bytes of private data in a REP.
const REP_DATA: usize = 196;
/// Largest number of bytes of private data in a REJ.
const REJ_DATA: usize = 148;
/// Largest number of bytes of private data in a SIDR_REQ.
const SIDR_REQ_DATA: usize = 180;
/// Largest number of bytes of private data in a SIDR_REP.
const SIDR_REP_DATA: usize = 136;

/// Copies private data of the program.
///
/// # Errors
///
/// EINVAL if it is longer than `max`, or NULL with a length.
///
/// # Safety
///
/// `data` is NULL or points to `len` bytes.
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
    // SAFETY: `data` is not NULL, so it points to `len` bytes.
    Ok(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec())
}

/// The number of outstanding READs and ATOMICs that a program asks for. EINVAL if it exceeds `max`.
fn depth(asked: u8, max: u8) -> Result<u8, Errno> {
    match asked {
        ANY_DEPTH => Ok(max),
        _ if asked <= max => Ok(asked),
        _ => Err(Errno::EINVAL),
    }
}

/// Converts the program's connection parameters. Without any, the largest values are used.
///
/// # Safety
///
/// `param.private_data` is NULL or points to `param.private_data_len` bytes.
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
    // SAFETY: the caller passes valid private data.
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

/// The queue pair of a connection: the id's own, which the connection drives, or the one named in
/// the parameters, which the program manages itself.
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
    let (qp_type, qpn, has_srq) = (qp::type_of(id)?, Qpn::new(param.qp_num), param.srq != 0);
    Ok(ConnQp::Foreign { qpn, qp_type, psn: id.psn, has_srq, stops_with_peer: false })
}

/// Implements `rdma_connect`.
///
/// # Safety
///
/// `param.private_data` is NULL or points to `param.private_data_len` bytes.
unsafe fn connect(id: &Entry<Id>, param: Option<&rdma_conn_param>) -> Result<(), Errno> {
    let state = id.state();
    if state.stage != Stage::RouteResolved {
        return Err(Errno::EINVAL);
    }
    let (Some(device), Some(local), Some(peer)) = (state.device, state.local, state.peer) else {
        return Err(Errno::EINVAL);
    };
    let max = if id.space.connects() { REQ_DATA } else { SIDR_REQ_DATA };
    // SAFETY: the caller passes valid private data.
    let brought = unsafe { conn_param(param, &state, max) }?;
    let resolved = state.path.ok_or(Errno::EINVAL)?;
    let manager = device.context()?.connection_manager();
    // Other calls on the id, and its events, do not wait for the listener.
    drop(state);
    let to = path::destination(id.space, device, &manager, &resolved, peer)?;
    let mut state = id.state();
    // Meanwhile the id may have been destroyed, or connected by another thread.
    id::get(id.c())?;
    if state.stage != Stage::RouteResolved || state.peer != Some(peer) {
        return Err(Errno::EINVAL);
    }
    // A request for a peer's UD queue pair needs no queue pair of its own.
    let qp = id.space.connects().then(|| conn_qp(id, device, param)).transpose()?;
    let way = path::way_to(id, &mut state, device, to)?;
    let mut vector = way.vector;
    vector.traffic_class = state.options.tos.unwrap_or(vector.traffic_class);
    let spec = ConnectSpec {
        space: id.space,
        port: to.port,
        source_port: local.port(),
        path: PathSpec { source: Some(way.source), destination: way.vector.dgid.to_ip(), vector },
        alternate: None,
        qp,
        param: brought,
    };
    let cm = manager.connect(&id.post(device), spec)?;
    state.connection = Some((manager, cm));
    state.stage = Stage::Connecting;
    Ok(())
}

/// Implements `rdma_accept`.
///
/// # Safety
///
/// `param.private_data` is NULL or points to `param.private_data_len` bytes.
unsafe fn accept(id: &Entry<Id>, param: Option<&rdma_conn_param>) -> Result<(), Errno> {
    let mut state = id.state();
    if state.stage != Stage::Requested {
        return Err(Errno::EINVAL);
    }
    let (manager, cm) = state.connection()?;
    let device = state.device.ok_or(Errno::EINVAL)?;
    let max = if id.space.connects() { REP_DATA } else { SIDR_REP_DATA };
    // SAFETY: the caller passes valid private data.
    let brought = unsafe { conn_param(param, &state, max) }?;
    // The lower values of both sides apply.
    state.min_rnr_timer = brought.min_rnr_timer;
    state.agreed = state.agreed.map(|agreed| agreed.within(&brought));
    let qp = match conn_qp(id, device, param)? {
        ConnQp::Begun(_) if id.space.connects() => qp::begin(id, &state)?,
        other => other,
    };
    manager.accept(cm, qp, brought).inspect_err(|_| {
        // The queue pair was modified in vain. A UD queue pair may serve other peers, so it is not
        // stopped.
        if id.space.connects() {
            id.stop_qp();
        }
    })?;
    // An answered request for a UD queue pair has no further events.
    state.stage = if id.space.connects() { Stage::Accepted } else { Stage::Connected };
    Ok(())
}

/// Looks an id up, and calls `work`, which is [`connect`] or [`accept`], with it and the program's
/// parameters.
///
/// # Safety
///
/// `param` is NULL or points to valid parameters with their private data.
unsafe fn with_param(
    id: *const rdma_cm_id,
    param: *const rdma_conn_param,
    work: unsafe fn(&Entry<Id>, Option<&rdma_conn_param>) -> Result<(), Errno>,
) -> Result<Arc<Entry<Id>>, Errno> {
    let id = id::get(id)?;
    // SAFETY: not NULL, so it points to valid parameters.
    let param = (!param.is_null()).then(|| unsafe { entry::read(param) }).transpose()?;
    // SAFETY: the parameters, if there are any, are valid with their private data.
    unsafe { work(&id, param.as_ref()) }?;
    Ok(id)
}

pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the program passes NULL or valid parameters with their private data.
    entry::minus_one(|| sync::complete(&unsafe { with_param(id, conn_param, connect) }?))
}

pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    conn_param: *mut rdma_conn_param,
) -> c_int {
    entry::minus_one(|| {
        // SAFETY: the program passes NULL or valid parameters with their private data.
        let id = unsafe { with_param(id, conn_param, accept) }?;
        if id.space.connects() {
            return sync::complete(&id);
        }
        // There is no further event. The event of the request is acknowledged.
        if id.state().is_sync {
            release_event(&id);
        }
        Ok(())
    })
}

/// Rejects a request. The reason is sent only for a connection request.
///
/// # Safety
///
/// `data` is NULL or points to `len` bytes.
pub(crate) unsafe fn reject_for(
    id: *const rdma_cm_id,
    reason: RejectReason,
    data: *const c_void,
    len: u8,
) -> Result<(), Errno> {
    let id = id::get(id)?;
    let max = if id.space.connects() { REJ_DATA } else { SIDR_REP_DATA };
    // SAFETY: the caller passes NULL or `len` bytes.
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
    // SAFETY: the program passes NULL or `len` bytes.
    entry::minus_one(|| unsafe { reject_for(id, RejectReason::CONSUMER, data, len) })
}

/// `rdma_establish`: the program calls it after `RDMA_CM_EVENT_CONNECT_RESPONSE`, when its own
/// queue pair is ready.
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

/// `rdma_notify`: the program calls it when its own queue pair has received a packet of the peer.
pub(crate) unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
    entry::minus_one(|| {
        let id = id::get(id)?;
        if event != IBV_EVENT_COMM_EST {
            return Err(Errno::EINVAL);
        }
        let state = id.state();
        let (manager, cm) = state.connection()?;
        match state.stage {
            // The RTU has arrived before the packet.
            Stage::Connected => Ok(()),
            Stage::Accepted => {
                // The connection may be established already, with the event still in the channel.
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
            // In any stage of the connection the program's posted requests are flushed.
            id.stop_qp();
            match manager.disconnect(cm, &[]) {
                // The peer need not be informed, and no event follows.
                Err(RequestError::Connection(ConnError::WrongState)) => return Ok(()),
                told => told?,
            }
            if state.stage == Stage::Ended {
                return Ok(());
            }
        }
        sync::complete(&id)
    })
}
