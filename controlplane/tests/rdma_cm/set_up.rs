//! Connections that are established, and their ends.

use std::time::{Duration, Instant};

use uroce_controlplane::RequestError;
use uroce_controlplane::rdma_cm::{CmId, ConnError, ConnEvent, ConnParam, ConnQp, ConnectSpec};
use uroce_transport::{AccessFlags, QpChange, QpState, QpType};
use uroce_wire::{PathMtu, Psn};

use crate::lab::{End, Node, addresses, eventually, exchange, join, nodes, nodes_at, nodes_in};

fn is_disconnected(kind: &ConnEvent) -> bool {
    matches!(kind, ConnEvent::Disconnected { .. })
}

#[test]
fn two_qps_connect_by_address_and_port_and_talk() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let (active, passive) = join((&left, &one), (&right, &other));
    assert_eq!((left.state(&one), right.state(&other)), (QpState::Rts, QpState::Rts));
    exchange(&mut one, &mut other);

    left.device.cm_disconnect(active, b"bye").unwrap();
    assert_eq!(left.state(&one), QpState::Err);
    let ConnEvent::Disconnected { private_data } = right.kind(passive) else { panic!() };
    assert!(private_data.starts_with(b"bye\0"));
    assert_eq!(right.state(&other), QpState::Err);
    assert!(is_disconnected(&left.kind(active)));
    assert_eq!(left.kind(active), ConnEvent::TimewaitExit);
    assert_eq!(right.kind(passive), ConnEvent::TimewaitExit);
    let counts = (left.count("cm_active_established"), right.count("cm_passive_established"));
    assert_eq!(counts, (1, 1));
}

#[test]
fn ipv6_and_uc_connect_as_well() {
    let (left, right) = nodes_at(["2001:db8::1", "2001:db8::2"], 64);
    let (mut one, mut other) = (left.end_of(QpType::Uc), right.end_of(QpType::Uc));
    join((&left, &one), (&right, &other));
    exchange(&mut one, &mut other);
}

#[test]
fn ports_in_a_vlan_connect_there() {
    let (left, right) = nodes_in(addresses(), 24, Some(7));
    let (mut one, mut other) = (left.end(), right.end());
    join((&left, &one), (&right, &other));
    exchange(&mut one, &mut other);
    let vlan = |node: &Node, end: &End| node.attr(end.qp.qpn).path.encap.vlan.map(|tag| tag.vid);
    assert_eq!((vlan(&left, &one), vlan(&right, &other)), (Some(7), Some(7)));
}

#[test]
fn both_sides_get_the_lesser_of_what_they_bring() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    right.listen();
    let mut spec = ConnectSpec::new(one.qp.qpn, right.socket(crate::lab::PORT));
    spec.path.vector.traffic_class = 0x20;
    spec.param = ConnParam {
        private_data: b"hello".to_vec(),
        responder_resources: 3,
        initiator_depth: 9,
        retry_count: 5,
        rnr_retry_count: 2,
        ack_timeout: 11,
        path_mtu: Some(PathMtu::B512),
        access: AccessFlags::REMOTE_READ,
        ..ConnParam::default()
    };
    let active = left.connect_with(spec);
    let (passive, request) = right.request();
    assert_eq!((request.responder_resources, request.initiator_depth), (9, 3));
    assert_eq!((request.retry_count, request.rnr_retry_count), (5, 2));
    assert_eq!(
        (request.peer.ip(), request.local),
        (left.socket(1).ip(), right.socket(crate::lab::PORT))
    );
    assert_eq!((request.peer_qpn, request.qp_type), (one.qp.qpn, QpType::Rc));
    assert!(request.private_data.starts_with(b"hello\0") && request.private_data.len() == 56);
    let param = ConnParam {
        private_data: b"welcome".to_vec(),
        responder_resources: 4,
        initiator_depth: 16,
        rnr_retry_count: 6,
        min_rnr_timer: 1,
        ..ConnParam::default()
    };
    right.device.cm_accept(passive, ConnQp::Driven(other.qp.qpn), param).unwrap();
    let ConnEvent::Established { private_data, .. } = left.kind(active) else { panic!() };
    assert!(private_data.starts_with(b"welcome\0"));
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));

    let (ours, theirs) = (left.attr(one.qp.qpn), right.attr(other.qp.qpn));
    assert_eq!((ours.max_rd_atomic, theirs.max_dest_rd_atomic), (4, 4));
    assert_eq!((ours.max_dest_rd_atomic, theirs.max_rd_atomic), (3, 3));
    assert_eq!((ours.retry_cnt, theirs.retry_cnt), (5, 5));
    assert_eq!((ours.rnr_retry, theirs.rnr_retry), (6, 2));
    assert_eq!((ours.timeout, theirs.timeout), (11, 11));
    assert_eq!((ours.path_mtu, theirs.path_mtu), (PathMtu::B512, PathMtu::B512));
    assert_eq!((ours.access, theirs.min_rnr_timer), (AccessFlags::REMOTE_READ, 1));
    assert_eq!((ours.dest_qpn, theirs.dest_qpn), (other.qp.qpn, one.qp.qpn));
    assert_eq!((ours.sq_psn, ours.rq_psn), (theirs.rq_psn, theirs.sq_psn));
    assert_eq!([ours, theirs].map(|attr| attr.path.encap.traffic_class), [0x20; 2]);
}

/// Begins a connection of which the application drives this QP, and sends the RTU.
fn connect_foreign(node: &Node, end: &End, qp_type: QpType, to: &Node) -> CmId {
    let (qpn, psn) = (end.qp.qpn, Psn::new(77));
    let qp = ConnQp::Foreign { qpn, qp_type, psn, has_srq: false, stops_with_peer: false };
    let spec = ConnectSpec::new(qpn, to.socket(crate::lab::PORT));
    node.connect_with(ConnectSpec { qp: Some(qp), ..spec })
}

#[test]
//= check H11 test
//= check J3 test
fn a_packet_before_the_rtu_establishes_the_connection() {
    let (left, right) = nodes();
    right.listen();
    for (qp_type, established) in [(QpType::Rc, 1), (QpType::Uc, 2)] {
        let (mut one, mut other) = (left.end_of(qp_type), right.end_of(qp_type));
        one.init_in(&left);
        let active = connect_foreign(&left, &one, qp_type, &right);
        let (passive, _) = right.request();
        other.post_recv_in(&right);
        right.accept(passive, &other);
        let ConnEvent::ConnectResponse { agreed, .. } = left.kind(active) else { panic!() };
        assert_eq!(right.state(&other), QpState::Rtr, "no RTU yet");
        left.take_to_rts(one.qp.qpn, &agreed, None);
        one.post_send(5);
        assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
        assert_eq!(right.state(&other), QpState::Rts);
        assert_eq!(right.count("cm_comm_est"), established);
        left.device.cm_establish(active).unwrap();
        assert_eq!((one.completion().wr_id, other.completion().wr_id), (2, 1));
        exchange(&mut one, &mut other);
        assert_eq!(right.channel.try_next(), None, "one event");
    }
}

#[test]
//= check J17 test
fn each_end_is_in_rts_only_after_the_message_it_waits_for() {
    let (left, right) = nodes();
    right.listen();
    for qp_type in [QpType::Rc, QpType::Uc] {
        let (one, other) = (left.end_of(qp_type), right.end_of(qp_type));
        let active = left.connect(&one, &right);
        let (passive, _) = right.request();
        assert!(matches!(left.state(&one), QpState::Reset | QpState::Init), "no REP yet");
        right.accept(passive, &other);
        assert!(matches!(left.kind(active), ConnEvent::Established { .. }));
        assert_eq!(left.state(&one), QpState::Rts);
        assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
        assert_eq!(right.state(&other), QpState::Rts);

        // An initiator of which the application sends the RTU.
        let (one, other) = (left.end_of(qp_type), right.end_of(qp_type));
        let active = connect_foreign(&left, &one, qp_type, &right);
        let (passive, _) = right.request();
        right.accept(passive, &other);
        assert!(matches!(left.kind(active), ConnEvent::ConnectResponse { .. }));
        assert_eq!(right.state(&other), QpState::Rtr, "no RTU yet");
        left.device.cm_establish(active).unwrap();
        assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
        assert_eq!(right.state(&other), QpState::Rts);
    }
}

#[test]
//= check J10 test
fn two_that_connect_to_each_other_get_one_connection() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let spec = |end: &crate::lab::End, to: &Node| {
        let param = ConnParam { peer_to_peer: true, ..ConnParam::default() };
        ConnectSpec { param, ..ConnectSpec::new(end.qp.qpn, to.socket(crate::lab::PORT)) }
    };
    let first = left.connect_with(spec(&one, &right));
    let second = right.connect_with(spec(&other, &left));
    for (node, id) in [(&left, first), (&right, second)] {
        let kind = node.kind(id);
        assert!(matches!(kind, ConnEvent::Established { .. }), "{kind:?}");
    }
    exchange(&mut one, &mut other);
    left.device.cm_disconnect(first, &[]).unwrap();
    assert!(is_disconnected(&right.kind(second)));
    assert!(is_disconnected(&left.kind(first)));
}

#[test]
//= check J7 test
fn an_application_may_take_its_time_to_accept() {
    let (left, right) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    right.listen();
    let active = left.connect(&one, &right);
    let (passive, _) = right.request();
    // Longer than the time until a request is repeated.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(left.count("cm_retransmitted"), 0);
    right.accept(passive, &other);
    assert!(matches!(left.kind(active), ConnEvent::Established { .. }));
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
    exchange(&mut one, &mut other);
}

#[test]
//= check J10 test
fn crossing_disconnects_end_once_on_each_side() {
    let (left, right) = nodes();
    for _ in 0..20 {
        let (one, other) = (left.end(), right.end());
        let listener = right.listen();
        let active = left.connect(&one, &right);
        let (passive, _) = right.request();
        right.accept(passive, &other);
        assert!(matches!(left.kind(active), ConnEvent::Established { .. }));
        assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
        std::thread::scope(|scope| {
            scope.spawn(|| left.device.cm_disconnect(active, &[]).unwrap());
            right.device.cm_disconnect(passive, &[]).unwrap();
        });
        for (node, id) in [(&left, active), (&right, passive)] {
            assert!(is_disconnected(&node.kind(id)));
            // The connection is over already.
            node.device.cm_disconnect(id, &[]).unwrap();
            assert_eq!(node.kind(id), ConnEvent::TimewaitExit);
            node.device.cm_destroy(id).unwrap();
        }
        right.device.cm_destroy(listener).unwrap();
    }
    assert_eq!((left.count("cm_connections"), right.count("cm_connections")), (0, 0));
    assert_eq!((left.channel.try_next(), right.channel.try_next()), (None, None));
}

#[test]
//= check J10 test
fn what_is_destroyed_in_any_stage_tells_nothing_more_and_leaves_nothing() {
    let (left, right) = nodes();
    let listener = right.listen();
    for stage in 0..5 {
        let (one, other) = (left.end(), right.end());
        let active = left.connect(&one, &right);
        if stage == 0 {
            left.device.cm_destroy(active).unwrap();
        } else {
            let (passive, _) = right.request();
            match stage {
                1 => right.device.cm_destroy(passive).unwrap(),
                2 => {
                    left.device.cm_destroy(active).unwrap();
                    let qp = ConnQp::Driven(other.qp.qpn);
                    let _ = right.device.cm_accept(passive, qp, ConnParam::default());
                }
                _ => {
                    right.accept(passive, &other);
                    if stage == 4 {
                        assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
                    }
                    right.device.cm_destroy(passive).unwrap();
                }
            }
            let _ = right.device.cm_destroy(passive);
        }
        let _ = left.device.cm_destroy(active);
        assert!(matches!(
            left.device.cm_disconnect(active, &[]),
            Err(RequestError::Connection(ConnError::UnknownId(_)))
        ));
        // A request that was in flight when the first stage gave up.
        eventually(|| {
            while let Some(event) = right.channel.try_next() {
                let _ = right.device.cm_destroy(event.0);
            }
            left.count("cm_connections") == 0 && right.count("cm_connections") == 0
        });
        assert_eq!(left.channel.try_next(), None, "stage {stage}");
    }
    right.device.cm_destroy(listener).unwrap();
}

#[test]
//= check J9 test
fn the_number_of_a_qp_stays_taken_until_its_connection_is_released() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    let (active, passive) = join((&left, &one), (&right, &other));
    // Destroying the QP ends its connection.
    left.device.destroy_qp(one.qp.qpn).unwrap();
    assert!(is_disconnected(&left.kind(active)));
    assert!(is_disconnected(&right.kind(passive)));
    let error =
        right.device.cm_connect(&right.channel, ConnectSpec::new(other.qp.qpn, left.socket(1)));
    let held = matches!(
        error,
        Err(RequestError::Connection(ConnError::QpInUse(_) | ConnError::WrongState))
    );
    assert!(held, "in TimeWait: {error:?}");
    assert_eq!(right.kind(passive), ConnEvent::TimewaitExit);
    assert_eq!(left.kind(active), ConnEvent::TimewaitExit);
    right.device.modify_qp(other.qp.qpn, &QpChange::to(QpState::Reset), None, None).unwrap();
    let again = left.end();
    left.listen();
    let spec = ConnectSpec::new(other.qp.qpn, left.socket(crate::lab::PORT));
    let active = right.connect_with(spec);
    let (passive, _) = left.request();
    left.accept(passive, &again);
    assert!(matches!(right.kind(active), ConnEvent::Established { .. }));
}

#[test]
fn a_device_that_closes_says_good_bye() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    let (_, passive) = join((&left, &one), (&right, &other));
    let begin = Instant::now();
    drop((one, left));
    assert!(is_disconnected(&right.kind(passive)));
    assert!(begin.elapsed() < Duration::from_secs(5));
    assert_eq!(right.state(&other), QpState::Err);
}

#[test]
//= check J1 test
fn a_peer_that_is_gone_costs_retries_and_no_more() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    let (active, _) = join((&left, &one), (&right, &other));
    drop(other);
    let silent = uroce_controlplane::config::LossConfig { rx: 1.0, tx: 1.0, seed: 1 };
    right.device.set_loss(1, silent).unwrap();
    let second = left.end();
    let asking = left.connect(&second, &right);
    left.device.cm_disconnect(active, &[]).unwrap();
    let events: Vec<_> = (0..4).map(|_| left.event()).collect();
    let of = |id| {
        let of_id = events.iter().filter(move |(of, _)| *of == id).map(|(_, event)| event);
        of_id.collect::<Vec<_>>()
    };
    assert!(is_disconnected(of(active)[0]), "{events:?}");
    assert_eq!(of(active)[1..], [&ConnEvent::TimewaitExit]);
    assert_eq!(of(asking), [&ConnEvent::Unreachable, &ConnEvent::TimewaitExit]);
    assert!(left.count("cm_retransmitted") >= 15);
}

#[test]
//= check J10 test
fn a_request_given_up_before_an_answer_leaves_nothing_at_the_peer() {
    let (left, right) = nodes();
    right.listen();
    for is_qp_destroyed in [false, true] {
        let one = left.end();
        let active = left.connect(&one, &right);
        eventually(|| right.count("cm_connections") == 1);
        if is_qp_destroyed {
            left.device.destroy_qp(one.qp.qpn).unwrap();
        }
        left.device.cm_destroy(active).unwrap();
        // The application has not even read the request.
        eventually(|| right.count("cm_connections") == 0);
        assert_eq!(right.channel.try_next(), None);
        eventually(|| left.count("cm_connections") == 0);
    }
}

#[test]
//= check J7 test
fn an_application_may_take_its_time_to_get_its_qp_ready() {
    let (left, right) = nodes();
    let (one, other) = (left.end(), right.end());
    right.listen();
    let mut spec = ConnectSpec::new(one.qp.qpn, right.socket(crate::lab::PORT));
    let (qpn, psn) = (one.qp.qpn, Psn::new(77));
    spec.qp = Some(ConnQp::Foreign {
        qpn,
        qp_type: QpType::Rc,
        psn,
        has_srq: false,
        stops_with_peer: false,
    });
    let active = left.connect_with(spec);
    let (passive, _) = right.request();
    right.accept(passive, &other);
    assert!(matches!(left.kind(active), ConnEvent::ConnectResponse { .. }));
    // Longer than the time until a reply is repeated.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(right.count("cm_retransmitted"), 0);
    left.device.cm_establish(active).unwrap();
    assert!(matches!(right.kind(passive), ConnEvent::Established { .. }));
}
