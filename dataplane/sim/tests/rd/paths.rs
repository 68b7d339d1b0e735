//! Paths of EECs: migration for every cause, and rates.

use core::time::Duration;

use uroce_sim::{Pair, Rails, Rule, Terms};
use uroce_transport::{
    AsyncEvent, Counter, PathMigState, QpChange, QpState, QpType, Side, StaticRate, WcStatus,
};
use uroce_wire::OpCode;

use crate::{A, B, Scene};

/// A scene with two paths, both EECs ARMED to migrate to the second.
fn armed(change: impl FnOnce(&mut Terms)) -> Scene {
    let mut scene = Scene::with(|terms| {
        terms.rails = Rails::TwoPorts;
        change(terms);
    });
    for end in [A, B] {
        scene.pair.rearm(end).unwrap();
    }
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.rd_write(from, to, 0, None);
    scene.run();
    scene.done(from, Side::Send);
    for end in [A, B] {
        assert_eq!(scene.pair.path_mig_state(end), PathMigState::Armed);
    }
    scene
}

/// Checks that both EECs have migrated, told of it once, and work.
#[track_caller]
fn assert_migrated(scene: &mut Scene) {
    scene.run();
    for end in [A, B] {
        assert_eq!(scene.pair.rail(end), 1, "end {end}");
        assert_eq!(scene.pair.path_mig_state(end), PathMigState::Migrated);
        assert_eq!(scene.pair.take_events(end), [AsyncEvent::PathMig], "end {end}");
    }
    for at in scene.here.into_iter().chain(scene.there) {
        assert_eq!(scene.pair.take_events_at(at), [], "no event of an RD QP");
    }
    scene.assert_eecs_live();
}

#[test] //= check R28 test
//= check R27 test
fn an_eec_migrates_when_its_retries_are_exhausted() {
    for kind in 0..3 {
        let mut scene = armed(|_| ());
        let (from, to) = (scene.here[0], scene.there[0]);
        let recv = scene.pair.rd_recv(to, 4000);
        // By timeouts, by sequence NAKs, and by READ responses that are missing.
        match kind {
            0 => scene.pair.cut(0),
            1 => {
                // The message begins with PSN 1, after the one that armed the EECs.
                scene.pair.rule(Rule::drop().from(A).on(0).psn(scene.pair.psn(A, 3)));
            }
            _ => {
                scene.pair.rule(Rule::drop().from(B).on(0).psn(scene.pair.psn(A, 3)));
            }
        }
        let send = match kind {
            2 => scene.pair.rd_read(from, to, 3000),
            _ => scene.pair.rd_send(from, to, 3000),
        };
        assert_migrated(&mut scene);
        scene.assert_succeeded(from, Side::Send, &[send]);
        if kind < 2 {
            scene.assert_succeeded(to, Side::Recv, &[recv]);
        }
        assert_eq!(scene.pair.count(A, Counter::PathMigrations), 1);
    }
}

#[test] //= check R28 test
fn an_eec_migrates_by_software_and_its_peer_follows() {
    for end in [A, B] {
        let mut scene = armed(|_| ());
        scene.pair.migrate(end).unwrap();
        let from = if end == A { scene.here[0] } else { scene.there[0] };
        let to = if end == A { scene.there[0] } else { scene.here[0] };
        scene.pair.rd_recv(to, 100);
        scene.pair.rd_send(from, to, 100);
        scene.run();
        let new: Vec<_> = scene.pair.seen(end).into_iter().filter(|seen| seen.rail == 1).collect();
        assert!(new[0].bth.mig_req, "the first packet on the new path asks");
        assert_migrated(&mut scene);
    }
}

#[test] //= check R28 test
fn a_request_to_migrate_by_another_path_is_refused_and_told_of() {
    let mut scene = armed(|_| ());
    scene.pair.world.stop_tap();
    let qpn = scene.pair.world.qp(scene.there[0]).qpn();
    let packet = scene.pair.craft(A, OpCode::RD_SEND_ONLY).bth(|bth| {
        (bth.mig_req, bth.dest_qpn) = (true, qpn);
    });
    let mut path = scene.pair.path_on(A, 0);
    path.src = uroce_wire::Gid::from(core::net::Ipv4Addr::new(10, 0, 0, 77));
    let frame = scene.pair.frame_by(&path, &packet);
    scene.pair.deliver_frame(A, frame);
    assert_eq!(scene.pair.take_events(B), [AsyncEvent::PathMigErr]);
    assert_eq!(scene.pair.path_mig_state(B), PathMigState::Armed);
    assert_eq!(scene.pair.rail(B), 0);
}

#[test] //= check R27 test
fn exhausted_again_after_a_migration_the_eec_ends() {
    let mut scene = armed(|_| ());
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.cut(0);
    scene.pair.cut(1);
    let send = scene.pair.rd_send(from, to, 3000);
    scene.run();
    scene.assert_ended(from, Side::Send, &[(send, WcStatus::RetryExcErr)]);
    assert_eq!(scene.pair.qp(A).state(), QpState::Err);
    assert_eq!(scene.pair.take_events(A), [AsyncEvent::PathMig]);
}

#[test] //= check R28 test
fn three_rd_qps_over_one_eec_with_a_failover_in_the_middle() {
    let mut scene = armed(|_| ());
    let mut sends = Vec::new();
    for (from, to) in scene.here.into_iter().zip(scene.there) {
        for _ in 0..10 {
            let recv = scene.pair.rd_recv(to, 10_000);
            sends.push((from, to, scene.pair.rd_send(from, to, 9000), recv));
        }
    }
    scene.pair.run_for(Duration::from_micros(30));
    scene.pair.cut(0);
    scene.run();
    for (from, to) in scene.here.into_iter().zip(scene.there) {
        let mine = sends.iter().filter(|(at, ..)| *at == from);
        let (sent, received): (Vec<_>, Vec<_>) =
            mine.map(|(.., send, recv)| (*send, *recv)).unzip();
        scene.assert_succeeded(from, Side::Send, &sent);
        scene.assert_succeeded(to, Side::Recv, &received);
    }
    assert_migrated(&mut scene);
}

#[test] //= check R30 test
fn a_rate_of_the_path_or_of_the_eec_holds_for_all_its_rd_qps_together() {
    for by_path in [true, false] {
        let mut scene = Scene::of(Pair::reset(|terms| {
            terms.qp_type = QpType::Eec;
            terms.is_tapped = true;
        }));
        scene.pair.bring_to(B, QpState::Rts);
        // 2.5 Gb/s.
        let rate = StaticRate::from_code(2).unwrap();
        let mbps = rate.mbps().unwrap();
        for mut change in scene.pair.changes(A) {
            if by_path && let Some(path) = &mut change.path {
                path.rate = rate;
            }
            scene.pair.modify(A, &change).unwrap();
        }
        if !by_path {
            let rate_limit = Some(mbps * 1000);
            scene.pair.modify(A, &QpChange { rate_limit, ..QpChange::default() }).unwrap();
        }
        let begin = scene.pair.world.now();
        for (from, to) in scene.here.into_iter().zip(scene.there) {
            scene.pair.rd_write(from, to, 20_000, None);
        }
        scene.run();
        let record = scene.pair.world.record().unwrap();
        let frames: Vec<_> = record.sightings().filter(|seen| seen.from == A).collect();
        let bits: u64 = frames.iter().map(|seen| seen.frame.len() as u64 * 8).sum();
        let last = frames[frames.len() - 1];
        let all = bits - last.frame.len() as u64 * 8;
        let due = Duration::from_nanos(all * 1000 / u64::from(mbps));
        let took = last.at.since(begin);
        assert!(took >= due, "{took:?} for {due:?}");
        // Between two messages the EEC waits for an acknowledgement.
        assert!(took < due + Duration::from_micros(10), "{took:?} for {due:?}");
    }
}
