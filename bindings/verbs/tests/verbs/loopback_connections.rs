//! Connections with both ends in one process, through an address of the device itself.

use crate::common::{SOON, Setup, Side, pattern, post};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use uroce::cm::{
    CmError, ConnEvent, ConnectParam, Connection, DatagramListener, Destination, Listener,
    RejectReason, SidrStatus, resolve_datagram,
};
use uroce::{ConnectOptions, Context, GRH_LEN, QpInit, QpState, QpType, RecvWr, SendWr};

const SERVER: &str = "192.0.2.1:7471";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address with a port")
}

fn with(private_data: &[u8]) -> ConnectParam {
    ConnectParam { private_data: private_data.to_vec(), ..ConnectParam::default() }
}

fn alone(setup: &Setup) -> Context {
    Context::open(&setup.config(), "left").expect("a ring link needs no privilege")
}

fn sides(setup: &Setup, server: &str) -> (Side, Side, Listener) {
    let context = alone(setup);
    let listener = Listener::bind(&context, address(server), 64).expect("the address is free");
    (Side::new(&context), Side::new(&context), listener)
}

fn renew(side: &mut Side, qp_type: QpType) {
    side.qp = side.pd.create_qp(&QpInit::new(&side.cq).qp_type(qp_type)).expect("QPs are left");
}

/// Connects both sides and returns the two ends.
fn connect(left: &Side, right: &Side, listener: &Listener) -> (Connection, Connection) {
    let active = Connection::begin(&left.qp, listener.local_addr(), &with(b"hello")).unwrap();
    let request = listener.next(SOON).expect("a request in time");
    assert_eq!(request.private_data()[..5], *b"hello");
    assert_eq!(request.local_addr(), listener.local_addr());
    assert_eq!(request.peer_addr().ip(), listener.local_addr().ip());
    assert_eq!(request.peer_qpn(), left.qp.qpn());
    let passive = request.accept(&right.qp, &with(b"welcome")).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    assert_eq!(active.private_data()[..7], *b"welcome");
    (active, passive)
}

/// Sends a message and checks that it arrives.
fn tell(from: &mut Side, to: &mut Side, message: &[u8]) {
    from.memory.write_at(0, message).unwrap();
    to.qp.post_recv(&RecvWr::new(&[to.memory.slice(20_000..40_000).unwrap()])).unwrap();
    post(&mut from.qp, SendWr::send(&[from.memory.slice(..message.len()).unwrap()]));
    from.done();
    assert_eq!(to.completion().byte_len as usize, message.len());
    assert_eq!(to.bytes(20_000, message.len()), message);
}

fn event(connection: &Connection) -> ConnEvent {
    connection.next_event(SOON).expect("an event in time")
}

#[test]
fn two_ends_of_one_process_connect_and_either_disconnects() {
    let v6 = ["2001:db8::1/64", "2001:db8::2/64"];
    for (addresses, server) in [(Setup::default().addresses, SERVER), (v6, "[2001:db8::1]:7471")] {
        let setup = Setup { addresses, lcores: 2, vlan: Some(3), ..Setup::default() };
        let (mut left, mut right, listener) = sides(&setup, server);
        for (qp_type, first) in [(QpType::Rc, 0), (QpType::Rc, 1), (QpType::Uc, 0), (QpType::Uc, 1)]
        {
            renew(&mut left, qp_type);
            renew(&mut right, qp_type);
            let (active, passive) = connect(&left, &right, &listener);
            tell(&mut left, &mut right, &pattern(1, 10_000));
            tell(&mut right, &mut left, &pattern(2, 10_000));
            let ends = [&active, &passive];
            ends[first].disconnect_with(b"bye").unwrap();
            match event(ends[1 - first]) {
                ConnEvent::Disconnected { private_data } => {
                    assert_eq!(private_data[..3], *b"bye");
                }
                other => panic!("{other:?}"),
            }
            assert!(matches!(event(ends[first]), ConnEvent::Disconnected { .. }));
            for (connection, side) in ends.into_iter().zip([&left, &right]) {
                assert_eq!(side.qp.query().unwrap().attr.state, QpState::Err);
                assert!(matches!(event(connection), ConnEvent::TimewaitExit));
            }
        }
        assert_eq!(left.counter("gsi_tx_mads"), left.counter("gsi_rx_mads"));
        assert_eq!(left.counter("cm_retransmitted"), 0);
    }
}

#[test] //= check J5 test
fn a_looped_request_is_refused_by_the_application_or_without_a_listener() {
    let (mut left, _right, listener) = sides(&Setup::default(), SERVER);
    let reason = |result: Result<(), CmError>| match result {
        Err(CmError::Rejected { reason, private_data }) => (reason, private_data),
        other => panic!("{other:?}"),
    };
    let active = Connection::begin(&left.qp, address(SERVER), &with(b"")).unwrap();
    listener.next(SOON).expect("a request").reject(b"not today").unwrap();
    let (refused, private_data) = reason(active.wait_established(SOON).map(|_| ()));
    assert_eq!((refused, &private_data[..9]), (RejectReason::CONSUMER, &b"not today"[..]));

    renew(&mut left, QpType::Rc);
    let absent = Connection::connect(&left.qp, address("192.0.2.1:9"), &with(b""), SOON);
    assert_eq!(reason(absent.map(|_| ())).0, RejectReason::INVALID_SERVICE_ID);

    renew(&mut left, QpType::Rc);
    let active = Connection::begin(&left.qp, address(SERVER), &with(b"")).unwrap();
    drop(listener);
    reason(active.wait_established(SOON).map(|_| ()));
}

#[test]
fn both_ends_may_disconnect_at_once_or_be_dropped() {
    let (mut left, mut right, listener) = sides(&Setup::default(), SERVER);
    for round in 0..20 {
        renew(&mut left, QpType::Rc);
        renew(&mut right, QpType::Rc);
        let (active, passive) = connect(&left, &right, &listener);
        match round % 3 {
            0 => {
                active.disconnect().unwrap();
                // The other end's disconnect may have arrived before.
                let _ = passive.disconnect();
                for connection in [&active, &passive] {
                    assert!(matches!(event(connection), ConnEvent::Disconnected { .. }));
                }
            }
            1 => {
                drop(active);
                assert!(matches!(event(&passive), ConnEvent::Disconnected { .. }));
            }
            _ => {
                drop(passive);
                assert!(matches!(event(&active), ConnEvent::Disconnected { .. }));
            }
        }
    }
}

#[test]
fn many_connections_at_once_find_their_own_other_ends() {
    const COUNT: usize = 50;
    let (left, right, listener) = sides(&Setup { lcores: 2, ..Setup::default() }, SERVER);
    let qp = |side: &Side| side.pd.create_qp(&QpInit::new(&side.cq)).unwrap();
    let mine: Vec<_> = (0..COUNT).map(|_| qp(&left)).collect();
    let theirs: Vec<_> = (0..COUNT).map(|_| qp(&right)).collect();
    let begin = |(at, qp)| Connection::begin(qp, address(SERVER), &with(&[at as u8])).unwrap();
    let active: Vec<_> = mine.iter().enumerate().map(begin).collect();
    let mut passive: Vec<(u8, Connection)> = theirs
        .iter()
        .map(|qp| {
            let request = listener.next(SOON).expect("a request in time");
            let name = request.private_data()[0];
            assert_eq!(request.peer_qpn(), mine[usize::from(name)].qpn());
            (name, request.accept(qp, &with(&[name])).unwrap())
        })
        .collect();
    passive.sort_by_key(|(name, _)| *name);
    for ((name, passive), active) in passive.iter().zip(&active) {
        active.wait_established(SOON).unwrap();
        passive.wait_established(SOON).unwrap();
        assert_eq!(active.private_data()[0], *name);
        let (ours, its) = (active.agreed().unwrap(), passive.agreed().unwrap());
        assert_eq!((ours.sq_psn, ours.rq_psn), (its.rq_psn, its.sq_psn));
    }
    // The passive side ends every other connection.
    for (at, ((_, passive), active)) in passive.iter().zip(&active).enumerate() {
        let ends = if at % 2 == 0 { [active, passive] } else { [passive, active] };
        ends[0].disconnect().unwrap();
        assert!(matches!(event(ends[1]), ConnEvent::Disconnected { .. }));
    }
}

#[test] //= check J3 test
fn lost_messages_to_oneself_are_repeated() {
    let loss = uroce::config::LossConfig { rx: 0.2, tx: 0.0, seed: 3 };
    let (mut left, mut right, listener) = sides(&Setup { loss, ..Setup::default() }, SERVER);
    for _ in 0..10 {
        renew(&mut left, QpType::Rc);
        renew(&mut right, QpType::Rc);
        let (active, _passive) = connect(&left, &right, &listener);
        tell(&mut left, &mut right, &pattern(1, 5_000));
        active.disconnect().unwrap();
    }
    assert!(left.counter("rx_injected_loss") > 0);
    assert!(left.counter("cm_retransmitted") > 0);
}

#[test]
fn the_ports_of_one_device_connect_to_each_other() {
    let context = alone(&Setup::two_links());
    let listener = Listener::bind(&context, address("198.51.100.1:7471"), 4).unwrap();
    let (mut left, mut right) = (Side::new(&context), Side::new(&context));
    let to = Destination::to(listener.local_addr()).from(address("192.0.2.1:1").ip());
    let active = Connection::begin(&left.qp, to, &with(b"")).unwrap();
    let request = listener.next(SOON).expect("a request in time");
    assert_eq!(request.peer_addr().ip(), address("192.0.2.1:1").ip());
    let passive = request.accept(&right.qp, &with(b"")).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    tell(&mut left, &mut right, &pattern(1, 5_000));
    tell(&mut right, &mut left, &pattern(2, 5_000));
    let ports = [&left, &right].map(|side| side.qp.query().unwrap().attr.port);
    assert_eq!(ports, [1, 2]);
}

#[test] //= check J12 test
fn a_datagram_queue_pair_of_the_process_is_found_by_its_port() {
    let context = alone(&Setup::default());
    let own = address("192.0.2.1:7174");
    let listener = DatagramListener::bind(&context, own, 4).expect("the address is free");
    let (mut left, mut right) = (Side::new(&context), Side::new(&context));
    renew(&mut left, QpType::Ud);
    renew(&mut right, QpType::Ud);
    left.qp.start_datagrams(uroce::Qkey(0x0123_4567), &ConnectOptions::default()).unwrap();
    let ask = |to| resolve_datagram(&left.pd, to, b"who", SOON);
    let peer = std::thread::scope(|threads| {
        let asking = threads.spawn(|| ask(own));
        let request = listener.next(SOON).expect("a question in time");
        assert_eq!((&request.private_data()[..3], request.local_addr()), (&b"who"[..], own));
        request.answer(&right.qp, b"me").unwrap();
        asking.join().expect("no panic").unwrap()
    });
    assert_eq!(peer.qpn, right.qp.qpn());
    right.qp.post_recv(&RecvWr::new(&[right.memory.slice(..2000).unwrap()])).unwrap();
    left.memory.write_at(0, b"datagram").unwrap();
    let source = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::send_to(&source, &peer.ah, peer.qpn, peer.qkey));
    left.done();
    assert_eq!(right.completion().byte_len as usize, GRH_LEN + 8);
    assert_eq!(right.bytes(GRH_LEN, 8), b"datagram");
    match ask(address("192.0.2.1:9")) {
        Err(CmError::NotResolved { status, .. }) => assert_eq!(status, SidrStatus::UNSUPPORTED),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_with_both_ends_of_a_connection_closes_at_once() {
    let (left, right, listener) = sides(&Setup::default(), SERVER);
    let (active, passive) = connect(&left, &right, &listener);
    let begin = Instant::now();
    drop((left, right, listener, active, passive));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
}
