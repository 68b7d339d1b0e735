//! `rdma_cm_event`: passes events to the program.
//!
//! Invariants
//! - An event counts in [`Acks`] from its delivery until the program acknowledges it, and an id is
//!   not destroyed before. A connection request counts at the listener.
//! - Private data is stored with the event, in memory that stays readable after the
//!   acknowledgement.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use uroce::cm::Agreed;
use uroce::cm::raw::{
    CmEvent, CmEventKind, CmId, ConnectRequest, Datagrams, PortSpace, ResolvedPath,
};
use uroce::{AddressVector, QpState, RequestError};

use super::address;
use super::channel::{Channel, Happening, Waiting};
use super::id::{self, Id, Stage, State};
use super::{mcast, resolve};
use crate::abi::{
    RDMA_CM_EVENT_ADDR_CHANGE, RDMA_CM_EVENT_ADDR_ERROR, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_ERROR, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_DEVICE_REMOVAL, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_MULTICAST_ERROR, RDMA_CM_EVENT_MULTICAST_JOIN, RDMA_CM_EVENT_REJECTED,
    RDMA_CM_EVENT_ROUTE_ERROR, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_TIMEWAIT_EXIT,
    RDMA_CM_EVENT_UNREACHABLE, rdma_cm_event, rdma_cm_event__bindgen_ty_1, rdma_cm_event_type,
    rdma_conn_param, rdma_event_channel, rdma_ud_param,
};
use crate::acks::Acks;
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object, object};
use crate::runtime::{self, Device};

/// Most bytes of private data in a message.
const DATA_MAX: usize = 255;

/// The memory that a program's event pointer refers to.
#[repr(C)]
pub(crate) struct PublicEvent {
    event: rdma_cm_event,
    data: [u8; DATA_MAX],
}

/// An event that was delivered to the program.
pub(crate) struct Event {
    /// Acknowledges the event when it is dropped.
    _counted: Counted,
}

object!(Event as PublicEvent);

/// A delivered event. Acknowledges it when dropped.
struct Counted(Arc<Acks>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.acknowledge(1);
    }
}

/// An event before it is delivered.
pub(crate) struct Draft {
    pub(crate) event: rdma_cm_event_type,
    /// 0, a negative error number, or the reason for which the peer rejected.
    pub(crate) status: c_int,
    pub(crate) param: Param,
    /// Private data for the program, at most [`DATA_MAX`] bytes.
    pub(crate) private_data: Vec<u8>,
    /// The counter of the event, if it is not the id's.
    pub(crate) acks: Option<Arc<Acks>>,
}

/// The parameters of an event.
#[derive(Clone, Copy)]
pub(crate) enum Param {
    None,
    Conn(Conn),
    Ud(Ud),
}

/// Parameters of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Conn {
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: bool,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: bool,
    pub(crate) qp_num: u32,
}

/// Parameters of datagrams.
#[derive(Clone, Copy)]
pub(crate) struct Ud {
    pub(crate) vector: AddressVector,
    pub(crate) port: u8,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
    /// The context that the program passed to `rdma_join_multicast`, as an exposed address. It is
    /// returned as private data. 0 if there is none.
    pub(crate) context: usize,
}

impl Draft {
    /// An event without parameters.
    pub(crate) fn plain(event: rdma_cm_event_type) -> Draft {
        Draft { event, status: 0, param: Param::None, private_data: Vec::new(), acks: None }
    }

    /// An event with an error number.
    pub(crate) fn failed(event: rdma_cm_event_type, error: Errno) -> Draft {
        Draft { status: -error.code(), ..Draft::plain(event) }
    }

    fn conn(self, conn: Conn) -> Draft {
        Draft { param: Param::Conn(conn), ..self }
    }

    fn data(self, private_data: Vec<u8>) -> Draft {
        Draft { private_data, ..self }
    }
}

impl From<&Agreed> for Conn {
    fn from(agreed: &Agreed) -> Conn {
        Conn {
            responder_resources: agreed.max_dest_rd_atomic,
            initiator_depth: agreed.max_rd_atomic,
            flow_control: agreed.flow_control,
            retry_count: agreed.retry_cnt,
            rnr_retry_count: agreed.rnr_retry,
            srq: agreed.peer_has_srq,
            qp_num: agreed.peer_qpn.value(),
        }
    }
}

impl From<&ConnectRequest> for Conn {
    fn from(request: &ConnectRequest) -> Conn {
        Conn {
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            flow_control: request.flow_control,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            srq: request.has_srq,
            qp_num: request.peer_qpn.value(),
        }
    }
}

impl From<&Datagrams> for Ud {
    fn from(datagrams: &Datagrams) -> Ud {
        Ud {
            vector: datagrams.vector,
            port: datagrams.port,
            qp_num: datagrams.qpn.value(),
            qkey: datagrams.qkey.0,
            context: 0,
        }
    }
}

/// Waits for the channel's next event and delivers it.
pub(crate) fn next(channel: &Channel) -> Result<*mut rdma_cm_event, Errno> {
    loop {
        if let Some(event) = tell(channel.take()?) {
            return Ok(event);
        }
    }
}

/// Delivers an event to the program, after applying it to its id. `None` if the id was destroyed.
fn tell(Waiting { id, what }: Waiting) -> Option<*mut rdma_cm_event> {
    deliver(&id.upgrade()?, what)
}

fn deliver(id: &Arc<Entry<Id>>, what: Happening) -> Option<*mut rdma_cm_event> {
    let (device, event) = match what {
        Happening::Made(draft) => return publish(id, id, draft),
        Happening::Joined(number) => return publish(id, id, mcast::joined(id, number)?),
        Happening::Cm(device, event) => (device, event),
    };
    let CmEvent { id: cm, kind } = event;
    if let CmEventKind::ConnectRequest(request) = kind {
        return requested(id, device, cm, *request);
    }
    let draft = apply(id, device, kind)?;
    publish(id, id, draft)
}

/// Applies an event of the control plane to its id.
fn apply(id: &Entry<Id>, device: &'static Device, kind: CmEventKind) -> Option<Draft> {
    let mut state = id.state();
    if state.is_passive && state.stage == Stage::Requested {
        // The program may not have set its own context at the id yet, so it would take the event
        // for the listener's. As in the kernel, no event is delivered before the program accepts,
        // which then fails.
        ended(id, &mut state);
        return None;
    }
    Some(match kind {
        CmEventKind::AddressResolved(path) => address_resolved(id, &mut state, device, path),
        CmEventKind::AddressError(error) => {
            state.look_up = None;
            state.stage = Stage::Bound;
            Draft::failed(RDMA_CM_EVENT_ADDR_ERROR, resolve::errno(&error))
        }
        CmEventKind::ConnectResponse { agreed, private_data } => {
            state.stage = Stage::Answered;
            state.agreed = Some(agreed);
            let draft = Draft::plain(RDMA_CM_EVENT_CONNECT_RESPONSE);
            draft.conn(Conn::from(&agreed)).data(private_data)
        }
        CmEventKind::Established { agreed, private_data } => {
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
        CmEventKind::Resolved { datagrams, private_data } => {
            state.stage = Stage::Connected;
            let param = Param::Ud(Ud::from(&datagrams));
            Draft { param, ..Draft::plain(RDMA_CM_EVENT_ESTABLISHED) }.data(private_data)
        }
        CmEventKind::Rejected { reason, private_data } => {
            let event = rejection(id, &mut state);
            Draft { status: c_int::from(reason), ..Draft::plain(event) }.data(private_data)
        }
        CmEventKind::Unreachable => {
            ended(id, &mut state);
            Draft::failed(RDMA_CM_EVENT_UNREACHABLE, Errno::ETIMEDOUT)
        }
        CmEventKind::ConnectError(error) => connect_error(id, &mut state, &error),
        CmEventKind::Disconnected { .. } => {
            // The queue pair stays in RTS until the program disconnects, so that received messages
            // are not flushed.
            state.stage = Stage::Ended;
            state.was_connected = true;
            Draft::plain(RDMA_CM_EVENT_DISCONNECTED)
        }
        // As in the kernel, only connections that were established have this event.
        CmEventKind::TimewaitExit if state.was_connected => {
            Draft::plain(RDMA_CM_EVENT_TIMEWAIT_EXIT)
        }
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
    match resolve::resolved(id, state, device, path) {
        Ok(()) => Draft::plain(RDMA_CM_EVENT_ADDR_RESOLVED),
        Err(error) => {
            state.stage = Stage::Bound;
            Draft::failed(RDMA_CM_EVENT_ADDR_ERROR, error)
        }
    }
}

/// For a UD queue pair a rejection is reported as unreachable, as Linux does.
fn rejection(id: &Entry<Id>, state: &mut State) -> rdma_cm_event_type {
    ended(id, state);
    if id.space == PortSpace::Udp { RDMA_CM_EVENT_UNREACHABLE } else { RDMA_CM_EVENT_REJECTED }
}

fn connect_error(id: &Entry<Id>, state: &mut State, error: &RequestError) -> Draft {
    ended(id, state);
    // A neighbour that does not answer is reported like a peer that does not answer.
    match resolve::errno(error) {
        Errno::ETIMEDOUT => Draft::failed(RDMA_CM_EVENT_UNREACHABLE, Errno::ETIMEDOUT),
        error => Draft::failed(RDMA_CM_EVENT_CONNECT_ERROR, error),
    }
}

fn ended(id: &Entry<Id>, state: &mut State) {
    state.stage = Stage::Ended;
    if id.space == PortSpace::Tcp {
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
    let param = match request.space {
        PortSpace::Tcp => Param::Conn(Conn::from(&request)),
        // The peer's queue pair is not known, and the answer needs no address handle.
        PortSpace::Udp => Param::None,
    };
    let Ok(id) = id::incoming(listener, device, cm, &request) else {
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
        let _ = id::destroy(id.c());
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
    let _counted = acks.deliver().then(|| Counted(Arc::clone(acks)))?;
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
    let entry = Event::registry().insert(PublicEvent { event, data }, Event { _counted });
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

/// Acknowledges an event.
pub(crate) fn acknowledge(event: *const rdma_cm_event) -> Result<(), Errno> {
    Event::registry().remove(event.cast()).map(|_| ())
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
    fn an_event_that_is_none_is_not_acknowledged() {
        assert_eq!(acknowledge(std::ptr::null()), Err(Errno::EINVAL));
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { rdma_ack_cm_event(std::ptr::null_mut()) }, -1);
    }
}
