//! Completion channel: sleeping until a completion queue has a completion.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::core::{ChannelError, CqId, wait};

/// Completion queues that one channel can serve at a time.
const CQS_MAX: u32 = 4096;

/// A channel for events of completion queues. Clones are handles of the same channel. Its file
/// descriptor is readable while an event is pending, so an application can add it to its own `poll`
/// or `epoll`.
#[derive(Clone, Debug)]
pub struct CompletionChannel {
    channel: Arc<uroce_engine::CompletionChannel>,
}

impl CompletionChannel {
    /// Creates a channel. Completion queues of any device of the process can use it.
    ///
    /// # Errors
    ///
    /// [`ChannelError::System`] if the process has no file descriptor left.
    pub fn new() -> Result<CompletionChannel, ChannelError> {
        Ok(CompletionChannel { channel: uroce_engine::CompletionChannel::new(CQS_MAX)? })
    }

    pub(crate) fn engine(&self) -> &Arc<uroce_engine::CompletionChannel> {
        &self.channel
    }

    /// Sleeps until an armed completion queue has a completion, and takes the event. A `timeout` of
    /// `None` waits for ever. Signals do not end the wait.
    ///
    /// # Errors
    ///
    /// [`ChannelError::TimedOut`] after `timeout`, or [`ChannelError::System`].
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<CqId, ChannelError> {
        wait(self.as_fd(), timeout, || Ok(self.channel.try_next()?.map(|cq| CqId::of(&cq))))
    }

    /// Whether the descriptor is still the channel's. If not, the program has closed it, and its
    /// number may be another file's, which the application must not read.
    pub fn is_open(&self) -> bool {
        self.channel.is_open()
    }

    /// Takes an event after the application has read 8 bytes from the descriptor itself. One read
    /// of 8 bytes stands for one event. `None` if the event is no longer there; another one may be
    /// pending.
    pub fn event_read(&self) -> Option<CqId> {
        self.channel.event_read().map(|cq| CqId::of(&cq))
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Context {
    /// Creates a completion channel, on which a thread can sleep until a completion queue has a
    /// completion.
    ///
    /// # Errors
    ///
    /// [`ChannelError::System`] if the process has no file descriptor left.
    pub fn create_channel(&self) -> Result<CompletionChannel, ChannelError> {
        CompletionChannel::new()
    }
}
