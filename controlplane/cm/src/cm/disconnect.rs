//! The consumer's wishes at the end of a connection.

use uroce_transport::Instant;
use uroce_wire::cm::{Drep, Dreq, Message, PrivateData, Rej, RejectReason, SidrStatus};

use super::Cm;
use crate::state::{Event, State};
use crate::{CloseReason, CmError, ConnId, SidrAnswer};

impl Cm {
    /// Disconnects, or agrees to the peer's doing so ([`crate::CmEvent::DisconnectRequested`]).
    /// Private data may have 220 bytes in the first case and 224 in the second.
    ///
    /// # Errors
    /// An id or state that is not connected, or too much private data.
    pub fn disconnect(
        &mut self,
        now: Instant,
        id: ConnId,
        private_data: &[u8],
    ) -> Result<(), CmError> {
        if self.wish(id, Event::SendDrep).is_ok() {
            let data = PrivateData::new(private_data)?;
            self.send_drep(id, data);
            self.close(now, id, Event::SendDrep, CloseReason::Disconnected(None));
            return Ok(());
        }
        let next = self.wish(id, Event::SendDreq)?;
        let data = PrivateData::new(private_data)?;
        self.send_dreq(now, id, next, data);
        Ok(())
    }

    pub(super) fn send_drep(&mut self, id: ConnId, private_data: PrivateData<224>) {
        let Some(conn) = self.table.get(id) else { return };
        let (local_comm_id, remote_comm_id) = (conn.local_comm, conn.remote_comm_or_none());
        self.send_answer(id, Message::Drep(Drep { local_comm_id, remote_comm_id, private_data }));
    }

    pub(super) fn send_dreq(
        &mut self,
        now: Instant,
        id: ConnId,
        next: State,
        private_data: PrivateData<220>,
    ) {
        let named = self.table.update(id, |conn| {
            conn.state = next;
            conn.lap_deadline = None;
            conn.drop_laps();
            (conn.local_comm, conn.remote_comm_or_none(), conn.remote_qpn.unwrap_or_default())
        });
        if let Some((local_comm_id, remote_comm_id, remote_qpn)) = named {
            let dreq = Dreq { local_comm_id, remote_comm_id, remote_qpn, private_data };
            self.send_repeated(now, id, Message::Dreq(dreq));
        }
    }

    /// The peer's process has ended and sends nothing any more, as another source than messages
    /// says. The connection ends as if the process's system had said so for it: before it is
    /// established with a rejection, afterwards with a disconnect. Nothing is sent. A question that
    /// came is still answered.
    pub fn peer_ended(&mut self, now: Instant, id: ConnId) {
        let Some(state) = self.state(id) else { return };
        match state {
            State::Idle | State::TimeWait | State::SidrReqRcvd => {}
            State::SidrReqSent => {
                self.close(now, id, Event::RetriesExhausted, CloseReason::Unreachable);
            }
            _ => {
                let rej = Rej { reason: RejectReason::CONSUMER, ..Rej::default() };
                self.close(now, id, Event::RecvRej, CloseReason::Rejected(Box::new(rej)));
            }
        }
    }

    /// Gives up an id, whatever its state: the peer is told what there is to tell, the consumer
    /// nothing more. The QPN stays held ([`Cm::holds_qpn`]) until TimeWait is over.
    ///
    /// # Errors
    /// [`CmError::UnknownId`].
    pub fn destroy(&mut self, now: Instant, id: ConnId) -> Result<(), CmError> {
        //= check J10 — whatever the state, nothing is told of an id that was given up.
        let conn = self.table.get(id).filter(|conn| !conn.is_destroyed);
        let state = conn.ok_or(CmError::UnknownId)?.state;
        self.events.retain(|(of, _)| *of != id);
        self.table.update(id, |conn| conn.is_destroyed = true);
        match state {
            State::ReqSent | State::MraReqRcvd => {
                self.send_rej_timeout(id, PrivateData::default());
                self.close(now, id, Event::SendRej, CloseReason::RejectedByUs);
            }
            State::ReqRcvd
            | State::MraReqSent
            | State::RepSent
            | State::MraRepRcvd
            | State::RepRcvd
            | State::MraRepSent => {
                self.send_rej(id, RejectReason::CONSUMER, &[], PrivateData::default());
                self.close(now, id, Event::SendRej, CloseReason::RejectedByUs);
            }
            State::Established => self.send_dreq(now, id, State::DreqSent, PrivateData::default()),
            State::DreqRcvd => {
                self.send_drep(id, PrivateData::default());
                self.close(now, id, Event::SendDrep, CloseReason::Disconnected(None));
            }
            State::SidrReqSent => self.close(now, id, Event::SendRej, CloseReason::RejectedByUs),
            State::SidrReqRcvd => {
                let answer = SidrAnswer { status: SidrStatus::REJECTED, ..SidrAnswer::default() };
                self.answer_question(now, id, &answer);
            }
            State::Idle | State::DreqSent | State::TimeWait => {}
        }
        Ok(())
    }
}
