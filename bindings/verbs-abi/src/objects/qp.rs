//! Queue pairs. Each is allocated as a [`Public`], which begins with the `ibv_qp`.

use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uroce::{Gid, QpCaps, QpControl, QpState, QpType, RecvQueue, SendQueue};

use super::batch::Batch;
use super::context::Context;
use super::cq::Cq;
use super::event::Subject;
use super::lock::Locked;
use super::pd::Pd;
use super::srq::Srq;
use super::xrcd::Share;
use crate::abi::{ibv_qp, ibv_qp_cap, ibv_qp_ex, verbs_context};
use crate::acks::Acks;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::runtime;

/// A queue pair, or a handle of an XRC target.
pub(crate) struct Qp {
    pub(crate) control: QpControl,
    /// Empty for an XRC target.
    pub(crate) sq: Locked<Sq>,
    /// Empty for an XRC target.
    pub(crate) rq: Locked<RecvQueue>,
    pub(crate) caps: QpCaps,
    /// Every send gives a completion, whether signaled or not.
    pub(crate) signals_all: bool,
    /// The operations of its `ibv_qp_ex`. 0 if the program has not asked for any.
    pub(crate) send_ops: u64,
    /// Multicast groups that the queue pair is attached to.
    pub(crate) groups: Mutex<Vec<Gid>>,
    /// Counts its asynchronous events.
    pub(crate) events: Acks,
    pub(crate) context: Arc<Entry<Context>>,
    /// `None` for an XRC target only.
    pub(crate) pd: Option<Held<Pd>>,
    /// `None` for an XRC target only.
    pub(crate) send_cq: Option<Held<Cq>>,
    /// `None` for both ends of XRC. What a target receives completes in the queues of the shared
    /// receive queues that requests name.
    pub(crate) recv_cq: Option<Held<Cq>>,
    pub(crate) srq: Option<Held<Srq>>,
    /// `Some` for an XRC target only, which may have several handles.
    pub(crate) share: Option<Share>,
}

object!(Qp as Public, of pd, send_cq, recv_cq, srq, share);

/// The structure that a program has: `ibv_qp_ex`, with `wr_flush` at its end. Debian 12's headers
/// do not have this member; programs that were built with newer ones call it.
#[repr(C)]
pub(crate) struct Public {
    pub(crate) ex: ibv_qp_ex,
    /// Room for the member, unused if it is in `ex`.
    flush: Option<WrFlush>,
}

/// `ibv_qp_ex.wr_flush`: R_Key, address, length, placement type and selectivity level.
pub(crate) type WrFlush = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, usize, u8, u8);

/// Offset of `wr_flush`, behind the last member of Debian 12's structure.
const WR_FLUSH: usize = std::mem::offset_of!(ibv_qp_ex, wr_atomic_write) + size_of::<usize>();
const _: () = assert!(WR_FLUSH == 352 && WR_FLUSH <= std::mem::offset_of!(Public, flush));

impl Public {
    /// Creates a structure without functions.
    pub(crate) fn new() -> Public {
        // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
        let ex: ibv_qp_ex = unsafe { std::mem::zeroed() };
        Public { ex, flush: None }
    }

    /// Sets `wr_flush`.
    pub(crate) fn set_flush(&mut self, flush: WrFlush) {
        let slot = (&raw mut *self).wrapping_byte_add(WR_FLUSH).cast::<Option<WrFlush>>();
        // SAFETY: the place is in this structure and aligned; what is there is a nullable function
        // pointer, in `ex` or in `flush`.
        unsafe { slot.write(Some(flush)) }
    }
}

/// The send queue, with the requests that `ibv_qp_ex` builds.
pub(crate) struct Sq {
    pub(crate) queue: SendQueue,
    /// The requests between `ibv_wr_start` and `ibv_wr_complete`.
    pub(crate) batch: Batch,
}

/// The queue pair that a program's pointer refers to.
///
/// # Errors
///
/// EINVAL if it is not a live queue pair of this library.
pub(crate) fn get(qp: *const ibv_qp) -> Result<Arc<Entry<Qp>>, Errno> {
    Qp::registry().get(qp.cast())
}

impl Qp {
    /// The engine's queue pair, for calls that the engine must answer.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP in a child that was forked after the engine had started, because no engine would
    /// answer there.
    pub(crate) fn engine(&self) -> Result<&QpControl, Errno> {
        runtime::usable().map(|()| &self.control)
    }

    /// The sizes of the queues in C's structure.
    pub(crate) fn cap(&self) -> ibv_qp_cap {
        let QpCaps { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
            self.caps;
        let max_recv_sge = if self.srq.is_some() { 0 } else { max_recv_sge };
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }

    /// Removes the completions of the queue pair, which was reset, from its completion queues. What
    /// an XRC target has received stays, as its completion queues belong to the receives.
    pub(crate) fn purge(&self) {
        let qpn = self.control.qpn();
        let cqs = [&self.send_cq, &self.recv_cq].map(Option::as_ref);
        let is_one = |[a, b]: [&Held<Cq>; 2]| a.public() == b.public();
        for (at, cq) in cqs.iter().enumerate() {
            let is_done = at == 1 && cqs[0].zip(cqs[1]).is_some_and(|(a, b)| is_one([a, b]));
            if let Some(cq) = cq.filter(|_| !is_done) {
                cq.purge(qpn);
            }
        }
    }

    /// Attaches the queue pair to a multicast group. No effect if it is attached already.
    ///
    /// # Errors
    ///
    /// EINVAL if it is not a UD queue pair, or the address is not that of a group.
    pub(crate) fn attach(&self, group: Gid) -> Result<(), Errno> {
        let mut groups = self.groups();
        if !groups.contains(&group) {
            self.engine()?.attach_multicast(group)?;
            groups.push(group);
        }
        Ok(())
    }

    /// Detaches the queue pair from a multicast group.
    ///
    /// # Errors
    ///
    /// EINVAL if it is not attached to the group.
    pub(crate) fn detach(&self, group: Gid) -> Result<(), Errno> {
        let mut groups = self.groups();
        let at = groups.iter().position(|its| *its == group).ok_or(Errno::EINVAL)?;
        self.engine()?.detach_multicast(group)?;
        groups.swap_remove(at);
        Ok(())
    }

    /// Whether the queue pair is attached to a multicast group.
    pub(crate) fn is_in_group(&self) -> bool {
        !self.groups().is_empty()
    }

    fn groups(&self) -> MutexGuard<'_, Vec<Gid>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry<Qp> {
    /// Writes the state to the public structure.
    pub(crate) fn note_state(&self, state: QpState) {
        self.note_number_of_state(state as u32);
    }

    /// Writes C's number of a state to the public structure.
    pub(crate) fn note_number_of_state(&self, state: u32) {
        // SAFETY: a slot is never freed, and programs only read this field.
        unsafe { (*self.public()).ex.qp_base.state = state }
    }
}

impl Sq {
    /// Posts all requests of the batch, or none.
    ///
    /// # Errors
    ///
    /// The first error since the batch was begun, or why a request is refused.
    pub(crate) fn post(&mut self, qp_type: QpType) -> Result<(), Errno> {
        self.batch.post(&mut self.queue, qp_type)
    }
}

impl Subject for Entry<Qp> {
    fn deliver(&self) -> bool {
        self.events.deliver()
    }

    fn pointer(&self) -> *mut c_void {
        self.public().cast()
    }

    fn context(&self) -> *const verbs_context {
        self.context.public()
    }
}

/// Blocks until the lcores have taken all requests that were posted before to queue pairs of a
/// completion queue. A queue pair that does not answer is skipped. XRC targets have no requests.
pub(crate) fn catch_up(cq: &Entry<Cq>) {
    let is_its = |qp: &Entry<Qp>| {
        [&qp.send_cq, &qp.recv_cq].into_iter().flatten().any(|its| its.public() == cq.public())
    };
    for qp in Qp::registry().all().into_iter().filter(|qp| is_its(qp)) {
        // A turn takes commands before posted requests, so the second answer comes after a whole
        // turn.
        let _ = qp.control.query().and_then(|_| qp.control.query());
    }
}
