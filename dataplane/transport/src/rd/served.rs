//! The environment of the roles of RC in an EEC: packets get RD's opcodes and headers, receives
//! come from the RD QP that a request names, and completions are that RD QP's.

use uroce_wire::{Deth, OpCode, OpCodeRange, Qpn};

use crate::counter::Counter;
use crate::cqe::{Cqe, Extra, WcStatus};
use crate::env::{
    AsyncEvent, Env, Found, Outbound, Output, PacketSink, SharedReceives, Side, TransmitError,
};
use crate::wqe::{RecvWr, Sge};

/// An environment for one input of an EEC.
pub(super) struct Served<'e, E> {
    env: &'e mut E,
    /// The EEC.
    eec: Qpn,
    /// RD QP of the peer that packets are for.
    dest: Qpn,
    /// Header of requests; responses have none.
    deth: Option<Deth>,
    is_resync: bool,
    /// RD QP that receives come from.
    member: Qpn,
    /// The request in the EEC's send queue has completed.
    pub(super) done: Option<WcStatus>,
    /// A receive was taken from `member`.
    pub(super) has_borrowed: bool,
    /// Event of the RD QP that has received a request.
    pub(super) event: Option<AsyncEvent>,
    /// Length of the packet that was sent last.
    pub(super) sent_len: u32,
}

impl<'e, E> Served<'e, E> {
    /// For responses to the RD QP `dest` of the peer.
    pub(super) fn answers(env: &'e mut E, eec: Qpn, dest: Qpn) -> Served<'e, E> {
        Served {
            env,
            eec,
            dest,
            deth: None,
            is_resync: false,
            member: Qpn::default(),
            done: None,
            has_borrowed: false,
            event: None,
            sent_len: 0,
        }
    }

    /// For requests with this header to the RD QP `dest` of the peer.
    pub(super) fn requests(
        env: &'e mut E,
        eec: Qpn,
        dest: Qpn,
        deth: Deth,
        is_resync: bool,
    ) -> Served<'e, E> {
        Served { deth: Some(deth), is_resync, ..Served::answers(env, eec, dest) }
    }

    /// For requests from the RD QP `source` of the peer to the RD QP `member`.
    pub(super) fn inbound(env: &'e mut E, eec: Qpn, source: Qpn, member: Qpn) -> Served<'e, E> {
        Served { member, ..Served::answers(env, eec, source) }
    }
}

impl<E: Env> Env for Served<'_, E> {
    type Memory = E::Memory;

    type Other<'o> = E::Other<'o>;

    const HAS_DOMAIN: bool = true;

    fn memory(&mut self) -> &mut E::Memory {
        self.env.memory()
    }
}

impl<E: Env> PacketSink for Served<'_, E> {
    /// The packet has an opcode of RC, and the number of the peer's EEC as its destination.
    //= check R1 — every packet names the peer's EEC in RDETH and an RD QP in BTH
    //= check R2 — requests have DETH too, and responses do not
    fn transmit(&mut self, packet: &Outbound<'_>) -> Result<u32, TransmitError> {
        let mut packet = packet.clone();
        let bth = &mut packet.bth;
        bth.opcode = match self.is_resync {
            true => OpCode::RD_RESYNC,
            false => bth.opcode.in_range(OpCodeRange::RD),
        };
        packet.ext.rdeth.eecn = bth.dest_qpn.value();
        packet.ext.deth = self.deth.unwrap_or_default();
        bth.dest_qpn = self.dest;
        self.sent_len = self.env.transmit(&packet)?;
        Ok(self.sent_len)
    }
}

impl<E: Env> SharedReceives for Served<'_, E> {
    fn take_receive(&mut self, _room: u32, place: impl FnOnce(&RecvWr, &[Sge])) -> Found {
        let eec = self.eec;
        let found = self.env.with_other(self.member, |qp, env| qp.lend_receive(eec, env, place));
        let found = found.unwrap_or(Found::Nothing);
        self.has_borrowed |= found == Found::Receive;
        found
    }

    fn receives_waiting(&self) -> u32 {
        0
    }
}

impl<E: Env> Output for Served<'_, E> {
    fn complete(&mut self, side: Side, cqe: Cqe) {
        if side == Side::Send {
            self.done = Some(cqe.status);
            return;
        }
        //= check R19 — a receive reports the RD QP and the EEC that its message came from
        let cqe = Cqe { src_qpn: self.dest, extra: Extra::Eec(self.eec), ..cqe };
        let eec = self.eec;
        self.env.with_other(self.member, |qp, env| qp.complete_lent(eec, cqe, env));
    }

    fn count(&mut self, counter: Counter) {
        let counter = match counter {
            // The RD QP counts the completions of its requests and receives.
            Counter::SendMessages | Counter::ReqCqeError | Counter::ReqCqeFlushError => return,
            Counter::RecvMessages | Counter::RespCqeError => return,
            // The responder counts violations of any domain by the name of XRC's.
            Counter::RespXrcViolations => Counter::RespRdViolations,
            Counter::ReqRemoteXrcViolation => Counter::ReqRemoteRdViolation,
            counter => counter,
        };
        self.env.count(counter);
    }

    /// The responder reports a fault of the request, which is one of the RD QP that it names.
    fn event(&mut self, event: AsyncEvent) {
        self.event = Some(event);
    }

    fn round_trip(&mut self, nanos: u32) {
        self.env.round_trip(nanos);
    }
}
