//! UD responder: each datagram with the right Q_Key fills a receive WQE.
//!
//! Read first: IBA 9.8; A17.4.5.1 for the GRH area.
//!
//! ```text
//!   receive WQE   | 20 bytes of zeros | IPv4 header |  payload …      (or 40 bytes of IPv6 header)
//!                 '------- GRH area of 40 bytes ----'
//! ```
//!
//! Invariants
//! - No datagram changes the QP's state, because any sender with the Q_Key may send one.
//!
//! Not here: selecting the QPs that a multicast datagram goes to (the environment does it).

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

/// Length of the GRH area before each message, in bytes.
const GRH_LEN: u32 = 40;

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
}

impl Responder {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> Responder {
        Responder { rq: RecvQueue::new(caps, uses_srq) }
    }

    /// Starts the responder in RTR. Datagrams have no order, so there is no state to set.
    pub(crate) fn start(&mut self, _attr: &Attributes) {}

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
    }

    /// Completes all receive WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.rq.flush(qpn, out);
    }

    /// Handles a datagram.
    pub(crate) fn handle_datagram(
        &mut self,
        context: &Context<'_>,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        let packet = &inbound.packet;
        //= check E13 — a datagram with another Q_Key is dropped and counted
        //= check L5 — checked at each QP of a multicast group separately
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
            //= check L4 — no receive WQE: dropped silently and counted
            Found::Nothing => {
                env.count(Counter::OutOfBuffer);
                return Err(DropReason::NoReceiveWqe);
            }
            //= check L4 — a receive WQE that is too small: dropped too, and the receive WQE stays
            Found::TooSmall => {
                env.count(Counter::RespLocalLengthError);
                return Err(DropReason::ReceiveTooSmall);
            }
        }
        match self.fill(context, inbound, env) {
            Ok(()) => self.rq.complete_front(cqe(context, inbound, byte_len), env),
            //= check F16 — memory that is gone is a fault of this end, and fails that WQE only
            Err(_) => self.rq.fail_front(context.by.qpn, WcStatus::LocProtErr, env),
        }
        Ok(())
    }

    /// Writes GRH area and payload of a datagram to the oldest receive WQE.
    fn fill(
        &self,
        context: &Context<'_>,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<(), MemoryFault> {
        let by = context.recv_by();
        self.rq.scatter(0, &grh(inbound.l3), by, env.memory())?;
        self.rq.scatter(GRH_LEN, inbound.packet.payload, by, env.memory())
    }
}

/// The completion of a datagram that a receive WQE was filled with.
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

/// The GRH area for a packet that begins with this IP header.
fn grh(l3: &[u8]) -> [u8; GRH_LEN as usize] {
    const IPV4_LEN: usize = 20;
    let mut area = [0; GRH_LEN as usize];
    let place = if is_ipv4(l3) { &mut area[GRH_LEN as usize - IPV4_LEN..] } else { &mut area[..] };
    let len = place.len().min(l3.len());
    place[..len].copy_from_slice(&l3[..len]);
    area
}
