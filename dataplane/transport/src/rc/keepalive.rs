//! Keepalive: a connection in which nothing happens asks the peer for a sign of life.
//!
//! While something is outstanding, the ACK timer notices a peer that is gone. While nothing is, the
//! requester sends a duplicate request when the peer has been silent for
//! [`QpAttr::keepalive_ms`](crate::QpAttr::keepalive_ms), and repeats it like any request: a local
//! ACK timeout for the answer, then `retry_cnt` retries, then the error.
//!
//! A look at the connection, four times in the idle time, finds whether the peer has sent something
//! since the last: the responder expects another PSN, the requester has progress, or one of them
//! has got a packet that changed nothing. So packets cost nothing, and the peer is asked after at
//! least the idle time and at most a quarter more.
//!
//! Invariants
//! - The next look is brought forward only when the keepalive is set and by a look itself.
//!
//! Not here: the packet ([`super::requester`]).

use core::time::Duration;

use super::{Requester, Responder};
use crate::context::Context;
use crate::cqe::WcStatus;
use crate::env::Output;
use crate::time::Instant;
use crate::timer::ack_timeout;

/// Looks in the idle time.
const LOOKS: u8 = 4;

/// No look is due.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

#[derive(Debug)]
pub(crate) struct Keepalive {
    /// Time of the next look.
    at: Instant,
    /// Idle time in milliseconds; 0 turns the keepalive off.
    pub(crate) idle_ms: u32,
    /// Low bits of the PSN that the responder expected at the last look.
    expected: u16,
    /// Looks in a row that found no sign of life, up to [`LOOKS`].
    quiet: u8,
}

const _: () = assert!(size_of::<Keepalive>() == 16);

impl Default for Keepalive {
    fn default() -> Keepalive {
        Keepalive { at: NEVER, idle_ms: 0, expected: 0, quiet: 0 }
    }
}

impl Keepalive {
    /// Starts the looks at `now`, if the keepalive is on.
    pub(super) fn begin(&mut self, now: Instant, responder: &Responder) {
        self.expected = low_bits(responder);
        self.start(now);
    }

    /// Starts the idle time at `now`, if the keepalive is on.
    fn start(&mut self, now: Instant) {
        self.quiet = 0;
        self.at = if self.idle_ms == 0 { NEVER } else { now + self.interval() };
    }

    /// Ends the looks, until the next [`begin`](Keepalive::begin).
    pub(crate) fn stop(&mut self) {
        self.at = NEVER;
    }

    /// Time of the next look; `None` if there is none.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        (self.at != NEVER).then_some(self.at)
    }

    /// Time from a look to the next.
    fn interval(&self) -> Duration {
        Duration::from_millis(self.idle_ms.into()) / LOOKS.into()
    }

    /// Looks at the connection, if it is time for that or the answer to a keepalive is overdue.
    ///
    /// # Errors
    /// The peer has given no sign of life, and no retry is left.
    #[cold]
    pub(super) fn look(
        &mut self,
        requester: &mut Requester,
        responder: &mut Responder,
        context: &Context<'_>,
        out: &mut impl Output,
    ) -> Result<(), WcStatus> {
        let Context { attr, now, .. } = *context;
        let (is_time, is_overdue) = (self.at <= now, requester.is_life_overdue(now));
        if !is_time && !is_overdue {
            return Ok(());
        }
        if self.has_heard(requester, responder) {
            self.start(now);
            requester.end_life(context);
            return Ok(());
        }
        if is_time {
            self.quiet = (self.quiet + 1).min(LOOKS);
            self.at = now + self.interval();
        }
        if is_overdue {
            return requester.repeat_keepalive(out);
        }
        //= check B2 — without an ACK timer there are no retries, and nothing is asked
        let looks = if seeded!(KeepaliveEarly) { LOOKS / 2 } else { LOOKS };
        if self.quiet >= looks && requester.is_idle() && ack_timeout(attr.timeout).is_some() {
            requester.begin_life(context);
        }
        Ok(())
    }

    /// Returns whether the peer has sent something since the last look, and forgets it.
    //= check B15 — whatever it was
    fn has_heard(&mut self, requester: &mut Requester, responder: &mut Responder) -> bool {
        let since = self.at.as_nanos().saturating_sub(self.interval().as_nanos() as u64);
        let expected = low_bits(responder);
        let has_moved = core::mem::replace(&mut self.expected, expected) != expected;
        let has_progress = requester.has_progress_since(Instant::from_nanos(since));
        let of_requester = core::mem::take(&mut requester.has_heard);
        let of_responder = core::mem::take(&mut responder.has_heard);
        has_moved || has_progress || of_requester || of_responder
    }
}

/// The low bits of the PSN that the responder expects. If they are as before after a multiple of
/// 65536 packets, one look more is needed to find the peer alive.
fn low_bits(responder: &Responder) -> u16 {
    responder.expected_psn().value() as u16
}
