//! The consumer's calls for service ID resolution (SIDR).
//!
//! Read first: IBA 12.11.

use uroce_transport::Instant;
use uroce_wire::cm::{Message, SidrRep, SidrReq};

use super::common::Common;
use super::{Cm, check_path, check_range};
use crate::conn::Conn;
use crate::state::{Event, State};
use crate::{CmError, ConnId, SidrAnswer, SidrParams};

impl Cm {
    /// Asks a peer for the QPN and Q_Key of a service with a SIDR_REQ.
    /// [`crate::CmEvent::SidrReply`] or [`crate::CmEvent::Closed`] reports the outcome.
    ///
    /// # Errors
    /// [`CmError::OutOfRange`] for bad parameters, [`CmError::Full`].
    pub fn sidr_request(&mut self, now: Instant, params: &SidrParams) -> Result<ConnId, CmError> {
        check_range("CM retries", params.max_cm_retries, 15)?;
        check_path(&params.path)?;
        self.check_room()?;
        let request_id = self.comm_id();
        let mut conn = Conn::new(request_id, params.service_id, params.path);
        conn.state = State::SidrReqSent;
        conn.max_retries = params.max_cm_retries;
        conn.interval = params.timeout.duration();
        let id = self.table.insert(conn);
        let req = SidrReq {
            request_id,
            pkey: params.pkey,
            service_id: params.service_id,
            private_data: params.private_data,
        };
        self.with(id, |conn, common| conn.send_repeated(now, Message::SidrReq(req), common));
        Ok(id)
    }

    /// Answers a [`crate::CmEvent::SidrRequest`]. The only event that follows is
    /// [`crate::CmEvent::Released`], once copies of the request need no answer any more.
    ///
    /// # Errors
    /// [`CmError::UnknownId`] or [`CmError::State`] if no SIDR request waits under `id`.
    pub fn sidr_reply(
        &mut self,
        now: Instant,
        id: ConnId,
        answer: &SidrAnswer,
    ) -> Result<(), CmError> {
        self.call(id, |conn, common| {
            conn.wish(Event::SendSidrRep)?;
            conn.answer_question(now, answer, common);
            Ok(())
        })
    }
}

impl Conn {
    pub(super) fn answer_question(
        &mut self,
        now: Instant,
        answer: &SidrAnswer,
        common: &mut Common,
    ) {
        self.state = self.state.after(Event::SendSidrRep).unwrap_or(self.state);
        self.deadline = Some(now + common.config.limits.sidr_memory);
        let rep = SidrRep {
            request_id: self.remote_comm_or_none(),
            status: answer.status,
            qpn: answer.qpn,
            service_id: self.service_id,
            qkey: answer.qkey,
            private_data: answer.private_data,
            ..SidrRep::default()
        };
        self.send_answer(Message::SidrRep(rep), common);
    }
}
