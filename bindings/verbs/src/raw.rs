//! Work requests and completions without lifetimes, for faces that have none: the C interface.
//!
//! Memory is named by key and address. The engine checks both at each use, so nothing here is
//! unsafe; what a work request names must stay registered only as long as it is to succeed.
//! Registering memory is another matter ([`Memory`]).

mod memory;

pub use memory::{Memory, Registration};

pub use uroce_engine::{SendBatch, SendData};
pub use uroce_transport::{Ah, BindMw, Cqe, RecvWr, SendOp, SendWr, Sge};

use uroce_engine::CqError;
use uroce_transport::PostError;

use crate::{
    AddressHandle, CompletionQueue, PostListError, RecvQueue, SendQueue, SharedReceiveQueue,
};

impl SendQueue {
    /// Begins a list of work requests, for which the lcore is woken once, when it ends.
    ///
    /// # Errors
    ///
    /// [`PostError::InvalidState`].
    #[inline]
    pub fn batch(&mut self) -> Result<SendBatch<'_>, PostError> {
        self.end.batch()
    }
}

impl RecvQueue {
    /// Posts work requests, each with its scatter list, in order.
    ///
    /// # Errors
    ///
    /// The first that was refused ends the list; see [`PostListError`].
    #[inline]
    pub fn post_raw<'a>(
        &mut self,
        list: impl IntoIterator<Item = (&'a RecvWr, &'a [Sge])>,
    ) -> Result<(), PostListError> {
        Ok(self.end.post_recv_list(list)?)
    }
}

impl SharedReceiveQueue {
    /// Posts work requests, each with its scatter list, in order.
    ///
    /// # Errors
    ///
    /// The first that was refused ends the list; see [`PostListError`].
    #[inline]
    pub fn post_raw<'a>(
        &self,
        list: impl IntoIterator<Item = (&'a RecvWr, &'a [Sge])>,
    ) -> Result<(), PostListError> {
        Ok(self.shared().srq.post_recv_list(list)?)
    }
}

impl CompletionQueue {
    /// Takes the oldest completion as the transport made it.
    ///
    /// # Errors
    ///
    /// As [`poll`](CompletionQueue::poll).
    #[inline]
    pub fn poll_raw(&self) -> Result<Option<Cqe>, CqError> {
        self.shared().cq.poll()
    }
}

impl AddressHandle {
    /// What a [`SendOp::SendTo`] names it by, as long as it exists.
    pub fn raw(&self) -> Ah {
        self.ah
    }
}
