//! Alternate paths of an established connection: LAP, APR, and what a migration means for MADs.

use uroce_transport::Instant;
use uroce_wire::cm::{Apr, AprStatus, Lap, Message, PrivateData};

use super::{Cm, check_path};
use crate::conn::{Answer, Repeated};
use crate::state::{LapEvent, LapState, State};
use crate::{CmError, ConnId, Path};

impl Cm {
    /// Proposes an alternate path to the peer. What comes of it:
    /// [`crate::CmEvent::AlternateAnswered`], or [`crate::CmEvent::AlternateTimedOut`] where the
    /// peer does not speak of such things (Linux does not, on RoCE).
    ///
    /// # Errors
    /// Not established, a LAP under way, a path out of range.
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

    /// Answers the alternate path that the peer proposed. With [`AprStatus::LOADED`] it becomes
    /// the connection's alternate path, by local port `port`.
    ///
    /// # Errors
    /// [`CmError::NoLap`], or no such connection.
    pub fn answer_alternate(
        &mut self,
        _now: Instant,
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

    /// The queue pair has migrated: the alternate path is the primary one from now on, for MADs
    /// too, and there is none beside it.
    ///
    /// # Errors
    /// No such connection, or none with an alternate path.
    pub fn path_migrated(&mut self, _now: Instant, id: ConnId) -> Result<(), CmError> {
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

    /// Answers the peer's LAP, and keeps the answer for copies of it.
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
