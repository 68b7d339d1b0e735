//! The checks of a request in the specification's order, one function each.
//!
//! Read first: IBA 9.7.4.
//!
//! A check changes nothing, except that the PSN check also answers duplicates and gaps.

use uroce_wire::{Header, NakCode, Operation, Packet, Psn, Syndrome};

use super::{Awaits, Responder, Verdict};
use crate::attr::AccessFlags;
use crate::context::Context;
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{AccessKind, Env, Memory, Output};
use crate::inbound::{check_range, fits_position, flush_of, is_allowed, needs_receive};
use crate::rc::resources::Placed;
use crate::time::Instant;
use crate::timer::rnr_timeout;
use crate::wqe::MAX_MESSAGE_LEN;

/// Shortest time after which a sequence NAK is given again only because the gap is still there, in
/// nanoseconds.
const NAK_AGAIN_NS: u32 = 50_000;

impl Responder {
    /// Checks that the PSN is the expected one; handles a duplicate or a packet ahead of it.
    //= check A15 — the 2^23 PSNs before the expected one are duplicates, the rest is ahead
    pub(super) fn check_psn(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        match packet.bth.psn.distance_from(self.expected_psn) {
            //= check A8 — an overtaken packet is the expected one when it comes
            0 => {
                if self.awaits != Awaits::Nothing {
                    self.end_wait(context.now);
                }
                Ok(())
            }
            ..0 if seeded!(DuplicateExecuted) && packet.op.operation == Operation::Send => Ok(()),
            ..0 if seeded!(AtomicReexecuted) && packet.op.has(Header::AtomicEth) => Ok(()),
            ..0 if seeded!(AtomicWriteReexecuted)
                && packet.op.operation == Operation::AtomicWrite =>
            {
                Ok(())
            }
            ..0 => {
                env.count(Counter::DuplicateRequest);
                Err(self.handle_duplicate(context, packet))
            }
            _ => Err(self.handle_early(context, packet, env)),
        }
    }

    /// Handles a packet ahead of the expected one.
    pub(super) fn handle_gap(
        &mut self,
        psn: Psn,
        context: &Context<'_>,
        out: &mut impl Output,
    ) -> Verdict {
        //= check A2 — no second NAK for the same gap within a round trip
        //= check A21 — and no NAK of another kind before the expected packet
        let is_waiting = self.awaits != Awaits::Nothing && !seeded!(DoubleNak);
        if is_waiting && !self.is_lost_again(psn, context) {
            if self.gap_end.is_before(psn.next()) {
                self.gap_end = psn.next();
            }
            return Verdict::Drop(DropReason::AfterNak);
        }
        self.gap_end = psn.next();
        //= check A1 — exactly one NAK for the missing PSN; later packets are dropped
        out.count(Counter::OutOfSequence);
        self.awaits = Awaits::Missing;
        self.answer_with(Syndrome::Nak(NakCode::PsnSequenceError));
        Verdict::Done
    }

    /// Returns whether a packet ahead of the expected one shows that the NAK, or the packet that it
    /// asked for, was lost: the peer has gone back and has passed the expected packet again, or it
    /// still sends new packets some round trips after the NAK.
    fn is_lost_again(&mut self, psn: Psn, context: &Context<'_>) -> bool {
        if self.owes_nak() {
            return false;
        }
        let age = self.nak_at.age(context.now);
        // Sooner than a repair takes, or the peer may come back after an RNR NAK, only an overtaken
        // packet looks like a repetition. Half of that time: the peer has its own clock.
        let repair = match self.awaits {
            Awaits::Refused => rnr_timeout(context.attr.min_rnr_timer).as_nanos() as u32,
            _ => self.repair,
        };
        let soonest = repair / 2;
        if psn.is_before(self.gap_end) && age >= soonest {
            return true;
        }
        let patience = NAK_AGAIN_NS.max(self.repair.saturating_mul(4));
        let is_late = self.repair > 0 && self.awaits == Awaits::Missing && age > patience;
        if is_late {
            // Perhaps a repair takes so long: the next NAK waits for four times this.
            self.repair = age;
        }
        is_late
    }

    /// Ends the wait for the expected packet, which has come. Learns how long that takes after a
    /// sequence NAK.
    #[cold]
    fn end_wait(&mut self, now: Instant) {
        if self.awaits == Awaits::Missing && !self.owes_nak() {
            // A packet that was only overtaken comes sooner than one that is sent again.
            let age = self.nak_at.age(now).max(1);
            self.repair = age.max(self.repair - self.repair / 8);
        }
        self.awaits = Awaits::Nothing;
    }

    /// Handles a request that was executed before: answers it again and never executes it again.
    fn handle_duplicate(&mut self, context: &Context<'_>, packet: &Packet<'_>) -> Verdict {
        let psn = packet.bth.psn;
        let is_replayed = match packet.op.operation {
            //= check F4 — access that is no longer granted is not answered again
            Operation::ReadRequest => {
                context.attr.access.contains(AccessFlags::REMOTE_READ)
                    && self.resources.replay_read(psn, &packet.ext.reth, context.mtu())
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                self.resources.replay_atomic(psn, context.mtu())
            }
            //= check P7 — a repeated ATOMIC WRITE or FLUSH is answered again and not executed again
            Operation::AtomicWrite => {
                self.resources.replay_placed(Placed::AtomicWrite, psn, context.mtu())
            }
            Operation::Flush => self.resources.replay_placed(Placed::Flush, psn, context.mtu()),
            _ => {
                //= check A4 — a repeated SEND or WRITE is acknowledged with the newest PSN
                //= check A6 — it takes no receive WQE
                //= check A7 — and writes nothing
                self.answer_with(Syndrome::UNLIMITED);
                true
            }
        };
        //= check C7 — a READ without a stored request is dropped
        //= check D4 — and so is an ATOMIC
        if is_replayed { Verdict::Done } else { Verdict::Drop(DropReason::OldRead) }
    }

    /// Checks that first, middle and last packets follow one another.
    pub(super) fn check_op_sequence(&self, packet: &Packet<'_>) -> Result<(), Verdict> {
        check(self.message.is_followed_by(packet.op))
    }

    /// Checks that the QP allows this operation.
    //= check F4 — an operation that the QP's access flags do not allow is an invalid request
    //= check D7 — ATOMICs too
    pub(super) fn check_op_allowed(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Verdict> {
        check(is_allowed(packet, context.attr.access))
    }

    /// Checks that a receive WQE, or room to store a request with a response of its own, is
    /// available.
    pub(super) fn check_resource(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        env: &mut impl Env,
    ) -> Result<(), Verdict> {
        let is_data = matches!(packet.op.operation, Operation::Send | Operation::Write);
        if !is_data {
            return self.check_room(context, packet, env);
        }
        //= check B11 — a WRITE with immediate is refused at its last packet
        if needs_receive(packet) && !self.rq.ensure(env) {
            return Err(Verdict::RnrNak);
        }
        Ok(())
    }

    /// Checks that the request can be stored until it is answered, and for its repetitions.
    fn check_room(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        out: &mut impl Output,
    ) -> Result<(), Verdict> {
        let is_flush = packet.op.operation == Operation::Flush;
        //= check C13 — more READs at once than negotiated
        check(self.resources.allows(is_flush))?;
        if self.resources.has_room(is_flush) {
            return Ok(());
        }
        //= check P8 — too many FLUSHes of a peer that does not count them: asked for again
        match self.handle_gap(packet.bth.psn, context, out) {
            Verdict::Done => Err(Verdict::Drop(DropReason::FlushTooMany)),
            verdict => Err(verdict),
        }
    }

    /// Checks that payload, path MTU and the length in the RETH agree.
    pub(super) fn check_length(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        out: &mut impl Output,
    ) -> Result<(), Verdict> {
        match packet.op.operation {
            Operation::Send => {
                check(fits_position(packet, context.attr.path_mtu))?;
                self.check_send_length(packet, out)
            }
            Operation::Write => check(
                fits_position(packet, context.attr.path_mtu) && self.message.fits_write(packet),
            ),
            //= check C17 — a READ of more than 2^31 bytes
            Operation::ReadRequest => check(packet.ext.reth.dma_len <= MAX_MESSAGE_LEN),
            //= check P3 — an ATOMIC WRITE has eight bytes, and its RETH says so
            Operation::AtomicWrite => {
                check(packet.payload.len() == 8 && packet.ext.reth.dma_len == 8)
            }
            Operation::Flush => {
                let range = flush_of(packet).and_then(|flush| flush.range);
                check(range.is_none_or(|(_, len)| len <= MAX_MESSAGE_LEN))
            }
            _ => Ok(()),
        }
    }

    //= check F10 — a SEND that is longer than its receive WQE fails both ends
    fn check_send_length(&self, packet: &Packet<'_>, out: &mut impl Output) -> Result<(), Verdict> {
        if !self.rq.has_room(self.message.received(), packet.payload, out) {
            return Err(Verdict::NakAndFail(NakCode::InvalidRequest, WcStatus::LocLenErr));
        }
        Ok(())
    }

    /// Checks that the R_Key grants access to the whole range.
    pub(super) fn check_rkey(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        memory: &impl Memory,
    ) -> Result<(), Verdict> {
        let reth = &packet.ext.reth;
        let (rkey, va, len, access) = match packet.op.operation {
            Operation::Write if packet.op.has(Header::Reth) => {
                let len = reth.dma_len;
                let len =
                    if seeded!(KeyCheckedForOnePacket) { len.min(context.mtu()) } else { len };
                (reth.rkey, reth.va, len, AccessKind::Write)
            }
            Operation::ReadRequest => (reth.rkey, reth.va, reth.dma_len, AccessKind::Read),
            Operation::CompareSwap | Operation::FetchAdd => {
                let atomic = &packet.ext.atomic;
                //= check D6 — an ATOMIC's address is a multiple of 8
                check(atomic.va.0.is_multiple_of(8))?;
                (atomic.rkey, atomic.va, 8, AccessKind::Atomic)
            }
            Operation::AtomicWrite => {
                //= check P3 — and an address that is a multiple of 8
                check(reth.va.0.is_multiple_of(8))?;
                (reth.rkey, reth.va, 8, AccessKind::Write)
            }
            // The memory checks a FLUSH when it is executed.
            _ => return Ok(()),
        };
        //= check F1 — a key or range without access is a remote access error
        check_range(rkey, va, len, access, context.by, memory)
            .map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))
    }
}

/// Result of a check; a failed one makes the request an invalid request.
fn check(passed: bool) -> Result<(), Verdict> {
    if passed { Ok(()) } else { Err(Verdict::Nak(NakCode::InvalidRequest)) }
}
