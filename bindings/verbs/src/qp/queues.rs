//! The send and receive halves of a queue pair, for posting.

use std::borrow::Borrow;
use std::sync::Arc;

use uroce_engine::{RecvQueueEnd, SendQueueEnd};
use uroce_transport::{PostError, QpState};
use uroce_wire::Qpn;

use crate::core::QpShared;
use crate::mr::MemorySlice;
use crate::wr::{PostListError, RecvWr, SendWr};

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
    /// See [`PostListError`]; posting stops at the first request that is refused.
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

    /// Number of work requests that can be posted now. The place of a request is free again when
    /// its completion, or that of a later request, has been polled. So at least one request per
    /// queue length must be signaled.
    pub fn room(&self) -> u32 {
        self.end.room()
    }

    /// The QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.end.state()
    }

    /// Number of the queue pair.
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
    /// See [`PostListError`]; posting stops at the first request that is refused.
    #[inline]
    pub fn post_recvs(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostListError> {
        let list = wrs.iter().map(|wr| (&wr.wr, MemorySlice::sges(wr.sges)));
        Ok(self.end.post_recv_list(list)?)
    }

    /// Number of work requests that can be posted now. The place of a request is free again when
    /// its completion has been polled.
    pub fn room(&self) -> u32 {
        self.end.room()
    }

    /// The QP's state as its lcore last published it.
    pub fn state(&self) -> QpState {
        self.end.state()
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> Qpn {
        self.shared.qpn
    }
}
