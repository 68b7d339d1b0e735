//! How long a port may take nothing until it loses what it is given.
//!
//! A QP whose packets never leave has no timer running: a peer that hangs while the link counts as up
//! would keep its retries from ending, and its path from migrating.

use std::time::Duration;
use uroce_transport::Instant;

/// Until the link is first known: the peer may be a process that is just starting, as this one is, and
/// a datagram that is lost for that is lost for ever.
const STARTING: Duration = Duration::from_secs(1);
/// From then on. Long for a peer that runs at all, short beside what retries take.
const STUCK: Duration = Duration::from_millis(200);

/// What a port has refused.
#[derive(Debug)]
pub(super) struct Patience {
    /// Since when everything.
    since: Option<Instant>,
    ends_after: Duration,
}

impl Patience {
    pub(super) fn new() -> Patience {
        Patience { since: None, ends_after: STARTING }
    }

    /// The port has taken something.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.since = None;
    }

    /// The link has gone up or down.
    pub(super) fn link_moved(&mut self) {
        *self = Patience { since: None, ends_after: STUCK };
    }

    /// The port has something that it does not take. Says whether that is lost, now and each turn until
    /// the port takes something.
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
