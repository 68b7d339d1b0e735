//! Requests that name a shared receive queue (XRC): what [`crate::xrc`] needs of the responder.

use uroce_wire::{NakCode, Packet};

use super::{Responder, Verdict};
use crate::context::{Context, Outcome};
use crate::drop_reason::DropReason;
use crate::env::Env;
use crate::inbound::Message;

impl Responder {
    /// Returns whether a message of several packets is in progress.
    pub(crate) fn is_in_message(&self) -> bool {
        self.message != Message::None
    }

    /// Handles a request that names no queue that it may use. Its PSN is checked as that of any
    /// other, so that a repeated request is answered and a gap is found.
    //= check X3 — refused as a violation of the domain
    #[cold]
    pub(crate) fn refuse_queue(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        if self.is_refusing {
            return Err(DropReason::AfterNak);
        }
        let refused = |()| Verdict::Nak(NakCode::InvalidRdRequest);
        let verdict = self.check_psn(context, packet, env).map_or_else(|verdict| verdict, refused);
        self.pass(verdict, context, env)
    }

    /// Place of the next request that is stored until it is answered.
    pub(crate) fn next_place(&self) -> u8 {
        self.resources.next_place()
    }

    /// Place of the stored request that is answered next, if one is due.
    pub(crate) fn reply_place(&self, mtu: u32) -> Option<u8> {
        self.resources.next_reply(mtu).map(|reply| reply.place())
    }
}
