//! Completion channel: sleeping until a completion queue has something.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cq::CqId;

/// Completion queues that a channel can serve at a time.
const CQS_MAX: u32 = 4096;

/// Why a channel gave no event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No event came in time.
    #[error("no completion event in time")]
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
    pub(crate) fn new() -> Result<CompletionChannel, ChannelError> {
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
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(cq) = self.channel.try_next()? {
                return Ok(CqId::of(&cq));
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            // Beyond what the system takes is as good as without end.
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let mut fds = [PollFd::new(&self.channel, PollFlags::IN)];
            match poll(&mut fds, left.as_ref()) {
                Ok(0) => return Err(ChannelError::TimedOut),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
