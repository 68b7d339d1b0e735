//! Responder: each datagram with the right Q_Key fills a receive WQE.
//!
//! ```text
//!   receive WQE   | 20 bytes of zeros | IPv4 header |  payload …      (or 40 bytes of IPv6 header)
//!                 '------- GRH area of 40 bytes ----'
//! ```
//!
//! Not here: which QPs a multicast datagram goes to (the surroundings).

use uroce_wire::{Header, Qpn};

use crate::attr::Attributes;
use crate::context::{Context, Outcome};
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::drop_reason::DropReason;
use crate::env::{Env, Output};
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
    ) -> Result<Outcome, DropReason> {
        let packet = &inbound.packet;
        //= check E13 — a Q_Key that does not match is dropped and counted
        //= check L5 — on each QP of a multicast group by itself
        if packet.ext.deth.qkey != context.attr.qkey {
            return Err(DropReason::BadQkey);
        }
        if !fits_position(packet, context.attr.path_mtu) {
            return Err(DropReason::Malformed);
        }
        //= check L4 — no receive WQE: dropped in silence and counted
        if !self.rq.ensure(env) {
            env.count(Counter::OutOfBuffer);
            return Err(DropReason::NoReceiveWqe);
        }
        match self.receive(context, inbound, env) {
            Ok(cqe) => {
                self.rq.complete_front(cqe, env);
                Ok(Outcome::Alive)
            }
            Err(status) => {
                self.rq.fail_front(context.by.qpn, status, env);
                Ok(Outcome::Failed)
            }
        }
    }

    /// Fills the oldest receive WQE.
    //= check L3 — 40 bytes of GRH area, then the payload; both count
    fn receive(
        &self,
        context: &Context<'_>,
        inbound: &Inbound<'_>,
        env: &mut impl Env,
    ) -> Result<Cqe, WcStatus> {
        let packet = &inbound.packet;
        let byte_len = GRH_LEN + packet.payload.len() as u32;
        //= check L4 — too small a receive WQE is an error of this end
        if byte_len > self.rq.front_len() {
            env.count(Counter::RespLocalLengthError);
            return Err(WcStatus::LocLenErr);
        }
        self.rq
            .scatter(0, &grh(inbound.l3), context.by, env)
            .and_then(|()| self.rq.scatter(GRH_LEN, packet.payload, context.by, env))
            .map_err(|_| WcStatus::LocProtErr)?;
        Ok(Cqe {
            byte_len,
            imm: packet.op.has(Header::ImmDt).then_some(packet.ext.imm),
            solicited: packet.bth.solicited,
            src_qpn: packet.ext.deth.src_qpn,
            has_grh: true,
            is_ipv4: is_ipv4(inbound.l3),
            ..Cqe::new(0, WcStatus::Success, WcOpcode::Recv, context.by.qpn)
        })
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
