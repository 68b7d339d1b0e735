//! Path migration of connections that were made by the connection manager.

use crate::common::{SOON, Setup, Side, post};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use uroce::cm::{ConnEvent, ConnectParam, Connection, Destination, Listener, PathSpec};
use uroce::{PathMigState, RecvWr, SendWr};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Two sides connected over the first link, with the second one as the alternate path.
fn connected() -> (Side, Side, Connection, Connection) {
    let (left, right) = Setup::two_links().contexts();
    let address = SocketAddr::new(ip("192.0.2.2"), 7471);
    let listener = Listener::bind(&right, address, 4).unwrap();
    let (left, right) = (Side::new(&left), Side::new(&right));
    let to = Destination::to(address).alternate(ip("198.51.100.1"), ip("198.51.100.2"));
    let active = Connection::begin(&left.qp, to, &ConnectParam::default()).unwrap();
    let request = listener.next(SOON).expect("a request in time");
    assert!(request.has_alternate());
    let passive = request.accept(&right.qp, &ConnectParam::default()).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    (left, right, active, passive)
}

fn tell(from: &mut Side, to: &mut Side) {
    to.qp.post_recv(&RecvWr::new(&[to.memory.slice(..64).unwrap()])).unwrap();
    post(&mut from.qp, SendWr::send(&[from.memory.slice(..64).unwrap()]));
    from.done();
    to.done();
}

/// Sends messages in both directions until both ends are armed.
fn arm(left: &mut Side, right: &mut Side) {
    let end = Instant::now() + SOON;
    let state = |side: &Side| side.qp.query().unwrap().attr.path_mig_state;
    while [&*left, &*right].iter().any(|side| state(side) != PathMigState::Armed) {
        assert!(Instant::now() < end, "{:?} {:?}", state(left), state(right));
        tell(left, right);
        tell(right, left);
    }
}

fn ports(left: &Side, right: &Side) -> [u8; 2] {
    [left, right].map(|side| side.qp.query().unwrap().attr.port)
}

#[test] //= check I12 test
fn a_connection_migrates_takes_another_path_and_migrates_back() {
    let (mut left, mut right, active, passive) = connected();
    arm(&mut left, &mut right);
    active.migrate().unwrap();
    tell(&mut left, &mut right);
    assert_eq!(ports(&left, &right), [2, 2]);

    // Back to the first link.
    let path = PathSpec { source: Some(ip("192.0.2.1")), ..PathSpec::to(ip("192.0.2.2")) };
    active.load_alternate_path(&path).unwrap();
    match active.next_event(SOON) {
        Some(ConnEvent::AlternateLoaded(Ok(()))) => {}
        other => panic!("{other:?}"),
    }
    match passive.next_event(SOON) {
        Some(ConnEvent::AlternateChanged(seen)) => {
            assert_eq!((seen.local, seen.peer), (ip("192.0.2.2"), ip("192.0.2.1")));
        }
        other => panic!("{other:?}"),
    }
    arm(&mut left, &mut right);
    passive.migrate().unwrap();
    tell(&mut right, &mut left);
    assert_eq!(ports(&left, &right), [1, 1]);
}

#[test] //= check I13 test
fn a_connection_that_has_migrated_is_ended_by_its_new_path() {
    let (mut left, mut right, active, passive) = connected();
    arm(&mut left, &mut right);
    // The first link stays down: neither data nor messages of the connection manager pass.
    left.context.set_link(1, false).unwrap();
    let end = Instant::now() + SOON;
    while ports(&left, &right)[0] != 2 {
        assert!(Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
    tell(&mut left, &mut right);
    assert_eq!(ports(&left, &right), [2, 2]);
    let begin = Instant::now();
    active.disconnect().unwrap();
    assert!(matches!(passive.next_event(SOON), Some(ConnEvent::Disconnected { .. })));
    assert!(begin.elapsed() < SOON);
}
