//! Asynchronous events: passes them from the engine of a device to the open contexts of the
//! program.
//!
//! ```text
//!   engine ──> thread of the device ──> queue and descriptor of each context ──> next_async_event
//! ```
//!
//! An event of an object goes to the object's context, and an event of an XRC target to each of its
//! handles; an event of a port or device goes to all contexts of the device. Whether the program's
//! call blocks depends on the flags of the context's descriptor.
//!
//! Invariant: when the destruction of an object has returned, no queued event refers to it, because
//! [`forget`] removes its events. So an event that the program has not taken does not make the
//! destruction wait.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use uroce::{AsyncEvent, CqId, EventKind, EventSource};

use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE,
    IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
    ibv_async_event, ibv_context, ibv_event_type,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::objects::context::{self, Context};
use crate::objects::cq::Cq;
use crate::objects::event::{Element, Subject};
use crate::objects::qp::Qp;
use crate::objects::srq::Srq;
use crate::runtime::{self, Device};

/// Largest number of pending events of a context. Later ones are dropped.
const MOST: usize = 1 << 16;

/// C's number of a kind of event.
fn number_of(kind: EventKind) -> ibv_event_type {
    match kind {
        EventKind::CommEst => IBV_EVENT_COMM_EST,
        EventKind::SqDrained => IBV_EVENT_SQ_DRAINED,
        EventKind::QpFatal | EventKind::PeerLost => IBV_EVENT_QP_FATAL,
        EventKind::QpReqErr => IBV_EVENT_QP_REQ_ERR,
        EventKind::QpAccessErr => IBV_EVENT_QP_ACCESS_ERR,
        EventKind::LastWqeReached => IBV_EVENT_QP_LAST_WQE_REACHED,
        EventKind::PathMig => IBV_EVENT_PATH_MIG,
        EventKind::PathMigErr => IBV_EVENT_PATH_MIG_ERR,
        EventKind::CqErr => IBV_EVENT_CQ_ERR,
        EventKind::SrqLimitReached => IBV_EVENT_SRQ_LIMIT_REACHED,
        EventKind::PortActive => IBV_EVENT_PORT_ACTIVE,
        EventKind::PortErr => IBV_EVENT_PORT_ERR,
        EventKind::GidChange => IBV_EVENT_GID_CHANGE,
        EventKind::SrqErr => IBV_EVENT_SRQ_ERR,
        EventKind::DeviceFatal => IBV_EVENT_DEVICE_FATAL,
    }
}

/// The completion queue that an engine event names, if the program has not destroyed it.
fn cq_of(id: CqId) -> Option<Arc<Entry<Cq>>> {
    Cq::registry().find(|cq| cq.cq.id() == id)
}

/// What an engine event is about, if the program has not destroyed it. An XRC target has an element
/// for each of its handles.
fn elements_of(device: &Device, source: EventSource) -> Vec<Element> {
    let is_here = |context: &Context| std::ptr::eq(context.device, device);
    match source {
        EventSource::QueuePair(qpn) => {
            let is_it = |qp: &Qp| qp.control.qpn() == qpn && is_here(&qp.context);
            Qp::registry().find_all(is_it).into_iter().map(element).collect()
        }
        EventSource::CompletionQueue(id) => cq_of(id).into_iter().map(element).collect(),
        EventSource::SharedReceiveQueue(id) => {
            let is_it = |srq: &Srq| srq.srq.id() == id && is_here(&srq.context);
            Srq::registry().find(is_it).into_iter().map(element).collect()
        }
        EventSource::Port(number) => vec![Element::Port(number)],
        EventSource::Device => vec![Element::Device],
    }
}

fn element(object: Arc<impl Subject + 'static>) -> Element {
    Element::Object(object)
}

/// Locked while the object of an event is looked up and the event is queued, so that [`forget`]
/// misses no event of an object.
static HANDING_OUT: Mutex<()> = Mutex::new(());

/// Queues an engine event on the contexts that it is for.
fn hand_out(device: &Device, event: &AsyncEvent) {
    let _handing_out = HANDING_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    if let (EventSource::CompletionQueue(id), EventKind::CqErr) = (event.source, event.kind)
        && let Some(cq) = cq_of(id)
    {
        tell_overrun(&cq);
    }
    let number = number_of(event.kind);
    for element in elements_of(device, event.source) {
        queue(device, &element, number);
    }
}

/// Queues an event on the contexts that its element is for.
fn queue(device: &Device, element: &Element, number: ibv_event_type) {
    let owner = element.owner();
    for context in Context::registry().all() {
        let is_owner = owner.is_none_or(|owner| owner == context.public().cast_const());
        if is_owner && std::ptr::eq(context.device, device) {
            put(&context, element.clone(), number);
        }
    }
}

/// Prints which completion queue has overrun and what to do. Neither the queue nor its queue pairs
/// can be used any more.
fn tell_overrun(cq: &Entry<Cq>) {
    runtime::say(&format!(
        "the completion queue at {:p} has overrun: more work requests had completed than its {} \
         entries hold, and their queue pairs are in the error state. Create it with an entry for \
         each work request that may be outstanding, or poll it before posting more.",
        cq.public(),
        cq.cq.capacity(),
    ));
}

fn put(context: &Context, element: Element, number: ibv_event_type) {
    if context.events.len() < MOST {
        context.events.push((element, number));
    }
}

/// Removes the pending events of an object that was just removed from its registry.
pub(crate) fn forget<T: Object>(context: &Context, object: *const T::Public) {
    // Waits for a concurrent `hand_out`, which may have found the object before its removal.
    drop(HANDING_OUT.lock().unwrap_or_else(PoisonError::into_inner));
    context.events.take_back(|(element, _)| element.is_about(object.addr()));
}

/// The event that the descriptor was read for. `None` if its object is being destroyed.
fn taken(context: &Context) -> Option<ibv_async_event> {
    let (element, event_type) = context.events.taken()?;
    element.deliver().then(|| ibv_async_event { element: element.union(), event_type })
}

/// Counts an acknowledgement at the event's object.
fn acknowledge(event: &ibv_async_event) -> Result<(), Errno> {
    // SAFETY: the union is as large as a pointer, and its bytes are those of the program. The value
    // is only looked up in a registry, never dereferenced.
    let object = unsafe { event.element.qp };
    match event.event_type {
        IBV_EVENT_CQ_ERR => Cq::registry().get(object.cast())?.async_events.acknowledge(1),
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            Srq::registry().get(object.cast())?.events.acknowledge(1);
        }
        IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR => Qp::registry().get(object.cast())?.events.acknowledge(1),
        _ => {}
    }
    Ok(())
}

/// Arranges that each device passes its events on once its engine runs. A thread of the device does
/// this. It sleeps while there are no events, has all signals blocked, and ends with the process.
///
/// # Errors
///
/// The errors of [`runtime::devices`].
pub(crate) fn serve() -> Result<(), Errno> {
    static ASKED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *ASKED.get_or_init(|| runtime::on_start(start))
}

fn start(device: &'static Device, engine: &uroce::Context) {
    let engine = engine.clone();
    let started = runtime::spawn("uroce-events", move || {
        while let Ok(event) = engine.next_async_event(None) {
            hand_out(device, &event);
        }
    });
    if let Err(error) = started {
        runtime::say(&format!("cannot start the thread for asynchronous events: {error}"));
    }
}

pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let found = || context::get(context).inspect_err(|_| runtime::hold_up());
    let find = || match event.is_null() {
        true => Err(Errno::EINVAL),
        false => found()?.events.readable_fd(),
    };
    let take = || {
        let Some(it) = taken(&*found()?) else { return Ok(false) };
        // SAFETY: not NULL, so it is the program's room for an event.
        unsafe { entry::write(event, it) }?;
        Ok(true)
    };
    entry::waiting(find, take)
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    entry::nothing(|| {
        // SAFETY: the program passes NULL or a valid structure.
        acknowledge(&unsafe { entry::read(event) }?)
    });
}
