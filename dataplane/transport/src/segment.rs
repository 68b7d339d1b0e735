//! Division of SEND and WRITE messages into packets, for RC and UC.
//!
//! Read first: IBA 9.2 (opcodes) and 9.7.2 (PSNs of a message).

use uroce_wire::{ExtHeaders, Header, Ieth, OpCode, Operation, Position, Psn, Reth};

use crate::context::Context;
use crate::env::{Outbound, Path};
use crate::send_queue::SendQueue;
use crate::wqe::{SendOp, SendWqe};

/// The packet with `psn` of the SEND or WRITE at position `at` of the queue, to be sent by `path`.
/// AckReq is not set.
#[inline]
pub(crate) fn data_packet<'a>(
    sq: &'a SendQueue,
    at: u32,
    wqe: &SendWqe,
    psn: Psn,
    path: Path<'a>,
    context: &Context<'a>,
    opcode_of: impl Fn(Operation, Position, Option<Header>) -> Option<OpCode>,
) -> Outbound<'a> {
    let mtu = context.mtu();
    let offset = psn.distance_from(wqe.first_psn) as u32 * mtu;
    let left = wqe.len - offset;
    let len = left.min(mtu);
    let position = match (offset == 0, left <= mtu) {
        (true, true) => Position::Only,
        (true, false) => Position::First,
        (false, false) => Position::Middle,
        (false, true) => Position::Last,
    };
    let is_last = position.is_last();
    let mut ext = ExtHeaders::default();
    let (operation, extra, has_event) = describe(&wqe.op, wqe.len, &mut ext);
    let opcode = opcode_of(operation, position, extra.filter(|_| is_last));
    let mut bth = context.bth(opcode.expect("posts are of the service"), psn, len);
    //= check E21 — only a message that causes a completion at the peer can raise an event there
    bth.solicited = is_last && wqe.solicited && has_event;
    let payload = sq.payload(at, wqe, offset, len);
    Outbound { path, bth, ext, by: context.by, payload }
}

/// The operation, the header of the last packet, and whether the message can raise a solicited
/// event. Fills in the extended headers that the operation may need.
#[inline]
fn describe(op: &SendOp, len: u32, ext: &mut ExtHeaders) -> (Operation, Option<Header>, bool) {
    match *op {
        SendOp::SendWithInvalidate { rkey } => {
            ext.ieth = Ieth { rkey };
            (Operation::Send, Some(Header::Ieth), true)
        }
        SendOp::Write { va, rkey, imm } => {
            ext.reth = Reth { va, rkey, dma_len: len };
            ext.imm = imm.unwrap_or_default();
            (Operation::Write, imm.map(|_| Header::ImmDt), imm.is_some())
        }
        SendOp::Send { imm } | SendOp::SendTo { imm, .. } => {
            ext.imm = imm.unwrap_or_default();
            (Operation::Send, imm.map(|_| Header::ImmDt), true)
        }
        _ => unreachable!("no SEND and no WRITE"),
    }
}
