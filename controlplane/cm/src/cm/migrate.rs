//! Alternate paths of an established connection: LAP, APR, and the address of MADs after a
//! migration.
//!
//! Read first: IBA 12.8 for LAP and APR; IBA 17.2.8 for the migration of the queue pair.

use uroce_transport::Instant;
use uroce_wire::cm::{Apr, AprStatus, Lap, Message, PrivateData};

use super::{Cm, check_path};
use crate::conn::{Answer, Repeated};
use crate::state::{LapEvent, LapState, State};
use crate::{CmError, ConnId, Path};

impl Cm {
    /// Proposes an alternate path to the peer with a LAP. [`crate::CmEvent::AlternateAnswered`]
    /// reports the answer, [`crate::CmEvent::AlternateTimedOut`] that none came: Linux does not
    /// answer LAPs on RoCE.
    ///
    /// # Errors
    /// [`CmError::UnknownId`], [`CmError::State`] if not established, [`CmError::LapPending`],
    /// [`CmError::OutOfRange`] for a bad path.
    pub fn load_alternate(
        &mut self,
        now: Instant,
        id: ConnId,
        path: Path,
        private_data: PrivateData<168>,
    ) -> Result<(), CmError> {
        let conn =
            self.table.get(id).filter(|conn| !conn.is_destroyed).ok_or(CmError::UnknownId)?;
        if conn.state != State::Established {
            return Err(CmError::State(conn.state));
        }
        check_path(&path)?;
        let next = conn.lap_out.after(LapEvent::SendLap).ok_or(CmError::LapPending)?;
        let lap = Lap {
            local_comm_id: conn.local_comm,
            remote_comm_id: conn.remote_comm_or_none(),
            remote_qpn: conn.remote_qpn.unwrap_or_default(),
            remote_cm_response_timeout: uroce_wire::cm::CmTimeout::at_least(conn.interval),
            alternate: path.to_wire(),
            private_data,
        };
        let (message, transaction) = (Message::Lap(lap), self.random.next());
        let addr = self.table.update(id, |conn| {
            conn.lap_out = next;
            let message = Box::new(message);
            conn.lap = Some((Repeated { message, transaction, left: conn.max_retries }, path));
            conn.lap_deadline = Some(now + conn.interval);
            conn.addr
        });
        self.send(addr.ok_or(CmError::UnknownId)?, &message, transaction);
        Ok(())
    }

    /// Answers the peer's LAP with an APR. With [`AprStatus::LOADED`] the proposed path becomes the
    /// connection's alternate path, on local port `port`.
    ///
    /// # Errors
    /// [`CmError::NoLap`] if no LAP waits for an answer, [`CmError::UnknownId`].
    pub fn answer_alternate(
        &mut self,
        id: ConnId,
        status: AprStatus,
        port: u8,
        private_data: PrivateData<148>,
    ) -> Result<(), CmError> {
        let next = self.wish_lap_in(id, LapEvent::SendApr)?;
        let ids = self.table.update(id, |conn| {
            conn.lap_in = next;
            let proposed = conn.proposed.map(|(_, path)| Path { port, ..path });
            if status == AprStatus::LOADED {
                conn.alternate = proposed;
            }
            (conn.local_comm, conn.remote_comm_or_none())
        });
        let (local_comm_id, remote_comm_id) = ids.ok_or(CmError::UnknownId)?;
        let apr = Apr { local_comm_id, remote_comm_id, status, private_data, ..Apr::default() };
        self.send_lap_answer(id, Message::Apr(apr));
        Ok(())
    }

    /// Records that the queue pair has migrated: the alternate path becomes the primary one, for
    /// MADs too, and the connection has no alternate path any more.
    ///
    /// # Errors
    /// [`CmError::UnknownId`], or [`CmError::OutOfRange`] if the connection has no alternate path.
    pub fn path_migrated(&mut self, id: ConnId) -> Result<(), CmError> {
        //= check I13 — messages take the path that the data takes.
        let moved = self.table.update(id, |conn| {
            let path = conn.alternate.take()?;
            conn.former = Some(conn.addr.dst);
            conn.primary = path;
            conn.addr = path.mad_addr();
            Some(())
        });
        moved.ok_or(CmError::UnknownId)?.ok_or(CmError::OutOfRange("alternate path"))
    }

    pub(super) fn wish_lap_in(&self, id: ConnId, event: LapEvent) -> Result<LapState, CmError> {
        let conn = self.table.get(id).filter(|conn| !conn.is_destroyed);
        conn.ok_or(CmError::UnknownId)?.lap_in.after(event).ok_or(CmError::NoLap)
    }

    /// Answers the peer's LAP and keeps the answer, to send it again if the LAP is repeated.
    pub(super) fn send_lap_answer(&mut self, id: ConnId, message: Message) {
        let sent = self.table.update(id, |conn| {
            let (transaction, _) = conn.proposed?;
            conn.lap_answer = Some(Answer { message: Box::new(message), transaction });
            Some((conn.addr, transaction))
        });
        if let Some((addr, transaction)) = sent.flatten() {
            self.send(addr, &message, transaction);
        }
    }
}
