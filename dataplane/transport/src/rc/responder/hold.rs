//! Packets that come early, with selective repeat: they wait until their turn comes.
//!
//! Invariants
//! - The PSNs in `held` lie beyond the expected one, or are the expected one until the caller has
//!   given the packet back.
//! - An ACK that is due while packets are held is a selective one, as of the time when it is sent.
//!
//! Not here: the packets themselves, which the caller keeps.

use uroce_wire::{Aeth, ExtHeaders, OpCode, Packet, Psn, Syndrome};

use super::{Answer, Awaits, Responder, Verdict};
use crate::context::{Context, Outcome, Step};
use crate::counter::Counter;
use crate::drop_reason::DropReason;
use crate::env::{Env, Outbound};
use crate::gather::Gather;
use crate::rc::selective::Insertion;

impl Responder {
    /// Handles a packet ahead of the expected one: holds it if that has been agreed on and the
    /// caller has room. If it has no more room, the packet counts as lost on the way. If too few
    /// are held for the peer to learn of the gap, the answer is any responder's.
    //= check A25 — what comes early is held, and told to the peer
    //= check A27 — without room for more, what is held already need not be sent again
    pub(super) fn handle_early(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Verdict {
        let (psn, expected) = (packet.bth.psn, self.expected_psn);
        let insertion = match self.held.as_mut().filter(|_| context.attr.selective_repeat) {
            Some(held) if env.can_hold() => held.insert(psn, expected),
            Some(held) => held.turn_away(psn, expected),
            None => Insertion::TooFar,
        };
        match insertion {
            Insertion::TooFar => return self.handle_gap(psn, context, env),
            Insertion::NoRoom => {
                self.answer_with(Syndrome::UNLIMITED);
                return Verdict::Drop(DropReason::NotHeld);
            }
            Insertion::Copy => {
                self.answer_with(Syndrome::UNLIMITED);
                env.count(Counter::DuplicateRequest);
                return Verdict::Done;
            }
            Insertion::Held { opens_gap } => {
                // Behind a packet that was refused for now nothing is missing.
                let opens_gap = opens_gap && self.awaits != Awaits::Refused;
                if opens_gap || packet.bth.ack_req {
                    self.answer_with(Syndrome::UNLIMITED);
                }
                if opens_gap {
                    env.count(Counter::OutOfSequence);
                }
            }
        }
        env.count(Counter::HeldPackets);
        Verdict::Hold
    }

    /// PSN of the held packet that is due: the expected one. `None` if it is not held.
    #[inline]
    pub(crate) fn next_held(&self) -> Option<Psn> {
        let held = self.held.as_ref()?;
        let expected = self.expected_psn;
        let is_due = !held.is_empty() && held.contains(expected, expected) && !self.is_refusing;
        is_due.then_some(expected)
    }

    /// Returns whether the packet with this PSN is held.
    pub(crate) fn holds(&self, psn: Psn) -> bool {
        let held = self.held.as_ref();
        held.is_some_and(|held| held.contains(psn, self.expected_psn)) && !self.is_refusing
    }

    /// Returns whether any packet is held.
    pub(super) fn is_holding(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// Handles the held packet that is due.
    pub(crate) fn handle_held(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<Outcome, DropReason> {
        if let Some(held) = &mut self.held
            && !seeded!(RefusedKept)
        {
            held.remove(packet.bth.psn);
        }
        self.handle_request(context, packet, env)
    }

    /// Notes that `psn` is expected from now on. An ACK that is due moves along, because held
    /// packets may follow the one that has requested it.
    #[cold]
    pub(super) fn pass_held(&mut self, psn: Psn) {
        if let Some(held) = &mut self.held {
            held.advance(self.expected_psn, psn);
        }
        if let Some(Answer { psn: acked, syndrome: Syndrome::Ack { .. } }) = &mut self.answer {
            *acked = psn.minus(1);
        }
    }

    /// Notes that a held packet is gone: it is missing like one that was lost.
    pub(crate) fn lose_held(&mut self, psn: Psn) {
        if let Some(held) = &mut self.held {
            held.remove(psn);
        }
    }

    /// Sends the ACK that is due, with the PSNs that are held. It is marked (SE) if a packet was
    /// turned away since the last one.
    #[cold]
    pub(super) fn transmit_selective(
        &mut self,
        aeth: Aeth,
        context: &Context<'_>,
        env: &mut impl Env,
    ) -> Step {
        let Some(held) = &mut self.held else { return Step::Idle };
        let bitmap = held.bitmap(self.expected_psn, context.mtu() as usize);
        let payload = Gather::bytes(bitmap.bytes());
        let psn = self.expected_psn.minus(1);
        let mut bth = context.bth(OpCode::RC_SELECTIVE_ACKNOWLEDGE, psn, payload.len());
        //= check A27 — the peer is told when there is no more room, and sends less ahead
        bth.solicited = held.has_no_room;
        let ext = ExtHeaders { aeth, ..ExtHeaders::default() };
        let packet = Outbound { path: context.path(), bth, ext, by: context.by, payload };
        let Ok(len) = env.transmit(&packet) else { return Step::Blocked };
        held.has_no_room = false;
        self.answer = None;
        Step::Sent(len)
    }
}
