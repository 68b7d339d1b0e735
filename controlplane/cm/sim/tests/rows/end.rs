//! The end of a connection: DREQ and DREP, forged ones, TimeWait, giving up at any point.

use uroce_cm::{CloseReason, CmError, MadAddr, MadDrop};
use uroce_cm_sim::{conn_params, gid};
use uroce_wire::cm::{Drep, Dreq, Message, Rej, RejectReason};

use super::*;

const TIME_WAIT: Duration = Duration::from_nanos(4096 << 14);
const INTERVAL: Duration = Duration::from_nanos((4096 << 16) + (4096 << 14));

fn dreq_of(pair: &mut Pair, ids: [ConnId; 2]) -> Passing {
    pair.nodes[0].disconnect(pair.now, ids[0], b"bye").unwrap();
    pair.flush();
    *pair.sent.as_ref().unwrap().last().unwrap()
}

//= check J2 test
#[test]
fn a_copy_of_a_dreq_gets_a_drep_again_in_time_wait_too() {
    let mut pair = pair();
    pair.script = lose(1, Attribute::Drep, 1);
    let ids = established(&mut pair);
    pair.nodes[0].disconnect(pair.now, ids[0], b"bye").unwrap();
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(
        matches!(&events[..], [(_, CmEvent::DisconnectRequested(data))] if data.0.starts_with(b"bye"))
    );
    // The answer is late, so that the copy comes within TimeWait.
    pair.run_for(INTERVAL - ms(2));
    pair.nodes[1].disconnect(pair.now, ids[1], b"bye too").unwrap();
    pair.run_for(ms(2));
    assert_eq!((pair.sent_by(0, Attribute::Dreq), pair.sent_by(1, Attribute::Drep)), (2, 2));
    assert_eq!(pair.events(1), [(ids[1], CmEvent::Closed(CloseReason::Disconnected(None)))]);
    let events = pair.events(0);
    let [(_, CmEvent::Closed(CloseReason::Disconnected(Some(data))))] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(data.0.starts_with(b"bye too"));
}

//= check J2 test
#[test]
fn a_copy_of_a_dreq_gets_a_drep_when_the_connection_is_forgotten() {
    let mut pair = pair();
    pair.script = lose(1, Attribute::Drep, 1);
    let ids = established(&mut pair);
    pair.nodes[0].disconnect(pair.now, ids[0], &[]).unwrap();
    pair.run_for(ms(1));
    pair.nodes[1].disconnect(pair.now, ids[1], &[]).unwrap();
    pair.run_for(INTERVAL - ms(2));
    assert!(pair.nodes[1].is_empty(), "its TimeWait is over");
    pair.run_for(ms(2));
    let events = pair.events(0);
    let disconnected = CmEvent::Closed(CloseReason::Disconnected(Some(Default::default())));
    assert_eq!(events, [(ids[0], disconnected)]);
    let last = pair.sent.as_ref().unwrap().iter().rev();
    let [drep, dreq] = last.take(2).collect::<Vec<_>>()[..] else { panic!() };
    let (Message::Drep(answer), Message::Dreq(asked)) = (drep.message, dreq.message) else {
        panic!("{dreq:?} {drep:?}")
    };
    assert_eq!(answer.local_comm_id, asked.remote_comm_id);
    assert_eq!(answer.remote_comm_id, asked.local_comm_id);
    assert_eq!((drep.transaction, drep.addr.dst), (dreq.transaction, dreq.addr.src));
    assert_eq!(pair.nodes[1].counters().dropped(MadDrop::UnknownId), 1);
    assert!(pair.nodes[1].is_empty());
}

//= check J8 test
#[test]
fn a_dreq_with_a_wrong_id_qpn_or_source_ends_nothing() {
    let mut pair = pair();
    let ids = established(&mut pair);
    pair.script = lose(0, Attribute::Dreq, u32::MAX);
    let Passing { addr, message: Message::Dreq(dreq), .. } = dreq_of(&mut pair, ids) else {
        panic!("no DREQ")
    };
    let elsewhere = MadAddr { src: std::net::Ipv4Addr::new(10, 9, 9, 9).into(), ..addr };
    let other = |id: uroce_wire::cm::CommId| uroce_wire::cm::CommId(id.0 ^ 1);
    let (local, remote) = (dreq.local_comm_id, dreq.remote_comm_id);
    let forged = [
        (addr, Dreq { remote_qpn: Qpn::new(QPNS[1] + 1), ..dreq }, MadDrop::Forged),
        (addr, Dreq { local_comm_id: other(local), ..dreq }, MadDrop::Forged),
        (addr, Dreq { remote_comm_id: other(remote), ..dreq }, MadDrop::UnknownId),
        (elsewhere, dreq, MadDrop::Forged),
    ];
    for (addr, dreq, verdict) in forged {
        let mad = Message::Dreq(dreq).emit(5);
        let dropped = pair.nodes[1].counters().dropped(verdict);
        assert_eq!(pair.nodes[1].handle_mad(pair.now, &addr, &mad), Err(verdict), "{dreq:?}");
        assert_eq!(pair.nodes[1].counters().dropped(verdict), dropped + 1);
        let answers = std::iter::from_fn(|| pair.nodes[1].poll_transmit()).count();
        assert_eq!(answers, usize::from(verdict == MadDrop::UnknownId), "{dreq:?}");
    }
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::Established));
    assert_eq!(pair.events(1), []);
    // The genuine DREQ ends it.
    pair.nodes[1].handle_mad(pair.now, &addr, &Message::Dreq(dreq).emit(5)).unwrap();
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::DreqRcvd));
}

//= check J8 test
#[test]
fn a_forged_rej_or_drep_ends_nothing() {
    let mut pair = pair();
    let ids = established(&mut pair);
    let Passing { addr, message: Message::Rtu(rtu), .. } =
        *pair.sent.as_ref().unwrap().last().unwrap()
    else {
        panic!("no RTU")
    };
    let (local_comm_id, remote_comm_id) = (rtu.local_comm_id, rtu.remote_comm_id);
    let reason = RejectReason::STALE_CONNECTION;
    let rej = Rej { local_comm_id, remote_comm_id, reason, ..Rej::default() };
    let zero = uroce_wire::cm::CommId(0);
    let elsewhere = MadAddr { src: gid(1, 1), ..addr };
    let mut timeout = Rej { remote_comm_id: zero, reason: RejectReason::TIMEOUT, ..rej };
    timeout.ari[..8].copy_from_slice(&0x0200_0000_0000_0001_u64.to_be_bytes());
    timeout.ari_len = 8;
    let forged = [
        (elsewhere, Message::Rej(rej), MadDrop::Forged),
        (addr, Message::Rej(Rej { local_comm_id: zero, ..rej }), MadDrop::Forged),
        (addr, Message::Rej(Rej { remote_comm_id: zero, ..rej }), MadDrop::UnknownId),
        (addr, Message::Rej(timeout), MadDrop::Forged),
        (
            addr,
            Message::Drep(Drep { local_comm_id, remote_comm_id, ..Drep::default() }),
            MadDrop::Unexpected,
        ),
    ];
    for (addr, message, verdict) in forged {
        assert_eq!(pair.nodes[1].handle_mad(pair.now, &addr, &message.emit(1)), Err(verdict));
    }
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::Established));
    pair.nodes[1].handle_mad(pair.now, &addr, &Message::Rej(rej).emit(1)).unwrap();
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::TimeWait));
}

//= check J9 test
#[test]
fn a_qpn_rests_for_the_time_of_time_wait_on_both_sides() {
    let mut pair = pair();
    let ids = established(&mut pair);
    pair.nodes[0].disconnect(pair.now, ids[0], &[]).unwrap();
    pair.run_for(ms(1));
    pair.nodes[1].disconnect(pair.now, ids[1], &[]).unwrap();
    let begin = pair.now;
    pair.run_for(ms(1));
    assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
    let again = terms();
    let qpn = again.local_qpn;
    while pair.now < begin + TIME_WAIT {
        assert!(pair.nodes[1].holds_qpn(Qpn::new(QPNS[1])));
        assert_eq!(pair.nodes[0].connect(pair.now, &again), Err(CmError::QpnInUse(qpn)));
        pair.run_for((begin + TIME_WAIT).since(pair.now).min(ms(3)));
    }
    pair.run_for(ms(1));
    assert!(pair.nodes.iter().zip(QPNS).all(|(cm, qpn)| !cm.holds_qpn(Qpn::new(qpn))));
    for node in [0, 1] {
        assert_eq!(pair.events(node).last(), Some(&(ids[node], CmEvent::Released)));
    }
    established(&mut pair);
}

//= check J9 test
#[test]
fn late_messages_in_time_wait_change_nothing() {
    let mut pair = pair();
    let ids = established(&mut pair);
    let sent: Vec<Passing> = pair.sent.as_ref().unwrap().clone();
    pair.nodes[0].disconnect(pair.now, ids[0], &[]).unwrap();
    pair.run_for(ms(1));
    pair.nodes[1].disconnect(pair.now, ids[1], &[]).unwrap();
    pair.run_for(ms(1));
    for node in [0, 1] {
        pair.events(node);
    }
    for passing in &sent {
        pair.forge(passing.addr, &passing.message.emit(1));
        pair.run_for(ms(1));
    }
    assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
    assert_eq!((pair.events(0), pair.events(1)), (vec![], vec![]));
}

//= check J10 test
#[test]
fn crossing_dreqs_end_the_connection_once_on_each_side() {
    let mut pair = pair();
    let ids = established(&mut pair);
    for node in [0, 1] {
        pair.nodes[node].disconnect(pair.now, ids[node], &[]).unwrap();
    }
    pair.run_for(ms(1));
    assert_eq!(states(&pair, ids), [Some(State::TimeWait); 2]);
    pair.run_for(TIME_WAIT);
    for node in [0, 1] {
        let events = pair.events(node);
        let [(_, CmEvent::Closed(CloseReason::Disconnected(_))), (_, CmEvent::Released)] =
            &events[..]
        else {
            panic!("{events:?}")
        };
    }
    assert_quiet(&mut pair);
}

//= check J10 test
#[test]
fn an_unanswered_dreq_ends_the_connection_all_the_same() {
    let mut pair = pair();
    let ids = established(&mut pair);
    pair.script = lose(0, Attribute::Dreq, u32::MAX);
    pair.nodes[0].disconnect(pair.now, ids[0], &[]).unwrap();
    pair.run_for(INTERVAL * 5);
    assert_eq!(pair.sent_by(0, Attribute::Dreq), 4);
    let closed = (ids[0], CmEvent::Closed(CloseReason::DisconnectUnanswered));
    assert_eq!(pair.events(0), [closed, (ids[0], CmEvent::Released)]);
}

/// Acts on an event; the other side may have given up meanwhile.
fn comply(pair: &mut Pair, node: usize, id: ConnId, event: &CmEvent) {
    let (now, cm) = (pair.now, &mut pair.nodes[node]);
    let qpn = Qpn::new(QPNS[node]);
    let _ = match event {
        CmEvent::Request(_) => {
            cm.accept(now, id, &AcceptParams { local_qpn: qpn, ..AcceptParams::default() })
        }
        CmEvent::Accepted(_) => cm.ready(id, PrivateData::default()),
        CmEvent::Established(_) | CmEvent::DisconnectRequested(_) => cm.disconnect(now, id, &[]),
        _ => Ok(()),
    };
}

/// Gives up on either side after `steps` steps of a connection's life.
fn give_up_after(steps: u32, who: usize) {
    let mut pair = pair();
    let mut ids = [Some(connect(&mut pair)), None];
    for _ in 0..steps {
        pair.run_for(Duration::from_micros(20));
        for node in [0, 1] {
            for (id, event) in pair.events(node) {
                ids[node] = Some(id);
                comply(&mut pair, node, id, &event);
            }
        }
    }
    let Some(id) = ids[who] else { return };
    let is_there = pair.nodes[who].state(id).is_some();
    assert_eq!(pair.nodes[who].destroy(pair.now, id).is_ok(), is_there);
    let mut ends = 0;
    for _ in 0..400 {
        pair.run_for(ms(10));
        assert_eq!(pair.events(who), [], "after {steps} steps");
        for (id, event) in pair.events(1 - who) {
            ends += u32::from(event == CmEvent::Released);
            comply(&mut pair, 1 - who, id, &event);
        }
    }
    assert!(ends <= 1, "ended {ends} times");
    assert_quiet(&mut pair);
}

//= check J10 test
#[test]
fn giving_up_at_any_point_hangs_no_side_and_reports_nothing_twice() {
    for steps in 0..40 {
        for who in [0, 1] {
            give_up_after(steps, who);
        }
    }
}

//= check J10 test
#[test]
fn an_id_that_was_given_up_is_unknown_to_every_call() {
    let mut pair = pair();
    let ids = established(&mut pair);
    let (cm, now, id) = (&mut pair.nodes[0], pair.now, ids[0]);
    cm.destroy(now, id).unwrap();
    assert_eq!(cm.disconnect(now, id, &[]), Err(CmError::UnknownId));
    assert_eq!(cm.ready(id, PrivateData::default()), Err(CmError::UnknownId));
    assert_eq!(cm.destroy(now, id), Err(CmError::UnknownId));
    let path = conn_params(0, SERVICE, 1).primary;
    assert_eq!(cm.load_alternate(now, id, path, PrivateData::default()), Err(CmError::UnknownId));
    assert!(cm.holds_qpn(Qpn::new(QPNS[0])), "packets may still be under way");
}

#[test]
fn the_end_of_the_peers_process_ends_a_connection_in_every_step() {
    let rejected = |event: &CmEvent| match event {
        CmEvent::Closed(CloseReason::Rejected(rej)) => rej.reason == RejectReason::CONSUMER,
        _ => false,
    };
    type Step = fn(&mut Pair) -> [ConnId; 2];
    let asked: Step = |pair| {
        let active = connect(pair);
        pair.run_for(ms(1));
        [active, request(pair).0]
    };
    for (step, held) in
        [(asked, [false, false]), (answered, [true, true]), (established, [true; 2])]
    {
        for node in [0, 1] {
            let mut pair = pair();
            let ids = step(&mut pair);
            let sent = pair.sent.as_ref().unwrap().len();
            pair.nodes[node].peer_ended(pair.now, ids[node]);
            pair.nodes[node].peer_ended(pair.now, ids[node]);
            let events = pair.events(node);
            assert!(rejected(&events[0].1), "{events:?}");
            assert_eq!(pair.nodes[node].holds_qpn(Qpn::new(QPNS[node])), held[node]);
            assert_eq!(pair.sent.as_ref().unwrap().len(), sent, "nothing is said to the dead");
        }
    }
}
