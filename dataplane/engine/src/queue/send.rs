//! Send queue: from the application's post to the core's queue.
//!
//! Invariants
//! - A refused post changes nothing.
//! - The rules checked here are the core's; the state is checked again there, where it is exact.

use super::ring::{QpShared, RingEnd, RingFeed, RingSpec, Which, ring};
use uroce_transport::{Env, PostError, Qp, QpState, SendOp, SendWr, Sge};

/// The application's end of a send queue. One thread posts at a time.
#[derive(Debug)]
pub struct SendQueueEnd {
    ring: RingEnd<SendWr>,
}

/// The lcore's end.
#[derive(Debug)]
pub(crate) struct SendQueueFeed {
    ring: RingFeed<SendWr>,
    depth: u32,
}

/// Both ends of a send queue.
pub(crate) fn send_queue(spec: RingSpec) -> (SendQueueEnd, SendQueueFeed) {
    let depth = spec.depth;
    let (end, feed) = ring(spec, Which::Send);
    (SendQueueEnd { ring: end }, SendQueueFeed { ring: feed, depth })
}

impl SendQueueEnd {
    /// Posts a work request with its scatter/gather list.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_send(&mut self, wr: &SendWr, sges: &[Sge]) -> Result<(), PostError> {
        self.post_send_list([(wr, sges)]).map_err(|(_, error)| error)
    }

    /// Posts work requests in order, up to the first that is refused, and wakes the lcore once.
    ///
    /// # Errors
    /// How many were posted, and why the next was not.
    //= check G2 — a post that the state does not allow is refused at once
    #[inline]
    pub fn post_send_list<'a>(
        &mut self,
        list: impl IntoIterator<Item = (&'a SendWr, &'a [Sge])>,
    ) -> Result<(), (usize, PostError)> {
        if !self.ring.state().may_post_send() {
            return Err((0, PostError::InvalidState));
        }
        let mut room = self.ring.room();
        let mut posted = 0;
        let mut result = Ok(());
        for (wr, sges) in list {
            if let Err(error) = self.push(wr, sges, &mut room) {
                result = Err((posted, error));
                break;
            }
            posted += 1;
        }
        if posted > 0 {
            self.ring.ring();
        }
        result
    }

    /// Work requests that can be posted now.
    pub fn room(&self) -> u32 {
        self.ring.room()
    }

    /// The QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.ring.state()
    }

    #[inline]
    fn push(&mut self, wr: &SendWr, sges: &[Sge], room: &mut u32) -> Result<(), PostError> {
        let len = self.ring.check(sges)?;
        if !is_served(&wr.op) {
            return Err(PostError::WrongOperation);
        }
        if wr.op.is_atomic() && len != 8 {
            return Err(PostError::AtomicLength);
        }
        self.ring.push(*wr, sges, room)
    }
}

/// Operations that reach the lcore and are carried out there.
fn is_served(op: &SendOp) -> bool {
    !matches!(
        op,
        SendOp::SendWithInvalidate { .. }
            | SendOp::SendTo { .. }
            | SendOp::LocalInvalidate { .. }
            | SendOp::BindMw(_)
    )
}

impl SendQueueFeed {
    /// Gives the core what was posted, as far as it fits. What the state refuses is gone, as a
    /// queue's content is after a reset.
    #[inline]
    pub(crate) fn feed(&mut self, qp: &mut Qp, env: &mut impl Env) -> u32 {
        let room = self.depth.saturating_sub(qp.send_wrs());
        self.ring.take(room, |wr, sges| match qp.post_send(wr, sges, env) {
            Ok(()) | Err(PostError::InvalidState) => {}
            Err(error) => debug_assert!(false, "checked by SendQueueEnd: {error}"),
        })
    }

    /// Tells the application how many of its work requests have left the queue.
    #[inline]
    pub(crate) fn publish_retired(&mut self, qp: &Qp, shared: &QpShared) {
        self.ring.publish_retired(Which::Send, qp.send_wrs(), shared);
    }
}
