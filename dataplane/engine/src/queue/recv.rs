//! Receive queue: from the application's post to the core's queue.
//!
//! A receive waits in the ring until the core needs it, so posting one wakes nobody: the lcore
//! looks when a packet comes. Only in ERR it must be woken, to complete the request flushed.
//!
//! The core has a few at a time: with many QPs each byte that a message passes through is one more
//! that is in no cache when its turn comes.

use super::ring::{QpShared, RingEnd, RingFeed, RingSpec, Which, ring};
use crate::sync::{Ordering, fence};
use uroce_transport::{Env, PostError, Qp, QpCaps, QpState, RecvWr, Sge};

/// Receives of a QP that its core has at most; the others wait in the ring.
const IN_CORE: u32 = 8;

/// The queues that a QP's core needs for those of the application.
pub(crate) fn core_caps(caps: &QpCaps) -> QpCaps {
    QpCaps { max_recv_wr: caps.max_recv_wr.min(IN_CORE), ..*caps }
}

/// The application's end of a receive queue. One thread posts at a time.
#[derive(Debug)]
pub struct RecvQueueEnd {
    ring: RingEnd<RecvWr>,
    /// The QP takes its receives from a shared queue; this one is of no use.
    has_srq: bool,
}

/// The lcore's end.
#[derive(Debug)]
pub(crate) struct RecvQueueFeed {
    ring: RingFeed<RecvWr>,
    /// Receives that the core has room for.
    in_core: u32,
}

/// Both ends of a receive queue.
pub(crate) fn recv_queue(spec: RingSpec, has_srq: bool) -> (RecvQueueEnd, RecvQueueFeed) {
    let in_core = spec.depth.min(IN_CORE);
    let (end, feed) = ring(spec, Which::Recv);
    (RecvQueueEnd { ring: end, has_srq }, RecvQueueFeed { ring: feed, in_core })
}

impl RecvQueueEnd {
    /// Posts a work request with its scatter list.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_recv(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        self.post_recv_list([(wr, sges)]).map_err(|(_, error)| error)
    }

    /// Posts work requests in order, up to the first that is refused.
    ///
    /// # Errors
    /// How many were posted, and why the next was not.
    #[inline]
    pub fn post_recv_list<'a>(
        &mut self,
        list: impl IntoIterator<Item = (&'a RecvWr, &'a [Sge])>,
    ) -> Result<(), (usize, PostError)> {
        let mut batch = self.batch().map_err(|error| (0, error))?;
        for (posted, (wr, sges)) in list.into_iter().enumerate() {
            batch.push(wr, sges).map_err(|error| (posted, error))?;
        }
        Ok(())
    }

    /// Begins a list of work requests.
    ///
    /// # Errors
    /// [`PostError::HasSrq`] or [`PostError::InvalidState`].
    #[inline]
    pub fn batch(&mut self) -> Result<RecvBatch<'_>, PostError> {
        if self.has_srq {
            return Err(PostError::HasSrq);
        }
        if !self.ring.state().may_post_recv() {
            return Err(PostError::InvalidState);
        }
        let room = self.ring.room();
        Ok(RecvBatch { end: self, room })
    }

    /// Work requests that can be posted now.
    pub fn room(&self) -> u32 {
        self.ring.room()
    }

    /// The QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.ring.state()
    }
}

/// A list of work requests that is being posted.
#[derive(Debug)]
pub struct RecvBatch<'q> {
    end: &'q mut RecvQueueEnd,
    room: u32,
}

impl RecvBatch<'_> {
    /// Posts one more.
    ///
    /// # Errors
    /// [`PostError`]; it was not posted.
    #[inline]
    pub fn push(&mut self, wr: &RecvWr, sges: &[Sge]) -> Result<(), PostError> {
        self.end.ring.check(sges)?;
        self.end.ring.push(*wr, sges, &mut self.room)
    }
}

impl Drop for RecvBatch<'_> {
    //= check G3 — a receive that races with the way to ERR is flushed, not lost
    #[inline]
    fn drop(&mut self) {
        // The lcore publishes ERR, then takes what is in the ring; we put into the ring, then read
        // the state. The fences (the lcore's is in `RecvQueueFeed::flush_fence`) make one of the
        // two see the other.
        fence(Ordering::SeqCst);
        if self.end.ring.state() == QpState::Err {
            self.end.ring.ring();
        }
    }
}

impl RecvQueueFeed {
    /// Is nothing waiting?
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Receives posted that the core has not seen.
    #[inline]
    pub(crate) fn waiting(&self) -> u32 {
        self.ring.waiting()
    }

    /// Gives the core what was posted, as far as it fits. In ERR and RESET that is all.
    #[inline]
    pub(crate) fn feed(&mut self, qp: &mut Qp, env: &mut impl Env) {
        while self.feed_some(qp, env) > 0 && qp.recv_wrs() == 0 {}
    }

    #[inline]
    fn feed_some(&mut self, qp: &mut Qp, env: &mut impl Env) -> u32 {
        let room = self.in_core.saturating_sub(qp.recv_wrs());
        self.ring.take(room, |wr, sges| match qp.post_recv(wr, sges, env) {
            Ok(()) | Err(PostError::InvalidState) => {}
            Err(error) => debug_assert!(false, "checked by RecvQueueEnd: {error}"),
        })
    }

    /// To stand between publishing ERR and [`feed`](RecvQueueFeed::feed).
    pub(crate) fn flush_fence() {
        // Pairs with the fence in `RecvBatch`.
        fence(Ordering::SeqCst);
    }

    /// Tells the application how many of its work requests have left the queue.
    #[inline]
    pub(crate) fn publish_retired(&mut self, qp: &Qp, shared: &QpShared) {
        // A queue without room is none: what the core has comes from a shared one.
        if self.in_core > 0 {
            self.ring.publish_retired(Which::Recv, qp.recv_wrs(), shared);
        }
    }
}
