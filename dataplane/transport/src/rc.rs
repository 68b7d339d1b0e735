//! The reliable connected service (RC): requester, completer, responder.
//!
//! Read first: IBA 9.7.
//!
//! Requester and completer share the state of the send queue in flight: the requester advances the
//! end at which packets are sent, the completer the end at which they are acknowledged. The
//! responder is independent of both.

mod completer;
mod keepalive;
mod requester;
mod resources;
mod responder;
mod retry;
mod round_trips;
mod rtt;
mod selective;

use uroce_wire::Psn;

use crate::context::Context;
use crate::cqe::WcStatus;
use crate::env::Output;
use crate::time::Instant;
pub(crate) use keepalive::Keepalive;
pub(crate) use requester::Requester;
pub(crate) use responder::{Repeated, Responder};
pub use round_trips::RoundTripStats;
pub use selective::SelectiveRepeat;
#[cfg(feature = "testing")]
pub use selective::{PsnSet, SPAN};

/// The roles of an RC QP.
#[derive(Debug)]
pub(crate) struct Rc {
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) keepalive: Keepalive,
}

impl Rc {
    /// Gives the QP the memory of selective repeat. Returns `memory` if the QP has it already.
    pub(crate) fn equip(&mut self, memory: SelectiveRepeat) -> Option<SelectiveRepeat> {
        if self.is_equipped() {
            return Some(memory);
        }
        let SelectiveRepeat { sent, held } = memory;
        (self.requester.sent, self.responder.held) = (Some(sent), Some(held));
        None
    }

    /// Returns whether the QP has the memory of selective repeat.
    pub(crate) fn is_equipped(&self) -> bool {
        self.requester.sent.is_some()
    }

    /// Handles timers that have expired by `context.now`.
    ///
    /// # Errors
    /// The status with which the oldest WQE fails, or the QP if it has none.
    pub(crate) fn handle_timeout(
        &mut self,
        context: &Context<'_>,
        out: &mut impl Output,
    ) -> Result<(), WcStatus> {
        let Rc { requester, responder, keepalive } = self;
        keepalive.look(requester, responder, context, out)?;
        requester.handle_timeout(context, out)
    }

    /// Sets the idle time, in milliseconds, and starts it at `context.now`; 0 turns the keepalive
    /// off.
    pub(crate) fn set_keepalive(&mut self, idle_ms: u32, context: &Context<'_>) {
        self.keepalive.idle_ms = idle_ms;
        self.requester.end_life(context);
        if context.attr.state.sends() {
            self.start_keepalive(context.now);
        }
    }

    /// Starts the idle time at `now`, if the keepalive is on.
    pub(crate) fn start_keepalive(&mut self, now: Instant) {
        (self.requester.has_heard, self.responder.has_heard) = (false, false);
        self.keepalive.begin(now, &self.responder);
    }

    /// PSN of the next packet to send, and the position of the message that it belongs to.
    pub(crate) fn next_packet(&self) -> (Psn, u32) {
        let next = self.requester.next_lost().unwrap_or(self.requester.next_psn);
        (next, self.requester.cursor)
    }

    /// Returns whether the message at this position has a response of its own instead of an
    /// acknowledgement, as a READ or ATOMIC has. False if there is no message.
    pub(crate) fn is_asking(&self, at: u32) -> bool {
        self.requester.sq.get(at).is_some_and(|wqe| wqe.op.has_response())
    }
}
