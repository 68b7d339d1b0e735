//! Asynchronous events that the program has not taken yet.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::abi::{ibv_async_event__bindgen_ty_1, ibv_event_type, verbs_context};

/// An event: the object it is about, and C's number of the event.
pub(crate) type PendingEvent = (Element, ibv_event_type);

/// An object that events can be about: a queue pair, a completion queue or a shared receive queue.
pub(crate) trait Subject: Send + Sync {
    /// Counts an event as delivered. False if the object is being destroyed, so that the event must
    /// not be delivered.
    fn deliver(&self) -> bool;

    /// The program's pointer to the object.
    fn pointer(&self) -> *mut c_void;

    /// The context that gets the object's events.
    fn context(&self) -> *const verbs_context;
}

/// The object, port or device that an event concerns.
#[derive(Clone)]
pub(crate) enum Element {
    Object(Arc<dyn Subject>),
    Port(u8),
    Device,
}

impl Element {
    /// Counts the event as delivered. False if the object is being destroyed, so that the event
    /// must not be delivered.
    pub(crate) fn deliver(&self) -> bool {
        match self {
            Element::Object(object) => object.deliver(),
            Element::Port(_) | Element::Device => true,
        }
    }

    /// The only context that gets the event. `None` if all contexts of the device get it.
    pub(crate) fn owner(&self) -> Option<*const verbs_context> {
        match self {
            Element::Object(object) => Some(object.context()),
            Element::Port(_) | Element::Device => None,
        }
    }

    /// Whether the event is about the object at this address.
    pub(crate) fn is_about(&self, address: usize) -> bool {
        matches!(self, Element::Object(object) if object.pointer().addr() == address)
    }

    /// The union in C's event structure, filled in. All its pointers share one place, so any of
    /// them may be written.
    pub(crate) fn union(&self) -> ibv_async_event__bindgen_ty_1 {
        match self {
            Element::Object(object) => {
                ibv_async_event__bindgen_ty_1 { qp: object.pointer().cast() }
            }
            Element::Port(number) => {
                ibv_async_event__bindgen_ty_1 { port_num: c_int::from(*number) }
            }
            // 0 is not the number of a port.
            Element::Device => ibv_async_event__bindgen_ty_1 { port_num: 0 },
        }
    }
}
