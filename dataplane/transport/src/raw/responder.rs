//! Raw responder: each frame that the environment gives fills a receive WQE.
//!
//! Invariants
//! - No frame changes the QP's state, because any station may send one.

use uroce_wire::Qpn;

use super::InboundFrame;
use crate::attr::{Attributes, QpType};
use crate::context::Context;
use crate::counter::Counter;
use crate::cqe::{Cqe, WcOpcode, WcStatus};
use crate::drop_reason::DropReason;
use crate::env::{Env, Found, Output};
use crate::queue::QpCaps;
use crate::recv_queue::RecvQueue;

#[derive(Debug)]
pub(crate) struct Responder {
    pub(crate) rq: RecvQueue,
}

impl Responder {
    pub(crate) fn new(caps: &QpCaps, uses_srq: bool) -> Responder {
        Responder { rq: RecvQueue::new(caps, uses_srq) }
    }

    /// Starts the responder in RTR. Frames have no order, so there is no state to set.
    pub(crate) fn start(&mut self, _attr: &Attributes) {}

    /// Empties the queue, without completions.
    pub(crate) fn reset(&mut self) {
        self.rq.clear();
    }

    /// Completes all receive WQEs flushed, in order.
    pub(crate) fn flush(&mut self, qpn: Qpn, out: &mut impl Output) {
        self.rq.flush(qpn, out);
    }

    /// Handles a frame that a flow rule has chosen the QP for.
    pub(crate) fn handle_frame(
        &mut self,
        context: &Context<'_>,
        frame: &InboundFrame<'_>,
        qp_type: QpType,
        env: &mut impl Env,
    ) -> Result<(), DropReason> {
        //= check W5 — Raw IPv6 gets packets, the other types get frames
        let message = match qp_type {
            QpType::RawIpv6 => frame.ipv6.ok_or(DropReason::WrongService)?,
            _ => frame.bytes,
        };
        let byte_len = message.len() as u32;
        //= check W7 — without a receive WQE, or with one that is too small: dropped and counted
        match self.rq.ensure_room(byte_len, env) {
            Found::Receive => {}
            Found::Nothing => {
                env.count(Counter::OutOfBuffer);
                return Err(DropReason::NoReceiveWqe);
            }
            Found::TooSmall => {
                env.count(Counter::RespLocalLengthError);
                return Err(DropReason::ReceiveTooSmall);
            }
        }
        let qpn = context.by.qpn;
        match self.rq.scatter(0, message, context.recv_by(), env.memory()) {
            Ok(()) => {
                let cqe = Cqe::new(0, WcStatus::Success, WcOpcode::Recv, qpn);
                self.rq.complete_front(Cqe { byte_len, ..cqe }, env);
            }
            Err(_) => self.rq.fail_front(qpn, WcStatus::LocProtErr, env),
        }
        Ok(())
    }
}
