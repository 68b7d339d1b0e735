//! Z5: the connection manager, given messages of any bytes from its peer and from other senders.

use std::collections::BTreeMap;
use std::time::Duration;
use uroce_cm::{
    AcceptParams, Cm, CmEvent, CmLimits, ConnId, ConnectParams, Instant, MadAddr, RdEnd,
    SidrAnswer, State, TAG_LEN,
};
use uroce_cm_sim::{Pair, conn_params, gid, path};
use uroce_fuzz::Input;
use uroce_wire::cm::{
    AprStatus, Attribute, BODY_LEN, CmTimeout, CommId, MGMT_CLASS, Message, PrivateData,
    RejectReason, ServiceId, TransportService,
};
use uroce_wire::mad::{MAD_LEN, Mad, MadHeader};
use uroce_wire::{Gid, Qkey, Qpn};

pub(super) const SERVICE: ServiceId = ServiceId::tcp(1);
const NODE: usize = 1;

/// Limits with small tables, so that they fill up.
pub(crate) fn limits() -> CmLimits {
    CmLimits {
        connections: 12,
        half_open: 5,
        queue: 24,
        response_timeout: CmTimeout::from_code(16),
        service_timeout: CmTimeout::from_code(17),
        time_wait: Duration::from_millis(100),
        sidr_memory: Duration::from_millis(20),
    }
}

/// Events reported for every id: each id ends once.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// Ids that have not ended, and whether they are closed.
    pub(super) alive: BTreeMap<ConnId, bool>,
    /// EE contexts that requests for reliable datagrams name, 0 if the consumer is to choose it.
    named: BTreeMap<ConnId, Qpn>,
    gone: Vec<ConnId>,
}

impl Ends {
    /// Checks all events that are pending.
    pub(crate) fn listen(&mut self, cm: &mut Cm, input: &mut Input<'_>) {
        while let Some((id, event)) = cm.poll_event() {
            assert!(!self.gone.contains(&id), "{event:?} of {id:?}, which was over");
            match event {
                CmEvent::Request(_) | CmEvent::SidrRequest(_) => {
                    self.alive.entry(id).or_default();
                    if let CmEvent::Request(request) = &event
                        && request.req.is_rd()
                    {
                        let exists = request.req.rdc_exists;
                        let eecn = if exists { request.req.remote_eecn } else { 0 };
                        assert!(!exists || cm.holds_qpn(Qpn::new(eecn)), "a channel of no one");
                        self.named.insert(id, Qpn::new(eecn));
                    }
                    if let CmEvent::Request(request) = &event
                        && request.selective_repeat
                    {
                        let end = request.req.private_data.0.last_chunk();
                        assert_eq!(end, Some(&[0; TAG_LEN]), "an offer that is not removed");
                    }
                }
                CmEvent::Closed(_) => {
                    let was_closed = self.alive.insert(id, true);
                    assert_eq!(was_closed, Some(false), "{id:?} closed twice");
                }
                CmEvent::Released => self.forget(id),
                _ => assert_eq!(self.alive.get(&id), Some(&false), "{event:?} of {id:?}"),
            }
            input.reach(1, kind_of(&event));
        }
    }

    pub(crate) fn forget(&mut self, id: ConnId) {
        assert!(self.alive.remove(&id).is_some(), "{id:?} was never there");
        self.named.remove(&id);
        self.gone.push(id);
    }

    /// Returns the end to answer a request with: mostly what fits, sometimes none or another one.
    fn end(&self, id: ConnId, number: u8) -> Option<RdEnd> {
        let chosen = Qpn::new(u32::from(number & 15));
        let named = self.named.get(&id).copied();
        let eecn = match number >> 6 {
            0 => None,
            1 => Some(chosen),
            _ => named.map(|eecn| if eecn.value() == 0 { chosen } else { eecn }),
        };
        eecn.map(|eecn| RdEnd { eecn, qkey: Qkey(1) })
    }

    pub(crate) fn pick(&self, input: &mut Input<'_>) -> Option<ConnId> {
        let at = input.below(self.alive.len().max(1));
        self.alive.keys().nth(at).copied()
    }
}

fn kind_of(event: &CmEvent) -> u32 {
    match event {
        CmEvent::Request(_) => 0,
        CmEvent::Patience(_) => 1,
        CmEvent::Accepted(_) => 2,
        CmEvent::Established(_) => 3,
        CmEvent::DisconnectRequested(_) => 4,
        CmEvent::LoadAlternate(_) => 5,
        CmEvent::AlternateAnswered(_) => 6,
        CmEvent::AlternateTimedOut => 7,
        CmEvent::SidrRequest(_) => 8,
        CmEvent::SidrReply(_) => 9,
        CmEvent::Closed(_) => 10,
        CmEvent::Released => 11,
    }
}

/// Makes a random call of a consumer, for a random id.
pub(crate) fn call(cm: &mut Cm, node: usize, now: Instant, ends: &mut Ends, input: &mut Input<'_>) {
    let Some(id) = ends.pick(input) else { return };
    let before = cm.state(id);
    let number = input.u8();
    let qpn = Qpn::new(u32::from(number & 15));
    let code = CmTimeout::from_code(input.u8());
    let called = match input.below(12) {
        0 | 1 => {
            let selective_repeat = code.code() & 1 != 0;
            let rd = ends.end(id, number);
            let params =
                AcceptParams { local_qpn: qpn, rd, selective_repeat, ..AcceptParams::default() };
            cm.accept(now, id, &params)
        }
        2 | 3 => cm.ready(id, PrivateData::default()),
        4 => cm.reject(now, id, RejectReason::CONSUMER, b"?", PrivateData::default()),
        5 => cm.mra(id, code, PrivateData::default()),
        6 => cm.disconnect(now, id, &[1; 221][..usize::from(input.u8()).min(221)]),
        7 => cm.load_alternate(now, id, path(node, 1 + (code.code() & 1)), PrivateData::default()),
        8 => {
            let status = AprStatus(input.u8());
            cm.answer_alternate(id, status, 1, PrivateData::default())
        }
        9 => cm.communication_established(id),
        10 => cm.path_migrated(id).or_else(|_| cm.sidr_reply(now, id, &SidrAnswer::default())),
        _ => {
            ends.listen(cm, input);
            let destroyed = cm.destroy(now, id);
            assert_eq!(destroyed.is_ok(), ends.alive.contains_key(&id), "{before:?}");
            if destroyed.is_ok() {
                ends.forget(id);
            }
            destroyed
        }
    };
    input.reach(2, u32::from(called.is_ok()) << 8 | before.map_or(99, |state| state as u32));
    if called.is_err() {
        assert_eq!(cm.state(id), before, "a refused call changed something");
    }
}

/// EE contexts of both sides of the established channel.
const EECNS: [u32; 2] = [0x4_0d0d, 0x5_0d0d];

/// Communication IDs of an established connection: the other side's, and ours.
type Ids = (CommId, CommId);

/// An established connection of queue pairs, a reliable datagram channel, and a use of the channel.
struct Target {
    pair: Pair,
    established: [ConnId; 3],
    ids: [Ids; 3],
}

fn target() -> Target {
    let mut pair = Pair::new(9, limits());
    pair.sent = Some(Vec::new());
    pair.nodes[NODE].listen(SERVICE, 4).expect("a new one");
    let ends = EECNS.map(|eecn| RdEnd { eecn: Qpn::new(eecn), qkey: Qkey(eecn) });
    let made = [0, 1, 2].map(|n| {
        let [ours, theirs] = ends.map(|end| (n > 0).then_some(end));
        let mut params =
            ConnectParams { rd: ours, rdc_exists: n == 2, ..conn_params(0, SERVICE, 0x40) };
        if n > 0 {
            params.transport_service = TransportService::Rd;
        }
        let local_qpn = Qpn::new(0x50);
        establish(&mut pair, &params, &AcceptParams { local_qpn, rd: theirs, ..Default::default() })
    });
    pair.sent = None;
    Target { pair, established: made.map(|(id, _)| id), ids: made.map(|(_, ids)| ids) }
}

/// Sets up a connection. Returns its id at the tested side, and the ids in messages to that side.
fn establish(pair: &mut Pair, params: &ConnectParams, answer: &AcceptParams) -> (ConnId, Ids) {
    let step = Duration::from_millis(1);
    let active = pair.nodes[0].connect(pair.now, params).expect("terms");
    pair.run_for(step);
    let (id, _) = pair.nodes[NODE].poll_event().expect("a request");
    pair.nodes[NODE].accept(pair.now, id, answer).expect("waits for it");
    pair.run_for(step);
    pair.nodes[0].ready(active, PrivateData::default()).expect("accepted");
    pair.run_for(step);
    assert_eq!(pair.nodes[NODE].state(id), Some(State::Established));
    while pair.nodes[NODE].poll_event().is_some() {}
    let last = pair.sent.as_ref().and_then(|sent| sent.last()).expect("an RTU");
    let Message::Rtu(rtu) = last.message else { panic!("{last:?}") };
    (id, (rtu.local_comm_id, rtu.remote_comm_id))
}

/// A random MAD: mostly any body after a valid header, often with the connection's ids.
fn mad(input: &mut Input<'_>, src: Gid, ids: Ids) -> Mad {
    let shape = input.u8();
    let mut mad = [0; MAD_LEN];
    let attribute = input.pick(&Attribute::ALL);
    let header = MadHeader {
        base_version: MadHeader::BASE_VERSION,
        mgmt_class: MGMT_CLASS,
        class_version: if shape & 0x70 == 0x70 { input.u8() } else { 2 },
        method: MadHeader::SEND,
        transaction_id: u64::from(input.u8()),
        attribute_id: attribute as u16,
        ..MadHeader::default()
    };
    let mut head = [0; MadHeader::LEN];
    header.emit(&mut head);
    mad[..MadHeader::LEN].copy_from_slice(&head);
    let body = &mut mad[MadHeader::LEN..];
    // Few bytes choose the fields that matter; they are repeated for the rest.
    let seed: [u8; 12] = input.array();
    (0..BODY_LEN).for_each(|i| body[i] = seed[i % seed.len()]);
    if attribute == Attribute::Req || attribute == Attribute::SidrReq {
        body[8..16].copy_from_slice(&SERVICE.0.to_be_bytes());
        body[50] = 0x30; // A valid path MTU.
        if shape & 0x80 != 0 {
            // An offer of selective repeat, or of features that do not exist.
            body[224..].copy_from_slice(&[0xf1, b'u', b'r', b'o', 0xce, 1, 1, seed[11]]);
        }
    }
    if shape & 1 != 0 {
        body[..4].copy_from_slice(&ids.0.0.to_be_bytes());
    }
    if shape & 2 != 0 {
        body[4..8].copy_from_slice(&ids.1.0.to_be_bytes());
    }
    if shape & 4 != 0 {
        // The GIDs of a REQ's path, or other bytes of another message.
        body[56..72].copy_from_slice(&src.0);
        body[72..88].copy_from_slice(&gid(NODE, 1).0);
        body[43] &= 0xf9;
        if shape & 0x10 != 0 {
            // Of reliable datagrams, mostly of the channel that exists.
            body[43] |= 4;
            body[16..24].copy_from_slice(&0x0200_0000_0000_0001_u64.to_be_bytes());
            body[36..39].copy_from_slice(&EECNS[0].to_be_bytes()[1..]);
            body[40..43].copy_from_slice(&EECNS[1].to_be_bytes()[1..]);
            body[36] ^= seed[0] & 1;
            body[50] |= shape >> 2 & 8;
        }
    }
    let strange = usize::from(input.u8());
    if shape & 8 != 0 && strange < MAD_LEN {
        mad[strange] = input.u8();
    }
    mad
}

/// Sequences of messages, calls and times, most of which the manager accepts.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut row = || {
        let mut bytes = Vec::new();
        for _ in 0..rng.usize(2..24) {
            match rng.u8(..4) {
                0 | 1 => {
                    let attribute = if rng.bool() { 0 } else { rng.u8(..11) };
                    let shape = rng.u8(..8) | 4 | rng.u8(..4) << 4;
                    bytes.extend([1, rng.u8(..), rng.u8(..), shape, attribute, rng.u8(..4)]);
                    bytes.extend((0..12).map(|_| rng.u8(..)));
                    bytes.push(0xff);
                }
                2 => bytes.extend([5, rng.u8(..8), rng.u8(..), rng.u8(..32), rng.u8(..12)]),
                3 if rng.bool() => bytes.extend([7, rng.u8(..), rng.u8(..)]),
                _ => bytes.extend([8, rng.u8(..), rng.u8(..)]),
            }
        }
        bytes
    };
    (0..96).map(|_| row()).collect()
}

pub(crate) fn run(input: &mut Input<'_>) {
    let Target { mut pair, established, ids } = target();
    let mut ends = Ends::default();
    ends.alive.extend(established.map(|id| (id, false)));
    let (mut only_strangers, mut asked) = (true, CommId::default());
    while !input.is_empty() {
        let (now, cm) = (pair.now, &mut pair.nodes[NODE]);
        match input.below(9) {
            0 => {
                let bytes = input.array::<40>();
                let len = usize::from(input.u8());
                let _ = cm.handle_mad(now, &MadAddr::default(), &bytes[..len.min(40)]);
            }
            1..=4 => {
                let is_peer = input.u8() & 1 != 0;
                only_strangers &= !is_peer;
                let src = gid(1 - NODE, if is_peer { 1 } else { 2 });
                let addr = MadAddr { port: 1, src, dst: gid(NODE, 1), ..MadAddr::default() };
                let which = input.u8();
                let ids = ids[usize::from(which >> 1) % ids.len()];
                let ids = if which & 1 != 0 { ids } else { (ids.0, asked) };
                let mad = mad(input, src, ids);
                let verdict = cm.handle_mad(now, &addr, &mad);
                input.reach(3, verdict.map_or_else(|drop| 1 + drop as u32, |()| 0));
            }
            5 | 6 => {
                let states = |cm: &Cm| established.map(|id| cm.state(id));
                let was = states(cm);
                call(cm, NODE, now, &mut ends, input);
                only_strangers &=
                    was == states(cm) && established.iter().all(|id| ends.alive.contains_key(id));
            }
            7 => crate::link::begin(&mut pair, NODE, &mut ends, input),
            _ => {
                pair.now = now + Duration::from_micros(u64::from(input.u16()) << 4);
                cm.handle_timeout(pair.now);
            }
        }
        asked = check(&mut pair, &mut ends, input).unwrap_or(asked);
        if only_strangers {
            let states = established.map(|id| pair.nodes[NODE].state(id));
            assert_eq!(states, [Some(State::Established); 3], "ended by a stranger");
        }
    }
}

/// Checks the properties that hold after every step. Returns the id of the last request sent.
fn check(pair: &mut Pair, ends: &mut Ends, input: &mut Input<'_>) -> Option<CommId> {
    let mut asked = None;
    let (now, cm) = (pair.now, &mut pair.nodes[NODE]);
    ends.listen(cm, input);
    while let Some((_, mad)) = cm.poll_transmit() {
        let (_, message) = Message::parse(&mad).expect("what we send can be read");
        input.reach(4, message.attribute() as u32);
        if message.remote_comm_id().is_none() {
            asked = message.local_comm_id();
        }
    }
    let limits = limits();
    assert!(cm.len() <= limits.connections && cm.half_open() <= limits.half_open);
    assert!(ends.alive.len() <= cm.len(), "an id without a connection");
    for id in ends.alive.keys() {
        input.reach(5, cm.state(*id).map_or(99, |state| state as u32));
    }
    cm.handle_timeout(now);
    assert!(cm.next_timeout().is_none_or(|at| at > now), "a deadline that stays");
    asked
}
