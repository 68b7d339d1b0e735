//! Checks B14 to B16: the keepalive of a connection in which nothing happens.

use core::time::Duration;

use uroce_sim::{Pair, Rule, Seen};
use uroce_transport::{
    AsyncEvent, Counter, QpChange, QpState, QpType, Side, WcStatus, ack_timeout,
};
use uroce_wire::{OpCode, Rkey, Syndrome, Va};

use crate::scene::*;

/// Idle time of the scenes, in milliseconds.
const IDLE_MS: u32 = 100;

const IDLE: Duration = Duration::from_millis(100);

/// Longest time from the peer's last sign of life to the keepalive.
const LATEST: Duration = Duration::from_millis(125);

/// A pair of which `ends` have a keepalive.
fn pair_with(ends: &[usize]) -> Pair {
    Pair::with(|terms| {
        terms.is_tapped = true;
        for end in ends {
            terms.half[*end].keepalive_ms = IDLE_MS;
        }
    })
}

/// The keepalives that an end has sent.
fn keepalives(pair: &Pair, from: usize) -> Vec<Seen> {
    let mut seen = pair.seen(from);
    seen.retain(|seen| {
        seen.bth.opcode == OpCode::RC_RDMA_WRITE_ONLY
            && seen.payload.is_empty()
            && seen.ext.reth.dma_len == 0
    });
    seen
}

/// The next `count` packets of an end are lost.
fn lose(pair: &mut Pair, from: usize, count: u32) {
    for nth in 1..=count {
        pair.rule(Rule::drop().from(from).nth(nth));
    }
}

fn assert_no_flaw(pair: &mut Pair) {
    assert_eq!(pair.world.take_flaw(), None, "{:#?}", pair.trace(40));
}

#[test] //= check B14 test
fn an_idle_connection_that_never_sent_anything_asks_and_is_answered() {
    let mut pair = pair_with(&[A]);
    let begin = pair.world.now();
    pair.run_for(Duration::from_secs(1));
    let asked = keepalives(&pair, A);
    assert_eq!(asked.len(), pair.seen(A).len(), "nothing but keepalives");
    let first = &asked[0];
    assert_eq!(first.at.since(begin), IDLE);
    assert_eq!(first.bth.psn, pair.psn(A, 0).minus(1));
    assert!(first.bth.ack_req);
    let reth = first.ext.reth;
    assert_eq!((reth.va, reth.rkey, reth.dma_len), (Va(0), Rkey(0), 0));
    for pair_of in asked.windows(2) {
        let gap = pair_of[1].at.since(pair_of[0].at);
        assert!((IDLE..=LATEST + SHORTLY).contains(&gap), "{gap:?}");
    }
    let answers = pair.responses(B);
    assert_eq!(answers.len(), asked.len());
    for answer in answers {
        assert_eq!(answer.bth.psn, pair.psn(A, 0).minus(1));
        assert!(matches!(answer.ext.aeth.syndrome, Syndrome::Ack { .. }));
        assert_eq!(answer.ext.aeth.msn.value(), 0);
    }
    let count = asked.len() as u64;
    assert!((8..=10).contains(&count), "{count}");
    assert_counted(&pair, A, &[("tx_keepalives", count), ("stale_response", count)]);
    assert_counted(&pair, B, &[("duplicate_request", count)]);
    assert_eq!(pair.take_events(A), []);
    assert_no_flaw(&mut pair);
}

#[test] //= check B14 test
fn work_after_keepalives_is_done_as_without_them() {
    let mut pair = pair_with(&[A, B]);
    let mut done = Vec::new();
    for round in 0..5 {
        pair.run_for(IDLE * 3);
        let recv = pair.recv(B, 600);
        let posted =
            [pair.write(A, 700), pair.read(A, 900), pair.fetch_add(A, 1), pair.send(A, 600)];
        pair.run_for(Duration::from_millis(1));
        assert_eq!(statuses(&mut pair, B, Side::Recv), [(recv, WcStatus::Success)], "{round}");
        done.extend(posted);
    }
    assert_all_succeeded(&mut pair, A, Side::Send, &done);
    for end in [A, B] {
        assert_eq!(pair.count(end, Counter::RetransmittedPackets), 0);
        assert_eq!(pair.count(end, Counter::LocalAckTimeoutErr), 0);
        assert!(pair.count(end, Counter::Keepalives) > 0 || end == B);
    }
    assert_no_flaw(&mut pair);
}

#[test] //= check B14 test
fn the_keepalive_has_the_last_psn_of_what_was_sent() {
    let mut pair = pair_with(&[A]);
    // A READ of 900 bytes uses 4 PSNs, a WRITE of 300 uses 2.
    pair.write(A, 300);
    pair.read(A, 900);
    pair.run_for(IDLE * 2);
    assert_eq!(keepalives(&pair, A)[0].bth.psn, pair.psn(A, 5));
    assert_no_flaw(&mut pair);
}

#[test] //= check B15 test
fn a_packet_from_the_peer_of_any_kind_starts_the_idle_time_again() {
    for kind in 0..4 {
        let mut pair = pair_with(&[A]);
        for _ in 0..20 {
            match kind {
                // A request of the peer, and an answer to a request.
                0 => assert!(pair.write(B, 10) > 0),
                1 => assert!(pair.write(A, 10) > 0),
                // A duplicate of the peer, and an acknowledgement that was never asked for.
                2 => {
                    let before = pair.psn(B, 0).minus(1);
                    pair.deliver(B, &pair.craft(B, OpCode::RC_SEND_ONLY).psn(before));
                }
                _ => {
                    let never = pair.psn(A, 77);
                    pair.deliver(B, &pair.craft(B, OpCode::RC_ACKNOWLEDGE).psn(never));
                }
            }
            pair.run_for(IDLE / 2);
        }
        assert_eq!(pair.count(A, Counter::Keepalives), 0, "{kind}");
        pair.run_for(LATEST);
        assert_eq!(pair.count(A, Counter::Keepalives), 1, "{kind}");
    }
}

#[test] //= check B15 test
fn of_two_ends_with_a_keepalive_the_one_that_is_asked_does_not_ask() {
    let mut pair = Pair::with(|terms| {
        terms.is_tapped = true;
        terms.half[A].keepalive_ms = IDLE_MS;
        terms.half[B].keepalive_ms = 2 * IDLE_MS;
    });
    pair.run_for(Duration::from_secs(10));
    assert!(pair.count(A, Counter::Keepalives) >= 70);
    assert_eq!(pair.count(B, Counter::Keepalives), 0);
    assert_no_flaw(&mut pair);
}

#[test] //= check B16 test
fn a_peer_that_is_gone_is_given_up_after_all_retries() {
    for retry_cnt in [0, 3, 7] {
        for is_receiver in [false, true] {
            let mut pair = Pair::with(|terms| {
                terms.is_tapped = true;
                terms.half[A].keepalive_ms = IDLE_MS;
                terms.half[A].retry_cnt = retry_cnt;
            });
            let recvs = [pair.recv(A, 10), pair.recv(A, 10)];
            if !is_receiver {
                pair.write(A, 10);
                pair.run_for(SHORTLY);
                pair.take(A, Side::Send);
            }
            let begin = pair.world.now();
            pair.rule(Rule::drop().from(A));
            pair.run();
            let asked = keepalives(&pair, A);
            assert_eq!(asked.len(), usize::from(retry_cnt) + 1);
            for pair_of in asked.windows(2) {
                assert_eq!(pair_of[1].at.since(pair_of[0].at), TIMEOUT);
            }
            let last = asked.last().unwrap().at;
            assert_eq!(pair.world.now().since(last), TIMEOUT);
            assert!(asked[0].at.since(begin) <= LATEST);
            assert_eq!(pair.qp(A).state(), QpState::Err);
            let flushed = recvs.map(|recv| (recv, WcStatus::WrFlushErr));
            assert_eq!(statuses(&mut pair, A, Side::Recv), flushed);
            assert_eq!(statuses(&mut pair, A, Side::Send), []);
            assert_eq!(pair.take_events(A), [AsyncEvent::PeerLost, AsyncEvent::QpFatal]);
            assert_eq!(pair.qp(A).next_timeout(), None);
            assert_eq!(pair.count(A, Counter::TransportRetriesExceeded), 1);
            assert_no_flaw(&mut pair);
        }
    }
}

#[test] //= check B16 test
fn lost_keepalives_and_lost_answers_are_repeated_and_the_connection_lives() {
    for from in [A, B] {
        let mut pair = pair_with(&[A]);
        lose(&mut pair, from, 7);
        pair.run_for(IDLE * 20);
        assert_eq!(pair.qp(A).state(), QpState::Rts);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 7);
        // Each silence has all retries again.
        lose(&mut pair, from, 7);
        pair.run_for(IDLE * 20);
        assert_eq!(pair.qp(A).state(), QpState::Rts);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 14);
        assert_no_flaw(&mut pair);
    }
}

#[test] //= check B16 test
//= check I5 test
fn an_idle_connection_migrates_when_its_path_is_cut() {
    let mut pair = Pair::armed(|_| ());
    let change = QpChange { keepalive_ms: Some(IDLE_MS), ..QpChange::default() };
    pair.modify(A, &change).unwrap();
    pair.take_events(A);
    pair.cut(0);
    let begin = pair.world.now();
    pair.run_for(IDLE * 4);
    let states = [A, B].map(|end| (pair.qp(end).state(), pair.qp(end).migration().count));
    assert_eq!(states, [(QpState::Rts, 1), (QpState::Rts, 1)]);
    assert_eq!(pair.take_events(A), [AsyncEvent::PathMig]);
    let mut asked = keepalives(&pair, A);
    // The exchange that armed both ends was of empty messages, too.
    asked.retain(|seen| seen.at > begin);
    assert!(asked.iter().all(|seen| seen.bth.psn == pair.psn(A, 0)));
    assert_eq!(asked.iter().filter(|seen| seen.rail == 0).count(), 8);
    assert!(asked.iter().filter(|seen| seen.rail == 1).count() >= 2);
    assert_no_flaw(&mut pair);
    // Both paths cut: the end comes after the retries on the second one.
    pair.rule(Rule::drop().from(A));
    pair.run_for(IDLE * 4);
    assert_eq!(pair.qp(A).state(), QpState::Err);
}

#[test] //= check B16 test
fn a_request_while_a_keepalive_is_unanswered_has_its_own_timeout_and_all_retries() {
    let mut pair = pair_with(&[A]);
    pair.rule(Rule::drop().from(A));
    pair.run_until(|pair| keepalives(pair, A).len() == 4);
    pair.run_for(TIMEOUT / 2);
    let begin = pair.world.now();
    let write = pair.write(A, 10);
    pair.run();
    let sent: Vec<_> =
        pair.seen(A).iter().filter(|seen| seen.bth.psn == pair.psn(A, 0)).cloned().collect();
    assert_eq!(sent.len(), 8);
    assert_eq!(sent[0].at, begin);
    assert_eq!(sent[1].at.since(begin), TIMEOUT, "a whole timeout");
    assert_eq!(keepalives(&pair, A).len(), 4);
    assert_eq!(statuses(&mut pair, A, Side::Send), [(write, WcStatus::RetryExcErr)]);
    // The completion tells.
    assert_eq!(pair.take_events(A), [AsyncEvent::PeerLost]);
    assert_no_flaw(&mut pair);
}

#[test] //= check B16 test
fn an_answered_request_ends_the_wait_for_a_keepalive() {
    let mut pair = pair_with(&[A]);
    lose(&mut pair, A, 3);
    pair.run_until(|pair| keepalives(pair, A).len() == 3);
    let write = pair.write(A, 10);
    pair.run_for(IDLE / 2);
    assert_eq!(keepalives(&pair, A).len(), 3);
    assert_all_succeeded(&mut pair, A, Side::Send, &[write]);
    assert_no_flaw(&mut pair);
}

#[test] //= check B14 test
fn without_an_ack_timer_or_when_turned_off_nothing_is_asked() {
    let mut pair = Pair::with(|terms| {
        terms.half[A].keepalive_ms = IDLE_MS;
        terms.half[A].timeout = 0;
    });
    pair.run_for(IDLE * 20);
    assert!(pair.seen(A).is_empty());
    let mut pair = pair_with(&[]);
    assert_eq!(pair.qp(A).next_timeout(), None);
    let set = |idle_ms| QpChange { keepalive_ms: Some(idle_ms), ..QpChange::default() };
    pair.modify(A, &set(IDLE_MS)).unwrap();
    assert_eq!(pair.qp(A).attr().keepalive_ms, IDLE_MS);
    pair.run_for(IDLE);
    assert_eq!(keepalives(&pair, A).len(), 1);
    // Turned off while a keepalive is unanswered.
    pair.rule(Rule::drop().from(A));
    pair.run_until(|pair| keepalives(pair, A).len() == 2);
    pair.modify(A, &set(0)).unwrap();
    pair.run_for(Duration::from_secs(10));
    assert_eq!(keepalives(&pair, A).len(), 2);
    assert_eq!((pair.qp(A).state(), pair.qp(A).next_timeout()), (QpState::Rts, None));
    assert_eq!(pair.qp(A).attr().keepalive_ms, 0);
}

#[test] //= check B14 test
fn a_drained_send_queue_is_asked_for_as_well_and_a_reset_ends_it() {
    let mut pair = pair_with(&[A]);
    pair.modify(A, &QpChange::to(QpState::Sqd)).unwrap();
    let waiting = pair.write(A, 10);
    pair.run_for(LATEST);
    assert_eq!(keepalives(&pair, A).len(), 1);
    pair.modify(A, &QpChange::to(QpState::Rts)).unwrap();
    pair.run_for(SHORTLY);
    assert_all_succeeded(&mut pair, A, Side::Send, &[waiting]);
    assert_no_flaw(&mut pair);
    pair.modify(A, &QpChange::to(QpState::Reset)).unwrap();
    pair.run_for(IDLE * 4);
    assert_eq!(pair.qp(A).next_timeout(), None);
    assert_eq!(pair.qp(A).attr().keepalive_ms, 0);
}

#[test] //= check B14 test
fn an_unreliable_connection_has_no_keepalive() {
    let mut pair = Pair::with(|terms| terms.qp_type = QpType::Uc);
    let change = QpChange { keepalive_ms: Some(IDLE_MS), ..QpChange::default() };
    assert!(pair.modify(A, &change).is_err());
}

#[test] //= check B14 test
fn the_retries_of_a_keepalive_take_the_qp_s_own_timeout() {
    let mut pair = Pair::with(|terms| {
        terms.half[A].keepalive_ms = IDLE_MS;
        terms.half[A].timeout = 12;
        terms.half[A].retry_cnt = 1;
    });
    pair.rule(Rule::drop().from(A));
    pair.run();
    let asked = keepalives(&pair, A);
    assert_eq!(asked[1].at.since(asked[0].at), ack_timeout(12).unwrap());
}
