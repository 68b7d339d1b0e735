//! Agreement on selective repeat, between two of our ends and with other stacks.

use uroce_cm::{ConnectParams, TAG_LEN};
use uroce_cm_sim::gid;
use uroce_wire::cm::{Message, Rep, Req};

use super::*;

/// The end of a REQ that offers selective repeat, and that of a REP that accepts it.
const OFFER: [u8; TAG_LEN] = [0xf1, b'u', b'r', b'o', 0xce, 1, 1, 1];
const ANSWER: [u8; TAG_LEN] = [0xf1, b'u', b'r', b'o', 0xce, 1, 2, 1];

/// Private data of `len` bytes.
fn filled<const MAX: usize>(len: usize) -> PrivateData<MAX> {
    PrivateData::new(&vec![7; len]).unwrap()
}

/// The result of setting up a connection.
struct SetUp {
    ids: [ConnId; 2],
    /// The listener has seen an offer.
    is_offered: bool,
    /// Private data as the consumers see it.
    asked: PrivateData<92>,
    answered: PrivateData<196>,
}

/// Sets up a connection but for its RTU. Each side has private data of `lens` bytes, and tells
/// whether it wants selective repeat.
fn set_up(pair: &mut Pair, wants: [bool; 2], lens: [usize; 2]) -> SetUp {
    let private_data = filled(lens[0]);
    let params = ConnectParams { selective_repeat: wants[0], private_data, ..terms() };
    let active = pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1));
    let (passive, request) = request(pair);
    let params = AcceptParams {
        local_qpn: Qpn::new(QPNS[1]),
        selective_repeat: wants[1],
        private_data: filled(lens[1]),
        ..AcceptParams::default()
    };
    pair.nodes[1].accept(pair.now, passive, &params).unwrap();
    pair.run_for(ms(1));
    let answered = accepted(pair);
    SetUp {
        ids: [active, passive],
        is_offered: request.selective_repeat,
        asked: request.req.private_data,
        answered,
    }
}

/// Returns the private data of the REP that node 0 has received.
fn accepted(pair: &mut Pair) -> PrivateData<196> {
    match &pair.events(0)[..] {
        [(_, CmEvent::Accepted(rep))] => rep.private_data,
        other => panic!("{other:?}"),
    }
}

fn agreed(pair: &Pair, ids: [ConnId; 2]) -> [bool; 2] {
    [0, 1].map(|node| pair.nodes[node].selective_repeat(ids[node]))
}

/// The private data of all REQs and REPs as they were sent.
fn sent(pair: &Pair) -> (Vec<PrivateData<92>>, Vec<PrivateData<196>>) {
    let sent = pair.sent.as_deref().unwrap_or_default();
    let reqs = sent.iter().filter_map(|passing| match passing.message {
        Message::Req(req) => Some(req.private_data),
        _ => None,
    });
    let reps = sent.iter().filter_map(|passing| match passing.message {
        Message::Rep(rep) => Some(rep.private_data),
        _ => None,
    });
    (reqs.collect(), reps.collect())
}

/// Private data of `len` bytes, with a tag at the end.
fn tagged<const MAX: usize>(len: usize, tag: [u8; TAG_LEN]) -> PrivateData<MAX> {
    let mut data = filled::<MAX>(len);
    data.0[MAX - TAG_LEN..].copy_from_slice(&tag);
    data
}

#[test] //= check A28 test
fn both_sides_use_selective_repeat_if_both_want_it_and_both_leave_room() {
    for case in 0..16 {
        let wants = [case & 1 != 0, case & 2 != 0];
        let lens = [[84, 188], [85, 188], [84, 189], [92, 196]][case >> 2];
        let mut pair = pair();
        let made = set_up(&mut pair, wants, lens);
        let is_offered = wants[0] && lens[0] <= 84;
        let is_agreed = is_offered && wants[1] && lens[1] <= 188;
        assert_eq!(made.is_offered, is_offered, "{wants:?} {lens:?}");
        assert_eq!(agreed(&pair, made.ids), [is_agreed; 2], "{wants:?} {lens:?}");
        // The consumers see what they would see without the agreement.
        assert_eq!((made.asked, made.answered), (filled(lens[0]), filled(lens[1])));
        let req = if is_offered { tagged(lens[0], OFFER) } else { filled(lens[0]) };
        let rep = if is_agreed { tagged(lens[1], ANSWER) } else { filled(lens[1]) };
        assert_eq!(sent(&pair), (vec![req], vec![rep]));
    }
}

#[test] //= check A28 test
fn a_req_and_a_rep_that_are_repeated_carry_their_tags_again() {
    let mut pair = pair();
    let mut losses = [0; 2];
    pair.script = Some(Box::new(move |passing| {
        let count = match passing.message.attribute() {
            Attribute::Req => &mut losses[0],
            Attribute::Rep => &mut losses[1],
            _ => return Fate::Deliver,
        };
        *count += 1;
        if *count <= 2 { Fate::Lose } else { Fate::Double }
    }));
    let params = ConnectParams { selective_repeat: true, ..terms() };
    let active = pair.nodes[0].connect(pair.now, &params).unwrap();
    pair.run_for(ms(1000));
    let (passive, request) = request(&mut pair);
    assert!(request.selective_repeat);
    let qpn = Qpn::new(QPNS[1]);
    let params = AcceptParams { local_qpn: qpn, selective_repeat: true, ..AcceptParams::default() };
    pair.nodes[1].accept(pair.now, passive, &params).unwrap();
    pair.run_for(ms(1000));
    assert_eq!(accepted(&mut pair), PrivateData::default());
    assert_eq!(agreed(&pair, [active, passive]), [true; 2]);
    let (reqs, reps) = sent(&pair);
    assert!(reqs.len() >= 3 && reqs.iter().all(|data| *data == tagged(0, OFFER)), "{reqs:?}");
    assert!(reps.len() >= 3 && reps.iter().all(|data| *data == tagged(0, ANSWER)), "{reps:?}");
}

/// Delivers a REQ of another stack with this private data to node 1.
fn foreign_req(pair: &mut Pair, private_data: PrivateData<92>) -> (ConnId, Box<Request>) {
    let mut asker = crate::pair();
    asker.nodes[0].connect(asker.now, &ConnectParams { private_data, ..terms() }).unwrap();
    let (addr, mad) = asker.nodes[0].poll_transmit().unwrap();
    pair.forge(addr, &mad);
    pair.run_for(ms(1));
    request(pair)
}

#[test] //= check A28 test
fn nothing_is_answered_to_a_peer_that_offers_nothing() {
    let text = *b"trailing";
    let mut unknown = OFFER;
    unknown[5] = 2;
    for end in [[0; TAG_LEN], text, unknown, ANSWER] {
        let mut pair = pair();
        let (passive, request) = foreign_req(&mut pair, tagged(3, end));
        assert!(!request.selective_repeat);
        assert_eq!(request.req.private_data, tagged(3, end), "the peer's own bytes");
        let qpn = Qpn::new(QPNS[1]);
        let params =
            AcceptParams { local_qpn: qpn, selective_repeat: true, ..AcceptParams::default() };
        pair.nodes[1].accept(pair.now, passive, &params).unwrap();
        pair.flush();
        assert!(!pair.nodes[1].selective_repeat(passive));
        assert_eq!(sent(&pair).1, [PrivateData::default()]);
    }
}

#[test] //= check A28 test
fn an_answer_to_no_offer_is_private_data() {
    let ends = [(false, ANSWER), (true, OFFER), (true, [0; TAG_LEN]), (true, *b"trailing")];
    for (is_offered, end) in ends {
        let mut pair = pair();
        let params = ConnectParams { selective_repeat: is_offered, ..terms() };
        let active = pair.nodes[0].connect(pair.now, &params).unwrap();
        pair.flush();
        let Some(Message::Req(Req { local_comm_id, .. })) =
            pair.sent.as_ref().and_then(|sent| sent.last()).map(|passing| passing.message)
        else {
            panic!("no REQ")
        };
        let rep = Rep {
            local_comm_id: uroce_wire::cm::CommId(77),
            remote_comm_id: local_comm_id,
            local_qpn: Qpn::new(QPNS[1]),
            private_data: tagged(3, end),
            ..Rep::default()
        };
        let addr = uroce_cm::MadAddr {
            port: 1,
            src: gid(1, 1),
            dst: gid(0, 1),
            ..uroce_cm::MadAddr::default()
        };
        let mad = Message::Rep(rep).emit(1);
        pair.nodes[0].handle_mad(pair.now, &addr, &mad).unwrap();
        assert_eq!(accepted(&mut pair), tagged(3, end));
        assert!(!pair.nodes[0].selective_repeat(active));
    }
}

#[test] //= check A28 test
fn of_two_requests_that_cross_the_one_that_counts_makes_the_offer() {
    for wants in [[true, false], [false, true], [true, true]] {
        let mut pair = Pair::new(7, CmLimits::default());
        pair.sent = Some(Vec::new());
        let ids = [0, 1].map(|node| {
            let params = ConnectParams {
                peer_to_peer: true,
                selective_repeat: wants[node],
                ..conn_params(node, ServiceId(0x77), QPNS[node])
            };
            pair.nodes[node].connect(pair.now, &params).unwrap()
        });
        pair.run_for(ms(1));
        // Node 1 has the greater CA GUID and stays the active side.
        let events = pair.events(0);
        let [(id, CmEvent::Request(request))] = &events[..] else { panic!("{events:?}") };
        assert_eq!((*id, request.selective_repeat), (ids[0], wants[1]));
        let qpn = Qpn::new(QPNS[0]);
        let params =
            AcceptParams { local_qpn: qpn, selective_repeat: true, ..AcceptParams::default() };
        pair.nodes[0].accept(pair.now, ids[0], &params).unwrap();
        pair.run_for(ms(1));
        assert_eq!(agreed(&pair, ids), [wants[1]; 2]);
    }
}
