//! Ports that forward: frames leave again, unchanged or sent back, or are dropped; QPs get none.

use crate::lab;
use crate::lab::{Node, QpWish, eventually, pattern};
use uroce_engine::mbuf::{Mbuf, Mempool, PoolConfig};
use uroce_engine::port::Port;
use uroce_engine::port::ring::ring_pair;
use uroce_engine::{ControlError, Engine, EngineConfig, EngineCounter, FaultConfig, Forward};
use uroce_engine::{IdlePolicy, LossConfig, PortAddresses, PortBinding, PortFaults};
use uroce_engine::{TapFrame, TapSpec};
use uroce_transport::{AccessFlags, SendOp, WcStatus};
use uroce_wire::{Gid, Mac};

/// Frames of a ring between two engines.
const RING: u32 = 64;

fn addresses(host: u8) -> PortAddresses {
    let gid = Gid::from(std::net::Ipv4Addr::new(10, 0, 0, host));
    PortAddresses { mac: Mac([2, 0, 0, 0, 0, host]), vlan: None, gids: vec![gid] }
}

fn node(ports: Vec<(u8, Port, &Mempool)>, lcores: usize) -> Node {
    let addresses_of_node = addresses(ports[0].0);
    let bindings = ports.into_iter().map(|(host, port, pool)| PortBinding {
        port,
        pool: pool.clone(),
        addresses: addresses(host),
        loss: LossConfig::default(),
        bottleneck: None,
    });
    let (lcores, idle) = (vec![None; lcores], IdlePolicy::Yield);
    let config = EngineConfig { lcores, max_qps: 16, max_mrs: 16, idle, ..EngineConfig::default() };
    let (engine, control) = Engine::start(config, bindings.collect()).expect("starts");
    Node { engine, control, addresses: addresses_of_node }
}

/// Two hosts with a port each, and an engine between them with a port to each.
struct Line {
    one: Node,
    between: Node,
    other: Node,
    pools: Vec<Mempool>,
}

/// Makes a mempool without caches of threads: an allocation of all its mbufs leaves none.
fn pool() -> Mempool {
    let geometry = PoolConfig { count: 4095, cache: 0, room: 4400, ..PoolConfig::default() };
    Mempool::create(lab::eal(), &geometry).expect("mempool")
}

impl Line {
    fn new(lcores: usize) -> Line {
        let pool = pool();
        Line::of(lcores, 4200, [&pool; 3])
    }

    /// Makes a line with this MTU to the other host. The mempools are those of the hosts, of the
    /// port to the one and of the port to the other.
    fn of(lcores: usize, mtu: u16, pools: [&Mempool; 3]) -> Line {
        let [hosts, near_pool, far_pool] = pools;
        let pair = |name, ring, mtu| {
            ring_pair(lab::eal(), name, lcores as u16, ring, mtu, hosts).expect("rings")
        };
        let (left, near) = pair("left", 1024, 4200);
        let (right, far) = pair("right", RING, mtu);
        let one = node(vec![(1, left, hosts)], lcores);
        let other = node(vec![(2, right, hosts)], lcores);
        let between = node(vec![(3, near, near_pool), (4, far, far_pool)], lcores);
        Line { one, between, other, pools: pools.map(Mempool::clone).into() }
    }

    fn forward(&mut self, of: [Option<Forward>; 2]) {
        for (port, forward) in (1..).zip(of) {
            self.between.control.set_forward(port, forward).expect("a port");
        }
    }

    fn counter(&self, counter: EngineCounter) -> u64 {
        self.between.engine.counters().engine(counter)
    }

    fn finish(self) {
        let Line { one, between, other, pools } = self;
        [one, between, other].into_iter().for_each(|node| node.control.shutdown());
        pools.iter().for_each(all_are_back);
    }

    /// Writes 64 KiB from one host to the other `count` times, over a reliable connection.
    fn write(&mut self, count: u64) {
        let wish = QpWish { timeout: 12, ..QpWish::default() };
        let mut a = self.one.create_qp(&wish);
        let mut b = self.other.create_qp(&wish);
        let qpns = [a.qpn, b.qpn];
        self.one.bring_up(&mut a, &addresses(2), qpns[1], &wish);
        self.other.bring_up(&mut b, &addresses(1), qpns[0], &wish);
        let local = self.one.register(a.pd, 1 << 16, AccessFlags::all());
        let remote = self.other.register(b.pd, 1 << 16, AccessFlags::all());
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        for seed in 0..count {
            local.fill(seed);
            a.send(1, op, &[local.sge(0, 1 << 16)]);
            assert_eq!(a.completion().status, WcStatus::Success);
            assert_eq!(remote.bytes(), pattern(seed, 1 << 16));
        }
    }
}

fn all_are_back(pool: &Mempool) {
    assert_eq!(pool.available(), pool.count(), "mbufs leaked");
}

const IO: [Option<Forward>; 2] = [Some(Forward::Io { to: 2 }), Some(Forward::Io { to: 1 })];

/// Returns a frame that is not RoCEv2 between two hosts.
fn frame(from: u8, to: u8) -> Vec<u8> {
    let [from, to] = [from, to].map(|host| addresses(host).mac.0);
    [&to[..], &from, &[0x88, 0xb5], &[from[5]; 50]].concat()
}

fn received(node: &mut Node) -> Vec<u8> {
    let mut got = None;
    eventually("a frame", || {
        got = node.control.recv_frame();
        got.is_some()
    });
    got.expect("waited for").mbuf.as_slice().to_vec()
}

#[test]
fn a_connection_passes_an_engine_that_forwards_between_its_ports() {
    for lcores in [1, 2] {
        let mut line = Line::new(lcores);
        line.forward(IO);
        line.write(1);
        // Sixteen packets and an acknowledgement.
        assert!(line.counter(EngineCounter::Forwarded) >= 17);
        assert_eq!(line.counter(EngineCounter::RxPackets), 0, "no QP looks at them");
        line.finish();
    }
}

#[test]
fn checksums_are_computed_anew_and_a_connection_passes() {
    let mut line = Line::new(1);
    line.forward([Some(Forward::Csum { to: 2 }), Some(Forward::Csum { to: 1 })]);
    let header = b"\x45\0\0\x1e\0\0\x40\0\x40\x11\x55\x55\x0a\0\0\x01\x0a\0\0\x02";
    let udp = b"\0\x07\0\x09\0\x0a\x12\x34ab";
    let mut sent = frame(1, 2);
    sent.splice(12.., [&[0x08, 0x00], &header[..], udp].concat());
    line.one.control.send_frame(1, &sent).expect("sends");
    let got = received(&mut line.other);
    let mut right = sent.clone();
    uroce_wire::fill_checksums(&mut right);
    assert_ne!((&right[24..26], &right[40..42]), (&sent[24..26], &sent[40..42]));
    assert_eq!(got[..right.len()], right);
    line.write(2);
    line.finish();
}

#[test]
fn a_port_sends_copies_of_frames_that_are_in_mbufs_of_another_mempool() {
    let pools = [pool(), pool(), pool()];
    let [hosts, _, far] = &pools;
    let mut line = Line::of(1, 4200, pools.each_ref());
    line.forward(IO);
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    let mut got = None;
    eventually("a frame", || {
        got = line.other.control.recv_frame();
        got.is_some()
    });
    assert_eq!(got.as_ref().expect("waited for").mbuf.as_slice(), frame(1, 2));
    assert_eq!(far.available(), far.count() - 1, "it is the far port's");
    // The mbuf of the host is freed at the end of the lcore's turn.
    eventually("the host's mbuf", || hosts.available() == hosts.count());
    drop(got);

    let taken: Vec<Mbuf> = std::iter::from_fn(|| far.alloc().ok()).collect();
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    eventually("it", || line.between.control.unforwarded(2) == Ok(1));
    assert_eq!(line.counter(EngineCounter::ForwardDropped), 1, "there is no mbuf for a copy");
    drop(taken);
    // Both ways, and back through the port that a frame came from.
    line.write(2);
    line.forward([Some(Forward::Echo), None]);
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    assert_eq!(received(&mut line.one)[..6], frame(2, 1)[..6]);
    line.finish();
}

#[test]
fn frames_longer_than_the_mtu_of_the_port_are_dropped() {
    let pool = pool();
    let mut line = Line::of(1, 1500, [&pool; 3]);
    line.forward(IO);
    let mut tagged = frame(1, 2);
    drop(tagged.splice(12..12, [0x81, 0, 0, 7]));
    for (mut frame, longest) in [(frame(1, 2), 1514), (tagged, 1518)] {
        let before = [EngineCounter::Forwarded, EngineCounter::ForwardDropped]
            .map(|counter| line.counter(counter));
        for len in [longest, longest + 1, 4000] {
            frame.resize(len, 0);
            line.one.control.send_frame(1, &frame).expect("the near port's MTU is larger");
        }
        eventually("two drops", || line.counter(EngineCounter::ForwardDropped) == before[1] + 2);
        assert_eq!(line.counter(EngineCounter::Forwarded), before[0] + 1);
    }
    assert_eq!(line.between.control.unforwarded(2), Ok(4));
    line.finish();
}

#[test]
fn forwarded_frames_have_the_faults_of_the_port_through_which_they_leave() {
    let pools = [pool(), pool(), pool()];
    let mut line = Line::of(1, 4200, pools.each_ref());
    line.forward(IO);
    let tx = FaultConfig {
        loss: 0.02,
        duplicate: 0.05,
        reorder: 0.05,
        corrupt: 0.02,
        delay_us: 20,
        seed: 5,
        ..FaultConfig::default()
    };
    line.between.control.set_faults(2, &PortFaults { tx, ..PortFaults::default() }).expect("two");
    line.write(40);
    for counter in [
        EngineCounter::TxLost,
        EngineCounter::TxDuplicated,
        EngineCounter::TxReordered,
        EngineCounter::TxCorrupted,
        EngineCounter::TxDelayed,
    ] {
        assert!(line.counter(counter) > 0, "{counter:?}");
    }
    eventually("the last", || {
        line.between.control.unforwarded(2) == Ok(line.counter(EngineCounter::TxLost))
    });

    let tx = FaultConfig { loss: 1.0, ..FaultConfig::default() };
    line.between.control.set_faults(2, &PortFaults { tx, ..PortFaults::default() }).expect("two");
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    assert_eq!(received(&mut line.other), frame(1, 2), "others than RoCEv2 have none");
    line.finish();
}

#[test]
fn forwarded_frames_without_a_place_to_be_delayed_are_not_forwarded() {
    let pools = [pool(), pool(), pool()];
    let mut line = Line::of(1, 4200, pools.each_ref());
    line.forward(IO);
    let tx = FaultConfig { delay_us: 1_000_000, ..FaultConfig::default() };
    line.between.control.set_faults(2, &PortFaults { tx, ..PortFaults::default() }).expect("two");
    // Its packets are sent again and again, since nothing arrives.
    let wish = QpWish { timeout: 12, ..QpWish::default() };
    let (mut a, mut b) = (line.one.create_qp(&wish), line.other.create_qp(&wish));
    let qpns = [a.qpn, b.qpn];
    line.one.bring_up(&mut a, &addresses(2), qpns[1], &wish);
    line.other.bring_up(&mut b, &addresses(1), qpns[0], &wish);
    let local = line.one.register(a.pd, 1 << 20, AccessFlags::all());
    let remote = line.other.register(b.pd, 1 << 20, AccessFlags::all());
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 1 << 20)]);
    eventually("a loss", || line.counter(EngineCounter::TxLost) > 0);
    eventually("the same count", || {
        let lost = line.counter(EngineCounter::TxLost);
        line.between.control.unforwarded(2) == Ok(lost)
    });
    let forwarded = line.counter(EngineCounter::TxDelayed);
    assert!(forwarded >= 511, "{forwarded}");
    line.finish();
}

#[test]
fn frames_leave_as_they_came_or_with_their_addresses_exchanged() {
    let mut line = Line::new(1);
    line.forward(IO);
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    assert_eq!(received(&mut line.other), frame(1, 2));

    line.forward([Some(Forward::Echo), None]);
    let copies = TapSpec { snaplen: 100, qp: None, ring: 1 << 16, drops: false };
    let mut taps = line.between.control.set_tap(1, &copies).expect("a port");
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    let back = received(&mut line.one);
    assert_eq!((&back[..12], &back[12..]), (&frame(2, 1)[..12], &frame(1, 2)[12..]));
    let mut copy = TapFrame::default();
    let ways = [(); 2].map(|()| {
        eventually("a copy", || taps.iter_mut().any(|tap| tap.read(&mut copy)));
        copy.is_sent
    });
    assert_eq!(ways, [false, true]);
    // A frame too short for two addresses stays as it is.
    line.one.control.send_frame(1, &[1, 2, 3]).expect("sends");
    eventually("it", || line.counter(EngineCounter::Forwarded) == 3);

    line.forward([None, None]);
    line.one.control.send_frame(1, &frame(1, 3)).expect("sends");
    assert_eq!(received(&mut line.between), frame(1, 3), "its own again");
    line.finish();
}

#[test]
fn frames_that_go_nowhere_are_counted() {
    let mut line = Line::new(1);
    line.forward([Some(Forward::RxOnly), None]);
    line.one.control.send_frame(1, &frame(1, 3)).expect("sends");
    eventually("it", || line.counter(EngineCounter::ForwardDropped) == 1);
    assert_eq!(line.between.control.unforwarded(1), Ok(0), "none was to leave");

    line.forward(IO);
    while line.between.control.next_link_change().is_some() {}
    line.between.control.set_link(2, false).expect("a port");
    eventually("the link", || line.between.control.next_link_change() == Some((2, false)));
    line.one.control.send_frame(1, &frame(1, 2)).expect("sends");
    eventually("it", || line.between.control.unforwarded(2) == Ok(1));
    assert_eq!(line.counter(EngineCounter::TxLinkDown), 1);
    assert!(
        line.between.control.recv_frame().is_none() && line.other.control.recv_frame().is_none()
    );
    line.finish();
}

#[test]
fn a_port_that_takes_no_more_drops_and_the_frames_stay_in_bounds() {
    let mut line = Line::new(1);
    line.forward(IO);
    // The far host has no lcore that takes frames from the ring.
    let Line { one, mut between, other, pools } = line;
    other.control.shutdown();
    let mut one = one;
    let sent = 8 * u64::from(RING);
    for _ in 0..sent {
        eventually("room", || one.control.send_frame(1, &frame(1, 2)).is_ok());
    }
    let ends = |counter| between.engine.counters().engine(counter);
    eventually("all", || {
        ends(EngineCounter::Forwarded) + ends(EngineCounter::ForwardDropped) == sent
    });
    let dropped = ends(EngineCounter::ForwardDropped);
    assert!(dropped > 0);
    assert_eq!(between.control.unforwarded(2), Ok(dropped));
    [one, between].into_iter().for_each(|node| node.control.shutdown());
    pools.iter().for_each(all_are_back);
}

#[test]
fn only_ports_of_the_engine_forward() {
    let mut line = Line::new(1);
    let control = &mut line.between.control;
    let absent = |port| Err(ControlError::NoSuchPort(port));
    for port in [0, 3] {
        assert_eq!(control.set_forward(port, Some(Forward::RxOnly)), absent(port));
        assert_eq!(control.set_forward(1, Some(Forward::Io { to: port })), absent(port));
        assert_eq!(control.unforwarded(port), Err(ControlError::NoSuchPort(port)));
    }
    line.one.control.send_frame(1, &frame(1, 3)).expect("sends");
    assert_eq!(received(&mut line.between), frame(1, 3), "nothing has changed");
    line.finish();
}
