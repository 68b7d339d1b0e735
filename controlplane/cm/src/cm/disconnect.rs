//! The consumer's calls that end a connection.
//!
//! Read first: IBA 12.9.

use uroce_transport::Instant;
use uroce_wire::cm::{Drep, Dreq, Message, PrivateData, Rej, RejectReason, SidrStatus};

use super::Cm;
use super::common::Common;
use crate::conn::Conn;
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
        self.call(id, |conn, common| {
            if conn.wish(Event::SendDrep).is_ok() {
                conn.send_drep(PrivateData::new(private_data)?, common);
                conn.close(now, Event::SendDrep, CloseReason::Disconnected(None), common);
                return Ok(());
            }
            let next = conn.wish(Event::SendDreq)?;
            conn.send_dreq(now, next, PrivateData::new(private_data)?, common);
            Ok(())
        })
    }

    /// Ends a connection because another source than its messages reports that the peer's process
    /// has ended. No message is sent. The consumer sees a rejection by the peer, or for a SIDR
    /// request of ours [`CloseReason::Unreachable`]. A SIDR request of the peer is left to be
    /// answered.
    pub fn peer_ended(&mut self, now: Instant, id: ConnId) {
        self.with(id, |conn, common| conn.peer_ended(now, common));
    }

    /// Gives up an id in any state. The peer is sent the REJ, DREQ, DREP or SIDR_REP that fits the
    /// state; no event of the id follows. The QPN stays held ([`Cm::holds_qpn`]) until TimeWait is
    /// over.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] if `id` does not exist or is destroyed already.
    pub fn destroy(&mut self, now: Instant, id: ConnId) -> Result<(), CmError> {
        //= check J10 — whatever the state, no event follows for an id that was given up.
        self.call(id, |conn, common| {
            common.events.retain(|(of, _)| *of != id);
            conn.destroy(now, common);
            Ok(())
        })
    }
}

impl Conn {
    pub(super) fn send_drep(&mut self, private_data: PrivateData<224>, common: &mut Common) {
        let (local_comm_id, remote_comm_id) = (self.local_comm, self.remote_comm_or_none());
        let drep = Drep { local_comm_id, remote_comm_id, private_data };
        self.send_answer(Message::Drep(drep), common);
    }

    fn send_dreq(
        &mut self,
        now: Instant,
        next: State,
        private_data: PrivateData<220>,
        common: &mut Common,
    ) {
        self.state = next;
        self.lap_deadline = None;
        self.drop_laps();
        let dreq = self.dreq(private_data);
        self.send_repeated(now, Message::Dreq(dreq), common);
    }

    /// Builds a DREQ.
    pub(super) fn dreq(&self, private_data: PrivateData<220>) -> Dreq {
        Dreq {
            local_comm_id: self.local_comm,
            remote_comm_id: self.remote_comm_or_none(),
            remote_qpn: self.remote_number().unwrap_or_default(),
            private_data,
        }
    }

    /// Ends a connection because the channel that it depends on has ended, at both sides.
    pub(super) fn channel_ended(&mut self, now: Instant, common: &mut Common) {
        if !matches!(self.state, State::Idle | State::TimeWait) {
            self.close(now, Event::RecvRej, CloseReason::Disconnected(None), common);
        }
    }

    fn peer_ended(&mut self, now: Instant, common: &mut Common) {
        match self.state {
            State::Idle | State::TimeWait | State::SidrReqRcvd => {}
            State::SidrReqSent => {
                self.close(now, Event::RetriesExhausted, CloseReason::Unreachable, common);
            }
            _ => {
                let rej = Rej { reason: RejectReason::CONSUMER, ..Rej::default() };
                self.close(now, Event::RecvRej, CloseReason::Rejected(Box::new(rej)), common);
            }
        }
    }

    fn destroy(&mut self, now: Instant, common: &mut Common) {
        self.is_destroyed = true;
        match self.state {
            State::ReqSent | State::MraReqRcvd => {
                self.send_rej_timeout(PrivateData::default(), common);
                self.close(now, Event::SendRej, CloseReason::RejectedByUs, common);
            }
            State::ReqRcvd
            | State::MraReqSent
            | State::RepSent
            | State::MraRepRcvd
            | State::RepRcvd
            | State::MraRepSent => {
                self.send_rej(RejectReason::CONSUMER, &[], PrivateData::default(), common);
                self.close(now, Event::SendRej, CloseReason::RejectedByUs, common);
            }
            State::Established => {
                self.send_dreq(now, State::DreqSent, PrivateData::default(), common);
            }
            State::DreqRcvd => {
                self.send_drep(PrivateData::default(), common);
                self.close(now, Event::SendDrep, CloseReason::Disconnected(None), common);
            }
            State::SidrReqSent => {
                self.close(now, Event::SendRej, CloseReason::RejectedByUs, common);
            }
            State::SidrReqRcvd => {
                let answer = SidrAnswer { status: SidrStatus::REJECTED, ..SidrAnswer::default() };
                self.answer_question(now, &answer, common);
            }
            State::Idle | State::DreqSent | State::TimeWait => {}
        }
    }
}
