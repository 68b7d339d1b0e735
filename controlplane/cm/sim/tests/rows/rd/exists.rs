//! REQs for a channel that exists: they exchange queue pairs and Q_Keys, and end with the channel.

use uroce_cm::CloseReason;
use uroce_cm_sim::{gid, path};
use uroce_wire::cm::{CaGuid, CmPath, CommId};

use super::*;

/// Exchanges RD queue pairs for the channel between [`ENDS`].
fn in_use(pair: &mut Pair, qpns: [u32; 2]) -> [ConnId; 2] {
    let end = RdEnd { qkey: Qkey(qpns[1]), ..ENDS[1] };
    connected(pair, &use_terms(qpns[0], qpns[0]), &answer_of(end, qpns[1]))
}

//= check R41 test
#[test]
fn queue_pairs_of_both_sides_become_known_and_the_channel_stays_as_it_is() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let users = [[0x31, 0x41], [0x32, 0x42], [0x31, 0x41]].map(|qpns| {
        let user = in_use(&mut pair, qpns);
        for node in [0, 1] {
            let (cm, other) = (&pair.nodes[node], 1 - node);
            assert_eq!(cm.remote_qpn(user[node]), Some(Qpn::new(qpns[other])));
            let end = RdEnd { qkey: Qkey(qpns[other]), ..ENDS[other] };
            assert_eq!(cm.remote_rd(user[node]), Some(end));
            assert!(!cm.holds_qpn(Qpn::new(qpns[node])), "it may be in any number of them");
        }
        user
    });
    let sent = pair.sent.as_ref().unwrap();
    let last = sent.iter().rev().find_map(|passing| match passing.message {
        Message::Req(req) => Some(req),
        _ => None,
    });
    let req = last.unwrap();
    assert_eq!((req.local_eecn, req.remote_eecn, req.rdc_exists), (0x101, 0x202, true));
    // The end of one concerns neither the others nor the channel.
    pair.nodes[1].disconnect(pair.now, users[1][1], b"").unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(matches!(events[..], [(id, CmEvent::DisconnectRequested(_))] if id == users[1][0]));
    pair.nodes[0].disconnect(pair.now, users[1][0], b"").unwrap();
    pair.run_for(ms(200));
    assert_eq!(states(&pair, users[1]), [None; 2]);
    for left in [ids, users[0], users[2]] {
        assert_eq!(states(&pair, left), [Some(State::Established); 2]);
    }
}

//= check R41 test
#[test]
fn the_side_that_answered_for_the_channel_can_ask_by_it_too() {
    let mut pair = pair();
    channel(&mut pair);
    pair.nodes[0].listen(SERVICE, 8).unwrap();
    let terms = conn_params(1, SERVICE, 0x41);
    let params = ConnectParams { rd: Some(ENDS[1]), primary: path(1, 1), ..use_terms(0x41, 1) };
    let params = ConnectParams { starting_psn: terms.starting_psn, ..params };
    let active = pair.nodes[1].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    let [(passive, CmEvent::Request(request))] = &events[..] else { panic!("{events:?}") };
    assert_eq!((request.req.local_eecn, request.req.remote_eecn), (0x202, 0x101));
    pair.nodes[0].accept(pair.now, *passive, &answer_of(ENDS[0], 0x31)).unwrap();
    pair.run_for(ms(1));
    assert!(matches!(pair.events(1)[..], [(id, CmEvent::Accepted(_))] if id == active));
    pair.nodes[1].ready(active, PrivateData::default()).unwrap();
    pair.run_for(ms(1));
    assert_eq!(states(&pair, [*passive, active]), [Some(State::Established); 2]);
}

//= check R41 test
#[test]
fn without_the_channel_nothing_is_asked() {
    let mut pair = pair();
    let none = Err(CmError::NoRdc(ENDS[0].eecn));
    assert_eq!(pair.nodes[0].connect(pair.now, &use_terms(0x31, 1)), none);
    let ids = asked(&mut pair, &channel_terms());
    assert_eq!(pair.nodes[0].connect(pair.now, &use_terms(0x31, 1)), none, "not yet");
    answer(&mut pair, ids, &answer_of(ENDS[1], QPNS[1]));
    ready(&mut pair, ids[0]);
    pair.run_for(ms(1));
    pair.events(1);
    in_use(&mut pair, [0x31, 0x41]);
    pair.nodes[0].disconnect(pair.now, ids[0], b"").unwrap();
    assert_eq!(pair.nodes[0].connect(pair.now, &use_terms(0x31, 1)), none, "not any more");
    // The number of a queue pair is not that of an EE context.
    let params = conn_params(0, SERVICE, 0x55);
    let rc = pair.nodes[0].connect(pair.now, &params).unwrap();
    assert_eq!(pair.nodes[0].state(rc), Some(State::ReqSent));
    let rd = Some(RdEnd { eecn: Qpn::new(0x55), ..ENDS[0] });
    let params = ConnectParams { rd, ..use_terms(0x31, 1) };
    let result = pair.nodes[0].connect(pair.now, &params);
    assert_eq!(result, Err(CmError::NoRdc(Qpn::new(0x55))));
}

//= check R41 test
#[test]
fn a_req_for_a_channel_that_does_not_exist_is_refused_with_that_reason() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    established_rc(&mut pair);
    pair.nodes[0].connect(pair.now, &use_terms(0x31, 1)).unwrap();
    pair.flush();
    let last = *pair.sent.as_ref().unwrap().last().unwrap();
    let (addr, Message::Req(req)) = (last.addr, last.message) else { panic!("no REQ") };
    let stranger = std::net::Ipv4Addr::new(10, 9, 9, 9).into();
    let from = MadAddr { src: stranger, ..addr };
    let primary = CmPath { local_gid: stranger, ..req.primary };
    let wrong = [
        (addr, Req { remote_eecn: 0x203, ..req }),
        (addr, Req { remote_eecn: 0x44, ..req }), // An RC queue pair of ours.
        (addr, Req { local_eecn: 0x102, ..req }),
        (addr, Req { local_ca_guid: CaGuid(1), ..req }),
        (from, Req { primary, ..req }),
    ];
    for (addr, req) in wrong {
        let req = Req { local_comm_id: CommId(1), ..req };
        assert_eq!(refused(&mut pair, &addr, req), RejectReason::RDC_DOES_NOT_EXIST);
    }
    assert_eq!(pair.events(1), []);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    // After the channel's end, as its number rests.
    pair.nodes[1].disconnect(pair.now, ids[1], b"").unwrap();
    let reason = refused_by_mail(&mut pair, &addr, Req { local_comm_id: CommId(2), ..req });
    assert_eq!(reason, RejectReason::RDC_DOES_NOT_EXIST);
}

/// Like [`refused`], but other messages of node 1 may be waiting.
fn refused_by_mail(pair: &mut Pair, addr: &MadAddr, req: Req) -> RejectReason {
    while pair.nodes[1].poll_transmit().is_some() {}
    refused(pair, addr, req)
}

fn established_rc(pair: &mut Pair) {
    let params = conn_params(0, SERVICE, 0x33);
    let answer = AcceptParams { local_qpn: Qpn::new(0x44), ..AcceptParams::default() };
    connected(pair, &params, &answer);
}

//= check R41 test
#[test]
fn a_req_that_overtakes_the_channels_rtu_waits_for_it() {
    let mut pair = pair();
    pair.script = lose(0, Attribute::Rtu, 1);
    let ids = asked(&mut pair, &channel_terms());
    answer(&mut pair, ids, &answer_of(ENDS[1], QPNS[1]));
    ready(&mut pair, ids[0]);
    pair.nodes[0].connect(pair.now, &use_terms(0x31, 1)).unwrap();
    pair.run_for(ms(1));
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![]), "neither taken nor refused");
    pair.run_for(ms(700));
    let events = pair.events(1);
    let [(_, CmEvent::Established(_)), (_, CmEvent::Request(request))] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(request.req.rdc_exists);
}

//= check R41 test
#[test]
fn an_answer_by_another_ee_context_is_not_given_and_not_taken() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let user = asked(&mut pair, &use_terms(0x31, 1));
    let other = RdEnd { eecn: Qpn::new(0x203), ..ENDS[1] };
    let result = pair.nodes[1].accept(pair.now, user[1], &answer_of(other, 0x41));
    assert_eq!(result, Err(CmError::NoRdc(other.eecn)));
    let bare = AcceptParams { local_qpn: Qpn::new(0x41), ..AcceptParams::default() };
    let result = pair.nodes[1].accept(pair.now, user[1], &bare);
    assert_eq!(result, Err(CmError::OutOfRange("transport service")));
    pair.script = lose(1, Attribute::Rep, u32::MAX);
    pair.nodes[1].accept(pair.now, user[1], &answer_of(ENDS[1], 0x41)).unwrap();
    pair.flush();
    let last = *pair.sent.as_ref().unwrap().last().unwrap();
    let Message::Rep(rep) = last.message else { panic!("no REP") };
    for bad in [Rep { local_eecn: 0x203, ..rep }, Rep { local_ca_guid: CaGuid(1), ..rep }] {
        let mad = Message::Rep(bad).emit(last.transaction);
        let taken = pair.nodes[0].handle_mad(pair.now, &last.addr, &mad);
        assert_eq!(taken, Err(MadDrop::Forged));
    }
    pair.nodes[0].handle_mad(pair.now, &last.addr, &last.message.emit(last.transaction)).unwrap();
    assert_eq!(states(&pair, user), [Some(State::RepRcvd), Some(State::RepSent)]);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
}

/// Takes an exchange of queue pairs as far as `step`: asked, answered, established, leaving.
fn up_to(pair: &mut Pair, step: usize) -> [ConnId; 2] {
    if step >= 2 {
        let user = in_use(pair, [0x31, 0x41]);
        if step == 3 {
            pair.nodes[0].disconnect(pair.now, user[0], b"").unwrap();
            pair.run_for(ms(1));
            assert!(matches!(pair.events(1)[..], [(_, CmEvent::DisconnectRequested(_))]));
        }
        return user;
    }
    let user = asked(pair, &use_terms(0x31, 1));
    if step == 1 {
        answer(pair, user, &answer_of(ENDS[1], 0x41));
    }
    user
}

//= check R41 test
#[test]
fn what_uses_a_channel_ends_with_it_on_both_sides_whatever_it_waits_for() {
    for (step, first) in (0..8).map(|n| (n / 2, n % 2)) {
        let mut pair = pair();
        let ids = channel(&mut pair);
        let user = up_to(&mut pair, step);
        pair.nodes[first].disconnect(pair.now, ids[first], b"").unwrap();
        pair.run_for(ms(1));
        let other = 1 - first;
        let events = pair.events(other);
        assert!(matches!(events[..], [(_, CmEvent::DisconnectRequested(_))]), "{events:?}");
        let sent = pair.sent.as_ref().unwrap().len();
        pair.nodes[other].disconnect(pair.now, ids[other], b"").unwrap();
        pair.run_for(ms(1));
        for node in [0, 1] {
            let events = pair.events(node);
            let closed = |id: ConnId| {
                let of = events.iter().filter(|(of, _)| *of == id);
                let mut closed = of.filter(|(_, event)| matches!(event, CmEvent::Closed(_)));
                let reason = closed.next().map(|(_, event)| event.clone());
                assert_eq!(closed.next(), None, "once");
                reason
            };
            let reason = closed(user[node]);
            let ended = CmEvent::Closed(CloseReason::Disconnected(None));
            assert_eq!(reason, Some(ended), "step {step}, node {node}");
            assert!(closed(ids[node]).is_some());
        }
        assert_eq!(pair.sent.as_ref().unwrap().len(), sent + 1, "a DREP for all");
        pair.run_for(ms(200));
        assert_quiet(&mut pair);
    }
}

//= check R41 test
#[test]
fn a_channel_that_a_killed_peer_makes_stale_takes_what_uses_it_along() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let user = in_use(&mut pair, [0x31, 0x41]);
    pair.kill(0, 99, CmLimits::default());
    pair.nodes[0].connect(pair.now, &channel_terms()).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(events.contains(&(ids[1], CmEvent::Closed(CloseReason::Stale))), "{events:?}");
    let ended = CmEvent::Closed(CloseReason::Disconnected(None));
    assert!(events.contains(&(user[1], ended)), "{events:?}");
    pair.events(0);
    pair.run_for(ms(200));
    assert_quiet(&mut pair);
}

//= check R41 test
#[test]
fn what_uses_a_channel_has_no_path_of_its_own_and_follows_that_of_the_channel() {
    let mut pair = pair();
    let params = ConnectParams { alternate: Some(path(0, 2)), ..channel_terms() };
    let ids = connected(&mut pair, &params, &answer_of(ENDS[1], QPNS[1]));
    let user = in_use(&mut pair, [0x31, 0x41]);
    for node in [0, 1] {
        let loaded = pair.nodes[node].load_alternate(
            pair.now,
            user[node],
            path(node, 2),
            PrivateData::default(),
        );
        assert!(matches!(loaded, Err(CmError::OutOfRange(_))), "{loaded:?}");
        assert!(pair.nodes[node].path_migrated(user[node]).is_err());
    }
    pair.nodes[0].path_migrated(ids[0]).unwrap();
    assert_eq!(pair.nodes[0].paths(user[0]), Some((path(0, 2), None)));
    // The other side has not migrated yet.
    pair.nodes[0].disconnect(pair.now, user[0], b"").unwrap();
    pair.run_for(ms(1));
    let last = pair.sent.as_ref().unwrap().last().unwrap();
    assert_eq!((last.addr.src, last.addr.dst), (gid(0, 2), gid(1, 2)));
    assert_eq!(pair.nodes[1].state(user[1]), Some(State::DreqRcvd));
    pair.nodes[1].path_migrated(ids[1]).unwrap();
    pair.nodes[1].disconnect(pair.now, user[1], b"").unwrap();
    pair.run_for(ms(1));
    let last = pair.sent.as_ref().unwrap().last().unwrap();
    assert_eq!((last.addr.src, last.addr.dst), (gid(1, 2), gid(0, 2)));
    assert_eq!(states(&pair, user), [Some(State::TimeWait); 2]);
}
