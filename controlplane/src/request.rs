//! Requests of application threads to the control-plane thread, and their replies.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use uroce_engine::port::{Link, PortStats};
use uroce_engine::{
    AhError, ControlError, QpHandle, QpInfo, QpSpec, RecvQueueEnd, SendQueueEnd, Waker,
};
use uroce_transport::{PathAttr, QpCaps, QpChange};
use uroce_wire::{Gid, Mac, Qpn};

use crate::config::LossConfig;
use crate::connect::{CmError, CmRequest};
use crate::netdev::NetdevState;
use crate::path::{AddressVector, AlternateVector, PathError};

/// Reason for which a request was refused. A refused request has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The engine refused the request, for example by the rules of Modify QP.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// There is no path to the peer.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The engine has no room for the address handle.
    #[error(transparent)]
    Handle(#[from] AhError),
    /// The connection manager refused the request.
    #[error(transparent)]
    Connection(#[from] CmError),
    /// The change contains packet headers. Paths are given as an [`AddressVector`] and resolved.
    #[error("a path is given as an address vector, not as packet headers")]
    RawPath,
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

/// Sending end of the channel to the control-plane thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: Sender<Request>,
    waker: Arc<Waker>,
}

impl Requests {
    /// Creates a channel to the thread that sleeps on `waker`.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<Request>) {
        let (sender, inbox) = channel();
        (Self { sender, waker }, inbox)
    }

    /// Sends a request and wakes the thread.
    ///
    /// # Errors
    ///
    /// [`RequestError::Gone`] if the thread has ended.
    pub(crate) fn send(&self, request: Request) -> Result<(), RequestError> {
        self.sender.send(request).map_err(|_| RequestError::Gone)?;
        self.waker.wake();
        Ok(())
    }
}

/// Channel for the reply to a request.
pub(crate) type Reply<T> = Sender<Result<T, RequestError>>;

/// Ends of a QP's queues, to which work requests are posted.
pub(crate) type QueueEnds = (SendQueueEnd, RecvQueueEnd);

/// Link state and counters of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Link state.
    pub link: Link,
    /// Counters of the port's driver.
    pub stats: PortStats,
}

/// A counter: its name, one sentence of description, its value.
pub type Count = (&'static str, &'static str, u64);

#[derive(Debug)]
pub(crate) enum Request {
    CreateQp {
        spec: Box<QpSpec>,
        reply: Reply<QpHandle>,
    },
    ModifyQp(ModifyQp),
    QueryQp {
        qpn: Qpn,
        reply: Reply<QpInfo>,
    },
    ResizeQp {
        qpn: Qpn,
        caps: QpCaps,
        reply: Reply<QueueEnds>,
    },
    DestroyQp {
        qpn: Qpn,
        reply: Reply<()>,
    },
    Resolve {
        port: u8,
        vector: AddressVector,
        reply: Reply<Mac>,
    },
    ResolveHandle {
        port: u8,
        vector: AddressVector,
        reply: Reply<PathAttr>,
    },
    Multicast {
        qpn: Qpn,
        group: Gid,
        membership: Membership,
        reply: Reply<()>,
    },
    PortStatus {
        port: u8,
        reply: Reply<PortStatus>,
    },
    SetLoss {
        port: u8,
        loss: LossConfig,
        reply: Reply<()>,
    },
    SetLink {
        port: u8,
        up: bool,
        reply: Reply<()>,
    },
    Connection(CmRequest),
    /// Is answered when all messages of connections so far have been sent.
    SeeOff {
        reply: Reply<()>,
    },
    Counts {
        reply: Reply<Vec<Count>>,
    },
    Netdev {
        port: u8,
        state: NetdevState,
    },
    /// Closes the device. It has `patience` to send what is due.
    Shutdown {
        patience: std::time::Duration,
    },
}

/// Change of a QP's membership in a multicast group.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Membership {
    Attach,
    Detach,
}

#[derive(Debug)]
pub(crate) struct ModifyQp {
    pub(crate) qpn: Qpn,
    pub(crate) change: Box<QpChange>,
    pub(crate) vector: Option<AddressVector>,
    pub(crate) alternate: Option<AlternateVector>,
    pub(crate) reply: Reply<()>,
}
