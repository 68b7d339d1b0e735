//! Alternate paths of connections: in the request, loaded later, migrated to, refused.

use std::net::IpAddr;

use uroce_controlplane::config::{Config, DeviceConfig, PortConfig};
use uroce_controlplane::rdma_cm::{
    AlternateFailure, AlternatePolicy, CmId, ConnEvent, ConnParam, ConnQp, ConnectSpec, PathSpec,
};
use uroce_transport::{PathMigState, QpChange, QpType, StaticRate};
use uroce_wire::{PathMtu, Psn};

use crate::lab::{End, Node, PORT, eventually, exchange};

const LEFT: [&str; 2] = ["192.0.2.1", "192.0.2.11"];
const RIGHT: [&str; 2] = ["192.0.2.2", "192.0.2.12"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Creates two nodes with two addresses each.
fn nodes() -> (Node, Node) {
    let device = |name: &str, addresses: [&str; 2]| {
        let port = addresses.iter().fold(PortConfig::ring("link"), |port, address| {
            port.ip(&format!("{address}/24")).unwrap()
        });
        DeviceConfig::new(name).port(port)
    };
    let config = Config::new().device(device("left", LEFT)).device(device("right", RIGHT));
    (Node::open(&config, "left", LEFT[0]), Node::open(&config, "right", RIGHT[0]))
}

fn second_path() -> PathSpec {
    PathSpec { source: Some(ip(LEFT[1])), ..PathSpec::to(ip(RIGHT[1])) }
}

/// Connects, with an alternate path in the request.
fn connect(
    left: (&Node, &End),
    right: (&Node, &End),
    alternate: Option<PathSpec>,
    policy: AlternatePolicy,
) -> (CmId, CmId) {
    right.0.listen();
    let spec = ConnectSpec::new(left.1.qp.qpn, right.0.socket(PORT));
    let path = PathSpec { source: Some(ip(LEFT[0])), ..spec.path };
    let active = left.0.connect_with(ConnectSpec { path, alternate, ..spec });
    let (passive, request) = right.0.request();
    assert_eq!(request.has_alternate, alternate.is_some());
    let param = ConnParam { alternate_policy: policy, ..ConnParam::default() };
    right.0.device.cm_accept(passive, ConnQp::Driven(right.1.qp.qpn), param).unwrap();
    for (node, id) in [(left.0, active), (right.0, passive)] {
        assert!(matches!(node.kind(id), ConnEvent::Established { .. }));
    }
    (active, passive)
}

fn is_armed(node: &Node, end: &End) -> bool {
    node.attr(end.qp.qpn).path_mig_state == PathMigState::Armed
}

fn migrate(node: &Node, end: &End) {
    let change = QpChange { path_mig_state: Some(PathMigState::Migrated), ..QpChange::default() };
    node.device.modify_qp(end.qp.qpn, &change, None, None).unwrap();
}

#[test]
//= check I13 test
fn an_alternate_path_of_the_request_is_armed_and_messages_follow_a_migration() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let (active, passive) =
        connect((&left, &one), (&right, &other), Some(second_path()), AlternatePolicy::Accept);
    exchange(&mut one, &mut other);
    eventually(|| is_armed(&left, &one) && is_armed(&right, &other));
    migrate(&left, &one);
    exchange(&mut one, &mut other);
    let path = |node: &Node, end: &End| node.attr(end.qp.qpn).path.encap;
    assert_eq!(path(&left, &one).dst.to_ip(), ip(RIGHT[1]));
    assert_eq!(path(&right, &other).dst.to_ip(), ip(LEFT[1]));
    eventually(|| left.count("cm_path_migrated") == 1 && right.count("cm_path_migrated") == 1);

    // The way back to the first addresses is an alternate path like any other.
    let back = PathSpec { source: Some(ip(LEFT[0])), ..PathSpec::to(ip(RIGHT[0])) };
    left.device.cm_load_alternate(active, back).unwrap();
    assert_eq!(left.kind(active), ConnEvent::AlternateLoaded(Ok(())));
    assert!(matches!(right.kind(passive), ConnEvent::AlternateChanged(_)));
    exchange(&mut one, &mut other);
    eventually(|| is_armed(&left, &one) && is_armed(&right, &other));
    migrate(&right, &other);
    exchange(&mut one, &mut other);
    assert_eq!(path(&left, &one).dst.to_ip(), ip(RIGHT[0]));
    eventually(|| left.count("cm_path_migrated") == 2 && right.count("cm_path_migrated") == 2);
    right.device.cm_disconnect(passive, &[]).unwrap();
    assert!(matches!(left.kind(active), ConnEvent::Disconnected { .. }));
    assert!(matches!(right.kind(passive), ConnEvent::Disconnected { .. }));
    assert_eq!(right.count("cm_retransmitted"), 0);
}

/// Checks that both ends of a connection have the rates that its REQ names.
fn carries_the_rates(qp_type: QpType) {
    let (left, right) = nodes();
    let (one, other) = (left.end_of(qp_type), right.end_of(qp_type));
    let [primary, second] =
        [5_000, 10_000].map(|mbps| StaticRate::from_mbps(mbps).expect("a rate of the verbs"));
    right.listen();
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let mut path = PathSpec { source: Some(ip(LEFT[0])), ..spec.path };
    let mut alternate = second_path();
    (path.vector.static_rate, alternate.vector.static_rate) = (primary, second);
    let active = left.connect_with(ConnectSpec { path, alternate: Some(alternate), ..spec });
    let (passive, _) = right.request();
    let qp = ConnQp::Driven(other.qp.qpn);
    right.device.cm_accept(passive, qp, ConnParam::default()).unwrap();
    for (node, id, end) in [(&left, active, &one), (&right, passive, &other)] {
        assert!(matches!(node.kind(id), ConnEvent::Established { .. }));
        let attr = node.attr(end.qp.qpn);
        let alternate = attr.alt_path.expect("of the request");
        assert_eq!((attr.path.rate, alternate.path.rate), (primary, second));
    }
}

#[test] //= check S4 test
fn a_request_carries_the_rates_of_both_paths() {
    carries_the_rates(QpType::Rc);
}

#[test] //= check S4 test
fn so_does_one_of_uc() {
    carries_the_rates(QpType::Uc);
}

#[test]
//= check I12 test
//= check S4 test
fn a_path_loaded_later_is_armed_with_the_rate_that_it_names() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let (active, passive) = connect((&left, &one), (&right, &other), None, AlternatePolicy::Accept);
    let mut path = second_path();
    // The second time the path is loaded already.
    for (mbps, state) in [(10_000, PathMigState::Rearm), (5_000, PathMigState::Armed)] {
        path.vector.static_rate = StaticRate::from_mbps(mbps).unwrap();
        left.device.cm_load_alternate(active, path).unwrap();
        assert_eq!(left.kind(active), ConnEvent::AlternateLoaded(Ok(())));
        let ConnEvent::AlternateChanged(changed) = right.kind(passive) else { panic!() };
        assert_eq!((changed.local, changed.peer), (ip(RIGHT[1]), ip(LEFT[1])));
        for (node, end) in [(&left, &one), (&right, &other)] {
            let attr = node.attr(end.qp.qpn);
            let rate = attr.alt_path.unwrap().path.rate;
            assert_eq!((rate, attr.path_mig_state), (path.vector.static_rate, state));
        }
        exchange(&mut one, &mut other);
        eventually(|| is_armed(&left, &one) && is_armed(&right, &other));
    }
    migrate(&left, &one);
    exchange(&mut one, &mut other);
    for (node, end, peer) in [(&left, &one, RIGHT[1]), (&right, &other, LEFT[1])] {
        let now = node.attr(end.qp.qpn).path;
        assert_eq!((now.encap.dst.to_ip(), now.rate), (ip(peer), path.vector.static_rate));
    }
}

#[test]
//= check I12 test
fn the_current_path_and_what_the_policy_forbids_are_refused_with_their_status() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    let (active, passive) = connect((&left, &one), (&right, &other), None, AlternatePolicy::Ask);
    let refused = |status| ConnEvent::AlternateLoaded(Err(AlternateFailure::Refused(status)));
    let current = PathSpec { source: Some(ip(LEFT[0])), ..PathSpec::to(ip(RIGHT[0])) };
    left.device.cm_load_alternate(active, current).unwrap();
    assert_eq!(left.kind(active), refused(5));

    left.device.cm_load_alternate(active, second_path()).unwrap();
    assert!(matches!(right.kind(passive), ConnEvent::AlternateRequest(_)));
    right.device.cm_answer_alternate(passive, false).unwrap();
    assert_eq!(left.kind(active), refused(3));
    assert!(right.device.cm_answer_alternate(passive, true).is_err(), "nothing waits");

    left.device.cm_load_alternate(active, second_path()).unwrap();
    assert!(matches!(right.kind(passive), ConnEvent::AlternateRequest(_)));
    right.device.cm_answer_alternate(passive, true).unwrap();
    assert_eq!(left.kind(active), ConnEvent::AlternateLoaded(Ok(())));
    assert!(matches!(right.kind(passive), ConnEvent::AlternateChanged(_)));
    // The connection manager itself refuses the current path.
    assert_eq!(right.count("cm_alternate_refused"), 1);
    assert_eq!(left.attr(one.qp.qpn).path_mig_state, PathMigState::Rearm);
    assert_eq!(right.attr(other.qp.qpn).path_mig_state, PathMigState::Rearm);
}

#[test]
//= check I12 test
fn no_alternate_path_is_agreed_to_for_a_qp_that_the_connection_leaves_alone() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    right.listen();
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let path = PathSpec { source: Some(ip(LEFT[0])), ..spec.path };
    let active = left.connect_with(ConnectSpec { path, alternate: Some(second_path()), ..spec });
    let (passive, _) = right.request();
    let (qpn, psn) = (other.qp.qpn, Psn::new(9));
    let foreign =
        ConnQp::Foreign { qpn, qp_type: QpType::Rc, psn, has_srq: false, stops_with_peer: false };
    right.device.cm_accept(passive, foreign, ConnParam::default()).unwrap();
    for (node, id) in [(&left, active), (&right, passive)] {
        assert!(matches!(node.kind(id), ConnEvent::Established { .. }));
    }
    assert_eq!(left.attr(one.qp.qpn).path_mig_state, PathMigState::Migrated, "nothing to arm");

    left.device.cm_load_alternate(active, second_path()).unwrap();
    let refused = ConnEvent::AlternateLoaded(Err(AlternateFailure::Refused(3)));
    assert_eq!(left.kind(active), refused);
    assert_eq!(right.count("cm_alternate_loaded"), 0);
}

#[test]
//= check I12 test
fn a_path_that_was_asked_for_is_not_taken_when_the_connection_is_over() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    let (active, passive) = connect((&left, &one), (&right, &other), None, AlternatePolicy::Ask);
    left.device.cm_load_alternate(active, second_path()).unwrap();
    assert!(matches!(right.kind(passive), ConnEvent::AlternateRequest(_)));
    left.device.cm_disconnect(active, &[]).unwrap();
    assert!(matches!(right.kind(passive), ConnEvent::Disconnected { .. }));
    right.device.cm_answer_alternate(passive, true).unwrap();
    assert_eq!(right.kind(passive), ConnEvent::TimewaitExit);
    assert_eq!(right.count("cm_alternate_loaded"), 0);
}

const LEFT_SLIM: &str = "198.51.100.1";
const RIGHT_SLIM: &str = "198.51.100.2";

/// Creates two nodes with two links; the second has the smaller MTU. Gateways make each node's
/// packets to the other link's addresses possible: from the left node by the first link, from the
/// right node by the second.
fn nodes_with_mtus() -> (Node, Node) {
    let port = |ring: &str, addresses: &[&str], mtu| {
        let port = PortConfig::ring(ring).mtu(mtu);
        addresses.iter().fold(port, |port, own| port.ip(&format!("{own}/24")).unwrap())
    };
    let fat = PortConfig { gateway: vec![ip(RIGHT[0])], ..port("fat", &LEFT, 4200) };
    let left = DeviceConfig::new("left").port(fat).port(port("slim", &[LEFT_SLIM], 1500));
    let slim = PortConfig { gateway: vec![ip(LEFT_SLIM)], ..port("slim", &[RIGHT_SLIM], 1500) };
    let right = DeviceConfig::new("right").port(port("fat", &RIGHT[..1], 4200)).port(slim);
    let config = Config::new().device(left).device(right);
    (Node::open(&config, "left", LEFT[0]), Node::open(&config, "right", RIGHT[0]))
}

#[test]
//= check I13 test
fn the_path_mtu_is_one_that_the_alternate_path_has_too() {
    let (left, right) = nodes_with_mtus();
    let (mut one, mut other) = (left.end(), right.end());
    let alternate = Some(PathSpec { source: Some(ip(LEFT_SLIM)), ..PathSpec::to(ip(RIGHT_SLIM)) });
    connect((&left, &one), (&right, &other), alternate, AlternatePolicy::Accept);
    exchange(&mut one, &mut other);
    eventually(|| is_armed(&left, &one) && is_armed(&right, &other));
    for (node, end) in [(&left, &one), (&right, &other)] {
        assert_eq!(node.attr(end.qp.qpn).path_mtu, PathMtu::B1024);
    }
}

#[test]
//= check I13 test
fn an_alternate_path_of_too_small_an_mtu_costs_the_path_and_not_the_connection() {
    let (left, right) = nodes_with_mtus();
    let (mut one, mut other) = (left.end(), right.end());
    right.listen();
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let path = PathSpec { source: Some(ip(LEFT[0])), ..spec.path };
    let alternate = Some(PathSpec { source: Some(ip(LEFT[1])), ..PathSpec::to(ip(RIGHT_SLIM)) });
    let active = left.connect_with(ConnectSpec { path, alternate, ..spec });
    let (passive, request) = right.request();
    right.accept(passive, &other);
    for (node, id) in [(&left, active), (&right, passive)] {
        let kind = node.kind(id);
        assert!(matches!(kind, ConnEvent::Established { .. }), "{kind:?}");
    }
    assert_eq!((request.path_mtu, request.has_alternate), (PathMtu::B4096, false));
    exchange(&mut one, &mut other);
    for (node, end) in [(&left, &one), (&right, &other)] {
        assert_eq!(node.attr(end.qp.qpn).path_mig_state, PathMigState::Migrated);
    }
}
