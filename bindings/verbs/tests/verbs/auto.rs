//! `failover = "auto"`: connections of programs that load no alternate path survive a cut link.

use crate::common::{SOON, Setup, Side, eventually, pattern, post, talk, tell};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use uroce::cm::{
    AlternateFailure, AlternatePolicy, ConnEvent, ConnectParam, Connection, Destination, Listener,
    PathSpec,
};
use uroce::config::{Failback, Failover, LossConfig};
use uroce::{
    AddressVector, AlternateVector, AsyncEvent, ConnectOptions, Context, EventKind, EventSource,
    PathLoader, PathMigState, PathMtu, Pkey, Qkey, QpChange, QpInfo, QpInit, QpState, QpType,
    SendWr,
};

const TOTAL: LossConfig = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };
const NONE: LossConfig = LossConfig { rx: 0.0, tx: 0.0, seed: 0 };

/// Two devices on two links; the right one may be without failover.
fn contexts(right: Failover, failback: Failback) -> (Context, Context) {
    let mut config = Setup::two_links().config();
    for (device, failover) in config.devices.iter_mut().zip([Failover::Auto, right]) {
        device.failover = failover;
    }
    config.devices[0].failback = failback;
    let open = |name| Context::open(&config, name).expect("a ring link needs no privilege");
    (open("left"), open("right"))
}

fn options() -> ConnectOptions {
    ConnectOptions { timeout: 14, retry_cnt: 7, ..ConnectOptions::default() }
}

/// Two sides that their programs have connected over port 1, and nothing else.
fn joined(contexts: &(Context, Context)) -> (Side, Side) {
    let (mut left, mut right) = (Side::new(&contexts.0), Side::new(&contexts.1));
    crate::common::join(&mut left, &mut right, &options());
    (left, right)
}

/// Two sides of which both QPs are armed `times` times, though nothing was sent.
fn wait_armed(left: &Side, right: &Side, times: u64) {
    eventually("an alternate path", || {
        [left, right].iter().all(|side| side.counter("failover_armed") >= times)
    });
}

fn info(side: &Side) -> QpInfo {
    side.qp.query().expect("the control plane runs")
}

/// Checks that the program sees a QP on the path that it has set, and had no event of a path.
/// Returns the events of ports.
fn sees_its_path(side: &Side) -> Vec<EventKind> {
    use EventKind::{PathMig, PathMigErr, PortActive, PortErr};
    let attr = info(side).attr;
    let gid = side.qp.endpoint(1, 0).unwrap().gid;
    assert_eq!((attr.port, attr.path.encap.src), (1, gid));
    assert_eq!((attr.path_mig_state, attr.alt_path), (PathMigState::Migrated, None));
    assert_eq!(attr.state, QpState::Rts);
    let events = std::iter::from_fn(|| side.context.poll_async_event().expect("a channel"));
    let kinds: Vec<EventKind> = events.map(|event| event.kind).collect();
    assert!(!kinds.iter().any(|kind| matches!(kind, PathMig | PathMigErr)), "{kinds:?}");
    kinds.into_iter().filter(|kind| matches!(kind, PortActive | PortErr)).collect()
}

/// Checks that the program sees a QP on the path that it has set, and had no event of a path or of
/// a port that went down.
fn notices_nothing(side: &Side) {
    let told = sees_its_path(side);
    assert!(!told.contains(&EventKind::PortErr), "{told:?}");
}

/// Cuts the link in use, which the QPs leave, and mends it, so that they are armed again.
fn move_silently(left: &mut Side, right: &mut Side) {
    wait_armed(left, right, 1);
    left.context.set_link(1, false).unwrap();
    talk(left, right);
    left.context.set_link(1, true).unwrap();
    wait_armed(left, right, 2);
}

fn frames(side: &Side, port: u8) -> u64 {
    side.context.port_status(port).expect("a port").stats.tx_packets
}

#[test]
fn a_silent_cut_is_survived_by_a_program_that_loads_no_path_and_it_notices_nothing() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    left.context.set_loss(1, TOTAL).unwrap();
    for _ in 0..3 {
        talk(&mut left, &mut right);
    }
    for side in [&left, &right] {
        notices_nothing(side);
        assert_eq!(side.counter("failover_migrated"), 1);
        assert!(frames(side, 2) > 3);
    }
}

#[test]
fn a_link_that_goes_down_is_left_at_once_and_a_second_cut_is_survived_too() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    for (cut, times) in [(1, 1), (2, 2), (1, 3)] {
        left.context.set_link(cut, false).unwrap();
        talk(&mut left, &mut right);
        for side in [&left, &right] {
            notices_nothing(side);
            eventually("the migration", || side.counter("failover_migrated") == times);
        }
        left.context.set_link(cut, true).unwrap();
        wait_armed(&left, &right, times + 1);
    }
}

/// Waits for an event of this kind, and returns its source.
fn next_of_port(side: &Side, kind: EventKind) -> EventSource {
    let mut event = None;
    eventually("an event", || {
        event = side.context.poll_async_event().expect("a channel");
        event.is_some_and(|event| event.kind == kind)
    });
    event.expect("an event").source
}

#[test]
fn a_program_is_told_of_a_port_that_is_down_if_one_of_its_queue_pairs_cannot_leave_it() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    let datagrams = QpInit::new(&left.cq).qp_type(QpType::Ud);
    let mut datagrams = left.pd.create_qp(&datagrams).unwrap();
    datagrams.start_datagrams(Qkey(1), &options()).unwrap();
    for (up, kind) in [(false, EventKind::PortErr), (true, EventKind::PortActive)] {
        left.context.set_link(1, up).unwrap();
        assert_eq!(next_of_port(&left, kind), EventSource::Port(1));
    }
    // The connection has migrated all the same.
    talk(&mut left, &mut right);
    assert_eq!(left.counter("failover_migrated"), 1);
    notices_nothing(&right);
}

#[test]
fn a_program_is_told_of_its_ports_when_the_last_one_goes_down() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (left, right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    let next = |kind| next_of_port(&left, kind);
    left.context.set_link(2, false).unwrap();
    eventually("the link", || !left.context.port_status(2).expect("a port").link.up);
    assert!(left.context.poll_async_event().expect("a channel").is_none());
    left.context.set_link(1, false).unwrap();
    for port in [1, 2] {
        assert_eq!(next(EventKind::PortErr), EventSource::Port(port));
    }
    for port in [2, 1] {
        left.context.set_link(port, true).unwrap();
        assert_eq!(next(EventKind::PortActive), EventSource::Port(port));
    }
}

#[test]
fn a_program_that_sees_a_port_down_is_told_when_it_is_up_again() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    for (port, times) in [(1, 1), (2, 2), (1, 3)] {
        wait_armed(&left, &right, times);
        left.context.set_link(port, false).unwrap();
        eventually("the link", || !left.context.port_status(port).expect("a port").link.up);
        talk(&mut left, &mut right);
        left.context.set_link(port, true).unwrap();
        // Both ends of the link have gone down, and both programs may wait.
        for side in [&left, &right] {
            let next = || side.context.next_async_event(Some(SOON)).expect("an event");
            let of_port = |event: &AsyncEvent| matches!(event.source, EventSource::Port(_));
            let event = std::iter::repeat_with(next).find(of_port).expect("an endless iterator");
            let told = (event.source, event.kind);
            assert_eq!(told, (EventSource::Port(port), EventKind::PortActive));
        }
    }
    for side in [&left, &right] {
        assert_eq!(sees_its_path(side), []);
    }
}

#[test]
fn a_path_that_was_silent_is_found_again_when_it_is_mended() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    left.context.set_loss(1, TOTAL).unwrap();
    talk(&mut left, &mut right);
    // The probe does not pass, so nothing is armed.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(left.counter("failover_armed"), 1);
    left.context.set_loss(1, NONE).unwrap();
    wait_armed(&left, &right, 2);
    left.context.set_loss(2, TOTAL).unwrap();
    talk(&mut left, &mut right);
    notices_nothing(&left);
}

#[test]
fn a_connection_is_led_back_when_its_path_has_been_armed_for_long_enough() {
    let contexts = contexts(Failover::Auto, Failback::After(1));
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    left.context.set_link(1, false).unwrap();
    talk(&mut left, &mut right);
    assert_eq!(left.counter("failover_returned"), 0);
    left.context.set_link(1, true).unwrap();
    eventually("the way back", || left.counter("failover_returned") == 1);
    talk(&mut left, &mut right);
    wait_armed(&left, &right, 3);
    let before = [&left, &right].map(|side| frames(side, 2));
    for _ in 0..10 {
        talk(&mut left, &mut right);
    }
    let after = [&left, &right].map(|side| frames(side, 2));
    // Neighbour discovery and messages of the control planes may pass.
    assert!(after[0] < before[0] + 10 && after[1] < before[1] + 10, "{before:?} {after:?}");
    notices_nothing(&left);
}

#[test]
fn a_peer_without_failover_drops_the_offers_and_is_left_alone() {
    let contexts = contexts(Failover::Never, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    talk(&mut left, &mut right);
    eventually("the last try", || left.counter("failover_no_answer") == 1);
    assert_eq!(left.counter("failover_armed"), 0);
    assert_eq!(right.counter("gsi_unknown_class"), 8);
    talk(&mut left, &mut right);
    notices_nothing(&left);
}

#[test]
fn a_program_that_loads_a_path_itself_is_left_alone_and_gets_its_events() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    load_own(&left, &right, 14);
    for side in [&left, &right] {
        assert_eq!(info(side).attr.alt_path.map(|path| path.port), Some(2));
    }
    talk(&mut left, &mut right);
    left.qp.migrate().unwrap();
    talk(&mut left, &mut right);
    for side in [&left, &right] {
        let attr = info(side).attr;
        assert_eq!((attr.port, attr.path_mig_state), (2, PathMigState::Migrated));
        let events = std::iter::from_fn(|| side.context.poll_async_event().expect("a channel"));
        assert_eq!(events.filter(|event| event.kind == EventKind::PathMig).count(), 1);
    }
    // Nothing is loaded any more, whatever else the program does with the queue pair.
    for side in [&left, &right] {
        side.qp.control().modify(&QpChange::to(QpState::Sqd), None).unwrap();
        side.qp.control().modify(&QpChange::to(QpState::Rts), None).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    for side in [&left, &right] {
        let info = info(side);
        assert_eq!((info.attr.port, info.attr.alt_path), (2, None));
        assert_eq!(info.loader, PathLoader::Application);
    }
    talk(&mut left, &mut right);
}

/// Loads the second link as the alternate path of both queue pairs, as a program does.
fn load_own(left: &Side, right: &Side, timeout: u8) {
    for (own, peer) in [(left, right), (right, left)] {
        let gid = peer.qp.endpoint(2, 0).unwrap().gid;
        let (vector, pkey) = (AddressVector::to(gid), Pkey::DEFAULT);
        let way = AlternateVector { vector, port: 2, pkey, timeout };
        let change = QpChange { path_mig_state: Some(PathMigState::Rearm), ..QpChange::default() };
        own.qp.control().modify_paths(&change, None, Some(&way)).unwrap();
    }
}

#[test]
fn a_program_may_load_its_path_and_ask_for_rearm_in_two_calls() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    let gids = [&right, &left].map(|side| side.qp.endpoint(2, 0).unwrap().gid);
    for (side, gid) in [&left, &right].into_iter().zip(gids) {
        let vector = AddressVector::to(gid);
        let way = AlternateVector { vector, port: 2, pkey: Pkey::DEFAULT, timeout: 17 };
        side.qp.control().load_alternate_path(&way).unwrap();
        side.qp.control().rearm().unwrap();
        // Only once, as without the control plane's path.
        assert!(side.qp.control().rearm().is_err());
    }
    talk(&mut left, &mut right);
    for side in [&left, &right] {
        let attr = info(side).attr;
        assert_eq!(attr.alt_path.map(|path| path.timeout), Some(17));
        assert_eq!(attr.path_mig_state, PathMigState::Armed);
    }
    left.qp.migrate().unwrap();
    talk(&mut left, &mut right);
}

#[test]
fn a_path_of_the_program_stays_whatever_the_control_planes_have_agreed_on_by_then() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    for pause_ms in [0, 1, 2, 3, 5, 8, 12, 20, 50] {
        let (mut left, mut right) = joined(&contexts);
        std::thread::sleep(Duration::from_millis(pause_ms));
        load_own(&left, &right, 17);
        std::thread::sleep(Duration::from_millis(100));
        talk(&mut left, &mut right);
        talk(&mut left, &mut right);
        for side in [&left, &right] {
            let attr = info(side).attr;
            assert_eq!(attr.alt_path.map(|path| path.timeout), Some(17), "{pause_ms} ms");
            assert_eq!(attr.path_mig_state, PathMigState::Armed, "{pause_ms} ms");
        }
        left.qp.migrate().unwrap();
        talk(&mut left, &mut right);
        for side in [&left, &right] {
            let events = std::iter::from_fn(|| side.context.poll_async_event().expect("works"));
            let migrated = events.filter(|event| event.kind == EventKind::PathMig).count();
            assert_eq!(migrated, 1, "{pause_ms} ms");
        }
    }
}

#[test]
fn an_end_that_only_receives_follows_a_connection_that_is_led_back() {
    let contexts = contexts(Failover::Auto, Failback::After(1));
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    left.context.set_link(1, false).unwrap();
    talk(&mut left, &mut right);
    left.context.set_link(1, true).unwrap();
    eventually("the way back", || left.counter("failover_returned") == 1);
    // No program sends anything, and the other end follows at once.
    let begin = std::time::Instant::now();
    eventually("the peer's way back", || right.counter("failover_migrated") == 2);
    assert!(begin.elapsed() < Duration::from_millis(500), "{:?}", begin.elapsed());
    let message = pattern(3, 9000);
    tell(&mut right, &mut left, &message);
    notices_nothing(&right);
}

#[test]
fn a_link_is_not_left_for_one_that_is_down_too() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    for port in [2, 1] {
        left.context.set_link(port, false).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    left.context.set_link(1, true).unwrap();
    talk(&mut left, &mut right);
    for side in [&left, &right] {
        assert_eq!(side.counter("failover_migrated"), 0);
        sees_its_path(side);
    }
    // The other one is a way out again once it is back.
    left.context.set_link(2, true).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    left.context.set_link(1, false).unwrap();
    talk(&mut left, &mut right);
    eventually("the migration", || left.counter("failover_migrated") == 1);
}

#[test]
fn of_two_links_that_are_down_the_first_that_comes_back_is_taken() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    wait_armed(&left, &right, 1);
    for port in [2, 1] {
        left.context.set_link(port, false).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(left.counter("failover_migrated"), 0);
    left.context.set_link(2, true).unwrap();
    // Before anything is sent.
    eventually("the migration", || left.counter("failover_migrated") == 1);
    talk(&mut left, &mut right);
    sees_its_path(&left);
}

#[test]
fn a_path_that_the_program_loads_after_a_silent_migration_leads_to_the_other_link() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    move_silently(&mut left, &mut right);
    // The program believes that the second link is free.
    load_own(&left, &right, 17);
    for side in [&left, &right] {
        let attr = info(side).attr;
        assert_eq!((attr.port, attr.alt_path.map(|path| path.port)), (2, Some(1)));
    }
    talk(&mut left, &mut right);
    left.context.set_link(2, false).unwrap();
    talk(&mut left, &mut right);
    assert_eq!([&left, &right].map(|side| info(side).attr.port), [1, 1]);
}

#[test]
fn a_path_that_the_program_sets_anew_after_a_silent_migration_is_by_the_port_that_it_knows() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = joined(&contexts);
    move_silently(&mut left, &mut right);
    let gids = [&right, &left].map(|side| side.qp.endpoint(1, 0).unwrap().gid);
    for (side, gid) in [&left, &right].into_iter().zip(gids) {
        side.qp.control().modify(&QpChange::to(QpState::Sqd), None).unwrap();
        side.qp
            .control()
            .modify(&QpChange::to(QpState::Sqd), Some(&AddressVector::to(gid)))
            .unwrap();
        side.qp.control().modify(&QpChange::to(QpState::Rts), None).unwrap();
    }
    let before = [1, 2].map(|port| frames(&left, port));
    talk(&mut left, &mut right);
    // A message has three packets. By the other link come at most messages of the control planes.
    let [here, there] = [1, 2].map(|port| frames(&left, port) - before[port as usize - 1]);
    assert!(here >= 3 && here > there, "{here} and {there} frames");
    notices_nothing(&left);
    // And there is a way out of it again.
    wait_armed(&left, &right, 3);
    left.context.set_link(1, false).unwrap();
    talk(&mut left, &mut right);
}

#[test]
fn a_server_that_stays_in_rtr_is_armed_too_and_its_client_survives_a_cut() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right) = (Side::new(&contexts.0), Side::new(&contexts.1));
    let ends = [&left.qp, &right.qp].map(|qp| qp.endpoint(1, 0).unwrap());
    right.qp.init(&options()).unwrap();
    let to_rtr = QpChange {
        path_mtu: Some(PathMtu::B1024),
        dest_qpn: Some(ends[0].qpn),
        rq_psn: Some(ends[0].psn),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        ..QpChange::to(QpState::Rtr)
    };
    right.qp.modify(&to_rtr, Some(&AddressVector::to(ends[0].gid))).unwrap();
    let path_mtu = Some(PathMtu::B1024);
    left.qp.connect(&ends[1], &ConnectOptions { path_mtu, ..options() }).unwrap();
    let target = right.memory.remote();
    let write = |left: &mut Side| {
        post(&mut left.qp, SendWr::write(&[left.memory.slice(..9000).unwrap()], target));
        left.done();
    };
    write(&mut left);
    wait_armed(&left, &right, 1);
    for (cut, mended) in [(1, 2), (2, 1)] {
        left.context.set_loss(mended, NONE).unwrap();
        left.context.set_loss(cut, TOTAL).unwrap();
        for _ in 0..3 {
            write(&mut left);
        }
        notices_nothing(&left);
        left.context.set_loss(cut, NONE).unwrap();
        wait_armed(&left, &right, u64::from(cut) + 1);
    }
    assert_eq!((info(&right).attr.state, info(&right).attr.port), (QpState::Rtr, 1));
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two sides connected by the connection manager over the first link.
fn connected(contexts: &(Context, Context)) -> (Side, Side, Connection, Connection) {
    connected_with(contexts, &ConnectParam::default())
}

fn connected_with(
    contexts: &(Context, Context),
    param: &ConnectParam,
) -> (Side, Side, Connection, Connection) {
    let (left, right) = contexts;
    let address = SocketAddr::new(ip("192.0.2.2"), 7471);
    let listener = Listener::bind(right, address, 4).unwrap();
    let (left, right) = (Side::new(left), Side::new(right));
    let active = Connection::begin(&left.qp, Destination::to(address), param).unwrap();
    let request = listener.next(SOON).expect("a request in time");
    let passive = request.accept(&right.qp, param).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    (left, right, active, passive)
}

#[test]
fn a_connection_of_the_connection_manager_gets_its_path_by_lap_without_an_event() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let (mut left, mut right, active, passive) = connected(&contexts);
    wait_armed(&left, &right, 1);
    for side in [&left, &right] {
        assert_eq!(side.counter("cm_alternate_loaded"), 1);
    }
    left.context.set_link(1, false).unwrap();
    for _ in 0..3 {
        talk(&mut left, &mut right);
    }
    for side in [&left, &right] {
        notices_nothing(side);
        assert_eq!(side.counter("cm_path_migrated"), 1);
    }
    left.context.set_link(1, true).unwrap();
    wait_armed(&left, &right, 2);
    left.context.set_link(2, false).unwrap();
    talk(&mut left, &mut right);
    // The connection's own messages take the path of its data.
    active.disconnect().unwrap();
    match passive.next_event(SOON) {
        Some(ConnEvent::Disconnected { .. }) => {}
        other => panic!("{other:?}"),
    }
}

fn second_link() -> PathSpec {
    PathSpec { source: Some(ip("198.51.100.1")), ..PathSpec::to(ip("198.51.100.2")) }
}

fn second_link_back() -> PathSpec {
    PathSpec { source: Some(ip("198.51.100.2")), ..PathSpec::to(ip("198.51.100.1")) }
}

/// Checks that the proposal of one end is loaded by both, as the programs see it.
fn is_reported(from: &Connection, to: &Connection) {
    match from.next_event(SOON) {
        Some(ConnEvent::AlternateLoaded(Ok(()))) => {}
        other => panic!("{other:?}"),
    }
    match to.next_event(SOON) {
        Some(ConnEvent::AlternateChanged(_)) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_path_that_a_program_proposes_itself_is_reported_from_either_end() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    for is_active in [true, false] {
        let (left, right, active, passive) = connected(&contexts);
        wait_loaded(&left, &right);
        if is_active {
            active.load_alternate_path(&second_link()).unwrap();
            is_reported(&active, &passive);
        } else {
            passive.load_alternate_path(&second_link_back()).unwrap();
            is_reported(&passive, &active);
        }
        for side in [&left, &right] {
            assert_eq!(info(side).attr.alt_path.map(|path| path.port), Some(2));
            assert_eq!(info(side).loader, PathLoader::Application);
        }
    }
}

/// Waits until the control planes have armed these queue pairs.
fn wait_loaded(left: &Side, right: &Side) {
    eventually("a path of the control planes", || {
        [left, right].iter().all(|side| info(side).loader == PathLoader::ControlPlane)
    });
}

#[test]
fn a_program_that_proposes_a_path_at_once_is_not_held_up_by_the_control_planes() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    for pause_ms in [0, 1, 2, 3, 5, 8, 12, 20] {
        let (left, right, active, passive) = connected(&contexts);
        std::thread::sleep(Duration::from_millis(pause_ms));
        active.load_alternate_path(&second_link()).unwrap();
        is_reported(&active, &passive);
        for side in [&left, &right] {
            assert_eq!(info(side).loader, PathLoader::Application, "{pause_ms} ms");
        }
    }
}

#[test]
fn a_program_that_refuses_paths_is_offered_none_by_the_peer_though_the_control_planes_load_one() {
    let contexts = contexts(Failover::Auto, Failback::Never);
    let param =
        ConnectParam { alternate_policy: AlternatePolicy::Refuse, ..ConnectParam::default() };
    for is_active in [true, false] {
        let (left, right, active, passive) = connected_with(&contexts, &param);
        wait_loaded(&left, &right);
        let (from, way) = match is_active {
            true => (&active, second_link()),
            false => (&passive, second_link_back()),
        };
        from.load_alternate_path(&way).unwrap();
        match from.next_event(SOON) {
            Some(ConnEvent::AlternateLoaded(Err(AlternateFailure::Refused(_)))) => {}
            other => panic!("{other:?}"),
        }
    }
}
