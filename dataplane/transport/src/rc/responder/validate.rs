//! The checks a request passes, in the specification's order, one function each.
//!
//! A check changes nothing but what it is about: the PSN check deals with duplicates.

use uroce_wire::{Header, NakCode, Operation, Packet, Syndrome};

use super::{Message, Responder, Verdict, takes_receive_wqe};
use crate::attr::AccessFlags;
use crate::counter::Counter;
use crate::cqe::WcStatus;
use crate::drop_reason::DropReason;
use crate::env::{Access, Key, Memory, Output, Region};
use crate::rc::Context;
use crate::wqe::MAX_MESSAGE_LEN;

impl Responder {
    /// New, duplicate, or ahead of what is expected?
    //= check A15 — the 2^23 PSNs before the expected one are duplicates, the rest is ahead
    pub(super) fn check_psn(
        &mut self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        out: &mut impl Output,
    ) -> Result<(), Verdict> {
        match packet.bth.psn.distance_from(self.expected_psn) {
            0 => {
                self.awaits_expected = false;
                Ok(())
            }
            ..0 => {
                out.count(Counter::DuplicateRequest);
                Err(self.handle_duplicate(context, packet))
            }
            _ if self.awaits_expected => Err(Verdict::Drop(DropReason::AfterNak)),
            _ => {
                //= check A1 — exactly one NAK for the missing PSN, what follows is dropped
                out.count(Counter::OutOfSequence);
                self.awaits_expected = true;
                self.answer_with(Syndrome::Nak(NakCode::PsnSequenceError));
                Err(Verdict::Done)
            }
        }
    }

    /// A request that was executed before: answered again, never executed again.
    fn handle_duplicate(&mut self, context: &Context<'_>, packet: &Packet<'_>) -> Verdict {
        let psn = packet.bth.psn;
        let is_replayed = match packet.op.operation {
            Operation::ReadRequest => {
                self.resources.replay_read(psn, &packet.ext.reth, context.mtu())
            }
            Operation::CompareSwap | Operation::FetchAdd => self.resources.replay_atomic(psn),
            _ => {
                //= check A4 — a repeated SEND or WRITE is acknowledged with the newest PSN
                self.answer_with(Syndrome::UNLIMITED);
                true
            }
        };
        //= check C7 — a READ whose resources are gone is dropped
        //= check D4 — so is an ATOMIC
        if is_replayed { Verdict::Done } else { Verdict::Drop(DropReason::OldRead) }
    }

    /// Do first, middle and last packets follow one another?
    pub(super) fn check_op_sequence(&self, packet: &Packet<'_>) -> Result<(), Verdict> {
        let is_expected = match self.message {
            //= check E1 — Middle or Last without First
            Message::None => packet.op.position.is_first(),
            //= check E2 — a message begins before the last one ended
            //= check E3 — a SEND goes on as a WRITE
            Message::Send { .. } => {
                !packet.op.position.is_first() && packet.op.operation == Operation::Send
            }
            Message::Write { .. } => {
                !packet.op.position.is_first() && packet.op.operation == Operation::Write
            }
        };
        if is_expected { Ok(()) } else { Err(Verdict::Nak(NakCode::InvalidRequest)) }
    }

    /// Does the QP take this operation?
    pub(super) fn check_op_allowed(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
    ) -> Result<(), Verdict> {
        //= check F4 — what the QP's access flags do not allow is an invalid request
        //= check D7 — ATOMICs too
        let needed = match packet.op.operation {
            Operation::Send if packet.op.has(Header::Ieth) => {
                return Err(Verdict::Nak(NakCode::InvalidRequest));
            }
            Operation::Send => AccessFlags::empty(),
            Operation::Write => AccessFlags::REMOTE_WRITE,
            Operation::ReadRequest => AccessFlags::REMOTE_READ,
            Operation::CompareSwap | Operation::FetchAdd => AccessFlags::REMOTE_ATOMIC,
            _ => return Err(Verdict::Nak(NakCode::InvalidRequest)),
        };
        if context.attr.access.contains(needed) {
            Ok(())
        } else {
            Err(Verdict::Nak(NakCode::InvalidRequest))
        }
    }

    /// Is there a receive WQE, or a place to keep the READ or ATOMIC?
    pub(super) fn check_resource(&self, packet: &Packet<'_>) -> Result<(), Verdict> {
        let needs_wqe = match packet.op.operation {
            Operation::Send => true,
            Operation::Write => takes_receive_wqe(packet),
            //= check C13 — more READs at once than agreed
            _ if self.resources.has_room() => false,
            _ => return Err(Verdict::Nak(NakCode::InvalidRequest)),
        };
        //= check B11 — a WRITE with immediate is refused at its last packet
        if needs_wqe && self.rq.wqes.is_empty() { Err(Verdict::RnrNak) } else { Ok(()) }
    }

    /// Do payload, path MTU and announced length agree?
    pub(super) fn check_length(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        out: &mut impl Output,
    ) -> Result<(), Verdict> {
        let len = packet.payload.len() as u32;
        let mtu = context.mtu();
        let position = packet.op.position;
        let is_data = matches!(packet.op.operation, Operation::Send | Operation::Write);
        //= check E4 — First and Middle are full, Last is not empty, none is over the path MTU
        let fits_position = !is_data
            || match (position.is_first(), position.is_last()) {
                (_, false) => len == mtu,
                (false, true) => (1..=mtu).contains(&len),
                (true, true) => len <= mtu,
            };
        let fits_message = match packet.op.operation {
            Operation::Send => return self.check_send_length(fits_position, len, out),
            //= check E5 — a WRITE brings exactly the bytes its RETH announces
            Operation::Write => {
                let left = match self.message {
                    Message::Write { left, .. } => left,
                    _ => packet.ext.reth.dma_len,
                };
                left <= MAX_MESSAGE_LEN && if position.is_last() { len == left } else { len < left }
            }
            //= check C17 — a READ of more than 2^31 bytes
            Operation::ReadRequest => packet.ext.reth.dma_len <= MAX_MESSAGE_LEN,
            _ => true,
        };
        if fits_position && fits_message {
            Ok(())
        } else {
            Err(Verdict::Nak(NakCode::InvalidRequest))
        }
    }

    //= check F10 — a SEND that is longer than its receive WQE fails both ends
    fn check_send_length(
        &self,
        fits_position: bool,
        len: u32,
        out: &mut impl Output,
    ) -> Result<(), Verdict> {
        if !fits_position {
            return Err(Verdict::Nak(NakCode::InvalidRequest));
        }
        let received = match self.message {
            Message::Send { received } => received,
            _ => 0,
        };
        let room = self.rq.wqes.front().map_or(0, |wqe| wqe.len);
        if len > room.saturating_sub(received) {
            out.count(Counter::RespLocalLengthError);
            return Err(Verdict::NakAndFail(NakCode::InvalidRequest, WcStatus::LocLenErr));
        }
        Ok(())
    }

    /// Does the R_Key open the whole range?
    pub(super) fn check_rkey(
        &self,
        context: &Context<'_>,
        packet: &Packet<'_>,
        memory: &impl Memory,
    ) -> Result<(), Verdict> {
        let reth = &packet.ext.reth;
        let (rkey, va, len, access) = match packet.op.operation {
            Operation::Write if packet.op.has(Header::Reth) => {
                (reth.rkey, reth.va, reth.dma_len, Access::Write)
            }
            Operation::ReadRequest => (reth.rkey, reth.va, reth.dma_len, Access::Read),
            Operation::CompareSwap | Operation::FetchAdd => {
                let atomic = &packet.ext.atomic;
                //= check D6 — an ATOMIC's address is a multiple of 8
                if !atomic.va.0.is_multiple_of(8) {
                    return Err(Verdict::Nak(NakCode::InvalidRequest));
                }
                (atomic.rkey, atomic.va, 8, Access::Atomic)
            }
            _ => return Ok(()),
        };
        //= check C16 — no bytes, no R_Key check
        if len == 0 {
            return Ok(());
        }
        //= check F1 — a key or range that is not granted is a remote access error
        memory
            .check(context.by, Region { key: Key::Remote(rkey), va, len }, access)
            .map_err(|_| Verdict::Nak(NakCode::RemoteAccessError))
    }
}
