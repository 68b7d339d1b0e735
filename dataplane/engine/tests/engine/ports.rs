//! Engines with two ports: IPv4 untagged on the first, IPv6 in a VLAN on the second. One process
//! per test.

use crate::lab;
use crate::lab::{Buffer, Node, QpWish, eventually, pattern};
use uroce_engine::mbuf::{MbufBatch, Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::{Engine, EngineConfig, EngineCounter, IdlePolicy, LossConfig};
use uroce_engine::{PortAddresses, PortBinding, SendFrameError};
use uroce_transport::{AccessFlags, DropReason, QpChange, QpState, SendOp, WcStatus};
use uroce_wire::{Gid, Mac, Vlan};

fn addresses(host: u8, port: u8) -> PortAddresses {
    let mac = Mac([2, 0, 0, 0, port, host]);
    if port == 1 {
        let gid = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host));
        return PortAddresses { mac, vlan: None, gids: vec![gid] };
    }
    let gid = Gid::from(std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)));
    PortAddresses { mac, vlan: Some(7), gids: vec![gid] }
}

/// Takes a QP from RESET to RTS through a port.
fn bring_up(node: &mut Node, host: u8, port: u8, qp: &lab::TestQp, dest: uroce_wire::Qpn) {
    let (own, peer) = (addresses(host, port), addresses(3 - host, port));
    let mut changes = lab::changes(&own, &peer, dest, &QpWish::default());
    changes[0].port = Some(port);
    if let Some(path) = &mut changes[1].path {
        path.encap.vlan = own.vlan.map(|vid| Vlan { vid, pcp: 3 });
    }
    for change in changes {
        node.control.modify_qp(qp.qpn, &change).expect("Modify QP");
    }
}

fn write(a: &mut lab::TestQp, local: &Buffer, remote: &Buffer, seed: u64) {
    local.fill(seed);
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(seed, op, &[local.sge(0, 50_000)]);
    assert_eq!(a.completion().status, WcStatus::Success);
    assert_eq!(remote.bytes(), pattern(seed, 50_000));
}

/// Makes two engines; their first ports are joined, and their second ports.
fn nodes(pool: &Mempool) -> [Node; 2] {
    let eal = lab::eal();
    let pairs = ["one", "two"].map(|name| ring_pair(eal, name, 1, 512, 4200, pool).expect("rings"));
    let (firsts, seconds): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    [(1, firsts), (2, seconds)].map(|(host, ports)| {
        let bindings = ports.into_iter().zip(1..).map(|(port, number)| PortBinding {
            port,
            pool: pool.clone(),
            addresses: addresses(host, number),
            loss: LossConfig::default(),
            bottleneck: None,
        });
        let (max_qps, max_mrs, idle) = (16, 16, IdlePolicy::Yield);
        let config = EngineConfig { max_qps, max_mrs, idle, ..EngineConfig::default() };
        let (engine, control) = Engine::start(config, bindings.collect()).expect("starts");
        Node { engine, control, addresses: addresses(host, 1) }
    })
}

fn create_pool() -> Mempool {
    let geometry = PoolConfig { count: 2047, cache: 64, room: 4400, ..PoolConfig::default() };
    Mempool::create(lab::eal(), &geometry).expect("mempool")
}

#[test] //= check E16 test
fn a_packet_that_comes_in_at_another_port_than_its_qps_is_dropped() {
    let pool = create_pool();
    let [mut a, mut b] = nodes(&pool);
    let [mut qp_a, qp_b] = [a.create_qp(&QpWish::default()), b.create_qp(&QpWish::default())];
    let local = a.register(qp_a.pd, 64, AccessFlags::all());
    let remote = b.register(qp_b.pd, 64, AccessFlags::all());
    bring_up(&mut b, 2, 2, &qp_b, qp_a.qpn);
    // All addresses of the sender are right, but it sends through its first port.
    let (own, peer) = (addresses(1, 2), addresses(2, 2));
    let mut changes = lab::changes(&own, &peer, qp_b.qpn, &QpWish::default());
    if let Some(path) = &mut changes[1].path {
        path.encap.vlan = own.vlan.map(|vid| Vlan { vid, pcp: 3 });
    }
    for change in changes {
        a.control.modify_qp(qp_a.qpn, &change).expect("Modify QP");
    }
    b.control.set_addresses(1, addresses(2, 2)).expect("sets");
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    local.fill(1);
    qp_a.send(1, op, &[local.sge(0, 64)]);
    eventually("the drop", || b.engine.counters().dropped(DropReason::WrongSource) > 0);
    assert_eq!(remote.bytes(), [0; 64]);
    assert_eq!(qp_b.sq.state(), QpState::Rts);
    assert_eq!(b.engine.counters().engine(EngineCounter::TxPackets), 0);
    drop((local, remote, a, b));
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

#[test]
fn a_qp_sends_by_the_port_of_its_attributes() {
    let pool = create_pool();
    let [mut a, mut b] = nodes(&pool);
    let [mut qp_a, qp_b] = [a.create_qp(&QpWish::default()), b.create_qp(&QpWish::default())];
    let local = a.register(qp_a.pd, 50_000, AccessFlags::all());
    let remote = b.register(qp_b.pd, 50_000, AccessFlags::all());
    for port in [2, 1, 2] {
        let before = [1, 2].map(|port| b.control.port(port).expect("there").stats().rx_packets);
        bring_up(&mut a, 1, port, &qp_a, qp_b.qpn);
        bring_up(&mut b, 2, port, &qp_b, qp_a.qpn);
        write(&mut qp_a, &local, &remote, u64::from(port));
        let after = [1, 2].map(|port| b.control.port(port).expect("there").stats().rx_packets);
        let used = [1, 2].map(|port: usize| after[port - 1] > before[port - 1]);
        assert_eq!(used, [port == 1, port == 2]);
        let reset = QpChange::to(QpState::Reset);
        a.control.modify_qp(qp_a.qpn, &reset).expect("RESET");
        b.control.modify_qp(qp_b.qpn, &reset).expect("RESET");
    }
    assert_eq!(b.engine.counters().dropped_in_all(), 0);

    // The same addresses without the tag are not the port's.
    bring_up(&mut a, 1, 2, &qp_a, qp_b.qpn);
    bring_up(&mut b, 2, 2, &qp_b, qp_a.qpn);
    let untagged = PortAddresses { vlan: None, ..addresses(2, 2) };
    b.control.set_addresses(2, untagged).expect("sets");
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    qp_a.send(9, op, &[local.sge(0, 64)]);
    eventually("the drop", || b.engine.counters().dropped(DropReason::NotForUs) > 0);
    assert_eq!(qp_a.cq.poll(), Ok(None));
    // The retransmission arrives when the port is in its VLAN again.
    b.control.set_addresses(2, addresses(2, 2)).expect("sets");
    assert_eq!(qp_a.completion().status, WcStatus::Success);

    assert!(a.engine.counters().engine(EngineCounter::TxPackets) > 0);
    drop((local, remote, a, b));
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

#[test]
fn a_frame_longer_than_an_mbuf_is_counted_by_the_engine() {
    use uroce_engine::port::vdev::{MemifRole, memif};
    use uroce_engine::port::{Port, PortConfig};
    const LONG: u16 = 4200;
    let eal = lab::eal();
    let pool = |room| {
        let geometry = PoolConfig { count: 2047, cache: 64, room, ..PoolConfig::default() };
        Mempool::create(eal, &geometry).expect("mempool")
    };
    let (long, short) = (pool(9216), pool(1600));
    let socket = std::env::temp_dir().join(format!("uroce-not-linear-{}", std::process::id()));
    let open = |number, role, mtu, pool: &Mempool| {
        let device = memif(number, role, &socket, mtu, 512);
        let config = PortConfig { mtu, ..PortConfig::new(device) };
        Port::open(eal, &config, pool).expect("memif needs no privilege")
    };
    let port = open(0, MemifRole::Server, 1500, &short);
    let client = open(1, MemifRole::Client, LONG, &long);
    eventually("the link", || client.link().up && port.link().up);
    let (pool, loss) = (short.clone(), LossConfig::default());
    let binding = PortBinding { port, pool, addresses: addresses(1, 1), loss, bottleneck: None };
    let (max_qps, max_mrs, idle) = (16, 16, IdlePolicy::Yield);
    let config = EngineConfig { max_qps, max_mrs, idle, ..EngineConfig::default() };
    let (engine, control) = Engine::start(config, vec![binding]).expect("starts");

    let mut queue = client.queue_pair(0).expect("free");
    let mut batch = MbufBatch::new();
    for _ in 0..3 {
        let mut mbuf = long.alloc().expect("mbufs");
        mbuf.set_len(usize::from(LONG)).expect("fits");
        mbuf.as_mut_slice().fill(0xff);
        batch.push(mbuf).expect("room");
    }
    eventually("room", || {
        queue.tx_burst(&mut batch);
        batch.is_empty()
    });
    eventually("the drops", || engine.counters().dropped(DropReason::NotLinear) == 3);
    drop((control, queue, client));
    assert_eq!(short.available(), short.count(), "mbufs leaked");
}

#[test]
fn a_port_with_an_end_that_takes_nothing_keeps_no_frame_of_another_port() {
    const FRAME: [u8; 60] = [0xff; 60];
    let pool = create_pool();
    let pairs =
        ["one", "two"].map(|name| ring_pair(lab::eal(), name, 1, 64, 4200, &pool).expect("rings"));
    let (ports, ends): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let bindings = ports.into_iter().zip(1..).map(|(port, number)| PortBinding {
        port,
        pool: pool.clone(),
        addresses: addresses(1, number),
        loss: LossConfig::default(),
        bottleneck: None,
    });
    let config = EngineConfig { idle: IdlePolicy::Yield, ..EngineConfig::default() };
    let (engine, mut control) = Engine::start(config, bindings.collect()).expect("starts");
    eventually("a full port", || control.send_frame(1, &FRAME) == Err(SendFrameError::Full));
    control.send_frame(2, &FRAME).expect("the other port has room");
    let mut queue = ends[1].queue_pair(0).expect("free");
    let mut batch = MbufBatch::new();
    eventually("the frame", || queue.rx_burst(&mut batch) == 1);
    drop((batch, queue, control, engine, ends));
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}
