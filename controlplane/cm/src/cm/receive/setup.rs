//! Handlers of REP, RTU, MRA and REJ.

use uroce_transport::Instant;
use uroce_wire::cm::{
    CaGuid, MessageMraed, MessageRejected, Mra, PrivateData, Rej, RejectReason, Rep, Rtu,
};

use super::Cm;
use crate::cm::clamped;
use crate::cm::connect::is_connectable;
use crate::state::{Event, LapEvent, State};
use crate::{CloseReason, CmEvent, ConnId, MadAddr, MadDrop};

impl Cm {
    pub(super) fn on_rep(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        transaction: u64,
        rep: &Rep,
    ) -> Result<(), MadDrop> {
        let named = self.named(addr, rep.remote_comm_id, rep.local_comm_id);
        let (id, conn) = match named {
            Ok(found) => found,
            Err(MadDrop::UnknownId) => {
                let ids = (rep.remote_comm_id, rep.local_comm_id);
                let (message, reason) = (MessageRejected::Rep, RejectReason::INVALID_COMM_ID);
                self.refuse(addr, transaction, ids, message, reason, &[]);
                return Err(MadDrop::UnknownId);
            }
            Err(reason) => return Err(reason),
        };
        let Some(next) = conn.state.after(Event::RecvRep) else {
            return Err(self.on_copied_rep(id));
        };
        if !is_connectable(rep.local_qpn) {
            return Err(MadDrop::Malformed);
        }
        let peer = conn.addr.dst;
        if let Some(old) = self.stale(rep.local_ca_guid, rep.local_qpn, peer) {
            return Err(self.refuse_stale_rep(now, id, old, rep));
        }
        self.table.update(id, |conn| {
            conn.state = next;
            conn.remote_comm = Some(rep.local_comm_id);
            conn.remote_guid = rep.local_ca_guid;
            conn.remote_qpn = Some(rep.local_qpn);
            conn.asked = transaction;
            (conn.repeated, conn.deadline) = (None, None);
        });
        self.tell(id, CmEvent::Accepted(Box::new(*rep)));
        Ok(())
    }

    //= check J2 — a copy of a REP gets the RTU, or MRA, that the first one got.
    fn on_copied_rep(&mut self, id: ConnId) -> MadDrop {
        match self.state(id) {
            Some(State::Established | State::MraRepSent) => self.answer_again(id),
            Some(State::RepRcvd) => MadDrop::Duplicate,
            _ => MadDrop::Unexpected,
        }
    }

    /// Rejects a REP with a queue pair that is in another connection with us. Both connections end.
    fn refuse_stale_rep(&mut self, now: Instant, id: ConnId, old: ConnId, rep: &Rep) -> MadDrop {
        self.tear_down(now, old);
        self.table.update(id, |conn| conn.remote_comm = Some(rep.local_comm_id));
        self.send_rej(id, RejectReason::STALE_CONNECTION, &[], PrivateData::default());
        self.close(now, id, Event::SendRej, CloseReason::Stale);
        MadDrop::Refused
    }

    pub(super) fn on_rtu(&mut self, addr: &MadAddr, rtu: &Rtu) -> Result<(), MadDrop> {
        let (id, conn) = self.named(addr, rtu.remote_comm_id, rtu.local_comm_id)?;
        let Some(next) = conn.state.after(Event::RecvRtu) else {
            let is_copy = conn.state == State::Established;
            return Err(if is_copy { MadDrop::Duplicate } else { MadDrop::Unexpected });
        };
        self.established(id, next);
        self.tell(id, CmEvent::Established(Some(Box::new(rtu.private_data))));
        Ok(())
    }

    pub(super) fn on_mra(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        mra: &Mra,
    ) -> Result<(), MadDrop> {
        let (id, conn) = self.named(addr, mra.remote_comm_id, mra.local_comm_id)?;
        if mra.message == MessageMraed::Lap {
            return self.on_lap_mra(now, id, mra);
        }
        let expected = match conn.state {
            State::ReqSent | State::MraReqRcvd => MessageMraed::Req,
            _ => MessageMraed::Rep,
        };
        let next = conn.state.after(Event::RecvMra).filter(|_| mra.message == expected);
        let next = next.ok_or(MadDrop::Unexpected)?;
        let is_first = conn.state != next;
        let patience = clamped(mra.service_timeout, self.config.limits.service_timeout);
        //= check J7 — an MRA restarts the wait with the time it asks for; a second MRA costs one
        //= check J7 — repetition, so that no peer can make us wait for ever.
        let granted = self.table.update(id, |conn| {
            let repeated = conn.repeated.as_mut()?;
            repeated.left = if is_first { repeated.left } else { repeated.left.checked_sub(1)? };
            conn.state = next;
            conn.deadline = Some(now + patience.duration() + conn.interval);
            Some(())
        });
        granted.flatten().ok_or(MadDrop::Duplicate)?;
        if is_first {
            self.tell(id, CmEvent::Patience(Box::new(*mra)));
        }
        Ok(())
    }

    fn on_lap_mra(&mut self, now: Instant, id: ConnId, mra: &Mra) -> Result<(), MadDrop> {
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        let next = conn.lap_out.after(LapEvent::RecvMra).ok_or(MadDrop::Unexpected)?;
        let is_first = conn.lap_out != next;
        let patience = clamped(mra.service_timeout, self.config.limits.service_timeout);
        let granted = self.table.update(id, |conn| {
            let (repeated, _) = conn.lap.as_mut()?;
            repeated.left = if is_first { repeated.left } else { repeated.left.checked_sub(1)? };
            conn.lap_out = next;
            conn.lap_deadline = Some(now + patience.duration() + conn.interval);
            Some(())
        });
        granted.flatten().ok_or(MadDrop::Duplicate)?;
        if is_first {
            self.tell(id, CmEvent::Patience(Box::new(*mra)));
        }
        Ok(())
    }

    pub(super) fn on_rej(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        rej: &Rej,
    ) -> Result<(), MadDrop> {
        let id = self.rejected(addr, rej)?;
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        let event = match rej.reason {
            RejectReason::STALE_CONNECTION => Event::RecvRejStale,
            _ => Event::RecvRej,
        };
        conn.state.after(event).ok_or(MadDrop::Unexpected)?;
        // In peer-to-peer mode the other side may not have sent its REQ yet; we repeat ours until
        // then.
        let not_yet = rej.reason == RejectReason::INVALID_SERVICE_ID;
        if conn.peer_to_peer && conn.state == State::ReqSent && not_yet {
            return Err(MadDrop::Unexpected);
        }
        self.close(now, id, event, CloseReason::Rejected(Box::new(*rej)));
        Ok(())
    }

    /// Finds the connection that a REJ ends.
    fn rejected(&self, addr: &MadAddr, rej: &Rej) -> Result<ConnId, MadDrop> {
        if rej.remote_comm_id.0 != 0 {
            return self.named(addr, rej.remote_comm_id, rej.local_comm_id).map(|(id, _)| id);
        }
        // The active side without our communication ID sends its CA GUID and its own ID instead.
        let guid = (rej.reason == RejectReason::TIMEOUT)
            .then(|| rej.additional_information().first_chunk())
            .flatten()
            .ok_or(MadDrop::UnknownId)?;
        let guid = CaGuid(u64::from_be_bytes(*guid));
        let id = self.table.by_remote_comm(guid, rej.local_comm_id).ok_or(MadDrop::UnknownId)?;
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        // A peer that has received our communication ID would have used it.
        if !conn.knows(addr.src) || !conn.state.is_half_open() {
            return Err(MadDrop::Forged);
        }
        Ok(id)
    }
}
