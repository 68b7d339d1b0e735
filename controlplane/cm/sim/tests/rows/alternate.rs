//! Alternate paths: LAP and APR, their losses and copies, and messages after a migration.

use uroce_cm::{CmError, ConnectParams, LapState, MadAddr, MadDrop, Path};
use uroce_cm_sim::{gid, path};
use uroce_wire::cm::{Apr, AprStatus, CmPath, CmTimeout, Lap, Message};

use super::*;

const INTERVAL: Duration = Duration::from_nanos((4096 << 16) + (4096 << 14));

fn load(pair: &mut Pair, id: ConnId, path: Path) {
    pair.nodes[0].load_alternate(pair.now, id, path, PrivateData::default()).unwrap();
    pair.run_for(ms(1));
}

/// Returns the status that the active side was told.
fn status(pair: &mut Pair) -> AprStatus {
    let events = pair.events(0);
    let [(_, CmEvent::AlternateAnswered(apr))] = &events[..] else { panic!("{events:?}") };
    apr.status
}

fn proposal(pair: &mut Pair) -> Box<Lap> {
    let mut events = pair.events(1);
    match (events.pop(), events.pop()) {
        (Some((_, CmEvent::LoadAlternate(lap))), None) => lap,
        other => panic!("{other:?}"),
    }
}

fn answer(pair: &mut Pair, id: ConnId, status: AprStatus) {
    pair.nodes[1].answer_alternate(id, status, 2, PrivateData::default()).unwrap();
    pair.run_for(ms(1));
}

//= check I12 test
#[test]
fn a_new_path_and_rate_are_told_to_the_peer_and_loaded_on_both_sides() {
    let mut pair = pair();
    let ids = established(&mut pair);
    let proposed = Path { packet_rate: 3, ..path(0, 2) };
    load(&mut pair, ids[0], proposed);
    let lap = proposal(&mut pair);
    assert_eq!(lap.alternate, proposed.to_wire());
    assert_eq!((lap.alternate.packet_rate, lap.remote_qpn.value()), (3, QPNS[1]));
    answer(&mut pair, ids[1], AprStatus::LOADED);
    assert_eq!(status(&mut pair), AprStatus::LOADED);
    let alternates = [0, 1].map(|node| pair.nodes[node].paths(ids[node]).unwrap().1.unwrap());
    assert_eq!(alternates[0], proposed);
    assert_eq!((alternates[1].local, alternates[1].remote), (gid(1, 2), gid(0, 2)));

    // Repeated, and in the other direction: each proposal replaces the one before.
    let other = Path { flow_label: 9, ..path(0, 2) };
    load(&mut pair, ids[0], other);
    proposal(&mut pair);
    answer(&mut pair, ids[1], AprStatus::LOADED);
    assert_eq!(status(&mut pair), AprStatus::LOADED);
    assert_eq!(pair.nodes[0].paths(ids[0]).unwrap().1, Some(other));
    let back = Path { flow_label: 11, ..path(1, 2) };
    pair.nodes[1].load_alternate(pair.now, ids[1], back, PrivateData::default()).unwrap();
    pair.run_for(ms(1));
    assert!(matches!(pair.events(0)[..], [(_, CmEvent::LoadAlternate(_))]));
}

//= check I12 test
#[test]
fn the_path_in_use_is_refused_as_current_and_a_path_without_gids_as_invalid() {
    let mut pair = pair();
    let ids = established(&mut pair);
    load(&mut pair, ids[0], path(0, 1));
    assert_eq!(status(&mut pair), AprStatus::IS_CURRENT);
    load(&mut pair, ids[0], Path { remote: Default::default(), ..path(0, 2) });
    assert_eq!(status(&mut pair), AprStatus::INVALID_GID);
    assert_eq!(pair.events(1), [], "the consumer need not be asked");
    // A refusal for a reason that only the consumer can check.
    for refused in [AprStatus::INVALID_GID, AprStatus::REJECTED, AprStatus::UNSUPPORTED] {
        load(&mut pair, ids[0], path(0, 2));
        proposal(&mut pair);
        answer(&mut pair, ids[1], refused);
        assert_eq!(status(&mut pair), refused);
    }
    assert!(pair.nodes.iter().zip(ids).all(|(cm, id)| cm.paths(id).unwrap().1.is_none()));
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
}

//= check I12 test
#[test]
fn a_lap_with_a_wrong_id_qpn_or_source_gets_its_status_or_nothing() {
    let mut pair = pair();
    let ids = established(&mut pair);
    pair.script = Some(Box::new(|_| Fate::Lose));
    load(&mut pair, ids[0], path(0, 2));
    let Passing { addr, message: Message::Lap(lap), .. } =
        *pair.sent.as_ref().unwrap().last().unwrap()
    else {
        panic!("no LAP")
    };
    let cm = &mut pair.nodes[1];
    let wrong_qpn = Lap { remote_qpn: Qpn::new(3), ..lap };
    let unknown = Lap { remote_comm_id: uroce_wire::cm::CommId(lap.remote_comm_id.0 ^ 1), ..lap };
    let answered = [
        (wrong_qpn, MadDrop::Refused, AprStatus::INVALID_QPN),
        (unknown, MadDrop::UnknownId, AprStatus::INVALID_COMM_ID),
    ];
    for (lap, verdict, status) in answered {
        let taken = cm.handle_mad(pair.now, &addr, &Message::Lap(lap).emit(4));
        assert_eq!(taken, Err(verdict));
        let (header, message) = Message::parse(&cm.poll_transmit().unwrap().1).unwrap();
        let Message::Apr(apr) = message else { panic!("{message:?}") };
        assert_eq!((apr.status, header.transaction_id), (status, 4));
    }
    let elsewhere = MadAddr { src: gid(0, 2), ..addr };
    let forged = cm.handle_mad(pair.now, &elsewhere, &Message::Lap(lap).emit(4));
    assert_eq!((forged, cm.poll_transmit()), (Err(MadDrop::Forged), None));
    assert_eq!(cm.lap_state(ids[1]), Some((LapState::Idle, LapState::Idle)));
    assert_eq!(pair.events(1), []);
}

//= check I12 test
#[test]
fn lost_laps_and_aprs_are_repeated_and_copies_are_told_once() {
    for (node, kind) in [(0, Attribute::Lap), (1, Attribute::Apr)] {
        for losses in 0..=3 {
            let mut pair = pair();
            let ids = established(&mut pair);
            pair.script = lose(node, kind, losses);
            load(&mut pair, ids[0], path(0, 2));
            pair.run_for(INTERVAL * losses);
            if node == 1 {
                // The consumer answers the first LAP.
                proposal(&mut pair);
                answer(&mut pair, ids[1], AprStatus::LOADED);
                pair.run_for(INTERVAL * 4);
                assert!(pair.sent_by(1, Attribute::Apr) >= 1);
                if losses == 0 || pair.sent_by(1, Attribute::Apr) > losses {
                    assert_eq!(status(&mut pair), AprStatus::LOADED);
                }
            } else {
                proposal(&mut pair);
                answer(&mut pair, ids[1], AprStatus::LOADED);
                assert_eq!(status(&mut pair), AprStatus::LOADED);
            }
            assert_eq!(pair.events(1), []);
        }
    }
    let mut pair = pair();
    let ids = established(&mut pair);
    pair.script = Some(Box::new(|_| Fate::Double));
    load(&mut pair, ids[0], path(0, 2));
    proposal(&mut pair);
    answer(&mut pair, ids[1], AprStatus::LOADED);
    assert_eq!(status(&mut pair), AprStatus::LOADED);
    let laps = pair.sent.as_ref().unwrap();
    let lap = *laps.iter().find(|p| p.message.attribute() == Attribute::Lap).unwrap();
    // A repeated transaction gets an equal answer; the connection keeps its path.
    pair.forge(lap.addr, &lap.message.emit(lap.transaction));
    pair.run_for(ms(1));
    assert_eq!(pair.sent_by(1, Attribute::Apr), 2);
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![]));
}

//= check I12 test
#[test]
fn a_peer_that_ignores_laps_as_linux_does_costs_bounded_retries_and_not_the_connection() {
    let mut pair = pair();
    let ids = established(&mut pair);
    pair.script = lose(0, Attribute::Lap, u32::MAX);
    load(&mut pair, ids[0], path(0, 2));
    let again = pair.nodes[0].load_alternate(pair.now, ids[0], path(0, 2), PrivateData::default());
    assert_eq!(again, Err(CmError::LapPending));
    pair.run_for(INTERVAL * 10);
    assert_eq!(pair.sent_by(0, Attribute::Lap), 4);
    assert_eq!(pair.events(0), [(ids[0], CmEvent::AlternateTimedOut)]);
    assert_eq!(states(&pair, ids), [Some(State::Established); 2]);
    // An answer to it is too late.
    let late = Apr { status: AprStatus::LOADED, ..Apr::default() };
    let addr = MadAddr { port: 1, src: gid(1, 1), dst: gid(0, 1), ..MadAddr::default() };
    pair.forge(addr, &Message::Apr(late).emit(0));
    pair.script = None;
    load(&mut pair, ids[0], path(0, 2));
    proposal(&mut pair);
    answer(&mut pair, ids[1], AprStatus::LOADED);
    assert_eq!(status(&mut pair), AprStatus::LOADED);
}

//= check I12 test
#[test]
fn patience_with_a_lap_is_granted() {
    let mut pair = pair();
    let ids = established(&mut pair);
    load(&mut pair, ids[0], path(0, 2));
    proposal(&mut pair);
    let patience = CmTimeout::from_code(19);
    pair.nodes[1].mra(ids[1], patience, PrivateData::default()).unwrap();
    pair.run_for(patience.duration());
    assert!(matches!(pair.events(0)[..], [(_, CmEvent::Patience(_))]));
    assert_eq!(pair.sent_by(0, Attribute::Lap), 1);
    answer(&mut pair, ids[1], AprStatus::LOADED);
    assert_eq!(status(&mut pair), AprStatus::LOADED);
}

//= check I13 test
#[test]
fn after_a_migration_messages_take_the_new_path_both_ways() {
    let mut pair = pair();
    let ids = established(&mut pair);
    load(&mut pair, ids[0], path(0, 2));
    proposal(&mut pair);
    answer(&mut pair, ids[1], AprStatus::LOADED);
    status(&mut pair);
    for node in [0, 1] {
        pair.nodes[node].path_migrated(ids[node]).unwrap();
        assert!(pair.nodes[node].path_migrated(ids[node]).is_err(), "once");
    }
    // The former path is not the current one any more.
    load(&mut pair, ids[0], path(0, 2));
    assert_eq!(status(&mut pair), AprStatus::IS_CURRENT);
    load(&mut pair, ids[0], path(0, 1));
    proposal(&mut pair);
    answer(&mut pair, ids[1], AprStatus::LOADED);
    assert_eq!(status(&mut pair), AprStatus::LOADED);
    pair.nodes[0].disconnect(pair.now, ids[0], &[]).unwrap();
    pair.run_for(ms(1));
    pair.nodes[1].disconnect(pair.now, ids[1], &[]).unwrap();
    pair.run_for(ms(1));
    for (node, kind) in [(0, Attribute::Dreq), (1, Attribute::Drep)] {
        let sent = pair.sent.as_ref().unwrap();
        let passing = sent.iter().find(|p| p.message.attribute() == kind).unwrap();
        let expected = (2, gid(node, 2), gid(1 - node, 2));
        assert_eq!((passing.addr.port, passing.addr.src, passing.addr.dst), expected);
    }
    assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
}

//= check I13 test
#[test]
fn a_side_that_has_not_migrated_yet_understands_one_that_has() {
    let mut pair = Pair::new(7, CmLimits::default());
    pair.nodes[1].listen(SERVICE, 8).unwrap();
    let params = ConnectParams { alternate: Some(path(0, 2)), ..terms() };
    let active = pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let (passive, asked) = request(&mut pair);
    assert_eq!(asked.req.alternate, path(0, 2).to_wire());
    assert_eq!(asked.req.alternate.local_lid, CmPath::ROCE_LID, "or Linux sees none");
    accept(&mut pair, passive);
    pair.run_for(ms(1));
    ready(&mut pair, active);
    pair.run_for(ms(1));
    pair.nodes[0].path_migrated(active).unwrap();
    pair.nodes[0].disconnect(pair.now, active, &[]).unwrap();
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[1].state(passive), Some(State::DreqRcvd));
    // The answer comes from the peer's own primary path, which is the former one on this side.
    pair.nodes[1].disconnect(pair.now, passive, &[]).unwrap();
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[0].state(active), Some(State::TimeWait));
}
