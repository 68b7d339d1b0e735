//! Handlers of SIDR_REQ and SIDR_REP.

use uroce_transport::Instant;
use uroce_wire::cm::{CmTimeout, Message, SidrRep, SidrReq, SidrStatus};

use super::{Cm, refusal};
use crate::conn::Conn;
use crate::state::{Event, State};
use crate::{CmEvent, MadAddr, MadDrop, Path, SidrRequest};

impl Cm {
    //= check J12 — a request is answered by its listener's consumer, or at once with the status
    //= check J12 — that says why not; a copy gets the same answer.
    pub(super) fn on_sidr_req(
        &mut self,
        now: Instant,
        addr: &MadAddr,
        transaction: u64,
        req: &SidrReq,
    ) -> Result<(), MadDrop> {
        if let Some(id) = self.table.by_question(addr.src, req.request_id) {
            let verdict = self.with(id, |conn, common| conn.answer_again(common));
            return Err(verdict.unwrap_or(MadDrop::UnknownId));
        }
        let status = match self.table.listeners.get(&req.service_id).copied() {
            None => Some(SidrStatus::UNSUPPORTED),
            Some(listener) if listener.pending >= listener.backlog => Some(SidrStatus::NO_QP),
            Some(_) if !self.has_room_for_stranger(now) => Some(SidrStatus::NO_QP),
            Some(_) => None,
        };
        if let Some(status) = status {
            let rep = Message::SidrRep(refusal(req, status));
            self.common.send(addr.reversed(), &rep, transaction);
            return Err(MadDrop::Refused);
        }
        let way_back = Path {
            port: addr.port,
            local: addr.dst,
            remote: addr.src,
            flow_label: addr.flow_label,
            traffic_class: addr.traffic_class,
            hop_limit: addr.hop_limit,
            sl: addr.sl,
            packet_rate: 0,
            local_ack_timeout: CmTimeout::default(),
        };
        let mut conn = Conn::new(self.comm_id(), req.service_id, way_back);
        conn.state = State::Idle.after(Event::RecvSidrReq).unwrap_or(State::Idle);
        conn.listener = Some(req.service_id);
        conn.remote_comm = Some(req.request_id);
        conn.asked = transaction;
        let id = self.table.insert(conn);
        let request = SidrRequest { addr: *addr, req: *req };
        self.with(id, |conn, common| {
            conn.tell(CmEvent::SidrRequest(Box::new(request)), common);
        });
        Ok(())
    }

    pub(super) fn on_sidr_rep(&mut self, addr: &MadAddr, rep: &SidrRep) -> Result<(), MadDrop> {
        let id = self.table.by_comm(rep.request_id).ok_or(MadDrop::UnknownId)?;
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        if !conn.knows(addr.src) {
            return Err(MadDrop::Forged);
        }
        conn.state.after(Event::RecvSidrRep).ok_or(MadDrop::Unexpected)?;
        self.with(id, |conn, common| {
            conn.tell(CmEvent::SidrReply(Box::new(*rep)), common);
            conn.release(common);
        });
        Ok(())
    }
}
