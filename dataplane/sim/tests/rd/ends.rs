//! The end of an EEC, and its beginning.

use core::time::Duration;

use uroce_sim::{Pair, Terms};
use uroce_transport::{AsyncEvent, Counter, QpChange, QpState, QpType, Side, WcStatus};

use crate::{A, B, Scene};

/// A message in progress and two RD QPs in line, with both directions cut.
fn cut_off(terms: impl FnOnce(&mut Terms)) -> (Scene, [u64; 4], u64) {
    let mut scene = Scene::with(|all| {
        all.settings.budget = 1;
        terms(all);
    });
    let to = scene.there[0];
    let recv = scene.pair.rd_recv(to, 4000);
    let sends = [
        scene.pair.rd_send(scene.here[0], to, 3000),
        scene.pair.rd_send(scene.here[0], to, 10),
        scene.pair.rd_send(scene.here[1], to, 10),
        scene.pair.rd_send(scene.here[2], to, 10),
    ];
    scene.pair.run_for(Duration::from_nanos(1200));
    scene.pair.cut(0);
    (scene, sends, recv)
}

/// Checks that the message in progress failed with `status`, and what was in line for the state.
fn assert_over(scene: &mut Scene, sends: [u64; 4], status: WcStatus) {
    let [first, second, third, fourth] = sends;
    let expected = [(first, status), (second, WcStatus::WrFlushErr)];
    scene.assert_ended(scene.here[0], Side::Send, &expected);
    for (at, wr_id) in [(scene.here[1], third), (scene.here[2], fourth)] {
        scene.assert_ended(at, Side::Send, &[(wr_id, WcStatus::InvEecStateErr)]);
    }
    for at in scene.here {
        scene.assert_state(at, QpState::Sqe);
    }
}

#[test] //= check R18 test
//= check R27 test
fn exhausted_retries_end_the_eec_and_fail_what_names_it() {
    let (mut scene, sends, recv) = cut_off(|_| ());
    scene.run();
    assert_eq!(scene.pair.qp(A).state(), QpState::Err);
    assert_over(&mut scene, sends, WcStatus::RetryExcErr);
    // A request tells the program, and the event its connection.
    assert_eq!(scene.pair.take_events(A), [AsyncEvent::PeerLost]);
    assert_eq!(scene.pair.count(A, Counter::TransportRetriesExceeded), 1);
    // The other end does not know yet; its message ends with its EEC.
    scene.assert_state(scene.there[0], QpState::Rts);
    assert_eq!(scene.done(scene.there[0], Side::Recv), []);
    scene.pair.world.modify(scene.pair.at(B), &QpChange::to(QpState::Err)).unwrap();
    scene.assert_ended(scene.there[0], Side::Recv, &[(recv, WcStatus::LocEecOpErr)]);
    scene.assert_state(scene.there[0], QpState::Rts);
    // A request that names it now.
    let at = scene.here[1];
    scene.pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
    let send = scene.pair.rd_send(at, scene.there[0], 1);
    scene.assert_ended(at, Side::Send, &[(send, WcStatus::InvEecStateErr)]);
}

#[test] //= check R18 test
fn an_eec_that_is_taken_to_err_or_reset_or_destroyed_fails_what_names_it() {
    for kind in 0..4 {
        let (mut scene, sends, recv) = cut_off(|_| ());
        for end in [A, B] {
            let at = scene.pair.at(end);
            match kind {
                0 => scene.pair.world.modify(at, &QpChange::to(QpState::Err)).unwrap(),
                1 => scene.pair.world.modify(at, &QpChange::to(QpState::Reset)).unwrap(),
                2 => scene.pair.world.fail(at),
                _ => scene.pair.world.destroy(at),
            }
        }
        assert_over(&mut scene, sends, WcStatus::LocEecOpErr);
        scene.assert_ended(scene.there[0], Side::Recv, &[(recv, WcStatus::LocEecOpErr)]);
        scene.assert_state(scene.there[0], QpState::Rts);
        let events: &[AsyncEvent] = if kind == 2 { &[AsyncEvent::QpFatal] } else { &[] };
        assert_eq!(scene.pair.take_events(A), events);
        scene.run();
    }
}

#[test] //= check R18 test
fn an_eec_works_again_after_reset() {
    let (mut scene, ..) = cut_off(|_| ());
    for end in [A, B] {
        scene.pair.modify(end, &QpChange::to(QpState::Reset)).unwrap();
    }
    scene.pair.mend(0);
    scene.pair.run();
    for end in [A, B] {
        scene.pair.bring_to(end, QpState::Rts);
    }
    for at in scene.here {
        scene.done(at, Side::Send);
        scene.pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
    }
    scene.done(scene.there[0], Side::Recv);
    scene.assert_eecs_live();
}

#[test] //= check R35 test
fn the_first_request_in_rtr_is_an_event_of_the_eec() {
    let pair = Pair::reset(|terms| terms.qp_type = QpType::Eec);
    let mut scene = Scene::of(pair);
    scene.pair.bring_to(A, QpState::Rts);
    scene.pair.bring_to(B, QpState::Rtr);
    let to = scene.there[0];
    let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 100));
    let sends = [0; 2].map(|_| scene.pair.rd_send(scene.here[0], to, 100));
    scene.pair.run();
    scene.assert_succeeded(scene.here[0], Side::Send, &sends);
    scene.assert_succeeded(to, Side::Recv, &recvs);
    assert_eq!(scene.pair.take_events(B), [AsyncEvent::CommEst]);
    assert_eq!(scene.pair.take_events_at(to), []);
}

#[test] //= check R25 test
fn a_failing_rd_qp_completes_all_receives_flushed_those_of_two_eecs_first() {
    let mut scene = Scene::slow();
    let others = scene.pair.another();
    let to = scene.there[0];
    let recvs = [0; 4].map(|_| scene.pair.rd_recv(to, 4000));
    scene.pair.rd_send(scene.here[0], to, 3000);
    let address = uroce_transport::RdAddress {
        eecn: scene.pair.world.qp(others[A]).qpn(),
        ..scene.pair.rd_address(A, to)
    };
    let sge = scene.pair.local(A).sge(0, 3000);
    let op = uroce_transport::SendOp::Send { imm: None };
    scene.pair.post_rd_as(scene.here[1], &address, op, &[sge], |_| ());
    scene.pair.run_for(Duration::from_nanos(1300));
    scene.pair.world.fail(to);
    let cqes = scene.pair.take_at(to, Side::Recv);
    let expected: Vec<_> = recvs.iter().zip(1..).map(|(wr_id, at)| (*wr_id, at)).collect();
    let ended: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.position)).collect();
    assert_eq!(ended, expected);
    assert!(cqes.iter().all(|cqe| cqe.status == WcStatus::WrFlushErr));
    scene.run();
    assert_eq!(scene.done(to, Side::Recv), []);
}
