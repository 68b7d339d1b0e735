//! Peers that vanish without a word: keepalives notice them.

use std::time::{Duration, Instant};

use uroce_controlplane::config::{Config, DeviceConfig, PortConfig};
use uroce_controlplane::rdma_cm::{CmId, ConnEvent, ConnParam, ConnQp, ConnectSpec};
use uroce_engine::{EventKind, LossConfig};
use uroce_transport::{Counter, QpState, QpType, WcStatus};
use uroce_wire::Psn;

use crate::lab::{End, Node, PORT, addresses, eventually, exchange};

/// The default of connections: 10 s.
const DEFAULT_MS: u32 = 10_000;

/// Two nodes with one link. Ports are always active or not; the configuration gives an idle time or
/// does not.
fn nodes(is_always_active: bool, keepalive_ms: Option<u32>) -> (Node, Node) {
    let devices = ["left", "right"].into_iter().zip(addresses()).map(|(name, address)| {
        let mut port = PortConfig::ring("link").ip(&format!("{address}/24")).expect("an address");
        port.always_active = is_always_active;
        let device = DeviceConfig::new(name).port(port);
        keepalive_ms.into_iter().fold(device, DeviceConfig::keepalive_ms)
    });
    let config = devices.fold(Config::new(), Config::device);
    let [left, right] = addresses();
    (Node::open(&config, "left", left), Node::open(&config, "right", right))
}

/// Parameters with a short timeout and few retries.
fn param(keepalive_ms: Option<u32>) -> ConnParam {
    ConnParam { ack_timeout: 12, retry_count: 2, keepalive_ms, ..ConnParam::default() }
}

/// Connects two QPs with these idle times. Returns the ids, left first.
fn connect(
    (left, one): (&Node, &End),
    (right, other): (&Node, &End),
    idle: [Option<u32>; 2],
) -> (CmId, CmId) {
    right.listen();
    let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
    let active = left.connect_with(ConnectSpec { param: param(idle[0]), ..spec });
    let (passive, _) = right.request();
    right.device.cm_accept(passive, ConnQp::Driven(other.qp.qpn), param(idle[1])).unwrap();
    established(left, active);
    established(right, passive);
    (active, passive)
}

fn established(node: &Node, id: CmId) {
    let event = node.kind(id);
    assert!(matches!(event, ConnEvent::Established { .. }), "{event:?}");
}

/// The link of a node loses all packets from now on.
fn cut(node: &Node) {
    let loss = LossConfig { rx: 1.0, tx: 1.0, seed: 1 };
    node.device.set_loss(1, loss).expect("a port");
}

fn keepalives(node: &Node) -> u64 {
    node.device.engine().counters().transport(Counter::Keepalives)
}

#[test] //= check J15 test
fn a_server_that_only_receives_notices_that_its_client_is_gone() {
    let (left, right) = nodes(false, None);
    let (one, mut other) = (left.end(), right.end());
    let (_, passive) = connect((&left, &one), (&right, &other), [Some(0), Some(50)]);
    other.post_recv();
    other.post_recv();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(right.state(&other), QpState::Rts);
    assert!(keepalives(&right) >= 3, "{}", keepalives(&right));
    assert_eq!(keepalives(&left), 0);
    cut(&left);
    let begin = Instant::now();
    let event = right.kind(passive);
    assert_eq!(event, ConnEvent::Disconnected { private_data: vec![] });
    assert!(begin.elapsed() >= Duration::from_millis(50), "{:?}", begin.elapsed());
    assert_eq!(right.state(&other), QpState::Err);
    for _ in 0..2 {
        assert_eq!(other.completion().status, WcStatus::WrFlushErr);
    }
    let events = right.device.engine().events();
    let next = || events.try_next().expect("the device runs").map(|event| event.kind);
    let kinds: Vec<_> = std::iter::from_fn(next).collect();
    assert_eq!(kinds, [EventKind::QpFatal], "no completion tells");
    // The end that asks for nothing has noticed nothing.
    assert_eq!(left.state(&one), QpState::Rts);
}

#[test] //= check J15 test
fn a_request_that_is_never_answered_ends_the_connection_as_well() {
    let (left, right) = nodes(false, None);
    let (mut one, other) = (left.end(), right.end());
    let (active, _) = connect((&left, &one), (&right, &other), [Some(3_600_000), Some(0)]);
    cut(&right);
    one.post_send(1);
    let sent = one.completion();
    assert_eq!(sent.status, WcStatus::RetryExcErr);
    assert_eq!(left.kind(active), ConnEvent::Disconnected { private_data: vec![] });
    assert_eq!(keepalives(&left), 0);
}

#[test] //= check J15 test
fn keepalives_of_both_ends_change_nothing() {
    let (left, right) = nodes(false, Some(20));
    let (mut one, mut other) = (left.end(), right.end());
    connect((&left, &one), (&right, &other), [None, None]);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        exchange(&mut one, &mut other);
    }
    assert!(keepalives(&left) + keepalives(&right) >= 6);
    let states = [left.state(&one), right.state(&other)];
    assert_eq!(states, [QpState::Rts; 2]);
}

/// The idle times that two QPs get from their connection.
fn idle_times(
    is_always_active: bool,
    configured: Option<u32>,
    qp_type: QpType,
    given: [Option<u32>; 2],
) -> [u32; 2] {
    let (left, right) = nodes(is_always_active, configured);
    let (one, other) = (left.end_of(qp_type), right.end_of(qp_type));
    connect((&left, &one), (&right, &other), given);
    [left.attr(one.qp.qpn), right.attr(other.qp.qpn)].map(|attr| attr.keepalive_ms)
}

#[test] //= check J15 test
fn a_connection_has_a_keepalive_unless_its_port_tells_of_its_peer() {
    let of = |active, configured| idle_times(active, configured, QpType::Rc, [None, None]);
    assert_eq!(of(false, None), [DEFAULT_MS; 2]);
    assert_eq!(of(true, None), [0; 2]);
    assert_eq!(of(false, Some(0)), [0; 2]);
    assert_eq!(of(true, Some(700)), [700; 2], "what is configured counts");
    let given = idle_times(false, Some(700), QpType::Rc, [Some(5), Some(0)]);
    assert_eq!(given, [5, 0], "what the application gives counts more");
    assert_eq!(idle_times(false, Some(700), QpType::Uc, [None, None]), [0; 2]);
}

/// A QP that the application modifies.
fn foreign(end: &End, psn: u32) -> ConnQp {
    let (qpn, psn) = (end.qp.qpn, Psn::new(psn));
    ConnQp::Foreign { qpn, qp_type: QpType::Rc, psn, has_srq: false, stops_with_peer: false }
}

#[test] //= check J15 test
fn a_qp_that_its_application_modifies_has_a_keepalive_too() {
    for is_before in [false, true] {
        let (left, right) = nodes(false, None);
        let (one, other) = (left.end(), right.end());
        right.listen();
        one.init_in(&left);
        other.init_in(&right);
        let spec = ConnectSpec::new(one.qp.qpn, right.socket(PORT));
        let active = left.connect_with(ConnectSpec { qp: Some(foreign(&one, 77)), ..spec });
        let (passive, request) = right.request();
        let agreed = request.agreed.expect("of a connection");
        let accept = || {
            let param = ConnParam::default();
            right.device.cm_accept(passive, foreign(&other, 0), param).expect("it waits");
        };
        // The passive side takes its QP to RTS before it accepts, or after it.
        if is_before {
            right.take_to_rts(other.qp.qpn, &agreed, None);
            accept();
        } else {
            accept();
            right.take_to_rts(other.qp.qpn, &agreed, None);
        }
        let ConnEvent::ConnectResponse { agreed, .. } = left.kind(active) else { panic!() };
        left.take_to_rts(one.qp.qpn, &agreed, None);
        left.device.cm_establish(active).unwrap();
        established(&right, passive);
        let idle = || [left.attr(one.qp.qpn), right.attr(other.qp.qpn)].map(|it| it.keepalive_ms);
        eventually(|| idle() == [DEFAULT_MS; 2]);
    }
}
