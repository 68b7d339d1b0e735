//! Handlers of DREQ, DREP, LAP and APR.

use uroce_transport::Instant;
use uroce_wire::Gid;
use uroce_wire::cm::{Apr, AprStatus, Drep, Dreq, Lap, Message, PrivateData};

use super::Cm;
use crate::cm::common::Common;
use crate::conn::Conn;
use crate::state::{Event, LapEvent, LapState, State};
use crate::{CloseReason, CmEvent, MadAddr, MadDrop, Path};

impl Cm {
    pub(super) fn on_dreq(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        transaction: u64,
        dreq: &Dreq,
    ) -> Result<(), MadDrop> {
        let (id, _) = match self.named(addr, dreq.remote_comm_id, dreq.local_comm_id) {
            Ok(found) => found,
            Err(reason) => {
                if reason == MadDrop::UnknownId {
                    self.send_drep_to_stranger(addr, transaction, dreq);
                }
                return Err(reason);
            }
        };
        let step =
            |conn: &mut Conn, common: &mut Common| conn.on_dreq(now, transaction, dreq, common);
        self.with(id, step).unwrap_or(Err(MadDrop::UnknownId))
    }

    //= check J2 — a copy of a DREQ gets a DREP after its connection is forgotten, too: otherwise a
    //= check J2 — peer that lost the first DREP would wait until its retries are used up.
    fn send_drep_to_stranger(&mut self, addr: &MadAddr, transaction: u64, dreq: &Dreq) {
        let (local_comm_id, remote_comm_id) = (dreq.remote_comm_id, dreq.local_comm_id);
        let drep = Drep { local_comm_id, remote_comm_id, private_data: PrivateData::default() };
        self.common.send(addr.reversed(), &Message::Drep(drep), transaction);
    }

    pub(super) fn on_drep(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        drep: &Drep,
    ) -> Result<(), MadDrop> {
        let (local, remote) = (drep.remote_comm_id, drep.local_comm_id);
        self.with_named(addr, local, remote, |conn, common| conn.on_drep(now, drep, common))
    }

    pub(super) fn on_lap(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        lap: &Lap,
    ) -> Result<(), MadDrop> {
        let id = match self.named(addr, lap.remote_comm_id, lap.local_comm_id) {
            Ok((id, _)) => id,
            Err(reason) => {
                if reason == MadDrop::UnknownId {
                    let status = AprStatus::INVALID_COMM_ID;
                    refuse_lap(addr, transaction, lap, status, &mut self.common);
                }
                return Err(reason);
            }
        };
        let step =
            |conn: &mut Conn, common: &mut Common| conn.on_lap(addr, transaction, lap, common);
        self.with(id, step).unwrap_or(Err(MadDrop::UnknownId))
    }

    pub(super) fn on_apr(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        apr: &Apr,
    ) -> Result<(), MadDrop> {
        let (local, remote) = (apr.remote_comm_id, apr.local_comm_id);
        self.with_named(addr, local, remote, |conn, common| conn.on_apr(transaction, apr, common))
    }
}

impl Conn {
    fn on_dreq(
        &mut self,
        now: Instant,
        transaction: u64,
        dreq: &Dreq,
        common: &mut Common,
    ) -> Result<(), MadDrop> {
        //= check J8 — a DREQ for another queue pair than the connection's ends nothing.
        if self.local_number() != Some(dreq.remote_qpn) {
            return Err(MadDrop::Forged);
        }
        let Some(next) = self.state.after(Event::RecvDreq) else {
            return Err(self.on_copied_dreq(transaction, common));
        };
        self.asked = transaction;
        if self.state == State::DreqSent {
            //= check J10 — DREQs that cross answer one another.
            self.send_drep(PrivateData::default(), common);
            self.close(now, Event::RecvDreq, CloseReason::Disconnected(None), common);
            return Ok(());
        }
        self.state = next;
        (self.repeated, self.deadline, self.answer) = (None, None, None);
        self.lap_deadline = None;
        self.drop_laps();
        self.tell(CmEvent::DisconnectRequested(Box::new(dreq.private_data)), common);
        Ok(())
    }

    //= check J2 — a copy of a DREQ gets a DREP, in TimeWait too; no event is reported again.
    fn on_copied_dreq(&mut self, transaction: u64, common: &mut Common) -> MadDrop {
        match self.state {
            State::TimeWait => {
                let drep = self.answer.as_ref().map(|answer| &*answer.message);
                match drep {
                    Some(Message::Drep(_)) => self.answer_again(common),
                    _ => {
                        self.asked = transaction;
                        self.send_drep(PrivateData::default(), common);
                        MadDrop::Duplicate
                    }
                }
            }
            State::DreqRcvd => MadDrop::Duplicate,
            _ => MadDrop::Unexpected,
        }
    }

    fn on_drep(&mut self, now: Instant, drep: &Drep, common: &mut Common) -> Result<(), MadDrop> {
        let is_copy = self.state == State::TimeWait;
        if self.state.after(Event::RecvDrep).is_none() {
            return Err(if is_copy { MadDrop::Duplicate } else { MadDrop::Unexpected });
        }
        let data = Some(Box::new(drep.private_data));
        self.close(now, Event::RecvDrep, CloseReason::Disconnected(data), common);
        Ok(())
    }

    fn on_lap(
        &mut self,
        addr: &MadAddr,
        transaction: u64,
        lap: &Lap,
        common: &mut Common,
    ) -> Result<(), MadDrop> {
        if self.state != State::Established {
            return Err(MadDrop::Unexpected);
        }
        if let Some(verdict) = self.on_copied_lap(transaction, common) {
            return Err(verdict);
        }
        let next = self.lap_in.after(LapEvent::RecvLap).ok_or(MadDrop::Unexpected)?;
        let path = Path::of_peer(addr.port, &lap.alternate);
        //= check I12 — a path that cannot be loaded is refused with the status that says why.
        let status = if self.local_number() != Some(lap.remote_qpn) {
            Some(AprStatus::INVALID_QPN)
        } else if self.used_channel().is_some() {
            Some(AprStatus::UNSUPPORTED)
        } else if path.local == Gid::default() || path.remote == Gid::default() {
            Some(AprStatus::INVALID_GID)
        } else if path.is_same_way(self.primary) {
            Some(AprStatus::IS_CURRENT)
        } else {
            None
        };
        if let Some(status) = status {
            refuse_lap(addr, transaction, lap, status, common);
            return Err(MadDrop::Refused);
        }
        self.lap_in = next;
        self.lap_answer = None;
        self.proposed = Some((transaction, path));
        self.tell(CmEvent::LoadAlternate(Box::new(*lap)), common);
        Ok(())
    }

    /// Answers a LAP with a known transaction again, and drops one that arrives while another is
    /// unanswered. Returns [`None`] for a LAP to be handled.
    fn on_copied_lap(&self, transaction: u64, common: &mut Common) -> Option<MadDrop> {
        let (known, _) = self.proposed?;
        let is_open = self.lap_in != LapState::Idle;
        if known != transaction {
            // A second proposal while one is unanswered. The peer repeats it until this one is
            // answered.
            return is_open.then_some(MadDrop::Unexpected);
        }
        if let Some(answer) = &self.lap_answer {
            common.send(self.addr, &answer.message, transaction);
        }
        Some(MadDrop::Duplicate)
    }

    fn on_apr(&mut self, transaction: u64, apr: &Apr, common: &mut Common) -> Result<(), MadDrop> {
        let next = self.lap_out.after(LapEvent::RecvApr).ok_or(MadDrop::Unexpected)?;
        let (repeated, path) = self.lap.as_ref().ok_or(MadDrop::Unexpected)?;
        if repeated.transaction != transaction {
            return Err(MadDrop::Duplicate); // The answer to an earlier LAP.
        }
        if apr.status == AprStatus::LOADED {
            self.alternate = Some(*path);
        }
        self.lap_out = next;
        (self.lap, self.lap_deadline) = (None, None);
        self.tell(CmEvent::AlternateAnswered(Box::new(*apr)), common);
        Ok(())
    }
}

/// Refuses a LAP with an APR that is not kept.
fn refuse_lap(addr: &MadAddr, transaction: u64, lap: &Lap, status: AprStatus, common: &mut Common) {
    let (local_comm_id, remote_comm_id) = (lap.remote_comm_id, lap.local_comm_id);
    let apr = Apr { local_comm_id, remote_comm_id, status, ..Apr::default() };
    common.send(addr.reversed(), &Message::Apr(apr), transaction);
}
