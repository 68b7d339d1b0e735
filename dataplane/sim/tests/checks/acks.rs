//! Checks A: acknowledgements that are lost, late, repeated or wrong.

use core::time::Duration;

use uroce_sim::{Pair, Rates, Rule};
use uroce_transport::{Counter, QpState, Side};
use uroce_wire::{NakCode, OpCode, Psn, Syndrome};

use crate::go_back_n::write_only;
use crate::scene::*;

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
    assert_eq!(acks(&pair, B), [(pair.psn(A, 0), 1); 2]);
    let counted = [("local_ack_timeout_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
    assert_counted(&pair, B, &[("duplicate_request", 1), ("rx_write_requests", 1)]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check A4 test
fn after_a_lost_ack_each_packet_of_a_long_message_is_a_duplicate() {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(B).nth(1));
    let recv = pair.recv(B, 1000);
    pair.recv(B, 1000);
    pair.send(A, 1000);
    pair.run();
    assert_eq!(pair.sequence(A), runs(&[upto(4), upto(4)]));
    // All four are acknowledged with the newest PSN; ACKs due at the same time are sent as one.
    let acks = acks(&pair, B);
    assert!(acks.iter().all(|ack| *ack == (pair.psn(A, 3), 1)), "{acks:?}");
    assert_eq!(pair.count(B, Counter::DuplicateRequest), 4);
    assert_all_succeeded(&mut pair, B, Side::Recv, &[recv]);
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
    assert_counted(&pair, A, &[("rdma_sends", 2)]);
    assert_counted(&pair, B, &[("rx_write_requests", 2)]);
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
    assert_counted(&pair, A, &[("stale_response", 1), ("rdma_sends", 1)]);
    assert_counted(&pair, B, &[("duplicate_request", 1), ("rdma_recvs", 1)]);
    only_success(&mut pair, A, Side::Send);
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
    assert_counted(&pair, B, &[("duplicate_request", 1), ("rdma_recvs", 1)]);
    assert_eq!(pair.qp(B).recv_wrs(), 1, "the receive posted since is still there");
    assert!(pair.bytes(B, buffer).iter().all(|byte| *byte == 0x22));
    only_success(&mut pair, B, Side::Recv);
}

#[test] //= check A5 test
fn what_a_late_ack_covers_is_not_sent_again() {
    let mut pair = Pair::rts();
    pair.rule(Rule::delay(TIMEOUT + SHORTLY).from(B).nth(1));
    let first = pair.write(A, 4 * 256);
    pair.run_for(SHORTLY);
    // The timer expires while nothing can be sent, and then the ACK arrives.
    pair.world.set_full_rate(1.0);
    pair.run_until(|pair| pair.qp(A).send_wrs() == 0);
    pair.world.set_full_rate(0.0);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    let second = pair.write(A, 2 * 256);
    pair.run();
    assert_eq!(pair.sequence(A), runs(&[upto(6)]));
    assert_all_succeeded(&mut pair, A, Side::Send, &[first, second]);
}

/// A pair with PSN 0 acknowledged, and PSNs 1 to 3 sent and lost.
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

/// Delivers a response to [`three_packets_outstanding`] and asserts that it has no effect.
fn assert_ignored(psn: u32, syndrome: Syndrome) {
    let mut pair = three_packets_outstanding();
    let psn = pair.psn(A, psn);
    let ack = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn);
    pair.deliver(B, &ack.ext(|ext| ext.aeth.syndrome = syndrome));
    assert_eq!(pair.sequence(A), runs(&[upto(4)]), "nothing is sent again");
    assert_eq!(pair.take(A, Side::Send), []);
    assert_eq!(pair.qp(A).state(), QpState::Rts);
    assert_counted(&pair, A, &[("stale_response", 1), ("rdma_sends", 1)]);
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

#[test] //= check A16 test
fn an_ack_that_is_asked_for_covers_all_that_came_before() {
    let mut pair = Pair::rts();
    for index in 0..100 {
        let psn = pair.psn(A, index);
        let packet = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(psn);
        pair.deliver(A, &packet.bth(|bth| bth.ack_req = index == 99));
    }
    assert_eq!(pair.responses(B).len(), 1);
    assert_eq!(acks(&pair, B), [(pair.psn(A, 99), 100)]);
    assert_counted(&pair, B, &[("rx_write_requests", 100)]);
}

#[test] //= check A16 test
fn every_ack_that_is_asked_for_is_given() {
    let mut pair = Pair::rts();
    for index in 0..40 {
        let packet = write_only(&pair, index);
        pair.deliver(A, &packet);
        assert_eq!(acks(&pair, B).last(), Some(&(pair.psn(A, index), index + 1)));
    }
    assert_eq!(acks(&pair, B).len(), 40);
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

#[test] //= check A18 test
fn each_answer_tells_how_many_messages_are_done() {
    use OpCode as O;
    let mut pair = Pair::rts();
    pair.recv(B, 600);
    pair.recv(B, 600);
    // PSN, opcode, payload, and the MSN of each answer to it.
    let packets: [(u32, OpCode, usize, &[u32]); 8] = [
        (0, O::RC_RDMA_WRITE_FIRST, 256, &[0]),
        (1, O::RC_RDMA_WRITE_LAST, 256, &[1]),
        (2, O::RC_SEND_ONLY, 10, &[2]),
        (3, O::RC_RDMA_READ_REQUEST, 0, &[3, 3]), // two packets, counted when accepted
        (5, O::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 512 - 256, &[4]),
        (6, O::RC_FETCH_ADD, 0, &[5]),
        (6, O::RC_FETCH_ADD, 0, &[5]), // a repetition is not a new message
        (3, O::RC_RDMA_READ_REQUEST, 0, &[5, 5]),
    ];
    for (index, opcode, len, msns) in packets {
        pair.world.record_mut().unwrap().clear();
        let packet = pair.craft(A, opcode).psn(pair.psn(A, index)).payload(&vec![1; len]);
        let announced = if opcode == O::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE { 256 } else { 512 };
        pair.deliver(A, &packet.ext(|ext| ext.reth.dma_len = announced));
        let answers: Vec<u32> =
            pair.responses(B).iter().map(|seen| seen.ext.aeth.msn.value()).collect();
        assert_eq!(answers, msns, "{opcode}");
    }
}

/// Runs a stream of SENDs with this share of the ACKs lost; returns the time it took.
fn stream_with_lost_acks(loss: f64) -> (Pair, Duration) {
    const SENDS: u32 = 2000;
    let mut pair = Pair::rts();
    pair.world.set_rates(B as u16, A as u16, Rates { loss, ..Rates::NONE });
    let mut sends = Vec::new();
    for round in 0..SENDS {
        pair.recv(B, 4096);
        sends.push(pair.send(A, round));
        if round % 100 == 99 {
            pair.run();
        }
    }
    let took = pair.world.now().since(uroce_transport::Instant::ZERO);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    let lens: Vec<u32> = pair.take(B, Side::Recv).iter().map(|cqe| cqe.byte_len).collect();
    assert_eq!(lens, (0..SENDS).collect::<Vec<u32>>(), "each once, in order");
    (pair, took)
}

#[test] //= check A22 test
fn lost_acks_execute_nothing_twice_and_cost_little() {
    let (_, without) = stream_with_lost_acks(0.0);
    for (loss, least) in [(0.01, 0.9), (0.1, 0.5)] {
        let (pair, took) = stream_with_lost_acks(loss);
        assert!(pair.world.faults().lost > 5);
        assert_eq!(pair.count(B, Counter::OutOfSequence), 0, "requests were not lost");
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 0);
        assert_eq!(pair.count(B, Counter::RecvMessages), 2000);
        let share = without.as_secs_f64() / took.as_secs_f64();
        assert!(share >= least, "{loss} of the ACKs lost leave {share:.2} of the throughput");
    }
}

/// Lets A send a message after `reads` READs. B answers it at once, before B's lcore has sent
/// anything. Returns the opcodes that B then sends.
fn answered_at_once(pair: &mut Pair, reads: u32) -> Vec<OpCode> {
    let before = pair.seen(B).len();
    (0..reads).for_each(|_| {
        pair.read(A, 8);
    });
    pair.send(A, 8);
    pair.run_for(Duration::ZERO);
    pair.world.set_full_rate(1.0);
    let received = pair.count(B, Counter::RecvMessages);
    pair.run_until(|pair| pair.count(B, Counter::RecvMessages) > received);
    assert_eq!(pair.seen(B).len(), before, "B is held back");
    pair.send(B, 8);
    pair.world.set_full_rate(0.0);
    pair.run();
    pair.seen(B)[before..].iter().map(|seen| seen.bth.opcode).collect()
}

#[test] //= check A16 test
fn an_acknowledgement_goes_before_the_answer_to_its_message() {
    for (before, reads) in (0..40).flat_map(|before| [(before, 0), (before, 1), (before, 4)]) {
        let mut pair = Pair::rts();
        (0..=before).for_each(|_| {
            pair.recv(B, 8);
        });
        pair.recv(A, 8);
        // Earlier answers must not give the request precedence now.
        for number in 0..before {
            if number % 2 == 0 {
                pair.read(A, 8)
            } else {
                pair.send(A, 8)
            };
            pair.run();
        }
        let sent = answered_at_once(&mut pair, reads);
        let mut expected = vec![OpCode::RC_RDMA_READ_RESPONSE_ONLY; reads as usize];
        expected.extend([OpCode::RC_ACKNOWLEDGE, OpCode::RC_SEND_ONLY]);
        assert_eq!(sent, expected, "after {before}: {:#?}", pair.trace(10));
    }
}
