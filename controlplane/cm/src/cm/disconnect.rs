//! The consumer's calls that end a connection.
//!
//! Read first: IBA 12.9.

use uroce_transport::Instant;
use uroce_wire::cm::{Drep, Dreq, Message, PrivateData, Rej, RejectReason, SidrStatus};

use super::Cm;
use crate::state::{Event, State};
use crate::{CloseReason, CmError, ConnId, SidrAnswer};

impl Cm {
    /// Starts a disconnect with a DREQ, or answers the peer's DREQ
    /// ([`crate::CmEvent::DisconnectRequested`]) with a DREP. Private data: at most 220 bytes in a
    /// DREQ, 224 in a DREP.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] or [`CmError::State`] if `id` is not connected,
    /// [`CmError::PrivateData`] if `private_data` is too long.
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

    /// Ends a connection because another source than its messages reports that the peer's process
    /// has ended. No message is sent. The consumer sees a rejection by the peer, or for a SIDR
    /// request of ours [`CloseReason::Unreachable`]. A SIDR request of the peer is left to be
    /// answered.
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

    /// Gives up an id in any state. The peer is sent the REJ, DREQ, DREP or SIDR_REP that fits the
    /// state; no event of the id follows. The QPN stays held ([`Cm::holds_qpn`]) until TimeWait is
    /// over.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] if `id` does not exist or is destroyed already.
    pub fn destroy(&mut self, now: Instant, id: ConnId) -> Result<(), CmError> {
        //= check J10 — whatever the state, no event follows for an id that was given up.
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
