//! Automatic path migration between two ports of each device.

use crate::common::{SOON, Setup, Side, post, talk};
use std::time::{Duration, Instant};
use uroce::config::LossConfig;
use uroce::{
    AddressVector, AlternateVector, AsyncEvent, ConnectOptions, EventKind, EventSource,
    ModifyError, PathMigState, Pkey, QpInfo, QpState, RequestError, SendWr, WcStatus,
};

const TOTAL: LossConfig = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };
/// Local ACK timeout code of all paths, 4.2 ms.
const TIMEOUT: u8 = 10;
const RETRIES: u8 = 2;

/// The path to a side's port.
fn way_to(side: &Side, port: u8) -> AlternateVector {
    let gid = side.qp.endpoint(port, 0).expect("the port has an address").gid;
    let (vector, pkey) = (AddressVector::to(gid), Pkey::DEFAULT);
    AlternateVector { vector, port, pkey, timeout: TIMEOUT }
}

/// Two sides connected over port 1, with port 2 loaded as the alternate path at both ends.
fn loaded() -> (Side, Side) {
    let (left, right) = Setup::two_links().contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let ways = [way_to(&right, 2), way_to(&left, 2)];
    let ends = [&left.qp, &right.qp].map(|qp| qp.endpoint(1, 0).unwrap());
    let options = |way: AlternateVector| ConnectOptions {
        timeout: TIMEOUT,
        retry_cnt: RETRIES,
        alternate: Some(way),
        ..ConnectOptions::default()
    };
    right.qp.connect(&ends[0], &options(ways[1])).unwrap();
    left.qp.connect(&ends[1], &options(ways[0])).unwrap();
    (left, right)
}

/// Two sides connected over port 1, and armed for port 2.
fn armed() -> (Side, Side) {
    let (mut left, mut right) = loaded();
    left.qp.rearm().unwrap();
    right.qp.rearm().unwrap();
    arm(&mut left, &mut right);
    (left, right)
}

/// Sends packets in both directions until both ends are armed.
fn arm(left: &mut Side, right: &mut Side) {
    let end = Instant::now() + SOON;
    while [&*left, &*right].iter().any(|side| state(side) != PathMigState::Armed) {
        assert!(Instant::now() < end, "{:?} {:?}", info(left), info(right));
        talk(left, right);
    }
}

fn info(side: &Side) -> QpInfo {
    side.qp.query().expect("the control plane runs")
}

fn state(side: &Side) -> PathMigState {
    info(side).attr.path_mig_state
}

/// Takes the side's pending events of path migration.
fn migrations(side: &Side) -> Vec<AsyncEvent> {
    let events = std::iter::from_fn(|| side.context.poll_async_event().expect("a channel"));
    let is_path =
        |event: &AsyncEvent| matches!(event.kind, EventKind::PathMig | EventKind::PathMigErr);
    events.filter(is_path).collect()
}

/// Checks that the side's queue pair has migrated exactly once, and is on port 2 without an
/// alternate path.
fn migrated_once(side: &Side) {
    let source = EventSource::QueuePair(side.qp.qpn());
    assert_eq!(migrations(side), [AsyncEvent { kind: EventKind::PathMig, source }]);
    let attr = info(side).attr;
    assert_eq!((attr.port, attr.path_mig_state, attr.alt_path), (2, PathMigState::Migrated, None));
    assert_eq!(attr.state, QpState::Rts);
    assert_eq!(info(side).migration.count, 1);
}

fn frames(side: &Side, port: u8) -> u64 {
    side.context.port_status(port).expect("a port").stats.tx_packets
}

#[test] //= check I4 test
fn software_migrates_and_the_peer_follows() {
    let (mut left, mut right) = armed();
    assert_eq!((migrations(&left), migrations(&right)), (vec![], vec![]));
    left.qp.migrate().unwrap();
    // The peer migrates when it receives the next packet.
    assert_eq!(state(&right), PathMigState::Armed);
    let before = [&left, &right].map(|side| frames(side, 1));
    talk(&mut left, &mut right);
    migrated_once(&left);
    migrated_once(&right);
    for _ in 0..5 {
        talk(&mut left, &mut right);
    }
    assert_eq!([&left, &right].map(|side| frames(side, 1)), before, "all went by port 2");
}

#[test] //= check I5 test
fn a_path_that_goes_silent_is_left_and_no_message_is_lost_or_doubled() {
    let (mut left, mut right) = armed();
    left.context.set_loss(1, TOTAL).unwrap();
    let begin = Instant::now();
    talk(&mut left, &mut right);
    // The sender's retries, and the first attempt on the other path.
    let timeout = Duration::from_nanos(4096 << TIMEOUT);
    assert!(begin.elapsed() >= timeout * u32::from(RETRIES), "{:?}", begin.elapsed());
    migrated_once(&left);
    migrated_once(&right);
    let failover = info(&left).migration.failover.expect("an acknowledgement came");
    assert!(failover >= timeout * u32::from(RETRIES) && failover < SOON, "{failover:?}");
    talk(&mut left, &mut right);
}

#[test] //= check I6 test
fn a_message_fails_if_both_paths_are_silent() {
    let (mut left, right) = armed();
    for port in [1, 2] {
        left.context.set_loss(port, TOTAL).unwrap();
    }
    let target = right.memory.remote();
    post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], target));
    assert_eq!(left.completion().status, WcStatus::RetryExcErr);
    assert_eq!(info(&left).attr.state, QpState::Err);
    assert_eq!(migrations(&left).len(), 1);
}

#[test]
fn after_a_migration_another_path_is_loaded_and_migrated_to() {
    let (mut left, mut right) = armed();
    left.qp.migrate().unwrap();
    talk(&mut left, &mut right);
    migrated_once(&left);
    migrated_once(&right);
    // Back to port 1.
    let ways = [way_to(&right, 1), way_to(&left, 1)];
    left.qp.load_alternate_path(&ways[0]).unwrap();
    right.qp.load_alternate_path(&ways[1]).unwrap();
    left.qp.rearm().unwrap();
    right.qp.rearm().unwrap();
    arm(&mut left, &mut right);
    right.qp.migrate().unwrap();
    talk(&mut left, &mut right);
    for side in [&left, &right] {
        assert_eq!((info(side).attr.port, info(side).migration.count), (1, 2));
        assert_eq!(migrations(side).len(), 1);
    }
}

#[test] //= check I8 test
fn migration_changes_that_software_may_not_make_are_refused_and_change_nothing() {
    let refused = |result: Result<(), RequestError>| match result {
        Err(RequestError::Modify(error)) => error,
        other => panic!("{other:?}"),
    };
    let (mut left, mut right) = Setup::default().connect();
    let before = info(&left);
    assert_eq!(refused(left.qp.rearm()), ModifyError::NoAlternatePath);
    assert_eq!(refused(left.qp.migrate()), ModifyError::NotArmed(PathMigState::Migrated));
    let armed =
        uroce::QpChange { path_mig_state: Some(PathMigState::Armed), ..uroce::QpChange::default() };
    assert_eq!(refused(left.qp.modify(&armed, None)), ModifyError::ArmedBySoftware);
    assert_eq!(info(&left), before);
    talk(&mut left, &mut right);
}

#[test] //= check I1 test
fn a_queue_pair_without_an_alternate_path_stays_where_it_is() {
    let (mut left, mut right) = loaded();
    talk(&mut left, &mut right);
    assert_eq!(state(&left), PathMigState::Migrated);
    assert_eq!(info(&left).attr.alt_path.map(|path| path.port), Some(2));
    left.context.set_loss(1, TOTAL).unwrap();
    let target = right.memory.remote();
    post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], target));
    assert_eq!(left.completion().status, WcStatus::RetryExcErr);
    assert_eq!(migrations(&left), []);
}

#[test]
fn armed_queue_pairs_leave_a_port_that_goes_down_at_once() {
    let (mut left, mut right) = armed();
    left.context.set_link(1, false).unwrap();
    let end = Instant::now() + SOON;
    while info(&left).attr.port == 1 {
        assert!(Instant::now() < end, "{:?}", info(&left));
        std::thread::yield_now();
    }
    talk(&mut left, &mut right);
    for side in [&left, &right] {
        let attr = info(side).attr;
        assert_eq!((attr.port, attr.path_mig_state), (2, PathMigState::Migrated));
        assert_eq!(migrations(side).len(), 1);
    }
}

#[test]
fn a_port_reports_that_it_goes_down_and_comes_up() {
    let (left, right) = Setup::two_links().contexts();
    let next = |side: &uroce::Context| side.next_async_event(Some(SOON)).expect("an event in time");
    let of_port = |kind, port| AsyncEvent { kind, source: EventSource::Port(port) };
    // The control planes have read the state of the links. A link that is up from the start causes
    // no event.
    assert!([&left, &right].iter().all(|side| side.port_status(2).unwrap().link.up));
    left.set_link(2, false).unwrap();
    for side in [&left, &right] {
        assert_eq!(next(side), of_port(EventKind::PortErr, 2));
        assert!(!side.port_status(2).unwrap().link.up);
    }
    left.set_link(2, true).unwrap();
    for side in [&left, &right] {
        assert_eq!(next(side), of_port(EventKind::PortActive, 2));
        assert!(side.port_status(2).unwrap().link.up && side.port_status(1).unwrap().link.up);
    }
}
