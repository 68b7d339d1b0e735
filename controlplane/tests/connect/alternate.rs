//! Alternate paths of connections: in the request, loaded later, taken, refused.

use std::net::IpAddr;

use uroce_controlplane::config::{Config, DeviceConfig, PortConfig};
use uroce_controlplane::connect::{
    AlternateFailure, AlternatePolicy, CmEventKind, CmId, ConnParam, ConnQp, ConnectSpec, PathSpec,
};
use uroce_transport::{PathMigState, QpChange, StaticRate};

use crate::lab::{End, Node, PORT, eventually, exchange};

const LEFT: [&str; 2] = ["192.0.2.1", "192.0.2.11"];
const RIGHT: [&str; 2] = ["192.0.2.2", "192.0.2.12"];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Two nodes with two addresses each.
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

/// Connected, with that alternate path in the request.
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
        assert!(matches!(node.kind(id), CmEventKind::Established { .. }));
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
    assert_eq!(left.kind(active), CmEventKind::AlternateLoaded(Ok(())));
    assert!(matches!(right.kind(passive), CmEventKind::AlternateChanged(_)));
    exchange(&mut one, &mut other);
    eventually(|| is_armed(&left, &one) && is_armed(&right, &other));
    migrate(&right, &other);
    exchange(&mut one, &mut other);
    assert_eq!(path(&left, &one).dst.to_ip(), ip(RIGHT[0]));
    eventually(|| left.count("cm_path_migrated") == 2 && right.count("cm_path_migrated") == 2);
    right.device.cm_disconnect(passive, &[]).unwrap();
    assert!(matches!(left.kind(active), CmEventKind::Disconnected { .. }));
    assert!(matches!(right.kind(passive), CmEventKind::Disconnected { .. }));
    assert_eq!(right.count("cm_retransmitted"), 0);
}

#[test]
//= check I12 test
fn a_path_loaded_later_is_armed_with_the_rate_that_it_names() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let (active, passive) = connect((&left, &one), (&right, &other), None, AlternatePolicy::Accept);
    let mut path = second_path();
    path.vector.static_rate = StaticRate::from_mbps(10_000).unwrap();
    left.device.cm_load_alternate(active, path).unwrap();
    assert_eq!(left.kind(active), CmEventKind::AlternateLoaded(Ok(())));
    let CmEventKind::AlternateChanged(changed) = right.kind(passive) else { panic!() };
    assert_eq!((changed.local, changed.peer), (ip(RIGHT[1]), ip(LEFT[1])));
    for (node, end) in [(&left, &one), (&right, &other)] {
        let loaded = node.attr(end.qp.qpn).alt_path.unwrap();
        assert_eq!(loaded.path.rate, path.vector.static_rate);
    }
    exchange(&mut one, &mut other);
    eventually(|| is_armed(&left, &one) && is_armed(&right, &other));
    migrate(&left, &one);
    exchange(&mut one, &mut other);
    assert_eq!(right.attr(other.qp.qpn).path.encap.dst.to_ip(), ip(LEFT[1]));
}

#[test]
//= check I12 test
fn the_current_path_and_what_the_policy_forbids_are_refused_with_their_status() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    let (active, passive) = connect((&left, &one), (&right, &other), None, AlternatePolicy::Ask);
    let refused = |status| CmEventKind::AlternateLoaded(Err(AlternateFailure::Refused(status)));
    let current = PathSpec { source: Some(ip(LEFT[0])), ..PathSpec::to(ip(RIGHT[0])) };
    left.device.cm_load_alternate(active, current).unwrap();
    assert_eq!(left.kind(active), refused(5));

    left.device.cm_load_alternate(active, second_path()).unwrap();
    assert!(matches!(right.kind(passive), CmEventKind::AlternateRequest(_)));
    right.device.cm_answer_alternate(passive, false).unwrap();
    assert_eq!(left.kind(active), refused(3));
    assert!(right.device.cm_answer_alternate(passive, true).is_err(), "nothing waits");

    left.device.cm_load_alternate(active, second_path()).unwrap();
    assert!(matches!(right.kind(passive), CmEventKind::AlternateRequest(_)));
    right.device.cm_answer_alternate(passive, true).unwrap();
    assert_eq!(left.kind(active), CmEventKind::AlternateLoaded(Ok(())));
    assert!(matches!(right.kind(passive), CmEventKind::AlternateChanged(_)));
    // The current path the CM itself refuses.
    assert_eq!(right.count("cm_alternate_refused"), 1);
    assert_eq!(left.attr(one.qp.qpn).path_mig_state, PathMigState::Rearm);
    assert_eq!(right.attr(other.qp.qpn).path_mig_state, PathMigState::Rearm);
}
