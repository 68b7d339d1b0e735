//! Patience: how long a port may take nothing until its frames are dropped.
//!
//! A QP has no timer running while its packets do not leave. A peer that hangs while the link is up
//! would keep the QP's retries from ending, and its path from migrating.

use std::time::Duration;
use uroce_transport::Instant;

/// Patience until the link has first gone up or down. The peer may be a process that is just
/// starting, and a datagram that is dropped is lost for good.
const STARTING: Duration = Duration::from_secs(1);
/// Patience after that: long for a peer that runs, short compared with the time of a QP's retries.
const STUCK: Duration = Duration::from_millis(200);

/// The time since which a port has taken nothing.
#[derive(Debug)]
pub(super) struct Patience {
    /// The first refusal since the port last took a frame.
    since: Option<Instant>,
    ends_after: Duration,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { since: None, ends_after: STARTING }
    }

    /// Called when the port has taken a frame.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.since = None;
    }

    /// Called when the link has gone up or down.
    pub(super) fn link_moved(&mut self) {
        *self = Patience { since: None, ends_after: STUCK };
    }

    /// Called when the port has frames that it does not take. Returns whether to drop them, now and
    /// in each turn until the port takes a frame.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        now.since(since) >= self.ends_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_comes_up_has_longer_than_one_that_hangs() {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        let mut patience = Patience::new();
        assert!(!patience.is_over(at(500)));
        assert!(!patience.is_over(at(1499)));
        assert!(patience.is_over(at(1500)));
        assert!(patience.is_over(at(9000)), "for as long as nothing is taken");

        patience.link_moved();
        assert!(!patience.is_over(at(9001)));
        assert!(!patience.is_over(at(9200)));
        patience.renew();
        assert!(!patience.is_over(at(9201)), "counted anew");
        assert!(!patience.is_over(at(9400)));
        assert!(patience.is_over(at(9401)));
    }
}
