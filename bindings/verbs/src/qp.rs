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
pub use queues::{PostListError, RecvQueue, SendQueue};

use std::borrow::Borrow;
use std::sync::Arc;

use uroce_controlplane::{AlternateVector, PathError, RequestError, random_psn};
use uroce_engine::{EventGuard, QpInfo, QpSpec};
use uroce_transport::{PostError, QpCaps, QpChange, QpState, QpType};
use uroce_wire::{Gid, Psn, Qkey, Qpn};

use crate::AddressVector;
use crate::cq::CqShared;
use crate::pd::PdShared;
use crate::srq::SrqShared;
use crate::wr::{RecvWr, SendWr};

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

/// The state that all parts keep alive. The QP is destroyed when the last part is dropped.
#[derive(Debug)]
struct QpShared {
    pd: Arc<PdShared>,
    qpn: Qpn,
    lcore: usize,
    qp_type: QpType,
    psn: Psn,
    /// The QP's asynchronous events are delivered while this exists.
    _events: EventGuard,
    _srq: Option<Arc<SrqShared>>,
    _send_cq: Arc<CqShared>,
    _recv_cq: Arc<CqShared>,
}

impl Drop for QpShared {
    fn drop(&mut self) {
        // This fails only if the QP's lcore is lost. The QP cannot be freed then, and nothing of it
        // runs.
        let _ = self.pd.device.destroy_qp(self.qpn);
    }
}

impl QueuePair {
    pub(crate) fn create(pd: &Arc<PdShared>, init: &QpInit<'_>) -> Result<QueuePair, RequestError> {
        let psn = random_psn().map_err(RequestError::NoRandomness)?;
        let (send_cq, recv_cq) = (init.send_cq.shared(), init.recv_cq.shared());
        let handle = pd.device.create_qp(QpSpec {
            qp_type: init.qp_type,
            srq: init.srq.map(|srq| Arc::clone(&srq.shared().srq)),
            pd: pd.pd,
            caps: init.caps,
            send_cq: Arc::clone(&send_cq.cq),
            recv_cq: Arc::clone(&recv_cq.cq),
            lcore: init.lcore,
            notices: false,
        })?;
        let shared = Arc::new(QpShared {
            pd: Arc::clone(pd),
            qpn: handle.qpn,
            lcore: handle.lcore,
            qp_type: init.qp_type,
            psn,
            _events: handle.events,
            _srq: init.srq.map(|srq| Arc::clone(srq.shared())),
            _send_cq: Arc::clone(send_cq),
            _recv_cq: Arc::clone(recv_cq),
        });
        Ok(QueuePair {
            sq: SendQueue { end: handle.sq, shared: Arc::clone(&shared) },
            rq: RecvQueue { end: handle.rq, shared: Arc::clone(&shared) },
            control: QpControl { shared },
        })
    }

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
            ///
            #[doc = concat!("See [`QpControl::", stringify!($name), "`].")]
            ///
            /// # Errors
            ///
            #[doc = concat!("See [`QpControl::", stringify!($name), "`].")]
            pub fn $name($($receiver)* self, $($arg: $type),*) -> $result {
                self.control.$name($($arg),*)
            })*
        }
    };
}

forward! {
    /// The data that a peer needs to connect to this QP.
    [&] fn endpoint(port: u8, sgid_index: u8) -> Result<Endpoint, PathError>;
    /// Modifies the QP from RESET to INIT.
    [&mut] fn init(options: &ConnectOptions) -> Result<(), RequestError>;
    /// Modifies a QP in RESET or INIT to RTS, connected to a peer's QP.
    [&mut] fn connect(remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError>;
    /// Modifies a UD QP from RESET to RTS.
    [&mut] fn start_datagrams(qkey: Qkey, options: &ConnectOptions) -> Result<(), RequestError>;
    /// Attaches a UD QP to a multicast group.
    [&] fn attach_multicast(group: Gid) -> Result<(), RequestError>;
    /// Detaches the QP from a multicast group.
    [&] fn detach_multicast(group: Gid) -> Result<(), RequestError>;
    /// Modify QP: changes the state, other attributes, or both.
    [&mut] fn modify(change: &QpChange, path: Option<&AddressVector>) -> Result<(), RequestError>;
    /// Modify QP with an alternate path too.
    [&mut] fn modify_paths(
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>
    ) -> Result<(), RequestError>;
    /// Modifies the QP from RTS to SQD.
    [&mut] fn drain(notify: bool) -> Result<(), RequestError>;
    /// Modifies the QP from SQD to RTS.
    [&mut] fn resume() -> Result<(), RequestError>;
    /// Loads an alternate path.
    [&mut] fn load_alternate_path(alternate: &AlternateVector) -> Result<(), RequestError>;
    /// Modifies the migration state from MIGRATED to REARM.
    [&mut] fn rearm() -> Result<(), RequestError>;
    /// Migrates the QP to its alternate path.
    [&mut] fn migrate() -> Result<(), RequestError>;
    /// Query QP: the QP's present attributes and capabilities.
    [&] fn query() -> Result<QpInfo, RequestError>;
}
