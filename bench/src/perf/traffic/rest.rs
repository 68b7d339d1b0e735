//! Sleeping on completion events (`-e`), in loops that otherwise poll.

use super::watch::Watch;
use crate::error::{BenchError, Step};
use crate::node::Drive;
use std::time::Duration;
use uroce::{Arm, ChannelError, CompletionChannel, CompletionQueue, Context};

/// Longest sleep, so that the other end's records on the socket are noticed too.
const NAP: Duration = Duration::from_millis(2);

/// Pause of an end that only serves, while its lcore has a thread of its own and this one sleeps
/// on events.
const SERVING: Duration = Duration::from_micros(200);

/// Runs a turn of an end that has nothing to poll, because the stack answers. With `sleeps` the
/// thread sleeps on events, of which there are none.
#[inline]
pub(super) fn serve(drive: &mut Drive, sleeps: bool, watch: &mut Watch) {
    if sleeps {
        std::thread::sleep(SERVING);
    } else {
        drive.wait();
    }
    if sleeps || drive.is_by_polling() {
        watch.hurry();
    }
}

/// A thread's way to wait for completions.
pub(super) struct Rest {
    channel: CompletionChannel,
    /// Number of events that have come.
    pub(super) events: u64,
    /// The queues were armed since the last sleep.
    armed: bool,
}

impl Rest {
    /// Creates a channel, for the queues that [`Rest::idle`] will get.
    pub(super) fn new(context: &Context) -> Result<Self, BenchError> {
        let channel = context.create_channel().step("creating a completion channel")?;
        Ok(Self { channel, events: 0, armed: false })
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
            Ok(_) => {
                self.events += 1;
                Ok(())
            }
            Err(ChannelError::TimedOut) => Ok(()),
            Err(error) => Err(error).step("waiting for a completion event"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::DeviceArgs;
    use crate::node::Node;
    use uroce_engine::clock::Clock;

    #[test]
    fn an_end_that_serves_asleep_soon_sees_what_the_other_sends() {
        let args = DeviceArgs { lcore_thread: true, ..DeviceArgs::default() };
        let [server, _client] = Node::open_both(&args, None, 0).expect("two ends");
        let mut drive = server.drive().expect("a drive");
        let mut watch = Watch::patient(Clock::new());
        let mut looks = 0;
        // Together they take 10 ms or more, and a look is due every 2 ms.
        for _ in 0..50 {
            serve(&mut drive, true, &mut watch);
            looks += watch.turn(0, || Ok(Some(1))).expect("it is patient").unwrap_or(0);
        }
        assert!(looks >= 4, "{looks}");
    }
}
