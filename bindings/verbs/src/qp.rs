//! Queue pair: creation, connection, posting.
//!
//! Posting needs the queue mutably: the rings below have one producer. Two threads that post to one
//! QP each take a half ([`QueuePair::into_parts`]) or a lock.

use std::sync::Arc;

use uroce_controlplane::{PathError, RequestError, random_psn};
use uroce_engine::{EventGuard, QpInfo, QpSpec, RecvQueueEnd, SendQueueEnd};
use uroce_transport::{AccessFlags, PostError, QpCaps, QpChange, QpState, QpType};
use uroce_wire::{Gid, PathMtu, Pkey, Psn, Qkey, Qpn};

use crate::AddressVector;
use crate::cq::{CompletionQueue, CqShared};
use crate::mr::MemorySlice;
use crate::pd::PdShared;
use crate::srq::{SharedReceiveQueue, SrqShared};
use crate::wr::{RecvWr, SendWr};

/// What a queue pair is created with.
#[derive(Clone, Copy, Debug)]
pub struct QpInit<'a> {
    /// Where its sends complete.
    pub send_cq: &'a CompletionQueue,
    /// Where its receives complete; may be the same.
    pub recv_cq: &'a CompletionQueue,
    /// Transport service; RC unless said otherwise.
    pub qp_type: QpType,
    /// Where its receives come from, if not from a queue of its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// How large its queues are.
    pub caps: QpCaps,
    /// The lcore that is to serve it; the least loaded if none is named.
    pub lcore: Option<usize>,
}

impl<'a> QpInit<'a> {
    /// One completion queue for both sides, 128 work requests each way with 4 slices each.
    pub fn new(cq: &'a CompletionQueue) -> QpInit<'a> {
        let caps = QpCaps {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 0,
        };
        QpInit { send_cq: cq, recv_cq: cq, qp_type: QpType::Rc, srq: None, caps, lcore: None }
    }

    /// Of that transport service.
    pub fn qp_type(mut self, qp_type: QpType) -> QpInit<'a> {
        self.qp_type = qp_type;
        self
    }

    /// Receiving from a shared queue, of the same protection domain.
    pub fn srq(mut self, srq: &'a SharedReceiveQueue) -> QpInit<'a> {
        self.srq = Some(srq);
        self
    }

    /// With room for so many bytes of inline data in each send, up to 1024.
    pub fn max_inline(mut self, bytes: u32) -> QpInit<'a> {
        self.caps.max_inline_data = bytes;
        self
    }
}

/// What a peer must know of a QP to connect to it: plain numbers to be exchanged out of band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub gid: Gid,
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it will send.
    pub psn: Psn,
}

/// How [`QueuePair::connect`] sets the attributes that the endpoints do not say. The defaults are
/// those of common test programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Local port, from 1; default 1.
    pub port: u8,
    /// Index of our address among the port's GIDs; default 0.
    pub sgid_index: u8,
    /// Payload of a full packet, the same at both ends; default: the largest that fits the port.
    pub path_mtu: Option<PathMtu>,
    /// What the peer may do; default: everything.
    pub access: AccessFlags,
    /// Local ACK timeout, 4.096 µs · 2^code, 0 (never) to 31; default 14 (67 ms).
    pub timeout: u8,
    /// Transport retries, 0 to 7; default 7.
    pub retry_cnt: u8,
    /// Retries after "receiver not ready", 0 to 7 (for ever); default 7.
    pub rnr_retry: u8,
    /// How long the peer waits when we have no receive posted, a code from 0 to 31; default 12
    /// (0.64 ms).
    pub min_rnr_timer: u8,
    /// READ and ATOMIC requests of ours outstanding, 0 to 16; default 16. At most the peer's
    /// `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// READ and ATOMIC requests of the peer's outstanding, 0 to 16; default 16.
    pub max_dest_rd_atomic: u8,
    /// DSCP and ECN; default 0.
    pub traffic_class: u8,
    /// IPv6 flow label; default 0.
    pub flow_label: u32,
    /// TTL or hop limit; default 64.
    pub hop_limit: u8,
    /// Priority of VLAN-tagged frames, 0 to 7; default 0.
    pub service_level: u8,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            port: 1,
            sgid_index: 0,
            path_mtu: None,
            access: AccessFlags::all(),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            service_level: 0,
        }
    }
}

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

/// The part of a queue pair that is not a queue. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct QpControl {
    shared: Arc<QpShared>,
}

/// The send half of a queue pair.
#[derive(Debug)]
pub struct SendQueue {
    end: SendQueueEnd,
    shared: Arc<QpShared>,
}

/// The receive half of a queue pair.
#[derive(Debug)]
pub struct RecvQueue {
    end: RecvQueueEnd,
    shared: Arc<QpShared>,
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

/// A list of work requests was posted in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after {posted} work requests: {error}")]
pub struct PostListError {
    /// How many were posted, from the first on.
    pub posted: usize,
    /// Why the next was not.
    pub error: PostError,
}

impl From<(usize, PostError)> for PostListError {
    fn from((posted, error): (usize, PostError)) -> PostListError {
        PostListError { posted, error }
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

    /// See [`QpControl::endpoint`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::endpoint`].
    pub fn endpoint(&self, port: u8, sgid_index: u8) -> Result<Endpoint, PathError> {
        self.control.endpoint(port, sgid_index)
    }

    /// See [`QpControl::init`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::init`].
    pub fn init(&mut self, options: &ConnectOptions) -> Result<(), RequestError> {
        self.control.init(options)
    }

    /// See [`QpControl::connect`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::connect`].
    pub fn connect(
        &mut self,
        remote: &Endpoint,
        options: &ConnectOptions,
    ) -> Result<(), RequestError> {
        self.control.connect(remote, options)
    }

    /// See [`QpControl::start_datagrams`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::start_datagrams`].
    pub fn start_datagrams(
        &mut self,
        qkey: Qkey,
        options: &ConnectOptions,
    ) -> Result<(), RequestError> {
        self.control.start_datagrams(qkey, options)
    }

    /// See [`QpControl::attach_multicast`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::attach_multicast`].
    pub fn attach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.control.attach_multicast(group)
    }

    /// See [`QpControl::detach_multicast`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::detach_multicast`].
    pub fn detach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.control.detach_multicast(group)
    }

    /// See [`QpControl::modify`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::modify`].
    pub fn modify(
        &mut self,
        change: &QpChange,
        path: Option<&AddressVector>,
    ) -> Result<(), RequestError> {
        self.control.modify(change, path)
    }

    /// See [`QpControl::query`].
    ///
    /// # Errors
    ///
    /// See [`QpControl::query`].
    pub fn query(&self) -> Result<QpInfo, RequestError> {
        self.control.query()
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
    pub fn post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostListError> {
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

    /// Its two queues, e.g. for two threads of a scope.
    pub fn split(&mut self) -> (&mut SendQueue, &mut RecvQueue) {
        (&mut self.sq, &mut self.rq)
    }

    /// Its parts, e.g. for threads of their own.
    pub fn into_parts(self) -> (QpControl, SendQueue, RecvQueue) {
        (self.control, self.sq, self.rq)
    }
}

impl QpControl {
    /// The QP's number.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }

    /// Its transport service.
    pub fn qp_type(&self) -> QpType {
        self.shared.qp_type
    }

    /// The lcore that serves it.
    pub fn lcore(&self) -> usize {
        self.shared.lcore
    }

    /// What the peer must know to connect to it, with the address of that index at a port counted
    /// from 1. The PSN is random and stays the same for the QP's life.
    ///
    /// # Errors
    ///
    /// [`PathError::NoPort`] or [`PathError::NoGid`].
    pub fn endpoint(&self, port: u8, sgid_index: u8) -> Result<Endpoint, PathError> {
        let attr = self.shared.pd.device.port(port).ok_or(PathError::NoPort(port))?;
        let gid = attr.gids.get(usize::from(sgid_index));
        let gid = *gid.ok_or(PathError::NoGid { port, index: sgid_index })?;
        Ok(Endpoint { gid, qpn: self.shared.qpn, psn: self.shared.psn })
    }

    /// Takes a QP from RESET to INIT, where receives can be posted before the peer knows of it.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn init(&self, options: &ConnectOptions) -> Result<(), RequestError> {
        let change = QpChange {
            pkey: Some(Pkey::DEFAULT),
            port: Some(options.port),
            access: (self.shared.qp_type != QpType::Ud).then_some(options.access),
            ..QpChange::to(QpState::Init)
        };
        self.modify(&change, None)
    }

    /// Connects a QP in RESET or INIT to a peer's, which connects to this one: takes it to RTS. The
    /// peer's next hop is resolved, which takes a few seconds if it does not answer.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it reached: after an unresolved
    /// peer that is INIT, from where it can be connected again.
    pub fn connect(&self, remote: &Endpoint, options: &ConnectOptions) -> Result<(), RequestError> {
        let device = &self.shared.pd.device;
        let port = device.port(options.port).ok_or(PathError::NoPort(options.port))?;
        if self.query()?.attr.state == QpState::Reset {
            self.init(options)?;
        }
        // A port too small for any path MTU says so when the smallest does not fit.
        let path_mtu = options.path_mtu.or(port.max_path_mtu).unwrap_or(PathMtu::B256);
        let path = AddressVector {
            sgid_index: options.sgid_index,
            dgid: remote.gid,
            traffic_class: options.traffic_class,
            flow_label: options.flow_label,
            hop_limit: options.hop_limit,
            service_level: options.service_level,
        };
        // What only an acknowledged service has.
        let reliable = |value| (self.shared.qp_type == QpType::Rc).then_some(value);
        let to_rtr = QpChange {
            access: Some(options.access),
            path_mtu: Some(path_mtu),
            dest_qpn: Some(remote.qpn),
            rq_psn: Some(remote.psn),
            max_dest_rd_atomic: reliable(options.max_dest_rd_atomic),
            min_rnr_timer: reliable(options.min_rnr_timer),
            ..QpChange::to(QpState::Rtr)
        };
        self.modify(&to_rtr, Some(&path))?;
        let to_rts = QpChange {
            sq_psn: Some(self.shared.psn),
            timeout: reliable(options.timeout),
            retry_cnt: reliable(options.retry_cnt),
            rnr_retry: reliable(options.rnr_retry),
            max_rd_atomic: reliable(options.max_rd_atomic),
            ..QpChange::to(QpState::Rts)
        };
        self.modify(&to_rts, None)
    }

    /// Takes a UD QP from RESET to RTS. Datagrams that bring this Q_Key are received from now on.
    /// Of the options only the port counts.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]. The QP stays in the last state that it reached.
    pub fn start_datagrams(
        &self,
        qkey: Qkey,
        options: &ConnectOptions,
    ) -> Result<(), RequestError> {
        let to_init = QpChange {
            pkey: Some(Pkey::DEFAULT),
            port: Some(options.port),
            qkey: Some(qkey),
            ..QpChange::to(QpState::Init)
        };
        self.modify(&to_init, None)?;
        self.modify(&QpChange::to(QpState::Rtr), None)?;
        let psn = Some(self.shared.psn);
        self.modify(&QpChange { sq_psn: psn, ..QpChange::to(QpState::Rts) }, None)
    }

    /// Has a UD QP get a copy of each datagram to the group that its port receives; without effect
    /// if it does already. Routers and switches are not told: groups reach where the network
    /// floods them, which is the port's own link most often.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    pub fn attach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.shared.pd.device.attach_multicast(self.shared.qpn, group)
    }

    /// Takes the QP out of a group. It gets nothing to that address any more when this returns.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; nothing has changed.
    pub fn detach_multicast(&self, group: Gid) -> Result<(), RequestError> {
        self.shared.pd.device.detach_multicast(self.shared.qpn, group)
    }

    /// Modify QP: another state, other attributes, or both. A path is given as an address vector
    /// beside the change, whose own `path` stays empty.
    ///
    /// # Errors
    ///
    /// See [`RequestError`]; the QP is as it was.
    pub fn modify(
        &self,
        change: &QpChange,
        path: Option<&AddressVector>,
    ) -> Result<(), RequestError> {
        self.shared.pd.device.modify_qp(self.shared.qpn, change, path)
    }

    /// Query QP.
    ///
    /// # Errors
    ///
    /// See [`RequestError`].
    pub fn query(&self) -> Result<QpInfo, RequestError> {
        self.shared.pd.device.query_qp(self.shared.qpn)
    }
}

impl SendQueue {
    /// Posts a work request.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        wr.push_to(&mut self.end.batch()?)
    }

    /// Posts work requests in order and wakes the lcore once.
    ///
    /// # Errors
    ///
    /// The first that was refused ends the list; see [`PostListError`].
    #[inline]
    pub fn post_sends(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostListError> {
        let mut batch = self.end.batch().map_err(|error| PostListError { posted: 0, error })?;
        for (posted, wr) in wrs.iter().enumerate() {
            wr.push_to(&mut batch).map_err(|error| PostListError { posted, error })?;
        }
        Ok(())
    }

    /// Work requests that can be posted now.
    pub fn room(&self) -> u32 {
        self.end.room()
    }

    /// The QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.end.state()
    }

    /// The queue pair that it belongs to.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }
}

impl RecvQueue {
    /// Posts memory for a message.
    ///
    /// # Errors
    ///
    /// See [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.end.post_recv(&wr.wr, MemorySlice::sges(wr.sges))
    }

    /// Posts memory for several messages, in order.
    ///
    /// # Errors
    ///
    /// The first that was refused ends the list; see [`PostListError`].
    #[inline]
    pub fn post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostListError> {
        let list = wrs.iter().map(|wr| (&wr.wr, MemorySlice::sges(wr.sges)));
        Ok(self.end.post_recv_list(list)?)
    }

    /// Work requests that can be posted now.
    pub fn room(&self) -> u32 {
        self.end.room()
    }

    /// The QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.end.state()
    }

    /// The queue pair that it belongs to.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }
}
