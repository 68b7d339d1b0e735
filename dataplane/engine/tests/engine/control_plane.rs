//! Frames, notices and events that reach the control plane, and its calls that change ports. One
//! process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, Node, QpWish, TestQp, eventually};
use std::time::{Duration, Instant};
use uroce_engine::mbuf::{MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::port::vdev::{self, MemifRole};
use uroce_engine::port::{Port, PortConfig};
use uroce_engine::{
    ControlError, Engine, EngineConfig, EngineCounter, EventKind, IdlePolicy, LossConfig,
    PortAddresses, PortBinding, Subject,
};
use uroce_transport::{AccessFlags, DropReason, QpChange, QpState, SendOp, WcStatus};
use uroce_wire::{
    Bth, Deth, Encap, ExtHeaders, Frame, Gid, Mac, OpCode, Packet, Pkey, Qkey, Qpn, Rkey, Va,
    emit_headers, seal,
};

const MAD: usize = 256;

/// A management datagram from one node to the other.
fn mad(from: &Node, to: &Node, first: u8) -> Vec<u8> {
    let path = Encap {
        src_mac: from.addresses.mac,
        dst_mac: to.addresses.mac,
        src: from.addresses.gids[0],
        dst: to.addresses.gids[0],
        hop_limit: 64,
        src_port: 0xc000,
        ..Encap::default()
    };
    let bth = Bth {
        opcode: OpCode::UD_SEND_ONLY,
        dest_qpn: Qpn::GSI,
        pkey: Pkey::DEFAULT,
        ..Bth::default()
    };
    let deth = Deth { qkey: Qkey(0x8001_0000), src_qpn: Qpn::GSI };
    let mut payload = [0x5a; MAD];
    payload[0] = first;
    let mut out = vec![0; 400];
    let template = path.template();
    let transport_len = Bth::LEN + Deth::LEN + MAD + 4;
    let mut at = template.emit(&mut out, transport_len);
    let ext = ExtHeaders { deth, ..ExtHeaders::default() };
    at += emit_headers(&bth, &ext, &mut out[at..]).expect("room");
    out[at..at + MAD].copy_from_slice(&payload);
    out.truncate(at + MAD + 4);
    seal(&mut out[usize::from(template.l3_offset)..]).expect("IP");
    out
}

fn arp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].fill(0xff);
    frame[12..14].copy_from_slice(&[0x08, 0x06]);
    frame
}

#[test]
fn packets_to_qp_1_come_whole_and_in_order_and_a_wrong_icrc_does_not() {
    let Lab { mut a, mut b, pool } = Lab::new(&LabConfig::default());
    let mut broken = mad(&a, &b, 9);
    *broken.last_mut().expect("bytes") ^= 1;
    a.control.send_frame(1, &broken).expect("sent");
    for first in 0..3 {
        a.control.send_frame(1, &mad(&a, &b, first)).expect("sent");
    }
    for first in 0..3 {
        let mut got = None;
        eventually("a packet to QP 1", || {
            got = b.control.recv_mad();
            got.is_some()
        });
        let frame = got.expect("waited for");
        assert_eq!(frame.port, 1);
        let Ok(Frame::Roce(datagram)) = Frame::parse(frame.mbuf.as_slice()) else {
            panic!("RoCEv2")
        };
        assert_eq!(datagram.src, a.addresses.gids[0]);
        let packet = Packet::parse(datagram.transport).expect("whole");
        assert_eq!((packet.payload[0], packet.payload.len()), (first, MAD));
        assert_eq!(packet.ext.deth.src_qpn, Qpn::GSI);
    }
    let counters = b.engine.counters();
    assert_eq!(counters.dropped(DropReason::BadIcrc), 1);
    assert_eq!(counters.engine(EngineCounter::RxGsi), 3);
    assert!(b.control.recv_frame().is_none());
    Lab { a, b, pool }.finish();
}

#[test] //= check J13 test
fn a_flood_of_packets_to_qp_1_is_bounded_and_leaves_address_resolution_alone() {
    const FLOOD: u64 = 1_000;
    let Lab { mut a, mut b, pool } = Lab::new(&LabConfig::default());
    let flood = mad(&a, &b, 0);
    for _ in 0..FLOOD {
        eventually("room", || a.control.send_frame(1, &flood).is_ok());
    }
    eventually("room", || a.control.send_frame(1, &arp()).is_ok());
    eventually("the end of the flood", || b.engine.counters().engine(EngineCounter::RxOther) == 1);
    let counters = b.engine.counters();
    assert_eq!(counters.engine(EngineCounter::RxGsi), 256);
    assert_eq!(counters.dropped(DropReason::GsiFull), FLOOD - 256);
    assert_eq!(counters.dropped(DropReason::SlowPathFull), 0);
    assert!(b.control.recv_frame().is_some());
    // The frames that were not taken are freed with the engine.
    Lab { a, b, pool }.finish();
}

#[test]
fn the_control_plane_sleeps_until_there_is_something() {
    let Lab { mut a, mut b, pool } = Lab::new(&LabConfig::default());
    while b.control.next_link_change().is_some() {}
    let frame = mad(&a, &b, 1);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let (waker, control) = (b.control.waker().clone(), &mut b.control);
        let sleeper = scope.spawn(move || {
            while control.recv_mad().is_none() {
                control.sleep(Duration::from_secs(60), || false);
            }
            // Nothing waits: only the waker ends this sleep.
            control.sleep(Duration::from_secs(60), || false);
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!sleeper.is_finished());
        a.control.send_frame(1, &frame).expect("sent");
        while !sleeper.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
            waker.wake();
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(20), "it slept on");
    Lab { a, b, pool }.finish();
}

/// Returns the next change of a link.
fn next_change(node: &mut Node) -> (u8, bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(change) = node.control.next_link_change() {
            return change;
        }
        assert!(Instant::now() < deadline, "no change of a link");
        node.control.sleep(Duration::from_secs(20), || false);
    }
}

#[test]
fn a_ring_taken_down_at_one_end_is_down_at_both_and_loses_everything_until_it_is_up() {
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish { timeout: 12, ..QpWish::default() };
    let (mut a, b) = lab.connect(&wish);
    let local = lab.a.register(a.pd, 64, AccessFlags::all());
    let remote = lab.b.register(b.pd, 64, AccessFlags::all());
    assert_eq!(next_change(&mut lab.a), (1, true), "up from the start");
    assert_eq!(next_change(&mut lab.b), (1, true));
    assert!(lab.a.control.next_link_change().is_none());

    lab.b.control.set_link(1, false).expect("a port");
    assert_eq!(next_change(&mut lab.a), (1, false));
    assert_eq!(next_change(&mut lab.b), (1, false));
    assert!(!lab.a.control.port(1).expect("a port").link().up);
    let before = lab.a.engine.counters();
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 64)]);
    // The frame is lost, sent again, and lost again: the port is never full.
    let lost = |lab: &Lab| lab.a.engine.counters().since(&before).engine(EngineCounter::TxLinkDown);
    eventually("a retry", || lost(&lab) >= 2);
    assert_eq!(a.cq.poll(), Ok(None));

    lab.b.control.set_link(1, true).expect("a port");
    assert_eq!(next_change(&mut lab.a), (1, true));
    assert_eq!(next_change(&mut lab.b), (1, true));
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(lab.a.control.set_link(2, true), Err(ControlError::NoSuchPort(2)));
    drop((local, remote));
    lab.finish();
}

fn addresses_of(host: u8) -> PortAddresses {
    let gids = vec![Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host))];
    PortAddresses { mac: Mac([2, 0, 0, 0, 0, host]), vlan: None, gids }
}

/// Makes an engine over a port.
fn node(host: u8, port: Port, pool: &Mempool) -> Node {
    let (addresses, loss) = (addresses_of(host), LossConfig::default());
    let binding = PortBinding {
        port,
        pool: pool.clone(),
        addresses: addresses.clone(),
        loss,
        bottleneck: None,
    };
    let config = EngineConfig { idle: IdlePolicy::Yield, ..EngineConfig::default() };
    let (engine, control) = Engine::start(config, vec![binding]).expect("starts");
    Node { engine, control, addresses }
}

/// Makes an engine over memif; host 1 is the server.
fn memif_node(host: u8, pool: &Mempool) -> Node {
    let socket = std::env::temp_dir().join(format!("uroce-links-{}.sock", std::process::id()));
    let role = if host == 1 { MemifRole::Server } else { MemifRole::Client };
    let device = vdev::memif(u16::from(host), role, &socket, 4200, 512);
    let config = PortConfig { mtu: 4200, ..PortConfig::new(device) };
    let port = Port::open(lab::eal(), &config, pool).expect("memif needs no privilege");
    node(host, port, pool)
}

/// Makes a QP that is connected to a QP of another host, which need not exist.
fn connected(node: &mut Node, peer: u8, dest: Qpn, wish: &QpWish) -> TestQp {
    let mut qp = node.create_qp(wish);
    node.bring_up(&mut qp, &addresses_of(peer), dest, wish);
    qp
}

#[test]
fn a_memif_link_tells_both_ends_when_it_is_taken_down_and_let_up_again() {
    let geometry = PoolConfig { count: 8191, cache: 64, room: 9216, ..PoolConfig::default() };
    let pool = Mempool::create(lab::eal(), &geometry).expect("mempool");
    let mut nodes = [1, 2].map(|host| memif_node(host, &pool));
    let wish = QpWish { timeout: 15, ..QpWish::default() };
    let [a, b] = &mut nodes;
    let [mut qp, peer] = [a.create_qp(&wish), b.create_qp(&wish)];
    a.bring_up(&mut qp, &b.addresses, peer.qpn, &wish);
    for change in lab::changes(&b.addresses, &a.addresses, qp.qpn, &wish) {
        b.control.modify_qp(peer.qpn, &change).expect("Modify QP");
    }
    let local = a.register(qp.pd, 64, AccessFlags::all());
    let remote = b.register(peer.pd, 64, AccessFlags::all());
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    for node in &mut nodes {
        assert_eq!(next_change(node), (1, true));
    }
    for at in [0, 1] {
        nodes[at].control.set_link(1, false).expect("a port");
        for node in &mut nodes {
            assert_eq!(next_change(node), (1, false));
            assert!(!node.control.port(1).expect("a port").link().up);
        }
        let before = nodes[0].engine.counters();
        qp.send(at as u64, op, &[local.sge(0, 64)]);
        eventually("a retry", || {
            let since = nodes[0].engine.counters().since(&before);
            since.engine(EngineCounter::TxLinkDown) >= 2
        });
        nodes[at].control.set_link(1, true).expect("a port");
        for node in &mut nodes {
            assert_eq!(next_change(node), (1, true));
        }
        assert_eq!(qp.completion().status, WcStatus::Success, "it goes on by itself");
    }
    drop((local, remote));
    drop(nodes);
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

#[test]
fn a_link_that_does_not_come_up_loses_what_it_is_given_until_it_does() {
    let geometry = PoolConfig { count: 8191, cache: 64, room: 9216, ..PoolConfig::default() };
    let pool = Mempool::create(lab::eal(), &geometry).expect("mempool");
    // Timeouts of 16 ms, four times; and of half a second, eight times.
    let hasty = QpWish { timeout: 12, retry_cnt: 3, ..QpWish::default() };
    let patient = QpWish::default();
    let mut client = memif_node(2, &pool);
    assert_eq!(client.control.next_link_change(), None, "there is no server");
    let absent = Qpn::new(77);
    let op = |va, rkey| SendOp::Write { va, rkey, imm: None };
    let mut early = connected(&mut client, 1, absent, &hasty);
    early.send(1, op(Va(0), Rkey(0)), &[]);
    assert_eq!(early.completion().status, WcStatus::RetryExcErr);
    eventually("a loss", || client.engine.counters().engine(EngineCounter::TxStuck) == 4);

    let mut server = memif_node(1, &pool);
    for node in [&mut client, &mut server] {
        assert_eq!(next_change(node), (1, true));
    }
    let mut qp = client.create_qp(&patient);
    let peer = connected(&mut server, 2, qp.qpn, &patient);
    let remote = server.register(peer.pd, 64, AccessFlags::all());
    client.bring_up(&mut qp, &addresses_of(1), peer.qpn, &patient);
    qp.send(2, op(remote.va(), remote.keys.rkey), &[]);
    assert_eq!(qp.completion().status, WcStatus::Success);
    for node in [&client, &server] {
        let counters = node.engine.counters();
        assert!(counters.engine(EngineCounter::TxStuck) <= 4, "nothing more is lost");
        assert_eq!(counters.engine(EngineCounter::TxLinkDown), 0);
        assert_eq!(counters.engine(EngineCounter::RxLinkDown), 0);
    }
    drop((remote, client, server));
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

#[test]
fn frames_that_have_left_are_with_the_port() {
    let pool = Mempool::create(lab::eal(), &PoolConfig::default()).expect("mempool");
    let (port, far) = ring_pair(lab::eal(), "flush", 1, 64, 4200, &pool).expect("rings");
    let mut node = node(1, port, &pool);
    let mut queue = far.queue_pair(0).expect("free");
    let mut batch = MbufBatch::new();
    for _ in 0..200 {
        node.control.send_frame(1, &arp()).expect("sent");
        eventually("the frame has left", || node.control.frames_have_left());
        assert_eq!(queue.rx_burst(&mut batch), 1);
        batch.clear();
    }
}

#[test]
fn what_is_sent_while_a_link_comes_up_is_not_lost() {
    let geometry = PoolConfig { count: 8191, cache: 64, room: 9216, ..PoolConfig::default() };
    let pool = Mempool::create(lab::eal(), &geometry).expect("mempool");
    let mut client = memif_node(2, &pool);
    assert_eq!(client.control.next_link_change(), None, "there is no server");
    client.control.send_frame(1, &arp()).expect("sent");
    let refused = || client.engine.counters().engine(EngineCounter::TxFull) > 0;
    eventually("a port that takes nothing", refused);
    let begun = Instant::now();
    let mut server = memif_node(1, &pool);
    assert_eq!(next_change(&mut client), (1, true));
    // If the server takes longer than that, the frame may be lost.
    if begun.elapsed() < Duration::from_millis(500) {
        eventually("the frame", || server.control.recv_frame().is_some());
    }
    drop((client, server));
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

#[test]
fn a_peer_that_hangs_while_the_link_is_up_does_not_keep_retries_from_ending() {
    let geometry = PoolConfig { count: 4095, cache: 64, room: 4400, ..PoolConfig::default() };
    let pool = Mempool::create(lab::eal(), &geometry).expect("mempool");
    let (port, hung) = ring_pair(lab::eal(), "hung", 1, 64, 4200, &pool).expect("rings");
    let mut node = node(1, port, &pool);
    assert_eq!(node.control.next_link_change(), Some((1, true)));
    let wish = QpWish { timeout: 12, retry_cnt: 3, ..QpWish::default() };
    let mut qp = connected(&mut node, 2, Qpn::new(77), &wish);
    let local = node.register(qp.pd, 40_000, AccessFlags::all());
    // More than the port and its batch can hold.
    for id in 0..20 {
        let op = SendOp::Write { va: Va(0), rkey: Rkey(0), imm: None };
        qp.send(id, op, &[local.sge(0, 40_000)]);
    }
    assert_eq!(qp.completion().status, WcStatus::RetryExcErr);
    assert!(node.engine.counters().engine(EngineCounter::TxStuck) > 0);

    // The frames that it held are taken at last, and later frames are not lost any more.
    let lost = || node.engine.counters().engine(EngineCounter::TxStuck);
    let (before, mut batch) = (lost(), MbufBatch::new());
    let mut queue = hung.queue_pair(0).expect("free");
    eventually("an empty port", || {
        batch.clear();
        queue.rx_burst(&mut batch) == 0
    });
    node.control.send_frame(1, &arp()).expect("sent");
    eventually("the frame", || queue.rx_burst(&mut batch) == 1);
    assert_eq!(lost(), before);
    drop((local, node, batch, queue, hung));
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

#[test]
fn a_driver_with_a_link_interrupt_tells_by_itself() {
    let geometry = PoolConfig { count: 4095, cache: 64, room: 9216, ..PoolConfig::default() };
    let pool = Mempool::create(lab::eal(), &geometry).expect("mempool");
    let socket = std::env::temp_dir().join(format!("uroce-lsc-{}.sock", std::process::id()));
    let open = |device| {
        let config = PortConfig { mtu: 1500, ..PortConfig::new(device) };
        Port::open(lab::eal(), &config, &pool).expect("the driver is installed")
    };
    let port = open(vdev::vhost(0, &socket, 1));
    assert!(port.capabilities().link_interrupt);
    let addresses = PortAddresses::default();
    let binding = PortBinding {
        port,
        pool: pool.clone(),
        addresses,
        loss: LossConfig::default(),
        bottleneck: None,
    };
    let config = EngineConfig { idle: IdlePolicy::Yield, ..EngineConfig::default() };
    let (engine, control) = Engine::start(config, vec![binding]).expect("starts");
    let mut node = Node { engine, control, addresses: PortAddresses::default() };
    assert_eq!(node.control.next_link_change(), None, "no QP is connected");
    let guest = open(vdev::virtio_user(0, &socket, 1, 256, None));
    assert_eq!(next_change(&mut node), (1, true));
    drop(guest);
    assert_eq!(next_change(&mut node), (1, false));
}

#[test]
fn loss_is_set_while_packets_flow() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish { timeout: 12, ..QpWish::default() });
    let local = lab.a.register(a.pd, 64, AccessFlags::all());
    let remote = lab.b.register(b.pd, 64, AccessFlags::all());
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    let all = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };
    lab.b.control.set_loss(1, all).expect("a port");
    a.send(1, op, &[local.sge(0, 64)]);
    eventually("loss", || lab.b.engine.counters().engine(EngineCounter::RxLost) >= 2);
    assert_eq!(a.cq.poll(), Ok(None));
    lab.b.control.set_loss(1, LossConfig::default()).expect("a port");
    assert_eq!(a.completion().status, WcStatus::Success);
    let negative = LossConfig { tx: -0.1, ..all };
    assert_eq!(lab.b.control.set_loss(1, negative), Err(ControlError::Loss));
    assert_eq!(lab.b.control.set_loss(2, all), Err(ControlError::NoSuchPort(2)));
    drop((local, remote));
    lab.finish();
}

#[test]
fn the_control_plane_learns_of_those_qps_that_it_asked_for() {
    let Lab { mut a, mut b, pool } = Lab::new(&LabConfig::default());
    let quiet = QpWish::default();
    let wish = QpWish { notices: true, ..quiet };
    let mut watched = b.create_qp(&wish);
    let mut unwatched = b.create_qp(&quiet);
    let [mut first, mut second] = [a.create_qp(&quiet), a.create_qp(&quiet)];
    let (own, peer) = (a.addresses.clone(), b.addresses.clone());
    for (qp, other) in [(&mut watched, first.qpn), (&mut unwatched, second.qpn)] {
        let changes = lab::changes(&peer, &own, other, &wish);
        for change in &changes[..2] {
            b.control.modify_qp(qp.qpn, change).expect("to RTR");
        }
    }
    for (qp, other) in [(&mut first, watched.qpn), (&mut second, unwatched.qpn)] {
        a.bring_up(qp, &peer, other, &quiet);
        let region = b.register(
            if other == watched.qpn { watched.pd } else { unwatched.pd },
            8,
            AccessFlags::all(),
        );
        let op = SendOp::Write { va: region.va(), rkey: region.keys.rkey, imm: None };
        qp.send(1, op, &[]);
        assert_eq!(qp.completion().status, WcStatus::Success);
    }
    let mut notice = None;
    eventually("COMM_EST", || {
        notice = b.control.next_notice();
        notice.is_some()
    });
    assert_eq!(notice, Some((watched.qpn, EventKind::CommEst)));
    assert_eq!(b.control.next_notice(), None);
    let mut events = Vec::new();
    while let Some(event) = b.engine.events().try_next().expect("works") {
        events.push((event.subject, event.kind));
    }
    let comm_est = |qp: &lab::TestQp| (Subject::Qp(qp.qpn), EventKind::CommEst);
    assert_eq!(
        events,
        [comm_est(&watched), comm_est(&unwatched)],
        "the application learns of both"
    );

    // A notice that was not taken is discarded with its QP.
    let to_rts = lab::changes(&peer, &own, first.qpn, &wish)[2];
    b.control.modify_qp(watched.qpn, &to_rts).expect("to RTS");
    b.control.modify_qp(watched.qpn, &QpChange::to(QpState::Reset)).expect("reset");
    let changes = lab::changes(&peer, &own, first.qpn, &wish);
    changes[..2].iter().for_each(|change| b.control.modify_qp(watched.qpn, change).expect("RTR"));
    a.control.modify_qp(first.qpn, &QpChange::to(QpState::Reset)).expect("reset");
    a.bring_up(&mut first, &peer, watched.qpn, &quiet);
    first.send(
        2,
        SendOp::Write { va: uroce_wire::Va(0), rkey: uroce_wire::Rkey(0), imm: None },
        &[],
    );
    assert_eq!(first.completion().status, WcStatus::Success);
    b.control.destroy_qp(watched.qpn).expect("destroys");
    assert_eq!(b.control.next_notice(), None);
    Lab { a, b, pool }.finish();
}

#[test]
fn the_number_of_an_abandoned_qp_is_free_when_its_owner_has_destroyed_it_too() {
    let Lab { mut a, b, pool } = Lab::new(&LabConfig::default());
    let qp = a.create_qp(&QpWish::default());
    a.control.destroy_qp(qp.qpn).expect("destroys");
    a.control.abandon_qpn(qp.qpn);
    a.control.destroy_qp(qp.qpn).expect("it is the owner's");
    assert_eq!(a.control.destroy_qp(qp.qpn), Err(ControlError::UnknownQp(qp.qpn)));
    drop(qp);
    Lab { a, b, pool }.finish();
}

#[test]
fn events_of_ports_reach_the_application() {
    let Lab { a, mut b, pool } = Lab::new(&LabConfig::default());
    for kind in [EventKind::PortErr, EventKind::PortActive, EventKind::GidChange] {
        b.control.raise_port(1, kind).expect("a port");
        let event = b.engine.events().try_next().expect("works").expect("an event");
        assert_eq!((event.subject, event.kind), (Subject::Port(1), kind));
    }
    for port in [0, 2] {
        let refused = b.control.raise_port(port, EventKind::PortErr);
        assert_eq!(refused, Err(ControlError::NoSuchPort(port)));
    }
    Lab { a, b, pool }.finish();
}
