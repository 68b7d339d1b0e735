//! Execution of a request that has passed all checks.
//!
//! Read first: IBA 9.7.4 and 9.7.5.
//!
//! Invariants
//! - Only this file moves `expected_psn` and `msn`, and only after the memory access has succeeded.

use uroce_wire::{Header, NakCode, Operation, Packet, Psn, Reth, Syndrome};

use super::{Answer, Awaits, Responder, Verdict};
use crate::context::{Context, packets};
use crate::counter::Counter;
use crate::cqe::{WcOpcode, WcStatus};
use crate::env::{AtomicOp, Env, Memory};
use crate::inbound::{Message, flush_of, needs_receive};
use crate::rc::resources::{PendingAnswer, Placed};

impl Responder {
    pub(super) fn execute(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        match packet.op.operation {
            Operation::Send => self.execute_send(context, packet, env),
            Operation::Write => self.execute_write(context, packet, env),
            Operation::ReadRequest => {
                self.execute_read(context, packet);
                env.count(Counter::ReadRequests);
                Ok(())
            }
            Operation::AtomicWrite => self.execute_atomic_write(context, packet, env),
            Operation::Flush => self.execute_flush(context, packet, env),
            _ => self.execute_atomic(context, packet, env),
        }
    }

    fn execute_send(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let received = self.message.received();
        //= check F11 — a receive WQE without access to its memory is a remote operational error
        self.rq.scatter(received, packet.payload, context.recv_by(), env.memory()).map_err(
            |_| Verdict::NakAndFail(NakCode::RemoteOperationalError, WcStatus::LocProtErr),
        )?;
        let received = received + packet.payload.len() as u32;
        if packet.op.position.is_last() {
            //= check F9 — a key that cannot be invalidated fails this end; nothing is invalidated
            if packet.op.has(Header::Ieth) {
                env.memory()
                    .invalidate(context.by, packet.ext.ieth.rkey)
                    .map_err(|_| Verdict::Fail(WcStatus::RemInvReqErr))?;
            }
            self.expect(self.expected_psn.next());
            self.end_message();
            self.rq.complete_message(context.by.qpn, packet, WcOpcode::Recv, received, env);
        } else {
            self.message = Message::Send { received };
            self.expect(self.expected_psn.next());
        }
        Ok(())
    }

    fn execute_write(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        //= check F16 — memory that has gone away is refused like a wrong key
        let done = self.message.write(packet, context.by, env.memory());
        let done = done.map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))?;
        self.expect(self.expected_psn.next());
        if let Some(total) = done {
            env.count(Counter::WriteRequests);
            self.end_message();
            let total = if seeded!(WriteImmLength) { packet.payload.len() as u32 } else { total };
            if needs_receive(packet) {
                self.rq.complete_message(
                    context.by.qpn,
                    packet,
                    WcOpcode::RecvRdmaWithImm,
                    total,
                    env,
                );
            }
        }
        Ok(())
    }

    /// Stores the READ; its data is read from memory when the answer is sent.
    fn execute_read(&mut self, context: &Context<'_>, packet: &Packet<'_>) {
        let reth = &packet.ext.reth;
        let psns = packets(reth.dma_len, context.mtu());
        let asked = PendingAnswer::Read { va: reth.va, rkey: reth.rkey, len: reth.dma_len };
        self.resources.push(asked, self.expected_psn);
        self.supersede_ack();
        //= check A18 — a READ counts as completed when it is accepted
        self.end_message();
        if seeded!(MsnNotForReads) {
            self.msn = uroce_wire::Msn::new(self.msn.value() + 0xff_ffff);
        }
        self.expect(self.expected_psn.plus(psns));
    }

    fn execute_atomic(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let atomic = &packet.ext.atomic;
        let op = match packet.op.operation {
            Operation::CompareSwap => {
                AtomicOp::CompareSwap { compare: atomic.compare, swap: atomic.swap_add }
            }
            _ => AtomicOp::FetchAdd { add: atomic.swap_add },
        };
        let original = env
            .memory()
            .atomic(context.by, atomic.rkey, atomic.va, op)
            .map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))?;
        env.count(Counter::AtomicRequests);
        self.resources.push(PendingAnswer::Atomic { original }, self.expected_psn);
        self.supersede_ack();
        self.end_message();
        self.expect(self.expected_psn.next());
        Ok(())
    }

    /// Writes the eight bytes of an ATOMIC WRITE.
    #[cold]
    fn execute_atomic_write(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let Reth { va, rkey, .. } = packet.ext.reth;
        let bytes = packet.payload.try_into();
        let bytes = bytes.map_err(|_| Verdict::Nak(NakCode::InvalidRequest))?;
        let done = env.memory().write_word(context.by, rkey, va, bytes);
        done.map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))?;
        env.count(Counter::AtomicWriteRequests);
        self.place(Placed::AtomicWrite);
        Ok(())
    }

    /// Has the memory carry out a FLUSH.
    //= check P12 — requests are executed in order, so that all earlier writes are done
    #[cold]
    fn execute_flush(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let flush = flush_of(packet).ok_or(Verdict::Nak(NakCode::InvalidRequest))?;
        //= check P6 — a region that does not grant it, or a range outside, is an access error
        if !seeded!(FlushForgotten) {
            let done = env.memory().flush(context.by, &flush);
            done.map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))?;
        }
        env.count(Counter::FlushRequests);
        self.place(Placed::Flush);
        Ok(())
    }

    /// Makes the empty response to an ATOMIC WRITE or FLUSH due.
    fn place(&mut self, placed: Placed) {
        if seeded!(PlacementAcked) {
            self.end_message();
            self.expect(self.expected_psn.next());
            return self.answer_with(Syndrome::UNLIMITED);
        }
        self.resources.push_placed(placed, self.expected_psn);
        self.supersede_ack();
        self.end_message();
        self.expect(self.expected_psn.next());
    }

    fn end_message(&mut self) {
        self.message = Message::None;
        self.msn = self.msn.next();
    }

    /// Moves the expected PSN to `psn` and updates a NAK that has not been sent yet. A sequence NAK
    /// moves along with it, because packets after the gap were dropped and the peer must continue
    /// from here. Once all of them have come again, the NAK becomes an ACK. An RNR NAK becomes an
    /// ACK too, because the refused request has found a receive WQE. Any other NAK here refuses to
    /// answer an older READ again (RD); with this request, the peer shows that it needs no answer.
    #[inline]
    fn expect(&mut self, psn: Psn) {
        if self.held.is_some() {
            self.pass_held(psn);
        }
        self.expected_psn = psn;
        let Some(answer) = &mut self.answer else { return };
        match answer.syndrome {
            Syndrome::Nak(NakCode::PsnSequenceError) if psn.is_before(self.gap_end) => {
                answer.psn = psn;
                self.awaits = Awaits::Missing;
            }
            //= check A16 — the acknowledgement that it requested is still sent
            Syndrome::Nak(NakCode::PsnSequenceError) | Syndrome::RnrNak { .. } => {
                *answer = Answer { psn: psn.minus(1), syndrome: Syndrome::UNLIMITED };
            }
            //= check R24 — it does not keep back the acknowledgement of this request
            Syndrome::Nak(_) => self.answer = None,
            Syndrome::Ack { .. } | Syndrome::Reserved(_) => {}
        }
    }

    /// Drops an ACK that is still due; the READ or ATOMIC response that now becomes due covers it.
    fn supersede_ack(&mut self) {
        if self.answer.is_some_and(|answer| matches!(answer.syndrome, Syndrome::Ack { .. })) {
            self.answer = None;
        }
    }
}
