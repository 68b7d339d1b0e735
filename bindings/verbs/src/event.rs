//! Asynchronous events: what happened to an object and belongs to no work request.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use uroce_engine::{EventKind, Subject};
use uroce_wire::Qpn;

use crate::channel::ChannelError;
use crate::context::Context;
use crate::cq::CqId;
use crate::srq::SrqId;

/// Something that happened. It is acknowledged by being taken; it names its object by number, so
/// that it may be looked at when the object is long gone. A kind of event that happens again before
/// it was taken is one event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AsyncEvent {
    /// What happened.
    pub kind: EventKind,
    /// Whom it happened to.
    pub source: EventSource,
}

/// Whom an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EventSource {
    /// The queue pair of this number.
    QueuePair(Qpn),
    /// The completion queue with this [`id`](crate::CompletionQueue::id).
    CompletionQueue(CqId),
    /// The shared receive queue with this [`id`](crate::SharedReceiveQueue::id).
    SharedReceiveQueue(SrqId),
    /// The port of this number, counted from 1.
    Port(u8),
    /// The device as a whole.
    Device,
}

impl Context {
    /// Takes the oldest asynchronous event of the device, if there is one. None is about an object
    /// that was dropped before.
    ///
    /// # Errors
    ///
    /// The system fails.
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

    /// Sleeps until there is an asynchronous event, and takes it. `None` waits without end; a
    /// signal does not end the wait.
    ///
    /// # Errors
    ///
    /// [`ChannelError::TimedOut`], or the system's.
    pub fn get_async_event(&self, timeout: Option<Duration>) -> Result<AsyncEvent, ChannelError> {
        wait(self.async_fd(), timeout, || Ok(self.poll_async_event()?))
    }

    /// Readable while an asynchronous event waits: for a `poll` or `epoll` of the application's.
    pub fn async_fd(&self) -> BorrowedFd<'_> {
        self.device.engine().events().as_fd()
    }
}

/// Sleeps on `fd` until `next` gives something.
pub(crate) fn wait<T>(
    fd: BorrowedFd<'_>,
    timeout: Option<Duration>,
    mut next: impl FnMut() -> Result<Option<T>, ChannelError>,
) -> Result<T, ChannelError> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if let Some(found) = next()? {
            return Ok(found);
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // Beyond what the system takes is as good as without end.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(ChannelError::TimedOut),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}
