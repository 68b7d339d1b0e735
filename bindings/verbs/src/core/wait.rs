//! Waiting for events on a descriptor.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Error of waiting for an event, or of creating a channel for events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// No event came within the timeout.
    #[error("no event within the timeout")]
    TimedOut,
    /// The operating system reported an error.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Sleeps on `fd` until `next` returns a value or `timeout` has passed. Without a timeout it waits
/// for as long as it takes.
pub(crate) fn wait<T>(
    fd: BorrowedFd<'_>,
    timeout: Option<Duration>,
    mut next: impl FnMut() -> Result<Option<T>, ChannelError>,
) -> Result<T, ChannelError> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        if let Some(found) = next()? {
            return Ok(found);
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        // A timeout too long for the system call is treated as endless.
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Err(ChannelError::TimedOut),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}
