//! Membership of a process: its number, its thread, its queues.

use crate::{Counters, Holder, JoinError, Queue, QueueError, mac_of};
use std::path::PathBuf;
use std::sync::Arc;
use uroce_shared::wake::waker::Waker;
use uroce_wire::Mac;

/// What a process asks for when it joins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberConfig {
    /// The directory in which members of a fabric meet. It is made, with mode 0700, if it does not
    /// exist.
    pub directory: PathBuf,
    /// The number to take; the smallest free one if `None`.
    pub number: Option<u8>,
    /// Number of queues, 1 to [`QUEUES_MAX`](crate::QUEUES_MAX).
    pub queues: u16,
    /// Length of the longest frame to receive, in bytes, at most [`FRAME_MAX`](crate::FRAME_MAX).
    pub frame_max: usize,
}

/// A member of the fabric. Dropping it ends its links and gives its number back.
#[derive(Debug)]
pub struct Member {
    number: u8,
}

impl Member {
    /// Takes a number and starts the member's thread.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(config: MemberConfig) -> Result<Member, JoinError> {
        Err(JoinError::Number(config.number.unwrap_or(0)))
    }

    /// Returns the member's number, 1 to 64.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// Returns the member's address: 02:75:72:6f:63:NN, where NN is its number.
    pub fn mac(&self) -> Mac {
        mac_of(self.number)
    }

    /// Returns the number of queues.
    pub fn queues(&self) -> u16 {
        0
    }

    /// Takes queue `index`. Dropping it gives it back.
    ///
    /// # Errors
    /// There is no such queue, or it is taken.
    pub fn queue(&self, index: u16) -> Result<Queue, QueueError> {
        Err(QueueError::OutOfRange { index, queues: 0 })
    }

    /// Returns the members that have ended, or were replaced by another process, since the last
    /// call: bit *n* − 1 for number *n*. All that such a member has sent was received then, unless
    /// a queue is not polled. Only members with which there was a link are reported.
    pub fn take_ended(&self) -> u64 {
        0
    }

    /// Returns the members to which there is a link: bit *n* − 1 for number *n*.
    pub fn linked(&self) -> u64 {
        0
    }

    /// Sets the waker that is used when a link has begun or ended.
    pub fn set_waker(&self, _waker: Option<Arc<Waker>>) {}

    /// Returns all members of the directory, this one included, in order of their numbers. Asks the
    /// system.
    pub fn members(&self) -> Vec<Holder> {
        Vec::new()
    }

    /// Returns the sum of the counters of all queues.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
