//! Asynchronous events: changes of an object that no work request reports.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use uroce_engine::{EventKind, Subject};
use uroce_wire::Qpn;

use crate::context::Context;
use crate::core::{ChannelError, CqId, SrqId, wait};

/// An asynchronous event. Taking it acknowledges it. It names its object by number, so it may be
/// used after the object was dropped. If a kind of event occurs again for an object before it was
/// taken, there is still one event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// The object that the event is about.
    pub source: EventSource,
}

/// The object that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventSource {
    /// The queue pair with this number, or the EE context ([`crate::rd::Eec`]).
    QueuePair(Qpn),
    /// The completion queue with this [`id`](crate::CompletionQueue::id).
    CompletionQueue(CqId),
    /// The shared receive queue with this [`id`](crate::SharedReceiveQueue::id).
    SharedReceiveQueue(SrqId),
    /// The port with this number, counted from 1.
    Port(u8),
    /// The device as a whole.
    Device,
}

impl Context {
    /// Takes the device's oldest asynchronous event; `None` if there is none. Events of dropped
    /// objects are discarded.
    ///
    /// # Errors
    ///
    /// The event channel's descriptor cannot be read.
    pub fn poll_async_event(&self) -> io::Result<Option<AsyncEvent>> {
        let channel = self.device.engine().events();
        let event = channel.try_next()?;
        Ok(event.map(|event| AsyncEvent {
            kind: event.kind,
            source: match event.subject {
                Subject::Qp(qpn) => EventSource::QueuePair(qpn),
                Subject::Cq(number) => {
                    EventSource::CompletionQueue(CqId::numbered(channel, number))
                }
                Subject::Srq(number) => EventSource::SharedReceiveQueue(SrqId(number)),
                Subject::Port(number) => EventSource::Port(number),
                Subject::Device => EventSource::Device,
            },
        }))
    }

    /// Sleeps until the device has an asynchronous event, and takes it. A `timeout` of `None` waits
    /// for ever. Signals do not end the wait.
    ///
    /// # Errors
    ///
    /// [`ChannelError::TimedOut`] after `timeout`, or [`ChannelError::System`].
    pub fn next_async_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent, ChannelError> {
        wait(self.async_fd(), timeout, || Ok(self.poll_async_event()?))
    }

    /// A descriptor that is readable while an asynchronous event is pending, for the application's
    /// own `poll` or `epoll`.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.device.engine().events().as_fd()
    }
}
