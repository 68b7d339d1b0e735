//! Checks E20, E7 and E9: every opcode in every state of a receiver, compared with a table.
//!
//! The table is written in ranges of opcode numbers, independently of the product's opcode table.

use uroce_sim::{Pair, Rule};
use uroce_transport::{AccessFlags, Counter, DropReason, QpChange, QpState, QpType, Side};
use uroce_wire::{NakCode, OpCode, PathMtu, Rkey, Syndrome};

use crate::frames::{bth, seal};
use crate::scene::*;

/// State of the receiving QP when the packet arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stand {
    State(QpState),
    /// In RTS, in the middle of a SEND.
    MidSend,
    /// In RTS, in the middle of a WRITE of which eight bytes are missing.
    MidWrite,
    /// In RTS, without a receive.
    NoReceive,
    /// In RTS, without any access for the peer.
    NoRights,
    /// In RTS, after a sequence NAK; the packet is ahead of the expected one.
    AfterNak,
    /// In RTS; the packet has the PSN of a request that was served.
    Behind,
}

const STANDS: [Stand; 12] = [
    Stand::State(QpState::Reset),
    Stand::State(QpState::Init),
    Stand::State(QpState::Rtr),
    Stand::State(QpState::Rts),
    Stand::State(QpState::Sqd),
    Stand::State(QpState::Err),
    Stand::MidSend,
    Stand::MidWrite,
    Stand::NoReceive,
    Stand::NoRights,
    Stand::AfterNak,
    Stand::Behind,
];

/// Effect of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cell {
    /// Dropped for this reason, without an answer.
    Drop(DropReason),
    /// Answered with an ACK.
    Ack,
    /// Answered with the data of a READ, the result of an ATOMIC, or an empty response.
    Answer,
    /// Answered with an RNR NAK.
    Rnr,
    /// Answered with this NAK, and the QP goes to ERR.
    Nak(NakCode),
    /// The QP goes to ERR without an answer.
    Failed,
    /// A response that no request is waiting for.
    Stale,
    /// Accepted without an answer.
    Taken,
}

/// The table of RC.
fn expected(stand: Stand, opcode: u8) -> Cell {
    use Stand as S;
    let serves = !matches!(stand, S::State(QpState::Reset | QpState::Init | QpState::Err));
    match opcode {
        0x81 => Cell::Drop(DropReason::Congestion),
        // Defined opcodes of UC, RD, UD and XRC.
        0x20..=0x2b | 0x40..=0x55 | 0x5c | 0x64..=0x65 | 0xa0..=0xb4 | 0xb6..=0xb7 => {
            Cell::Drop(DropReason::WrongService)
        }
        0x20..=0xd0 | 0xd2..=0xff => Cell::Drop(DropReason::ReservedOpCode),
        _ if !serves => Cell::Drop(DropReason::QpNotReady),
        // A response that the QP has not agreed on.
        0xd1 if stand == S::State(QpState::Rtr) => Cell::Drop(DropReason::NotRequester),
        0xd1 => Cell::Drop(DropReason::ReservedOpCode),
        0x0d..=0x12 if stand == S::State(QpState::Rtr) => Cell::Drop(DropReason::NotRequester),
        0x0d..=0x12 => Cell::Stale,
        _ if stand == S::AfterNak => Cell::Drop(DropReason::AfterNak),
        0x15 | 0x18..=0x1b | 0x1e..=0x1f if stand == S::Behind => {
            Cell::Drop(DropReason::ReservedOpCode)
        }
        0x15 | 0x18..=0x1b | 0x1e..=0x1f => Cell::Nak(NakCode::InvalidRequest),
        // A READ, ATOMIC, FLUSH or ATOMIC WRITE without a stored request; SENDs and WRITEs are
        // acknowledged again.
        0x0c | 0x13 | 0x14 | 0x1c | 0x1d if stand == S::Behind => Cell::Drop(DropReason::OldRead),
        _ if stand == S::Behind => Cell::Ack,
        _ => expected_request(stand, opcode),
    }
}

/// The part of the table for requests with the expected PSN.
fn expected_request(stand: Stand, opcode: u8) -> Cell {
    let invalid = Cell::Nak(NakCode::InvalidRequest);
    match (stand, opcode) {
        // The SEND continues or ends; a SEND with an invalid key to invalidate fails.
        (Stand::MidSend, 0x01..=0x03) | (Stand::MidWrite, 0x08..=0x09) => Cell::Ack,
        (Stand::MidSend, 0x16) => Cell::Failed,
        // All others, including a WRITE Middle of 256 bytes where eight are left.
        (Stand::MidSend | Stand::MidWrite, _) => invalid,
        // Middle and Last without a message.
        (_, 0x01..=0x03 | 0x07..=0x09 | 0x16) => invalid,
        (Stand::NoRights, 0x06 | 0x0a..=0x0c | 0x13..=0x14 | 0x1c..=0x1d) => invalid,
        (Stand::NoReceive, 0x00 | 0x04 | 0x05 | 0x0b | 0x17) => Cell::Rnr,
        (_, 0x17) => Cell::Failed,
        (_, 0x0c | 0x13 | 0x14 | 0x1c | 0x1d) => Cell::Answer,
        _ => Cell::Ack,
    }
}

/// The tables of UC and UD, which answer nothing.
fn expected_unreliable(qp_type: QpType, stand: Stand, opcode: u8) -> Cell {
    use Stand as S;
    let serves = !matches!(stand, S::State(QpState::Reset | QpState::Init | QpState::Err));
    let is_ours = match qp_type {
        QpType::Uc => (0x20..=0x2b).contains(&opcode),
        _ => (0x64..=0x65).contains(&opcode),
    };
    match opcode {
        0x81 => Cell::Drop(DropReason::Congestion),
        0x00..=0x14 | 0x16..=0x17 | 0x1c..=0x1d if !is_ours => Cell::Drop(DropReason::WrongService),
        0x20..=0x2b | 0x40..=0x55 | 0x5c | 0x64..=0x65 if !is_ours => {
            Cell::Drop(DropReason::WrongService)
        }
        0xa0..=0xb4 | 0xb6..=0xb7 | 0xd1 => Cell::Drop(DropReason::WrongService),
        _ if !is_ours => Cell::Drop(DropReason::ReservedOpCode),
        _ if !serves => Cell::Drop(DropReason::QpNotReady),
        0x64..=0x65 if stand == S::NoReceive => Cell::Drop(DropReason::NoReceiveWqe),
        0x64..=0x65 => Cell::Taken,
        _ => expected_uc(stand, opcode),
    }
}

/// The part of the table for packets of UC with the expected PSN.
fn expected_uc(stand: Stand, opcode: u8) -> Cell {
    let dropped = Cell::Drop(DropReason::MessageDropped);
    match (stand, opcode) {
        (Stand::MidSend, 0x21..=0x23) | (Stand::MidWrite, 0x28..=0x29) => Cell::Taken,
        // Middle and Last without a message, of the other operation, or with too many bytes. A
        // First or Only always begins a new message.
        (_, 0x21..=0x23 | 0x27..=0x29) => dropped,
        (Stand::NoRights, 0x26..=0x2b) => dropped,
        (Stand::NoReceive, 0x20 | 0x24 | 0x25 | 0x2b) => Cell::Drop(DropReason::NoReceiveWqe),
        _ => Cell::Taken,
    }
}

/// Position in the sequence of the packet that is checked.
fn place(stand: Stand) -> u32 {
    match stand {
        Stand::MidSend | Stand::MidWrite => 1,
        Stand::AfterNak => 5,
        _ => 0,
    }
}

/// A pair with end B in this state. Only counters keep what happened before.
fn pair_in(qp_type: QpType, stand: Stand) -> Pair {
    let mut pair = Pair::reset(|terms| {
        terms.qp_type = qp_type;
        if stand == Stand::NoRights {
            terms.half[B].access = AccessFlags::empty();
        }
    });
    match stand {
        Stand::State(state @ (QpState::Reset | QpState::Init | QpState::Rtr)) => {
            pair.bring_to(B, state);
        }
        Stand::State(state) => {
            pair.bring_to(B, QpState::Rts);
            pair.world.modify(pair.at(B), &QpChange::to(state)).unwrap();
        }
        _ => pair.bring_to(B, QpState::Rts),
    }
    let takes_receives = !matches!(stand, Stand::State(QpState::Reset) | Stand::NoReceive);
    if takes_receives {
        pair.recv(B, 1000);
    }
    let before = match stand {
        Stand::MidSend => Some((OpCode::RC_SEND_FIRST, 0, 256)),
        Stand::MidWrite => Some((OpCode::RC_RDMA_WRITE_FIRST, 0, 256)),
        Stand::AfterNak => Some((OpCode::RC_RDMA_WRITE_ONLY, 3, 0)),
        Stand::Behind => Some((OpCode::RC_RDMA_WRITE_ONLY, 0, 0)),
        _ => None,
    };
    if let Some((mut opcode, index, len)) = before {
        opcode.0 |= if qp_type == QpType::Uc { 0x20 } else { 0 };
        let packet = pair.craft(A, opcode).psn(pair.psn(A, index)).payload(&vec![1; len]);
        pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = if len > 0 { 264 } else { 0 }));
    }
    pair.world.record_mut().unwrap().clear();
    pair
}

/// A packet of this opcode that is otherwise valid. A reserved opcode has the form of a SEND Only.
fn frame_of(pair: &Pair, stand: Stand, opcode: OpCode) -> Vec<u8> {
    let known = if opcode.info().is_some() { opcode } else { OpCode::RC_SEND_ONLY };
    let (operation, len) = (known.0 & 0x1f, payload_len(known));
    let packet = pair.craft(A, known).psn(pair.psn(A, place(stand))).payload(&vec![3; len]);
    let packet = packet.ext(|ext| {
        ext.reth.dma_len = if operation == 0x06 { 264 } else { 8 };
        ext.ieth.rkey = Rkey(0x0bad_0000);
    });
    let mut frame = pair.frame(A, &packet);
    frame[bth(false)] = opcode.0;
    seal(&mut frame);
    frame
}

/// Payload length: First and Middle are full, other data and bitmaps are eight bytes, a CNP has its
/// sixteen.
fn payload_len(opcode: OpCode) -> usize {
    match opcode.0 & 0x1f {
        _ if opcode.0 == 0x81 => 16,
        _ if opcode.0 == 0xd1 => 8,
        0x00 | 0x01 | 0x06 | 0x07 | 0x0d | 0x0e => 256,
        0x02..=0x05 | 0x08..=0x0b | 0x0f | 0x10 | 0x16 | 0x17 | 0x1d => 8,
        _ => 0,
    }
}

/// The effect of a packet, from the counters and from the packets sent.
fn observe(pair: &mut Pair, frame: Vec<u8>) -> Cell {
    let dropped = |pair: &Pair| DropReason::ALL.iter().map(|one| pair.drops(B, *one)).collect();
    let before: Vec<u64> = dropped(pair);
    let stale = pair.count(B, Counter::StaleResponse);
    let state = pair.qp(B).state();
    pair.deliver_frame(A, frame);
    let after: Vec<u64> = dropped(pair);
    let reasons = DropReason::ALL.iter().zip(before.iter().zip(&after));
    let reasons: Vec<DropReason> =
        reasons.filter(|(_, (before, after))| before != after).map(|(reason, _)| *reason).collect();
    let answers = pair.responses(B);
    let cell = match (&answers[..], &reasons[..]) {
        ([], [reason]) => Cell::Drop(*reason),
        ([], []) if pair.qp(B).state() != state => Cell::Failed,
        ([], []) if pair.qp(B).qp_type() != QpType::Rc => Cell::Taken,
        ([], []) if pair.count(B, Counter::StaleResponse) == stale + 1 => Cell::Stale,
        ([answer], []) if answer.bth.opcode != OpCode::RC_ACKNOWLEDGE => Cell::Answer,
        ([answer], []) => match answer.ext.aeth.syndrome {
            Syndrome::Ack { .. } => Cell::Ack,
            Syndrome::RnrNak { .. } => Cell::Rnr,
            Syndrome::Nak(code) => Cell::Nak(code),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let is_refused = matches!(cell, Cell::Nak(_) | Cell::Failed);
    let state = if is_refused { QpState::Err } else { state };
    assert_eq!(pair.qp(B).state(), state, "{cell:?}");
    cell
}

#[test] //= check E20 test
fn on_rc_every_opcode_does_what_the_table_says_in_every_state() {
    for stand in STANDS {
        for opcode in 0..=255 {
            let mut pair = pair_in(QpType::Rc, stand);
            let frame = frame_of(&pair, stand, OpCode(opcode));
            let cell = observe(&mut pair, frame);
            assert_eq!(cell, expected(stand, opcode), "{stand:?}, opcode {opcode:#04x}");
        }
    }
}

#[test] //= check E20 test
fn on_uc_and_ud_every_opcode_does_what_the_table_says_in_every_state() {
    let without_nak =
        STANDS.into_iter().filter(|one| !matches!(one, Stand::AfterNak | Stand::Behind));
    for stand in without_nak {
        let is_middle = matches!(stand, Stand::MidSend | Stand::MidWrite);
        let types = [(QpType::Uc, true), (QpType::Ud, !is_middle)];
        for (qp_type, _) in types.into_iter().filter(|(_, has)| *has) {
            for opcode in 0..=255 {
                let mut pair = pair_in(qp_type, stand);
                let frame = frame_of(&pair, stand, OpCode(opcode));
                let cell = observe(&mut pair, frame);
                let expected = expected_unreliable(qp_type, stand, opcode);
                assert_eq!(cell, expected, "{qp_type} {stand:?}, opcode {opcode:#04x}");
            }
        }
    }
}

#[test] //= check E7 test
fn a_selective_acknowledgement_is_reserved_on_a_qp_that_did_not_agree_on_it() {
    for words in [1, 2, 32, 128] {
        let mut pair = Pair::with(|terms| terms.mtu = PathMtu::B4096);
        pair.rule(Rule::drop().from(A));
        let write = pair.write(A, 8 * 4096);
        pair.run_for(SHORTLY);
        let (state, sent) = (pair.qp(A).state(), pair.sequence(A));
        let packet = pair.craft(B, OpCode::RC_SELECTIVE_ACKNOWLEDGE).psn(pair.psn(A, 3));
        let packet = packet.ext(|ext| ext.aeth.syndrome = Syndrome::UNLIMITED);
        pair.deliver(B, &packet.payload(&[0xfe; 8].repeat(words)));
        assert_eq!(pair.drops(A, DropReason::ReservedOpCode), 1);
        assert_eq!((pair.qp(A).state(), pair.sequence(A)), (state, sent), "{words} words");
        assert_eq!(pair.take(A, Side::Send), [], "{write} is not acknowledged");
    }
}

#[test] //= check E7 test
fn on_uc_and_ud_a_reserved_opcode_is_dropped_in_silence() {
    for qp_type in [QpType::Uc, QpType::Ud] {
        for opcode in (0..=255).filter(|opcode| OpCode(*opcode).info().is_none()) {
            let stand = Stand::State(QpState::Rts);
            let mut pair = pair_in(qp_type, stand);
            let frame = frame_of(&pair, stand, OpCode(opcode));
            pair.deliver_frame(A, frame);
            assert_eq!(pair.seen(B), []);
            assert_eq!(pair.qp(B).state(), QpState::Rts);
            assert_counted(&pair, B, &[("rx_reserved_opcode", 1)]);
        }
    }
}

#[test] //= check E9 test
fn opcodes_of_another_service_are_dropped_whatever_the_qps_own() {
    let own = [(QpType::Rc, 0x00), (QpType::Uc, 0x20), (QpType::Ud, 0x60)];
    for (qp_type, service) in own {
        for opcode in (0..=255).map(OpCode).filter(|opcode| opcode.info().is_some()) {
            // The selective acknowledgement is of RC, though its number is not in RC's range.
            let is_own = opcode.0 & 0xe0 == service || (qp_type, opcode.0) == (QpType::Rc, 0xd1);
            if is_own || opcode.0 == 0x81 {
                continue;
            }
            let stand = Stand::State(QpState::Rts);
            let mut pair = pair_in(qp_type, stand);
            let frame = frame_of(&pair, stand, opcode);
            pair.deliver_frame(A, frame);
            assert_counted(&pair, B, &[("rx_wrong_service", 1)]);
            assert_eq!(pair.seen(B), []);
            assert!(pair.is_untouched_from(B, 0));
        }
    }
}

#[test] //= check E7 test
fn on_rc_a_reserved_opcode_is_an_invalid_request() {
    for opcode in [0x15, 0x1e, 0x1f].into_iter().chain(0x18..=0x1b) {
        let mut pair = pair_in(QpType::Rc, Stand::State(QpState::Rts));
        let frame = frame_of(&pair, Stand::State(QpState::Rts), OpCode(opcode));
        pair.deliver_frame(A, frame);
        assert_refused(&pair, NakCode::InvalidRequest);
        assert!(pair.is_untouched_from(B, 0));
        let counted = [("resp_remote_invalid_requests", 1), ("resp_cqe_flush_error", 1)];
        assert_counted(&pair, B, &counted);
    }
}
