//! A request that passed all checks takes effect.
//!
//! What holds: `expected_psn` and `msn` move here only, after the memory effect has succeeded.

use uroce_wire::{Header, NakCode, Operation, Packet, Psn, Syndrome, Va};

use super::{Answer, Message, Responder, Verdict, takes_receive_wqe};
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::env::{AtomicOp, Env, Key, Memory, Region};
use crate::queue::scatter;
use crate::rc::Context;
use crate::rc::packets;
use crate::rc::resources::Asked;

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
            _ => self.execute_atomic(context, packet, env),
        }
    }

    fn execute_send(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let received = match self.message {
            Message::Send { received } => received,
            _ => 0,
        };
        self.scatter(received, context, packet.payload, env)?;
        let received = received + packet.payload.len() as u32;
        self.message = Message::Send { received };
        self.expect(self.expected_psn.next());
        if packet.op.position.is_last() {
            self.end_message();
            self.complete_receive(context, packet, WcOpcode::Recv, received, env);
        }
        Ok(())
    }

    fn execute_write(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let reth = &packet.ext.reth;
        let (va, rkey, total, left) = match self.message {
            Message::Write { va, rkey, total, left } => (va, rkey, total, left),
            _ => (reth.va, reth.rkey, reth.dma_len, reth.dma_len),
        };
        let len = packet.payload.len() as u32;
        if len > 0 {
            env.write(context.by, Region { key: Key::Remote(rkey), va, len }, packet.payload)
                .map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))?;
        }
        let va = Va(va.0.wrapping_add(u64::from(len)));
        self.message = Message::Write { va, rkey, total, left: left - len };
        self.expect(self.expected_psn.next());
        if packet.op.position.is_last() {
            env.count(Counter::WriteRequests);
            self.end_message();
            if takes_receive_wqe(packet) {
                self.complete_receive(context, packet, WcOpcode::RecvRdmaWithImm, total, env);
            }
        }
        Ok(())
    }

    /// Keeps the READ; its data is read from memory as the answer is sent.
    fn execute_read(&mut self, context: &Context<'_>, packet: &Packet<'_>) {
        let reth = &packet.ext.reth;
        let psns = packets(reth.dma_len, context.mtu());
        let asked = Asked::Read { va: reth.va, rkey: reth.rkey, len: reth.dma_len };
        self.resources.push(asked, self.expected_psn, psns);
        self.supersede_ack();
        //= check A18 — a READ counts as completed when it is accepted
        self.end_message();
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
            .atomic(context.by, atomic.rkey, atomic.va, op)
            .map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))?;
        env.count(Counter::AtomicRequests);
        self.resources.push(Asked::Atomic { original }, self.expected_psn, 1);
        self.supersede_ack();
        self.end_message();
        self.expect(self.expected_psn.next());
        Ok(())
    }

    /// Writes SEND data to the oldest receive WQE, from byte `offset` of its scatter list on.
    fn scatter(
        &self,
        offset: u32,
        context: &Context<'_>,
        data: &[u8],
        memory: &mut impl Memory,
    ) -> Result<(), Verdict> {
        let Some(wqe) = self.rq.wqes.front() else { return Ok(()) };
        //= check F11 — a receive WQE without a right to its memory is our operational error
        scatter(&self.rq.sges, wqe.sge_at, offset, data, context.by, memory)
            .map_err(|_| Verdict::NakAndFail(NakCode::RemoteOperationalError, WcStatus::LocProtErr))
    }

    fn complete_receive(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        opcode: WcOpcode,
        byte_len: u32,
        env: &mut impl Env,
    ) {
        let cqe = Cqe {
            byte_len,
            imm: packet.op.has(Header::ImmDt).then_some(packet.ext.imm),
            solicited: packet.bth.solicited,
            // The number is the WQE's, filled in where that is taken off the queue.
            ..Cqe::new(0, WcStatus::Success, opcode, context.by.qpn)
        };
        self.complete_front(cqe, env);
    }

    fn end_message(&mut self) {
        self.message = Message::None;
        self.msn = self.msn.next();
    }

    /// Moves on to `psn`. A NAK that has not gone out yet is overtaken. A sequence NAK moves along:
    /// what followed the gap was dropped, so the peer has to go on from here. An RNR NAK becomes an
    /// ACK: the refused request has come again and found its receive WQE.
    fn expect(&mut self, psn: Psn) {
        self.expected_psn = psn;
        let Some(answer) = &mut self.answer else { return };
        match answer.syndrome {
            Syndrome::Nak(NakCode::PsnSequenceError) => {
                answer.psn = psn;
                self.awaits_expected = true;
            }
            Syndrome::RnrNak { .. } => {
                *answer = Answer { psn: psn.minus(1), syndrome: Syndrome::UNLIMITED };
            }
            _ => {}
        }
    }

    /// An ACK that is still owed is covered by the READ or ATOMIC response that comes now.
    fn supersede_ack(&mut self) {
        if self.answer.is_some_and(|answer| matches!(answer.syndrome, Syndrome::Ack { .. })) {
            self.answer = None;
        }
    }
}
