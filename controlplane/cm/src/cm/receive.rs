//! Received messages: parsed, matched to their connection, checked against the state table, then
//! applied or dropped.
//!
//! Read first: IBA 12.6 for the messages, IBA 12.9 for the states.

mod established;
mod request;
mod setup;
mod sidr;

use uroce_transport::Instant;
use uroce_wire::cm::{
    Attribute, CLASS_VERSION, CmParseError, CommId, Message, MessageRejected, RejectReason,
    SidrRep, SidrReq, SidrStatus,
};
use uroce_wire::mad::MadHeader;

use super::Cm;
use super::common::Common;
use crate::conn::Conn;
use crate::{ConnId, MadAddr, MadDrop};

impl Cm {
    /// Handles a MAD received by QP 1, from `addr.src` to `addr.dst` on port `addr.port`. Any bytes
    /// are allowed.
    ///
    /// # Errors
    /// The reason for which the MAD had no effect on a connection. The reason is counted.
    pub fn handle_mad(&mut self, now: Instant, addr: &MadAddr, mad: &[u8]) -> Result<(), MadDrop> {
        let taken = self.take(now, addr, mad);
        if let Err(reason) = taken {
            self.common.counters.count_dropped(reason);
        }
        taken
    }

    fn take(&mut self, now: Instant, addr: &MadAddr, mad: &[u8]) -> Result<(), MadDrop> {
        let (header, message) = match Message::parse(mad) {
            Ok(parsed) => parsed,
            Err(error) => {
                if error == CmParseError::ClassVersion {
                    self.refuse_version(addr, mad);
                }
                return Err(error.into());
            }
        };
        self.common.counters.count_received(message.attribute());
        let transaction = header.transaction_id;
        match message {
            Message::Req(req) => self.on_req(now, addr, transaction, &req),
            Message::SidrReq(req) => self.on_sidr_req(now, addr, transaction, &req),
            Message::SidrRep(rep) => self.on_sidr_rep(addr, &rep),
            Message::Rep(rep) => self.on_rep(now, addr, transaction, &rep),
            Message::Rej(rej) => self.on_rej(now, addr, &rej),
            Message::Mra(mra) => self.on_mra(now, addr, &mra),
            Message::Rtu(rtu) => self.on_rtu(addr, &rtu),
            Message::Dreq(dreq) => self.on_dreq(now, addr, transaction, &dreq),
            Message::Drep(drep) => self.on_drep(now, addr, &drep),
            Message::Lap(lap) => self.on_lap(addr, transaction, &lap),
            Message::Apr(apr) => self.on_apr(addr, transaction, &apr),
        }
    }

    /// Finds the connection that a message names. The message must come from one of the
    /// connection's GIDs and carry the peer's communication ID, if known.
    fn named(
        &self,
        addr: &MadAddr,
        local: CommId,
        remote: CommId,
    ) -> Result<(ConnId, &Conn), MadDrop> {
        //= check J8 — a sender without both IDs, or at another address, is not the peer.
        let id = self.table.by_comm(local).ok_or(MadDrop::UnknownId)?;
        let conn = self.table.get(id).ok_or(MadDrop::UnknownId)?;
        // What uses a channel is as far as the channel on the way from one path to another.
        let channel = conn.used_channel().and_then(|eecn| self.channel(eecn));
        let is_known = conn.knows(addr.src) || channel.is_some_and(|conn| conn.knows(addr.src));
        let is_peer = is_known && conn.remote_comm.is_none_or(|comm| comm == remote);
        if is_peer { Ok((id, conn)) } else { Err(MadDrop::Forged) }
    }

    /// Runs the step of a message on the connection that it names.
    fn with_named(
        &mut self,
        addr: &MadAddr,
        local: CommId,
        remote: CommId,
        step: impl FnOnce(&mut Conn, &mut Common) -> Result<(), MadDrop>,
    ) -> Result<(), MadDrop> {
        let (id, _) = self.named(addr, local, remote)?;
        self.with(id, step).unwrap_or(Err(MadDrop::UnknownId))
    }

    //= check J11 — a request in another class version is answered with the version we support.
    fn refuse_version(&mut self, addr: &MadAddr, mad: &[u8]) {
        let Some((head, body)) = mad.split_first_chunk() else { return };
        let Ok(body) = body.try_into() else { return };
        let header = MadHeader::parse(head);
        let (transaction, ours) = (header.transaction_id, [CLASS_VERSION]);
        match Attribute::from_id(header.attribute_id) {
            Some(Attribute::Req) => {
                let asker = uroce_wire::cm::Req::parse(body).local_comm_id;
                let (rejected, reason) =
                    (MessageRejected::Req, RejectReason::INVALID_CLASS_VERSION);
                self.common.refuse(addr, transaction, (CommId(0), asker), rejected, reason, &ours);
            }
            Some(Attribute::SidrReq) => {
                let req = SidrReq::parse(body);
                let mut rep =
                    SidrRep { info_len: 1, ..refusal(&req, SidrStatus::UNSUPPORTED_VERSION) };
                rep.info[0] = CLASS_VERSION;
                self.common.send(addr.reversed(), &Message::SidrRep(rep), transaction);
            }
            _ => {}
        }
    }
}

/// Builds the refusal of a SIDR_REQ.
fn refusal(req: &SidrReq, status: SidrStatus) -> SidrRep {
    let (request_id, service_id) = (req.request_id, req.service_id);
    SidrRep { request_id, service_id, status, ..SidrRep::default() }
}
