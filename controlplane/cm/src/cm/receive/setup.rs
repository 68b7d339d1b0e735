//! Handlers of REP, RTU, MRA and REJ.

use uroce_transport::Instant;
use uroce_wire::Qpn;
use uroce_wire::cm::{
    CaGuid, MessageMraed, MessageRejected, Mra, PrivateData, Rej, RejectReason, Rep, Rtu,
};

use super::Cm;
use crate::agreement::split_answer;
use crate::cm::clamped;
use crate::cm::common::Common;
use crate::cm::connect::{is_connectable, is_rd_qpn};
use crate::conn::{Conn, End, Kind, Repeated};
use crate::state::{Event, LapEvent, State};
use crate::{CloseReason, CmEvent, ConnId, MadAddr, MadDrop, RdEnd};

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
                self.common.refuse(addr, transaction, ids, message, reason, &[]);
                return Err(MadDrop::UnknownId);
            }
            Err(reason) => return Err(reason),
        };
        let (state, peer) = (conn.state, conn.addr.dst);
        if state.after(Event::RecvRep).is_none() {
            let verdict = self.with(id, |conn, common| conn.on_copied_rep(common));
            return Err(verdict.unwrap_or(MadDrop::UnknownId));
        }
        let end = self.check_rep(conn, rep)?;
        if let Some(old) = end.and_then(|end| self.stale(rep.local_ca_guid, end, peer)) {
            self.with(old, |conn, common| conn.tear_down(now, common));
            self.with(id, |conn, common| conn.refuse_stale_rep(now, rep, common));
            return Err(MadDrop::Refused);
        }
        let step = |conn: &mut Conn, common: &mut Common| conn.on_rep(transaction, rep, common);
        self.with(id, step).unwrap_or(Err(MadDrop::UnknownId))
    }

    /// Checks the numbers in a REP. Returns the end of the peer that is in this connection only.
    fn check_rep(&self, conn: &Conn, rep: &Rep) -> Result<Option<End>, MadDrop> {
        let (qpn, rd) = conn.answered(rep);
        let is_possible = match rd {
            Some(end) => is_rd_qpn(qpn) && is_connectable(end.eecn),
            None => is_connectable(qpn),
        };
        if !is_possible {
            return Err(MadDrop::Malformed);
        }
        //= check R41 — the answer to a REQ for a channel names the EE context at its other end
        let channel = conn.used_channel().and_then(|eecn| self.channel(eecn));
        let peer = channel.and_then(|conn| Some((conn.remote_guid, conn.remote_rd?.eecn)));
        let named = rd.map(|end| (rep.local_ca_guid, end.eecn));
        if channel.is_some() && peer != named {
            return Err(MadDrop::Forged);
        }
        Ok(conn.kind.end(qpn, rd))
    }

    pub(super) fn on_rtu(&mut self, addr: &MadAddr, rtu: &Rtu) -> Result<(), MadDrop> {
        let (local, remote) = (rtu.remote_comm_id, rtu.local_comm_id);
        self.with_named(addr, local, remote, |conn, common| conn.on_rtu(rtu, common))
    }

    pub(super) fn on_mra(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        mra: &Mra,
    ) -> Result<(), MadDrop> {
        let (local, remote) = (mra.remote_comm_id, mra.local_comm_id);
        self.with_named(addr, local, remote, |conn, common| match mra.message {
            MessageMraed::Lap => conn.on_lap_mra(now, mra, common),
            _ => conn.on_mra(now, mra, common),
        })
    }

    pub(super) fn on_rej(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        rej: &Rej,
    ) -> Result<(), MadDrop> {
        let id = self.rejected(addr, rej)?;
        let step = |conn: &mut Conn, common: &mut Common| conn.on_rej(now, rej, common);
        self.with(id, step).unwrap_or(Err(MadDrop::UnknownId))
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

impl Conn {
    /// Returns the queue pair and the EE context that a REP names.
    fn answered(&self, rep: &Rep) -> (Qpn, Option<RdEnd>) {
        //= check X10 — the target's number comes in the place of an EE context's
        let is_rd = matches!(self.kind, Kind::Rdc | Kind::RdQp);
        (rep.qpn(self.kind == Kind::Xrc), is_rd.then(|| RdEnd::of_rep(rep)))
    }

    fn on_rep(&mut self, transaction: u64, rep: &Rep, common: &mut Common) -> Result<(), MadDrop> {
        self.state = self.state.after(Event::RecvRep).ok_or(MadDrop::Unexpected)?;
        self.remote_comm = Some(rep.local_comm_id);
        self.remote_guid = rep.local_ca_guid;
        let (qpn, rd) = self.answered(rep);
        (self.remote_qpn, self.remote_rd) = (Some(qpn), rd);
        self.asked = transaction;
        (self.repeated, self.deadline) = (None, None);
        //= check A28 — an answer counts only if it answers an offer of this connection
        let (agreed, private_data) = split_answer(self.offered, rep.private_data);
        self.agreed = agreed;
        self.tell(CmEvent::Accepted(Box::new(Rep { private_data, ..*rep })), common);
        Ok(())
    }

    //= check J2 — a copy of a REP gets the RTU, or MRA, that the first one got.
    fn on_copied_rep(&self, common: &mut Common) -> MadDrop {
        match self.state {
            State::Established | State::MraRepSent => self.answer_again(common),
            State::RepRcvd => MadDrop::Duplicate,
            _ => MadDrop::Unexpected,
        }
    }

    /// Rejects a REP that names a queue pair of another connection with us. That connection ends,
    /// too.
    fn refuse_stale_rep(&mut self, now: Instant, rep: &Rep, common: &mut Common) {
        self.remote_comm = Some(rep.local_comm_id);
        self.send_rej(RejectReason::STALE_CONNECTION, &[], PrivateData::default(), common);
        self.close(now, Event::SendRej, CloseReason::Stale, common);
    }

    fn on_rtu(&mut self, rtu: &Rtu, common: &mut Common) -> Result<(), MadDrop> {
        let Some(next) = self.state.after(Event::RecvRtu) else {
            let is_copy = self.state == State::Established;
            return Err(if is_copy { MadDrop::Duplicate } else { MadDrop::Unexpected });
        };
        self.established(next);
        self.tell(CmEvent::Established(Some(Box::new(rtu.private_data))), common);
        Ok(())
    }

    fn on_mra(&mut self, now: Instant, mra: &Mra, common: &mut Common) -> Result<(), MadDrop> {
        let expected = match self.state {
            State::ReqSent | State::MraReqRcvd => MessageMraed::Req,
            _ => MessageMraed::Rep,
        };
        let next = self.state.after(Event::RecvMra).filter(|_| mra.message == expected);
        let next = next.ok_or(MadDrop::Unexpected)?;
        let is_first = self.state != next;
        let patience = clamped(mra.service_timeout, common.config.limits.service_timeout);
        //= check J7 — an MRA restarts the wait with the time it asks for; a second MRA costs one
        //= check J7 — repetition, so that no peer can make us wait for ever.
        grant(self.repeated.as_mut(), is_first)?;
        self.state = next;
        self.deadline = Some(now + patience.duration() + self.interval);
        if is_first {
            self.tell(CmEvent::Patience(Box::new(*mra)), common);
        }
        Ok(())
    }

    fn on_lap_mra(&mut self, now: Instant, mra: &Mra, common: &mut Common) -> Result<(), MadDrop> {
        let next = self.lap_out.after(LapEvent::RecvMra).ok_or(MadDrop::Unexpected)?;
        let is_first = self.lap_out != next;
        let patience = clamped(mra.service_timeout, common.config.limits.service_timeout);
        grant(self.lap.as_mut().map(|(repeated, _)| repeated), is_first)?;
        self.lap_out = next;
        self.lap_deadline = Some(now + patience.duration() + self.interval);
        if is_first {
            self.tell(CmEvent::Patience(Box::new(*mra)), common);
        }
        Ok(())
    }

    fn on_rej(&mut self, now: Instant, rej: &Rej, common: &mut Common) -> Result<(), MadDrop> {
        let event = match rej.reason {
            RejectReason::STALE_CONNECTION => Event::RecvRejStale,
            _ => Event::RecvRej,
        };
        self.state.after(event).ok_or(MadDrop::Unexpected)?;
        // In peer-to-peer mode the other side may not have sent its REQ yet; we repeat ours until
        // then.
        let not_yet = rej.reason == RejectReason::INVALID_SERVICE_ID;
        if self.peer_to_peer && self.state == State::ReqSent && not_yet {
            return Err(MadDrop::Unexpected);
        }
        self.close(now, event, CloseReason::Rejected(Box::new(*rej)), common);
        Ok(())
    }
}

/// Grants the time that an MRA asks for. All but the first MRA cost one repetition.
fn grant(repeated: Option<&mut Repeated>, is_first: bool) -> Result<(), MadDrop> {
    let repeated = repeated.ok_or(MadDrop::Duplicate)?;
    if !is_first {
        repeated.left = repeated.left.checked_sub(1).ok_or(MadDrop::Duplicate)?;
    }
    Ok(())
}
