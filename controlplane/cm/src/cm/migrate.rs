//! Alternate paths of an established connection: LAP, APR, and the address of MADs after a
//! migration.
//!
//! Read first: IBA 12.8 for LAP and APR; IBA 17.2.8 for the migration of the queue pair.

use uroce_transport::Instant;
use uroce_wire::cm::{Apr, AprStatus, Lap, Message, PrivateData};

use super::common::Common;
use super::{Cm, check_path};
use crate::conn::{Answer, Conn, Kind, Repeated};
use crate::state::{LapEvent, LapState, State};
use crate::{CmError, ConnId, Path};

impl Cm {
    /// Proposes an alternate path to the peer with a LAP. [`crate::CmEvent::AlternateAnswered`]
    /// reports the answer, [`crate::CmEvent::AlternateTimedOut`] that none came: Linux does not
    /// answer LAPs on RoCE.
    ///
    /// # Errors
    /// [`CmError::UnknownId`], [`CmError::State`] if not established, [`CmError::LapPending`],
    /// [`CmError::OutOfRange`] for a bad path, or if the path is that of another connection's
    /// reliable datagram channel.
    pub fn load_alternate(
        &mut self,
        now: Instant,
        id: ConnId,
        path: Path,
        private_data: PrivateData<168>,
    ) -> Result<(), CmError> {
        self.call(id, |conn, common| conn.load_alternate(now, path, private_data, common))
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
        self.call(id, |conn, common| {
            conn.lap_in = conn.wish_lap_in(LapEvent::SendApr)?;
            if status == AprStatus::LOADED {
                conn.alternate = conn.proposed.map(|(_, path)| Path { port, ..path });
            }
            let (local_comm_id, remote_comm_id) = (conn.local_comm, conn.remote_comm_or_none());
            let apr = Apr { local_comm_id, remote_comm_id, status, private_data, ..Apr::default() };
            conn.send_lap_answer(Message::Apr(apr), common);
            Ok(())
        })
    }

    /// Records that the queue pair has migrated: the alternate path becomes the primary one, for
    /// MADs too, and the connection has no alternate path any more. So it is for connections that
    /// use the channel of this one.
    ///
    /// # Errors
    /// [`CmError::UnknownId`], or [`CmError::OutOfRange`] if the connection has no alternate path.
    pub fn path_migrated(&mut self, id: ConnId) -> Result<(), CmError> {
        //= check I13 — messages take the path that the data takes.
        let moved = self.with(id, |conn, _| {
            let path = conn.alternate.take()?;
            conn.take_path(path);
            Some((path, conn.held_number().filter(|_| conn.kind == Kind::Rdc)))
        });
        let moved = moved.ok_or(CmError::UnknownId)?;
        let (path, channel) = moved.ok_or(CmError::OutOfRange("alternate path"))?;
        for user in channel.map(|eecn| self.table.users(eecn)).into_iter().flatten() {
            self.with(user, |conn, _| conn.take_path(path));
        }
        Ok(())
    }
}

impl Conn {
    fn take_path(&mut self, path: Path) {
        self.former = Some(self.addr.dst);
        self.primary = path;
        self.addr = path.mad_addr();
    }

    fn load_alternate(
        &mut self,
        now: Instant,
        path: Path,
        private_data: PrivateData<168>,
        common: &mut Common,
    ) -> Result<(), CmError> {
        if self.state != State::Established {
            return Err(CmError::State(self.state));
        }
        if self.used_channel().is_some() {
            return Err(CmError::OutOfRange("path of another channel"));
        }
        check_path(&path)?;
        self.lap_out = self.lap_out.after(LapEvent::SendLap).ok_or(CmError::LapPending)?;
        let lap = Lap {
            local_comm_id: self.local_comm,
            remote_comm_id: self.remote_comm_or_none(),
            remote_qpn: self.remote_number().unwrap_or_default(),
            remote_cm_response_timeout: uroce_wire::cm::CmTimeout::at_least(self.interval),
            alternate: path.to_wire(),
            private_data,
        };
        let (message, transaction) = (Message::Lap(lap), common.random.next());
        let left = self.max_retries;
        self.lap = Some((Repeated { message: Box::new(message), transaction, left }, path));
        self.lap_deadline = Some(now + self.interval);
        common.send(self.addr, &message, transaction);
        Ok(())
    }

    pub(super) fn wish_lap_in(&self, event: LapEvent) -> Result<LapState, CmError> {
        self.lap_in.after(event).ok_or(CmError::NoLap)
    }

    /// Answers the peer's LAP and keeps the answer, to send it again if the LAP is repeated.
    pub(super) fn send_lap_answer(&mut self, message: Message, common: &mut Common) {
        let Some((transaction, _)) = self.proposed else { return };
        self.lap_answer = Some(Answer { message: Box::new(message), transaction });
        common.send(self.addr, &message, transaction);
    }
}
