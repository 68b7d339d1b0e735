//! Asynchronous events: from the engine of a device to the contexts of its programs.
//!
//! ```text
//!   engine ──> thread of the device ──> queue and descriptor of each context ──> get_async_event
//! ```
//!
//! An event of an object goes to the context of the object, one of a port or the device to all. It
//! is blocking or not as the program made the context's descriptor.
//!
//! Invariant: an object that was destroyed ([`forget`]) is kept by no event, and so keeps nothing
//! busy that it was made of.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use uroce::{AsyncEvent, EventKind, EventSource};

use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL, IBV_EVENT_GID_CHANGE,
    IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
    IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED,
    IBV_EVENT_QP_REQ_ERR, IBV_EVENT_SQ_DRAINED, IBV_EVENT_SRQ_ERR, IBV_EVENT_SRQ_LIMIT_REACHED,
    ibv_async_event, ibv_async_event__bindgen_ty_1, ibv_context, ibv_event_type,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Entry, Object};
use crate::ibv::context::{self, Context};
use crate::ibv::cq::Cq;
use crate::ibv::qp::Qp;
use crate::ibv::srq::Srq;
use crate::runtime::{self, Device};

/// Events that a program has not taken, at most; later ones are lost then.
const MOST: usize = 1 << 16;

/// What has happened, and to whom.
pub(crate) type Happening = (Element, ibv_event_type);

/// Whom an event is about.
#[derive(Clone)]
pub(crate) enum Element {
    Qp(Arc<Entry<Qp>>),
    Cq(Arc<Entry<Cq>>),
    Srq(Arc<Entry<Srq>>),
    Port(u8),
    Device,
}

/// C's number of an event.
fn number_of(kind: EventKind) -> ibv_event_type {
    match kind {
        EventKind::CommEst => IBV_EVENT_COMM_EST,
        EventKind::SqDrained => IBV_EVENT_SQ_DRAINED,
        EventKind::QpFatal => IBV_EVENT_QP_FATAL,
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

impl Element {
    /// The object that an event of a device names, if the program still has it.
    fn of(device: &Device, source: EventSource) -> Option<Element> {
        let is_here = |context: &Context| std::ptr::eq(context.device, device);
        Some(match source {
            EventSource::QueuePair(qpn) => Element::Qp(
                Qp::registry().find(|qp| qp.control.qpn() == qpn && is_here(&qp.context))?,
            ),
            EventSource::CompletionQueue(id) => {
                Element::Cq(Cq::registry().find(|cq| cq.cq.id() == id)?)
            }
            EventSource::SharedReceiveQueue(id) => Element::Srq(
                Srq::registry().find(|srq| srq.srq.id() == id && is_here(&srq.context))?,
            ),
            EventSource::Port(number) => Element::Port(number),
            EventSource::Device => Element::Device,
        })
    }

    /// Counts it as delivered. False: the object is being destroyed.
    fn deliver(&self) -> bool {
        match self {
            Element::Qp(qp) => qp.events.deliver(),
            Element::Cq(cq) => cq.async_events.deliver(),
            Element::Srq(srq) => srq.events.deliver(),
            Element::Port(_) | Element::Device => true,
        }
    }

    /// As C has it.
    fn public(&self) -> ibv_async_event__bindgen_ty_1 {
        match self {
            Element::Qp(qp) => ibv_async_event__bindgen_ty_1 { qp: qp.public().cast() },
            Element::Cq(cq) => ibv_async_event__bindgen_ty_1 { cq: cq.public().cast() },
            Element::Srq(srq) => ibv_async_event__bindgen_ty_1 { srq: srq.public() },
            Element::Port(number) => {
                ibv_async_event__bindgen_ty_1 { port_num: c_int::from(*number) }
            }
            // A port that there is not.
            Element::Device => ibv_async_event__bindgen_ty_1 { port_num: 0 },
        }
    }
}

/// Held while an event is handed out: it has its object meanwhile.
static HANDING_OUT: Mutex<()> = Mutex::new(());

/// Hands an event of a device to the contexts that it is for.
fn hand_out(device: &Device, event: &AsyncEvent) {
    let _handing_out = HANDING_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(element) = Element::of(device, event.source) else { return };
    let number = number_of(event.kind);
    if let (Element::Cq(cq), IBV_EVENT_CQ_ERR) = (&element, number) {
        tell_overrun(cq);
    }
    let owner = match &element {
        Element::Qp(qp) => Some(qp.context.public()),
        Element::Cq(cq) => Some(cq.context.public()),
        Element::Srq(srq) => Some(srq.context.public()),
        Element::Port(_) | Element::Device => None,
    };
    for context in Context::registry().all() {
        let is_owner = owner.is_none_or(|owner| owner == context.public());
        if is_owner && std::ptr::eq(context.device, device) {
            put(&context, element.clone(), number);
        }
    }
}

/// Says which queue has overrun, and what to do: it is of no use any more, nor are its queue pairs.
fn tell_overrun(cq: &Entry<Cq>) {
    runtime::say(&format!(
        "the completion queue at {:p} has overrun: more work requests had completed than its {} \
         entries hold, and their queue pairs are in the error state. Give it as many entries as all \
         queues that complete to it have places, or poll it before more is posted.",
        cq.public(),
        cq.cq.capacity(),
    ));
}

fn put(context: &Context, element: Element, number: ibv_event_type) {
    if context.events.len() < MOST {
        context.events.push((element, number));
    }
}

/// Forgets the events of an object that is being destroyed and is found no more.
pub(crate) fn forget<T: Object>(context: &Context, object: *const T::Public) {
    // Who found it before has handed it out then.
    drop(HANDING_OUT.lock().unwrap_or_else(PoisonError::into_inner));
    context.events.take_back(|(element, _)| {
        let address = match element {
            Element::Qp(qp) => qp.public().addr(),
            Element::Cq(cq) => cq.public().addr(),
            Element::Srq(srq) => srq.public().addr(),
            Element::Port(_) | Element::Device => 0,
        };
        address == object.addr()
    });
}

/// The event that the descriptor was read for. What was about an object that is gone does not count.
fn taken(context: &Context) -> Option<ibv_async_event> {
    let (element, event_type) = context.events.taken()?;
    element.deliver().then(|| ibv_async_event { element: element.public(), event_type })
}

/// Counts an event as acknowledged by its object.
fn acknowledge(event: &ibv_async_event) -> Result<(), Errno> {
    // SAFETY: the event's number says which pointer it is; it is looked up, not followed.
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

/// Has the events of all devices handed out as soon as their engines run: by a thread of each, which
/// sleeps while there are none, takes no signals, and ends with the process.
///
/// # Errors
///
/// There are no devices.
pub(crate) fn serve() -> Result<(), Errno> {
    static ASKED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *ASKED.get_or_init(|| runtime::on_start(start))
}

fn start(device: &'static Device, engine: &uroce::Context) {
    let engine = engine.clone();
    let started = runtime::spawn("uroce-events", move || {
        while let Ok(event) = engine.get_async_event(None) {
            hand_out(device, &event);
        }
    });
    if let Err(error) = started {
        runtime::say(&format!("no thread for asynchronous events: {error}"));
    }
}

pub(crate) unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    let found = || context::get(context).inspect_err(|_| runtime::hold_up());
    let find = || if event.is_null() { Err(Errno::EINVAL) } else { Ok(found()?.events.fd()) };
    let take = || {
        let Some(it) = taken(&*found()?) else { return Ok(false) };
        // SAFETY: not NULL, so the caller's place for it.
        unsafe { entry::write(event, it) }?;
        Ok(true)
    };
    entry::waiting(find, take)
}

pub(crate) unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    entry::nothing(|| {
        // SAFETY: what programs pass is theirs or NULL.
        acknowledge(&unsafe { entry::read(event) }?)
    });
}
