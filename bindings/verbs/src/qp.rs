//! Queue pair: creation, connection, posting.
//!
//! Posting needs the queue mutably: the rings below have one producer. Two threads that post to one
//! QP each take a half ([`QueuePair::into_parts`]) or a lock.

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
/// but one can post sends while the other posts receives:
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

/// What all parts keep alive; destroys the QP when the last is gone.
#[derive(Debug)]
struct QpShared {
    pd: Arc<PdShared>,
    qpn: Qpn,
    lcore: usize,
    qp_type: QpType,
    psn: Psn,
    /// Its events are given as long as this exists.
    _events: EventGuard,
    _srq: Option<Arc<SrqShared>>,
    _send_cq: Arc<CqShared>,
    _recv_cq: Arc<CqShared>,
}

impl Drop for QpShared {
    fn drop(&mut self) {
        // A QP whose lcore is lost is not ours to free any more, and nothing of it runs.
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

    /// Everything that is not posting.
    pub fn control(&self) -> &QpControl {
        &self.control
    }

    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.control.qpn()
    }

    /// The state as its lcore last published it, without asking.
    pub fn state(&self) -> QpState {
        self.sq.state()
    }

    /// See [`SendQueue::post_send`].
    ///
    /// # Errors
    ///
    /// See [`SendQueue::post_send`].
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.sq.post_send(wr)
    }

    /// See [`SendQueue::post_sends`].
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

    /// See [`RecvQueue::post_recv`].
    ///
    /// # Errors
    ///
    /// See [`RecvQueue::post_recv`].
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.rq.post_recv(wr)
    }

    /// See [`RecvQueue::post_recvs`].
    ///
    /// # Errors
    ///
    /// See [`RecvQueue::post_recvs`].
    #[inline]
    pub fn post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostListError> {
        self.rq.post_recvs(wrs)
    }

    /// Gives it queues of other sizes, in any state, where nothing is outstanding in either. Of a
    /// queue pair with a shared receive queue only the send queue changes.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; it has its old queues then.
    pub fn resize(&mut self, caps: QpCaps) -> Result<(), RequestError> {
        let control = &self.control;
        (self.sq.end, self.rq.end) = control.device().resize_qp(control.qpn(), caps)?;
        Ok(())
    }

    /// Its two queues, e.g. for two threads of a scope.
    pub fn split(&mut self) -> (&mut SendQueue, &mut RecvQueue) {
        (&mut self.sq, &mut self.rq)
    }

    /// Its parts, e.g. for threads of their own.
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
    ($([$($receiver:tt)*] fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        /// What [`QpControl`] does.
        impl QueuePair {
            $(#[doc = concat!("See [`QpControl::", stringify!($name), "`].")]
            ///
            /// # Errors
            ///
            /// Its own.
            pub fn $name($($receiver)* self, $($arg: $type),*) -> $result {
                self.control.$name($($arg),*)
            })*
        }
    };
}

forward! {
    [&] fn endpoint(port: u8, sgid_index: u8) -> Result<Endpoint, PathError>;
    [&mut] fn init(options: &ConnectOptions) -> Result<(), RequestError>;
    [&mut] fn connect(remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError>;
    [&mut] fn start_datagrams(qkey: Qkey, options: &ConnectOptions) -> Result<(), RequestError>;
    [&] fn attach_multicast(group: Gid) -> Result<(), RequestError>;
    [&] fn detach_multicast(group: Gid) -> Result<(), RequestError>;
    [&mut] fn modify(change: &QpChange, path: Option<&AddressVector>) -> Result<(), RequestError>;
    [&mut] fn modify_paths(
        change: &QpChange,
        path: Option<&AddressVector>,
        alternate: Option<&AlternateVector>
    ) -> Result<(), RequestError>;
    [&mut] fn drain(notify: bool) -> Result<(), RequestError>;
    [&mut] fn resume() -> Result<(), RequestError>;
    [&mut] fn load_alternate_path(alternate: &AlternateVector) -> Result<(), RequestError>;
    [&mut] fn rearm() -> Result<(), RequestError>;
    [&mut] fn migrate() -> Result<(), RequestError>;
    [&] fn query() -> Result<QpInfo, RequestError>;
}
