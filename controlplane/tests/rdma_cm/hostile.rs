//! Frames of an attacker to QP 1: their effects, and the effects that they must not have.

mod rd;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use uroce_controlplane::AddressVector;
use uroce_controlplane::config::{Config, DeviceConfig, Failover, PortConfig};
use uroce_controlplane::device::ring::{RingLease, RingSpec, claim};
use uroce_controlplane::rdma_cm::{CmId, ConnParam, ConnQp, PortSpace};
use uroce_engine::eal::Eal;
use uroce_engine::mbuf::{MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::QueuePair;
use uroce_transport::{QpChange, QpType, RtrAttr};
use uroce_wire::cm::{
    CaGuid, CmPath, CmTimeout, CommId, Dreq, IpHeader, Lap, Message, PrivateData, Req, ServiceId,
};
use uroce_wire::mad::{GSI_QKEY, MAD_LEN, Mad, MadHeader};
use uroce_wire::{
    Bth, Deth, Encap, ExtHeaders, Gid, Mac, OpCode, PathMtu, Pkey, Psn, Qkey, Qpn, emit_headers,
    seal,
};

use crate::lab::{Node, PORT, SOON, eventually, exchange, join};

const LEFT: &str = "192.0.2.1";
const LEFT_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

/// An attacker's end of a link to a node's second port.
struct Stranger {
    queue: QueuePair,
    pool: Mempool,
    /// Addresses for which an ARP request has arrived.
    asked: BTreeSet<[u8; 4]>,
    /// Transactions of the failover offers that have arrived.
    offers: Vec<u64>,
    /// CM messages that have arrived.
    messages: Vec<Message>,
    _lease: RingLease,
}

/// Creates two nodes on a link; the left one has a second port to an attacker.
fn nodes() -> (Node, Node, Stranger) {
    nodes_with(Failover::Never)
}

/// Creates the nodes; the left one has this failover.
fn nodes_with(failover: Failover) -> (Node, Node, Stranger) {
    let port = |ring: &str, address: &str| PortConfig::ring(ring).ip(address).unwrap();
    let open = PortConfig { mac: Some(LEFT_MAC), ..port("open", "192.0.2.1/16").mtu(1500) };
    let left = DeviceConfig::new("left").port(port("link", "198.51.100.1/24")).port(open);
    let left = left.failover(failover);
    let right = DeviceConfig::new("right").port(port("link", "198.51.100.2/24"));
    let config = Config::new().device(left).device(right);
    let left = Node::open(&config, "left", "198.51.100.1");
    let right = Node::open(&config, "right", "198.51.100.2");
    let eal = Eal::running().expect("a device runs");
    let pool = PoolConfig { count: 4095, cache: 32, room: 2048, ..PoolConfig::default() };
    let pool = Mempool::create(eal, &pool).unwrap();
    let spec = RingSpec { name: "open".into(), queue_pairs: 1, frames: 1024, mtu: 1500 };
    let (port, lease) = claim(eal, &spec, &pool).unwrap();
    let queue = port.queue_pair(0).unwrap();
    let (asked, offers, messages) = (BTreeSet::new(), Vec::new(), Vec::new());
    let stranger = Stranger { queue, pool, asked, offers, messages, _lease: lease };
    (left, right, stranger)
}

impl Stranger {
    fn send(&mut self, frame: &[u8]) {
        let mut batch = MbufBatch::new();
        self.pool.alloc_burst(&mut batch, 1).unwrap();
        let mbuf = &mut batch.as_mut_slice()[0];
        mbuf.set_len(frame.len()).unwrap();
        mbuf.as_mut_slice().copy_from_slice(frame);
        let end = Instant::now() + SOON;
        while self.queue.tx_burst(&mut batch) == 0 && Instant::now() < end {
            std::thread::yield_now();
        }
        self.hear();
    }

    /// Receives frames without answering.
    fn hear(&mut self) {
        let mut frames = MbufBatch::new();
        self.queue.rx_burst(&mut frames);
        for mbuf in frames.as_mut_slice() {
            let frame = mbuf.as_mut_slice();
            let is_question =
                frame.get(12..14) == Some(&[8, 6][..]) && frame.get(20..22) == Some(&[0, 1][..]);
            // An announcement asks for its own address.
            let is_announced = frame.get(28..32) == frame.get(38..42);
            if is_question && !is_announced {
                self.asked.extend(frame.get(38..42).and_then(|ip| ip.first_chunk().copied()));
            }
            // After the headers of Ethernet, IPv4, UDP, BTH and DETH.
            let mad = frame.get(62..).unwrap_or_default();
            let message = mad.get(..MAD_LEN).and_then(|mad| Message::parse(mad).ok());
            self.messages.extend(message.map(|(_, message)| message));
            if mad.get(1) == Some(&FAILOVER_CLASS) && mad.get(16..18) == Some(&OFFER.to_be_bytes())
            {
                self.offers.extend(mad[8..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes)));
            }
        }
    }
}

/// Builds a datagram to QP 1 of the left node with source address `src`.
fn frame(src: IpAddr, qkey: Qkey, payload: &[u8]) -> Vec<u8> {
    let path = Encap {
        src_mac: Mac([2, 0, 0, 0, 0, 0x66]),
        dst_mac: LEFT_MAC,
        src: Gid::from(src),
        dst: Gid::from(LEFT.parse::<IpAddr>().unwrap()),
        hop_limit: 64,
        src_port: 0xc000,
        ..Encap::default()
    };
    let bth = Bth {
        opcode: OpCode::UD_SEND_ONLY,
        dest_qpn: Qpn::GSI,
        pkey: Pkey::DEFAULT,
        pad_count: (payload.len() as u8).wrapping_neg() & 3,
        ..Bth::default()
    };
    let ext = ExtHeaders { deth: Deth { qkey, src_qpn: Qpn::GSI }, ..ExtHeaders::default() };
    let mut headers = [0; 64];
    let headers_len = emit_headers(&bth, &ext, &mut headers).unwrap();
    let template = path.template();
    let transport_len = headers_len + payload.len() + usize::from(bth.pad_count) + 4;
    let mut out = vec![0; usize::from(template.len) + transport_len];
    let at = template.emit(&mut out, transport_len);
    out[at..at + headers_len].copy_from_slice(&headers[..headers_len]);
    out[at + headers_len..at + headers_len + payload.len()].copy_from_slice(payload);
    seal(&mut out[usize::from(template.l3_offset)..]).unwrap();
    out
}

fn stranger(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0xc000_0300 + number % 0xf000))
}

fn request(number: u32) -> Mad {
    let (src, dst) = (stranger(number), LEFT.parse::<IpAddr>().unwrap());
    let mut header = [0; IpHeader::LEN];
    IpHeader { src_port: 1, src, dst }.emit(&mut header);
    let mut req = Req {
        local_comm_id: CommId(number + 1),
        service_id: ServiceId::tcp(PORT),
        local_ca_guid: CaGuid(u64::from(number)),
        local_qpn: Qpn::new(number % 0xff_0000 + 2),
        responder_resources: 1,
        initiator_depth: 1,
        remote_cm_response_timeout: CmTimeout::from_code(20),
        local_cm_response_timeout: CmTimeout::from_code(20),
        max_cm_retries: 15,
        starting_psn: Psn::new(number),
        pkey: Pkey::DEFAULT,
        path_mtu_code: PathMtu::B1024.code(),
        primary: CmPath {
            local_lid: CmPath::ROCE_LID,
            remote_lid: CmPath::ROCE_LID,
            local_gid: Gid::from(src),
            remote_gid: Gid::from(dst),
            hop_limit: 64,
            local_ack_timeout: CmTimeout::from_code(14),
            ..CmPath::default()
        },
        ..Req::default()
    };
    req.private_data = PrivateData::new(&header).unwrap();
    message(Message::Req(req), u64::from(number))
}

fn message(message: Message, transaction: u64) -> Mad {
    message.emit(transaction)
}

#[test]
//= check J11 test
fn bad_mads_are_counted_and_harm_no_connection() {
    let (left, right, mut stranger_end) = nodes();
    let (mut one, mut other) = (left.end(), right.end());
    let (active, _) = join((&left, &one), (&right, &other));
    let good = request(1);
    let with = |change: &dyn Fn(&mut MadHeader)| {
        let mut mad = good;
        let mut header = MadHeader::parse(mad.first_chunk().unwrap());
        change(&mut header);
        header.emit(mad.first_chunk_mut().unwrap());
        mad
    };
    let from = stranger(1);
    let cases: [(&str, Vec<u8>); 8] = [
        ("gsi_qkey_viol", frame(from, Qkey(0x8001_0001), &good)),
        ("gsi_bad_length", frame(from, GSI_QKEY, &good[..255])),
        ("gsi_malformed", frame(from, GSI_QKEY, &[0; MAD_LEN + 4])),
        ("gsi_bad_version", frame(from, GSI_QKEY, &with(&|header| header.base_version = 9))),
        ("gsi_unknown_class", frame(from, GSI_QKEY, &with(&|header| header.mgmt_class = 0x55))),
        ("gsi_unknown_method", frame(from, GSI_QKEY, &with(&|header| header.method = 0x12))),
        ("cm_class_version", frame(from, GSI_QKEY, &with(&|header| header.class_version = 1))),
        ("cm_malformed", frame(from, GSI_QKEY, &with(&|header| header.attribute_id = 0x7f))),
    ];
    for (name, frame) in &cases {
        stranger_end.send(frame);
        eventually(|| left.count(name) == 1);
    }
    // Messages for connections that do not exist, and for one of another peer.
    let dreq = Message::Dreq(Dreq { remote_qpn: one.qp.qpn, ..Dreq::default() });
    let lap = Message::Lap(Lap { remote_qpn: one.qp.qpn, ..Lap::default() });
    for forged in [message(dreq, 7), message(lap, 8)] {
        stranger_end.send(&frame(from, GSI_QKEY, &forged));
    }
    eventually(|| left.count("cm_unknown_id") == 2);
    exchange(&mut one, &mut other);
    assert_eq!(left.channel.try_next(), None);
    left.device.cm_disconnect(active, &[]).unwrap();
}

const FAILOVER_CLASS: u8 = 0x4e;
const OFFER: u16 = 1;
const ACCEPT: u16 = 2;
const PROBE: u16 = 4;
const CALL: u16 = 6;

/// Builds a message of failover about a left QP: its kind, both QPNs, and the GIDs of an offer.
fn failover(kind: u16, from: Qpn, to: Qpn, gids: &[Gid]) -> Mad {
    let mut mad = [0; MAD_LEN];
    let header = MadHeader {
        base_version: 1,
        mgmt_class: FAILOVER_CLASS,
        class_version: 1,
        method: MadHeader::SEND,
        transaction_id: 7,
        attribute_id: kind,
        ..MadHeader::default()
    };
    header.emit(mad.first_chunk_mut().unwrap());
    mad[37..40].copy_from_slice(b"roc");
    mad[40] = 1;
    mad[43] = gids.len() as u8;
    mad[44..48].copy_from_slice(&from.value().to_be_bytes());
    mad[48..52].copy_from_slice(&to.value().to_be_bytes());
    for (at, gid) in gids.iter().enumerate() {
        mad[60 + 16 * at..][..16].copy_from_slice(&gid.0);
    }
    mad
}

#[test]
fn a_stranger_moves_no_queue_pair_to_another_path() {
    let (left, right, mut stranger_end) = nodes_with(Failover::Auto);
    let (mut one, mut other) = (left.end(), right.end());
    join((&left, &one), (&right, &other));
    let (own, peer) = (one.qp.qpn, other.qp.qpn);
    let attr = || left.device.query_qp(own).unwrap().attr;
    let before = attr();
    let gids = [Gid::from(stranger(9))];
    let offer = failover(OFFER, peer, own, &gids);
    let with = |at: usize, byte: u8| {
        let mut mad = offer;
        mad[at] = byte;
        mad
    };
    let mut probe = failover(PROBE, peer, own, &[]);
    probe[59] = 1;
    let (from, real) = (stranger(1), "198.51.100.2".parse().unwrap());
    let cases = [
        // Another OUI is another vendor's message.
        ("gsi_unknown_class", from, with(37, 0)),
        ("failover_malformed", from, with(40, 2)),
        ("failover_malformed", from, with(43, 9)),
        ("failover_malformed", from, with(255, 1)),
        ("failover_malformed", from, failover(OFFER, peer, own, &[])),
        ("failover_unknown_qp", from, failover(OFFER, peer, Qpn::new(own.value() ^ 1), &gids)),
        ("failover_unknown_qp", from, failover(OFFER, Qpn::new(peer.value() ^ 1), own, &gids)),
        ("failover_wrong_source", from, offer),
        // The peer's address does not help where the port is another.
        ("failover_wrong_source", real, offer),
        ("failover_wrong_source", real, probe),
        ("failover_wrong_source", real, failover(CALL, peer, own, &[])),
    ];
    for (name, from, mad) in cases {
        let count = left.count(name);
        stranger_end.send(&frame(from, GSI_QKEY, &mad));
        eventually(|| left.count(name) == count + 1);
    }
    exchange(&mut one, &mut other);
    assert_eq!(attr(), before);
    assert_eq!((left.count("failover_armed"), left.count("failover_migrated")), (0, 0));
    assert_eq!(left.channel.try_next(), None);
}

/// Address of a peer that is hostile.
const PEER: [u8; 4] = [192, 0, 3, 77];

/// Connects a left QP through the second port to one of the stranger, which answers ARP.
fn join_stranger(left: &Node, end: &crate::lab::End, stranger: &mut Stranger, dest_qpn: Qpn) {
    let access = Some(uroce_transport::AccessFlags::empty());
    let init = QpChange { access, ..QpChange::to_init(2) };
    let qpn = end.qp.qpn;
    left.device.modify_qp(qpn, &init, None, None).unwrap();
    let rtr = RtrAttr {
        path_mtu: PathMtu::B1024,
        dest_qpn,
        rq_psn: Psn::new(0),
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
    };
    let (rtr, vector) = (QpChange::to_rtr(QpType::Rc, &rtr), AddressVector::to(peer_gid()));
    let reply = arp_reply(PEER);
    std::thread::scope(|scope| {
        let modify = scope.spawn(|| left.device.modify_qp(qpn, &rtr, Some(&vector), None).unwrap());
        while !modify.is_finished() {
            stranger.hear();
            if stranger.asked.remove(&PEER) {
                stranger.send(&reply);
            }
        }
        modify.join().unwrap();
    });
}

/// Answer of the stranger to an ARP request of the left node for this address.
fn arp_reply(of: [u8; 4]) -> Vec<u8> {
    let mac = [2, 0, 0, 0, 0, 0x66];
    let kind = [8, 6, 0, 1, 8, 0, 6, 4, 0, 2];
    let (to, pad) = ([192, 0, 2, 1], [0; 18]);
    [&LEFT_MAC.0[..], &mac, &kind, &mac, &of, &LEFT_MAC.0, &to, &pad].concat()
}

fn peer_gid() -> Gid {
    Gid::from(IpAddr::from(PEER))
}

/// A failover message of the stranger with this transaction and token.
fn from_peer(mut mad: Mad, transaction: u64, token: u64) -> Vec<u8> {
    mad[8..16].copy_from_slice(&transaction.to_be_bytes());
    mad[52..60].copy_from_slice(&token.to_be_bytes());
    frame(PEER.into(), GSI_QKEY, &mad)
}

#[test]
fn a_peer_that_floods_with_offers_gets_no_path_and_holds_up_nothing() {
    let (left, right, mut stranger_end) = nodes_with(Failover::Auto);
    let (mut one, mut other) = (left.end(), right.end());
    join((&left, &one), (&right, &other));
    // A peer with a smaller number makes the offers.
    let (end, peer) = (left.end(), Qpn::new(2));
    join_stranger(&left, &end, &mut stranger_end, peer);
    let before = left.attr(end.qp.qpn);
    let begin = Instant::now();
    // The queue of frames to the control plane is short, so that most are dropped there.
    let mut number = 0;
    while left.count("failover_refused") < 300 {
        assert!(begin.elapsed() < SOON, "{number} offers");
        let host = |at: u64| ((number * 8 + at) % 200 + 20) as u8;
        let gids: [Gid; 8] =
            std::array::from_fn(|at| Gid::from(IpAddr::from([198, 51, 100, host(at as u64)])));
        let offer = failover(OFFER, peer, end.qp.qpn, &gids);
        stranger_end.send(&from_peer(offer, number + 1, 0));
        if number % 500 == 0 {
            exchange(&mut one, &mut other);
        }
        number += 1;
    }
    exchange(&mut one, &mut other);
    // The neighbours that do not exist are given up.
    eventually(|| left.count("failover_not_loaded") > 0);
    assert_eq!(left.attr(end.qp.qpn), before);
    assert_eq!(left.count("failover_armed"), 0);
}

#[test]
fn a_peer_that_is_asked_for_a_path_cannot_choose_one_that_leads_nowhere() {
    let (left, right, mut stranger_end) = nodes_with(Failover::Auto);
    let other_end = right.end();
    let (end, peer) = (left.end(), Qpn::new(0xff_fffe));
    join_stranger(&left, &end, &mut stranger_end, peer);
    let before = left.attr(end.qp.qpn);
    let offer = |stranger_end: &mut Stranger| {
        stranger_end.offers.clear();
        eventually(|| {
            stranger_end.hear();
            !stranger_end.offers.is_empty()
        });
        stranger_end.offers[0]
    };
    let gid = |text: &str| Gid::from(text.parse::<IpAddr>().unwrap());
    let accept = |own, peer_gid| failover(ACCEPT, peer, end.qp.qpn, &[peer_gid, own]);
    let (own, right_gid) = (gid("198.51.100.1"), gid("198.51.100.2"));
    for (name, mad, transaction) in [
        // An address that is none of this end, one of the path in use, and one that is its own.
        ("failover_not_loaded", accept(gid("203.0.113.9"), right_gid), 0),
        ("failover_not_loaded", accept(gid(LEFT), right_gid), 0),
        ("failover_not_loaded", accept(own, gid(LEFT)), 0),
        ("failover_stale", accept(own, right_gid), 1),
        // A host that does not exist.
        ("failover_not_loaded", accept(own, gid("198.51.100.99")), 0),
    ] {
        let count = left.count(name);
        let present = offer(&mut stranger_end);
        stranger_end.send(&from_peer(mad, present ^ transaction, 5));
        eventually(|| left.count(name) > count);
    }
    // Calls one after the other bring no offers one after the other.
    stranger_end.offers.clear();
    let call = failover(CALL, peer, end.qp.qpn, &[]);
    let begin = Instant::now();
    while left.count("failover_out_of_order") < 300 {
        assert!(begin.elapsed() < SOON, "the calls are not heard");
        stranger_end.send(&from_peer(call, 1, 0));
    }
    stranger_end.hear();
    let most = 10 * (begin.elapsed().as_secs() as usize + 1);
    assert!(stranger_end.offers.len() <= most, "{}", stranger_end.offers.len());
    assert_eq!(left.attr(end.qp.qpn), before);
    assert_eq!(left.count("failover_armed"), 0);
    drop(other_end);
}

#[test]
//= check J13 test
fn a_flood_of_requests_is_bounded_and_leaves_connections_alone() {
    const BACKLOG: u64 = 32;
    let (left, right, mut stranger_end) = nodes();
    let address = format!("{LEFT}:{PORT}").parse().unwrap();
    left.listen_at(PortSpace::Tcp, address, BACKLOG as u32).unwrap();
    let (mut one, mut other) = (left.end(), right.end());
    // A connection over the other port, during the flood at the first.
    right.listen();
    let active = left.connect(&one, &right);
    let (passive, _) = right.request();
    right.accept(passive, &other);
    for (node, id) in [(&left, active), (&right, passive)] {
        let kind = node.kind(id);
        assert!(
            matches!(kind, uroce_controlplane::rdma_cm::ConnEvent::Established { .. }),
            "{kind:?}"
        );
    }
    let begin = Instant::now();
    let mut sent = 0u32;
    while sent < 10_000 {
        for _ in 0..100 {
            stranger_end.send(&frame(stranger(sent), GSI_QKEY, &request(sent)));
            sent += 1;
        }
        exchange(&mut one, &mut other);
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    eventually(|| left.count("cm_backlog_full") > 0);
    let waiting = std::iter::from_fn(|| left.channel.try_next()).count() as u64;
    assert_eq!(waiting, BACKLOG, "the backlog, and nothing beside it");
    assert!(left.count("cm_connections") <= BACKLOG + 2);
    // A new connection can still be made.
    let (second, third) = (left.end(), right.end());
    let active = left.connect(&second, &right);
    let (passive, _) = right.request();
    right.accept(passive, &third);
    let established =
        |kind| matches!(kind, uroce_controlplane::rdma_cm::ConnEvent::Established { .. });
    assert!(established(left.kind(active)) && established(right.kind(passive)));
    exchange(&mut one, &mut other);
}

#[test]
//= check J13 test
fn strangers_that_are_accepted_are_asked_for_a_bounded_number_at_a_time() {
    const COUNT: u32 = 300;
    let (left, _right, mut stranger_end) = nodes();
    let address = format!("{LEFT}:{PORT}").parse().unwrap();
    left.listen_at(PortSpace::Tcp, address, COUNT).unwrap();
    stranger_end.asked.clear();
    let begin = Instant::now();
    for number in 0..COUNT {
        stranger_end.send(&frame(stranger(number), GSI_QKEY, &request(number)));
        let (id, _) = left.request();
        let (qpn, psn) = (Qpn::new(0x10_0000 + number), Psn::new(number));
        let foreign = ConnQp::Foreign {
            qpn,
            qp_type: QpType::Rc,
            psn,
            has_srq: false,
            stops_with_peer: false,
        };
        left.device.cm_accept(id, foreign, ConnParam::default()).unwrap();
    }
    eventually(|| {
        stranger_end.hear();
        stranger_end.asked.len() >= 256 && begin.elapsed() > Duration::from_secs(1)
    });
    assert_eq!(stranger_end.asked.len(), 256);
    // The rest is requested when some requests have failed.
    eventually(|| {
        stranger_end.hear();
        stranger_end.asked.len() == COUNT as usize
    });
}
