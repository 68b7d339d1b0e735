//! Armed connections over two ports migrate when the link of their port goes down.

use crate::common;
use std::time::{Duration, Instant};

use crate::common::Side;
use uroce::config::{DeviceConfig, PortConfig};
use uroce::{
    AddressVector, AlternateVector, Config, ConnectOptions, Context, EventKind, EventSource,
    PathMigState, Pkey, SendWr,
};

/// Local ACK timeout code for half a second.
const LONG: u8 = 17;
/// Local ACK timeout code for 4 ms.
const SHORT: u8 = 10;

fn ack_timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << code)
}

/// Two devices with two ports each, joined by two links.
fn two_ports(migrate_on_link_down: bool) -> (Context, Context) {
    let device = |name: &str, own: [&str; 2]| {
        let port = |link, own| {
            let port = PortConfig::ring(link).mtu(4200).ip(own).expect("an address");
            PortConfig { migrate_on_link_down, ..port }
        };
        DeviceConfig::new(name).port(port("first", own[0])).port(port("second", own[1]))
    };
    let config = Config::new()
        .device(device("left", ["192.0.2.1/24", "198.51.100.1/24"]))
        .device(device("right", ["192.0.2.2/24", "198.51.100.2/24"]));
    let open = |name| Context::open(&config, name).expect("a ring link needs no privilege");
    (open("left"), open("right"))
}

/// Two sides connected over the first ports and armed for the second ones.
fn armed(left: &Context, right: &Context, timeout: u8) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(left), Side::new(right));
    let options = ConnectOptions { timeout, ..ConnectOptions::default() };
    common::join(&mut a, &mut b, &options);
    for (own, peer) in [(&mut a, right), (&mut b, left)] {
        let vector = AddressVector::to(peer.ports()[1].gids[0]);
        let alternate = AlternateVector { vector, port: 2, pkey: Pkey::DEFAULT, timeout };
        own.qp.load_alternate_path(&alternate).unwrap();
        own.qp.rearm().unwrap();
    }
    // Each side must receive a packet which says that the other is ready.
    let end = Instant::now() + common::SOON;
    while [&a, &b].iter().any(|side| state(side) != PathMigState::Armed) {
        assert!(Instant::now() < end, "{:?} {:?}", state(&a), state(&b));
        write(&mut a, &b, 1);
        write(&mut b, &a, 1);
    }
    (a, b)
}

fn state(side: &Side) -> PathMigState {
    side.qp.query().unwrap().attr.path_mig_state
}

fn write(from: &mut Side, to: &Side, seed: u8) {
    from.memory.write_at(0, &common::pattern(seed, 9000)).unwrap();
    let slice = [from.memory.slice(..9000).unwrap()];
    common::post(&mut from.qp, SendWr::write(&slice, to.memory.remote()));
    from.done();
    assert_eq!(to.bytes(0, 9000), common::pattern(seed, 9000));
}

fn expect(context: &Context, source: EventSource, kind: EventKind) {
    let end = Instant::now() + common::SOON;
    while Instant::now() < end {
        let event = context.next_async_event(Some(common::SOON)).expect("an event in time");
        if (event.source, event.kind) == (source, kind) {
            return;
        }
    }
    panic!("no {kind:?} of {source:?}");
}

#[test]
fn a_connection_moves_to_its_other_port_as_soon_as_its_port_goes_down() {
    let (left, right) = two_ports(true);
    let (mut a, mut b) = armed(&left, &right, LONG);
    left.set_link(1, false).unwrap();
    let begin = Instant::now();
    write(&mut a, &b, 7);
    let took = begin.elapsed();
    assert!(took < ack_timeout(LONG) / 2, "{took:?}: it waited for a timeout");
    for side in [&a, &b] {
        expect(&side.context, EventSource::QueuePair(side.qp.qpn()), EventKind::PathMig);
        let info = side.qp.query().unwrap();
        assert_eq!((info.attr.port, info.attr.path_mig_state), (2, PathMigState::Migrated));
        assert_eq!(info.migration.count, 1);
    }
    write(&mut b, &a, 8);
    // A ring's link goes down at both ends, so both ports have migrated their QPs.
    let sent_away = |context: &Context| counter(context, "link_migrations");
    assert!(sent_away(&left) + sent_away(&right) >= 1);
    assert_eq!(counter(&left, "link_downed"), 1);
    assert_eq!(counter(&left, "local_ack_timeout_err"), 0);
}

#[test]
fn a_connection_may_be_left_to_its_retries() {
    let (left, right) = two_ports(false);
    let (mut a, b) = armed(&left, &right, SHORT);
    left.set_link(1, false).unwrap();
    let begin = Instant::now();
    write(&mut a, &b, 7);
    assert!(begin.elapsed() >= ack_timeout(SHORT), "{:?}", begin.elapsed());
    assert!(counter(&left, "local_ack_timeout_err") >= 1);
    assert_eq!(counter(&left, "link_migrations") + counter(&right, "link_migrations"), 0);
    assert_eq!(a.qp.query().unwrap().migration.count, 1);
}

#[test]
fn connections_that_are_not_armed_or_leave_by_another_port_stay() {
    let (left, right) = two_ports(true);
    let (mut a, b) = armed(&left, &right, LONG);
    let (mut c, d) = (Side::new(&left), Side::new(&right));
    let mut d = d;
    common::join(&mut c, &mut d, &ConnectOptions::default());
    left.set_link(2, false).unwrap();
    expect(&left, EventSource::Port(2), EventKind::PortErr);
    write(&mut a, &b, 5);
    assert_eq!(state(&a), PathMigState::Armed);
    left.set_link(2, true).unwrap();
    left.set_link(1, false).unwrap();
    expect(&left, EventSource::Port(1), EventKind::PortErr);
    assert_eq!(c.qp.query().unwrap().migration.count, 0);
    left.set_link(1, true).unwrap();
    write(&mut c, &d, 6);
    write(&mut a, &b, 9);
    assert_eq!(a.qp.query().unwrap().attr.port, 2);
}

fn counter(context: &Context, name: &str) -> u64 {
    let counters = context.counters().expect("the control plane runs");
    counters.iter().find(|count| count.name == name).expect("a counter of that name").value
}
