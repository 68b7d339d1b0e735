//! Connections that are refused, and their reasons.

use uroce_controlplane::RequestError;
use uroce_controlplane::rdma_cm::{
    ConnError, ConnEvent, ConnParam, ConnQp, ConnectSpec, PathSpec, PortSpace,
};
use uroce_transport::{QpState, QpType};

use crate::lab::{PORT, nodes};

fn reason(kind: ConnEvent) -> u16 {
    match kind {
        ConnEvent::Rejected { reason, .. } => reason,
        other => panic!("not rejected but {other:?}"),
    }
}

#[test]
//= check J5 test
fn the_reason_of_a_reject_says_what_is_wrong() {
    let (left, right) = nodes();
    let one = left.end();
    // There is no listener.
    let active = left.connect(&one, &right);
    assert_eq!(reason(left.kind(active)), 8);
    assert_eq!(left.state(&one), QpState::Err);

    // The application rejects it.
    right.listen();
    let one = left.end();
    let active = left.connect(&one, &right);
    let (passive, _) = right.request();
    let data = [7; 148];
    right.device.cm_reject(passive, &data).unwrap();
    let event = loop {
        let (id, event) = left.event();
        if id == active {
            break event;
        }
    };
    assert_eq!(event, ConnEvent::Rejected { reason: 28, private_data: data.to_vec() });
    let unknown = right.device.cm_reject(passive, &[]);
    assert_eq!(unknown, Err(RequestError::Connection(ConnError::UnknownId(passive))));
}

#[test]
//= check J5 test
fn a_full_backlog_refuses_and_has_room_again() {
    let (left, right) = nodes();
    let address = right.socket(PORT);
    let listener = right.listen_at(PortSpace::Tcp, address, 2).unwrap().0;
    let ends: Vec<_> = (0..3).map(|_| left.end()).collect();
    let first = left.connect(&ends[0], &right);
    let (passive, _) = right.request();
    left.connect(&ends[1], &right);
    right.request();
    let third = left.connect(&ends[2], &right);
    assert_eq!(reason(left.kind(third)), 3);
    assert_eq!(right.count("cm_backlog_full"), 1);
    let other = right.end();
    right.accept(passive, &other);
    let end = left.end();
    left.connect(&end, &right);
    loop {
        let (id, event) = left.event();
        if id == first {
            assert!(matches!(event, ConnEvent::Established { .. }));
            break;
        }
    }
    while !matches!(right.event().1, ConnEvent::ConnectRequest(_)) {}
    // The requests that wait are rejected with their listener.
    right.device.cm_destroy(listener).unwrap();
    let mut reasons = vec![];
    while reasons.len() < 2 {
        if let ConnEvent::Rejected { reason, .. } = left.event().1 {
            reasons.push(reason);
        }
    }
    assert_eq!(reasons, [28, 28]);
}

#[test]
//= check J6 test
fn private_data_has_exact_limits() {
    let (left, right) = nodes();
    right.listen();
    let too_long =
        |len: usize, max: usize| Err(RequestError::Connection(ConnError::PrivateData { len, max }));
    let one = left.end();
    let mut spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    spec.param.private_data = vec![1; 57];
    assert_eq!(left.device.cm_connect(&left.channel, spec.clone()).map(|_| ()), too_long(57, 56));
    spec.param.private_data = vec![1; 56];
    let active = left.connect_with(spec);
    let (passive, request) = right.request();
    assert_eq!(request.private_data, [1; 56]);

    let other = right.end();
    let accept = |len| {
        let param = ConnParam { private_data: vec![2; len], ..ConnParam::default() };
        right.device.cm_accept(passive, ConnQp::Driven(other.qp.qpn), param)
    };
    assert_eq!(accept(197), too_long(197, 196));
    assert_eq!(right.device.cm_reject(passive, &[0; 149]), too_long(149, 148));
    accept(196).unwrap();
    let ConnEvent::Established { private_data, .. } = left.kind(active) else { panic!() };
    assert_eq!(private_data, [2; 196]);
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
    assert_eq!(left.device.cm_disconnect(active, &[3; 221]), too_long(221, 220));
    assert_eq!(left.state(&one), QpState::Rts, "a refused call changes nothing");
    left.device.cm_disconnect(active, &[3; 220]).unwrap();
    let ConnEvent::Disconnected { private_data } = right.kind(passive) else { panic!() };
    assert_eq!(private_data, [3; 220]);
}

#[test]
fn calls_that_cannot_be_are_refused_by_name() {
    let (left, right) = nodes();
    let refused = |spec: ConnectSpec| match left.device.cm_connect(&left.channel, spec) {
        Err(RequestError::Connection(error)) => error,
        other => panic!("{other:?}"),
    };
    let one = left.end();
    let datagrams = left.end_of(QpType::Ud);
    let to = right.socket(PORT);
    let good = || ConnectSpec::new(one.qp.qpn, to);
    let of_ud = ConnectSpec::new(datagrams.qp.qpn, to);
    assert_eq!(refused(of_ud), ConnError::WrongService(datagrams.qp.qpn));
    assert_eq!(refused(ConnectSpec { qp: None, ..good() }), ConnError::NoQp);
    let param = ConnParam { retry_count: 8, ..ConnParam::default() };
    assert_eq!(refused(ConnectSpec { param, ..good() }), ConnError::OutOfRange);
    let far = PathSpec::to("198.51.100.1".parse().unwrap());
    let error = left.device.cm_connect(&left.channel, ConnectSpec { path: far, ..good() });
    assert!(matches!(error, Err(RequestError::Path(_))), "{error:?}");
    let stranger = PathSpec { source: Some("192.0.2.9".parse().unwrap()), ..good().path };
    let error = left.device.cm_connect(&left.channel, ConnectSpec { path: stranger, ..good() });
    assert!(matches!(error, Err(RequestError::Path(_))), "{error:?}");

    let listen = |at| left.listen_at(PortSpace::Tcp, at, 1);
    let address = left.socket(PORT);
    listen(address).unwrap();
    let taken = Err(RequestError::Connection(ConnError::AddressInUse(address)));
    assert_eq!(listen(address), taken);
    let (_, any) = listen("0.0.0.0:0".parse().unwrap()).unwrap();
    assert!(any.port() >= 32768);
    let foreign = listen(right.socket(1));
    assert!(matches!(foreign, Err(RequestError::Connection(ConnError::NoSuchAddress(_)))));
}

#[test]
fn a_neighbour_that_does_not_answer_is_an_event() {
    let (left, _right) = nodes();
    let one = left.end();
    let silent = ConnectSpec::new(one.qp.qpn, "192.0.2.77:1".parse().unwrap());
    let active = left.connect_with(silent);
    let ConnEvent::ConnectError(RequestError::Path(error)) = left.kind(active) else { panic!() };
    assert!(error.to_string().contains("192.0.2.77"));
    assert_eq!(left.count("cm_failed"), 1);
}
