//! Private data through the manager: at its limit it arrives whole, beyond it is refused.

use uroce_cm::{CloseReason, CmError, ConnectParams};
use uroce_cm_sim::path;
use uroce_wire::cm::{AprStatus, CmTimeout, TooLong};

use super::*;

fn full<const MAX: usize>(seed: u8) -> PrivateData<MAX> {
    PrivateData(std::array::from_fn(|i| (i as u8).wrapping_mul(31) ^ seed))
}

//= check J6 test
#[test]
fn full_private_data_arrives_whole_in_every_message_of_a_connection() {
    let mut pair = pair();
    let params = ConnectParams { private_data: full(1), ..terms() };
    let active = pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let (passive, asked) = request(&mut pair);
    assert_eq!(asked.req.private_data, full(1));
    pair.nodes[1].mra(passive, CmTimeout::from_code(18), full(2)).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(matches!(&events[..], [(_, CmEvent::Patience(mra))] if mra.private_data == full(2)));
    let qpn = Qpn::new(QPNS[1]);
    let params = AcceptParams { local_qpn: qpn, private_data: full(3), ..AcceptParams::default() };
    pair.nodes[1].accept(pair.now, passive, &params).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(matches!(&events[..], [(_, CmEvent::Accepted(rep))] if rep.private_data == full(3)));
    pair.nodes[0].ready(active, full(4)).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(matches!(&events[..], [(_, CmEvent::Established(Some(data)))] if **data == full(4)));
    pair.nodes[0].load_alternate(pair.now, active, path(0, 2), full(5)).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(
        matches!(&events[..], [(_, CmEvent::LoadAlternate(lap))] if lap.private_data == full(5))
    );
    let loaded = AprStatus::LOADED;
    pair.nodes[1].answer_alternate(passive, loaded, 2, full(6)).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(
        matches!(&events[..], [(_, CmEvent::AlternateAnswered(apr))] if apr.private_data == full(6))
    );
    pair.nodes[0].disconnect(pair.now, active, &full::<220>(7).0).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(matches!(&events[..], [(_, CmEvent::DisconnectRequested(data))] if **data == full(7)));
    pair.nodes[1].disconnect(pair.now, passive, &full::<224>(8).0).unwrap();
    pair.run_for(ms(1));
    let events = pair.events(0);
    let [(_, CmEvent::Closed(CloseReason::Disconnected(Some(data))))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(**data, full(8));
}

//= check J6 test
#[test]
fn one_byte_more_than_a_dreq_or_drep_has_room_for_is_refused_and_changes_nothing() {
    let mut pair = pair();
    let ids = established(&mut pair);
    let bytes = [1; 225];
    let too_long = |len, max| Err(CmError::PrivateData(TooLong { len, max }));
    assert_eq!(pair.nodes[0].disconnect(pair.now, ids[0], &bytes[..221]), too_long(221, 220));
    assert_eq!(pair.nodes[0].state(ids[0]), Some(State::Established));
    pair.nodes[0].disconnect(pair.now, ids[0], &bytes[..220]).unwrap();
    pair.run_for(ms(1));
    assert_eq!(pair.nodes[1].disconnect(pair.now, ids[1], &bytes), too_long(225, 224));
    assert_eq!(pair.nodes[1].state(ids[1]), Some(State::DreqRcvd));
    pair.nodes[1].disconnect(pair.now, ids[1], &bytes[..224]).unwrap();
}
