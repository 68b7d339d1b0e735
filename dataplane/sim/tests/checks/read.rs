//! Checks C: RDMA READ.

use core::time::Duration;

use uroce_sim::{Crafted, Pair, Rates, Rule};
use uroce_transport::{
    AccessFlags, Counter, DropReason, QpChange, QpState, SendOp, Side, WcStatus, ack_timeout,
};
use uroce_wire::{NakCode, OpCode, Reth, Rkey, Va};

use crate::scene::*;

/// Fills B's remote region with bytes that differ from each other.
fn paint(pair: &mut Pair) {
    let mr = pair.remote(B);
    for (at, byte) in pair.bytes_mut(B, mr).iter_mut().enumerate() {
        *byte = (at * 7 + at / 256) as u8;
    }
}

/// A crafted READ request of end A.
fn read_request(pair: &Pair, index: u32, offset: u64, dma_len: u32) -> Crafted {
    let (psn, va, rkey) = (pair.psn(A, index), pair.remote(B).va(offset), pair.remote(B).rkey());
    let request = pair.craft(A, OpCode::RC_RDMA_READ_REQUEST).psn(psn);
    request.ext(|ext| ext.reth = Reth { va, rkey, dma_len })
}

/// The READ requests that A has sent.
fn requests(pair: &Pair) -> Vec<Reth> {
    let mut seen = pair.seen(A);
    seen.retain(|seen| seen.bth.opcode == OpCode::RC_RDMA_READ_REQUEST);
    seen.iter().map(|seen| seen.ext.reth).collect()
}

#[test] //= check C1 test
fn a_read_is_answered_by_consecutive_packets_and_takes_as_many_psns() {
    use OpCode as O;
    for (len, packets) in [(0, 1), (1, 1), (256, 1), (257, 2), (512, 2), (513, 3), (1000, 4)] {
        let mut pair = Pair::rts();
        paint(&mut pair);
        pair.read(A, len);
        pair.write(A, 1);
        pair.run();
        let answers = pair.responses(B);
        let opcodes: Vec<OpCode> = answers.iter().map(|seen| seen.bth.opcode).collect();
        let mut expected = vec![O::RC_RDMA_READ_RESPONSE_MIDDLE; packets];
        expected[0] = O::RC_RDMA_READ_RESPONSE_FIRST;
        expected[packets - 1] = O::RC_RDMA_READ_RESPONSE_LAST;
        if packets == 1 {
            expected[0] = O::RC_RDMA_READ_RESPONSE_ONLY;
        }
        expected.push(O::RC_ACKNOWLEDGE);
        assert_eq!(opcodes, expected, "length {len}");
        for (index, answer) in answers.iter().enumerate() {
            assert_eq!(answer.bth.psn, pair.psn(A, index as u32));
        }
        assert_eq!(pair.sequence(A), [0, packets as i32], "the WRITE's PSN follows the answer's");
        assert_eq!(pair.landed(A, len), pair.target(B, len), "length {len}");
        assert_eq!(pair.take(A, Side::Send)[0].byte_len, len);
        assert_counted(&pair, A, &[("rdma_sends", 2)]);
        assert_counted(&pair, B, &[("rx_read_requests", 1), ("rx_write_requests", 1)]);
    }
}

#[test] //= check C2 test
fn for_a_lost_response_the_read_goes_on_from_there() {
    for lost in 0..4 {
        let mut pair = Pair::rts();
        paint(&mut pair);
        pair.rule(Rule::drop().from(B).psn(pair.psn(A, lost)).nth(1));
        pair.read(A, 5 * 256 - 10);
        pair.run();
        let offset = lost * 256;
        let again = Reth {
            va: pair.remote(B).va(u64::from(offset)),
            rkey: pair.remote(B).rkey(),
            dma_len: 5 * 256 - 10 - offset,
        };
        assert_eq!(requests(&pair)[1..], [again]);
        assert_eq!(pair.seen(A)[1].bth.psn, pair.psn(A, lost));
        let counted = [("implied_nak_seq_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
        assert!(pair.count(A, Counter::StaleResponse) <= 4);
        assert_counted_but(&pair, A, Counter::StaleResponse, &counted);
        assert_counted(&pair, B, &[("rx_read_requests", 1), ("duplicate_request", 1)]);
        assert_eq!(pair.landed(A, 1270), pair.target(B, 1270));
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check C3 test
fn for_a_lost_read_request_all_from_it_on_is_sent_again() {
    let mut pair = Pair::rts();
    paint(&mut pair);
    pair.rule(Rule::drop().from(A).nth(1));
    let wr_ids = [pair.read(A, 600), pair.write_far(A, 10)];
    pair.run();
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 0))]);
    assert_eq!(pair.sequence(A), [0, 3, 0, 3]);
    assert_eq!(pair.landed(A, 600), pair.target(B, 600));
    let counted = [("packet_seq_err", 1), ("retransmitted_packets", 2), ("rdma_sends", 2)];
    assert_counted(&pair, A, &counted);
    let counted = [("out_of_sequence", 1), ("rx_read_requests", 1), ("rx_write_requests", 1)];
    assert_counted(&pair, B, &counted);
    assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
}

#[test] //= check C4 test
fn for_a_lost_last_response_the_remainder_alone_is_asked_for() {
    let mut pair = Pair::rts();
    paint(&mut pair);
    pair.rule(Rule::drop().from(B).psn(pair.psn(A, 2)).nth(1));
    pair.read(A, 600);
    pair.run();
    assert_eq!(requests(&pair)[1].dma_len, 600 - 512);
    // The first response gave the round trip, so a probe asks before the ACK timer expires.
    let counted = [("roce_adp_retrans", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
    assert_counted(&pair, B, &[("rx_read_requests", 1), ("duplicate_request", 1)]);
    assert_eq!(pair.landed(A, 600), pair.target(B, 600));
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check C5 test
fn a_repeated_read_is_answered_from_memory_again() {
    let mut pair = Pair::rts();
    let request = read_request(&pair, 0, 0, 600);
    pair.deliver(A, &request);
    let mr = pair.remote(B);
    pair.bytes_mut(B, mr)[..600].fill(0x77);
    pair.deliver(A, &request);
    let answers = pair.responses(B);
    assert_eq!(answers.len(), 6);
    for (first, second) in answers[..3].iter().zip(&answers[3..]) {
        assert_eq!((first.bth, first.ext.aeth.msn), (second.bth, second.ext.aeth.msn));
        assert!(second.payload.iter().all(|byte| *byte == 0x77));
    }
    let next = pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(pair.psn(A, 3));
    pair.deliver(A, &next);
    assert_eq!(pair.responses(B)[6].bth.psn, pair.psn(A, 3), "it is still the next expected");
    assert_eq!(pair.responses(B)[6].ext.aeth.msn.value(), 2);
    let counted = [("rx_read_requests", 1), ("duplicate_request", 1), ("rx_write_requests", 1)];
    assert_counted(&pair, B, &counted);
}

/// Lets a late copy of a READ request make end B repeat its answer, one packet a turn. Once
/// `is_enough`, the memory is deregistered.
fn repeated_read_without_memory(is_enough: impl Fn(&Pair) -> bool) -> Pair {
    let mut pair = Pair::with(|terms| terms.settings.budget = 1);
    pair.read(A, 20 * 256);
    pair.run();
    only_success(&mut pair, A, Side::Send);
    let request = read_request(&pair, 0, 0, 20 * 256);
    pair.deliver(A, &request);
    pair.run_until(is_enough);
    let mr = pair.remote(B);
    pair.world.node_mut(1).memory.deregister(mr);
    pair
}

#[test] //= check C7 test
fn a_repeated_read_whose_memory_is_gone_is_dropped_and_the_connection_lives() {
    for repeated in [0, 3] {
        let mut pair =
            repeated_read_without_memory(|pair| pair.responses(B).len() >= 20 + repeated);
        let answers = pair.responses(B).len();
        // The peer has had its answer, so later requests are not affected.
        let recv = pair.recv(B, 10);
        let send = pair.send(A, 10);
        pair.run();
        assert_eq!(naks(&pair, B), []);
        assert_eq!(pair.responses(B).len(), answers + 1, "the SEND's acknowledgement alone");
        assert_all_succeeded(&mut pair, A, Side::Send, &[send]);
        assert_all_succeeded(&mut pair, B, Side::Recv, &[recv]);
        assert_eq!(pair.take_events(B), []);
    }
}

#[test] //= check F4 test
fn a_repeated_read_is_dropped_once_the_qp_grants_none() {
    let mut pair = Pair::rts();
    let request = read_request(&pair, 0, 0, 600);
    pair.deliver(A, &request);
    let change = QpChange { access: Some(AccessFlags::empty()), ..QpChange::to(QpState::Rts) };
    pair.modify(B, &change).unwrap();
    pair.deliver(A, &request);
    assert_eq!(pair.responses(B).len(), 3, "no byte leaves that was not granted any more");
    assert_eq!(pair.drops(B, DropReason::OldRead), 1);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
}

#[test] //= check C6 test
fn a_repeated_read_of_other_bytes_is_dropped() {
    let mut pair = Pair::rts();
    let request = read_request(&pair, 0, 512, 600);
    pair.deliver(A, &request);
    let others = [
        read_request(&pair, 0, 512, 601),
        read_request(&pair, 0, 511, 600),
        read_request(&pair, 0, 0, 600),
        read_request(&pair, 1, 512 + 256, 600),
        request.clone().ext(|ext| ext.reth.rkey = Rkey(ext.reth.rkey.0 ^ 1)),
    ];
    for other in &others {
        pair.deliver(A, other);
    }
    assert_eq!(pair.responses(B).len(), 3);
    let dropped = others.len() as u64;
    let counted =
        [("rx_read_requests", 1), ("duplicate_request", dropped), ("rx_old_read", dropped)];
    assert_counted(&pair, B, &counted);
    assert_eq!(pair.qp(B).state(), QpState::Rts);
}

#[test] //= check C7 test
fn a_repeated_read_that_is_too_old_is_dropped() {
    let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 2);
    for index in 0..3 {
        let request = read_request(&pair, index, 0, 10);
        pair.deliver(A, &request);
    }
    let oldest = read_request(&pair, 0, 0, 10);
    pair.deliver(A, &oldest);
    assert_eq!(pair.responses(B).len(), 3);
    let counted = [("rx_read_requests", 3), ("duplicate_request", 1), ("rx_old_read", 1)];
    assert_counted(&pair, B, &counted);
    let kept = read_request(&pair, 1, 0, 10);
    pair.deliver(A, &kept);
    assert_eq!(pair.responses(B).len(), 4);
}

#[test] //= check C8 test
fn an_ack_behind_an_unanswered_read_asks_for_the_read_again() {
    let mut pair = Pair::rts();
    paint(&mut pair);
    pair.rule(Rule::drop().from(B).opcode(OpCode::RC_RDMA_READ_RESPONSE_ONLY).nth(1));
    pair.recv(B, 10);
    let wr_ids = [pair.read(A, 100), pair.send(A, 10), pair.write_far(A, 10)];
    pair.run_until(|pair| pair.count(A, Counter::ImpliedNakSeqErr) == 1);
    assert_eq!(pair.take(A, Side::Send), [], "the SEND's ACK is here, but the READ is not done");
    pair.run();
    assert_eq!(pair.sequence(A), [0, 1, 2, 0, 1, 2]);
    let counted = [("implied_nak_seq_err", 1), ("retransmitted_packets", 3), ("rdma_sends", 3)];
    assert_counted_but(&pair, A, Counter::StaleResponse, &counted);
    assert_eq!(pair.count(B, Counter::RecvMessages), 1);
    assert_eq!(pair.landed(A, 100), pair.target(B, 100));
    assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
}

#[test] //= check C2 test
fn while_the_former_answer_still_comes_the_read_is_not_asked_for_again() {
    let mut pair = Pair::with(|terms| terms.half[A].timeout = 8);
    let timeout = ack_timeout(8).unwrap();
    pair.rule(Rule::drop().from(A));
    pair.read(A, 8 * 256);
    pair.run_for(SHORTLY);
    let answer = |index| {
        let psn = pair.psn(A, index);
        pair.craft(B, OpCode::RC_RDMA_READ_RESPONSE_MIDDLE).psn(psn).payload(&[0x44; 256])
    };
    let answers: Vec<Crafted> = (1..8).map(answer).collect();
    for answer in &answers {
        pair.deliver(B, answer);
        pair.run_for(timeout * 3 / 4);
    }
    assert_eq!(requests(&pair).len(), 2, "the READ, and again since its first answer is missing");
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    pair.deliver(B, &answers[6]); // a copy has no effect
    pair.run_for(timeout / 2);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 1);
    assert_eq!(requests(&pair).len(), 3);
}

#[test] //= check C9 test
fn a_late_duplicate_of_a_response_changes_nothing() {
    let mut pair = Pair::rts();
    paint(&mut pair);
    pair.rule(Rule::duplicate(2 * SHORTLY).from(B));
    pair.read(A, 600);
    pair.run_for(SHORTLY);
    only_success(&mut pair, A, Side::Send);
    let mr = pair.local(A);
    pair.bytes_mut(A, mr).fill(0x33);
    pair.run();
    assert!(pair.bytes(A, mr).iter().all(|byte| *byte == 0x33));
    assert_counted(&pair, A, &[("stale_response", 3), ("rdma_sends", 1)]);
    assert_counted(&pair, B, &[("rx_read_requests", 1)]);
}

/// Delivers crafted answers to a READ of 600 bytes (three packets); the last one is wrong.
fn assert_wrong_answer(good: u32, opcode: OpCode, len: usize, status: WcStatus) {
    let mut pair = Pair::rts();
    pair.rule(Rule::drop().from(A));
    let mr = pair.local(A);
    let landing = mr.len() as usize / 2;
    pair.bytes_mut(A, mr)[landing..].fill(0);
    let wr_id = pair.read(A, 600);
    let answer = |index: u32, opcode, len: usize| {
        let psn = pair.psn(A, index);
        pair.craft(B, opcode).psn(psn).payload(&vec![0x44; len])
    };
    let mut answers = vec![
        answer(0, OpCode::RC_RDMA_READ_RESPONSE_FIRST, 256),
        answer(1, OpCode::RC_RDMA_READ_RESPONSE_MIDDLE, 256),
    ];
    answers.truncate(good as usize);
    answers.push(answer(good, opcode, len));
    for answer in &answers {
        pair.deliver(B, answer);
    }
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, status)], "{opcode} {len}");
    assert_eq!(pair.qp(A).state(), QpState::Err);
    let written = good as usize * 256;
    let rest = &pair.bytes(A, mr)[landing + written..];
    assert!(rest.iter().all(|byte| *byte == 0), "bytes of a wrong answer were written");
}

#[test] //= check C10 test
fn a_response_of_the_wrong_length_or_place_fails_the_read() {
    use OpCode as O;
    let wrong = [
        (0, O::RC_RDMA_READ_RESPONSE_FIRST, 252),
        (0, O::RC_RDMA_READ_RESPONSE_FIRST, 260),
        (0, O::RC_RDMA_READ_RESPONSE_ONLY, 256),
        (1, O::RC_RDMA_READ_RESPONSE_MIDDLE, 252),
        (1, O::RC_RDMA_READ_RESPONSE_LAST, 256),
        (2, O::RC_RDMA_READ_RESPONSE_LAST, 87),
        (2, O::RC_RDMA_READ_RESPONSE_LAST, 89),
        (2, O::RC_RDMA_READ_RESPONSE_LAST, 0),
        (2, O::RC_RDMA_READ_RESPONSE_MIDDLE, 88),
        (2, O::RC_RDMA_READ_RESPONSE_MIDDLE, 256),
    ];
    for (good, opcode, len) in wrong {
        assert_wrong_answer(good, opcode, len, WcStatus::LocLenErr);
    }
}

#[test] //= check C11 test
fn an_atomic_answer_to_a_read_is_a_bad_response() {
    for good in 0..3 {
        assert_wrong_answer(good, OpCode::RC_ATOMIC_ACKNOWLEDGE, 0, WcStatus::BadRespErr);
    }
}

#[test] //= check C11 test
fn a_read_answer_to_a_write_or_an_atomic_is_a_bad_response() {
    let posts: [fn(&mut Pair) -> u64; 2] = [|pair| pair.write(A, 10), |pair| pair.fetch_add(A, 1)];
    for post in posts {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A));
        let wr_id = post(&mut pair);
        let psn = pair.psn(A, 0);
        let answer = pair.craft(B, OpCode::RC_RDMA_READ_RESPONSE_ONLY).psn(psn);
        pair.deliver(B, &answer.payload(&[1; 8]));
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::BadRespErr)]);
    }
}

#[test] //= check C12 test
fn never_more_than_max_rd_atomic_reads_are_outstanding() {
    for max in 1..=16 {
        let mut pair = Pair::with(|terms| {
            terms.half[A].max_rd_atomic = max;
            terms.half[B].max_dest_rd_atomic = 16;
        });
        paint(&mut pair);
        let wr_ids: Vec<u64> = (0..4 * max).map(|_| pair.read(A, 10)).collect();
        pair.run_for(Duration::from_nanos(900)); // no answer has arrived yet
        assert_eq!(requests(&pair).len(), usize::from(max));
        pair.run();
        assert_eq!(requests(&pair).len(), wr_ids.len());
        let (asked, answered) = (pair.seen(A), pair.responses(B));
        for (index, seen) in asked.iter().enumerate() {
            let arrived = |answer: &&uroce_sim::Seen| answer.at < seen.at;
            let open = index + 1 - answered.iter().filter(arrived).count();
            assert!(open <= usize::from(max), "{open} at once, {max} agreed");
        }
        assert_all_succeeded(&mut pair, A, Side::Send, &wr_ids);
    }
}

#[test] //= check C12 test
fn a_peer_that_keeps_more_answers_than_we_do_is_asked_for_them() {
    let mut pair = Pair::with(|terms| terms.half[A].max_rd_atomic = 128);
    for _ in 0..130 {
        pair.read(A, 10);
    }
    pair.run_for(Duration::from_nanos(900)); // no answer has arrived yet
    assert_eq!(requests(&pair).len(), 128);
}

#[test] //= check C12 test
fn reads_and_atomics_share_the_limit() {
    let mut pair = Pair::with(|terms| terms.half[A].max_rd_atomic = 3);
    for _ in 0..4 {
        pair.read(A, 10);
        pair.fetch_add(A, 1);
        pair.compare_swap(A, 1, 2);
    }
    let mut most = 0;
    while pair.world.step() != uroce_sim::Step::Idle {
        // Requests sent, minus those answered on the wire.
        most = most.max(pair.sequence(A).len() - pair.responses(B).len());
    }
    assert_eq!(most, 3);
    assert_eq!(pair.take(A, Side::Send).len(), 12);
}

#[test] //= check C12 test
fn with_max_rd_atomic_0_a_read_fails_and_none_is_sent() {
    let mut pair = Pair::with(|terms| terms.half[A].max_rd_atomic = 0);
    let wr_id = pair.read(A, 10);
    pair.run();
    assert_eq!(pair.sequence(A), []);
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::LocQpOpErr)]);
}

#[test] //= check C13 test
fn more_reads_at_once_than_agreed_are_refused() {
    for last in [OpCode::RC_RDMA_READ_REQUEST, OpCode::RC_FETCH_ADD, OpCode::RC_COMPARE_SWAP] {
        let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 2);
        pair.world.set_full_rate(1.0); // no answer can be sent
        for index in 0..2 {
            let request = read_request(&pair, index, 0, 10);
            pair.deliver(A, &request);
        }
        let one_more = pair.craft(A, last).psn(pair.psn(A, 2));
        pair.deliver(A, &one_more);
        pair.world.set_full_rate(0.0);
        pair.run();
        assert_refused(&pair, NakCode::InvalidRequest);
        let opcodes: Vec<OpCode> = pair.responses(B).iter().map(|seen| seen.bth.opcode).collect();
        let only = OpCode::RC_RDMA_READ_RESPONSE_ONLY;
        assert_eq!(opcodes, [only, only, OpCode::RC_ACKNOWLEDGE], "the agreed ones are answered");
        assert!(pair.is_untouched_from(B, 0));
        let counted = [("rx_read_requests", 2), ("resp_remote_invalid_requests", 1)];
        assert_counted(&pair, B, &counted);
    }
}

#[test] //= check C13 test
fn a_late_duplicate_of_a_read_does_not_count_as_one_more() {
    let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 1);
    let first = read_request(&pair, 0, 0, 10);
    pair.deliver(A, &first);
    pair.world.set_full_rate(1.0);
    pair.deliver(A, &first); // it is answered again when there is room
    let second = read_request(&pair, 1, 0, 10);
    pair.deliver(A, &second);
    pair.world.set_full_rate(0.0);
    pair.run();
    assert_eq!(naks(&pair, B), []);
    assert_eq!(pair.responses(B).last().unwrap().bth.psn, pair.psn(A, 1));
}

#[test] //= check C14 test
fn with_max_dest_rd_atomic_0_reads_and_atomics_are_refused() {
    for opcode in [OpCode::RC_RDMA_READ_REQUEST, OpCode::RC_FETCH_ADD, OpCode::RC_COMPARE_SWAP] {
        let mut pair = Pair::with(|terms| terms.half[B].max_dest_rd_atomic = 0);
        let request = pair.craft(A, opcode);
        pair.deliver(A, &request);
        assert_refused(&pair, NakCode::InvalidRequest);
    }
}

#[test] //= check C16 test
fn a_read_of_nothing_succeeds_with_any_key() {
    let mut pair = Pair::rts();
    let op = SendOp::Read { va: Va(12345), rkey: Rkey(0xdead) };
    let wr_id = pair.post(A, op, &[]);
    pair.run();
    assert_eq!(pair.responses(B)[0].bth.opcode, OpCode::RC_RDMA_READ_RESPONSE_ONLY);
    assert_all_succeeded(&mut pair, A, Side::Send, &[wr_id]);
}

#[test] //= check C17 test
fn a_read_of_more_than_2_to_the_31_bytes_is_an_invalid_request() {
    for (len, code) in [
        ((1 << 31) + 1, NakCode::InvalidRequest),
        (u32::MAX, NakCode::InvalidRequest),
        // The length is allowed, but the region is smaller.
        (1 << 31, NakCode::RemoteAccessError),
    ] {
        let mut pair = Pair::rts();
        let request = read_request(&pair, 0, 0, len);
        pair.deliver(A, &request);
        assert_refused(&pair, code);
    }
}

#[test] //= check C18 test
fn memory_that_is_gone_in_the_middle_ends_the_read_with_a_nak() {
    let mut pair = Pair::with(|terms| terms.settings.budget = 1);
    paint(&mut pair);
    let wr_id = pair.read(A, 20 * 256);
    pair.run_until(|pair| pair.responses(B).len() == 3);
    let mr = pair.remote(B);
    pair.world.node_mut(1).memory.deregister(mr);
    pair.run();
    assert_eq!(naks(&pair, B), [(NakCode::RemoteAccessError, pair.psn(A, 3))]);
    assert_eq!(pair.responses(B).len(), 4, "no data leaves after the key is gone");
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RemAccessErr)]);
    assert_eq!(pair.qp(B).state(), QpState::Err);
}

#[test] //= check C19 test
fn reads_writes_and_sends_complete_in_the_order_they_were_posted() {
    let mut pair = Pair::with(|terms| terms.settings.seed = 19);
    paint(&mut pair);
    let rates = Rates { loss: 0.01, ..Rates::NONE };
    pair.world.set_rates(A as u16, B as u16, rates);
    pair.world.set_rates(B as u16, A as u16, rates);
    let mut sends = Vec::new();
    for _ in 0..10 {
        for round in 0..24 {
            sends.push(match round % 3 {
                0 => pair.read(A, 1000),
                1 => pair.write_far(A, 700),
                _ => {
                    pair.recv(B, 500);
                    pair.send(A, 500)
                }
            });
        }
        pair.run();
    }
    assert!(pair.world.faults().lost > 10, "{:?}", pair.world.faults());
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}
