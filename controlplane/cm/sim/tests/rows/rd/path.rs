//! Static rates and alternate paths of EE contexts: in the REQ, and by LAP.

use uroce_cm::Path;
use uroce_cm_sim::path;
use uroce_wire::cm::{AprStatus, Lap};

use super::*;

fn at_rate(path: Path, packet_rate: u8) -> Path {
    Path { packet_rate, ..path }
}

/// Sends a LAP from node 0. Returns it as it was sent.
fn propose(pair: &mut Pair, id: ConnId, path: Path) -> (MadAddr, Lap) {
    pair.nodes[0].load_alternate(pair.now, id, path, PrivateData::default()).unwrap();
    pair.flush();
    let last = *pair.sent.as_ref().unwrap().last().unwrap();
    let Message::Lap(lap) = last.message else { panic!("no LAP") };
    pair.run_for(ms(1));
    (last.addr, lap)
}

//= check R40 test
#[test]
fn a_req_tells_the_peers_ee_context_its_rate_on_either_path() {
    let mut pair = pair();
    let params = ConnectParams {
        primary: at_rate(path(0, 1), 3),
        alternate: Some(at_rate(path(0, 2), 5)),
        ..channel_terms()
    };
    let ids = connected(&mut pair, &params, &answer_of(ENDS[1], QPNS[1]));
    let (primary, alternate) = pair.nodes[1].paths(ids[1]).unwrap();
    assert_eq!(primary, at_rate(path(1, 1), 3));
    assert_eq!(alternate, Some(at_rate(path(1, 2), 5)));
}

//= check R42 test
#[test]
fn a_lap_names_the_ee_context_and_gives_it_a_new_path_and_rate() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    for rate in [5, 2, 0] {
        let proposed = at_rate(path(0, 2), rate);
        let (_, lap) = propose(&mut pair, ids[0], proposed);
        assert_eq!((lap.remote_qpn, lap.alternate.packet_rate), (ENDS[1].eecn, rate));
        let events = pair.events(1);
        let [(id, CmEvent::LoadAlternate(told))] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*id, **told), (ids[1], lap));
        let status = AprStatus::LOADED;
        pair.nodes[1].answer_alternate(ids[1], status, 2, PrivateData::default()).unwrap();
        pair.run_for(ms(1));
        let events = pair.events(0);
        let [(_, CmEvent::AlternateAnswered(apr))] = &events[..] else { panic!("{events:?}") };
        assert_eq!(apr.status, status);
        assert_eq!(pair.nodes[0].paths(ids[0]).unwrap().1, Some(proposed));
        assert_eq!(pair.nodes[1].paths(ids[1]).unwrap().1, Some(at_rate(path(1, 2), rate)));
    }
    // In the other direction, too.
    let proposed = at_rate(path(1, 2), 3);
    let data = PrivateData::default();
    pair.nodes[1].load_alternate(pair.now, ids[1], proposed, data).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    let [(_, CmEvent::LoadAlternate(lap))] = &events[..] else { panic!("{events:?}") };
    assert_eq!((lap.remote_qpn, lap.alternate.packet_rate), (ENDS[0].eecn, 3));
}

//= check R42 test
#[test]
fn a_lap_that_names_the_queue_pair_or_what_has_no_path_is_refused_with_the_reason() {
    let mut pair = pair();
    let ids = channel(&mut pair);
    let user = connected(&mut pair, &use_terms(0x31, 1), &answer_of(ENDS[1], 0x41));
    let last = *pair.sent.as_ref().unwrap().last().unwrap();
    let Message::Rtu(rtu) = last.message else { panic!("no RTU") };
    pair.script = lose(0, Attribute::Lap, 1);
    let (addr, lap) = propose(&mut pair, ids[0], path(0, 2));
    let of_user =
        Lap { local_comm_id: rtu.local_comm_id, remote_comm_id: rtu.remote_comm_id, ..lap };
    let refused = [
        (Lap { remote_qpn: Qpn::new(QPNS[1]), ..lap }, AprStatus::INVALID_QPN),
        (Lap { remote_qpn: Qpn::new(0x41), ..of_user }, AprStatus::INVALID_QPN),
        (of_user, AprStatus::UNSUPPORTED),
    ];
    let cm = &mut pair.nodes[1];
    for (lap, status) in refused {
        let taken = cm.handle_mad(pair.now, &addr, &Message::Lap(lap).emit(4));
        assert_eq!(taken, Err(MadDrop::Refused), "{lap:?}");
        let (_, message) = Message::parse(&cm.poll_transmit().unwrap().1).unwrap();
        let Message::Apr(apr) = message else { panic!("{message:?}") };
        assert_eq!(apr.status, status, "{lap:?}");
    }
    assert_eq!(pair.events(1), []);
    assert_eq!(states(&pair, user), [Some(State::Established); 2]);
}
