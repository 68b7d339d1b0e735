//! Checks A: sequence numbers, acknowledgements, going back.

use core::time::Duration;

use uroce_transport::sim::{Crafted, Pair, Rule};
use uroce_transport::{Counter, DropReason, QpState, Side};
use uroce_wire::{Msn, NakCode, OpCode, Psn, Syndrome};

use crate::scene::*;

#[test] //= check A1 test
fn a_lost_packet_is_asked_for_once_and_sent_again_with_all_that_followed() {
    for lost in 0..7 {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        pair.write(A, 8 * 256);
        pair.run();
        assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, lost))]);
        assert_eq!(pair.sequence(A), runs(&[upto(8), lost as i32..8]));
        assert_eq!(pair.target(B, 8 * 256), pair.source(A, 8 * 256));
        assert_eq!(pair.count(B, Counter::OutOfSequence), 1);
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A2 test
fn a_packet_lost_twice_is_not_asked_for_twice_but_comes_by_the_timer() {
    for lost in 0..7 {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(2));
        pair.write(A, 8 * 256);
        pair.run();
        assert_eq!(naks(&pair, B).len(), 1);
        let again = lost as i32..8;
        assert_eq!(pair.sequence(A), runs(&[upto(8), again.clone(), again]));
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
        assert_eq!(pair.target(B, 8 * 256), pair.source(A, 8 * 256));
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A3 test
fn a_lost_tail_is_sent_again_when_the_ack_timer_has_run_out() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 3)).nth(1));
    pair.write(A, 4 * 256);
    pair.run();
    assert_eq!(naks(&pair, B), []);
    // Nothing was acknowledged: the oldest packet is the first.
    assert_eq!(pair.sequence(A), runs(&[upto(4), upto(4)]));
    let seen = pair.seen(A);
    let waited = seen[4].at.since(seen[3].at);
    assert!((TIMEOUT..=4 * TIMEOUT).contains(&waited), "{waited:?}");
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check A4 test
fn after_a_lost_ack_the_write_is_acknowledged_again_and_not_executed_again() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(B).nth(1));
    pair.write(A, 100);
    pair.run_for(SHORTLY);
    assert_eq!(pair.target(B, 100), pair.source(A, 100));
    let target = pair.remote(B);
    pair.bytes_mut(B, target)[..100].fill(0x11);
    pair.run();
    assert!(pair.target(B, 100).iter().all(|byte| *byte == 0x11), "executed twice");
    assert_eq!(pair.sequence(A), [0, 0]);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
    assert_eq!(pair.count(B, Counter::WriteRequests), 1);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check A5 test
fn an_ack_covers_the_messages_before_it() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(B).nth(1));
    let wr_ids = [pair.write(A, 100), pair.write(A, 100)];
    pair.run();
    assert_eq!(pair.responses(B).len(), 2);
    assert_eq!(pair.sequence(A), [0, 1]);
    assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
}

#[test] //= check A6 test
fn a_send_that_comes_twice_takes_one_receive() {
    let mut pair = Pair::rts();
    pair.rule(Rule::duplicate(Duration::ZERO).from(A));
    let first = pair.recv(B, 100);
    pair.recv(B, 100);
    pair.send(A, 100);
    pair.run();
    assert_all_succeeded(&mut pair, B, Side::Recv, &[first]);
    assert_eq!(pair.qp(B).recv_wrs(), 1);
    let acks: Vec<Psn> = pair.responses(B).iter().map(|seen| seen.bth.psn).collect();
    assert_eq!(acks, [pair.psn(A, 0); 2]);
    assert_eq!(pair.count(A, Counter::StaleResponse), 1);
}

#[test] //= check A7 test
fn a_late_duplicate_of_a_send_leaves_the_reposted_buffer_alone() {
    let mut pair = Pair::rts();
    pair.rule(Rule::duplicate(2 * SHORTLY).from(A));
    pair.recv(B, 100);
    pair.send(A, 100);
    pair.run_for(SHORTLY);
    assert_eq!(pair.received_bytes(B, 100), pair.source(A, 100));
    let buffer = pair.local(B);
    pair.bytes_mut(B, buffer).fill(0x22);
    pair.recv(B, 100);
    pair.run();
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
    assert!(pair.bytes(B, buffer).iter().all(|byte| *byte == 0x22));
    only_success(&mut pair, B, Side::Recv);
}

#[test] //= check A5 test
fn what_a_late_ack_covers_is_not_sent_again() {
    let mut pair = Pair::rts();
    pair.rule(Rule::delay(TIMEOUT + SHORTLY).from(B).nth(1));
    let first = pair.write(A, 4 * 256);
    pair.run_for(SHORTLY);
    // The timer runs out while nothing can be sent, and then the ACK comes after all.
    pair.world.set_full_rate(1.0);
    pair.run_until(|pair| pair.qp(A).send_wrs() == 0);
    pair.world.set_full_rate(0.0);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    let second = pair.write(A, 2 * 256);
    pair.run();
    assert_eq!(pair.sequence(A), runs(&[upto(6)]));
    assert_all_succeeded(&mut pair, A, Side::Send, &[first, second]);
}

/// A packet of 256 bytes takes some 27 ns: this delay swaps two of them.
const SWAP: Duration = Duration::from_nanos(40);

#[test] //= check A8 test
fn two_swapped_packets_are_executed_once_each() {
    for first in 0..6 {
        let mut pair = Pair::rts();
        pair.rule(Rule::delay(SWAP).from(A).psn(pair.psn(A, first)).nth(1));
        pair.recv(B, 8 * 256);
        pair.send(A, 8 * 256);
        pair.run();
        assert_eq!(naks(&pair, B)[0], (NakCode::PsnSequenceError, pair.psn(A, first)));
        assert!(naks(&pair, B).iter().all(|(code, _)| *code == NakCode::PsnSequenceError));
        assert_eq!(pair.received_bytes(B, 8 * 256), pair.source(A, 8 * 256));
        assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, 8 * 256);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A9 test
fn a_swap_across_two_messages_is_no_invalid_request() {
    let mut pair = Pair::rts();
    pair.rule(Rule::delay(SWAP).from(A).psn(pair.psn(A, 1)).nth(1));
    let recvs = [pair.recv(B, 600), pair.recv(B, 600)];
    let sends = [pair.send(A, 512), pair.send(A, 512)];
    pair.run();
    assert!(naks(&pair, B).iter().all(|(code, _)| *code == NakCode::PsnSequenceError));
    assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A10 test
fn a_nak_that_comes_twice_rewinds_once() {
    for lag in [0, 1, 100, 500, 1_000, 3_000, 100_000] {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(1));
        // The first answer is the NAK; the resent packets' ACK is late, so nothing has moved on.
        pair.rule(Rule::duplicate(Duration::from_nanos(lag)).from(B).nth(1));
        pair.rule(Rule::delay(2 * SHORTLY).from(B).nth(2));
        pair.write(A, 8 * 256);
        pair.run();
        assert_eq!(pair.sequence(A), runs(&[upto(8), 1..8]), "lag {lag} ns");
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 1, "charged once");
        only_success(&mut pair, A, Side::Send);
    }
}

/// A scene with PSN 0 acknowledged, and PSNs 1 to 3 on their way to nowhere.
fn three_packets_outstanding() -> Pair {
    let mut pair = Pair::rts();
    pair.write(A, 10);
    pair.run();
    only_success(&mut pair, A, Side::Send);
    pair.rule(Rule::drop().from(A));
    pair.write(A, 3 * 256);
    pair.run_for(SHORTLY);
    assert_eq!(pair.sequence(A), runs(&[upto(4)]));
    pair
}

/// Delivers a response to [`three_packets_outstanding`] and expects no reaction to it.
fn assert_ignored(psn: u32, syndrome: Syndrome) {
    let mut pair = three_packets_outstanding();
    let psn = pair.psn(A, psn);
    let ack = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn);
    pair.deliver(B, &ack.ext(|ext| ext.aeth.syndrome = syndrome));
    assert_eq!(pair.sequence(A), runs(&[upto(4)]), "nothing is sent again");
    assert_eq!(pair.take(A, Side::Send), []);
    assert_eq!(pair.qp(A).state(), QpState::Rts);
    assert_eq!(pair.count(A, Counter::StaleResponse), 1);
}

/// A scene in which end B owes a NAK for PSN 1: PSNs 0 and 2 have come, nothing can go out.
fn owing_a_nak() -> Pair {
    let mut pair = Pair::rts();
    pair.world.set_full_rate(1.0);
    for index in [0, 2] {
        let packet = write_only(&pair, index);
        pair.deliver(A, &packet);
    }
    pair
}

fn write_only(pair: &Pair, index: u32) -> Crafted {
    pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(pair.psn(A, index))
}

#[test] //= check A1 test
fn an_ack_does_not_take_the_place_of_a_nak_that_is_owed() {
    let mut pair = owing_a_nak();
    let duplicate = write_only(&pair, 0);
    pair.deliver(A, &duplicate);
    pair.world.set_full_rate(0.0);
    pair.run();
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 1))]);
}

#[test] //= check A1 test
fn a_nak_that_is_owed_asks_for_what_is_missing_when_it_goes_out() {
    let mut pair = owing_a_nak();
    let missing = write_only(&pair, 1);
    pair.deliver(A, &missing);
    pair.world.set_full_rate(0.0);
    pair.run();
    // PSN 2 was dropped when it came too early; nobody else would ask for it before the timer.
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 2))]);
    assert_eq!(pair.responses(B).len(), 1);
}

#[test] //= check A16 test
fn the_answer_to_a_read_is_the_ack_of_what_came_before_it() {
    let mut pair = Pair::rts();
    pair.world.set_full_rate(1.0);
    let write = write_only(&pair, 0);
    pair.deliver(A, &write);
    let read = pair.craft(A, OpCode::RC_RDMA_READ_REQUEST).psn(pair.psn(A, 1));
    pair.deliver(A, &read);
    pair.world.set_full_rate(0.0);
    pair.run();
    let opcodes: Vec<OpCode> = pair.responses(B).iter().map(|seen| seen.bth.opcode).collect();
    assert_eq!(opcodes, [OpCode::RC_RDMA_READ_RESPONSE_ONLY]);
}

#[test] //= check A11 test
fn a_nak_older_than_what_is_outstanding_is_ignored() {
    let codes = [
        NakCode::PsnSequenceError,
        NakCode::InvalidRequest,
        NakCode::RemoteAccessError,
        NakCode::RemoteOperationalError,
    ];
    for code in codes {
        assert_ignored(0, Syndrome::Nak(code));
        assert_ignored(0_u32.wrapping_sub(5), Syndrome::Nak(code));
    }
    assert_ignored(0, Syndrome::RnrNak { timer: 1 });
}

#[test] //= check A12 test
fn an_old_ack_and_the_last_one_repeated_are_ignored() {
    assert_ignored(0, Syndrome::UNLIMITED);
    assert_ignored(0_u32.wrapping_sub(1), Syndrome::UNLIMITED);
}

#[test] //= check A13 test
fn an_ack_of_what_was_never_sent_is_ignored() {
    assert_ignored(4, Syndrome::UNLIMITED);
    assert_ignored(1000, Syndrome::UNLIMITED);
    assert_ignored(4, Syndrome::Nak(NakCode::PsnSequenceError));
}

#[test] //= check A14 test
fn loss_is_repaired_where_the_psn_wraps() {
    for lost in 0..8 {
        let mut pair = Pair::with(|terms| {
            terms.half[A].sq_psn = Psn::new(0xff_fffe);
            terms.half[B].sq_psn = Psn::new(0xff_ffff);
        });
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        pair.rule(Rule::duplicate(SHORTLY).from(A).psn(pair.psn(A, lost)).nth(2));
        pair.write(A, 8 * 256);
        pair.read(A, 3 * 256);
        pair.run();
        assert_eq!(pair.target(B, 8 * 256), pair.source(A, 8 * 256));
        assert_eq!(pair.landed(A, 3 * 256), pair.target(B, 3 * 256));
        assert_eq!(pair.take(A, Side::Send).len(), 2);
        assert_eq!(pair.qp(A).state(), QpState::Rts);
    }
}

#[test] //= check A15 test
fn half_of_the_psns_are_behind_the_expected_one_and_half_ahead() {
    let mut pair = Pair::rts();
    let expected = pair.psn(A, 0);
    let write = |pair: &Pair, psn| pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(psn);
    let behind = write(&pair, expected.minus(1 << 23));
    pair.deliver(A, &behind);
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
    assert_eq!(naks(&pair, B), []);
    let ahead = write(&pair, expected.plus((1 << 23) - 1));
    pair.deliver(A, &ahead);
    assert_eq!(pair.count(B, Counter::OutOfSequence), 1);
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, expected)]);
}

#[test] //= check A16 test
fn an_ack_that_is_asked_for_covers_all_that_came_before() {
    let mut pair = Pair::rts();
    for index in 0..100 {
        let psn = pair.psn(A, index);
        let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(psn);
        pair.deliver(A, &packet.bth(|bth| bth.ack_req = index == 99));
    }
    let acks = pair.responses(B);
    assert_eq!(acks.len(), 1);
    assert_eq!(acks[0].bth.psn, pair.psn(A, 99));
    assert_eq!(acks[0].ext.aeth.syndrome, Syndrome::UNLIMITED);
}

#[test] //= check A16 test
fn the_last_packet_of_each_message_asks_for_its_ack() {
    let mut pair = Pair::rts();
    pair.recv(B, 600);
    pair.write(A, 600);
    pair.send(A, 600);
    pair.run();
    let asks: Vec<bool> = pair.seen(A).iter().map(|seen| seen.bth.ack_req).collect();
    assert_eq!(asks, [false, false, true, false, false, true]);
}

#[test] //= check A16 test
fn a_long_message_asks_for_acks_on_the_way_and_stops_when_none_comes() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(B));
    pair.write(A, 400 * 256);
    pair.run_for(SHORTLY);
    let seen = pair.seen(A);
    assert_eq!(seen.len(), 256, "so many packets may be unacknowledged");
    assert!(seen.chunks(32).all(|part| part.iter().any(|seen| seen.bth.ack_req)));
    pair.world.clear_rules();
    pair.run();
    assert_eq!(pair.target(B, 400 * 256), pair.source(A, 400 * 256));
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check A17 test
fn a_nak_acknowledges_all_that_came_before_it() {
    let mut pair = Pair::rts();
    for _ in 0..4 {
        pair.recv(B, 100);
    }
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 2)).nth(1));
    pair.rule(Rule::drop().from(B).nth(1));
    pair.rule(Rule::drop().from(B).nth(2));
    let sends: Vec<u64> = (0..4).map(|_| pair.send(A, 10)).collect();
    pair.run_until(|pair| pair.count(A, Counter::PacketSeqErr) == 1);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends[..2]);
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &sends[2..]);
    assert_eq!(pair.sequence(A), [0, 1, 2, 3, 2, 3]);
}

#[test] //= check A18 test
fn each_answer_tells_how_many_messages_are_done() {
    let mut pair = Pair::rts();
    pair.recv(B, 600);
    pair.recv(B, 600);
    pair.write(A, 600); // 1
    pair.send(A, 600); // 2
    pair.read(A, 600); // 3, when it is accepted
    pair.write_imm(A, 0, 5); // 4
    pair.fetch_add(A, 1); // 5
    pair.run();
    let mut msns: Vec<Msn> = Vec::new();
    for seen in pair.responses(B) {
        if seen.bth.opcode != OpCode::RC_RDMA_READ_RESPONSE_MIDDLE {
            msns.push(seen.ext.aeth.msn);
        }
    }
    assert_eq!(*msns.last().unwrap(), Msn::new(5));
    assert!(msns.is_sorted_by_key(|msn| msn.value()), "{msns:?}");
    let first_read = pair.responses(B).into_iter();
    let mut first_read =
        first_read.filter(|seen| seen.bth.opcode == OpCode::RC_RDMA_READ_RESPONSE_FIRST);
    assert!(first_read.next().unwrap().ext.aeth.msn.value() >= 3);
}

#[test] //= check A21 test
fn after_a_sequence_nak_nothing_else_is_complained_about() {
    let mut pair = Pair::rts();
    let at = |pair: &Pair, opcode, index| pair.craft(A, opcode).psn(pair.psn(A, index));
    let packet = at(&pair, OpCode::RC_RDMA_WRITE_ONLY, 1);
    pair.deliver(A, &packet);
    let bad_key = at(&pair, OpCode::RC_RDMA_WRITE_ONLY, 2).payload(&[0; 4]);
    pair.deliver(A, &bad_key.ext(|ext| ext.reth.rkey.0 ^= 1));
    let no_first = at(&pair, OpCode::RC_SEND_LAST, 3).payload(&[0; 4]);
    pair.deliver(A, &no_first);
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 0))]);
    assert_eq!(pair.drops(B, DropReason::AfterNak), 2);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
}

#[test] //= check A22 test
fn lost_acks_execute_nothing_twice() {
    let mut pair = Pair::rts();
    let rates = uroce_transport::sim::Rates { loss: 0.1, ..Default::default() };
    pair.world.set_rates(B as u16, A as u16, rates);
    let mut sends = Vec::new();
    for round in 0..200 {
        pair.recv(B, 300);
        sends.push(pair.send(A, round));
        if round % 16 == 15 {
            pair.run();
        }
    }
    pair.run();
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    let lens: Vec<u32> = pair.take(B, Side::Recv).iter().map(|cqe| cqe.byte_len).collect();
    assert_eq!(lens, (0..200).collect::<Vec<u32>>());
    assert_eq!(pair.count(B, Counter::OutOfSequence), 0, "requests were not lost");
}
