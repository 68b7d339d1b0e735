//! What application threads ask of the control-plane thread, and its answers.

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

/// Why a request was refused. It changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The engine refused it; Modify QP's rules are among its reasons.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// There is no path to the peer.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The engine has no room for the address handle.
    #[error(transparent)]
    Handle(#[from] AhError),
    /// A listener or connection cannot have it.
    #[error(transparent)]
    Connection(#[from] CmError),
    /// The change names packet headers. They are made from an [`AddressVector`], of resolved
    /// addresses only.
    #[error("a path is given as an address vector, not as packet headers")]
    RawPath,
    /// The system gave no random number for the QP's start PSN.
    #[error("no randomness: {0}")]
    NoRandomness(getrandom::Error),
    /// The device is shutting down or its control-plane thread has died.
    #[error("the device's control plane does not run any more")]
    Gone,
    /// No answer in a minute, though each part of a request ends sooner.
    #[error("the device's control plane does not answer")]
    Stalled,
}

/// The way to the control-plane thread.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    sender: Sender<Request>,
    waker: Arc<Waker>,
}

impl Requests {
    /// A channel whose other end the thread listens to that sleeps by `waker`.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<Request>) {
        let (sender, inbox) = channel();
        (Self { sender, waker }, inbox)
    }

    /// Hands a request over.
    ///
    /// # Errors
    ///
    /// [`RequestError::Gone`]: the thread has ended.
    pub(crate) fn send(&self, request: Request) -> Result<(), RequestError> {
        self.sender.send(request).map_err(|_| RequestError::Gone)?;
        self.waker.wake();
        Ok(())
    }
}

/// Where the answer goes.
pub(crate) type Reply<T> = Sender<Result<T, RequestError>>;

/// Where a QP's work requests are posted.
pub(crate) type QueueEnds = (SendQueueEnd, RecvQueueEnd);

/// The state of a port that changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// Whether frames can pass.
    pub link: Link,
    /// What its driver has counted.
    pub stats: PortStats,
}

/// One count: its name, one English sentence, its value.
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
    /// Is answered when what connections have said has left.
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
    /// The device is to close. Before it does it has so long to send what there is to send.
    Shutdown {
        patience: std::time::Duration,
    },
}

/// What is to become of a QP's place in a multicast group.
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
