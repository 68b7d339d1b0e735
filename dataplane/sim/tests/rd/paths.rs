//! Paths of EECs: migration for every cause, and rates.

use core::time::Duration;

use uroce_sim::{Pair, Rails, Rule, Terms};
use uroce_transport::{
    AsyncEvent, Counter, DropReason, PathMigState, QpChange, QpState, QpType, Side, StaticRate,
    WcStatus,
};
use uroce_wire::{Encap, Frame, NakCode, OpCode, Pkey, Syndrome, Vlan};

use crate::{A, B, Scene};

/// Attempts on a path: the first, and the retries of the default terms.
const ATTEMPTS: u64 = 8;

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

/// Asserts that both EECs have migrated after these charges of `counter`, and no other ones.
#[track_caller]
fn assert_caused_by(scene: &mut Scene, counter: Counter, charges: u64) {
    assert_migrated(scene);
    assert_eq!(scene.pair.count(A, Counter::PathMigrations), 1);
    let causes = [Counter::LocalAckTimeoutErr, Counter::PacketSeqErr, Counter::ImpliedNakSeqErr];
    for cause in causes {
        let expected = if cause == counter { charges } else { 0 };
        assert_eq!(scene.pair.count(A, cause), expected, "{cause:?} of {counter:?}");
    }
}

#[test] //= check R28 test
//= check R27 test
fn an_eec_migrates_when_timeouts_use_up_its_retries() {
    let mut scene = armed(|_| ());
    let (from, to) = (scene.here[0], scene.there[0]);
    let recv = scene.pair.rd_recv(to, 4000);
    scene.pair.cut(0);
    let send = scene.pair.rd_send(from, to, 3000);
    assert_caused_by(&mut scene, Counter::LocalAckTimeoutErr, ATTEMPTS);
    scene.assert_succeeded(from, Side::Send, &[send]);
    scene.assert_succeeded(to, Side::Recv, &[recv]);
}

/// Has A's requests dropped, and answers the first packet of a SEND with sequence NAKs by this
/// rail until A leaves it.
#[track_caller]
fn refuse(scene: &mut Scene, rail: usize) {
    let pair = &mut scene.pair;
    let nak = pair.craft(B, OpCode::RD_ACKNOWLEDGE).psn(pair.psn(A, 1)).bth(|bth| {
        (bth.mig_req, bth.dest_qpn) = (false, pair.world.qp(scene.here[0]).qpn());
    });
    let nak = nak.ext(|ext| ext.aeth.syndrome = Syndrome::Nak(NakCode::PsnSequenceError));
    let frame = pair.frame_by(&pair.path_on(B, rail), &nak);
    for charge in 0..ATTEMPTS {
        assert_eq!((pair.rail(A), pair.qp(A).state()), (rail, QpState::Rts), "{charge}");
        pair.world.inject_by(rail, B as u16, A as u16, frame.clone(), Duration::ZERO);
        pair.run_for(Duration::ZERO);
    }
}

#[test] //= check R28 test
//= check R27 test
fn so_it_does_when_sequence_naks_use_them_up() {
    let mut scene = armed(|_| ());
    // The checker does not see crafted packets, and so would see no cause.
    scene.pair.world.stop_tap();
    let (from, to) = (scene.here[0], scene.there[0]);
    let recv = scene.pair.rd_recv(to, 4000);
    scene.pair.rule(Rule::drop().from(A).on(0));
    let send = scene.pair.rd_send(from, to, 3000);
    scene.pair.run_for(Duration::ZERO);
    refuse(&mut scene, 0);
    assert_caused_by(&mut scene, Counter::PacketSeqErr, ATTEMPTS);
    scene.assert_succeeded(from, Side::Send, &[send]);
    scene.assert_succeeded(to, Side::Recv, &[recv]);
}

// The responses of one READ: nothing of the EEC follows an ATOMIC before its answer, which is
// therefore missed by the timer only. One attempt: of several, the timer would see every second.
#[test] //= check R28 test
//= check R27 test
fn so_it_does_when_missing_answers_use_them_up() {
    let mut scene = armed(|terms| terms.half[A].retry_cnt = 0);
    let (from, to) = (scene.here[0], scene.there[0]);
    // The first of two responses, with the PSN after that of the message that armed the EECs.
    scene.pair.rule(Rule::drop().from(B).on(0).psn(scene.pair.psn(A, 1)));
    let read = scene.pair.rd_read(from, to, 500);
    assert_caused_by(&mut scene, Counter::ImpliedNakSeqErr, 1);
    scene.assert_succeeded(from, Side::Send, &[read]);
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
    let [first, second] = [0, 1].map(|rail| armed(|_| ()).pair.path_on(A, rail));
    let mut stranger = second;
    stranger.src = uroce_wire::Gid::from(core::net::Ipv4Addr::new(10, 0, 0, 77));
    let crossed = Encap { src: first.src, ..second };
    for (path, rail, pkey) in [
        (first, 0, Pkey::DEFAULT),
        (crossed, 1, Pkey::DEFAULT),
        (stranger, 1, Pkey::DEFAULT),
        (second, 1, Pkey(0x8123)),
    ] {
        let mut scene = armed(|_| ());
        scene.pair.world.stop_tap();
        let (from, to) = (scene.here[0], scene.there[0]);
        let recv = scene.pair.rd_recv(to, 100);
        let [source, dest] = [from, to].map(|at| scene.pair.world.qp(at).qpn());
        // The packet that B expects next, with a receive for it.
        let packet = scene.pair.craft(A, OpCode::RD_SEND_ONLY).psn(scene.pair.psn(A, 1));
        let packet = packet.ext(|ext| ext.deth.src_qpn = source);
        let packet = packet.bth(|bth| (bth.mig_req, bth.dest_qpn, bth.pkey) = (true, dest, pkey));
        let frame = scene.pair.frame_by(&path, &packet);
        let answers = scene.pair.seen(B).len();
        scene.pair.world.inject_by(rail, A as u16, B as u16, frame, Duration::ZERO);
        scene.pair.run_for(Duration::ZERO);
        assert_eq!(scene.pair.take_events(B), [AsyncEvent::PathMigErr], "{path:?} {pkey:?}");
        assert_eq!(scene.pair.drops(B, DropReason::PathMigration), 1);
        assert_eq!(scene.pair.seen(B).len(), answers, "no answer");
        assert_eq!((scene.pair.path_mig_state(B), scene.pair.rail(B)), (PathMigState::Armed, 0));
        scene.assert_ended(to, Side::Recv, &[]);
        // B goes on with its path, and both can still migrate to the alternate one.
        let send = scene.pair.rd_send(from, to, 100);
        scene.run();
        scene.assert_succeeded(from, Side::Send, &[send]);
        scene.assert_succeeded(to, Side::Recv, &[recv]);
        scene.pair.migrate(A).unwrap();
        scene.pair.rd_write(from, to, 100, None);
        assert_migrated(&mut scene);
    }
}

#[test] //= check R27 test
fn exhausted_again_after_a_migration_the_eec_ends() {
    let mut scene = armed(|_| ());
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.world.record_mut().unwrap().clear();
    scene.pair.cut(0);
    scene.pair.cut(1);
    let send = scene.pair.rd_write(from, to, 100, None);
    scene.run();
    assert_given_up(&mut scene, send, Counter::LocalAckTimeoutErr, ATTEMPTS);
    let attempts = scene.pair.seen(A).iter().filter(|seen| seen.rail == 1).count();
    assert_eq!(attempts as u64, ATTEMPTS, "the retries were those of the beginning again");
}

/// Asserts that A has migrated after this many charges of `counter`, and ended after as many more.
#[track_caller]
fn assert_given_up(scene: &mut Scene, wr_id: u64, counter: Counter, charges: u64) {
    scene.assert_ended(scene.here[0], Side::Send, &[(wr_id, WcStatus::RetryExcErr)]);
    assert_eq!(scene.pair.qp(A).state(), QpState::Err);
    assert_eq!(scene.pair.take_events(A), [AsyncEvent::PathMig, AsyncEvent::PeerLost]);
    assert_eq!(scene.pair.count(A, counter), 2 * charges);
}

#[test] //= check R27 test
fn so_it_ends_by_sequence_naks_and_missing_answers_on_both_paths() {
    let mut scene = armed(|_| ());
    scene.pair.world.stop_tap();
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.rule(Rule::drop().from(A));
    let send = scene.pair.rd_write(from, to, 100, None);
    scene.pair.run_for(Duration::ZERO);
    refuse(&mut scene, 0);
    refuse(&mut scene, 1);
    scene.run();
    assert_given_up(&mut scene, send, Counter::PacketSeqErr, ATTEMPTS);

    let mut scene = armed(|terms| terms.half[A].retry_cnt = 0);
    scene.pair.rule(Rule::drop().from(B).psn(scene.pair.psn(A, 1)));
    let read = scene.pair.rd_read(from, to, 500);
    scene.run();
    assert_given_up(&mut scene, read, Counter::ImpliedNakSeqErr, 1);
    assert_eq!(scene.pair.count(A, Counter::LocalAckTimeoutErr), 0);
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

/// Cause for which an EEC leaves its path.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The owner of this end requests it.
    Software(usize),
    /// The path loses everything.
    Cut,
}

/// A scene of all operations by all RD QPs, both ways, in which the path is left after this many
/// packets; gives what has completed, the memory, and the number of packets.
fn stream(leave: Option<(Way, u64)>) -> (Scene, Vec<String>, u64) {
    let mut scene = armed(|terms| {
        terms.region = 1 << 14;
        terms.settings.budget = 1;
    });
    let before = scene.pair.world.packets();
    for end in [A, B] {
        let (from, to) = match end {
            A => (scene.here, scene.there),
            _ => (scene.there, scene.here),
        };
        for (from, to) in from.into_iter().zip(to) {
            scene.pair.rd_recv(to, 1000);
            scene.pair.rd_recv(to, 1000);
            scene.pair.rd_send(from, to, 900);
            scene.pair.rd_read(from, to, 600);
            scene.pair.rd_write(from, to, 700, Some(end as u32));
            scene.pair.rd_fetch_add(from, to, 3);
        }
    }
    if let Some((way, packets)) = leave {
        scene.pair.run_until(|pair| pair.world.packets() - before >= packets);
        match way {
            Way::Software(end) => scene.pair.migrate(end).unwrap(),
            Way::Cut => scene.pair.cut(0),
        }
    }
    scene.run();
    let packets = scene.pair.world.packets() - before;
    let mut result = Vec::new();
    for at in scene.here.into_iter().chain(scene.there) {
        let sides = [Side::Send, Side::Recv];
        result.push(format!("{at:?} {:?}", sides.map(|side| scene.pair.take_at(at, side))));
    }
    for end in [A, B] {
        let regions = [scene.pair.local(end), scene.pair.remote(end)];
        result.push(format!("{:?}", regions.map(|mr| scene.pair.bytes(end, mr))));
    }
    (scene, result, packets)
}

#[test] //= check R28 test
fn migrating_at_any_packet_the_result_is_that_without_a_migration() {
    let (_, clean, packets) = stream(None);
    for way in [Way::Software(A), Way::Software(B), Way::Cut] {
        for at in 1..packets {
            let (mut scene, result, _) = stream(Some((way, at)));
            for (found, expected) in result.iter().zip(&clean) {
                assert_eq!(found, expected, "{way:?} after packet {at}");
            }
            // What was begun late may have needed no other path yet.
            scene.pair.rd_write(scene.here[0], scene.there[0], 0, None);
            scene.pair.rd_write(scene.there[0], scene.here[0], 0, None);
            assert_migrated(&mut scene);
        }
    }
}

/// The path of an end on a rail, with an address vector that no other path has.
fn vector(scene: &Scene, end: usize, rail: usize, vlan: Option<u16>) -> Encap {
    let number = (2 * end + rail) as u8;
    Encap {
        vlan: vlan.map(|vid| Vlan { vid, pcp: number + 1 }),
        traffic_class: 0x68 + 4 * number,
        flow_label: 0x12345 + u32::from(number),
        hop_limit: 17 + number,
        src_port: 0xc123 + u16::from(number),
        ..scene.pair.path_on(end, rail)
    }
}

/// Asserts that both ends have sent by this rail, all frames with the headers of its vector.
#[track_caller]
fn assert_addressed(scene: &Scene, rail: usize, vlan: Option<u16>) {
    let record = scene.pair.world.record().unwrap();
    for end in [A, B] {
        let (expected, mut count) = (vector(scene, end, rail, vlan), 0);
        for sighting in record.sightings().filter(|sighting| sighting.from == end) {
            let Ok(Frame::Roce(found)) = Frame::parse(&sighting.frame) else { panic!() };
            let is_ipv6 = found.l3[0] >> 4 == 6;
            let first = u32::from_be_bytes(*found.l3.first_chunk().unwrap());
            let found = Encap {
                src_mac: found.src_mac,
                dst_mac: found.dst_mac,
                vlan: found.vlan,
                src: found.src,
                dst: found.dst,
                traffic_class: found.traffic_class,
                flow_label: if is_ipv6 { first & 0xf_ffff } else { expected.flow_label },
                hop_limit: found.hop_limit,
                src_port: found.src_port,
            };
            assert_eq!(found, expected, "end {end}, rail {rail}");
            count += 1;
        }
        assert!(count > 0, "end {end}, rail {rail}");
    }
}

#[test] //= check H13 test
//= check R28 test
fn every_packet_of_an_eec_has_the_address_vector_of_the_path_in_use() {
    for (is_ipv6, vlan) in [(false, None), (true, None), (true, Some(7))] {
        let mut scene = Scene::of(Pair::reset(|terms| {
            (terms.qp_type, terms.is_ipv6) = (QpType::Eec, is_ipv6);
            terms.rails = Rails::TwoPorts;
        }));
        for end in [A, B] {
            for mut change in scene.pair.changes(end) {
                if let Some(path) = &mut change.path {
                    path.encap = vector(&scene, end, 0, vlan);
                }
                scene.pair.modify(end, &change).unwrap();
            }
            let mut alternate = scene.pair.alternate(end, 1);
            alternate.path.encap = vector(&scene, end, 1, vlan);
            let rearm = QpChange {
                alt_path: Some(alternate),
                path_mig_state: Some(PathMigState::Rearm),
                ..QpChange::default()
            };
            scene.pair.modify(end, &rearm).unwrap();
        }
        for rail in [0, 1] {
            let pairs = scene.here.into_iter().zip(scene.there);
            for (from, to) in pairs.flat_map(|(here, there)| [(here, there), (there, here)]) {
                scene.pair.rd_recv(to, 1000);
                scene.pair.rd_send(from, to, 700);
                scene.pair.rd_read(from, to, 700);
                scene.pair.rd_fetch_add(from, to, 1);
            }
            scene.run();
            assert_addressed(&scene, rail, vlan);
            if rail == 0 {
                scene.pair.migrate(A).unwrap();
                // The other end follows.
                scene.pair.rd_write(scene.here[0], scene.there[0], 0, None);
                scene.run();
            }
            scene.pair.world.record_mut().unwrap().clear();
        }
    }
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
