//! Events of ids that were delivered to the program.

use std::sync::Arc;

use crate::abi::rdma_cm_event;
use crate::acks::Acks;
use crate::errno::Errno;
use crate::handle::{Object, object};

/// Largest number of bytes of private data of an event.
pub(crate) const DATA_MAX: usize = 255;

/// The memory that a program's event pointer refers to.
#[repr(C)]
pub(crate) struct PublicEvent {
    pub(crate) event: rdma_cm_event,
    pub(crate) data: [u8; DATA_MAX],
}

/// An event that was delivered to the program.
pub(crate) struct Event {
    /// Acknowledges the event when it is dropped.
    _counted: Counted,
}

object!(Event as PublicEvent);

impl Event {
    /// Counts a new event. `None` if the counter's object is being destroyed, so that the event
    /// must not be delivered.
    pub(crate) fn counted_by(acks: &Arc<Acks>) -> Option<Event> {
        acks.deliver().then(|| Event { _counted: Counted(Arc::clone(acks)) })
    }
}

/// A delivered event. Acknowledges it when dropped.
struct Counted(Arc<Acks>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.acknowledge(1);
    }
}

/// Acknowledges an event.
pub(crate) fn acknowledge(event: *const rdma_cm_event) -> Result<(), Errno> {
    Event::registry().remove(event.cast()).map(|_| ())
}
