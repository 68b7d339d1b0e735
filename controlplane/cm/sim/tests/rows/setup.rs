//! Setting up: losses and copies of REQ, REP and RTU, MRA, data before the RTU, crossing REQs.

use uroce_cm::{AcceptParams, CloseReason, ConnectParams};
use uroce_cm_sim::conn_params;
use uroce_wire::cm::{CmTimeout, Message, MessageRejected, RejectReason, TransportService};

use super::*;

/// Response timeout of the usual terms plus the ACK timeout of the path.
const INTERVAL: Duration = Duration::from_nanos((4096 << 16) + (4096 << 14));

//= check J1 test
#[test]
fn a_lost_req_rep_or_rtu_is_repeated_after_the_cm_timeout_until_it_is_there() {
    for (node, kind) in [(0, Attribute::Req), (1, Attribute::Rep), (0, Attribute::Rtu)] {
        for losses in 0..=3 {
            let mut pair = pair();
            let wait = |of| if of == kind { INTERVAL * losses + ms(1) } else { ms(1) };
            pair.script = Some(Box::new(move |passing| {
                let this = passing.message.attribute();
                // A copy of the REQ would cause another REP.
                let is_copied_req = kind == Attribute::Rep && this == Attribute::Req;
                let lost = if this == kind { passing.count <= losses } else { passing.count > 1 };
                if lost && (this == kind || is_copied_req) { Fate::Lose } else { Fate::Deliver }
            }));
            let active = connect(&mut pair);
            pair.run_for(wait(Attribute::Req));
            let (passive, _) = request(&mut pair);
            accept(&mut pair, passive);
            pair.run_for(wait(Attribute::Rep));
            assert!(matches!(pair.events(0)[..], [(_, CmEvent::Accepted(_))]));
            ready(&mut pair, active);
            pair.run_for(wait(Attribute::Rtu));
            let events = pair.events(1);
            assert!(
                matches!(events[..], [(_, CmEvent::Established(Some(_)))]),
                "{kind:?} {events:?}"
            );
            assert_eq!(pair.sent_by(node, kind), losses + 1, "{kind:?}");
            assert_eq!(states(&pair, [active, passive]), [Some(State::Established); 2]);
        }
    }
}

//= check J1 test
#[test]
fn a_req_without_answer_is_sent_retries_plus_one_times_at_the_cm_timeout_then_refused() {
    for retries in [0, 1, 3, 15] {
        let mut pair = pair();
        pair.script = lose(0, Attribute::Req, u32::MAX);
        let begin = pair.now;
        let params = ConnectParams { max_cm_retries: retries, ..terms() };
        let id = pair.nodes[0].connect(begin, &params).unwrap();
        pair.run_for(INTERVAL * 17);
        let sent = pair.sent.take().unwrap();
        let reqs = sent.iter().filter(|passing| passing.message.attribute() == Attribute::Req);
        for (n, req) in (0..).zip(reqs.clone()) {
            assert_eq!(req.at, begin + INTERVAL * n);
        }
        assert_eq!(reqs.count(), usize::from(retries) + 1);
        let Message::Rej(rej) = &sent.last().unwrap().message else { panic!("no REJ") };
        assert_eq!((rej.reason, rej.message), (RejectReason::TIMEOUT, MessageRejected::Other));
        assert_eq!(rej.additional_information(), 0x0200_0000_0000_0001_u64.to_be_bytes());
        let closed = (id, CmEvent::Closed(CloseReason::Unreachable));
        assert_eq!(pair.events(0), [closed, (id, CmEvent::Released)]);
        assert_quiet(&mut pair);
    }
}

//= check J1 test
#[test]
fn a_rep_without_answer_ends_in_a_rej_and_in_time_wait_on_the_passive_side() {
    let mut pair = pair();
    let active = connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    pair.script = Some(Box::new(|_| Fate::Lose));
    accept(&mut pair, passive);
    pair.run_for(INTERVAL * 4);
    assert_eq!(pair.sent_by(1, Attribute::Rep), 4);
    let Message::Rej(rej) = pair.sent.as_ref().unwrap().last().unwrap().message else {
        panic!("no REJ")
    };
    assert_eq!((rej.reason, rej.message), (RejectReason::TIMEOUT, MessageRejected::Other));
    assert_eq!(pair.events(1), [(passive, CmEvent::Closed(CloseReason::Unreachable))]);
    assert_eq!(states(&pair, [active, passive]), [None, Some(State::TimeWait)]);
    pair.run_for(INTERVAL);
    assert_quiet(&mut pair);
}

//= check J1 test
#[test]
fn a_request_given_up_before_its_rep_is_found_by_adapter_and_id() {
    let mut pair = pair();
    let active = connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    pair.nodes[0].destroy(pair.now, active).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(1);
    let [(id, CmEvent::Closed(CloseReason::Rejected(rej))), (_, CmEvent::Released)] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((*id, rej.reason), (passive, RejectReason::TIMEOUT));
    assert_quiet(&mut pair);
}

//= check J2 test
#[test]
fn copies_of_req_rep_and_rtu_get_the_same_answer_and_are_told_once() {
    let mut pair = pair();
    pair.script = Some(Box::new(|_| Fate::Double));
    let active = connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    accept(&mut pair, passive);
    pair.run_for(ms(1));
    assert_eq!(pair.events(0).len(), 1);
    ready(&mut pair, active);
    pair.run_for(ms(5));
    assert_eq!(pair.events(1).len(), 1);
    assert_eq!(pair.events(0), []);
    assert_eq!(states(&pair, [active, passive]), [Some(State::Established); 2]);
    assert_eq!((pair.nodes[0].len(), pair.nodes[1].len()), (1, 1));
}

//= check J2 test
#[test]
fn a_late_copy_of_a_req_gets_the_rep_again_and_one_of_a_rep_the_rtu() {
    let mut pair = pair();
    let ids = answered(&mut pair);
    let mads: Vec<_> = pair.sent.as_ref().unwrap().clone();
    let [req, rep] = &mads[..] else { panic!("{mads:?}") };
    pair.forge(req.addr, &req.message.emit(1));
    pair.run_for(ms(1));
    assert_eq!(pair.sent_by(1, Attribute::Rep), 2);
    let sent = pair.sent.as_ref().unwrap();
    assert_eq!(sent.last().unwrap().message, rep.message);
    ready(&mut pair, ids[0]);
    pair.run_for(ms(1));
    pair.forge(rep.addr, &rep.message.emit(1));
    pair.run_for(ms(1));
    assert_eq!(pair.sent_by(0, Attribute::Rtu), 2);
    let sent = pair.sent.as_ref().unwrap();
    assert_eq!(sent[sent.len() - 1].message, sent[sent.len() - 2].message);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    assert!(matches!(pair.events(1)[..], [(_, CmEvent::Established(_))]));
}

//= check J3 test
#[test]
fn data_before_the_rtu_establishes_the_connection_and_stops_the_rep() {
    let mut pair = pair();
    pair.script = lose(0, Attribute::Rtu, u32::MAX);
    let ids = answered(&mut pair);
    ready(&mut pair, ids[0]);
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::RepSent));
    for _ in 0..2 {
        pair.nodes[1].communication_established(ids[1]).unwrap();
    }
    assert_eq!(pair.events(1), [(ids[1], CmEvent::Established(None))]);
    pair.run_for(INTERVAL * 8);
    assert_eq!(pair.sent_by(1, Attribute::Rep), 1);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
}

//= check J7 test
#[test]
fn an_mra_makes_the_peer_wait_for_its_service_timeout() {
    let patience = CmTimeout::from_code(19); // 2.1 s, INTERVAL is 0.3 s.
    let mut pair = pair();
    let active = connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    pair.nodes[1].mra(passive, patience, PrivateData::default()).unwrap();
    pair.run_for(patience.duration());
    assert!(matches!(pair.events(0)[..], [(_, CmEvent::Patience(_))]));
    assert_eq!(pair.sent_by(0, Attribute::Req), 1, "nothing is repeated");
    assert_eq!(
        states(&pair, [active, passive]),
        [Some(State::MraReqRcvd), Some(State::MraReqSent)]
    );
    accept(&mut pair, passive);
    pair.run_for(ms(1));
    assert!(matches!(pair.events(0)[..], [(_, CmEvent::Accepted(_))]));

    // An MRA to the REP.
    pair.nodes[0].mra(active, patience, PrivateData::default()).unwrap();
    pair.run_for(patience.duration());
    assert!(matches!(pair.events(1)[..], [(_, CmEvent::Patience(_))]));
    assert_eq!(pair.sent_by(1, Attribute::Rep), 1);
    ready(&mut pair, active);
    pair.run_for(ms(1));
    assert_eq!(states(&pair, [active, passive]), [Some(State::Established); 2]);
}

//= check J7 test
#[test]
fn patience_ends_with_the_service_timeout_and_a_copy_of_the_req_gets_the_mra_again() {
    let patience = CmTimeout::from_code(18);
    let mut pair = pair();
    pair.script = lose(1, Attribute::Mra, 1);
    connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    pair.nodes[1].mra(passive, patience, PrivateData::default()).unwrap();
    pair.run_for(INTERVAL);
    assert_eq!((pair.sent_by(0, Attribute::Req), pair.sent_by(1, Attribute::Mra)), (2, 2));
    pair.run_for(patience.duration() + INTERVAL + ms(1));
    assert_eq!(pair.sent_by(0, Attribute::Req), 2);
    let events = pair.events(0);
    assert!(matches!(events[1], (_, CmEvent::Closed(CloseReason::Unreachable))), "{events:?}");
}

//= check J7 test
#[test]
fn no_peer_makes_us_wait_for_ever() {
    let mut pair = pair();
    let active = connect(&mut pair);
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    let longest = CmTimeout::from_code(31); // 2.4 hours
    let limits = CmLimits::default();
    let step = limits.service_timeout.duration() / 2;
    for _ in 0..40 {
        if pair.nodes[1].state(passive).is_some() {
            pair.nodes[1].mra(passive, longest, PrivateData::default()).unwrap();
        }
        pair.run_for(step);
    }
    assert_eq!(pair.nodes[0].state(active), None);
    assert_quiet(&mut pair);
}

//= check J10 test
#[test]
fn two_reqs_that_cross_peer_to_peer_become_one_connection() {
    for lost in [None, Some(0), Some(1)] {
        let mut pair = Pair::new(3, CmLimits::default());
        if let Some(node) = lost {
            pair.script = lose(node, Attribute::Req, 1);
        }
        let ids = [0, 1].map(|node| {
            let params = conn_params(node, ServiceId(0x99), QPNS[node]);
            let params = ConnectParams { peer_to_peer: true, ..params };
            pair.nodes[node].connect(pair.now, &params).unwrap()
        });
        pair.run_for(INTERVAL + ms(1));
        // Node 1 has the greater CA GUID.
        let events = pair.events(0);
        let [(id, CmEvent::Request(request))] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*id, request.req.local_qpn.value()), (ids[0], QPNS[1]));
        assert_eq!(pair.events(1), []);
        let params = AcceptParams { local_qpn: Qpn::new(QPNS[0]), ..AcceptParams::default() };
        pair.nodes[0].accept(pair.now, ids[0], &params).unwrap();
        pair.run_for(ms(1));
        assert!(matches!(pair.events(1)[..], [(_, CmEvent::Accepted(_))]));
        pair.nodes[1].ready(ids[1], PrivateData::default()).unwrap();
        pair.run_for(ms(1));
        assert!(matches!(pair.events(0)[..], [(_, CmEvent::Established(_))]));
        assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
        assert_eq!(pair.nodes.each_ref().map(|cm| cm.remote_qpn(ids[0]).is_some()), [true; 2]);
    }
}

//= check J10 test
#[test]
fn a_peer_to_peer_req_before_the_other_sides_is_repeated() {
    let mut pair = Pair::new(3, CmLimits::default());
    let params = |node: usize| ConnectParams {
        peer_to_peer: true,
        ..conn_params(node, ServiceId(0x99), QPNS[node])
    };
    let first = pair.nodes[1].connect(pair.now, &params(1)).unwrap();
    pair.run_for(INTERVAL / 2);
    assert_eq!(pair.sent_by(0, Attribute::Rej), 1, "there is no listener yet");
    assert_eq!(pair.nodes[1].state(first), Some(State::ReqSent));
    pair.nodes[0].connect(pair.now, &params(0)).unwrap();
    pair.run_for(INTERVAL);
    assert!(matches!(pair.events(0)[..], [(_, CmEvent::Request(_))]));
}

//= check X10 test
#[test]
fn an_xrc_initiator_is_connected_to_a_target_and_each_side_names_the_other() {
    let mut pair = pair();
    let params = ConnectParams { transport_service: TransportService::Extended, ..terms() };
    let active = pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let (passive, request) = request(&mut pair);
    assert!(request.req.is_xrc());
    accept(&mut pair, passive);
    pair.run_for(ms(1));
    let [(id, CmEvent::Accepted(rep))] = &pair.events(0)[..] else { panic!("not accepted") };
    assert_eq!((*id, rep.local_qpn, rep.local_eecn), (active, Qpn::default(), QPNS[1]));
    assert!(rep.srq);
    ready(&mut pair, active);
    pair.run_for(ms(1));
    let ids = [active, passive];
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    for node in [0, 1] {
        let other = Some(Qpn::new(QPNS[1 - node]));
        assert_eq!(pair.nodes[node].remote_qpn(ids[node]), other, "node {node}");
    }
    let now = pair.now;
    pair.nodes[1].disconnect(now, passive, b"").unwrap();
    pair.run_for(ms(1));
    assert_eq!(states(&pair, ids)[0], Some(State::DreqRcvd), "the DREQ has named our QP");
}

//= check X10 test
#[test]
fn xrc_is_not_connected_peer_to_peer() {
    let mut pair = pair();
    let xrc = ConnectParams { transport_service: TransportService::Extended, ..terms() };
    let params = ConnectParams { peer_to_peer: true, ..xrc };
    let refused = pair.nodes[0].connect(pair.now, &params);
    assert!(matches!(refused, Err(uroce_cm::CmError::OutOfRange(_))), "{refused:?}");
    assert_eq!(pair.nodes[0].len(), 0);
}
