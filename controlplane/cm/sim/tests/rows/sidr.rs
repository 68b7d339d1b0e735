//! Service ID resolution: every status, losses, copies, limits.

use uroce_cm::{CloseReason, SidrAnswer, SidrParams};
use uroce_cm_sim::path;
use uroce_wire::cm::{CmTimeout, Message, SidrRep, SidrStatus};
use uroce_wire::{Pkey, Qkey};

use super::*;

fn question(service_id: ServiceId) -> SidrParams {
    SidrParams {
        service_id,
        path: path(0, 1),
        pkey: Pkey::DEFAULT,
        timeout: CmTimeout::from_code(14),
        max_cm_retries: 3,
        private_data: PrivateData([0x5a; 216]),
    }
}

fn ask(pair: &mut Pair, service_id: ServiceId) -> ConnId {
    let id = pair.nodes[0].sidr_request(pair.now, &question(service_id)).unwrap();
    pair.run_for(ms(1));
    id
}

fn asked(pair: &mut Pair) -> ConnId {
    let events = pair.events(1);
    let [(id, CmEvent::SidrRequest(request))] = &events[..] else { panic!("{events:?}") };
    assert_eq!(request.req.private_data, PrivateData([0x5a; 216]));
    *id
}

/// Returns the answer, which ends the request.
fn reply(pair: &mut Pair, id: ConnId) -> SidrRep {
    let events = pair.events(0);
    let [(of, CmEvent::SidrReply(rep)), (_, CmEvent::Released)] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*of, id);
    **rep
}

//= check J12 test
#[test]
fn the_consumers_answer_arrives_with_its_status_queue_pair_q_key_and_data() {
    for code in 0..=5 {
        let mut pair = pair();
        let id = ask(&mut pair, SERVICE);
        let passive = asked(&mut pair);
        let answer = SidrAnswer {
            status: SidrStatus(code),
            qpn: Qpn::new(0x33),
            qkey: Qkey(0x0123_4567),
            private_data: PrivateData([0xa5; 136]),
        };
        pair.nodes[1].sidr_reply(pair.now, passive, &answer).unwrap();
        assert!(pair.nodes[1].sidr_reply(pair.now, passive, &answer).is_err(), "once");
        pair.run_for(ms(1));
        let rep = reply(&mut pair, id);
        assert_eq!((rep.status.0, rep.qpn, rep.qkey), (code, answer.qpn, answer.qkey));
        assert_eq!((rep.private_data, rep.service_id), (answer.private_data, SERVICE));
        pair.run_for(ms(2000));
        assert_eq!(pair.events(1), [(passive, CmEvent::Released)]);
        assert_quiet(&mut pair);
    }
}

//= check J12 test
#[test]
fn without_a_listener_it_is_unsupported_and_with_a_full_one_there_is_no_queue_pair() {
    let mut pair = Pair::new(1, CmLimits::default());
    let id = ask(&mut pair, SERVICE);
    assert_eq!(reply(&mut pair, id).status, SidrStatus::UNSUPPORTED);
    pair.nodes[1].listen(SERVICE, 1).unwrap();
    ask(&mut pair, SERVICE);
    let waiting = asked(&mut pair);
    let id = ask(&mut pair, SERVICE);
    assert_eq!(reply(&mut pair, id).status, SidrStatus::NO_QP);
    // Destroying the id of a request refuses it.
    pair.nodes[1].destroy(pair.now, waiting).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(
        matches!(&events[0], (_, CmEvent::SidrReply(rep)) if rep.status == SidrStatus::REJECTED)
    );
}

//= check J12 test
#[test]
fn a_question_is_repeated_and_its_copies_get_one_answer() {
    let mut pair = pair();
    pair.script = lose(1, Attribute::SidrRep, 2);
    let id = ask(&mut pair, SERVICE);
    let passive = asked(&mut pair);
    pair.nodes[1].sidr_reply(pair.now, passive, &SidrAnswer::default()).unwrap();
    pair.run_for(ms(200));
    assert_eq!(reply(&mut pair, id).status, SidrStatus::VALID);
    assert_eq!((pair.sent_by(0, Attribute::SidrReq), pair.sent_by(1, Attribute::SidrRep)), (3, 3));
    assert_eq!(pair.events(1), [], "the consumer was asked once");
}

//= check J12 test
#[test]
fn a_question_without_answer_ends() {
    let mut pair = pair();
    pair.script = lose(0, Attribute::SidrReq, u32::MAX);
    let id = ask(&mut pair, SERVICE);
    pair.run_for(ms(1000));
    assert_eq!(pair.sent_by(0, Attribute::SidrReq), 4);
    let closed = (id, CmEvent::Closed(CloseReason::Unreachable));
    assert_eq!(pair.events(0), [closed, (id, CmEvent::Released)]);
    assert_quiet(&mut pair);
}

//= check J12 test
#[test]
fn an_answer_from_elsewhere_or_to_no_question_is_left_aside() {
    let mut pair = pair();
    let id = ask(&mut pair, SERVICE);
    let Message::SidrReq(req) = pair.sent.as_ref().unwrap()[0].message else { panic!() };
    let rep = SidrRep { request_id: req.request_id, ..SidrRep::default() };
    let addr = path(1, 1).mad_addr();
    let elsewhere = path(1, 2).mad_addr();
    let now = pair.now;
    let wrong = SidrRep { request_id: uroce_wire::cm::CommId(req.request_id.0 ^ 1), ..rep };
    let cm = &mut pair.nodes[0];
    assert!(cm.handle_mad(now, &elsewhere, &Message::SidrRep(rep).emit(1)).is_err());
    assert!(cm.handle_mad(now, &addr, &Message::SidrRep(wrong).emit(1)).is_err());
    assert_eq!(cm.state(id), Some(State::SidrReqSent));
    cm.handle_mad(now, &addr, &Message::SidrRep(rep).emit(1)).unwrap();
    assert_eq!(cm.state(id), None);
}
