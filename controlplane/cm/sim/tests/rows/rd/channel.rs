//! Setting up and ending a channel.

use uroce_cm::CloseReason;
use uroce_wire::cm::Dreq;

use super::*;

//= check R40 test
#[test]
fn both_sides_of_a_channel_learn_the_others_ee_context_queue_pair_and_qkey() {
    let mut pair = pair();
    let ids = asked(&mut pair, &channel_terms());
    let (_, req) = first_req(&pair);
    assert_eq!((req.local_eecn, req.local_qkey), (0x101, Qkey(0x1111)));
    assert_eq!((req.local_qpn.value(), req.remote_eecn, req.rdc_exists), (QPNS[0], 0, false));
    assert_eq!(pair.nodes[0].remote_rd(ids[0]), None, "before the REP");
    let rep = answer(&mut pair, ids, &answer_of(ENDS[1], QPNS[1]));
    assert_eq!((rep.local_eecn, rep.local_qkey), (0x202, Qkey(0x2222)));
    assert_eq!(rep.local_qpn.value(), QPNS[1]);
    ready(&mut pair, ids[0]);
    pair.run_for(ms(1));
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    for node in [0, 1] {
        let other = 1 - node;
        assert_eq!(pair.nodes[node].remote_rd(ids[node]), Some(ENDS[other]), "node {node}");
        assert_eq!(pair.nodes[node].remote_qpn(ids[node]), Some(Qpn::new(QPNS[other])));
    }
}

//= check R40 test
#[test]
fn a_channel_needs_no_queue_pair_and_a_queue_pair_may_be_named_for_several_channels() {
    let mut pair = pair();
    let bare = ConnectParams { local_qpn: Qpn::new(0), ..channel_terms() };
    let ids = connected(&mut pair, &bare, &answer_of(ENDS[1], 0));
    for node in [0, 1] {
        assert_eq!(pair.nodes[node].remote_qpn(ids[node]), None);
        assert!(!pair.nodes[node].holds_qpn(Qpn::new(0)));
    }
    for n in 0..2 {
        let ends = ENDS.map(|end| RdEnd { eecn: Qpn::new(end.eecn.value() + 1 + n), ..end });
        let params = ConnectParams { rd: Some(ends[0]), ..channel_terms() };
        connected(&mut pair, &params, &answer_of(ends[1], QPNS[1]));
    }
    assert_eq!(pair.nodes.each_ref().map(|cm| cm.len()), [3, 3]);
}

//= check R40 test
#[test]
fn a_lost_or_copied_message_of_the_set_up_changes_nothing() {
    let kinds = [(0, Attribute::Req), (1, Attribute::Rep), (0, Attribute::Rtu)];
    for (node, kind) in kinds {
        for copies in [false, true] {
            let mut pair = pair();
            pair.script = match copies {
                false => lose(node, kind, 1),
                true => Some(Box::new(|_| Fate::Double)),
            };
            let active = pair.nodes[0].connect(pair.now, &channel_terms()).unwrap();
            pair.run_for(ms(400));
            let (passive, _) = request(&mut pair);
            let answer = answer_of(ENDS[1], QPNS[1]);
            pair.nodes[1].accept(pair.now, passive, &answer).unwrap();
            pair.run_for(ms(400));
            assert!(matches!(pair.events(0)[..], [(_, CmEvent::Accepted(_))]), "{kind:?}");
            ready(&mut pair, active);
            pair.run_for(ms(400));
            assert!(matches!(pair.events(1)[..], [(_, CmEvent::Established(_))]), "{kind:?}");
            assert_eq!(states(&pair, [active, passive]), [Some(State::Established); 2]);
            assert_eq!(pair.nodes.each_ref().map(|cm| cm.len()), [1, 1]);
        }
    }
}

//= check J3 test
//= check R40 test
#[test]
fn data_before_the_rtu_establishes_a_channel_and_queue_pairs_can_be_exchanged_for_it() {
    let mut pair = pair();
    pair.script = lose(0, Attribute::Rtu, u32::MAX);
    let ids = asked(&mut pair, &channel_terms());
    answer(&mut pair, ids, &answer_of(ENDS[1], QPNS[1]));
    ready(&mut pair, ids[0]);
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::RepSent));
    pair.nodes[1].communication_established(ids[1]).unwrap();
    assert_eq!(pair.events(1), [(ids[1], CmEvent::Established(None))]);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    let user = asked(&mut pair, &use_terms(0x31, 1));
    answer(&mut pair, user, &answer_of(ENDS[1], 0x41));
    assert_eq!(states(&pair, user), [Some(State::RepRcvd), Some(State::RepSent)]);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
}

//= check R40 test
#[test]
fn terms_that_contradict_themselves_are_refused_and_nothing_is_sent() {
    let mut pair = pair();
    let (channel, rc) = (channel_terms(), terms());
    let eecn = |eecn| Some(RdEnd { eecn: Qpn::new(eecn), ..ENDS[0] });
    let bad = [
        ConnectParams { rd: None, ..channel },
        ConnectParams { rd: Some(ENDS[0]), ..rc },
        ConnectParams { rdc_exists: true, ..rc },
        ConnectParams { local_qpn: Qpn::GSI, ..channel },
        ConnectParams { local_qpn: Qpn::MULTICAST, ..channel },
        ConnectParams { rd: eecn(0), ..channel },
        ConnectParams { rd: eecn(1), ..channel },
        ConnectParams { rd: eecn(0xff_ffff), ..channel },
        ConnectParams { rdc_exists: true, peer_to_peer: true, ..channel },
        ConnectParams { rdc_exists: true, alternate: Some(uroce_cm_sim::path(0, 2)), ..channel },
    ];
    for params in bad {
        let result = pair.nodes[0].connect(pair.now, &params);
        assert!(matches!(result, Err(CmError::OutOfRange(_))), "{params:?} {result:?}");
    }
    let [_, passive] = asked(&mut pair, &channel);
    let good = answer_of(ENDS[1], QPNS[1]);
    let bad = [
        AcceptParams { rd: None, ..good },
        AcceptParams { local_qpn: Qpn::GSI, ..good },
        AcceptParams { rd: eecn(0), ..good },
    ];
    for params in bad {
        let result = pair.nodes[1].accept(pair.now, passive, &params);
        assert!(matches!(result, Err(CmError::OutOfRange(_))), "{params:?} {result:?}");
    }
    pair.nodes[1].accept(pair.now, passive, &good).unwrap();
    // Nor can a REQ of another service be answered with an EE context.
    let params = conn_params(0, SERVICE, 0x33);
    pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let (passive, _) = request(&mut pair);
    let result = pair.nodes[1].accept(pair.now, passive, &good);
    assert_eq!(result, Err(CmError::OutOfRange("transport service")));
}

/// Numbers that no EE context has.
const NO_EECN: [u32; 3] = [0, 1, 0xff_ffff];

//= check R40 test
#[test]
fn a_req_or_rep_with_a_number_that_no_rd_queue_pair_or_ee_context_has_is_refused() {
    let mut pair = pair();
    let ids = asked(&mut pair, &channel_terms());
    let (addr, req) = first_req(&pair);
    let fresh = Req { local_comm_id: uroce_wire::cm::CommId(1), local_eecn: 0x111, ..req };
    for qpn in [Qpn::GSI, Qpn::MULTICAST] {
        let reason = refused(&mut pair, &addr, Req { local_qpn: qpn, ..fresh });
        assert_eq!(reason, RejectReason::UNSUPPORTED);
    }
    for eecn in NO_EECN {
        let reason = refused(&mut pair, &addr, Req { local_eecn: eecn, ..fresh });
        assert_eq!(reason, RejectReason::UNSUPPORTED);
    }
    pair.script = lose(1, Attribute::Rep, 1);
    pair.nodes[1].accept(pair.now, ids[1], &answer_of(ENDS[1], QPNS[1])).unwrap();
    pair.flush();
    let last = *pair.sent.as_ref().unwrap().last().unwrap();
    let Message::Rep(rep) = last.message else { panic!("no REP") };
    let back = MadAddr { port: 1, ..last.addr };
    let with_eecn = NO_EECN.map(|local_eecn| Rep { local_eecn, ..rep });
    for bad in with_eecn.into_iter().chain([Rep { local_qpn: Qpn::GSI, ..rep }]) {
        let bad = Message::Rep(bad).emit(last.transaction);
        assert_eq!(pair.nodes[0].handle_mad(pair.now, &back, &bad), Err(MadDrop::Malformed));
    }
    let none = Message::Rep(Rep { local_qpn: Qpn::default(), ..rep }).emit(last.transaction);
    assert_eq!(pair.nodes[0].handle_mad(pair.now, &back, &none), Ok(()));
}

//= check R40 test
#[test]
fn two_reqs_for_a_channel_that_cross_become_one_and_one_of_another_service_does_not_cross() {
    for other in [TransportService::Rd, TransportService::Rc] {
        let mut pair = Pair::new(3, CmLimits::default());
        let ids = [0, 1].map(|node| {
            let is_rd = node == 0 || other == TransportService::Rd;
            let params = ConnectParams {
                peer_to_peer: true,
                transport_service: if is_rd { TransportService::Rd } else { other },
                rd: is_rd.then_some(ENDS[node]),
                ..conn_params(node, ServiceId(0x99), QPNS[node])
            };
            pair.nodes[node].connect(pair.now, &params).unwrap()
        });
        pair.run_for(ms(1));
        if other == TransportService::Rc {
            for node in [0, 1] {
                let events = pair.events(node);
                let [(_, CmEvent::Closed(CloseReason::Rejected(rej))), _] = &events[..] else {
                    panic!("{events:?}")
                };
                assert_eq!(rej.reason, RejectReason::INVALID_TRANSPORT_TYPE);
            }
            assert_quiet(&mut pair);
            continue;
        }
        // Node 1 has the greater CA GUID and stays the active side.
        assert!(matches!(pair.events(0)[..], [(id, CmEvent::Request(_))] if id == ids[0]));
        let answer = answer_of(ENDS[0], QPNS[0]);
        pair.nodes[0].accept(pair.now, ids[0], &answer).unwrap();
        pair.run_for(ms(1));
        assert!(matches!(pair.events(1)[..], [(_, CmEvent::Accepted(_))]));
        pair.nodes[1].ready(ids[1], PrivateData::default()).unwrap();
        pair.run_for(ms(1));
        assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
        assert_eq!(pair.nodes[0].remote_rd(ids[0]), Some(ENDS[1]));
        assert_eq!(pair.nodes[1].remote_rd(ids[1]), Some(ENDS[0]));
    }
}

//= check R42 test
#[test]
fn a_dreq_ends_a_channel_by_the_number_of_its_ee_context_only() {
    for first in [0, 1] {
        let mut pair = pair();
        let ids = channel(&mut pair);
        pair.script = lose(first, Attribute::Dreq, 1);
        pair.nodes[first].disconnect(pair.now, ids[first], b"").unwrap();
        pair.flush();
        let last = *pair.sent.as_ref().unwrap().last().unwrap();
        let Message::Dreq(dreq) = last.message else { panic!("no DREQ") };
        let other = 1 - first;
        assert_eq!(dreq.remote_qpn, ENDS[other].eecn);
        let named = Message::Dreq(Dreq { remote_qpn: Qpn::new(QPNS[other]), ..dreq }).emit(1);
        let taken = pair.nodes[other].handle_mad(pair.now, &last.addr, &named);
        assert_eq!(taken, Err(MadDrop::Forged), "the RD queue pair is no part of the channel");
        let genuine = last.message.emit(last.transaction);
        pair.nodes[other].handle_mad(pair.now, &last.addr, &genuine).unwrap();
        assert_eq!(pair.nodes[other].state(ids[other]), Some(State::DreqRcvd));
        pair.nodes[other].disconnect(pair.now, ids[other], b"").unwrap();
        pair.run_for(ms(1));
        assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
        pair.run_for(ms(200));
        assert_quiet(&mut pair);
    }
}
