//! Connections by IP address and port.

use crate::common::{SOON, Setup, Side, pattern, post};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use uroce::cm::{
    CmError, ConnEvent, ConnectParam, ConnectRequest, Connection, Destination, Listener,
    RejectReason,
};
use uroce::config::LossConfig;
use uroce::{QpInit, QpState, QpType, RecvWr, SendWr, WcStatus};

const SERVER: &str = "192.0.2.2:7471";

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address with a port")
}

fn with(private_data: &[u8]) -> ConnectParam {
    ConnectParam { private_data: private_data.to_vec(), ..ConnectParam::default() }
}

/// A client's side, a server's side, and the server's listener.
fn sides() -> (Side, Side, Listener) {
    let (left, right) = Setup::default().contexts();
    let listener = Listener::bind(&right, address(SERVER), 4).expect("the address is free");
    (Side::new(&left), Side::new(&right), listener)
}

fn next(listener: &Listener) -> ConnectRequest {
    listener.next(SOON).expect("a request in time")
}

/// Connects both sides and returns the two ends.
fn connect(left: &Side, right: &Side, listener: &Listener) -> (Connection, Connection) {
    let active = Connection::begin(&left.qp, listener.local_addr(), &with(b"hello")).unwrap();
    let passive = next(listener).accept(&right.qp, &with(b"welcome")).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    (active, passive)
}

fn event(connection: &Connection) -> ConnEvent {
    connection.next_event(SOON).expect("an event in time")
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

#[test]
fn two_ends_connect_exchange_messages_and_disconnect() {
    let (mut left, mut right, listener) = sides();
    let active = Connection::begin(&left.qp, address(SERVER), &with(b"hello")).unwrap();
    let request = next(&listener);
    assert_eq!(request.private_data()[..5], *b"hello");
    assert_eq!(request.private_data().len(), 56);
    assert_eq!(request.local_addr(), address(SERVER));
    assert_eq!(request.peer_addr().ip(), address("192.0.2.1:1").ip());
    assert_eq!((request.peer_qpn(), request.qp_type()), (left.qp.qpn(), QpType::Rc));
    let passive = request.accept(&right.qp, &with(b"welcome")).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    assert_eq!(active.private_data()[..7], *b"welcome");
    assert_eq!((left.qp.state(), right.qp.state()), (QpState::Rts, QpState::Rts));
    let (ours, theirs) = (active.agreed().unwrap(), passive.agreed().unwrap());
    assert_eq!((ours.peer_qpn, theirs.peer_qpn), (right.qp.qpn(), left.qp.qpn()));
    assert_eq!((ours.sq_psn, ours.path_mtu), (theirs.rq_psn, theirs.path_mtu));

    let message = pattern(3, 10_000);
    tell(&mut left, &mut right, &message);
    tell(&mut right, &mut left, &message);

    active.disconnect_with(b"bye").unwrap();
    assert_eq!(left.qp.query().unwrap().attr.state, QpState::Err);
    match event(&passive) {
        ConnEvent::Disconnected { private_data } => assert_eq!(private_data[..3], *b"bye"),
        other => panic!("{other:?}"),
    }
    assert_eq!(right.qp.query().unwrap().attr.state, QpState::Err);
    assert!(matches!(event(&active), ConnEvent::Disconnected { .. }));
    for connection in [&active, &passive] {
        assert!(matches!(event(connection), ConnEvent::TimewaitExit));
    }
}

#[test]
fn receives_that_were_posted_before_are_there_for_the_first_message() {
    let (mut left, mut right, listener) = sides();
    right.qp.init(&uroce::ConnectOptions::default()).unwrap();
    right.qp.post_recv(&RecvWr::new(&[right.memory.slice(..64).unwrap()])).unwrap();
    let (_active, _passive) = connect(&left, &right, &listener);
    left.memory.write_at(0, b"first").unwrap();
    post(&mut left.qp, SendWr::send(&[left.memory.slice(..5).unwrap()]));
    left.done();
    right.done();
    assert_eq!(right.bytes(0, 5), b"first");
}

#[test] //= check J5 test
fn a_connection_is_refused_by_the_application_or_without_a_listener() {
    let (left, _right, listener) = sides();
    let active = Connection::begin(&left.qp, address(SERVER), &with(b"")).unwrap();
    next(&listener).reject(b"not today").unwrap();
    match active.wait_established(SOON) {
        Err(CmError::Rejected { reason, private_data }) => {
            assert_eq!(reason, RejectReason::CONSUMER);
            assert_eq!((&private_data[..9], private_data.len()), (&b"not today"[..], 148));
        }
        other => panic!("{other:?}"),
    }
    // A request that is dropped is rejected.
    let again = left.pd.create_qp(&QpInit::new(&left.cq)).unwrap();
    let active = Connection::begin(&again, address(SERVER), &with(b"")).unwrap();
    drop(next(&listener));
    assert!(matches!(active.wait_established(SOON), Err(CmError::Rejected { .. })));
    // There is no listener at this port.
    let other = left.pd.create_qp(&QpInit::new(&left.cq)).unwrap();
    let absent = Connection::connect(&other, address("192.0.2.2:9"), &with(b""), SOON);
    match absent.unwrap_err() {
        CmError::Rejected { reason, .. } => assert_eq!(reason, RejectReason::INVALID_SERVICE_ID),
        error => panic!("{error:?}"),
    }
}

#[test] //= check J5 test
fn more_requests_than_the_backlog_are_refused() {
    let (left, right) = Setup::default().contexts();
    let listener = Listener::bind(&right, address(SERVER), 2).unwrap();
    let side = Side::new(&left);
    let qps: Vec<_> = (0..3).map(|_| side.pd.create_qp(&QpInit::new(&side.cq)).unwrap()).collect();
    let attempts: Vec<Connection> =
        qps.iter().map(|qp| Connection::begin(qp, address(SERVER), &with(b"")).unwrap()).collect();
    let refused = |attempt: &Connection| match attempt.wait_established(SOON) {
        Err(CmError::Rejected { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&attempts[2]), RejectReason::NO_RESOURCES);
    // Dropping the listener rejects the pending requests.
    drop(listener);
    refused(&attempts[0]);
    refused(&attempts[1]);
}

#[test]
fn a_peer_that_is_not_there_is_a_named_error_in_bounded_time() {
    let (left, _right, _listener) = sides();
    let begin = Instant::now();
    let error = Connection::connect(&left.qp, address("192.0.2.77:7471"), &with(b""), SOON);
    assert!(matches!(error, Err(CmError::Request(_))), "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    let late = Connection::connect(
        &left.pd.create_qp(&QpInit::new(&left.cq)).unwrap(),
        address("192.0.2.78:7471"),
        &with(b""),
        Duration::from_millis(20),
    );
    assert!(matches!(late, Err(CmError::TimedOut)), "{late:?}");
}

#[test] //= check J6 test
fn private_data_has_exact_limits() {
    let (left, right, listener) = sides();
    let too_long = |result: Result<Connection, CmError>| match result {
        Err(CmError::Refused(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let error = too_long(Connection::begin(&left.qp, address(SERVER), &with(&[7; 57])));
    assert!(error.contains("57") && error.contains("56"), "{error}");
    // The refused call has changed nothing.
    let active = Connection::begin(&left.qp, address(SERVER), &with(&[7; 56])).unwrap();
    let request = next(&listener);
    assert_eq!(request.private_data(), [7; 56]);
    let passive = request.accept(&right.qp, &with(&[9; 196])).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    assert_eq!(active.private_data(), [9; 196]);
    assert!(matches!(active.disconnect_with(&[1; 221]), Err(CmError::Refused(_))));
    active.disconnect_with(&[1; 220]).unwrap();
    match event(&passive) {
        ConnEvent::Disconnected { private_data } => assert_eq!(private_data, [1; 220]),
        other => panic!("{other:?}"),
    }
}

/// Whether both ends use selective repeat, as they were told and as their QPs are.
fn selective_repeat(ends: [(&Connection, &Side); 2]) -> [bool; 2] {
    ends.map(|(connection, side)| {
        let agreed = connection.agreed().expect("established").selective_repeat;
        assert_eq!(side.qp.query().unwrap().attr.selective_repeat, agreed);
        agreed
    })
}

#[test] //= check A28 test
fn two_ends_agree_on_selective_repeat_and_lose_nothing() {
    let loss = LossConfig { rx: 0.02, tx: 0.02, seed: 5 };
    let (left, right) = Setup { loss, ..Setup::default() }.contexts();
    let listener = Listener::bind(&right, address(SERVER), 4).unwrap();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let (active, passive) = connect(&left, &right, &listener);
    assert_eq!(selective_repeat([(&active, &left), (&passive, &right)]), [true; 2]);
    for seed in 0..50 {
        tell(&mut left, &mut right, &pattern(seed, 20_000));
    }
}

#[test] //= check A28 test
fn private_data_of_full_length_leaves_selective_repeat_off() {
    let (left, right, listener) = sides();
    let active = Connection::begin(&left.qp, address(SERVER), &with(&[7; 56])).unwrap();
    let passive = next(&listener).accept(&right.qp, &with(&[9; 8])).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    assert_eq!(selective_repeat([(&active, &left), (&passive, &right)]), [false; 2]);
}

#[test]
fn dropping_a_connection_disconnects_and_its_queue_pair_fails() {
    let (left, right, listener) = sides();
    let (active, passive) = connect(&left, &right, &listener);
    drop(active);
    assert!(matches!(event(&passive), ConnEvent::Disconnected { .. }));
    for side in [&left, &right] {
        assert_eq!(side.qp.query().unwrap().attr.state, QpState::Err);
    }
    let Side { mut qp, memory, cq, .. } = right;
    let target = [memory.slice(..8).unwrap()];
    qp.post_recv(&RecvWr::new(&target)).unwrap();
    assert_eq!(cq.wait(SOON).unwrap().unwrap().status, WcStatus::WrFlushErr);
}

#[test]
fn both_ends_may_disconnect_at_once() {
    let (left, right, listener) = sides();
    let (active, passive) = connect(&left, &right, &listener);
    std::thread::scope(|threads| {
        threads.spawn(|| active.disconnect().unwrap());
        // The second call finds the connection ended or ending.
        let _ = passive.disconnect();
    });
    for connection in [&active, &passive] {
        assert!(matches!(event(connection), ConnEvent::Disconnected { .. }));
        assert!(matches!(event(connection), ConnEvent::TimewaitExit));
        assert!(connection.next_event(Duration::from_millis(20)).is_none());
    }
}

#[test]
fn a_queue_pair_of_another_device_or_service_is_refused() {
    let (left, right, listener) = sides();
    let active = Connection::begin(&left.qp, address(SERVER), &with(b"")).unwrap();
    assert!(matches!(next(&listener).accept(&left.qp, &with(b"")), Err(CmError::OtherDevice)));
    assert!(active.wait_established(SOON).is_err());
    let datagrams = left.pd.create_qp(&QpInit::new(&left.cq).qp_type(QpType::Ud)).unwrap();
    let error = Connection::begin(&datagrams, address(SERVER), &with(b""));
    assert!(matches!(error, Err(CmError::Refused(_))), "{error:?}");
    assert_eq!(right.qp.state(), QpState::Reset);
}

#[test]
fn connections_of_uc_queue_pairs_and_over_ipv6() {
    let setup = Setup { addresses: ["2001:db8::1/64", "2001:db8::2/64"], ..Setup::default() };
    let (left, right) = setup.contexts();
    let listener = Listener::bind(&right, address("[::]:0"), 4).unwrap();
    let port = listener.local_addr().port();
    assert_ne!(port, 0);
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let init = |side: &Side| side.pd.create_qp(&QpInit::new(&side.cq).qp_type(QpType::Uc)).unwrap();
    (left.qp, right.qp) = (init(&left), init(&right));
    let to = Destination::to(SocketAddr::new(address("[2001:db8::2]:1").ip(), port));
    let to = to.from(address("[2001:db8::1]:1").ip());
    let active = Connection::begin(&left.qp, to, &with(b"")).unwrap();
    let request = next(&listener);
    assert_eq!(request.qp_type(), QpType::Uc);
    let passive = request.accept(&right.qp, &with(b"")).unwrap();
    active.wait_established(SOON).unwrap();
    passive.wait_established(SOON).unwrap();
    right.qp.post_recv(&RecvWr::new(&[right.memory.slice(..64).unwrap()])).unwrap();
    post(&mut left.qp, SendWr::send(&[left.memory.slice(..7).unwrap()]));
    left.done();
    assert_eq!(right.completion().byte_len, 7);
}

#[test]
fn many_connections_one_after_the_other() {
    let (mut left, mut right, listener) = sides();
    for _ in 0..20 {
        left.qp = left.pd.create_qp(&QpInit::new(&left.cq)).unwrap();
        right.qp = right.pd.create_qp(&QpInit::new(&right.cq)).unwrap();
        let (active, passive) = connect(&left, &right, &listener);
        active.disconnect().unwrap();
        assert!(matches!(event(&passive), ConnEvent::Disconnected { .. }));
    }
}
