//! Frames of an attacker to QP 1: their effects, and the effects that they must not have.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use uroce_controlplane::config::{Config, DeviceConfig, PortConfig};
use uroce_controlplane::device::ring::{RingLease, RingSpec, claim};
use uroce_controlplane::rdma_cm::{ConnParam, ConnQp, PortSpace};
use uroce_engine::eal::Eal;
use uroce_engine::mbuf::{MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::QueuePair;
use uroce_transport::QpType;
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
    _lease: RingLease,
}

/// Creates two nodes on a link; the left one has a second port to an attacker.
fn nodes() -> (Node, Node, Stranger) {
    let port = |ring: &str, address: &str| PortConfig::ring(ring).ip(address).unwrap();
    let open = PortConfig { mac: Some(LEFT_MAC), ..port("open", "192.0.2.1/16").mtu(1500) };
    let left = DeviceConfig::new("left").port(port("link", "198.51.100.1/24")).port(open);
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
    (left, right, Stranger { queue, pool, asked: BTreeSet::new(), _lease: lease })
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

#[test]
//= check J13 test
fn a_flood_of_requests_is_bounded_and_leaves_connections_alone() {
    const BACKLOG: u64 = 32;
    let (left, right, mut stranger_end) = nodes();
    let address = format!("{LEFT}:{PORT}").parse().unwrap();
    left.device.cm_listen(&left.channel, PortSpace::Tcp, address, BACKLOG as u32).unwrap();
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
    left.device.cm_listen(&left.channel, PortSpace::Tcp, address, COUNT).unwrap();
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
