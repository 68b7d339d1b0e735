//! Deadlines: an unanswered message is repeated, then given up.

use uroce_transport::Instant;
use uroce_wire::cm::PrivateData;

use super::Cm;
use crate::state::{Event, LapEvent, State};
use crate::table::Timer;
use crate::{CloseReason, CmEvent, ConnId};

impl Cm {
    /// Does all work due at `now`: repeats messages, gives up connections, ends TimeWait. Called
    /// when [`Cm::next_timeout`] has passed; earlier calls have no effect.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((id, timer)) = self.table.due(now) {
            match timer {
                Timer::Response => self.response_timeout(now, id),
                Timer::Lap => self.lap_timeout(now, id),
            }
        }
    }

    //= check J1 — a message is repeated as often as the terms say, then a REJ tells the peer.
    fn response_timeout(&mut self, now: Instant, id: ConnId) {
        let Some(state) = self.state(id) else { return };
        if state == State::TimeWait {
            //= check J9 — only the end of TimeWait frees the QPN.
            return self.release(id);
        }
        let waits_for_service = matches!(state, State::MraReqRcvd | State::MraRepRcvd);
        let again = self.table.update(id, |conn| {
            conn.deadline = Some(now + conn.interval);
            let repeated = conn.repeated.as_mut().filter(|_| !waits_for_service)?;
            repeated.left = repeated.left.checked_sub(1)?;
            Some((conn.addr, *repeated.message, repeated.transaction))
        });
        match again.flatten() {
            Some((addr, message, transaction)) => {
                self.counters.retransmitted += 1;
                self.send(addr, &message, transaction);
            }
            None => self.give_up(now, id),
        }
    }

    /// Closes a connection that has waited for an answer in vain.
    pub(super) fn give_up(&mut self, now: Instant, id: ConnId) {
        let reason = match self.state(id) {
            Some(State::DreqSent) => CloseReason::DisconnectUnanswered,
            Some(State::SidrReqSent) => CloseReason::Unreachable,
            Some(_) => {
                self.send_rej_timeout(id, PrivateData::default());
                CloseReason::Unreachable
            }
            None => return,
        };
        self.table.update(id, |conn| conn.deadline = None);
        self.close(now, id, Event::RetriesExhausted, reason);
    }

    fn lap_timeout(&mut self, now: Instant, id: ConnId) {
        let again = self.table.update(id, |conn| {
            conn.lap_deadline = Some(now + conn.interval);
            let is_waiting = conn.lap_out == crate::LapState::LapSent;
            let (repeated, _) = conn.lap.as_mut().filter(|_| is_waiting)?;
            repeated.left = repeated.left.checked_sub(1)?;
            Some((conn.addr, *repeated.message, repeated.transaction))
        });
        if let Some((addr, message, transaction)) = again.flatten() {
            self.counters.retransmitted += 1;
            return self.send(addr, &message, transaction);
        }
        self.table.update(id, |conn| {
            conn.lap_out = conn.lap_out.after(LapEvent::RetriesExhausted).unwrap_or_default();
            (conn.lap, conn.lap_deadline) = (None, None);
        });
        self.tell(id, CmEvent::AlternateTimedOut);
    }
}
