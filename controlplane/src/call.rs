//! Calls of application threads on the control-plane thread.
//!
//! A call is a [`Job`]: a closure that the thread runs once on its own state. The closure contains
//! the channel for its reply.
//!
//! Invariants
//! - A job that the thread drops because it ends closes the reply channel, and the caller gets
//!   [`RequestError::Gone`].
//!
//! Not here: calls that wait for a neighbour or for a frame to be sent. They keep their [`Reply`]
//! in [`crate::thread`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use uroce_engine::port::{Link, PortStats};
use uroce_engine::{AhError, ControlError, CqError, Waker};
use uroce_transport::ModifyError;

use crate::path::PathError;
use crate::rdma_cm::ConnError;
use crate::thread::Thread;

/// Longest wait for a reply. An address resolution and a stalled lcore together take less.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reason for which a request was refused. A refused request has changed nothing; one that is
/// [`Stalled`](RequestError::Stalled) may still be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The engine refused the request, for a reason other than the rules of Modify QP.
    #[error(transparent)]
    Control(ControlError),
    /// The rules of Modify QP forbid the change.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// There is no path to the peer.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The engine cannot make the completion queue of an RD domain.
    #[error(transparent)]
    Queue(#[from] CqError),
    /// The engine has no room for the address handle.
    #[error(transparent)]
    Handle(#[from] AhError),
    /// The connection manager refused the request.
    #[error(transparent)]
    Connection(#[from] ConnError),
    /// The change contains packet headers. Paths are given as an
    /// [`AddressVector`](crate::AddressVector) and resolved.
    #[error("a path is given as an address vector, not as packet headers")]
    RawPath,
    /// The port has no multicast.
    #[error("a port over UDP sockets has no multicast: use one of DPDK's devices")]
    NoMulticast,
    /// The domain is one of another device.
    #[error("the domain belongs to another device: open one of this device")]
    OtherDevice,
    /// The system has no random number for the starting PSN.
    #[error("no random numbers: {0}")]
    NoRandomness(getrandom::Error),
    /// The device is closed, or its control-plane thread has ended.
    #[error("the device's control plane is not running")]
    Gone,
    /// The request had no answer within a minute, which is longer than any request takes.
    #[error("the device's control plane does not answer")]
    Stalled,
}

impl From<ControlError> for RequestError {
    fn from(error: ControlError) -> RequestError {
        match error {
            ControlError::Modify(error) => RequestError::Modify(error),
            other => RequestError::Control(other),
        }
    }
}

/// Work for the control-plane thread, which runs it once.
pub(crate) type Job = Box<dyn FnOnce(&mut Thread) + Send>;

/// Sending end of the channel through which the control-plane thread gets jobs.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    sender: Sender<Job>,
    waker: Arc<Waker>,
}

impl Calls {
    /// Creates a channel to the thread that sleeps on `waker`.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<Job>) {
        let (sender, inbox) = channel();
        (Self { sender, waker }, inbox)
    }

    /// Runs `job` on the thread, without waiting for it.
    ///
    /// # Errors
    ///
    /// [`RequestError::Gone`] if the thread has ended.
    pub(crate) fn send(
        &self,
        job: impl FnOnce(&mut Thread) + Send + 'static,
    ) -> Result<(), RequestError> {
        self.sender.send(Box::new(job)).map_err(|_| RequestError::Gone)?;
        self.waker.wake();
        Ok(())
    }

    /// Runs `call` on the thread and returns its result.
    ///
    /// # Errors
    ///
    /// That of `call`; [`RequestError::Gone`] if the thread has ended, [`RequestError::Stalled`]
    /// after [`PATIENCE`].
    pub(crate) fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Thread) -> Result<R, RequestError> + Send + 'static,
    ) -> Result<R, RequestError> {
        self.begin(|thread, reply| reply.give(call(thread)))
    }

    /// Runs `call` on the thread, which replies at once or later. Blocks until the reply and
    /// returns it.
    ///
    /// # Errors
    ///
    /// That of the reply; [`RequestError::Gone`] if the thread ends before it has replied,
    /// [`RequestError::Stalled`] after [`PATIENCE`].
    pub(crate) fn begin<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Thread, Reply<R>) + Send + 'static,
    ) -> Result<R, RequestError> {
        match self.start(call)?.0.recv_timeout(PATIENCE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(RequestError::Gone),
            Err(RecvTimeoutError::Timeout) => Err(RequestError::Stalled),
        }
    }

    /// Runs `call` on the thread, which replies at once or later. Returns without the reply.
    ///
    /// # Errors
    ///
    /// [`RequestError::Gone`] if the thread has ended.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Thread, Reply<R>) + Send + 'static,
    ) -> Result<Pending<R>, RequestError> {
        let (sender, answer) = channel();
        self.send(move |thread| call(thread, Reply(sender)))?;
        Ok(Pending(answer))
    }
}

/// The reply to a call that has begun.
#[derive(Debug)]
pub(crate) struct Pending<R>(Receiver<Result<R, RequestError>>);

impl<R> Pending<R> {
    /// Returns the reply if it has come.
    pub(crate) fn poll(&self) -> Option<Result<R, RequestError>> {
        match self.0.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(RequestError::Gone)),
        }
    }
}

/// Channel for the one reply to a call.
#[derive(Debug)]
pub(crate) struct Reply<R>(Sender<Result<R, RequestError>>);

impl<R> Reply<R> {
    /// Sends the reply. It is lost if the caller has given up.
    pub(crate) fn give(self, result: Result<R, RequestError>) {
        let _ = self.try_give(result);
    }

    /// Sends the reply.
    ///
    /// # Errors
    ///
    /// Returns the reply if the caller has given up.
    pub(crate) fn try_give(
        self,
        result: Result<R, RequestError>,
    ) -> Result<(), Result<R, RequestError>> {
        self.0.send(result).map_err(|unwanted| unwanted.0)
    }
}

/// Link state and counters of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Link state.
    pub link: Link,
    /// Counters of the port's driver.
    pub stats: PortStats,
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Name, unique within a device.
    pub name: &'static str,
    /// One sentence that says what is counted.
    pub description: &'static str,
    /// Value since the device was opened.
    pub value: u64,
}

impl Count {
    pub(crate) fn new(name: &'static str, description: &'static str, value: u64) -> Count {
        Count { name, description, value }
    }
}
