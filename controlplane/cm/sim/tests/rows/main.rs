//! Tests of the check rows on connection management: two parties and a link with chosen faults.

mod agreement;
mod alternate;
mod end;
mod luck;
mod own;
mod private;
mod rd;
mod reject;
mod setup;
mod sidr;
mod strangers;

use std::time::Duration;

use uroce_cm::{AcceptParams, CmEvent, CmLimits, ConnId, ConnectParams, Request, State};
use uroce_cm_sim::{Fate, Pair, Passing, Script, conn_params};
use uroce_wire::cm::{Attribute, PrivateData, ServiceId};
use uroce_wire::{Psn, Qpn};

/// Service ID for which node 1 listens.
const SERVICE: ServiceId = ServiceId::tcp(7174);
/// Queue pairs of node 0 and node 1.
const QPNS: [u32; 2] = [0x11, 0x22];

/// Creates two nodes; node 1 listens.
fn pair() -> Pair {
    let mut pair = Pair::new(7, CmLimits::default());
    pair.sent = Some(Vec::new());
    pair.nodes[1].listen(SERVICE, 8).unwrap();
    pair
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn terms() -> ConnectParams {
    conn_params(0, SERVICE, QPNS[0])
}

/// Loses the first `count` messages of a kind from a node.
fn lose(node: usize, kind: Attribute, count: u32) -> Option<Script> {
    Some(Box::new(move |passing| {
        let is_meant = passing.from == node && passing.message.attribute() == kind;
        if is_meant && passing.count <= count { Fate::Lose } else { Fate::Deliver }
    }))
}

fn connect(pair: &mut Pair) -> ConnId {
    pair.nodes[0].connect(pair.now, &terms()).unwrap()
}

/// Returns the one request that waits at node 1.
fn request(pair: &mut Pair) -> (ConnId, Box<Request>) {
    let mut events = pair.events(1);
    match (events.pop(), events.pop()) {
        (Some((id, CmEvent::Request(request))), None) => (id, request),
        other => panic!("{other:?}"),
    }
}

fn accept(pair: &mut Pair, id: ConnId) {
    let qpn = Qpn::new(QPNS[1]);
    let params = AcceptParams {
        local_qpn: qpn,
        starting_psn: Psn::new(9),
        alternate_port: 2,
        private_data: PrivateData::new(b"welcome").unwrap(),
        ..AcceptParams::default()
    };
    pair.nodes[1].accept(pair.now, id, &params).unwrap();
}

fn ready(pair: &mut Pair, id: ConnId) {
    pair.nodes[0].ready(id, PrivateData::new(b"ready").unwrap()).unwrap();
}

/// Sets up a connection but for its RTU. Returns the ids of node 0 and node 1.
fn answered(pair: &mut Pair) -> [ConnId; 2] {
    let active = connect(pair);
    pair.run_for(ms(1));
    let (passive, _) = request(pair);
    accept(pair, passive);
    pair.run_for(ms(1));
    let events = pair.events(0);
    assert!(matches!(&events[..], [(id, CmEvent::Accepted(_))] if *id == active), "{events:?}");
    [active, passive]
}

/// Sets up a connection. Returns the ids of node 0 and node 1.
fn established(pair: &mut Pair) -> [ConnId; 2] {
    let ids = answered(pair);
    ready(pair, ids[0]);
    pair.run_for(ms(1));
    let events = pair.events(1);
    assert!(matches!(&events[..], [(id, CmEvent::Established(Some(_)))] if *id == ids[1]));
    assert_eq!(states(pair, ids), [Some(State::Established); 2]);
    ids
}

fn states(pair: &Pair, ids: [ConnId; 2]) -> [Option<State>; 2] {
    [0, 1].map(|node| pair.nodes[node].state(ids[node]))
}

/// Checks that no connection and no deadline is left.
fn assert_quiet(pair: &mut Pair) {
    for node in [0, 1] {
        assert!(pair.nodes[node].is_empty(), "node {node}: {}", pair.nodes[node].len());
        assert_eq!(pair.nodes[node].next_timeout(), None);
    }
}
