//! An engine against a peer that sends arbitrary packets. One process per test.

use crate::lab;
use crate::lab::{LabConfig, Node, QpWish, eventually, pattern};
use std::sync::Arc;
use uroce_engine::mbuf::{MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::QueuePair;
use uroce_engine::port::ring::ring_pair;
use uroce_engine::{Engine, EngineConfig, EngineCounter, IdlePolicy, LossConfig, RdDomain};
use uroce_engine::{PortAddresses, PortBinding, multicast_mac};
use uroce_transport::{AccessFlags, Counter, DropReason, QpState, QpType, SendOp};
use uroce_wire::{
    Aeth, Bth, Deth, Encap, ExtHeaders, Gid, Mac, Msn, OpCode, Pkey, Psn, Qkey, Qpn, Rdeth, Reth,
    Syndrome, Vlan, emit_headers, seal,
};

/// An engine, and the bare port that stands for its peer.
struct Target {
    node: Node,
    peer: QueuePair,
    peer_addresses: PortAddresses,
    pool: Mempool,
}

fn addresses(host: u8) -> PortAddresses {
    let gid = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host));
    PortAddresses { mac: Mac([2, 0, 0, 0, 0, host]), vlan: None, gids: vec![gid] }
}

impl Target {
    fn new() -> Target {
        Target::with_lcores(1)
    }

    fn with_lcores(lcores: usize) -> Target {
        let eal = lab::eal();
        let geometry = PoolConfig { count: 2047, cache: 64, room: 4400, ..PoolConfig::default() };
        let pool = Mempool::create(eal, &geometry).expect("mempool");
        let (port, peer) =
            ring_pair(eal, "hostile", lcores as u16, 512, 4200, &pool).expect("rings");
        let binding = PortBinding {
            port,
            pool: pool.clone(),
            addresses: addresses(1),
            loss: LossConfig::default(),
            bottleneck: None,
        };
        let LabConfig { max_qps, .. } = LabConfig::default();
        let idle = IdlePolicy::Yield;
        let lcores = vec![None; lcores];
        let limits = EngineConfig { max_qps, max_mrs: 16, max_ahs: 16, ..EngineConfig::default() };
        let config = EngineConfig { lcores, idle, ..limits };
        let (engine, control) = Engine::start(config, vec![binding]).expect("starts");
        let node = Node { engine, control, addresses: addresses(1) };
        let peer = peer.queue_pair(0).expect("free");
        Target { node, peer, peer_addresses: addresses(2), pool }
    }

    /// Makes a QP in RTS that has QP 2 at `peer_addresses` as its peer.
    fn qp(&mut self) -> lab::TestQp {
        let wish = QpWish::default();
        let mut qp = self.node.create_qp(&wish);
        self.node.bring_up(&mut qp, &self.peer_addresses, Qpn::new(2), &wish);
        qp
    }

    /// Sends frames, and waits until each has been counted somewhere and the turn in which that was
    /// has ended.
    fn send(&mut self, frames: &[Vec<u8>]) {
        let seen = |node: &Node| {
            let counters = node.engine.counters();
            let early = [
                DropReason::Malformed,
                DropReason::BadIcrc,
                DropReason::NotForUs,
                DropReason::SlowPathFull,
            ];
            let dropped: u64 = early.iter().map(|&reason| counters.dropped(reason)).sum();
            let taken = counters.engine(EngineCounter::RxPackets);
            dropped + taken + counters.engine(EngineCounter::RxOther)
        };
        let mut expected = seen(&self.node);
        for chunk in frames.chunks(32) {
            let mut batch = MbufBatch::new();
            for frame in chunk {
                let mut mbuf = self.pool.alloc().expect("enough mbufs");
                mbuf.set_len(frame.len()).expect("fits");
                mbuf.as_mut_slice().copy_from_slice(frame);
                batch.push(mbuf).expect("room");
            }
            expected += batch.len() as u64;
            eventually("room in the ring", || {
                self.peer.tx_burst(&mut batch);
                batch.is_empty()
            });
            eventually("all frames counted", || seen(&self.node) == expected);
            let beat = self.node.engine.heartbeat(0).expect("lcore 0");
            eventually("the end of the turn", || {
                self.node.engine.heartbeat(0).is_some_and(|now| now >= beat + 2)
            });
            self.answers();
            while self.node.control.recv_frame().is_some() {}
        }
    }

    /// Returns the frames that have come back.
    fn answers(&mut self) -> Vec<Vec<u8>> {
        let mut batch = MbufBatch::new();
        let mut all = Vec::new();
        while self.peer.rx_burst(&mut batch) > 0 {
            all.extend(batch.drain().map(|mbuf| mbuf.as_slice().to_vec()));
        }
        all
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.node.engine.counters().dropped(reason)
    }

    fn path(&self) -> Encap {
        let (own, peer) = (&self.node.addresses, &self.peer_addresses);
        Encap {
            src_mac: peer.mac,
            dst_mac: own.mac,
            src: peer.gids[0],
            dst: own.gids[0],
            hop_limit: 64,
            src_port: 0xc000,
            ..Encap::default()
        }
    }

    fn finish(mut self) {
        assert!(self.node.engine.is_running());
        self.answers();
        let Target { node, peer, pool, .. } = self;
        drop((node, peer));
        assert_eq!(pool.available(), pool.count(), "mbufs leaked");
    }
}

fn write_only(qpn: Qpn) -> (Bth, ExtHeaders) {
    let bth = Bth {
        opcode: OpCode::RC_RDMA_WRITE_ONLY,
        dest_qpn: qpn,
        pkey: Pkey::DEFAULT,
        psn: Psn::new(0xff_fff0),
        ack_req: true,
        ..Bth::default()
    };
    (bth, ExtHeaders::default())
}

/// Returns a whole frame. For an opcode that does not exist only the BTH is written.
fn frame(path: &Encap, bth: &Bth, ext: &ExtHeaders, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4300];
    let template = path.template();
    let mut headers = [0; 128];
    let headers_len = match emit_headers(bth, ext, &mut headers) {
        Some(len) => len,
        None => {
            bth.emit(headers.first_chunk_mut().expect("12 bytes"));
            Bth::LEN
        }
    };
    let pad = payload.len().wrapping_neg() & 3;
    let transport_len = headers_len + payload.len() + pad + 4;
    let at = template.emit(&mut out, transport_len);
    out[at..at + headers_len].copy_from_slice(&headers[..headers_len]);
    out[at + headers_len..at + headers_len + payload.len()].copy_from_slice(payload);
    out.truncate(at + transport_len);
    seal(&mut out[usize::from(template.l3_offset)..]).expect("IP");
    out
}

#[test] //= check E18 test
fn truncated_frames_are_dropped_and_counted_each() {
    let mut target = Target::new();
    let qp = target.qp();
    let region = target.node.register(qp.pd, 64, AccessFlags::all());
    let reth = Reth { va: region.va(), rkey: region.keys.rkey, dma_len: 64 };
    let (bth, ext) = (write_only(qp.qpn).0, ExtHeaders { reth, ..ExtHeaders::default() });
    let whole = frame(&target.path(), &bth, &ext, &[0xaa; 64]);
    let cut: Vec<Vec<u8>> = (1..whole.len()).map(|len| whole[..len].to_vec()).collect();
    let before = target.node.engine.counters().dropped_in_all();
    target.send(&cut);
    let after = target.node.engine.counters().dropped_in_all();
    assert_eq!(after - before, cut.len() as u64);
    assert_eq!(region.bytes(), [0; 64]);
    // The same frame, whole, with bytes of Ethernet padding behind it, is taken.
    target.send(&[[&whole[..], &[0x55; 9]].concat()]);
    assert_eq!(region.bytes(), [0xaa; 64]);
    drop(region);
    target.finish();
}

#[test]
fn each_wrong_thing_has_its_counter_and_gets_no_answer() {
    let mut target = Target::new();
    let qp = target.qp();
    let fresh = target.node.create_qp(&QpWish::default());
    let path = target.path();
    let (bth, ext) = write_only(qp.qpn);
    let other_ip = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, 9));
    let mut flipped = frame(&path, &bth, &ext, &[]);
    *flipped.last_mut().expect("bytes") ^= 1;
    let tagged = Encap { vlan: Some(Vlan { vid: 5, pcp: 0 }), ..path };
    let to_other_mac = Encap { dst_mac: Mac([2, 0, 0, 0, 0, 99]), ..path };
    let service = Bth { opcode: OpCode::UD_SEND_ONLY, ..bth };
    let cases = [
        //= check E14 test
        (DropReason::BadIcrc, flipped),
        //= check E10 test
        (DropReason::UnknownQpn, frame(&path, &write_only(Qpn::new(0)).0, &ext, &[])),
        (DropReason::UnknownQpn, frame(&path, &write_only(Qpn::MULTICAST).0, &ext, &[])),
        //= check E16 test
        (DropReason::WrongSource, frame(&Encap { src: other_ip, ..path }, &bth, &ext, &[])),
        (DropReason::NotForUs, frame(&Encap { dst: other_ip, ..path }, &bth, &ext, &[])),
        (DropReason::NotForUs, frame(&to_other_mac, &bth, &ext, &[])),
        (DropReason::NotForUs, frame(&tagged, &bth, &ext, &[])),
        //= check E7 test
        (DropReason::ReservedOpCode, frame(&path, &Bth { opcode: OpCode(0x3f), ..bth }, &ext, &[])),
        //= check E9 test
        (DropReason::WrongService, frame(&path, &service, &ext, &[])),
        (DropReason::WrongService, frame(&path, &write_only(Qpn::GSI).0, &ext, &[])),
        //= check E11 test
        (DropReason::QpNotReady, frame(&path, &write_only(fresh.qpn).0, &ext, &[])),
        //= check E12 test
        (DropReason::BadPkey, frame(&path, &Bth { pkey: Pkey(0x8001), ..bth }, &ext, &[])),
    ];
    for (reason, bytes) in cases {
        let before = target.node.engine.counters();
        target.send(&[bytes]);
        let since = target.node.engine.counters().since(&before);
        assert_eq!(since.dropped(reason), 1, "{reason:?}");
        assert_eq!(since.dropped_in_all(), 1, "{reason:?} and no other");
        assert_eq!(since.engine(EngineCounter::TxPackets), 0, "{reason:?}: no answer");
    }
    assert_eq!(qp.sq.state(), QpState::Rts);
    target.finish();
}

#[test] //= check E7 test
fn a_reserved_opcode_of_rc_is_answered_as_an_invalid_request_on_whatever_lcore() {
    // All packets arrive at lcore 0.
    let mut target = Target::with_lcores(2);
    for lcore in [0, 1] {
        let wish = QpWish { lcores: [Some(lcore); 2], ..QpWish::default() };
        let mut qp = target.node.create_qp(&wish);
        target.node.bring_up(&mut qp, &target.peer_addresses, Qpn::new(2), &wish);
        let (bth, ext) = write_only(qp.qpn);
        let reserved = frame(&target.path(), &Bth { opcode: OpCode(0x1f), ..bth }, &ext, &[]);
        let before = target.node.engine.counters();
        target.send(&[reserved]);
        eventually("ERR", || qp.sq.state() == QpState::Err);
        let sent = || target.node.engine.counters().since(&before);
        eventually("the NAK", || sent().engine(EngineCounter::TxPackets) == 1);
        assert_eq!(sent().dropped_in_all(), 0);
        assert_eq!(sent().engine(EngineCounter::HandedOver), lcore as u64);
    }
    target.finish();
}

/// A peer may put its answer on the wire before the acknowledgement of what it answers. Older
/// programs expect their request's completion first in a queue for both.
#[test]
fn an_acknowledgement_behind_the_answer_completes_its_request_before_the_answers_receive() {
    let only = &[OpCode::RC_SEND_ONLY][..];
    let long = &[
        OpCode::RC_SEND_FIRST,
        OpCode::RC_SEND_MIDDLE,
        OpCode::RC_SEND_MIDDLE,
        OpCode::RC_SEND_LAST,
    ];
    // The answer's packets, how many requests are acknowledged, by how many acknowledgements each.
    for (answer, requests, acks) in [(only, 1, 1), (long, 1, 1), (only, 3, 1), (only, 2, 2)] {
        let mut target = Target::new();
        let mut qp = target.qp();
        let region = target.node.register(qp.pd, 1 << 15, AccessFlags::all());
        qp.recv(100, &[region.sge(1 << 14, 1 << 14)]);
        let mut asked = Vec::new();
        for wr_id in 0..requests {
            qp.send(wr_id, SendOp::Send { imm: None }, &[region.sge(0, 8)]);
        }
        eventually("the requests", || {
            asked.extend(target.answers());
            asked.len() as u64 == requests
        });
        let path = target.path();
        let psn = write_only(qp.qpn).0.psn;
        let after = |count| (0..count).fold(psn, |psn: Psn, _| psn.next());
        let answer = answer.iter().zip(0..).map(|(opcode, at)| {
            let bth = Bth { opcode: *opcode, psn: after(at), ..write_only(qp.qpn).0 };
            frame(&path, &bth, &ExtHeaders::default(), &vec![7; opcode_len(*opcode)])
        });
        let acks = (requests - acks..requests).map(|at| {
            let bth =
                Bth { opcode: OpCode::RC_ACKNOWLEDGE, psn: after(at), ..write_only(qp.qpn).0 };
            let aeth = Aeth { syndrome: Syndrome::UNLIMITED, msn: Msn::new(at as u32 + 1) };
            frame(&path, &bth, &ExtHeaders { aeth, ..ExtHeaders::default() }, &[])
        });
        let frames: Vec<_> = answer.chain(acks).collect();
        target.send(&frames);
        let order: Vec<_> = (0..=requests).map(|_| qp.completion().wr_id).collect();
        let expected: Vec<_> = (0..requests).chain([100]).collect();
        assert_eq!(order, expected, "{} packets, {requests} requests", frames.len());
        assert_eq!(target.node.engine.counters().dropped_in_all(), 0);
        drop((qp, region));
        target.finish();
    }
}

/// The payload of a packet of a SEND: full, or a part.
fn opcode_len(opcode: OpCode) -> usize {
    let is_full = matches!(opcode, OpCode::RC_SEND_FIRST | OpCode::RC_SEND_MIDDLE);
    if is_full { QpWish::default().mtu.bytes() as usize } else { 8 }
}

#[test] //= check L5 test
fn a_group_member_without_a_buffer_for_its_copy_keeps_no_other_from_its_own() {
    const QKEY: Qkey = Qkey(9);
    let mut target = Target::with_lcores(2);
    let group = Gid::from(std::net::Ipv4Addr::new(239, 1, 2, 3));
    let pd = target.node.engine.alloc_pd();
    let region = target.node.register(pd, 256, AccessFlags::all());
    let mut qps = [0, 1].map(|lcore| {
        let lcores = [Some(lcore); 2];
        let wish = QpWish { qp_type: QpType::Ud, lcores, ..QpWish::default() };
        let mut qp = target.node.create_qp_with(pd, &wish, None);
        target.node.start_datagrams(&qp, QKEY);
        target.node.control.attach_multicast(qp.qpn, group).expect("attaches");
        qp.recv(7, &[region.sge(128 * lcore as u64, 128)]);
        qp
    });
    let dst_mac = multicast_mac(group).expect("a group");
    let path = Encap { dst: group, dst_mac, ..target.path() };
    let opcode = OpCode::UD_SEND_ONLY;
    let bth = Bth { opcode, ack_req: false, ..write_only(Qpn::MULTICAST).0 };
    let deth = Deth { qkey: QKEY, src_qpn: Qpn::new(2) };
    let ext = ExtHeaders { deth, ..ExtHeaders::default() };
    let datagram = frame(&path, &bth, &ext, &[0xab; 64]);

    // All other buffers of the mempool are taken.
    let mut mbuf = target.pool.alloc().expect("enough mbufs");
    mbuf.set_len(datagram.len()).expect("fits");
    mbuf.as_mut_slice().copy_from_slice(&datagram);
    let hoard: Vec<_> = std::iter::from_fn(|| target.pool.alloc().ok()).collect();
    let mut batch = MbufBatch::new();
    batch.push(mbuf).expect("room");
    target.peer.tx_burst(&mut batch);
    assert_eq!(qps[0].completion().wr_id, 7);
    eventually("the count", || target.dropped(DropReason::NoBuffer) == 1);
    assert_eq!(qps[1].cq.poll(), Ok(None));
    drop(hoard);

    // With free buffers both QPs get the datagram.
    qps[0].recv(8, &[region.sge(0, 128)]);
    target.send(&[datagram]);
    assert_eq!((qps[0].completion().wr_id, qps[1].completion().wr_id), (8, 7));
    assert_eq!(region.bytes()[128 + 40..128 + 104], [0xab; 64]);
    drop((qps, region));
    target.finish();
}

#[test] //= check F2 test
fn ranges_outside_of_a_region_and_past_the_end_of_memory_are_refused() {
    let mut target = Target::new();
    for (offset, len) in
        [(-1i64, 1u32), (64, 1), (0, 65), (63, 2), (0, 1 << 31), (i64::MIN, 8), (i64::MAX, 1 << 31)]
    {
        let qp = target.qp();
        let region = target.node.register(qp.pd, 64, AccessFlags::all());
        region.fill(3);
        let va = uroce_wire::Va(region.va().0.wrapping_add_signed(offset));
        let reth = Reth { va, rkey: region.keys.rkey, dma_len: len };
        let bth = Bth { opcode: OpCode::RC_RDMA_WRITE_FIRST, ..write_only(qp.qpn).0 };
        let (bth, payload) = match len {
            0..=4096 => {
                let pad_count = (len.wrapping_neg() & 3) as u8;
                let bth = Bth { opcode: OpCode::RC_RDMA_WRITE_ONLY, pad_count, ..bth };
                (bth, vec![0xee; len as usize])
            }
            _ => (bth, vec![0xee; 4096]),
        };
        let ext = ExtHeaders { reth, ..ExtHeaders::default() };
        let before = target.node.engine.counters();
        target.send(&[frame(&target.path(), &bth, &ext, &payload)]);
        eventually("the NAK", || {
            let since = target.node.engine.counters().since(&before);
            since.transport(Counter::RespRemoteAccessErrors) == 1
        });
        eventually("ERR", || qp.sq.state() == QpState::Err);
        assert_eq!(region.bytes(), pattern(3, 64), "offset {offset}, {len} bytes");
        target.node.control.destroy_qp(qp.qpn).expect("destroys");
    }
    target.finish();
}

#[test]
fn a_hundred_thousand_random_frames_do_no_harm() {
    let mut target = Target::new();
    let mut qp = target.qp();
    let region = target.node.register(qp.pd, 4096, AccessFlags::all());
    let mut lives = 1;
    let path = target.path();
    let reth = Reth { va: region.va(), rkey: region.keys.rkey, dma_len: 64 };
    let mut random = pattern(42, 1 << 20).into_iter().cycle();
    let mut next = move || random.next().expect("endless");
    for round in 0..200 {
        let frames: Vec<Vec<u8>> = (0..500)
            .map(|at| {
                if at % 4 == 0 {
                    // Random bytes.
                    let len = 1 + usize::from(next()) * 5;
                    return (0..len).map(|_| next()).collect();
                }
                // A valid packet of some opcode with a few bytes changed. Half of them get a valid
                // ICRC again, so that the transport sees them.
                let psn = Psn::new(0xff_fff0).plus(u32::from(next() % 8));
                let bth = Bth { opcode: OpCode(next() % 32), psn, ..write_only(qp.qpn).0 };
                let ext = ExtHeaders { reth, ..ExtHeaders::default() };
                let payload: Vec<u8> = (0..next()).map(|_| next()).collect();
                let mut bytes = frame(&path, &bth, &ext, &payload);
                for _ in 0..next() % 4 {
                    let place = (usize::from(next()) << 8 | usize::from(next())) % bytes.len();
                    bytes[place] ^= 1 << (next() % 8);
                }
                if at % 2 == 0 {
                    let _ = seal(&mut bytes[14..]);
                }
                bytes
            })
            .collect();
        target.send(&frames);
        if qp.sq.state() != QpState::Rts {
            // A packet may have ended the connection: continue with another QP.
            target.node.control.destroy_qp(qp.qpn).expect("destroys");
            qp = target.qp();
            lives += 1;
        }
        assert!(target.node.engine.is_running(), "round {round}");
    }
    assert!(lives > 1, "nothing ever reached the transport");
    drop(region);
    target.finish();
}

#[test]
fn frames_that_are_not_roce_reach_the_control_plane_and_those_of_others_do_not() {
    let mut target = Target::new();
    let arp = |dst: [u8; 6]| [&dst[..], &[2, 0, 0, 0, 0, 2, 8, 6], &[7; 46]].concat();
    let frames = [arp([0xff; 6]), arp([2, 0, 0, 0, 0, 1]), arp([2, 0, 0, 0, 0, 77])];
    let mut batch = MbufBatch::new();
    for frame in &frames {
        let mut mbuf = target.pool.alloc().expect("mbufs");
        mbuf.set_len(frame.len()).expect("fits");
        mbuf.as_mut_slice().copy_from_slice(frame);
        batch.push(mbuf).expect("room");
    }
    assert_eq!(target.peer.tx_burst(&mut batch), 3);
    for expected in &frames[..2] {
        let mut got = None;
        eventually("the frame", || {
            got = target.node.control.recv_frame();
            got.is_some()
        });
        let got = got.expect("waited for");
        assert_eq!((got.port, got.mbuf.as_slice()), (1, &expected[..]));
    }
    eventually("the third", || target.dropped(DropReason::NotForUs) == 1);
    assert!(target.node.control.recv_frame().is_none());

    // The other direction.
    target.node.control.send_frame(1, &frames[0]).expect("sends");
    assert!(target.node.control.send_frame(2, &frames[0]).is_err(), "no such port");
    assert!(target.node.control.send_frame(1, &[0; 5000]).is_err(), "too long");
    let mut answers = Vec::new();
    eventually("the frame at the peer", || {
        answers = target.answers();
        !answers.is_empty()
    });
    assert_eq!(answers, [frames[0].clone()]);
    target.finish();
}

#[test]
fn other_addresses_take_effect_at_once() {
    let mut target = Target::new();
    let path = target.path();
    let (bth, ext) = write_only(Qpn::new(5));
    let before = frame(&path, &bth, &ext, &[]);
    let moved = PortAddresses { mac: Mac([2, 0, 0, 0, 1, 1]), ..addresses(8) };
    let path = Encap { dst_mac: moved.mac, dst: moved.gids[0], ..path };
    let after = frame(&path, &bth, &ext, &[]);
    target.send(std::slice::from_ref(&before));
    assert_eq!(target.dropped(DropReason::UnknownQpn), 1);
    target.node.control.set_addresses(1, moved.clone()).expect("sets");
    assert_eq!(target.node.control.addresses(1), Some(&moved));
    target.send(&[before, after]);
    assert_eq!(target.dropped(DropReason::UnknownQpn), 2);
    assert_eq!(target.dropped(DropReason::NotForUs), 1);
    target.finish();
}

#[test]
fn a_control_plane_that_does_not_look_loses_frames_and_nothing_else() {
    let mut target = Target::new();
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 2, 8, 6], &[7; 46]].concat();
    for _ in 0..10 {
        let mut batch = MbufBatch::new();
        for _ in 0..30 {
            let mut mbuf = target.pool.alloc().expect("mbufs");
            mbuf.set_len(arp.len()).expect("fits");
            mbuf.as_mut_slice().copy_from_slice(&arp);
            batch.push(mbuf).expect("room");
        }
        eventually("room", || {
            target.peer.tx_burst(&mut batch);
            batch.is_empty()
        });
    }
    eventually("the rest", || target.dropped(DropReason::SlowPathFull) == 300 - 256);
    let kept = std::iter::from_fn(|| target.node.control.recv_frame()).count();
    assert_eq!(kept, 256);
    target.finish();
}

#[test]
fn an_lcore_that_does_not_turn_loses_what_is_handed_over_and_nothing_else() {
    const FRAMES: usize = 1100;
    let mut target = Target::with_lcores(2);
    let wish = QpWish { lcores: [Some(1), None], ..QpWish::default() };
    let qp = target.node.create_qp(&wish);
    // In RESET the QP's own lcore drops each packet, for that reason.
    let guard = target.node.engine.adopt(1).expect("free");
    let (bth, ext) = write_only(qp.qpn);
    let bytes = frame(&target.path(), &bth, &ext, &[]);
    target.send(&vec![bytes; FRAMES]);
    let counters = target.node.engine.counters();
    assert_eq!(counters.engine(EngineCounter::HandedOver), 1024);
    assert_eq!(counters.dropped(DropReason::HandOverFull), FRAMES as u64 - 1024);
    drop(guard);
    eventually("the rest", || target.dropped(DropReason::QpNotReady) == 1024);
    target.finish();
}

/// An EEC with EEC 2 at `peer_addresses` as its peer, and an RD QP with a receive, of one domain.
fn datagram_ends(target: &mut Target, domain: &Arc<RdDomain>) -> [lab::TestQp; 2] {
    let Target { node, peer_addresses, .. } = target;
    let ends = [QpType::Eec, QpType::Rd].map(|qp_type| node.create_in(domain, qp_type));
    node.connect_eec(&ends[0], peer_addresses, Qpn::new(2), &QpWish::default());
    node.start_rd(&ends[1], Qkey(9));
    ends
}

#[test] //= check R20 test
fn packets_of_rd_find_an_eec_on_whatever_lcore_and_hostile_ones_harm_no_other() {
    // All packets arrive at lcore 0.
    let mut target = Target::with_lcores(2);
    let rc = target.qp();
    let mut homes = Vec::new();
    for round in 0..2 {
        let domain = Arc::new(target.node.engine.open_rd_domain());
        homes.push(domain.home());
        let [eec, mut qp] = datagram_ends(&mut target, &domain);
        assert_eq!([eec.lcore, qp.lcore], [domain.home(); 2]);
        let region = target.node.register(qp.pd, 4096, AccessFlags::all());
        qp.recv(1, &[region.sge(0, 4096)]);
        let path = target.path();
        let rdeth = |eecn: Qpn| Rdeth { eecn: eecn.value() };
        let deth = Deth { qkey: Qkey(9), src_qpn: Qpn::new(5) };
        let bth = Bth { opcode: OpCode::RD_SEND_ONLY, ..write_only(qp.qpn).0 };
        let ext = ExtHeaders { rdeth: rdeth(eec.qpn), deth, ..ExtHeaders::default() };
        target.send(&[frame(&path, &bth, &ext, &[7; 100])]);
        let received = qp.completion();
        assert_eq!((received.wr_id, received.byte_len, received.src_qpn), (1, 100, Qpn::new(5)));
        assert_eq!(received.eecn(), Some(eec.qpn));

        let mut random = 0x9e37_79b9_u64 + round;
        let mut any = |count: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as usize % count
        };
        let numbers = [eec.qpn, eec.qpn, qp.qpn, rc.qpn, Qpn::GSI, Qpn::new(7), Qpn::new(0)];
        let frames: Vec<_> = (0..2000)
            .map(|_| {
                let opcode = OpCode(OpCode::RD_SEND_FIRST.0 + any(32) as u8);
                let psn = Psn::new(0xff_fff0).plus(any(8) as u32).minus(any(4) as u32);
                let dest_qpn = [qp.qpn, numbers[any(7)]][any(2)];
                let bth = Bth { opcode, psn, dest_qpn, ..bth };
                let deth = Deth { qkey: Qkey(8 + any(2) as u32), ..deth };
                let reth = Reth { va: region.va(), rkey: region.keys.rkey, dma_len: 4096 };
                let rdeth = rdeth(numbers[any(7)]);
                let ext = ExtHeaders { rdeth, deth, reth, ..ExtHeaders::default() };
                frame(&path, &bth, &ext, &vec![7; [0, 8, 100, 4096][any(4)]])
            })
            .collect();
        target.send(&frames);
        eventually("packets to no EEC", || target.dropped(DropReason::UnknownEecn) > 100);
        assert_eq!(rc.sq.state(), QpState::Rts);
        for qp in [eec, qp] {
            target.node.control.destroy_qp(qp.qpn).expect("destroyed");
            let _gone = qp;
        }
        drop(region);
    }
    homes.sort_unstable();
    assert_eq!(homes, [0, 1]);
    target.finish();
}
