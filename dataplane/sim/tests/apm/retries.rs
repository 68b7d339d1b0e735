//! Migration after exhausted retries, for each cause that charges the counter.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{AsyncEvent, Counter, PathMigState, QpState, Side, WcStatus};
use uroce_wire::{NakCode, OpCode, Syndrome};

use super::{A, B, TIMEOUT, assert_flawless, migrations};

/// An armed pair with this limit of transport retries at A.
fn armed(retry_cnt: u8) -> Pair {
    let mut pair = Pair::armed(|terms| terms.half[A].retry_cnt = retry_cnt);
    pair.world.record_mut().expect("pairs record").clear();
    pair
}

/// Asserts that A and B have migrated once, and that `done` requests have completed.
#[track_caller]
fn assert_migrated(pair: &mut Pair, done: usize) {
    assert_flawless(pair);
    for end in [A, B] {
        assert_eq!(migrations(pair, end), [AsyncEvent::PathMig], "end {end}");
        assert_eq!((pair.rail(end), pair.qp(end).state()), (1, QpState::Rts), "end {end}");
        assert_eq!(pair.path_mig_state(end), PathMigState::Migrated, "end {end}");
    }
    let cqes = pair.take(A, Side::Send);
    assert_eq!(cqes.len(), done);
    assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::Success), "{cqes:?}");
}

#[test] //= check I5 test
fn when_timeouts_use_up_the_retries_an_armed_qp_migrates_within_its_bound() {
    for retry_cnt in 0..=7 {
        let mut pair = armed(retry_cnt);
        pair.recv(B, 700);
        pair.send(A, 700);
        pair.run();
        pair.take(A, Side::Send);
        pair.cut(0);
        let cut_at = pair.world.now();
        for _ in 0..3 {
            pair.recv(B, 700);
            pair.send(A, 700);
        }
        pair.run();
        assert_migrated(&mut pair, 3);
        assert_eq!(pair.take(B, Side::Recv).len(), 4, "each once");
        let retries = u32::from(retry_cnt);
        let answer = pair.responses(B).into_iter().find(|seen| seen.rail == 1);
        let answer = answer.expect("an answer by the other path");
        let after = answer.at.since(cut_at);
        assert!(after >= (retries + 1) * TIMEOUT, "{after:?}");
        assert!(after <= (retries + 2) * TIMEOUT, "{after:?}");
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), u64::from(retries) + 1);
        let stats = pair.qp(A).migration();
        assert_eq!(stats.count, 1);
        let failover = stats.failover.expect("the new path has answered");
        // From the last answer on the first path to the first answer on the second, of equal
        // length.
        let before = pair.responses(B).into_iter().rfind(|seen| seen.rail == 0);
        let span = answer.at.since(before.expect("an answer before the cut").at);
        assert_eq!(failover, span);
    }
}

#[test] //= check I5 test
fn so_it_does_when_sequence_naks_use_them_up() {
    for retry_cnt in [0, 1, 3, 7] {
        let mut pair = armed(retry_cnt);
        // The checker does not see crafted packets, and so would see no cause.
        pair.world.stop_tap();
        pair.rule(Rule::drop().from(A).on(0));
        pair.write(A, 600);
        let psn = pair.seen(A)[0].bth.psn;
        let nak = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn);
        let nak = nak.bth(|bth| bth.mig_req = false).ext(|ext| {
            ext.aeth.syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
        });
        for charge in 0..=retry_cnt {
            assert_eq!(pair.rail(A), 0, "after {charge} of {retry_cnt}");
            pair.deliver(B, &nak);
        }
        assert_eq!(pair.rail(A), 1);
        pair.run();
        assert_migrated(&mut pair, 1);
        assert_eq!(pair.target(B, 600), pair.source(A, 600));
        assert_eq!(pair.count(A, Counter::PacketSeqErr), u64::from(retry_cnt) + 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

#[test] //= check I5 test
//= check D10 test
fn so_it_does_when_missing_answers_use_them_up() {
    for is_atomic in [false, true] {
        let mut pair = armed(0);
        pair.set_word(B, 40);
        let opcode = match is_atomic {
            true => OpCode::RC_ATOMIC_ACKNOWLEDGE,
            false => OpCode::RC_RDMA_READ_RESPONSE_ONLY,
        };
        pair.rule(Rule::drop().from(B).on(0).opcode(opcode));
        if is_atomic {
            pair.fetch_add(A, 2);
        } else {
            pair.read(A, 8);
        }
        pair.write_far(A, 10);
        pair.run();
        assert_migrated(&mut pair, 2);
        assert_eq!(pair.landed_word(A), 40);
        assert_eq!(pair.word(B), if is_atomic { 42 } else { 40 }, "added once");
        assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

#[test] //= check I6 test
fn where_the_other_path_is_dead_too_the_second_budget_ends_in_the_retry_error() {
    for retry_cnt in [0, 2, 7] {
        let mut pair = armed(retry_cnt);
        pair.cut(0);
        pair.cut(1);
        let wr_id = pair.write(A, 10);
        pair.run();
        assert_flawless(&mut pair);
        assert_eq!(migrations(&mut pair, A), [AsyncEvent::PathMig]);
        let cqes = pair.take(A, Side::Send);
        let told: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.status)).collect();
        assert_eq!(told, [(wr_id, WcStatus::RetryExcErr)]);
        let attempts = usize::from(retry_cnt) + 1;
        let by = |rail| pair.seen(A).iter().filter(|seen| seen.rail == rail).count();
        // Probes are sent on the path with a known round trip, and not counted as attempts.
        let probes = pair.count(A, Counter::TailProbes) as usize;
        assert_eq!((by(0), by(1)), (attempts + probes, attempts));
        let counted = pair.count(A, Counter::LocalAckTimeoutErr);
        assert_eq!(counted, 2 * attempts as u64);
        assert_eq!(pair.qp(A).state(), QpState::Err);
    }
}

#[test] //= check I5 test
fn answers_under_way_by_the_former_path_do_not_use_up_the_new_budget() {
    for lost in [0, 2, 10] {
        let mut pair = armed(0);
        pair.rule(Rule::drop().from(B).on(0).psn(pair.psn(A, 1 + lost)));
        pair.read(A, 12 * 256);
        pair.run();
        assert_migrated(&mut pair, 1);
        assert_eq!(pair.landed(A, 12 * 256), pair.target(B, 12 * 256));
        assert_eq!(pair.count(A, Counter::ImpliedNakSeqErr), 1, "response {lost} lost");
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    }
}

/// Asserts that A has migrated, has used up its retries again, and has ended with this request.
#[track_caller]
fn assert_ended(pair: &mut Pair, wr_id: u64, counter: Counter, charges: u64) {
    assert_flawless(pair);
    assert_eq!(migrations(pair, A), [AsyncEvent::PathMig]);
    let cqes = pair.take(A, Side::Send);
    assert_eq!((cqes[0].wr_id, cqes[0].status), (wr_id, WcStatus::RetryExcErr));
    assert_eq!(pair.qp(A).state(), QpState::Err);
    assert_eq!(pair.count(A, counter), charges);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
}

#[test] //= check I6 test
fn so_it_ends_by_sequence_naks_on_both_paths() {
    for retry_cnt in [0, 2, 7] {
        let mut pair = armed(retry_cnt);
        pair.world.stop_tap();
        pair.rule(Rule::drop().from(A));
        let wr_id = pair.write(A, 600);
        let psn = pair.seen(A)[0].bth.psn;
        let nak = pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(psn);
        let nak = nak.bth(|bth| bth.mig_req = false).ext(|ext| {
            ext.aeth.syndrome = Syndrome::Nak(NakCode::PsnSequenceError);
        });
        for rail in [0, 1] {
            let frame = pair.frame_by(&pair.path_on(B, rail), &nak);
            for charge in 0..=retry_cnt {
                assert_eq!((pair.rail(A), pair.qp(A).state()), (rail, QpState::Rts), "{charge}");
                pair.world.inject_by(rail, B as u16, A as u16, frame.clone(), Duration::ZERO);
                pair.run_for(Duration::ZERO);
            }
        }
        let charges = 2 * (u64::from(retry_cnt) + 1);
        assert_ended(&mut pair, wr_id, Counter::PacketSeqErr, charges);
    }
}

// One attempt on each path: of several, the ACK timer would see every second.
#[test] //= check I6 test
fn so_it_ends_by_missing_answers_on_both_paths() {
    let mut pair = armed(0);
    pair.rule(Rule::drop().from(B).opcode(OpCode::RC_RDMA_READ_RESPONSE_ONLY));
    let wr_id = pair.read(A, 8);
    pair.write_far(A, 10);
    pair.run();
    assert_ended(&mut pair, wr_id, Counter::ImpliedNakSeqErr, 2);
}

#[test] //= check I6 test
fn a_qp_that_is_not_armed_does_not_migrate() {
    let mut pair = Pair::two_paths(|terms| terms.half[A].retry_cnt = 2);
    pair.rearm(A).expect("a QP in RTS");
    pair.cut(0);
    pair.write(A, 10);
    pair.run();
    assert_eq!(pair.take(A, Side::Send)[0].status, WcStatus::RetryExcErr);
    assert_eq!(migrations(&mut pair, A), []);
    assert_eq!(pair.world.rail_total(1).sent, 0);
    assert_flawless(&mut pair);
}
