//! Work requests and completions without lifetimes, for interfaces that have none, such as C.
//!
//! Memory is named by key and address. The engine checks both at each access, so this is not
//! unsafe: if memory was deregistered, the work request fails. Registering memory is unsafe
//! ([`Memory`]).

mod memory;

pub use memory::{Memory, Registration, is_there};

pub use uroce_controlplane::limits;
pub use uroce_engine::{MAX_SGE, RecvBatch, SendBatch, SendData, SrqBatch, Tokens};
pub use uroce_transport::{
    Ah, BindMw, Cqe, Grh, MAX_INLINE_DATA, MAX_MESSAGE_LEN, RecvWr, SendOp, SendWr, Sge,
};
pub use uroce_wire::{Placement, Selectivity};

use uroce_engine::{CqError, Poller, Turn};
use uroce_transport::{PostError, WcOpcode};

use crate::{AddressHandle, CompletionQueue, RecvQueue, SendQueue, SharedReceiveQueue};

/// The present time in nanoseconds, on the clock of [`Cqe::at`], which is the start of the turn in
/// which an lcore completed the request. All devices of a process share this clock.
pub fn clock_now() -> u64 {
    uroce_engine::clock::Clock::new().now()
}

impl SendQueue {
    /// Begins a list of work requests. The lcore is woken once, when the batch is dropped.
    ///
    /// # Errors
    ///
    /// [`PostError::InvalidState`] if the QP's state does not allow posting.
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
    /// [`PostError::HasSrq`] if the QP uses a shared receive queue; [`PostError::InvalidState`] if
    /// its state does not allow posting.
    #[inline]
    pub fn batch(&mut self) -> Result<RecvBatch<'_>, PostError> {
        self.end.batch()
    }
}

impl SharedReceiveQueue {
    /// Begins a list of work requests. Other posters wait until the batch is dropped.
    #[inline]
    pub fn batch(&self) -> SrqBatch<'_> {
        self.shared().srq.batch()
    }
}

impl CompletionQueue {
    /// Takes the oldest completion in the transport's form. Does not drive the lcores.
    ///
    /// # Errors
    ///
    /// The errors of [`poll`](CompletionQueue::poll).
    #[inline]
    pub fn poll_raw(&self) -> Result<Option<Cqe>, CqError> {
        self.shared().cq.poll()
    }

    /// Runs a turn of the lcores that complete to this queue, if pollers drive the device.
    /// [`poll`](CompletionQueue::poll) does this when it finds no completion. Returns the turn's
    /// result, after which polling again may find a completion; `None` if pollers do not drive.
    #[inline]
    pub fn drive(&self) -> Option<Turn> {
        self.shared().poller.as_ref().map(Poller::turn)
    }

    /// Yields the CPU if `turn`, the result of [`drive`](CompletionQueue::drive), did no work and
    /// other threads of the program or the machine wait for the CPU.
    /// [`poll`](CompletionQueue::poll) does this when it finds no completion even after that turn.
    #[inline]
    pub fn rest(&self, turn: Turn) {
        if let Some(poller) = &self.shared().poller {
            poller.rest(turn);
        }
    }

    /// Drives the lcores a little longer if `last`, the kind of the last completion that was taken,
    /// is a WRITE: peers often answer a WRITE with a WRITE at once. [`poll`](CompletionQueue::poll)
    /// does this after taking completions.
    #[inline]
    pub fn drive_after(&self, last: WcOpcode) {
        let Some(poller) = &self.shared().poller else { return };
        poller.found();
        if last == WcOpcode::RdmaWrite {
            poller.linger();
        }
    }
}

impl AddressHandle {
    /// The handle's value in a [`SendOp::SendTo`]. Valid while the handle exists.
    pub fn raw(&self) -> Ah {
        self.ah
    }
}
