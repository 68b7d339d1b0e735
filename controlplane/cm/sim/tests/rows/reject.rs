//! Refusals: no listener, full backlog, bad terms, stale connections, the consumer's rejection.

use uroce_cm::{CloseReason, MadAddr, MadDrop};
use uroce_cm_sim::{conn_params, gid};
use uroce_wire::cm::{
    CmPath, Message, MessageRejected, Rej, RejectReason, Req, SidrReq, SidrStatus, TransportService,
};

use super::*;

/// Returns the REJ that ends the active side's connection.
fn refusal(pair: &mut Pair, id: ConnId) -> Box<Rej> {
    let mut events = pair.events(0);
    match (events.remove(0), events.pop()) {
        ((of, CmEvent::Closed(CloseReason::Rejected(rej))), Some((_, CmEvent::Released))) => {
            assert_eq!(of, id);
            rej
        }
        other => panic!("{other:?}"),
    }
}

//= check J5 test
#[test]
fn without_a_listener_the_service_id_is_refused() {
    let mut pair = pair();
    for service in [ServiceId::tcp(1), ServiceId::udp(7174)] {
        let params = conn_params(0, service, QPNS[0]);
        let id = pair.nodes[0].connect(pair.now, &params).unwrap();
        pair.run_for(ms(1));
        let rej = refusal(&mut pair, id);
        assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_ID);
        assert_eq!(rej.message, MessageRejected::Req);
    }
    pair.nodes[1].unlisten(SERVICE).unwrap();
    let id = connect(&mut pair);
    pair.run_for(ms(1));
    assert_eq!(refusal(&mut pair, id).reason, RejectReason::INVALID_SERVICE_ID);
    assert_eq!(pair.nodes[1].counters().dropped(MadDrop::Refused), 3);
    assert_quiet(&mut pair);
}

//= check J5 test
#[test]
fn a_full_backlog_refuses_until_a_request_is_answered() {
    let mut pair = Pair::new(1, CmLimits::default());
    pair.nodes[1].listen(SERVICE, 2).unwrap();
    let try_one = |pair: &mut Pair, qpn| {
        let id = pair.nodes[0].connect(pair.now, &conn_params(0, SERVICE, qpn)).unwrap();
        pair.run_for(ms(1));
        (id, pair.events(1))
    };
    let mut waiting = Vec::new();
    for qpn in [0x30, 0x31] {
        let (_, events) = try_one(&mut pair, qpn);
        waiting.extend(events.into_iter().map(|(id, _)| id));
    }
    assert_eq!(waiting.len(), 2);
    let (id, events) = try_one(&mut pair, 0x32);
    assert_eq!(events, []);
    assert_eq!(refusal(&mut pair, id).reason, RejectReason::NO_RESOURCES);
    accept(&mut pair, waiting[0]);
    pair.run_for(ms(1));
    let (_, events) = try_one(&mut pair, 0x33);
    assert_eq!(events.len(), 1);
}

//= check J5 test
#[test]
fn the_consumers_no_carries_reason_information_and_148_bytes() {
    let mut pair = pair();
    let id = connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    let data = PrivateData([0xab; 148]);
    let reason = RejectReason::CONSUMER;
    pair.nodes[1].reject(pair.now, passive, reason, b"because", data).unwrap();
    pair.run_for(ms(1));
    let rej = refusal(&mut pair, id);
    assert_eq!((rej.reason, rej.message), (reason, MessageRejected::Req));
    assert_eq!((rej.additional_information(), rej.private_data), (&b"because"[..], data));
    let closed = (passive, CmEvent::Closed(CloseReason::RejectedByUs));
    assert_eq!(pair.events(1), [closed, (passive, CmEvent::Released)]);
    assert_quiet(&mut pair);
}

//= check J5 test
#[test]
fn the_active_sides_no_to_a_rep_ends_it_on_both_sides_and_the_qpns_rest() {
    let mut pair = pair();
    let ids = answered(&mut pair);
    let reason = RejectReason::CONSUMER;
    pair.nodes[0].reject(pair.now, ids[0], reason, &[], PrivateData::default()).unwrap();
    pair.run_for(ms(1));
    assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
    let events = pair.events(1);
    let [(_, CmEvent::Closed(CloseReason::Rejected(rej)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((rej.reason, rej.message), (reason, MessageRejected::Rep));
}

//= check J5 test
#[test]
fn terms_that_cannot_be_are_refused_with_the_reason() {
    let mut pair = pair();
    connect(&mut pair);
    pair.flush();
    let Passing { addr, message: Message::Req(req), .. } = pair.sent.as_ref().unwrap()[0] else {
        panic!("no REQ")
    };
    let wrong_path = |local, remote| CmPath { local_gid: local, remote_gid: remote, ..req.primary };
    let unusable = [
        (
            Req { transport_service: TransportService::Extended, ..req },
            RejectReason::INVALID_TRANSPORT_TYPE,
        ),
        (Req { path_mtu_code: 0, ..req }, RejectReason::INVALID_PATH_MTU),
        (Req { path_mtu_code: 6, ..req }, RejectReason::INVALID_PATH_MTU),
        (Req { local_qpn: Qpn::new(0), ..req }, RejectReason::UNSUPPORTED),
        (Req { local_qpn: Qpn::GSI, ..req }, RejectReason::UNSUPPORTED),
        (Req { local_qpn: Qpn::MULTICAST, ..req }, RejectReason::UNSUPPORTED),
        (Req { primary: wrong_path(gid(0, 2), gid(1, 1)), ..req }, RejectReason::INVALID_GID),
        (Req { primary: wrong_path(gid(0, 1), gid(1, 2)), ..req }, RejectReason::INVALID_GID),
    ];
    let cm = &mut pair.nodes[1];
    for (req, reason) in unusable {
        let mad = Message::Req(req).emit(77);
        assert_eq!(cm.handle_mad(pair.now, &addr, &mad), Err(MadDrop::Refused));
        let (to, mad) = cm.poll_transmit().unwrap();
        let (header, Message::Rej(rej)) = Message::parse(&mad).unwrap() else { panic!("no REJ") };
        assert_eq!((rej.reason, rej.remote_comm_id), (reason, req.local_comm_id));
        assert_eq!((to.dst, header.transaction_id), (addr.src, 77));
    }
    assert!(cm.is_empty());
    assert_eq!(cm.poll_event(), None);
}

//= check J4 test
#[test]
fn a_req_for_a_connected_queue_pair_is_refused_and_the_old_connection_torn_down() {
    let mut pair = pair();
    let ids = established(&mut pair);
    // The active side restarts without state and uses the same queue pair again.
    pair.kill(0, 99, CmLimits::default());
    let id = connect(&mut pair);
    pair.run_for(ms(1));
    let events = pair.events(0);
    let [(of, CmEvent::Closed(CloseReason::Rejected(rej)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*of, rej.reason), (id, RejectReason::STALE_CONNECTION));
    assert_eq!(pair.events(1), [(ids[1], CmEvent::Closed(CloseReason::Stale))]);
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::TimeWait));
    assert_eq!(pair.sent_by(1, Attribute::Dreq), 1);
    pair.run_for(ms(200));
    assert_quiet(&mut pair);
    pair.events(0);
    pair.events(1);
    established(&mut pair);
}

/// Builds a REQ of an attacker with the genuine adapter's CA GUID and QPN.
fn of_a_stranger(addr: MadAddr, req: Req) -> (MadAddr, Req) {
    let stranger = std::net::Ipv4Addr::new(10, 9, 9, 9).into();
    let primary = CmPath { local_gid: stranger, ..req.primary };
    let local_comm_id = uroce_wire::cm::CommId(1);
    (MadAddr { src: stranger, ..addr }, Req { local_comm_id, primary, ..req })
}

//= check J4 test
#[test]
fn a_stranger_cannot_have_a_connection_torn_down_by_a_req_in_the_peers_name() {
    let mut pair = pair();
    let ids = established(&mut pair);
    let Passing { addr, message: Message::Req(req), .. } = pair.sent.as_ref().unwrap()[0] else {
        panic!("no REQ")
    };
    let (from, forged) = of_a_stranger(addr, req);
    let mad = Message::Req(forged).emit(1);
    // It looks like a new request of that host.
    assert_eq!(pair.nodes[1].handle_mad(pair.now, &from, &mad), Ok(()));
    let (other, _) = request(&mut pair);
    assert_ne!(other, ids[1]);
    let copy = Message::Req(req).emit(1);
    assert_eq!(pair.nodes[1].handle_mad(pair.now, &from, &copy), Err(MadDrop::Forged));
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::Established));
    assert_eq!(pair.events(1), []);
}

//= check J4 test
#[test]
fn a_stranger_in_a_hosts_name_does_not_keep_the_host_from_connecting() {
    let mut pair = pair();
    connect(&mut pair);
    pair.flush();
    let Passing { addr, message: Message::Req(req), .. } = pair.sent.as_ref().unwrap()[0] else {
        panic!("no REQ")
    };
    // It arrives before the host's own REQ, which is in flight.
    let (from, forged) = of_a_stranger(addr, req);
    let mad = Message::Req(forged).emit(1);
    assert_eq!(pair.nodes[1].handle_mad(pair.now, &from, &mad), Ok(()));
    request(&mut pair);
    pair.run_for(ms(1));
    let (_, told) = request(&mut pair);
    assert_eq!((told.addr.src, told.req), (gid(0, 1), req));
    assert_eq!(pair.events(0), []);
}

//= check J4 test
#[test]
fn a_stranger_in_a_hosts_name_does_not_spoil_the_hosts_rep() {
    let mut pair = pair();
    let ids = answered(&mut pair);
    let sent = pair.sent.take().unwrap();
    let Message::Rep(rep) = sent.last().unwrap().message else { panic!("no REP") };
    pair.nodes[0].destroy(pair.now, ids[0]).unwrap();
    pair.run_for(ms(200));
    assert_eq!(states(&pair, ids), [None; 2]);
    pair.events(1);
    // Another host claims this queue pair first.
    pair.nodes[0].listen(SERVICE, 8).unwrap();
    let stranger = std::net::Ipv4Addr::new(10, 9, 9, 9).into();
    let primary =
        CmPath { local_gid: stranger, remote_gid: gid(0, 1), ..terms().primary.to_wire() };
    let forged = Req {
        local_comm_id: uroce_wire::cm::CommId(1),
        service_id: SERVICE,
        local_ca_guid: rep.local_ca_guid,
        local_qpn: rep.local_qpn,
        path_mtu_code: 3,
        primary,
        ..Req::default()
    };
    let from = MadAddr { port: 1, src: stranger, dst: gid(0, 1), ..MadAddr::default() };
    let mad = Message::Req(forged).emit(1);
    assert_eq!(pair.nodes[0].handle_mad(pair.now, &from, &mad), Ok(()));
    pair.events(0);
    answered(&mut pair);
}

//= check J4 test
#[test]
fn a_rep_with_a_connected_queue_pair_is_refused_and_both_connections_end() {
    let mut pair = pair();
    let ids = established(&mut pair);
    // The passive side restarts without state and offers the same queue pair again.
    pair.kill(1, 99, CmLimits::default());
    pair.nodes[1].listen(SERVICE, 8).unwrap();
    let id = pair.nodes[0].connect(pair.now, &conn_params(0, SERVICE, 0x12)).unwrap();
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    accept(&mut pair, passive);
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(events.contains(&(ids[0], CmEvent::Closed(CloseReason::Stale))), "{events:?}");
    assert!(events.contains(&(id, CmEvent::Closed(CloseReason::Stale))), "{events:?}");
    let events = pair.events(1);
    let [(_, CmEvent::Closed(CloseReason::Rejected(rej)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
    pair.run_for(ms(200));
    assert_quiet(&mut pair);
}

//= check J11 test
#[test]
fn another_class_version_is_refused_by_rej_31_and_sidr_status_5() {
    let mut pair = pair();
    let addr = MadAddr { port: 1, src: gid(0, 1), dst: gid(1, 1), ..MadAddr::default() };
    let cm = &mut pair.nodes[1];
    let req = Req { local_comm_id: uroce_wire::cm::CommId(5), ..Req::default() };
    let sidr = SidrReq { request_id: uroce_wire::cm::CommId(6), ..SidrReq::default() };
    for message in [Message::Req(req), Message::SidrReq(sidr)] {
        let mut mad = message.emit(3);
        mad[2] = 1;
        assert_eq!(cm.handle_mad(pair.now, &addr, &mad), Err(MadDrop::ClassVersion));
    }
    let mut answer = || Message::parse(&cm.poll_transmit().unwrap().1).unwrap().1;
    let Message::Rej(rej) = answer() else { panic!("no REJ") };
    assert_eq!(rej.reason, RejectReason::INVALID_CLASS_VERSION);
    assert_eq!((rej.remote_comm_id, rej.additional_information()), (req.local_comm_id, &[2][..]));
    let Message::SidrRep(rep) = answer() else { panic!("no SIDR_REP") };
    assert_eq!((rep.status, rep.request_id), (SidrStatus::UNSUPPORTED_VERSION, sidr.request_id));
    assert_eq!(cm.poll_transmit(), None);
}

//= check J11 test
#[test]
fn what_is_no_message_is_dropped_without_an_answer() {
    let mut pair = pair();
    let addr = MadAddr { port: 1, src: gid(0, 1), dst: gid(1, 1), ..MadAddr::default() };
    let mad = Message::Req(Req::default()).emit(3);
    let cm = &mut pair.nodes[1];
    for (at, byte) in [(0, 2), (1, 4), (3, 0x83), (17, 0x1b), (17, 0x0f)] {
        let mut mad = mad;
        mad[at] = byte;
        assert_eq!(cm.handle_mad(pair.now, &addr, &mad), Err(MadDrop::Malformed));
    }
    for len in 0..256 {
        assert_eq!(cm.handle_mad(pair.now, &addr, &mad[..len]), Err(MadDrop::Malformed));
    }
    assert_eq!(cm.counters().dropped(MadDrop::Malformed), 5 + 256);
    assert_eq!((cm.poll_transmit(), cm.poll_event()), (None, None));
}

//= check J5 test
#[test]
fn a_request_that_is_given_up_before_a_rep_is_forgotten_by_the_peer_too() {
    for (reason, ari) in [(RejectReason::TIMEOUT, &b""[..]), (RejectReason::NO_QP, b"?")] {
        let mut pair = pair();
        let active = connect(&mut pair);
        pair.run_for(ms(1));
        let (passive, _) = request(&mut pair);
        let data = PrivateData([0xab; 148]);
        pair.nodes[0].reject(pair.now, active, reason, ari, data).unwrap();
        pair.run_for(ms(1));
        let events = pair.events(1);
        let [(of, CmEvent::Closed(CloseReason::Rejected(rej))), (_, CmEvent::Released)] =
            &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((*of, rej.reason), (passive, RejectReason::TIMEOUT));
        assert_eq!(rej.private_data, data);
        pair.events(0);
        assert_quiet(&mut pair);
    }
}
