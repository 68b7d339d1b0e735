//! Queue pair: creation, connection, posting.
//!
//! Posting needs the queue mutably, because its ring has one producer. Two threads that post to one
//! QP each take one of its halves ([`QueuePair::into_parts`]) or use a lock.

mod connect;
mod control;
mod init;
mod migration;
mod queues;

pub use connect::{ConnectOptions, Endpoint};
pub use control::QpControl;
pub use init::QpInit;
pub use queues::{RecvQueue, SendQueue};

use std::borrow::Borrow;
use std::sync::Arc;

use uroce_controlplane::{AlternateVector, PathError, RequestError};
use uroce_engine::{FlowKind, QpInfo};
use uroce_transport::{PostError, QpCaps, QpChange, QpState};
use uroce_wire::{EtherType, Gid, Qkey, Qpn};

use crate::AddressVector;
use crate::core::{QpParts, QpShared};
use crate::flow::Flow;
use crate::pd::ProtectionDomain;
use crate::srq::SharedReceiveQueue;
use crate::wr::{PostListError, RecvWr, SendWr};

/// A queue pair. Dropping it, or the last of its parts, destroys it.
///
/// Two threads cannot post to one queue without a lock:
///
/// ```compile_fail,E0499
/// # fn f(qp: &mut uroce::QueuePair) {
/// std::thread::scope(|threads| {
///     threads.spawn(|| qp.post_send(&uroce::SendWr::send(&[])));
///     threads.spawn(|| qp.post_send(&uroce::SendWr::send(&[])));
/// });
/// # }
/// ```
///
/// One thread can post sends while another posts receives:
///
/// ```
/// # fn f(qp: &mut uroce::QueuePair) {
/// let (sq, rq) = qp.split();
/// std::thread::scope(|threads| {
///     threads.spawn(|| sq.post_send(&uroce::SendWr::send(&[])));
///     threads.spawn(|| rq.post_recv(&uroce::RecvWr::new(&[])));
/// });
/// # }
/// ```
#[derive(Debug)]
pub struct QueuePair {
    control: QpControl,
    sq: SendQueue,
    rq: RecvQueue,
}

impl ProtectionDomain {
    /// Creates a queue pair in RESET.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn create_qp(&self, init: &QpInit<'_>) -> Result<QueuePair, RequestError> {
        let &QpInit { qp_type, caps, lcore, congestion, .. } = init;
        create(QpParts {
            pd: self.shared(),
            send_cq: init.send_cq.shared(),
            recv_cq: init.recv_cq.shared(),
            srq: init.srq.map(SharedReceiveQueue::shared),
            xrcd: None,
            rdd: None,
            qp_type,
            caps,
            lcore,
            congestion,
        })
    }
}

/// Capacities of what takes no posts: the smallest that a queue pair can have.
pub(crate) const NO_QUEUES: QpCaps =
    QpCaps { max_send_wr: 1, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

/// Creates a queue pair in RESET from its parts.
pub(crate) fn create(parts: QpParts<'_>) -> Result<QueuePair, RequestError> {
    let (shared, sq, rq) = QpShared::create(parts)?;
    Ok(QueuePair {
        sq: SendQueue { end: sq, shared: Arc::clone(&shared) },
        rq: RecvQueue { end: rq, shared: Arc::clone(&shared) },
        control: QpControl { shared },
    })
}

impl QueuePair {
    /// The part of the queue pair for everything except posting.
    pub fn control(&self) -> &QpControl {
        &self.control
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> Qpn {
        self.control.qpn()
    }

    /// The state that the lcore has published last. Does not ask the lcore.
    pub fn state(&self) -> QpState {
        self.sq.state()
    }

    /// Posts a send work request. See [`SendQueue::post_send`].
    ///
    /// # Errors
    ///
    /// See [`SendQueue::post_send`].
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.sq.post_send(wr)
    }

    /// Posts a list of send work requests. See [`SendQueue::post_sends`].
    ///
    /// # Errors
    ///
    /// See [`SendQueue::post_sends`].
    #[inline]
    pub fn post_sends<'a>(
        &mut self,
        wrs: impl IntoIterator<Item = impl Borrow<SendWr<'a>>>,
    ) -> Result<(), PostListError> {
        self.sq.post_sends(wrs)
    }

    /// Posts a receive work request. See [`RecvQueue::post_recv`].
    ///
    /// # Errors
    ///
    /// See [`RecvQueue::post_recv`].
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.rq.post_recv(wr)
    }

    /// Posts a list of receive work requests. See [`RecvQueue::post_recvs`].
    ///
    /// # Errors
    ///
    /// See [`RecvQueue::post_recvs`].
    #[inline]
    pub fn post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostListError> {
        self.rq.post_recvs(wrs)
    }

    /// Changes the sizes of both queues. Possible in any state while no work request is
    /// outstanding. With a shared receive queue only the send queue changes.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the old queues stay in use.
    pub fn resize(&mut self, caps: QpCaps) -> Result<(), RequestError> {
        let control = &self.control;
        (self.sq.end, self.rq.end) = control.device().resize_qp(control.qpn(), caps)?;
        Ok(())
    }

    /// Borrows the two queues, for use on two threads of a scope.
    pub fn split(&mut self) -> (&mut SendQueue, &mut RecvQueue) {
        (&mut self.sq, &mut self.rq)
    }

    /// Takes the queue pair apart, so that its parts can move to different threads.
    pub fn into_parts(self) -> (QpControl, SendQueue, RecvQueue) {
        (self.control, self.sq, self.rq)
    }
}

impl AsRef<QpControl> for QueuePair {
    fn as_ref(&self) -> &QpControl {
        &self.control
    }
}

macro_rules! forward {
    ($(
        $(#[$doc:meta])*
        [$($receiver:tt)*] fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;
    )*) => {
        /// Methods of [`QpControl`], for use on the whole queue pair.
        impl QueuePair {
            $(
            $(#[$doc])*
            pub fn $name($($receiver)* self, $($arg: $type),*) -> $result {
                self.control.$name($($arg),*)
            })*
        }
    };
}

forward! {
    /// The data that a peer needs to connect to this QP at a port (counted from 1) with one of its
    /// GIDs. The PSN is random and stays the same for the QP's life.
    ///
    /// # Errors
    ///
    /// [`PathError::NoPort`] or [`PathError::NoGid`].
    [&] fn endpoint(port: u8, sgid_index: u8) -> Result<Endpoint, PathError>;

    /// Modifies the QP from RESET to INIT, in which receives can be posted before the peer can
    /// send. Of the options `port` and `access` are used.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn init(options: &ConnectOptions) -> Result<(), RequestError>;

    /// Modifies a QP in RESET or INIT to RTS, connected to a peer's QP, which must be connected to
    /// this one. Resolves the peer's next hop, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it has reached: in INIT if the
    /// peer was not resolved, from which it can be connected again.
    [&mut] fn connect(remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError>;

    /// Modifies a UD QP from RESET to RTS, in which it receives datagrams with this Q_Key. Of the
    /// options `port` and `rate_limit` are used.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it has reached.
    [&mut] fn start_datagrams(qkey: Qkey, options: &ConnectOptions) -> Result<(), RequestError>;

    /// Attaches a UD QP to a multicast group: it gets a copy of each datagram to the group that its
    /// port receives. No effect if it is attached already.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    [&] fn attach_multicast(group: Gid) -> Result<(), RequestError>;

    /// Detaches the QP from a multicast group. It gets no more datagrams of the group after this
    /// returns.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    [&] fn detach_multicast(group: Gid) -> Result<(), RequestError>;

    /// Modifies a raw QP from RESET to RTS, at a port counted from 1.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it has reached.
    [&mut] fn start_raw(port: u8) -> Result<(), RequestError>;

    /// Makes a flow of a raw QP at a port counted from 1. See [`QpControl::create_flow`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    [&] fn create_flow(port: u8, kind: FlowKind) -> Result<Flow, RequestError>;

    /// Makes a Raw EtherType QP receive frames of this type. See
    /// [`QpControl::receive_ether_type`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    [&] fn receive_ether_type(port: u8, kind: EtherType) -> Result<Flow, RequestError>;

    /// Makes a Raw IPv6 QP receive packets. See [`QpControl::receive_ipv6`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    [&] fn receive_ipv6(port: u8) -> Result<Flow, RequestError>;

    /// Modify QP: changes the state, other attributes, or both. The path is given as an address
    /// vector; `change.path` must be empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn modify(change: &QpChange, path: Option<&AddressVector>) -> Result<(), RequestError>;

    /// Modify QP with an alternate path too. `change.path` and `change.alt_path` must be empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn modify_paths(
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>
    ) -> Result<(), RequestError>;

    /// Modifies the QP from RTS to SQD: no new message is begun, and messages in progress are
    /// finished. If `notify` is set, [`EventKind::SqDrained`](crate::EventKind::SqDrained) follows.
    /// Receiving continues.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn drain(notify: bool) -> Result<(), RequestError>;

    /// Modifies the QP from SQD to RTS, even if the queue is not drained yet. Messages that were
    /// posted meanwhile begin, in order.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn resume() -> Result<(), RequestError>;

    /// Sets the silence of the peer, in milliseconds, after which a connected RC QP in which
    /// nothing is outstanding asks the peer for a sign of life; 0 means never. See
    /// [`QpControl::set_keepalive`].
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn set_keepalive(idle_ms: u32) -> Result<(), RequestError>;

    /// Loads an alternate path and resolves its next hop. Replaces a path that was loaded before.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn load_alternate_path(alternate: &AlternateVector) -> Result<(), RequestError>;

    /// Modifies the migration state from MIGRATED to REARM: the QP is ready to migrate to its
    /// alternate path. It is ARMED when the peer is ready too and has sent a packet.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn rearm() -> Result<(), RequestError>;

    /// Modifies the migration state from ARMED to MIGRATED: the QP changes to its alternate path,
    /// and its packets make the peer do so too.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is unchanged.
    [&mut] fn migrate() -> Result<(), RequestError>;

    /// Query QP: the QP's present attributes and capabilities.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    [&] fn query() -> Result<QpInfo, RequestError>;
}
