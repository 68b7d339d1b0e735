//! Checks B: timers, retries, receivers that are not ready.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{Counter, QpState, Side, WcStatus, ack_timeout, rnr_timeout};
use uroce_wire::{OpCode, Syndrome};

use crate::scene::*;

#[test] //= check B1 test
fn no_packet_is_sent_again_before_its_timeout_nor_long_after_it() {
    for code in 1..=31 {
        let mut pair = Pair::with(|terms| terms.half[A].timeout = code);
        pair.rule(Rule::drop().from(A));
        pair.write(A, 10);
        pair.run();
        let timeout = ack_timeout(code).unwrap();
        let seen = pair.seen(A);
        assert_eq!(seen.len(), 8, "code {code}");
        for pair_of in seen.windows(2) {
            let waited = pair_of[1].at.since(pair_of[0].at);
            assert!((timeout..=4 * timeout).contains(&waited), "code {code}: {waited:?}");
        }
        let counted = [
            ("local_ack_timeout_err", 8),
            ("retransmitted_packets", 7),
            ("req_transport_retries_exceeded", 1),
            ("req_cqe_error", 1),
        ];
        assert_counted(&pair, A, &counted);
    }
}

#[test] //= check B2 test
fn with_timeout_0_nothing_is_ever_sent_again() {
    let mut pair = Pair::with(|terms| terms.half[A].timeout = 0);
    pair.rule(Rule::drop().from(A));
    pair.write(A, 10);
    pair.run();
    assert_eq!(pair.sequence(A), [0]);
    assert_eq!(pair.qp(A).next_timeout(), None);
    assert_counted(&pair, A, &[]);
    assert_eq!(pair.take(A, Side::Send), []);
    assert_eq!(pair.qp(A).state(), QpState::Rts);
}

#[test] //= check B3 test
fn the_oldest_packet_is_sent_retry_cnt_times_again_and_then_all_is_given_up() {
    for retry_cnt in 0..=7 {
        let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = retry_cnt);
        pair.rule(Rule::drop().from(A));
        let first = pair.write(A, 10);
        let second = pair.write(A, 10);
        let recv = pair.recv(A, 10);
        pair.run();
        let sent = pair.sequence(A).iter().filter(|psn| **psn == 0).count();
        assert_eq!(sent, usize::from(retry_cnt) + 1);
        let expected = [(first, WcStatus::RetryExcErr), (second, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected);
        assert_eq!(statuses(&mut pair, A, Side::Recv), [(recv, WcStatus::WrFlushErr)]);
        assert_eq!(pair.qp(A).state(), QpState::Err);
        let retries = u64::from(retry_cnt);
        let counted = [
            ("local_ack_timeout_err", retries + 1),
            ("retransmitted_packets", 2 * retries),
            ("req_transport_retries_exceeded", 1),
            ("req_cqe_error", 1),
            ("req_cqe_flush_error", 1),
            ("resp_cqe_flush_error", 1),
        ];
        assert_counted(&pair, A, &counted);
    }
}

#[test] //= check B4 test
fn the_retry_counter_begins_anew_after_progress() {
    let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = 2);
    for index in 0..4 {
        for nth in [1, 2] {
            pair.rule(Rule::drop().from(A).psn(pair.psn(A, index)).nth(nth));
        }
    }
    for _ in 0..4 {
        pair.write(A, 10);
        pair.run();
        only_success(&mut pair, A, Side::Send);
    }
    let counted = [("local_ack_timeout_err", 8), ("retransmitted_packets", 8), ("rdma_sends", 4)];
    assert_counted(&pair, A, &counted);
}

#[test] //= check B5 test
fn a_sequence_nak_that_comes_again_and_again_ends_in_the_retry_error() {
    let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = 3);
    pair.rule(Rule::drop().from(A));
    pair.write(A, 10);
    let psn = pair.psn(A, 0);
    let nak = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn).ext(|ext| {
        ext.aeth.syndrome = Syndrome::Nak(uroce_wire::NakCode::PsnSequenceError);
    });
    for _ in 0..20 {
        pair.run_for(TIMEOUT / 2);
        pair.deliver(B, &nak);
    }
    assert_eq!(statuses(&mut pair, A, Side::Send), [(1, WcStatus::RetryExcErr)]);
    assert!(pair.sequence(A).len() <= 4, "{:?}", pair.sequence(A));
}

/// Duration of each RNR timer code, in microseconds.
const RNR_MICROS: [u64; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

#[test] //= check B5 test
fn each_sequence_nak_after_a_full_repetition_costs_a_retry() {
    for retry_cnt in 0..=7 {
        let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = retry_cnt);
        pair.rule(Rule::drop().from(A));
        let wr_id = pair.write(A, 3 * 256);
        let nak = pair.craft(B, OpCode::RC_ACKNOWLEDGE).ext(|ext| {
            ext.aeth.syndrome = Syndrome::Nak(uroce_wire::NakCode::PsnSequenceError);
        });
        let nak = nak.psn(pair.psn(A, 0));
        let retries = u64::from(retry_cnt);
        for _ in 0..retries {
            pair.deliver(B, &nak);
            assert_eq!(pair.take(A, Side::Send), []);
        }
        assert_eq!(pair.sequence(A).len() as u64, 3 * (retries + 1));
        pair.deliver(B, &nak);
        assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RetryExcErr)]);
        let counted = [
            ("packet_seq_err", retries + 1),
            ("retransmitted_packets", 3 * retries),
            ("req_transport_retries_exceeded", 1),
            ("req_cqe_error", 1),
        ];
        assert_counted(&pair, A, &counted);
    }
}

#[test] //= check B6 test
fn an_rnr_nak_is_waited_for_as_long_as_its_code_says() {
    for code in 0..32 {
        let mut pair = Pair::with(|terms| terms.half[B].min_rnr_timer = code);
        pair.send(A, 10);
        pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
        pair.recv(B, 10);
        pair.run();
        let refused_at = rnr_naks(&pair, B)[0].at;
        assert_eq!(rnr_naks(&pair, B)[0].ext.aeth.syndrome, Syndrome::RnrNak { timer: code });
        let waited = pair.seen(A)[1].at.since(refused_at);
        let said = Duration::from_micros(RNR_MICROS[usize::from(code)]);
        let slack = Duration::from_micros(5);
        assert!((said..said + slack).contains(&waited), "code {code}: {waited:?}");
        let counted = [("rnr_nak_retry_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
        assert_counted(&pair, A, &counted);
        let counted = [("out_of_buffer", 1), ("send_rnr_err", 1), ("rdma_recvs", 1)];
        assert_counted(&pair, B, &counted);
        only_success(&mut pair, B, Side::Recv);
    }
}

#[test] //= check B6 test
fn an_rnr_nak_behind_a_read_whose_response_was_lost_is_waited_for_as_well() {
    let mut pair = Pair::with(|terms| terms.half[B].min_rnr_timer = 20);
    pair.rule(Rule::drop().from(B).opcode(OpCode::RC_RDMA_READ_RESPONSE_ONLY).nth(1));
    let (read, send) = (pair.read(A, 10), pair.send(A, 10));
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    pair.recv(B, 10);
    pair.run();
    assert_eq!(pair.sequence(A), [0, 1, 0, 1], "the READ first");
    let waited = pair.seen(A)[3].at.since(rnr_naks(&pair, B)[0].at);
    let said = Duration::from_micros(RNR_MICROS[20]);
    assert!((said..said + SHORTLY).contains(&waited), "{waited:?}");
    assert_all_succeeded(&mut pair, A, Side::Send, &[read, send]);
    only_success(&mut pair, B, Side::Recv);
}

#[test] //= check B7 test
fn a_send_behind_a_lost_response_is_given_up_and_not_the_read() {
    let mut pair = Pair::with(|terms| terms.half[A].rnr_retry = 0);
    pair.rule(Rule::drop().from(B).opcode(OpCode::RC_RDMA_READ_RESPONSE_ONLY).nth(1));
    let (read, send) = (pair.read(A, 10), pair.send(A, 10));
    pair.run();
    let expected = [(read, WcStatus::Success), (send, WcStatus::RnrRetryExcErr)];
    assert_eq!(statuses(&mut pair, A, Side::Send), expected);
}

#[test] //= check B7 test
fn after_rnr_retry_attempts_more_a_send_is_given_up() {
    for rnr_retry in 0..7 {
        let mut pair = Pair::with(|terms| {
            terms.half[A].rnr_retry = rnr_retry;
            terms.half[A].retry_cnt = 0;
        });
        let first = pair.send(A, 10);
        let second = pair.send(A, 10);
        pair.run();
        let sent = pair.sequence(A).iter().filter(|psn| **psn == 0).count();
        assert_eq!(sent, usize::from(rnr_retry) + 1);
        let expected = [(first, WcStatus::RnrRetryExcErr), (second, WcStatus::WrFlushErr)];
        assert_eq!(statuses(&mut pair, A, Side::Send), expected);
        assert_eq!(pair.qp(A).state(), QpState::Err);
        let attempts = u64::from(rnr_retry) + 1;
        let counted = [
            ("rnr_nak_retry_err", attempts),
            // The second message is sent again only when the first is acknowledged.
            ("retransmitted_packets", attempts - 1),
            ("req_rnr_retries_exceeded", 1),
            ("req_cqe_error", 1),
            ("req_cqe_flush_error", 1),
        ];
        assert_counted(&pair, A, &counted);
        assert_eq!(pair.count(B, Counter::RnrNakSent), attempts);
    }
}

#[test] //= check B7 test
fn an_rnr_retry_of_7_is_without_end() {
    let mut pair = Pair::rts();
    pair.send(A, 10);
    pair.run_for(Duration::from_secs(1));
    assert!(pair.sequence(A).len() > 1000);
    assert_eq!(pair.qp(A).state(), QpState::Rts);
    pair.recv(B, 10);
    pair.run();
    only_success(&mut pair, B, Side::Recv);
}

#[test] //= check B8 test
fn a_refused_send_and_all_behind_it_are_sent_again_and_received_once() {
    let mut pair = Pair::rts();
    let sends: Vec<u64> = (0..3).map(|_| pair.send(A, 300)).collect();
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    let recvs: Vec<u64> = (0..3).map(|_| pair.recv(B, 300)).collect();
    pair.run();
    assert_eq!(pair.sequence(A), runs(&[upto(6), upto(6)]));
    assert_all_succeeded(&mut pair, B, Side::Recv, &recvs);
    assert_all_succeeded(&mut pair, A, Side::Send, &sends);
    assert_eq!(rnr_naks(&pair, B).len(), 1);
    let counted = [("rnr_nak_retry_err", 1), ("retransmitted_packets", 6), ("rdma_sends", 3)];
    assert_counted(&pair, A, &counted);
    // Packets after the refused one are dropped, and not refused again.
    let counted =
        [("out_of_buffer", 1), ("send_rnr_err", 1), ("rx_after_nak", 5), ("rdma_recvs", 3)];
    assert_counted(&pair, B, &counted);
}

#[test] //= check B9 test
fn while_the_receiver_is_not_ready_no_transport_retry_is_charged() {
    let mut pair = Pair::with(|terms| {
        terms.half[B].min_rnr_timer = 20; // 10.24 ms, ten times the ACK timeout
        terms.half[A].retry_cnt = 0;
    });
    pair.send(A, 10);
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    pair.recv(B, 10);
    pair.run();
    let counted = [("rnr_nak_retry_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
    assert_eq!(pair.sequence(A), [0, 0]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check B10 test
fn rnr_retries_and_transport_retries_are_counted_apart() {
    let mut pair = Pair::with(|terms| {
        terms.half[A].retry_cnt = 1;
        terms.half[A].rnr_retry = 3;
    });
    // Lost, refused, refused, then accepted: one transport retry, two RNR retries.
    pair.rule(Rule::drop().from(A).nth(1));
    pair.send(A, 10);
    pair.run_until(|pair| rnr_naks(pair, B).len() == 2);
    pair.recv(B, 10);
    pair.run();
    let counted = [
        ("local_ack_timeout_err", 1),
        ("rnr_nak_retry_err", 2),
        ("retransmitted_packets", 3),
        ("rdma_sends", 1),
    ];
    assert_counted(&pair, A, &counted);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check B10 test
fn each_of_the_two_retry_counters_runs_out_by_itself() {
    // One transport retry and two RNR retries: lost, refused, lost is one loss too many; lost,
    // refused three times is one refusal too many.
    for (lost, status) in [(&[1, 3][..], WcStatus::RetryExcErr), (&[1], WcStatus::RnrRetryExcErr)] {
        let mut pair = Pair::with(|terms| {
            terms.half[A].retry_cnt = 1;
            terms.half[A].rnr_retry = 2;
        });
        for nth in lost {
            pair.rule(Rule::drop().from(A).nth(*nth));
        }
        let send = pair.send(A, 10);
        pair.run();
        assert_eq!(statuses(&mut pair, A, Side::Send), [(send, status)]);
    }
}

#[test] //= check B11 test
fn a_write_with_immediate_is_refused_at_its_last_packet_only() {
    let mut pair = Pair::rts();
    pair.write_imm(A, 3 * 256, 0xfeed);
    pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
    assert_eq!(rnr_naks(&pair, B)[0].bth.psn, pair.psn(A, 2));
    assert_eq!(pair.target(B, 512), pair.source(A, 512), "earlier packets are placed");
    pair.recv(B, 0);
    pair.run();
    assert_eq!(pair.sequence(A), [0, 1, 2, 2]);
    let cqe = only_success(&mut pair, B, Side::Recv);
    assert_eq!((cqe.imm, cqe.byte_len), (Some(uroce_wire::ImmDt(0xfeed)), 3 * 256));
    assert_eq!(pair.target(B, 768), pair.source(A, 768));
    let counted = [("rnr_nak_retry_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
    let counted =
        [("out_of_buffer", 1), ("send_rnr_err", 1), ("rx_write_requests", 1), ("rdma_recvs", 1)];
    assert_counted(&pair, B, &counted);
}

#[test] //= check B12 test
fn a_late_look_at_the_timer_charges_one_timeout() {
    let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = 1);
    pair.rule(Rule::drop().from(A).nth(1));
    pair.write(A, 10);
    // No call is made for ten timeouts; the first one afterwards finds the timer expired.
    pair.world.jump_to(pair.world.now() + 10 * TIMEOUT);
    pair.run();
    let counted = [("local_ack_timeout_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
    assert_counted(&pair, A, &counted);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check B12 test
fn an_lcore_that_stands_still_again_and_again_charges_one_timeout_each_time() {
    let mut pair = Pair::with(|terms| terms.half[A].retry_cnt = 3);
    pair.rule(Rule::drop().from(A));
    let wr_id = pair.write(A, 10);
    for stall in 1..=4 {
        assert_eq!(pair.take(A, Side::Send), []);
        pair.world.jump_to(pair.world.now() + 10 * TIMEOUT);
        pair.run_for(Duration::ZERO);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), stall);
    }
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RetryExcErr)]);
}

#[test] //= check B13 test
fn an_rnr_nak_that_comes_twice_is_one() {
    for lag in [Duration::ZERO, SHORTLY] {
        let mut pair = Pair::with(|terms| {
            terms.half[A].rnr_retry = 1;
            terms.half[B].min_rnr_timer = 14;
        });
        pair.rule(Rule::duplicate(lag).from(B).nth(1));
        pair.send(A, 10);
        pair.run_until(|pair| !rnr_naks(pair, B).is_empty());
        pair.recv(B, 10);
        pair.run();
        let waited = pair.seen(A)[1].at.since(rnr_naks(&pair, B)[0].at);
        assert!(waited < rnr_timeout(14) + Duration::from_micros(5), "not waited anew");
        let counted = [("rnr_nak_retry_err", 1), ("retransmitted_packets", 1), ("rdma_sends", 1)];
        assert_counted(&pair, A, &counted);
        only_success(&mut pair, A, Side::Send);
    }
}
