//! Completion channel: sleeping until a completion queue has something.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::cq::CqId;
use crate::event::wait;

/// Completion queues that a channel can serve at a time.
const CQS_MAX: u32 = 4096;

/// Why no event was given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No event came in time.
    #[error("no event in time")]
    TimedOut,
    /// The system failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Events of completion queues. Clones are handles of the same one. Its file descriptor is readable
/// while an event waits, so it can stand in a `poll` or `epoll` of the application's own.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    channel: Arc<uroce_engine::CompletionChannel>,
}

impl CompletionChannel {
    /// A channel for completion queues of any device.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub fn new() -> Result<CompletionChannel, ChannelError> {
        Ok(CompletionChannel { channel: uroce_engine::CompletionChannel::new(CQS_MAX)? })
    }

    pub(crate) fn engine(&self) -> &Arc<uroce_engine::CompletionChannel> {
        &self.channel
    }

    /// Sleeps until a completion queue that was armed has something, and takes that event. `None`
    /// waits without end; a signal does not end the wait.
    ///
    /// # Errors
    ///
    /// [`ChannelError::TimedOut`], or the system's.
    pub fn get_event(&self, timeout: Option<Duration>) -> Result<CqId, ChannelError> {
        wait(self.as_fd(), timeout, || Ok(self.channel.try_next()?.map(|cq| CqId::of(&cq))))
    }

    /// The event that the caller has read the descriptor for: 8 bytes an event. `None` if that was
    /// for nothing: there may be another.
    pub fn event_read(&self) -> Option<CqId> {
        self.channel.event_read().map(|cq| CqId::of(&cq))
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
