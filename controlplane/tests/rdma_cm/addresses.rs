//! Addresses: looked up, and bound before a listener exists.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uroce_controlplane::rdma_cm::{
    BindOptions, ConnError, ConnEvent, ConnParam, ConnQp, ConnectSpec, PathSpec, PortSpace,
};
use uroce_controlplane::{PathError, RequestError};
use uroce_wire::cm::RejectReason;

use crate::lab::{Node, PORT, SOON, nodes};

fn bind(node: &Node, port: u16) -> uroce_controlplane::rdma_cm::CmId {
    let options = BindOptions::default();
    let bound = node.device.cm_bind(&node.channel, PortSpace::Tcp, node.socket(port), options);
    bound.expect("it is free").0
}

#[test]
fn a_way_is_looked_up_before_anybody_connects() {
    let (left, right) = nodes();
    let to = PathSpec::to(right.socket(1).ip());
    let id = left.device.cm_resolve(&left.channel, to, SOON).unwrap();
    let ConnEvent::AddressResolved(path) = left.kind(id) else { panic!() };
    assert_eq!((path.port, path.source), (1, left.socket(1).ip()));
    assert_eq!(path.mac, right.device.port(1).unwrap().mac);
    assert_eq!(path.vector.dgid.to_ip(), right.socket(1).ip());
    assert!(left.device.cm_destroy(id).is_err(), "it is gone");
}

#[test]
fn a_way_that_is_not_found_says_so_in_time() {
    let (left, _right) = nodes();
    let soon = Duration::from_millis(20);
    let silent = PathSpec::to("192.0.2.77".parse().unwrap());
    let id = left.device.cm_resolve(&left.channel, silent, soon).unwrap();
    let began = std::time::Instant::now();
    let kind = left.kind(id);
    let no_answer = |error| matches!(error, RequestError::Path(PathError::NoAnswer { .. }));
    assert!(matches!(kind, ConnEvent::AddressError(error) if no_answer(error)), "{kind:?}");
    assert!(began.elapsed() < Duration::from_secs(1));
    let nowhere = PathSpec::to("203.0.113.1".parse().unwrap());
    assert!(left.device.cm_resolve(&left.channel, nowhere, SOON).is_err());
}

#[test]
fn a_look_up_that_is_given_up_has_no_event() {
    let (left, _right) = nodes();
    let silent = PathSpec::to("192.0.2.77".parse().unwrap());
    let soon = Duration::from_millis(20);
    let id = left.device.cm_resolve(&left.channel, silent, soon).unwrap();
    left.device.cm_destroy(id).unwrap();
    assert_eq!(left.channel.next(Duration::from_millis(100)), None);
}

#[test]
fn an_address_is_had_before_it_is_heard() {
    let (left, right) = nodes();
    let id = bind(&right, PORT);
    let options = BindOptions::default();
    let again = right.device.cm_bind(&right.channel, PortSpace::Tcp, right.socket(PORT), options);
    let taken = ConnError::AddressInUse(right.socket(PORT));
    assert_eq!(again.unwrap_err(), RequestError::Connection(taken));
    let end = left.end();
    let active = left.connect(&end, &right);
    let ConnEvent::Rejected { reason, .. } = left.kind(active) else { panic!() };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID.0);
    left.device.cm_destroy(active).unwrap();
    right.device.cm_begin_listening(id, 1).unwrap();
    let end = left.end();
    let active = left.connect(&end, &right);
    assert_eq!(right.request().1.listener, id);
    // The address is free again.
    right.device.cm_destroy(id).unwrap();
    assert!(matches!(left.kind(active), ConnEvent::Rejected { .. }));
    bind(&right, PORT);
}

#[test]
fn the_accepting_side_may_have_a_timeout_of_its_own() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    right.listen();
    let mut spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    spec.param.ack_timeout = 11;
    left.connect_with(spec);
    let (passive, request) = right.request();
    assert_eq!(request.agreed.map(|agreed| agreed.timeout), Some(11));
    let param = ConnParam { own_ack_timeout: Some(21), ..ConnParam::default() };
    right.device.cm_accept(passive, ConnQp::Driven(other.qp.qpn), param).unwrap();
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
    let timeouts = (left.attr(one.qp.qpn).timeout, right.attr(other.qp.qpn).timeout);
    assert_eq!(timeouts, (11, 21));
}

#[test]
fn the_node_itself_is_meant_by_loopback_and_unspecified_addresses() {
    for (node, listens) in [("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1")] {
        let (left, _right) = nodes();
        let (one, other) = (left.end(), left.end());
        let (ip, at): (IpAddr, IpAddr) = (node.parse().unwrap(), listens.parse().unwrap());
        let id = left.device.cm_resolve(&left.channel, PathSpec::to(ip), SOON).unwrap();
        let ConnEvent::AddressResolved(path) = left.kind(id) else { panic!() };
        let own = left.socket(PORT);
        assert_eq!((path.source, path.vector.dgid.to_ip()), (own.ip(), own.ip()));

        let heard = || left.device.cm_is_heard(PortSpace::Tcp, own).unwrap();
        assert!(!heard());
        let at = SocketAddr::new(at, PORT);
        let (listener, got) = left.listen_at(PortSpace::Tcp, at, 1).expect("it is free");
        assert_eq!(got, at);
        assert!(heard());
        let spec = ConnectSpec::new(one.qp.qpn, SocketAddr::new(ip, PORT));
        let active = left.connect_with(spec);
        let (passive, request) = left.request();
        assert_eq!((request.listener, request.local, request.peer.ip()), (listener, own, own.ip()));
        left.accept(passive, &other);
        for _ in 0..2 {
            let (id, event) = left.event();
            assert!(matches!(event, ConnEvent::Established { .. }), "{event:?}");
            assert!([active, passive].contains(&id));
        }
    }
}

#[test]
fn a_node_without_an_address_of_the_version_is_reached_by_the_one_that_it_has() {
    let (left, _right) = nodes();
    let id = left.device.cm_resolve(&left.channel, PathSpec::to("::1".parse().unwrap()), SOON);
    let ConnEvent::AddressResolved(path) = left.kind(id.unwrap()) else { panic!() };
    assert_eq!(path.source, left.socket(1).ip());
    let source = Some("127.0.0.1".parse().unwrap());
    let spec = PathSpec { source, ..PathSpec::to(left.socket(1).ip()) };
    let id = left.device.cm_resolve(&left.channel, spec, SOON).unwrap();
    assert!(matches!(left.kind(id), ConnEvent::AddressResolved(_)));
}
