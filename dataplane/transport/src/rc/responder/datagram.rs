//! What an EEC needs of the responder ([`crate::rd`]): requests that no RD QP takes, refusals that
//! do not end the connection, and RESYNC.

use uroce_wire::{NakCode, Packet, Psn, Syndrome};

use super::{Answer, Awaits, Responder, Verdict};
use crate::context::{Context, Outcome};
use crate::counter::Counter;
use crate::drop_reason::DropReason;
use crate::env::{Env, Output};
use crate::inbound::Message;
use crate::inbound::asks;
use crate::rc::resources::PendingAnswer;

/// A stored READ or ATOMIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeated {
    /// Place of the request.
    pub(crate) place: u8,
    /// Nothing was executed after it.
    pub(crate) is_newest: bool,
}

/// An answer packet that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) psn: Psn,
    /// It reads memory.
    pub(crate) reads: bool,
    /// The request that it answers.
    pub(crate) repeated: Repeated,
}

impl Responder {
    /// Handles a request that names no RD QP that takes it. PSN and order of opcodes are checked as
    /// those of any other.
    //= check R12 — refused as an invalid RD request
    #[cold]
    pub(crate) fn refuse_datagram(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        let checked = self.check_psn(context, packet, env);
        let checked = checked.and_then(|()| self.check_op_sequence(packet));
        let refused = |()| Verdict::Nak(NakCode::InvalidRdRequest);
        self.pass(checked.map_or_else(|verdict| verdict, refused), context, env)
    }

    /// The refusal that the responder has given, or is about to give, after which it takes no more
    /// requests: PSN and code. `None` if there is none that is still to be sent.
    pub(crate) fn refusal(&self) -> Option<(Psn, NakCode)> {
        match self.answer {
            Some(Answer { psn, syndrome: Syndrome::Nak(code) }) if self.is_refusing => {
                Some((psn, code))
            }
            _ => None,
        }
    }

    /// Returns whether the packet follows what has come of the message in progress.
    pub(crate) fn fits_now(&self, packet: &Packet<'_>) -> bool {
        self.message.is_followed_by(packet.op)
    }

    /// Returns whether no more requests are taken, because one was refused.
    pub(crate) fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// Makes a refusal due, once more or for a repeated request. No effect if a NAK is still to be
    /// sent.
    pub(crate) fn refuse_again(&mut self, psn: Psn, code: NakCode) {
        if self.owes_nak() {
            return;
        }
        self.answer = Some(Answer { psn, syndrome: Syndrome::Nak(code) });
    }

    /// Makes an ACK of the newest request due.
    pub(crate) fn acknowledge_again(&mut self) {
        self.answer_with(Syndrome::UNLIMITED);
    }

    /// Forgets the message in progress, what is to be answered and what was refused: the next
    /// request has the PSN after `psn`, the RESYNC's, which is acknowledged.
    pub(crate) fn resync(&mut self, psn: Psn) {
        self.message = Message::None;
        self.awaits = Awaits::Nothing;
        self.resources.clear();
        self.is_refusing = false;
        self.expected_psn = psn.next();
        self.answer = Some(Answer { psn, syndrome: Syndrome::UNLIMITED });
    }

    /// The stored request that an older packet for a READ or ATOMIC repeats, if there is one.
    pub(crate) fn repeated(&self, packet: &Packet<'_>, mtu: u32) -> Option<Repeated> {
        let place = self.resources.find(packet.bth.psn, mtu).filter(|_| asks(packet))?;
        Some(self.repeated_at(place, mtu))
    }

    fn repeated_at(&self, place: u8, mtu: u32) -> Repeated {
        let is_newest = self.resources.end_of(place, mtu) == self.expected_psn;
        Repeated { place, is_newest }
    }

    /// Makes a refusal due that does not end the connection. No effect if a NAK is still to be
    /// sent.
    pub(crate) fn deny(&mut self, psn: Psn, code: NakCode, out: &mut impl Output) {
        if self.owes_nak() {
            return;
        }
        match code {
            NakCode::RemoteAccessError => out.count(Counter::RespRemoteAccessErrors),
            // Counted as RD's (`rd::served`).
            NakCode::InvalidRdRequest => out.count(Counter::RespXrcViolations),
            _ => out.count(Counter::RespRemoteInvalidRequests),
        }
        self.refuse_again(psn, code);
    }

    /// The answer packet to a stored request that is sent next, if one is due.
    pub(crate) fn due(&self, mtu: u32) -> Option<Due> {
        let reply = self.resources.next_reply(mtu)?;
        let reads = matches!(reply.asked, PendingAnswer::Read { .. });
        Some(Due { psn: reply.psn, reads, repeated: self.repeated_at(reply.place(), mtu) })
    }

    /// Gives up the answer that is sent next. If the peer has never had all of it, the request is
    /// refused: returns the PSN of the refusal.
    pub(crate) fn revoke_reply(&mut self, mtu: u32, out: &mut impl Output) -> Option<Psn> {
        let reply = self.resources.next_reply(mtu)?;
        if self.resources.give_up(&reply) {
            return None;
        }
        self.resources.clear();
        self.refuse(reply.psn, NakCode::InvalidRdRequest, out);
        Some(reply.psn)
    }
}
