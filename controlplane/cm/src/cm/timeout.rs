//! Deadlines: an unanswered message is repeated, then given up.

use uroce_transport::Instant;
use uroce_wire::cm::PrivateData;

use super::Cm;
use super::common::Common;
use crate::conn::Conn;
use crate::state::{Event, LapEvent, State};
use crate::table::Timer;
use crate::{CloseReason, CmEvent};

impl Cm {
    /// Does all work due at `now`: repeats messages, gives up connections, ends TimeWait. Called
    /// when [`Cm::next_timeout`] has passed; earlier calls have no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((id, timer)) = self.table.due(now) {
            self.with(id, |conn, common| match timer {
                Timer::Response => conn.response_timeout(now, common),
                Timer::Lap => conn.lap_timeout(now, common),
            });
        }
    }
}

impl Conn {
    //= check J1 — a message is repeated as often as the terms say, then a REJ tells the peer.
    fn response_timeout(&mut self, now: Instant, common: &mut Common) {
        if self.state == State::TimeWait {
            //= check J9 — only the end of TimeWait frees the QPN.
            return self.release(common);
        }
        let waits_for_service = matches!(self.state, State::MraReqRcvd | State::MraRepRcvd);
        self.deadline = Some(now + self.interval);
        let repeated = self.repeated.as_mut().filter(|_| !waits_for_service);
        let again = repeated.and_then(|repeated| {
            repeated.left = repeated.left.checked_sub(1)?;
            Some((*repeated.message, repeated.transaction))
        });
        match again {
            Some((message, transaction)) => {
                common.counters.retransmitted += 1;
                common.send(self.addr, &message, transaction);
            }
            None => self.give_up(now, common),
        }
    }

    /// Closes a connection that has waited for an answer in vain.
    pub(super) fn give_up(&mut self, now: Instant, common: &mut Common) {
        let reason = match self.state {
            State::DreqSent => CloseReason::DisconnectUnanswered,
            State::SidrReqSent => CloseReason::Unreachable,
            _ => {
                self.send_rej_timeout(PrivateData::default(), common);
                CloseReason::Unreachable
            }
        };
        self.deadline = None;
        self.close(now, Event::RetriesExhausted, reason, common);
    }

    fn lap_timeout(&mut self, now: Instant, common: &mut Common) {
        self.lap_deadline = Some(now + self.interval);
        let is_waiting = self.lap_out == crate::LapState::LapSent;
        let again = self.lap.as_mut().filter(|_| is_waiting).and_then(|(repeated, _)| {
            repeated.left = repeated.left.checked_sub(1)?;
            Some((*repeated.message, repeated.transaction))
        });
        if let Some((message, transaction)) = again {
            common.counters.retransmitted += 1;
            return common.send(self.addr, &message, transaction);
        }
        self.lap_out = self.lap_out.after(LapEvent::RetriesExhausted).unwrap_or_default();
        (self.lap, self.lap_deadline) = (None, None);
        self.tell(CmEvent::AlternateTimedOut, common);
    }
}
