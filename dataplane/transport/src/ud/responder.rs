//! Responder: each datagram with the right Q_Key fills a receive WQE.
//!
//! What holds: no datagram takes the QP out of its state, since anybody who has the Q_Key may send
//! one.
//!
//! ```text
//!   receive WQE   | 20 bytes of zeros | IPv4 header |  payload …      (or 40 bytes of IPv6 header)
//!                 '------- GRH area of 40 bytes ----'
//! ```
//!
//! Not here: which QPs a multicast datagram goes to (the surroundings).

use uroce_wire::{Header, Qpn};

use crate::attr::Attributes;
use crate::context::Context;
use crate::counter::Counter;
use crate::cqe::{Cqe, Grh, WcOpcode, WcStatus};
use crate::drop_reason::DropReason;
use crate::env::{Env, Found, MemoryFault, Output};
use crate::inbound::fits_position;
use crate::qp::Inbound;
use crate::queue::QpCaps;
use crate::recv_queue::RecvQueue;

/// Bytes in front of each message.
const GRH_LEN: u32 = 40;

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
}

impl Responder {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> Responder {
        Responder { rq: RecvQueue::new(caps, uses_srq) }
    }

    /// Entering RTR: a datagram has no predecessor, so nothing begins.
    pub(crate) fn start(&mut self, _attr: &Attributes) {}

    /// Forgets everything, without completions.
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
    }

    /// Completes everything flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.rq.flush(qpn, out);
    }

    /// Takes a datagram.
    pub(crate) fn handle_datagram(
        &mut self,
        context: &Context<'_>,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let packet = &inbound.packet;
        //= check E13 — a Q_Key that does not match is dropped and counted
        //= check L5 — on each QP of a multicast group by itself
        if packet.ext.deth.qkey != context.attr.qkey {
            return Err(DropReason::BadQkey);
        }
        if !fits_position(packet, context.attr.path_mtu) {
            return Err(DropReason::Malformed);
        }
        //= check L3 — 40 bytes of GRH area, then the payload; both count
        let byte_len = GRH_LEN + packet.payload.len() as u32;
        match self.rq.ensure_room(byte_len, env) {
            Found::Receive => {}
            //= check L4 — no receive WQE: dropped in silence and counted
            Found::Nothing => {
                env.count(Counter::OutOfBuffer);
                return Err(DropReason::NoReceiveWqe);
            }
            //= check L4 — one that is too small: as well, and the receive WQE stays
            Found::TooSmall => {
                env.count(Counter::RespLocalLengthError);
                return Err(DropReason::ReceiveTooSmall);
            }
        }
        match self.fill(context, inbound, env) {
            Ok(()) => self.rq.complete_front(cqe(context, inbound, byte_len), env),
            // The WQE's memory is the fault of this end, and ends that WQE alone.
            Err(_) => self.rq.fail_front(context.by.qpn, WcStatus::LocProtErr, env),
        }
        Ok(())
    }

    /// Writes a datagram to the oldest receive WQE.
    fn fill(
        &self,
        context: &Context<'_>,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<(), MemoryFault> {
        let by = context.recv_by();
        self.rq.scatter(0, &grh(inbound.l3), by, env)?;
        self.rq.scatter(GRH_LEN, inbound.packet.payload, by, env)
    }
}

/// The completion of a datagram that a receive WQE has taken.
fn cqe(context: &Context<'_>, inbound: &Inbound<'_>, byte_len: u32) -> Cqe {
    let packet = &inbound.packet;
    Cqe {
        byte_len,
        imm: packet.op.has(Header::ImmDt).then_some(packet.ext.imm),
        solicited: packet.bth.solicited,
        src_qpn: packet.ext.deth.src_qpn,
        grh: Some(if is_ipv4(inbound.l3) { Grh::Ipv4 } else { Grh::Ipv6 }),
        ..Cqe::new(0, WcStatus::Success, WcOpcode::Recv, context.by.qpn)
    }
}

fn is_ipv4(l3: &[u8]) -> bool {
    l3.first().is_some_and(|byte| byte >> 4 == 4)
}

/// The GRH area of a packet that begins with an IP header.
fn grh(l3: &[u8]) -> [u8; GRH_LEN as usize] {
    const IPV4_LEN: usize = 20;
    let mut area = [0; GRH_LEN as usize];
    let place = if is_ipv4(l3) { &mut area[GRH_LEN as usize - IPV4_LEN..] } else { &mut area[..] };
    let len = place.len().min(l3.len());
    place[..len].copy_from_slice(&l3[..len]);
    area
}
