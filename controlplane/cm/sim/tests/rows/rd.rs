//! Reliable datagrams: channels between EE contexts, and RD queue pairs for a channel that exists.

mod channel;
mod exists;
mod path;
mod stale;

use uroce_cm::{CmError, MadAddr, MadDrop, RdEnd};
use uroce_wire::Qkey;
use uroce_wire::cm::{Message, RejectReason, Rep, Req, TransportService};

use super::*;

/// EE contexts of node 0 and node 1, and the Q_Keys of the queue pairs that they name.
const ENDS: [RdEnd; 2] = [
    RdEnd { eecn: Qpn::new(0x101), qkey: Qkey(0x1111) },
    RdEnd { eecn: Qpn::new(0x202), qkey: Qkey(0x2222) },
];

/// Returns the terms of a channel from node 0, which names a queue pair.
fn channel_terms() -> ConnectParams {
    ConnectParams { transport_service: TransportService::Rd, rd: Some(ENDS[0]), ..terms() }
}

/// Returns the terms of a REQ for the channel between [`ENDS`], which exists.
fn use_terms(qpn: u32, qkey: u32) -> ConnectParams {
    let rd = Some(RdEnd { qkey: Qkey(qkey), ..ENDS[0] });
    ConnectParams { local_qpn: Qpn::new(qpn), rd, rdc_exists: true, ..channel_terms() }
}

fn answer_of(end: RdEnd, qpn: u32) -> AcceptParams {
    let (local_qpn, rd) = (Qpn::new(qpn), Some(end));
    AcceptParams { local_qpn, rd, alternate_port: 2, ..AcceptParams::default() }
}

/// Sends a REQ from node 0. Returns its id, and that of the request at node 1.
fn asked(pair: &mut Pair, params: &ConnectParams) -> [ConnId; 2] {
    let active = pair.nodes[0].connect(pair.now, params).unwrap();
    pair.run_for(ms(1));
    let (passive, request) = request(pair);
    assert_eq!(request.req.rdc_exists, params.rdc_exists);
    [active, passive]
}

/// Makes node 1 send a REP. Returns it as node 0 sees it.
fn answer(pair: &mut Pair, ids: [ConnId; 2], params: &AcceptParams) -> Box<Rep> {
    pair.nodes[1].accept(pair.now, ids[1], params).unwrap();
    pair.run_for(ms(1));
    match pair.events(0).remove(0) {
        (id, CmEvent::Accepted(rep)) if id == ids[0] => rep,
        other => panic!("{other:?}"),
    }
}

/// Sets up a connection by the given REQ and REP. Returns the ids of node 0 and node 1.
fn connected(pair: &mut Pair, params: &ConnectParams, rep: &AcceptParams) -> [ConnId; 2] {
    let ids = asked(pair, params);
    answer(pair, ids, rep);
    ready(pair, ids[0]);
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(matches!(&events[..], [(id, CmEvent::Established(_))] if *id == ids[1]), "{events:?}");
    assert_eq!(states(pair, ids), [Some(State::Established); 2]);
    ids
}

/// Connects the EE contexts of [`ENDS`].
fn channel(pair: &mut Pair) -> [ConnId; 2] {
    connected(pair, &channel_terms(), &answer_of(ENDS[1], QPNS[1]))
}

/// Returns the first REQ that node 0 has sent, and its address.
fn first_req(pair: &Pair) -> (MadAddr, Req) {
    match pair.sent.as_ref().unwrap()[0] {
        Passing { addr, message: Message::Req(req), .. } => (addr, req),
        other => panic!("{other:?}"),
    }
}

/// Gives a REQ to node 1, which refuses it. Returns the reason.
fn refused(pair: &mut Pair, addr: &MadAddr, req: Req) -> RejectReason {
    let cm = &mut pair.nodes[1];
    let taken = cm.handle_mad(pair.now, addr, &Message::Req(req).emit(77));
    assert_eq!(taken, Err(MadDrop::Refused), "{req:?}");
    let (_, message) = Message::parse(&cm.poll_transmit().unwrap().1).unwrap();
    let Message::Rej(rej) = message else { panic!("{message:?}") };
    assert_eq!(rej.remote_comm_id, req.local_comm_id);
    rej.reason
}
