//! The two halves that work requests are posted to.

use std::borrow::Borrow;
use std::sync::Arc;

use uroce_engine::{RecvQueueEnd, SendQueueEnd};
use uroce_transport::{PostError, QpState};
use uroce_wire::Qpn;

use super::QpShared;
use crate::mr::MemorySlice;
use crate::wr::{RecvWr, SendWr};

/// The send half of a queue pair.
#[derive(Debug)]
pub struct SendQueue {
    pub(crate) end: SendQueueEnd,
    pub(super) shared: Arc<QpShared>,
}

/// The receive half of a queue pair.
#[derive(Debug)]
pub struct RecvQueue {
    pub(crate) end: RecvQueueEnd,
    pub(super) shared: Arc<QpShared>,
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
    pub fn post_sends<'a>(
        &mut self,
        wrs: impl IntoIterator<Item = impl Borrow<SendWr<'a>>>,
    ) -> Result<(), PostListError> {
        let mut batch = self.end.batch().map_err(|error| PostListError { posted: 0, error })?;
        for (posted, wr) in wrs.into_iter().enumerate() {
            wr.borrow().push_to(&mut batch).map_err(|error| PostListError { posted, error })?;
        }
        Ok(())
    }

    /// Work requests that can be posted now. A request's place is free again when its completion, or
    /// that of a later one, has been polled: every so many there has to be a signaled one.
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

    /// Work requests that can be posted now. A request's place is free again when its completion has
    /// been polled.
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
