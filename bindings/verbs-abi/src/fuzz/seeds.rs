//! The inputs from which exploration starts, as sequences of the bytes that the walk reads.

use super::model::Kind;

/// Selects a live object by the next byte.
const LIVE: u8 = 5;
/// Selects a destroyed object, in calls that do not look handles up.
const GONE: u8 = 1;

/// Indices of queue pairs, in the order of [`make`].
const RC: u8 = 0;
const PEER: u8 = 1;
const UD: u8 = 2;
/// Those of [`extended`].
const TARGET: u8 = 4;
const INITIATOR: u8 = 6;

/// The seeds: they make objects, send, and use objects after they were destroyed.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let made = make();
    let busy: Vec<u8> = (0..32).flat_map(|what| [vec![what], vec![0x45; 9]].concat()).collect();
    let sent = [&made[..], &send_all()].concat();
    let unaddressed = [&made[..], &connect(), &destroy(Kind::Ah), &send(LIVE, UD, 2, GONE)];
    let gone = [Kind::Qp, Kind::Srq, Kind::Cq].map(destroy).concat();
    let late = [vec![16, GONE], vec![18, GONE], vec![23, GONE], send(GONE, 0, 2, GONE)];
    let late = late.map(|call| [&sent[..], &gone, &call].concat());
    let extended = [&made[..], &extended()].concat();
    let raw = [&made[..], &raw()].concat();
    let busy = [&made[..], &busy].concat();
    let first = [made.clone(), sent.clone(), busy, unaddressed.concat(), extended, raw];
    first.into_iter().chain(late).collect()
}

/// Makes one object of each kind, and four queue pairs: two RC, one UD, and one RC with a shared
/// receive queue.
fn make() -> Vec<u8> {
    let qp = |kind: u8, srq: &[u8]| {
        [&[10, LIVE, 0, LIVE, 0, LIVE, 0], srq, &[0, 0, 0, 0, 1, kind, 1]].concat()
    };
    let pd = [1, LIVE, 0];
    let mr = [3, LIVE, 0, 0, 0, 0xff, 0xff, 1, 0xf];
    let mw = [4, LIVE, 0, 1];
    let cq = [5, LIVE, 0, 1, 0, 0];
    let srq = [7, LIVE, 0, 0, 0];
    let channel = [8, LIVE, 0];
    let ah = [9, LIVE, 0, 0, 0, 0, 0, 0, 0, 0];
    let others = [&pd[..], &mr, &mw, &cq, &srq, &channel, &ah].concat();
    [others, qp(0, &[1]), qp(0, &[1]), qp(3, &[1]), qp(0, &[0, LIVE, 0])].concat()
}

/// Makes an XRC domain by a file and a second handle of it, a shared receive queue, a target,
/// another handle of the target, and an initiator; connects them and sends a message.
fn extended() -> Vec<u8> {
    let domain = [30, LIVE, 0, 0, 1, 0];
    let srq = [31, 0, LIVE, 0, LIVE, 0, LIVE, 0, LIVE, 0, 0, 0];
    let target = [31, 2, LIVE, 0, LIVE, 0, 0];
    let again = [31, 1, LIVE, 0, LIVE, 1, LIVE, TARGET, 1, 0];
    let initiator = [10, LIVE, 0, LIVE, 0, LIVE, 0, 1, 0, 0, 0, 0, 1, 5, 1];
    let connected = [12, LIVE, TARGET, LIVE, INITIATOR];
    let receive = [&[18, LIVE, 1][..], &ELEMENTS, &[0, 0]].concat();
    let wr = [&[19, LIVE, INITIATOR][..], &ELEMENTS, &[0, 0, 0, 2, 2, 0, 0, 0, 1, 0]].concat();
    let polls = [23, LIVE, 0, 0].repeat(4);
    let parts = [&domain[..], &domain, &srq, &target, &again, &initiator, &connected, &receive];
    [parts.concat(), wr, polls].concat()
}

/// Makes two raw packet queue pairs, brings them to RTS, makes a flow of one Ethernet specification
/// and a sniffer, and sends a frame.
fn raw() -> Vec<u8> {
    const OWN: u8 = 4;
    const OTHER: u8 = 5;
    let qp = [10, LIVE, 0, LIVE, 0, LIVE, 0, 1, 0, 0, 0, 0, 1, 4, 1];
    let started = [12, LIVE, OWN, LIVE, OTHER];
    let flow = [31, 4, LIVE, OWN, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1];
    let sniffer = [31, 4, LIVE, OTHER, 0, 3, 0, 0, 0, 0, 1];
    let receive = [&[16, LIVE, OWN][..], &ELEMENTS, &[0, 0]].concat();
    let polls = [23, LIVE, 0, 0].repeat(4);
    let parts = [&qp[..], &qp, &started, &flow, &sniffer, &receive];
    [parts.concat(), send(LIVE, OTHER, 2, LIVE), polls].concat()
}

/// Connects the two RC queue pairs to each other, and the UD queue pair to itself.
fn connect() -> Vec<u8> {
    vec![12, LIVE, RC, LIVE, PEER, 12, LIVE, UD, LIVE, UD]
}

/// Scatter/gather elements of eight bytes at the start of the memory.
const ELEMENTS: [u8; 16] = [0; 16];

/// Posts a signaled send of one element, for UD with an address handle.
fn send(which: u8, qp: u8, opcode: u8, ah: u8) -> Vec<u8> {
    let datagram: &[u8] = if qp == UD { &[ah, 0, 0, 0, 0, 1] } else { &[] };
    [&[19, which, qp][..], &ELEMENTS, &[0, 0, 0, opcode, 2, 0, 0, 0, 1], datagram].concat()
}

/// Posts receives and a send of each opcode, and polls for all completions.
fn send_all() -> Vec<u8> {
    let receive = [&[16, LIVE, PEER][..], &ELEMENTS, &[0, 0]].concat();
    let shared = [&[18, LIVE, 0][..], &ELEMENTS, &[0, 0]].concat();
    let sends: Vec<u8> = (0..7).flat_map(|opcode| send(LIVE, RC, opcode, LIVE)).collect();
    let datagram = send(LIVE, UD, 2, LIVE);
    let polls = [23, LIVE, 0, 0].repeat(8);
    [connect(), receive.repeat(4), shared, sends, datagram, polls].concat()
}

/// Destroys all objects of a kind that [`make`] has made, always the first one left.
fn destroy(kind: Kind) -> Vec<u8> {
    [29, kind as u8, LIVE, 0].repeat(4)
}
