//! Shared receive queues.

use std::ffi::c_void;
use std::sync::Arc;

use uroce::SharedReceiveQueue;

use super::context::Context;
use super::cq::Cq;
use super::event::Subject;
use super::pd::Pd;
use super::xrcd::Xrcd;
use crate::abi::{ibv_srq, ibv_srq_attr, verbs_context};
use crate::acks::Acks;
use crate::errno::Errno;
use crate::handle::{Entry, Held, Object, object};
use crate::quota::Place;

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) srq: SharedReceiveQueue,
    pub(crate) max_sge: u32,
    /// Counts its asynchronous events.
    pub(crate) events: Acks,
    pub(crate) context: Arc<Entry<Context>>,
    pub(crate) pd: Held<Pd>,
    /// The XRC domain and completion queue of an XRC shared receive queue.
    pub(crate) xrc: Option<(Held<Xrcd>, Held<Cq>)>,
    pub(crate) place: Place,
}

object!(Srq as ibv_srq, of pd, xrc, place);

/// The shared receive queue that a program's pointer refers to, kept busy while the result exists.
///
/// # Errors
///
/// EINVAL if it is not a live shared receive queue of this library, or is being destroyed.
pub(crate) fn hold(srq: *const ibv_srq) -> Result<Held<Srq>, Errno> {
    let held = Srq::registry().hold(srq)?;
    if held.events.is_closed() { Err(Errno::EINVAL) } else { Ok(held) }
}

impl Srq {
    /// The sizes that the program got.
    pub(crate) fn sizes(&self) -> ibv_srq_attr {
        let Srq { srq, max_sge, .. } = self;
        ibv_srq_attr { max_wr: srq.capacity(), max_sge: *max_sge, srq_limit: srq.limit() }
    }
}

impl Subject for Entry<Srq> {
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
