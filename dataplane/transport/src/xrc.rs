//! The extended reliable connected service (XRC): the requester of RC at one end of a connection,
//! the responder of RC at the other.
//!
//! Read first: IBA Annex A14.
//!
//! ```text
//!   initiator                            target             XRC domain
//!   post_send ──> requester ── SRQN ──> responder ──┬──> [SRQ] of one process
//!                    ^                      │       └──> [SRQ] of another
//!   completions <── completer <── ACK ──────┘
//! ```
//!
//! An initiator receives no requests. A target has no receives and no protection domain of its own:
//! the shared receive queue that a request names provides both.
//!
//! Invariants
//! - All packets of a message name one queue.
//! - The memory of a request, and of its answer whenever it is sent, is checked in the protection
//!   domain of the queue that the request has named.
//!
//! Requests and answers are those of [`crate::rc`], in an environment that makes them XRC's
//! ([`named`]). So the code of RC itself has no case for XRC.
//!
//! Not here: the queues and their numbers (the environment's,
//! [`crate::SharedReceives::queue_named`]); selective repeat and keepalive, which XRC does not
//! have.

mod named;

use core::ops::{Deref, DerefMut};

use uroce_wire::{Packet, Srqn};

use crate::attr::{MAX_RD_ATOMIC, QpType};
use crate::context::{Context, Outcome, Step};
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{Accessor, Env, Pd};
use crate::queue::QpCaps;
use crate::rc::{Keepalive, Rc, Requester, Responder};
use named::Named;

/// One end of an extended reliable connection.
#[derive(Debug)]
pub(crate) struct Xrc {
    rc: Rc,
    is_target: bool,
    /// The queue that the newest message has named.
    queue: Srqn,
    /// Protection domains of the requests that are kept with their answers, by their places.
    domains: [Pd; MAX_RD_ATOMIC as usize],
}

impl Deref for Xrc {
    type Target = Rc;

    fn deref(&self) -> &Rc {
        &self.rc
    }
}

impl DerefMut for Xrc {
    fn deref_mut(&mut self) -> &mut Rc {
        &mut self.rc
    }
}

impl Xrc {
    pub(crate) fn new(qp_type: QpType, caps: &QpCaps) -> Xrc {
        let is_target = qp_type == QpType::XrcRecv;
        // A queue that nothing can be posted to.
        let sends = QpCaps { max_send_wr: 1, max_send_sge: 1, max_inline_data: 0, ..*caps };
        let rc = Rc {
            requester: Requester::new(if is_target { &sends } else { caps }),
            responder: Responder::new(caps, true),
            keepalive: Keepalive::default(),
        };
        Xrc { rc, is_target, queue: Srqn::default(), domains: [Pd(0); MAX_RD_ATOMIC as usize] }
    }

    pub(crate) fn qp_type(&self) -> QpType {
        if self.is_target { QpType::XrcRecv } else { QpType::XrcSend }
    }

    /// Returns whether this end serves requests, so that it may hold a receive of a shared queue.
    pub(crate) fn is_target(&self) -> bool {
        self.is_target
    }

    /// Handles a request packet of the peer's requester.
    //= check X8 — as RC's responder does
    //= check X4 — all packets of a message name one queue
    pub(crate) fn handle_request(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        //= check X7 — an initiator serves no requests
        if !self.is_target {
            return Err(DropReason::NotResponder);
        }
        let named = packet.ext.xrceth.srqn;
        let srqn = if seeded!(XrcStaleQueue) && self.queue != Srqn::default() {
            self.queue
        } else {
            named
        };
        let is_its = !self.responder.is_in_message() || srqn == self.queue;
        let pd = env.queue_named(srqn).filter(|_| is_its);
        let env = &mut Named::new(env, srqn);
        //= check X3 — no such queue, or one of another XRC domain
        let Some(pd) = pd else { return self.responder.refuse_queue(context, packet, env) };
        //= check X2 — the named queue's protection domain is that of all memory
        let context = Context { by: Accessor { pd, ..context.by }, recv_pd: pd, ..*context };
        let (before, place) = (self.responder.expected_psn(), self.responder.next_place());
        let result = self.responder.handle_request(&context, packet, env);
        if self.responder.expected_psn() != before {
            self.queue = srqn;
        }
        if self.responder.next_place() != place {
            self.domains[usize::from(place % MAX_RD_ATOMIC)] = pd;
        }
        result
    }

    /// Handles a response of the peer's responder. The inner result is the completer's.
    pub(crate) fn handle_response(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Result<(), WcStatus>, DropReason> {
        if self.is_target {
            return Err(DropReason::NotRequester);
        }
        let env = &mut Named::new(env, Srqn::default());
        Ok(self.requester.handle_response(context, packet, env))
    }

    /// Sends one request packet, if there is one. A target has none.
    #[inline(never)]
    pub(crate) fn transmit_request(&mut self, context: &Context<'_>, env: &mut impl Env) -> Step {
        self.requester.transmit(context, &mut Named::new(env, Srqn::default()))
    }

    /// Sends one answer to the peer, if one is due.
    #[inline(never)]
    //= check X2 — also for a READ that is answered later, or again
    pub(crate) fn transmit_answer(
        &mut self,
        context: &Context<'_>,
        is_held: bool,
        env: &mut impl Env,
    ) -> Step {
        let mut context = *context;
        if let Some(place) = self.responder.reply_place(context.mtu()) {
            context.by.pd = self.domains[usize::from(place % MAX_RD_ATOMIC)];
        }
        let env = &mut Named::new(env, self.queue);
        self.responder.transmit(&context, is_held, env)
    }
}
