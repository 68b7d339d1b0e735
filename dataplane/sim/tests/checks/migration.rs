//! Path migration as both QPs see it: requests, migrations of the peer, and counters. Sweeps and
//! faults are in `tests/apm`.

use core::time::Duration;

use uroce_sim::{Pair, Rails, Rule};
use uroce_transport::{
    AsyncEvent, Counter, DropReason, MigrationStats, ModifyError, PathAttr, PathMigState, QpChange,
    QpState, QpType, Side, StaticRate, WcStatus,
};
use uroce_wire::{OpCode, Pkey};

use super::scene::{A, B, TIMEOUT, only_success, statuses};

/// MigReq of each packet that an end has sent after its first `from` packets.
fn mig_reqs(pair: &Pair, end: usize, from: usize) -> Vec<bool> {
    pair.seen(end)[from..].iter().map(|seen| seen.bth.mig_req).collect()
}

fn stands(pair: &Pair) -> [PathMigState; 2] {
    [A, B].map(|end| pair.path_mig_state(end))
}

#[test] //= check I1 test
fn with_an_alternate_path_loaded_and_not_rearmed_every_packet_says_migrated() {
    for qp_type in [QpType::Rc, QpType::Uc] {
        let mut pair = Pair::two_paths(|terms| terms.qp_type = qp_type);
        for end in [A, B] {
            let alt_path = Some(pair.alternate(end, 1));
            pair.modify(end, &QpChange { alt_path, ..QpChange::default() }).unwrap();
            assert_eq!(pair.qp(end).attr().alt_path, alt_path);
        }
        pair.write(A, 600);
        pair.write(B, 600);
        pair.run();
        for end in [A, B] {
            assert!(mig_reqs(&pair, end, 0).iter().all(|mig_req| *mig_req));
            assert_eq!(pair.take_events(end), []);
        }
        assert_eq!(stands(&pair), [PathMigState::Migrated; 2]);
    }
}

#[test] //= check I3 test
fn both_ends_become_armed_by_what_they_hear_of_each_other() {
    use PathMigState::{Armed, Migrated, Rearm};
    let mut pair = Pair::two_paths(|_| ());
    pair.rearm(A).unwrap();
    pair.write(A, 10);
    pair.run();
    assert_eq!((mig_reqs(&pair, A, 0), mig_reqs(&pair, B, 0)), (vec![false], vec![true]));
    assert_eq!(stands(&pair), [Rearm, Migrated], "B has not said that it is ready");
    pair.rearm(B).unwrap();
    assert_eq!(stands(&pair), [Rearm, Rearm]);
    pair.write(A, 10);
    pair.run();
    assert_eq!((mig_reqs(&pair, A, 1), mig_reqs(&pair, B, 1)), (vec![false], vec![false]));
    assert_eq!(stands(&pair), [Armed, Armed]);
    for end in [A, B] {
        assert_eq!(pair.take_events(end), [], "no event is due");
        assert_eq!(pair.qp(end).migration(), MigrationStats::default());
    }
}

#[test] //= check I3 test
//= check I4 test
fn a_uc_pair_is_armed_and_migrates_by_its_requests_alone() {
    let mut pair = Pair::armed(|terms| terms.qp_type = QpType::Uc);
    let before = [A, B].map(|end| pair.seen(end).len());
    pair.migrate(A).unwrap();
    pair.write(A, 600);
    pair.run();
    pair.write(B, 600);
    pair.run();
    for end in [A, B] {
        let sent = pair.seen(end).split_off(before[end]);
        assert!(sent.iter().all(|seen| seen.bth.mig_req && seen.rail == 1));
        assert_eq!(pair.take_events(end), [AsyncEvent::PathMig]);
        assert_eq!(pair.qp(end).migration(), MigrationStats { count: 1, failover: None });
        assert_eq!(pair.target(end, 600), pair.source(1 - end, 600));
    }
}

#[test] //= check I4 test
//= check H7 test
fn software_migrates_and_the_peer_follows() {
    let mut pair = Pair::armed(|_| ());
    // An alternate path other than the one armed with, loaded at the last moment.
    let before = pair.qp(A).attr();
    let rate = StaticRate::from_mbps(10_000).unwrap();
    let alt_path = pair.alternate(A, 1);
    let alt_path = uroce_transport::AltPath {
        timeout: 9,
        path: PathAttr { rate, ..alt_path.path },
        ..alt_path
    };
    pair.modify(A, &QpChange { alt_path: Some(alt_path), ..QpChange::default() }).unwrap();
    let sent = [A, B].map(|end| pair.seen(end).len());
    pair.migrate(A).unwrap();
    let attr = pair.qp(A).attr();
    assert_eq!((attr.path, attr.port, attr.timeout), (alt_path.path, 2, 9));
    assert_eq!((attr.alt_path, attr.path_mig_state), (None, PathMigState::Migrated));
    assert_eq!((attr.sq_psn, attr.retry_cnt), (before.sq_psn, before.retry_cnt), "the rest stays");
    assert_eq!(pair.take_events(A), [AsyncEvent::PathMig]);
    assert_eq!(pair.take_events(B), []);
    pair.read(A, 600);
    pair.run();
    for end in [A, B] {
        let later = pair.seen(end).split_off(sent[end]);
        assert!(later.iter().all(|seen| seen.bth.mig_req && seen.rail == 1));
        assert_eq!(pair.count(end, Counter::PathMigrations), 1);
        assert_eq!(pair.qp(end).migration().count, 1);
    }
    assert_eq!(pair.take_events(B), [AsyncEvent::PathMig]);
    assert_eq!(pair.landed(A, 600), pair.target(B, 600));
    // Once more, in the other direction.
    pair.arm();
    pair.migrate(B).unwrap();
    pair.write(B, 10);
    pair.run();
    assert_eq!([A, B].map(|end| pair.qp(end).migration().count), [2, 2]);
    assert_eq!([A, B].map(|end| pair.rail(end)), [0, 0]);
}

#[test] //= check I4 test
fn the_peer_follows_though_it_was_not_armed_yet() {
    let mut pair = Pair::two_paths(|_| ());
    pair.rearm(A).unwrap();
    pair.rearm(B).unwrap();
    // A's answer, which would tell B that A is ready, is lost; A has received B's request.
    pair.rule(Rule::drop().from(A).opcode(OpCode::RC_ACKNOWLEDGE));
    let wr_id = pair.write(B, 10);
    pair.run_for(TIMEOUT / 2);
    assert_eq!(stands(&pair), [PathMigState::Armed, PathMigState::Rearm]);
    pair.world.clear_rules();
    pair.migrate(A).unwrap();
    pair.write(A, 10);
    pair.run();
    assert_eq!([A, B].map(|end| pair.rail(end)), [1, 1]);
    assert_eq!(statuses(&mut pair, B, Side::Send), [(wr_id, WcStatus::Success)]);
    only_success(&mut pair, A, Side::Send);
}

#[test] //= check I4 test
fn what_was_lost_with_the_path_goes_out_again_at_once() {
    let mut pair = Pair::armed(|_| ());
    pair.cut(0);
    let begin = pair.world.now();
    for _ in 0..4 {
        pair.write(A, 1000);
    }
    pair.run_for(Duration::from_micros(10));
    pair.migrate(A).unwrap();
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 4);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0, "no timer is needed");
    assert!(pair.seen(B).last().unwrap().at.since(begin) < TIMEOUT);
}

#[test] //= check I5 test
fn the_failover_time_counts_from_the_last_good_acknowledgement() {
    let mut pair = Pair::armed(|terms| terms.half[A].retry_cnt = 2);
    pair.write(A, 10);
    let acked = {
        pair.run();
        pair.seen(B).last().unwrap().at
    };
    pair.run_for(Duration::from_millis(5));
    pair.cut(0);
    let begun = pair.world.now();
    pair.write(A, 10);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 2);
    let MigrationStats { count, failover } = pair.qp(A).migration();
    let failover = failover.expect("an acknowledgement on the new path");
    assert_eq!(count, 1);
    // Three timeouts and a round trip; the idle time before counts too.
    let answered = pair.seen(B).last().unwrap().at;
    assert!((3 * TIMEOUT..4 * TIMEOUT).contains(&answered.since(begun)), "{:#?}", pair.trace(20));
    assert!(failover.abs_diff(answered.since(acked)) < Duration::from_micros(10));
    // B has sent no request.
    assert_eq!(pair.qp(B).migration(), MigrationStats { count: 1, failover: None });
}

#[test] //= check I5 test
fn receiver_not_ready_is_no_failure_of_the_path() {
    let mut pair = Pair::armed(|terms| terms.half[A].rnr_retry = 2);
    let wr_id = pair.send(A, 10);
    pair.run();
    assert_eq!(statuses(&mut pair, A, Side::Send), [(wr_id, WcStatus::RnrRetryExcErr)]);
    assert_eq!(pair.qp(A).migration().count, 0);
    assert_eq!(pair.qp(A).state(), QpState::Err);
}

#[test] //= check I2 test
fn a_congestion_notification_says_nothing_about_migration() {
    // Its MigReq is 0, which would arm the QP, and its P_Key is the default one.
    let mut pair = Pair::two_paths(|_| ());
    pair.world.stop_tap();
    pair.rearm(A).unwrap();
    let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]).bth(|bth| bth.mig_req = false);
    pair.deliver(B, &cnp);
    assert_eq!(pair.drops(A, DropReason::Congestion), 1);
    assert_eq!(pair.path_mig_state(A), PathMigState::Rearm);
    // MigReq 1 in it is not a request to migrate either.
    let mut pair = Pair::armed(|_| ());
    pair.world.stop_tap();
    let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]).bth(|bth| bth.mig_req = true);
    pair.deliver(B, &cnp);
    assert_eq!(pair.path_mig_state(A), PathMigState::Armed);
    assert_eq!(pair.take_events(A), []);
}

#[test] //= check I4 test
//= check I7 test
fn the_alternate_path_has_its_own_p_key() {
    let mut pair = Pair::two_paths(|_| ());
    let pkey = Pkey(0x8123);
    for end in [A, B] {
        let alt_path = uroce_transport::AltPath { pkey, ..pair.alternate(end, 1) };
        let path_mig_state = Some(PathMigState::Rearm);
        let change = QpChange { alt_path: Some(alt_path), path_mig_state, ..QpChange::default() };
        pair.modify(end, &change).unwrap();
    }
    pair.write(A, 10);
    pair.run();
    assert_eq!(stands(&pair), [PathMigState::Armed; 2]);
    let sent = pair.seen(A).len();
    pair.migrate(A).unwrap();
    pair.write(A, 10);
    pair.run();
    assert_eq!(pair.take(A, Side::Send).len(), 2);
    assert_eq!(pair.seen(A)[sent].bth.pkey, pkey);
    assert_eq!([A, B].map(|end| pair.qp(end).attr().pkey), [pkey; 2]);
}

#[test] //= check I8 test
fn what_software_may_not_ask_for_is_named() {
    use PathMigState::{Armed, Migrated, Rearm};
    let mut pair = Pair::two_paths(|_| ());
    let ask = |pair: &mut Pair, state| {
        let change = QpChange { path_mig_state: Some(state), ..QpChange::default() };
        pair.modify(A, &change)
    };
    assert_eq!(ask(&mut pair, Armed), Err(ModifyError::ArmedBySoftware));
    assert_eq!(ask(&mut pair, Migrated), Err(ModifyError::NotArmed(Migrated)));
    assert_eq!(ask(&mut pair, Rearm), Err(ModifyError::NoAlternatePath));
    pair.rearm(A).unwrap();
    assert_eq!(ask(&mut pair, Rearm), Err(ModifyError::NotMigrated(Rearm)));
    assert_eq!(ask(&mut pair, Migrated), Err(ModifyError::NotArmed(Rearm)));
    pair.rearm(B).unwrap();
    pair.write(A, 10);
    pair.run();
    assert_eq!(ask(&mut pair, Rearm), Err(ModifyError::NotMigrated(Armed)));
    pair.modify(A, &QpChange::to(QpState::Sqd)).unwrap();
    assert_eq!(ask(&mut pair, Migrated), Err(ModifyError::MigrationState(QpState::Sqd)));
    assert_eq!((pair.path_mig_state(A), pair.qp(A).migration().count), (Armed, 0));
    let back = QpChange { path_mig_state: Some(Migrated), ..QpChange::to(QpState::Rts) };
    pair.modify(A, &back).unwrap();
    assert_eq!((pair.path_mig_state(A), pair.qp(A).migration().count), (Migrated, 1));
    // The former path is not an alternate path: one has to be loaded.
    assert_eq!(ask(&mut pair, Rearm), Err(ModifyError::NoAlternatePath));
}

#[test] //= check I11 test
fn a_new_alternate_path_ends_the_hearing_of_the_former_one() {
    for loads in [false, true] {
        let mut pair = Pair::armed(|_| ());
        pair.world.stop_tap();
        pair.migrate(A).unwrap();
        if loads {
            let mut alt_path = pair.alternate(A, 0);
            alt_path.path.encap.dst.0[15] = 99;
            let change = QpChange { alt_path: Some(alt_path), ..QpChange::default() };
            pair.modify(A, &change).unwrap();
        }
        // B has not followed yet and still sends by the former path.
        pair.write(B, 10);
        pair.run_for(TIMEOUT / 2);
        assert_eq!(pair.drops(A, DropReason::WrongSource), u64::from(loads));
        pair.run();
        only_success(&mut pair, B, Side::Send);
    }
}

#[test]
fn a_nudge_arms_both_ends_of_an_idle_pair_and_makes_the_peer_follow_a_migration() {
    let mut pair = Pair::reset(|terms| terms.rails = Rails::TwoPorts);
    pair.bring_to(A, QpState::Rts);
    pair.bring_to(B, QpState::Rtr);
    for end in [A, B] {
        let alternate = pair.alternate(end, 1);
        assert!(pair.world.adopt_alternate(pair.at(end), &alternate));
    }
    assert_eq!(stands(&pair), [PathMigState::Rearm; 2]);
    assert!(!pair.world.nudge(pair.at(B)), "an end in RTR sends no request");
    assert!(pair.world.nudge(pair.at(A)));
    pair.run();
    assert_eq!(stands(&pair), [PathMigState::Armed; 2]);
    assert_eq!(pair.take_events(B), [], "no message has come");
    pair.migrate(A).unwrap();
    assert_eq!(pair.rail(B), 0);
    assert!(pair.world.nudge(pair.at(A)));
    pair.run();
    assert_eq!([A, B].map(|end| pair.rail(end)), [1, 1]);
    for end in [A, B] {
        assert_eq!(pair.take_events(end), [AsyncEvent::PathMig]);
    }
    // The first message is told of, and finds nothing changed.
    pair.write(A, 600);
    pair.run();
    only_success(&mut pair, A, Side::Send);
    assert_eq!(pair.take_events(B), [AsyncEvent::CommEst]);
}

#[test]
fn a_nudge_that_is_lost_is_not_missed_and_one_beside_other_packets_is_not_sent() {
    let mut pair = Pair::with(|terms| terms.rails = Rails::TwoPorts);
    pair.cut(0);
    assert!(pair.world.nudge(pair.at(A)));
    pair.run();
    for end in [A, B] {
        assert_eq!((pair.qp(end).state(), pair.take_events(end)), (QpState::Rts, vec![]));
    }
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    pair.mend(0);
    pair.write(A, 600);
    pair.run_until(|pair| pair.seen(A).len() > 1);
    assert!(!pair.world.nudge(pair.at(A)), "the request says the same");
    pair.run();
    only_success(&mut pair, A, Side::Send);
}

#[test]
fn a_path_of_the_control_plane_leaves_the_state_of_migration_as_it_may_be_and_needs_a_connection() {
    let mut pair = Pair::reset(|terms| terms.rails = Rails::TwoPorts);
    for state in [QpState::Reset, QpState::Init, QpState::Rtr] {
        if state != QpState::Reset {
            pair.bring_to(A, state);
        }
        let alternate = pair.alternate(A, 1);
        let is_taken = pair.world.adopt_alternate(pair.at(A), &alternate);
        assert_eq!(is_taken, state == QpState::Rtr, "{state}");
    }
    assert_eq!(pair.path_mig_state(A), PathMigState::Rearm);
    assert_eq!(pair.qp(A).attr().alt_path.map(|path| path.timeout), Some(0), "not given yet");
    let mut pair = Pair::armed(|_| ());
    pair.world.stop_tap();
    let alternate = uroce_transport::AltPath { timeout: 3, ..pair.alternate(A, 1) };
    assert!(pair.world.adopt_alternate(pair.at(A), &alternate));
    assert_eq!(pair.path_mig_state(A), PathMigState::Armed, "it stays armed");
    let attr = pair.qp(A).attr();
    assert_eq!(attr.alt_path.map(|path| path.timeout), Some(attr.timeout));
}
