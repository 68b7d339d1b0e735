//! Selective acknowledgements: what the peer holds, and what is lost therefore.
//!
//! Invariants
//! - An acknowledgement that lists what was never sent, or the packet that the peer waits for,
//!   changes nothing, and neither does one without news.
//! - The retry counter is charged when the oldest packet is found to be lost, each time it is.

use uroce_wire::{Packet, Psn};

use super::{Acked, Requester};
use crate::context::Context;
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::env::Env;
use crate::rc::selective::Claim;

impl Requester {
    /// Returns whether selective acknowledgements have been agreed on.
    pub(crate) fn takes_selective(&self) -> bool {
        self.sent.as_ref().is_some_and(|sent| sent.is_on)
    }

    /// Handles a selective acknowledgement for `psn`, with everything before it and with what its
    /// bitmap lists beyond it.
    //= check A25 — what is lost is sent again, and nothing else
    #[cold]
    pub(super) fn handle_selective(
        &mut self,
        context: &Context<'_>,
        psn: Psn,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), WcStatus> {
        let (before, was_probed) = (self.unacked_psn, self.retry.is_probed());
        //= check A22 — it is an ACK too
        if self.acknowledge_before(psn.next(), context, env)? == Acked::Gap {
            return Ok(());
        }
        // The probe was the oldest packet: without progress this is no answer to it.
        let has_progress = self.unacked_psn != before;
        let is_probed = was_probed && has_progress;
        let end = self.end_psn;
        let Some(sent) = self.sent.as_mut().filter(|sent| sent.is_on) else { return Ok(()) };
        if packet.bth.solicited {
            sent.crowd(end);
        }
        //= check A26 — only what was sent can be acknowledged
        //= check A26 — the same again does not put off the ACK timeout
        let has_news = match sent.take(packet.payload, end) {
            Claim::New => true,
            Claim::Known => has_progress,
            Claim::False => false,
        };
        if !has_news {
            env.count(Counter::StaleResponse);
            return Ok(());
        }
        if !sent.is_active() {
            return self.handle_gap_at_rest(is_probed, env);
        }
        if self.trip.timed().is_some_and(|timed| sent.holds(timed)) {
            self.trip.sample(context.now, &mut self.trips, env);
            if let Some(pace) = self.trip.take_pace() {
                sent.grow(pace);
            }
            self.retry.set_probe(context.attr, self.trip.quiet());
        }
        let oldest = self.unacked_psn;
        let was_lost = sent.is_lost(oldest);
        let mut has_lost = sent.judge(end);
        if is_probed {
            //= check A23 — what was lost with the tail is sent again
            sent.lose_before_probe();
            has_lost = true;
        }
        let is_lost = sent.is_lost(oldest);
        if has_lost {
            env.count(Counter::PacketSeqErr);
            // An answer to a probe that was sent before would tell the same.
            self.retry.take_probed();
        }
        if is_lost {
            return if was_lost { Ok(()) } else { self.charge(env) };
        }
        self.retry.heard(context.attr, context.now);
        Ok(())
    }

    /// Handles a gap that the peer reports while a READ or ATOMIC is outstanding: goes back to it,
    /// once.
    fn handle_gap_at_rest(&mut self, is_probed: bool, env: &mut impl Env) -> Result<(), WcStatus> {
        let (psn, end) = (self.unacked_psn, self.end_psn);
        let Some(high) = self.sent.as_ref().map(|sent| sent.high()) else { return Ok(()) };
        if self.next_psn == psn || self.retry.is_known_gap(high) && !is_probed {
            return Ok(());
        }
        self.retry.take_probed();
        self.retry.note_nak(end);
        self.trip.lost(if is_probed { end } else { psn });
        env.count(Counter::PacketSeqErr);
        self.try_again(psn, env)
    }
}
