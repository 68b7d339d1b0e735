//! Floods: unknown senders occupy bounded room, and established connections stay.

use uroce_cm::MadAddr;
use uroce_cm_sim::gid;
use uroce_wire::cm::{CaGuid, CmPath, CommId, Message, Req};

use super::*;

/// Builds the REQ of an unknown sender.
fn strange_req(n: u32) -> (MadAddr, Req) {
    let src = std::net::Ipv4Addr::from(0x0b00_0000 + n).into();
    let addr = MadAddr { port: 1, src, dst: gid(1, 1), ..MadAddr::default() };
    let primary = CmPath { local_gid: src, remote_gid: gid(1, 1), ..terms().primary.to_wire() };
    let req = Req {
        local_comm_id: CommId(n),
        service_id: SERVICE,
        local_ca_guid: CaGuid(n.into()),
        local_qpn: Qpn::new(n | 2),
        path_mtu_code: 3,
        max_cm_retries: 15,
        local_cm_response_timeout: uroce_wire::cm::CmTimeout::from_code(31),
        primary,
        ..Req::default()
    };
    (addr, req)
}

fn limits() -> CmLimits {
    CmLimits { connections: 300, half_open: 64, queue: 200, ..CmLimits::default() }
}

//= check J13 test
#[test]
fn a_flood_of_reqs_is_bounded_and_leaves_connections_alone() {
    let mut pair = Pair::new(5, limits());
    pair.nodes[1].listen(SERVICE, 32).unwrap();
    let ids = established(&mut pair);
    for n in 1..20_000 {
        let (addr, req) = strange_req(n);
        let _ = pair.nodes[1].handle_mad(pair.now, &addr, &Message::Req(req).emit(n.into()));
        // Some consumers accept at once.
        if n % 2 == 0 {
            for (id, event) in pair.events(1) {
                if matches!(event, CmEvent::Request(_)) {
                    let local_qpn = Qpn::new(0x1000 + n);
                    let params = AcceptParams { local_qpn, ..AcceptParams::default() };
                    let _ = pair.nodes[1].accept(pair.now, id, &params);
                }
            }
        }
        let cm = &pair.nodes[1];
        assert!(cm.len() <= 300 && cm.half_open() <= 64, "{} {}", cm.len(), cm.half_open());
    }
    pair.flush();
    assert!(pair.nodes[1].counters().tx_overflow > 0, "replies are bounded too");
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    pair.nodes[0].disconnect(pair.now, ids[0], &[]).unwrap();
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::DreqRcvd), "it is still served");
}

//= check J13 test
#[test]
fn under_a_flood_from_silent_peers_a_true_one_still_gets_in() {
    let mut pair = Pair::new(5, limits());
    pair.nodes[1].listen(SERVICE, 1000).unwrap();
    let mut strangers = 1..;
    let mut flood = |pair: &mut Pair, count| {
        for n in strangers.by_ref().take(count) {
            let (addr, req) = strange_req(n);
            let _ = pair.nodes[1].handle_mad(pair.now, &addr, &Message::Req(req).emit(1));
            for (id, event) in pair.events(1) {
                if matches!(event, CmEvent::Request(_)) {
                    let local_qpn = Qpn::new(0x1000 + n);
                    let params = AcceptParams { local_qpn, ..AcceptParams::default() };
                    let _ = pair.nodes[1].accept(pair.now, id, &params);
                }
            }
        }
    };
    flood(&mut pair, 200);
    assert_eq!(pair.nodes[1].half_open(), 64);
    // Once the peers have left a REP unanswered, the oldest of them makes room.
    pair.run_for(CmLimits::default().response_timeout.duration() + ms(100));
    flood(&mut pair, 1);
    let active = connect(&mut pair);
    pair.run_for(ms(1));
    let requests = pair.events(1);
    let request = requests.iter().find(|(_, event)| matches!(event, CmEvent::Request(_)));
    let (passive, _) = request.expect("the true one is told");
    accept(&mut pair, *passive);
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[0].state(active), Some(State::RepRcvd));
    assert!(pair.nodes[1].counters().evicted > 0);
}

//= check J13 test
#[test]
fn a_consumer_that_does_not_listen_is_not_buried_in_events() {
    let mut pair = Pair::new(5, limits());
    pair.nodes[1].listen(SERVICE, usize::MAX).unwrap();
    let reason = uroce_wire::cm::RejectReason::TIMEOUT;
    for n in 1..5000 {
        // Each connects and gives up at once.
        let (addr, req) = strange_req(n);
        let _ = pair.nodes[1].handle_mad(pair.now, &addr, &Message::Req(req).emit(1));
        let mut rej =
            uroce_wire::cm::Rej { local_comm_id: CommId(n), reason, ..Default::default() };
        rej.message = uroce_wire::cm::MessageRejected::Other;
        rej.ari[..8].copy_from_slice(&u64::from(n).to_be_bytes());
        rej.ari_len = 8;
        let _ = pair.nodes[1].handle_mad(pair.now, &addr, &Message::Rej(rej).emit(1));
    }
    let told = pair.events(1).len();
    assert!(told <= 200 + 2, "{told} events");
}

//= check J13 test
#[test]
fn a_silent_peer_makes_room_though_older_ones_wait_for_the_consumer() {
    let mut pair = Pair::new(5, limits());
    pair.nodes[1].listen(SERVICE, 1000).unwrap();
    for n in 1..=64 {
        let (addr, req) = strange_req(n);
        pair.nodes[1].handle_mad(pair.now, &addr, &Message::Req(req).emit(1)).unwrap();
        let (id, _) = request(&mut pair);
        if n > 20 {
            let local_qpn = Qpn::new(0x1000 + n);
            let params = AcceptParams { local_qpn, ..AcceptParams::default() };
            pair.nodes[1].accept(pair.now, id, &params).unwrap();
        }
    }
    pair.run_for(CmLimits::default().response_timeout.duration() + ms(100));
    connect(&mut pair);
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(events.iter().any(|(_, event)| matches!(event, CmEvent::Request(_))), "{events:?}");
    assert_eq!(pair.nodes[1].counters().evicted, 1);
}
