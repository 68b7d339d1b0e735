//! Work requests and completions without lifetimes, for faces that have none: the C interface.
//!
//! Memory is named by key and address. The engine checks both at each use, so nothing here is
//! unsafe; what a work request names must stay registered only as long as it is to succeed.
//! Registering memory is another matter ([`Memory`]).

mod memory;

pub use memory::{Memory, Registration, is_there};

pub use uroce_engine::{MAX_SGE, RecvBatch, SendBatch, SendData, SrqBatch, Tokens};
pub use uroce_transport::{
    Ah, BindMw, Cqe, Grh, MAX_INLINE_DATA, MAX_MESSAGE_LEN, RecvWr, SendOp, SendWr, Sge,
};

use uroce_engine::CqError;
use uroce_transport::{PostError, WcOpcode};

use crate::{AddressHandle, CompletionQueue, RecvQueue, SendQueue, SharedReceiveQueue};

/// Nanoseconds of the clock that [`Cqe::at`] is read from: at the beginning of the turn in which an
/// lcore completes the work request. All devices of a process have the same one.
pub fn clock_now() -> u64 {
    uroce_engine::clock::Clock::new().now()
}

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
    /// Begins a list of work requests.
    ///
    /// # Errors
    ///
    /// [`PostError::HasSrq`] or [`PostError::InvalidState`].
    #[inline]
    pub fn batch(&mut self) -> Result<RecvBatch<'_>, PostError> {
        self.end.batch()
    }
}

impl SharedReceiveQueue {
    /// Begins a list of work requests; other posters wait until it ends.
    #[inline]
    pub fn batch(&self) -> SrqBatch<'_> {
        self.shared().srq.batch()
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

    /// What [`poll`](CompletionQueue::poll) does when it has found nothing, where pollers drive: a
    /// turn of the lcores that fill the queue. Says whether another look is worth it.
    #[inline]
    pub fn drive(&self) -> bool {
        let poller = self.shared().poller.as_ref();
        poller.inspect(|poller| _ = poller.turn()).is_some()
    }

    /// What [`poll`](CompletionQueue::poll) does when it has found nothing after
    /// [`drive`](CompletionQueue::drive) either, where pollers drive: another thread goes on where more
    /// threads poll than the process has processors.
    #[inline]
    pub fn rest(&self) {
        if let Some(poller) = &self.shared().poller {
            poller.rest();
        }
    }

    /// What [`poll`](CompletionQueue::poll) does when it has taken completions, the last of this
    /// kind: whose WRITE is answered by a WRITE has the answer when it returns, if it comes soon.
    #[inline]
    pub fn drive_after(&self, last: WcOpcode) {
        if let (Some(poller), WcOpcode::RdmaWrite) = (&self.shared().poller, last) {
            poller.linger();
        }
    }
}

impl AddressHandle {
    /// What a [`SendOp::SendTo`] names it by, as long as it exists.
    pub fn raw(&self) -> Ah {
        self.ah
    }
}
