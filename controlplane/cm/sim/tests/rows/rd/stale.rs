//! Numbers of EE contexts: stale connections, TimeWait, and queue pairs of the same number.

use uroce_cm::CloseReason;
use uroce_wire::cm::{CmTimeout, CommId};

use super::*;

//= check R43 test
#[test]
fn a_req_of_a_connected_ee_context_makes_its_channel_stale_whatever_queue_pair_it_names() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    // The active side restarts without state and uses the same EE context again.
    pair.kill(0, 99, CmLimits::default());
    let params = ConnectParams { local_qpn: Qpn::new(0x33), ..channel_terms() };
    let id = pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    let [(of, CmEvent::Closed(CloseReason::Rejected(rej)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*of, rej.reason), (id, RejectReason::STALE_CONNECTION));
    assert_eq!(pair.events(1), [(ids[1], CmEvent::Closed(CloseReason::Stale))]);
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::TimeWait));
    pair.run_for(ms(200));
    assert_quiet(&mut pair);
    for node in [0, 1] {
        pair.events(node);
    }
    channel(&mut pair);
}

//= check R43 test
#[test]
fn another_ee_context_of_the_same_queue_pair_makes_nothing_stale() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let ends = [0x111, 0x212].map(|eecn| RdEnd { eecn: Qpn::new(eecn), ..ENDS[0] });
    let params = ConnectParams { rd: Some(ends[0]), ..channel_terms() };
    let others = connected(&mut pair, &params, &answer_of(ends[1], QPNS[1]));
    // Nor does a queue pair of RC with the number of the peer's EE context.
    let (addr, req) = first_req(&pair);
    let rc = Req {
        local_comm_id: CommId(1),
        transport_service: TransportService::Rc,
        local_qpn: ENDS[0].eecn,
        ..req
    };
    let mad = Message::Req(rc).emit(1);
    assert_eq!(pair.nodes[1].handle_mad(pair.now, &addr, &mad), Ok(()));
    for left in [ids, others] {
        assert_eq!(states(&pair, left), [Some(State::Established); 2]);
    }
}

//= check R43 test
#[test]
fn a_rep_with_a_connected_ee_context_is_refused_and_both_channels_end() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    // The passive side restarts without state and offers the same EE context again.
    pair.kill(1, 99, CmLimits::default());
    pair.nodes[1].listen(SERVICE, 8).unwrap();
    let rd = Some(RdEnd { eecn: Qpn::new(0x102), ..ENDS[0] });
    let again = asked(&mut pair, &ConnectParams { rd, ..channel_terms() });
    pair.nodes[1].accept(pair.now, again[1], &answer_of(ENDS[1], 0x42)).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    for id in [ids[0], again[0]] {
        assert!(events.contains(&(id, CmEvent::Closed(CloseReason::Stale))), "{events:?}");
    }
    let events = pair.events(1);
    let [(_, CmEvent::Closed(CloseReason::Rejected(rej)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(rej.reason, RejectReason::STALE_CONNECTION);
    pair.run_for(ms(200));
    assert_quiet(&mut pair);
}

//= check R43 test
#[test]
fn the_number_of_an_ee_context_rests_in_time_wait_and_that_of_its_queue_pair_does_not() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let (eecn, qpn) = (ENDS[0].eecn, Qpn::new(QPNS[0]));
    let taken = Err(CmError::QpnInUse(eecn));
    let as_queue_pair = conn_params(0, SERVICE, eecn.value());
    let held = |pair: &mut Pair| {
        assert!(pair.nodes[0].holds_qpn(eecn) && !pair.nodes[0].holds_qpn(qpn));
        assert_eq!(pair.nodes[0].connect(pair.now, &channel_terms()), taken);
        assert_eq!(pair.nodes[0].connect(pair.now, &as_queue_pair), taken);
    };
    held(&mut pair);
    // The passive side does not give its EE context to a second channel either.
    let rd = Some(RdEnd { eecn: Qpn::new(0x102), ..ENDS[0] });
    let other = asked(&mut pair, &ConnectParams { rd, ..channel_terms() });
    let result = pair.nodes[1].accept(pair.now, other[1], &answer_of(ENDS[1], QPNS[1]));
    assert_eq!(result, Err(CmError::QpnInUse(ENDS[1].eecn)));
    pair.nodes[0].destroy(pair.now, other[0]).unwrap();
    pair.nodes[0].disconnect(pair.now, ids[0], b"").unwrap();
    pair.run_for(ms(1));
    pair.nodes[1].disconnect(pair.now, ids[1], b"").unwrap();
    pair.run_for(ms(1));
    assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
    held(&mut pair);
    pair.run_for(ms(200));
    assert!(!pair.nodes[0].holds_qpn(eecn));
    for node in [0, 1] {
        pair.events(node);
    }
    channel(&mut pair);
}

//= check R43 test
#[test]
fn a_copy_of_a_req_with_another_ee_context_or_service_is_no_copy() {
    let mut pair = pair();
    let ids = asked(&mut pair, &channel_terms());
    let (addr, req) = first_req(&pair);
    let changed = [
        Req { local_eecn: 0x102, ..req },
        Req { local_qkey: Qkey(9), ..req },
        Req { rdc_exists: true, ..req },
        Req { transport_service: TransportService::Rc, ..req },
    ];
    for req in changed {
        let mad = Message::Req(req).emit(1);
        assert_eq!(pair.nodes[1].handle_mad(pair.now, &addr, &mad), Err(MadDrop::Forged));
    }
    let mad = Message::Req(req).emit(1);
    assert_eq!(pair.nodes[1].handle_mad(pair.now, &addr, &mad), Err(MadDrop::Duplicate));
    assert_eq!(states(&pair, ids), [Some(State::ReqSent), Some(State::ReqRcvd)]);
}

//= check R43 test
#[test]
fn what_used_a_channel_and_rests_longer_does_not_hold_the_ee_context() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let mut params = use_terms(0x31, 1);
    params.primary.local_ack_timeout = CmTimeout::from_code(18); // 1 s, the channel's is 67 ms.
    let user = connected(&mut pair, &params, &answer_of(ENDS[1], 0x41));
    for of in [user, ids] {
        pair.nodes[0].disconnect(pair.now, of[0], b"").unwrap();
        pair.run_for(ms(1));
        pair.nodes[1].disconnect(pair.now, of[1], b"").unwrap();
        pair.run_for(ms(1));
    }
    pair.run_for(ms(200));
    assert_eq!((states(&pair, ids), states(&pair, user)), ([None; 2], [Some(State::TimeWait); 2]));
    // A late copy of the DREQ is answered.
    let sent = pair.sent.as_ref().unwrap().iter();
    let mut dreqs = sent.filter(|passing| matches!(passing.message, Message::Dreq(_))).copied();
    let dreq = dreqs.next().unwrap();
    pair.forge(dreq.addr, &dreq.message.emit(dreq.transaction));
    pair.run_for(ms(1));
    assert_eq!(pair.sent_by(1, Attribute::Drep), 3);
    for (node, end) in ENDS.iter().enumerate() {
        assert!(!pair.nodes[node].holds_qpn(end.eecn), "node {node}");
        pair.events(node);
    }
    channel(&mut pair);
}
