//! Checks A: sequence numbers, acknowledgements, go-back-N.

use core::time::Duration;

use uroce_sim::{At, Crafted, Pair, Rule};
use uroce_transport::{Counter, DropReason, QpChange, QpState, Side, WcStatus};
use uroce_wire::{NakCode, OpCode, Psn};

use crate::scene::*;

/// Shortest silence after which a probe is sent.
const QUIET_MIN: Duration = Duration::from_micros(50);

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
        let again = 8 - u64::from(lost);
        let counted = [("packet_seq_err", 1), ("retransmitted_packets", again), ("rdma_sends", 1)];
        assert_counted(&pair, A, &counted);
        // The first packet after the gap is NAKed, the later ones are dropped.
        let counted =
            [("out_of_sequence", 1), ("rx_after_nak", again - 2), ("rx_write_requests", 1)];
        assert_counted(&pair, B, &counted);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A2 test
fn a_packet_lost_twice_is_asked_for_again_only_by_what_follows_it_again() {
    for lost in 0..7 {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(2));
        pair.write(A, 8 * 256);
        pair.run();
        assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, lost)); 2]);
        let again = lost as i32..8;
        assert_eq!(pair.sequence(A), runs(&[upto(8), again.clone(), again]));
        assert_eq!(pair.target(B, 8 * 256), pair.source(A, 8 * 256));
        let again = 8 - u64::from(lost);
        let counted =
            [("packet_seq_err", 2), ("retransmitted_packets", 2 * again), ("rdma_sends", 1)];
        assert_counted(&pair, A, &counted);
        let unseen = 2 * (again - 2);
        let counted = [("out_of_sequence", 2), ("rx_after_nak", unseen), ("rx_write_requests", 1)];
        assert_counted(&pair, B, &counted);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A2 test
fn a_packet_lost_twice_with_nothing_after_it_comes_by_the_timer() {
    let mut pair = Pair::rts();
    let last = pair.psn(A, 1);
    pair.rule(Rule::drop().from(A).psn(last).nth(1));
    pair.rule(Rule::drop().from(A).psn(last).nth(2));
    pair.write(A, 2 * 256);
    pair.run();
    assert_eq!(naks(&pair, B), []);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 2);
    only_success(&mut pair, A, Side::Send);
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
    // Three duplicates are acknowledged three times; the copies of an ACK have no effect.
    let counted = [
        ("local_ack_timeout_err", 1),
        ("retransmitted_packets", 4),
        ("stale_response", 2),
        ("rdma_sends", 1),
    ];
    assert_counted(&pair, A, &counted);
    assert_counted(&pair, B, &[("duplicate_request", 3), ("rx_write_requests", 1)]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check A23 test
fn a_lost_tail_is_looked_for_by_probes_once_the_round_trip_is_known() {
    for tail in 1..5 {
        let mut pair = Pair::rts();
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, 2 + tail)).nth(1));
        let sends = [pair.write(A, 3 * 256), pair.write(A, tail * 256)];
        pair.run();
        let tail = tail as i32;
        // A probe of the oldest packet; if the peer had it, the answer shows how much more it has.
        let again: &[i32] = if tail == 1 { &[3] } else { &[3, 2 + tail] };
        assert_eq!(pair.sequence(A), [&runs(&[upto(3 + tail)])[..], again].concat());
        let seen = pair.seen(A);
        let probe = &seen[3 + tail as usize];
        assert!(probe.bth.ack_req);
        let waited = probe.at.since(seen[2 + tail as usize].at);
        assert!((QUIET_MIN..2 * QUIET_MIN).contains(&waited), "{waited:?}");
        assert_eq!(naks(&pair, B), []);
        // An answer to the probe alone needs no second probe.
        let counted = [
            ("roce_adp_retrans", if tail < 3 { 1 } else { 2 }),
            ("retransmitted_packets", again.len() as u64),
            ("rdma_sends", 2),
        ];
        assert_counted(&pair, A, &counted);
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    }
}

#[test] //= check A23 test
fn an_answer_to_the_probe_alone_shows_that_what_followed_was_lost() {
    let mut pair = Pair::rts();
    let mut sends = vec![pair.write(A, 256)];
    pair.run();
    // Everything of the second message is lost: no NAK, and no duplicate to be acknowledged.
    for position in 1..5 {
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, position)).nth(1));
    }
    sends.push(pair.write(A, 4 * 256));
    pair.run();
    assert_eq!(pair.sequence(A), [0, 1, 2, 3, 4, 1, 2, 3, 4]);
    let counted = [("roce_adp_retrans", 1), ("retransmitted_packets", 4), ("rdma_sends", 2)];
    assert_counted(&pair, A, &counted);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
}

#[test] //= check A23 test
fn probes_end_long_before_a_long_timeout() {
    // A timeout of 8.6 seconds.
    let mut pair = Pair::with(|terms| {
        (terms.half[A].timeout, terms.half[A].retry_cnt) = (21, 1);
    });
    pair.write(A, 256);
    pair.run();
    pair.cut(0);
    pair.write(A, 256);
    pair.run();
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 2);
    assert_eq!(pair.count(A, Counter::TailProbes), 17, "then the ACK timer alone is left");
}

#[test] //= check A23 test
fn a_slow_qp_has_its_answers_before_it_would_probe() {
    let mut pair = Pair::with(|terms| terms.settings.latency = Duration::from_micros(5));
    pair.write(A, 256);
    pair.run();
    // 10 µs for a packet, 320 µs for as many as go without AckReq otherwise.
    let rate_limit = Some(262_000);
    pair.modify(A, &QpChange { rate_limit, ..QpChange::default() }).expect("a QP in RTS");
    pair.write(A, 100_000);
    pair.run();
    assert_eq!(pair.count(A, Counter::TailProbes), 0);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
}

#[test] //= check A23 test
fn probes_are_spread_and_charge_nothing() {
    for retry_cnt in [0, 2] {
        let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = retry_cnt);
        pair.write(A, 256);
        pair.run();
        pair.take(A, Side::Send);
        pair.cut(0);
        let wr_id = pair.write(A, 256);
        pair.run();
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RetryExcErr)]);
        // In a timeout of 1 ms after 50, 100, 200, 400 and 800 µs.
        let timeouts = u64::from(retry_cnt) + 1;
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), timeouts);
        assert!(pair.count(A, Counter::TailProbes) <= 5 * timeouts);
        assert!(pair.count(A, Counter::TailProbes) >= 5);
    }
}

/// A delay that swaps two packets, each of which takes some 27 ns on the link.
const SWAP: Duration = Duration::from_nanos(40);

#[test] //= check A8 test
fn two_swapped_packets_are_executed_once_each() {
    for first in 0..6 {
        let mut pair = Pair::rts();
        pair.rule(Rule::delay(SWAP).from(A).psn(pair.psn(A, first)).nth(1));
        pair.recv(B, 8 * 256);
        pair.send(A, 8 * 256);
        pair.run();
        let naks = naks(&pair, B);
        assert_eq!(naks[0], (NakCode::PsnSequenceError, pair.psn(A, first)));
        assert!(naks.iter().all(|(code, _)| *code == NakCode::PsnSequenceError));
        assert_eq!(pair.count(B, Counter::OutOfSequence), naks.len() as u64);
        assert_eq!(pair.count(B, Counter::RecvMessages), 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert_eq!(pair.received_bytes(B, 8 * 256), pair.source(A, 8 * 256));
        assert_eq!(only_success(&mut pair, B, Side::Recv).byte_len, 8 * 256);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A9 test
fn a_swap_across_two_messages_is_no_invalid_request() {
    type Post = fn(&mut Pair) -> u64;
    let posts: [Post; 2] = [|pair| pair.send(A, 512), |pair| pair.write_imm(A, 512, 7)];
    for (first, second) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mut pair = Pair::rts();
        pair.rule(Rule::delay(SWAP).from(A).psn(pair.psn(A, 1)).nth(1));
        let recvs = [pair.recv(B, 600), pair.recv(B, 600)];
        let sends = [posts[first](&mut pair), posts[second](&mut pair)];
        pair.run();
        let naks = naks(&pair, B);
        assert_eq!(naks[0], (NakCode::PsnSequenceError, pair.psn(A, 1)));
        assert!(naks.iter().all(|(code, _)| *code == NakCode::PsnSequenceError));
        assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
        assert_all_succeeded(&mut pair, A, Side::Send, &sends);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

#[test] //= check A10 test
fn a_nak_that_comes_twice_rewinds_once() {
    for lag in [0, 1, 100, 500, 1_000] {
        // One retry is enough: the second NAK must not be charged. It arrives before all seven
        // packets are sent again, because one is sent every 200 ns.
        let mut pair = Pair::with(|terms| {
            terms.half[A].retry_cnt = 1;
            terms.settings.budget = 1;
        });
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(1));
        // The first answer is the NAK. The ACK of the repeated packets is late, so nothing
        // advances.
        pair.rule(Rule::duplicate(Duration::from_nanos(lag)).from(B).nth(1));
        pair.rule(Rule::delay(2 * SHORTLY).from(B).nth(2));
        pair.write(A, 8 * 256);
        pair.run();
        assert_eq!(pair.sequence(A), runs(&[upto(8), 1..8]), "lag {lag} ns");
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 1, "charged once");
        assert_eq!(pair.count(A, Counter::RetransmittedPackets), 7);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 1))]);
        only_success(&mut pair, A, Side::Send);
    }
}

/// A pair in which end B owes a NAK for PSN 1: PSNs 0 and 2 have arrived, and the sink is full.
fn owing_a_nak() -> Pair {
    let mut pair = Pair::rts();
    pair.world.set_full_rate(1.0);
    for index in [0, 2] {
        let packet = write_only(&pair, index);
        pair.deliver(A, &packet);
    }
    pair
}

pub(crate) fn write_only(pair: &Pair, index: u32) -> Crafted {
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
    // PSN 2 was dropped because it came too early; without the NAK only the timer would repeat it.
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 2))]);
    assert_eq!(pair.responses(B).len(), 1);
}

#[test] //= check A16 test
fn a_nak_that_is_owed_becomes_an_ack_when_all_that_was_dropped_has_come() {
    let mut pair = owing_a_nak();
    for index in [1, 2] {
        let packet = write_only(&pair, index);
        pair.deliver(A, &packet);
    }
    pair.world.set_full_rate(0.0);
    pair.run();
    assert_eq!(naks(&pair, B), [], "no packet with PSN 3 was sent");
    assert_eq!(acks(&pair, B), [(pair.psn(A, 2), 3)]);
    // The next gap is NAKed.
    let packet = write_only(&pair, 4);
    pair.deliver(A, &packet);
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, 3))]);
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
        assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, pair.psn(A, lost))]);
        // The READ request is at position 8; its three responses use three PSNs.
        let lost = lost as i32;
        assert_eq!(pair.sequence(A), runs(&[upto(9), lost..9]));
        assert_eq!(pair.count(B, Counter::DuplicateRequest), 1);
        assert_eq!(pair.count(B, Counter::OutOfSequence), 1);
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert_eq!(pair.take(A, Side::Send).len(), 2);
        assert_eq!(pair.qp(A).state(), QpState::Rts);
    }
}

#[test] //= check A14 test
fn a_read_whose_answer_wraps_is_repaired_too() {
    for lost in 0..4 {
        let mut pair = Pair::with(|terms| terms.half[A].sq_psn = Psn::new(0xff_fffe));
        pair.rule(Rule::drop().from(B).psn(pair.psn(A, lost)).nth(1));
        pair.read(A, 5 * 256);
        pair.run();
        assert_eq!(pair.sequence(A), [0, lost as i32]);
        assert_eq!(pair.landed(A, 5 * 256), pair.target(B, 5 * 256));
        assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1);
        only_success(&mut pair, A, Side::Send);
    }
}

#[test] //= check A15 test
fn half_of_the_psns_are_behind_the_expected_one_and_half_ahead() {
    let mut pair = Pair::rts();
    let expected = pair.psn(A, 0);
    let write = |pair: &Pair, psn| pair.craft(A, OpCode::RC_RDMA_WRITE_ONLY).psn(psn);
    let behind = write(&pair, expected.minus(1 << 23));
    pair.deliver(A, &behind);
    assert_counted(&pair, B, &[("duplicate_request", 1)]);
    assert_eq!(naks(&pair, B), []);
    let ahead = write(&pair, expected.plus((1 << 23) - 1));
    pair.deliver(A, &ahead);
    assert_counted(&pair, B, &[("duplicate_request", 1), ("out_of_sequence", 1)]);
    assert_eq!(naks(&pair, B), [(NakCode::PsnSequenceError, expected)]);
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
    // Once the missing packet has arrived, the fault is NAKed when it comes again.
    let missing = at(&pair, OpCode::RC_RDMA_WRITE_ONLY, 0);
    pair.deliver(A, &missing);
    let no_first = no_first.psn(pair.psn(A, 1));
    pair.deliver(A, &no_first);
    let both =
        [(NakCode::PsnSequenceError, pair.psn(A, 0)), (NakCode::InvalidRequest, pair.psn(A, 1))];
    assert_eq!(naks(&pair, B), both);
    assert_eq!(pair.qp(B).state(), QpState::Err);
}

/// Bytes that each connection of [`on_64_connections`] carries.
const SHARE: u32 = 4 * 256;

/// Posts a WRITE on each of 64 connections between two nodes; the first connection loses packets.
fn on_64_connections(losses: u32) -> (Pair, Vec<[At; 2]>) {
    let mut pair = Pair::rts();
    let others: Vec<[At; 2]> = (1..64).map(|_| pair.another()).collect();
    for nth in 1..=losses {
        pair.rule(Rule::drop().from(A).to(pair.qpn(B)).psn(pair.psn(A, 2)).nth(nth));
    }
    pair.write(A, SHARE);
    let sge = pair.local(A).sge(0, SHARE);
    for (index, [at, _]) in others.iter().enumerate() {
        let wr = pair.send_wr(pair.write_op(A, (1 + index as u32) * SHARE, None));
        pair.world.post_send(*at, &wr, &[sge]).unwrap();
    }
    pair.run();
    (pair, others)
}

#[test] //= check A20 test
fn loss_on_one_connection_is_not_felt_on_63_others() {
    for losses in 0..4 {
        let (mut pair, others) = on_64_connections(losses);
        only_success(&mut pair, A, Side::Send);
        for (index, [at, peer]) in others.iter().enumerate() {
            let cqes = pair.take_at(*at, Side::Send);
            assert_eq!(cqes.len(), 1);
            assert_eq!(cqes[0].status, WcStatus::Success);
            let sent = pair.seen(A).into_iter();
            let sent = sent.filter(|seen| seen.bth.dest_qpn == pair.world.qp(*peer).qpn());
            let psns: Vec<Psn> = sent.map(|seen| seen.bth.psn).collect();
            assert_eq!(psns, (0..4).map(|at| pair.psn(A, at)).collect::<Vec<Psn>>());
            let offset = (1 + index as u32) * SHARE;
            assert_eq!(pair.slice(B, pair.remote(B), offset, SHARE), pair.source(A, SHARE));
        }
        // Only the first connection has repeated or delayed packets.
        let again = pair.sequence(A).len() as u64 - 64 * 4;
        assert_eq!(again, 2 * u64::from(losses));
        let counted = [
            ("packet_seq_err", u64::from(losses)),
            ("retransmitted_packets", again),
            ("rdma_sends", 64),
        ];
        assert_counted(&pair, A, &counted);
    }
}
