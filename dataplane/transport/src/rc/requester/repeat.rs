//! Selective repeat at the requester: sends again what the peer lacks, and nothing else.
//!
//! Invariants
//! - While selective repeat is active, everything outstanding has been sent (`next_psn` is
//!   `end_psn`), and no request with a response of its own is outstanding.

use uroce_wire::Psn;

use super::Requester;
use crate::context::{Context, Step};
use crate::env::Env;

impl Requester {
    /// Returns whether packets are sent again one by one; otherwise the requester goes back.
    pub(crate) fn is_selective(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.is_active())
    }

    /// Sends the oldest packet that is lost, otherwise the packet at the cursor if the window has
    /// room for it.
    #[inline(never)]
    pub(super) fn transmit_selective(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        let outstanding = self.in_flight();
        let asks = self.sq.get(self.cursor).is_some_and(|wqe| wqe.op.has_response());
        let step = match self.sent.as_ref().filter(|sent| sent.is_active()) {
            None => self.transmit_in_window(context, env),
            Some(sent) => {
                if let Some(psn) = sent.next_lost(self.end_psn) {
                    return self.repeat(psn, context, env);
                }
                if !sent.has_room(outstanding) || asks && outstanding >= sent.most_before_read() {
                    return Step::Idle;
                }
                let (in_flight, window) = (sent.in_flight(outstanding), sent.window());
                self.transmit_next(in_flight, window, context, env)
            }
        };
        if asks
            && !seeded!(RestForgotten)
            && let (Step::Sent(_), Some(sent)) = (step, &mut self.sent)
        {
            sent.rest_until(self.end_psn);
        }
        step
    }

    /// Sends one packet again that is lost.
    #[cold]
    fn repeat(&mut self, psn: Psn, context: &Context<'_>, env: &mut impl Env) -> Step {
        let mut at = self.sq.head();
        while self.sq.get(at).is_some_and(|wqe| !psn.is_before(wqe.end())) {
            at = at.wrapping_add(1);
        }
        let step = self.transmit_again(at, psn, context, env);
        if let (Step::Sent(_), Some(sent)) = (step, &mut self.sent) {
            sent.repeated(psn, self.end_psn);
            // An answer could belong to either copy.
            if self.trip.timed() == Some(psn) {
                self.trip.forget_timed();
            }
        }
        step
    }

    /// PSN of the packet that is sent again next, with selective repeat; `None` if none is lost.
    pub(crate) fn next_lost(&self) -> Option<Psn> {
        self.sent.as_ref().filter(|sent| sent.is_active())?.next_lost(self.end_psn)
    }

    /// Goes back to `psn`, from which on the peer has nothing but what it has told. With selective
    /// repeat only the rest is sent again.
    pub(in crate::rc) fn go_back(&mut self, psn: Psn) {
        let end = self.end_psn;
        match self.sent.as_mut().filter(|sent| sent.is_on) {
            Some(sent) if sent.is_active() => sent.lose_from(psn, end),
            Some(sent) => {
                sent.rest_until(end);
                self.rewind(psn);
            }
            None => self.rewind(psn),
        }
    }

    /// Goes back to the packet `psn`, which the peer has refused for now. With selective repeat
    /// only this one is sent again.
    pub(in crate::rc) fn go_back_to_refused(&mut self, psn: Psn) {
        match self.sent.as_mut().filter(|sent| sent.is_active()) {
            Some(sent) => sent.refused(psn),
            None => self.go_back(psn),
        }
    }

    /// Returns whether the packet `psn` is lost, or has been sent again by selective repeat: then a
    /// NAK for it is no news.
    pub(in crate::rc) fn is_repeated_alone(&self, psn: Psn) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.is_active() && sent.is_known_lost(psn))
    }

    /// Returns whether the packet `psn` is yet to be sent again.
    pub(in crate::rc) fn is_to_be_repeated(&self, psn: Psn) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.is_active() && sent.is_lost(psn))
    }
}
