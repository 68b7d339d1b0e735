//! `rdma_cm_event`: passes events to the program.
//!
//! Invariants
//! - An event counts ([`crate::acks::Acks`]) from its delivery until the program acknowledges it,
//!   and an id is not destroyed before. A connection request counts at the listener.
//! - Private data is stored with the event, in memory that stays readable after the
//!   acknowledgement.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use uroce::cm::raw::{CmId, ConnEvent, ConnectRequest, ResolvedPath};
use uroce::{QpState, RequestError};

use super::id::{destroy, incoming};
use super::{address, path};
use crate::abi::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT,
    RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event, rdma_cm_event__bindgen_ty_1, rdma_cm_event_type,
    rdma_conn_param, rdma_event_channel, rdma_ud_param,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::objects::cm_event::{DATA_MAX, Event, PublicEvent, acknowledge};
use crate::objects::id::channel::{Channel, Happening, Waiting};
use crate::objects::id::draft::{Conn, Draft, Param, Ud};
use crate::objects::id::{Id, Stage, State};
use crate::runtime::{self, Device};

/// Waits for the channel's next event and delivers it.
pub(crate) fn next(channel: &Channel) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        if let Some(event) = tell(channel.take()?) {
            return Ok(event);
        }
    }
}

/// Delivers an event to the program, after applying it to its id. `None` if the id was destroyed,
/// or if C has no such event.
fn tell(Waiting { id, what }: Waiting) -> Option<*mut rdma_cm_event> {
    deliver(&id.upgrade()?, what)
}

fn deliver(id: &Arc<Entry<Id>>, what: Happening) -> Option<*mut rdma_cm_event> {
    let (device, cm, event) = match what {
        Happening::Made(draft) => return publish(id, id, draft),
        Happening::Joined(number) => {
            let draft = id.state().groups.joined(number, id.qp())?;
            return publish(id, id, draft);
        }
        Happening::Cm(device, id, event) => (device, id, event),
    };
    if let ConnEvent::ConnectRequest(request) = event {
        return requested(id, device, cm, *request);
    }
    let draft = apply(id, device, event)?;
    publish(id, id, draft)
}

/// Applies an event of the control plane to its id.
fn apply(id: &Entry<Id>, device: &'static Device, event: ConnEvent) -> Option<Draft> {
    let mut state = id.state();
    if state.is_passive && state.stage == Stage::Requested {
        // The program may not have set its own context at the id yet, so it would take the event
        // for the listener's. As in the kernel, no event is delivered before the program accepts,
        // which then fails.
        ended(id, &mut state);
        return None;
    }
    Some(match event {
        ConnEvent::AddressResolved(path) => address_resolved(id, &mut state, device, path),
        ConnEvent::AddressError(error) => {
            state.look_up = None;
            state.stage = Stage::Bound;
            Draft::failed(RDMA_CM_EVENT_ADDR_ERROR, path::errno(&error))
        }
        ConnEvent::ConnectResponse { agreed, private_data } => {
            state.stage = Stage::Answered;
            state.agreed = Some(agreed);
            let draft = Draft::plain(RDMA_CM_EVENT_CONNECT_RESPONSE);
            draft.conn(Conn::from(&agreed)).data(private_data)
        }
        ConnEvent::Established { agreed, private_data } => {
            state.stage = Stage::Connected;
            state.agreed = Some(agreed);
            id.note_qp_state(QpState::Rts);
            let draft = Draft::plain(RDMA_CM_EVENT_ESTABLISHED);
            // As in the kernel, the accepting side gets no parameters.
            if private_data.is_empty() || state.is_passive {
                draft
            } else {
                draft.conn(Conn::from(&agreed)).data(private_data)
            }
        }
        ConnEvent::Resolved { datagrams, private_data } => {
            state.stage = Stage::Connected;
            let param = Param::Ud(Ud::from(&datagrams));
            Draft { param, ..Draft::plain(RDMA_CM_EVENT_ESTABLISHED) }.data(private_data)
        }
        ConnEvent::Rejected { reason, private_data } => {
            let event = rejection(id, &mut state);
            Draft { status: c_int::from(reason), ..Draft::plain(event) }.data(private_data)
        }
        ConnEvent::Unreachable => {
            ended(id, &mut state);
            Draft::failed(RDMA_CM_EVENT_UNREACHABLE, Errno::ETIMEDOUT)
        }
        ConnEvent::ConnectError(error) => connect_error(id, &mut state, &error),
        ConnEvent::Disconnected { .. } => {
            // The queue pair stays in RTS until the program disconnects, so that received messages
            // are not flushed.
            state.stage = Stage::Ended;
            state.was_connected = true;
            Draft::plain(RDMA_CM_EVENT_DISCONNECTED)
        }
        // As in the kernel, only connections that were established have this event.
        ConnEvent::TimewaitExit if state.was_connected => Draft::plain(RDMA_CM_EVENT_TIMEWAIT_EXIT),
        _ => return None,
    })
}

fn address_resolved(
    id: &Entry<Id>,
    state: &mut State,
    device: &'static Device,
    path: ResolvedPath,
) -> Draft {
    state.look_up = None;
    match path::resolved(id, state, device, path) {
        Ok(()) => Draft::plain(RDMA_CM_EVENT_ADDR_RESOLVED),
        Err(error) => {
            state.stage = Stage::Bound;
            Draft::failed(RDMA_CM_EVENT_ADDR_ERROR, error)
        }
    }
}

/// Ends a rejected id, and returns the kind of the event. As on Linux, a rejected request for a UD
/// queue pair is reported as unreachable.
fn rejection(id: &Entry<Id>, state: &mut State) -> rdma_cm_event_type {
    ended(id, state);
    if !id.space.connects() { RDMA_CM_EVENT_UNREACHABLE } else { RDMA_CM_EVENT_REJECTED }
}

fn connect_error(id: &Entry<Id>, state: &mut State, error: &RequestError) -> Draft {
    ended(id, state);
    // A neighbour that does not answer is reported like a peer that does not answer.
    match path::errno(error) {
        Errno::ETIMEDOUT => Draft::failed(RDMA_CM_EVENT_UNREACHABLE, Errno::ETIMEDOUT),
        error => Draft::failed(RDMA_CM_EVENT_CONNECT_ERROR, error),
    }
}

fn ended(id: &Entry<Id>, state: &mut State) {
    state.stage = Stage::Ended;
    if id.space.connects() {
        id.stop_qp();
    }
}

/// Makes an id for a peer's connection request, with the listener's properties.
fn requested(
    listener: &Arc<Entry<Id>>,
    device: &'static Device,
    cm: CmId,
    request: ConnectRequest,
) -> Option<*mut rdma_cm_event> {
    let param = match request.space.connects() {
        true => Param::Conn(Conn::from(&request)),
        // The peer's queue pair is not known, and the answer needs no address handle.
        false => Param::None,
    };
    let Ok(id) = incoming(listener, device, cm, &request) else {
        // The request cannot be answered, so it is destroyed.
        if let Ok(context) = device.context() {
            let _ = context.connection_manager().destroy(cm);
        }
        return None;
    };
    let draft = Draft { param, ..Draft::plain(RDMA_CM_EVENT_CONNECT_REQUEST) };
    let event = publish(listener, &id, draft.data(request.private_data));
    if event.is_none() {
        // The listener is being destroyed, so the program does not get the request.
        let _ = destroy(id.c());
    }
    event
}

/// Delivers an event of `id`, counted at `counted`. The two differ for a connection request, which
/// counts at the listener.
fn publish(
    counted: &Arc<Entry<Id>>,
    id: &Arc<Entry<Id>>,
    draft: Draft,
) -> Option<*mut rdma_cm_event> {
    let acks = draft.acks.as_ref().unwrap_or(&counted.acks);
    let counts = Event::counted_by(acks)?;
    let is_request = !Arc::ptr_eq(counted, id);
    let len = draft.private_data.len().min(DATA_MAX);
    let mut data = [0; DATA_MAX];
    data[..len].copy_from_slice(&draft.private_data[..len]);
    let event = rdma_cm_event {
        id: id.public().cast(),
        listen_id: if is_request { counted.public().cast() } else { std::ptr::null_mut() },
        event: draft.event,
        status: draft.status,
        param: param(&draft.param),
    };
    let entry = Event::registry().insert(PublicEvent { event, data }, counts);
    let public = entry.public();
    if len > 0 {
        // SAFETY: a slot is never freed, and the program does not have the event yet.
        let it = unsafe { &mut *public };
        // SAFETY: both kinds of parameters begin with the private data and its length.
        let conn = unsafe { &mut it.event.param.conn };
        conn.private_data = it.data.as_ptr().cast();
        // At most `DATA_MAX`, so it fits.
        conn.private_data_len = len as u8;
    }
    Some(public.cast())
}

fn param(param: &Param) -> rdma_cm_event__bindgen_ty_1 {
    // SAFETY: a union of C structures of numbers and nullable pointers, for which zeros are valid.
    let mut c: rdma_cm_event__bindgen_ty_1 = unsafe { std::mem::zeroed() };
    match param {
        Param::None => {}
        Param::Conn(conn) => {
            c.conn = rdma_conn_param {
                private_data: std::ptr::null(),
                private_data_len: 0,
                responder_resources: conn.responder_resources,
                initiator_depth: conn.initiator_depth,
                flow_control: conn.flow_control.into(),
                retry_count: conn.retry_count,
                rnr_retry_count: conn.rnr_retry_count,
                srq: conn.srq.into(),
                qp_num: conn.qp_num,
            };
        }
        Param::Ud(ud) => {
            c.ud = rdma_ud_param {
                private_data: std::ptr::with_exposed_provenance(ud.context),
                private_data_len: 0,
                ah_attr: address::ah_attr(&ud.vector, ud.port),
                qp_num: ud.qp_num,
                qkey: ud.qkey,
            };
        }
    }
    c
}

pub(crate) unsafe extern "C-unwind" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    let found = || Channel::registry().get(channel).inspect_err(|_| runtime::hold_up());
    let find = || if event.is_null() { Err(Errno::EINVAL) } else { found()?.readable_fd() };
    let take = || {
        let Some(next) = found()?.taken().and_then(tell) else { return Ok(false) };
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(event, next) }?;
        Ok(true)
    };
    entry::waiting(find, take)
}

pub(crate) unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    entry::minus_one(|| acknowledge(event))
}

/// `rdma_event_str`: the name of an event's constant.
pub(crate) unsafe extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    let name = match event {
        RDMA_CM_EVENT_ADDR_RESOLVED => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        RDMA_CM_EVENT_ADDR_ERROR => c"RDMA_CM_EVENT_ADDR_ERROR",
        RDMA_CM_EVENT_ROUTE_RESOLVED => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        RDMA_CM_EVENT_ROUTE_ERROR => c"RDMA_CM_EVENT_ROUTE_ERROR",
        RDMA_CM_EVENT_CONNECT_REQUEST => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        RDMA_CM_EVENT_CONNECT_RESPONSE => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        RDMA_CM_EVENT_CONNECT_ERROR => c"RDMA_CM_EVENT_CONNECT_ERROR",
        RDMA_CM_EVENT_UNREACHABLE => c"RDMA_CM_EVENT_UNREACHABLE",
        RDMA_CM_EVENT_REJECTED => c"RDMA_CM_EVENT_REJECTED",
        RDMA_CM_EVENT_ESTABLISHED => c"RDMA_CM_EVENT_ESTABLISHED",
        RDMA_CM_EVENT_DISCONNECTED => c"RDMA_CM_EVENT_DISCONNECTED",
        RDMA_CM_EVENT_DEVICE_REMOVAL => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        RDMA_CM_EVENT_MULTICAST_JOIN => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        RDMA_CM_EVENT_MULTICAST_ERROR => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        RDMA_CM_EVENT_ADDR_CHANGE => c"RDMA_CM_EVENT_ADDR_CHANGE",
        RDMA_CM_EVENT_TIMEWAIT_EXIT => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        _ => c"UNKNOWN EVENT",
    };
    name.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_event_is_not_acknowledged() {
        assert_eq!(acknowledge(std::ptr::null()), Err(Errno::EINVAL));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { rdma_ack_cm_event(std::ptr::null_mut()) }, -1);
    }
}
