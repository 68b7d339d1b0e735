//! Handlers of DREQ, DREP, LAP and APR.

use uroce_transport::Instant;
use uroce_wire::Gid;
use uroce_wire::cm::{Apr, AprStatus, Drep, Dreq, Lap, Message, PrivateData};

use super::Cm;
use crate::state::{Event, LapEvent, LapState, State};
use crate::{CloseReason, CmEvent, ConnId, MadAddr, MadDrop, Path};

impl Cm {
    pub(super) fn on_dreq(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        transaction: u64,
        dreq: &Dreq,
    ) -> Result<(), MadDrop> {
        let (id, conn) = match self.named(addr, dreq.remote_comm_id, dreq.local_comm_id) {
            Ok(found) => found,
            Err(reason) => {
                if reason == MadDrop::UnknownId {
                    self.send_drep_to_stranger(addr, transaction, dreq);
                }
                return Err(reason);
            }
        };
        //= check J8 — a DREQ for another queue pair than the connection's ends nothing.
        if conn.local_qpn != Some(dreq.remote_qpn) {
            return Err(MadDrop::Forged);
        }
        let state = conn.state;
        let Some(next) = state.after(Event::RecvDreq) else {
            return Err(self.on_copied_dreq(id, transaction));
        };
        self.table.update(id, |conn| conn.asked = transaction);
        if state == State::DreqSent {
            //= check J10 — DREQs that cross answer one another.
            self.send_drep(id, PrivateData::default());
            self.close(now, id, Event::RecvDreq, CloseReason::Disconnected(None));
            return Ok(());
        }
        self.table.update(id, |conn| {
            conn.state = next;
            (conn.repeated, conn.deadline, conn.answer) = (None, None, None);
            conn.lap_deadline = None;
            conn.drop_laps();
        });
        self.tell(id, CmEvent::DisconnectRequested(Box::new(dreq.private_data)));
        Ok(())
    }

    //= check J2 — a copy of a DREQ gets a DREP after its connection is forgotten, too: otherwise a
    //= check J2 — peer that lost the first DREP would wait until its retries are used up.
    fn send_drep_to_stranger(&mut self, addr: &MadAddr, transaction: u64, dreq: &Dreq) {
        let (local_comm_id, remote_comm_id) = (dreq.remote_comm_id, dreq.local_comm_id);
        let drep = Drep { local_comm_id, remote_comm_id, private_data: PrivateData::default() };
        self.send(addr.reversed(), &Message::Drep(drep), transaction);
    }

    //= check J2 — a copy of a DREQ gets a DREP, in TimeWait too; no event is reported again.
    fn on_copied_dreq(&mut self, id: ConnId, transaction: u64) -> MadDrop {
        let Some(conn) = self.table.get(id) else { return MadDrop::UnknownId };
        match conn.state {
            State::TimeWait => {
                let drep = conn.answer.as_ref().map(|answer| &*answer.message);
                match drep {
                    Some(Message::Drep(_)) => self.answer_again(id),
                    _ => {
                        self.table.update(id, |conn| conn.asked = transaction);
                        self.send_drep(id, PrivateData::default());
                        MadDrop::Duplicate
                    }
                }
            }
            State::DreqRcvd => MadDrop::Duplicate,
            _ => MadDrop::Unexpected,
        }
    }

    pub(super) fn on_drep(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        drep: &Drep,
    ) -> Result<(), MadDrop> {
        let (id, conn) = self.named(addr, drep.remote_comm_id, drep.local_comm_id)?;
        let is_copy = conn.state == State::TimeWait;
        if conn.state.after(Event::RecvDrep).is_none() {
            return Err(if is_copy { MadDrop::Duplicate } else { MadDrop::Unexpected });
        }
        let data = Some(Box::new(drep.private_data));
        self.close(now, id, Event::RecvDrep, CloseReason::Disconnected(data));
        Ok(())
    }

    pub(super) fn on_lap(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        lap: &Lap,
    ) -> Result<(), MadDrop> {
        let refuse = |cm: &mut Cm, status| {
            let (local_comm_id, remote_comm_id) = (lap.remote_comm_id, lap.local_comm_id);
            let apr = Apr { local_comm_id, remote_comm_id, status, ..Apr::default() };
            cm.send(addr.reversed(), &Message::Apr(apr), transaction);
        };
        let (id, conn) = match self.named(addr, lap.remote_comm_id, lap.local_comm_id) {
            Ok(found) => found,
            Err(MadDrop::UnknownId) => {
                refuse(self, AprStatus::INVALID_COMM_ID);
                return Err(MadDrop::UnknownId);
            }
            Err(reason) => return Err(reason),
        };
        if conn.state != State::Established {
            return Err(MadDrop::Unexpected);
        }
        if let Some(verdict) = self.on_copied_lap(id, transaction) {
            return Err(verdict);
        }
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        let next = conn.lap_in.after(LapEvent::RecvLap).ok_or(MadDrop::Unexpected)?;
        let path = Path::of_peer(addr.port, &lap.alternate);
        //= check I12 — a path that cannot be loaded is refused with the status that says why.
        let status = if conn.local_qpn != Some(lap.remote_qpn) {
            Some(AprStatus::INVALID_QPN)
        } else if path.local == Gid::default() || path.remote == Gid::default() {
            Some(AprStatus::INVALID_GID)
        } else if path.is_same_way(conn.primary) {
            Some(AprStatus::IS_CURRENT)
        } else {
            None
        };
        if let Some(status) = status {
            refuse(self, status);
            return Err(MadDrop::Refused);
        }
        self.table.update(id, |conn| {
            conn.lap_in = next;
            conn.lap_answer = None;
            conn.proposed = Some((transaction, path));
        });
        self.tell(id, CmEvent::LoadAlternate(Box::new(*lap)));
        Ok(())
    }

    /// Answers a LAP with a known transaction again, and drops one that arrives while another is
    /// unanswered. Returns [`None`] for a LAP to be handled.
    fn on_copied_lap(&mut self, id: ConnId, transaction: u64) -> Option<MadDrop> {
        let conn = self.table.get(id)?;
        let (known, _) = conn.proposed?;
        let is_open = conn.lap_in != LapState::Idle;
        if known != transaction {
            // A second proposal while one is unanswered. The peer repeats it until this one is
            // answered.
            return is_open.then_some(MadDrop::Unexpected);
        }
        let answer = conn.lap_answer.as_ref().map(|answer| (conn.addr, *answer.message));
        if let Some((addr, message)) = answer {
            self.send(addr, &message, transaction);
        }
        Some(MadDrop::Duplicate)
    }

    pub(super) fn on_apr(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        apr: &Apr,
    ) -> Result<(), MadDrop> {
        let (id, conn) = self.named(addr, apr.remote_comm_id, apr.local_comm_id)?;
        let next = conn.lap_out.after(LapEvent::RecvApr).ok_or(MadDrop::Unexpected)?;
        let (repeated, path) = conn.lap.as_ref().ok_or(MadDrop::Unexpected)?;
        if repeated.transaction != transaction {
            return Err(MadDrop::Duplicate); // The answer to an earlier LAP.
        }
        let path = *path;
        self.table.update(id, |conn| {
            conn.lap_out = next;
            (conn.lap, conn.lap_deadline) = (None, None);
            if apr.status == AprStatus::LOADED {
                conn.alternate = Some(path);
            }
        });
        self.tell(id, CmEvent::AlternateAnswered(Box::new(*apr)));
        Ok(())
    }
}
