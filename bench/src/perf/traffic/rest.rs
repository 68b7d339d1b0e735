//! Sleeping on completion events (`-e`), in loops that otherwise poll.

use crate::error::{BenchError, Step};
use std::time::Duration;
use uroce::{Arm, ChannelError, CompletionChannel, CompletionQueue, Context};

/// Longest sleep, so that the other end's records on the socket are noticed too.
const NAP: Duration = Duration::from_millis(2);

/// A thread's way to wait for completions.
pub(super) struct Rest {
    channel: CompletionChannel,
    /// The queues were armed since the last sleep.
    armed: bool,
}

impl Rest {
    /// Creates a channel, for the queues that [`Rest::idle`] will get.
    pub(super) fn new(context: &Context) -> Result<Self, BenchError> {
        let channel = context.create_channel().step("creating a completion channel")?;
        Ok(Self { channel, armed: false })
    }

    /// Creates a completion queue on the channel.
    pub(super) fn create_cq(
        &self,
        context: &Context,
        capacity: u32,
    ) -> Result<CompletionQueue, BenchError> {
        context.create_cq_on(capacity, &self.channel).step("creating a CQ")
    }

    /// Called after a poll of all queues that found nothing: arms the queues, or if nothing has
    /// come since they were armed, sleeps until something does or [`NAP`] has passed. Completions
    /// from before the arming cause no event, so the caller polls between the two.
    pub(super) fn idle(&mut self, queues: [&CompletionQueue; 2]) -> Result<(), BenchError> {
        if !self.armed {
            queues.iter().for_each(|queue| queue.arm(Arm::Next));
            self.armed = true;
            return Ok(());
        }
        self.armed = false;
        match self.channel.next_event(Some(NAP)) {
            Ok(_) | Err(ChannelError::TimedOut) => Ok(()),
            Err(error) => Err(error).step("waiting for a completion event"),
        }
    }
}
