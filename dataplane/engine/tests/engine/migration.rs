//! Automatic path migration between two ports, and rates. One process per test.

use crate::lab;
use crate::lab::{Buffer, Node, QpWish, TestQp, eventually, pattern};
use std::time::{Duration, Instant};
use uroce_engine::mbuf::{Mempool, PoolConfig};
use uroce_engine::port::ring::ring_pair;
use uroce_engine::{
    ControlError, Engine, EngineConfig, EventKind, IdlePolicy, LossConfig, Migrated, PathLoader,
    PortAddresses, PortBinding, Subject,
};
use uroce_transport::{
    AccessFlags, AltPath, PathAttr, PathMigState, QpCaps, QpChange, QpState, QpType, SendOp,
    StaticRate, WcStatus,
};
use uroce_wire::{Encap, Gid, Mac, PathMtu, Pkey, Qkey};

fn addresses(host: u8, port: u8) -> PortAddresses {
    let gid = Gid::from(std::net::Ipv4Addr::new(10, 0, port, host));
    PortAddresses { mac: Mac([2, 0, 0, 0, port, host]), vlan: None, gids: vec![gid] }
}

fn path(host: u8, port: u8) -> Encap {
    let (own, peer) = (addresses(host, port), addresses(3 - host, port));
    Encap {
        src_mac: own.mac,
        dst_mac: peer.mac,
        src: own.gids[0],
        dst: peer.gids[0],
        hop_limit: 64,
        src_port: 0xc000,
        ..Encap::default()
    }
}

/// Two engines; their first ports are joined, and their second ports.
struct Rails {
    nodes: [Node; 2],
    pool: Mempool,
}

impl Rails {
    fn new(lcores: u16) -> Rails {
        let eal = lab::eal();
        let geometry = PoolConfig { count: 8191, cache: 64, room: 4400, ..PoolConfig::default() };
        let pool = Mempool::create(eal, &geometry).expect("mempool");
        let pairs = ["one", "two"]
            .map(|name| ring_pair(eal, name, lcores, 1024, 4200, &pool).expect("rings"));
        let (firsts, seconds): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let nodes = [(1, firsts), (2, seconds)].map(|(host, ports)| {
            let bindings = ports.into_iter().zip(1..).map(|(port, number)| PortBinding {
                port,
                pool: pool.clone(),
                addresses: addresses(host, number),
                loss: LossConfig::default(),
                bottleneck: None,
            });
            let config = EngineConfig {
                lcores: vec![None; usize::from(lcores)],
                max_qps: 256,
                max_mrs: 512,
                idle: IdlePolicy::Yield,
                ..EngineConfig::default()
            };
            let (engine, mut control) = Engine::start(config, bindings.collect()).expect("starts");
            let seen: Vec<_> = std::iter::from_fn(|| control.next_link_change()).collect();
            assert_eq!(seen, [(1, true), (2, true)]);
            Node { engine, control, addresses: addresses(host, 1) }
        });
        Rails { nodes, pool }
    }

    /// Makes two QPs connected through port 1, and armed for port 2.
    fn armed(&mut self, wish: &QpWish) -> Pair {
        let qps = self.nodes.each_mut().map(|node| node.create_qp(wish));
        for ((node, host), dest) in self.nodes.iter_mut().zip(1..).zip([&qps[1], &qps[0]]) {
            let qpn = qps[usize::from(host) - 1].qpn;
            for change in lab::changes(&addresses(host, 1), &addresses(3 - host, 1), dest.qpn, wish)
            {
                node.control.modify_qp(qpn, &change).expect("Modify QP");
            }
            rearm(node, qpn, host, 2);
        }
        let buffers =
            [0, 1].map(|at| self.nodes[at].register(qps[at].pd, 40_000, AccessFlags::all()));
        let mut pair = Pair { qps, buffers };
        pair.write(0, 1);
        pair.write(1, 2);
        for at in [0, 1] {
            let qpn = pair.qps[at].qpn;
            eventually("ARMED", || {
                let info = self.nodes[at].control.query_qp(qpn).expect("a QP");
                info.attr.path_mig_state == PathMigState::Armed
            });
        }
        pair
    }

    fn port_packets(&self, at: usize, port: u8) -> u64 {
        self.nodes[at].control.port(port).expect("a port").stats().tx_packets
    }

    fn finish(self) {
        let Rails { nodes, pool } = self;
        drop(nodes);
        assert_eq!(pool.available(), pool.count(), "mbufs leaked");
    }
}

/// Loads an alternate path through a port and requests migration.
fn rearm(node: &mut Node, qpn: uroce_wire::Qpn, host: u8, port: u8) {
    let alt = AltPath {
        path: path(host, port).into(),
        port,
        pkey: Pkey::DEFAULT,
        timeout: QpWish::default().timeout,
    };
    let change = QpChange {
        alt_path: Some(alt),
        path_mig_state: Some(PathMigState::Rearm),
        ..QpChange::default()
    };
    node.control.modify_qp(qpn, &change).expect("Modify QP");
}

struct Pair {
    qps: [TestQp; 2],
    buffers: [Buffer; 2],
}

impl Pair {
    fn post(&mut self, at: usize, seed: u64) {
        let [from, to] = [&self.buffers[at], &self.buffers[1 - at]];
        from.fill(seed);
        let op = SendOp::Write { va: to.va(), rkey: to.keys.rkey, imm: None };
        self.qps[at].send(seed, op, &[from.sge(0, 40_000)]);
    }

    fn done(&mut self, at: usize, seed: u64) {
        let cqe = self.qps[at].completion();
        assert_eq!((cqe.wr_id, cqe.status), (seed, WcStatus::Success));
        assert_eq!(self.buffers[1 - at].bytes(), pattern(seed, 40_000));
    }

    fn write(&mut self, at: usize, seed: u64) {
        self.post(at, seed);
        self.done(at, seed);
    }
}

/// Returns the next event other than COMM_EST.
fn next_event(node: &Node) -> (Subject, EventKind) {
    let mut found = None;
    eventually("an event", || {
        let event = node.engine.events().try_next().expect("works");
        found = event.map(|event| (event.subject, event.kind));
        found.is_some_and(|(_, kind)| kind != EventKind::CommEst)
    });
    found.expect("waited for")
}

/// The change by which software migrates a QP.
fn migrate() -> QpChange {
    QpChange { path_mig_state: Some(PathMigState::Migrated), ..QpChange::default() }
}

#[test] //= check I4 test
fn a_qp_that_software_migrates_sends_by_its_other_port_and_its_peer_follows() {
    let mut rails = Rails::new(1);
    let mut pair = rails.armed(&QpWish { notices: true, ..QpWish::default() });
    assert_eq!(rails.port_packets(0, 2), 0, "all by port 1 until now");
    let qpn = pair.qps[0].qpn;
    rails.nodes[0].control.modify_qp(qpn, &migrate()).expect("Modify QP");
    let first = rails.port_packets(0, 1);
    pair.write(0, 3);
    pair.write(1, 4);
    assert_eq!(rails.port_packets(0, 1), first, "nothing by port 1 any more");
    for at in [0, 1] {
        assert!(rails.port_packets(at, 2) > 0);
        let node = &mut rails.nodes[at];
        let expected = (Subject::Qp(pair.qps[at].qpn), EventKind::PathMig);
        assert_eq!(next_event(node), expected);
        let info = node.control.query_qp(pair.qps[at].qpn).expect("a QP");
        assert_eq!((info.attr.port, info.attr.path.encap), (2, path(at as u8 + 1, 2)));
        assert_eq!(info.migration.count, 1);
        let notices: Vec<_> = std::iter::from_fn(|| node.control.next_notice()).collect();
        assert!(notices.contains(&(pair.qps[at].qpn, EventKind::PathMig)), "{notices:?}");
    }
    // And back again.
    for (at, host) in [(0, 1), (1, 2)] {
        rearm(&mut rails.nodes[at], pair.qps[at].qpn, host, 1);
    }
    pair.write(0, 5);
    pair.write(1, 6);
    pair.write(0, 7);
    rails.nodes[1].control.modify_qp(pair.qps[1].qpn, &migrate()).expect("armed again");
    pair.write(1, 8);
    pair.write(0, 9);
    assert_eq!(rails.nodes[0].control.query_qp(qpn).expect("a QP").attr.port, 1);
    drop(pair);
    rails.finish();
}

#[test] //= check I5 test
fn a_silent_cut_is_survived_by_migration_after_the_retries() {
    let mut rails = Rails::new(1);
    // Timeouts of 16 ms, three times.
    let wish = QpWish { timeout: 12, retry_cnt: 2, ..QpWish::default() };
    let mut pair = rails.armed(&wish);
    let all = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };
    rails.nodes[1].control.set_loss(1, all).expect("a port");
    pair.post(0, 3);
    pair.done(0, 3);
    let info = rails.nodes[0].control.query_qp(pair.qps[0].qpn).expect("a QP");
    assert_eq!((info.attr.port, info.migration.count), (2, 1));
    let failover = info.migration.failover.expect("acknowledged on the new path");
    assert!(failover >= Duration::from_millis(40), "{failover:?}");
    pair.write(1, 4);
    drop(pair);
    rails.finish();
}

/// Loads a path of the control plane through port 2.
fn adopt(node: &mut Node, qpn: uroce_wire::Qpn, host: u8) -> Result<bool, ControlError> {
    let alternate =
        AltPath { path: path(host, 2).into(), port: 2, pkey: Pkey::DEFAULT, timeout: 1 };
    node.control.adopt_alternate(qpn, alternate)
}

#[test]
fn a_path_of_the_control_plane_is_tuned_and_its_events_are_hidden() {
    let mut rails = Rails::new(1);
    let wish = QpWish { notices: true, ..QpWish::default() };
    let qps = rails.nodes.each_mut().map(|node| node.create_qp(&wish));
    for ((node, host), dest) in rails.nodes.iter_mut().zip(1..).zip([&qps[1], &qps[0]]) {
        let qpn = qps[usize::from(host) - 1].qpn;
        let changes = lab::changes(&addresses(host, 1), &addresses(3 - host, 1), dest.qpn, &wish);
        assert_eq!(adopt(node, qpn, host), Ok(false), "no connection");
        for change in changes {
            node.control.modify_qp(qpn, &change).expect("Modify QP");
            if change.state == Some(QpState::Rtr) {
                assert_eq!(adopt(node, qpn, host), Ok(true));
            }
        }
        // The path was loaded before the timeout was known.
        let attr = node.control.query_qp(qpn).expect("a QP").attr;
        assert_eq!(attr.alt_path.map(|path| path.timeout), Some(attr.timeout));
        assert!(attr.timeout > 0);
    }
    // An idle pair is armed without an event.
    let qpn = qps[0].qpn;
    let armed = |node: &mut Node, qpn| {
        let info = node.control.query_qp(qpn).expect("a QP");
        info.attr.path_mig_state == PathMigState::Armed
    };
    assert_eq!(rails.nodes[0].control.nudge(qpn), Ok(true));
    for (node, qp) in rails.nodes.iter_mut().zip(&qps) {
        eventually("ARMED", || armed(node, qp.qpn));
    }
    rails.nodes[0].control.modify_qp(qpn, &migrate()).expect("Modify QP");
    assert_eq!(rails.nodes[0].control.nudge(qpn), Ok(true));
    for (node, qp) in rails.nodes.iter_mut().zip(&qps) {
        eventually("a notice", || node.control.next_notice() == Some((qp.qpn, EventKind::PathMig)));
        let info = node.control.query_qp(qp.qpn).expect("a QP");
        assert_eq!((info.attr.port, info.loader), (2, PathLoader::ControlPlane));
        assert!(node.engine.events().try_next().expect("works").is_none());
    }
    drop(qps);
    rails.finish();
}

#[test]
fn a_path_of_the_application_is_never_replaced_by_the_control_plane() {
    let mut rails = Rails::new(1);
    let mut pair = rails.armed(&QpWish::default());
    let qpn = pair.qps[0].qpn;
    let node = &mut rails.nodes[0];
    let loaded = node.control.query_qp(qpn).expect("a QP").attr.alt_path;
    assert_eq!(adopt(node, qpn, 1), Ok(false));
    assert_eq!(node.control.query_qp(qpn).expect("a QP").attr.alt_path, loaded);
    // Nor once that path is used up.
    node.control.modify_qp(qpn, &migrate()).expect("Modify QP");
    pair.write(0, 3);
    let node = &mut rails.nodes[0];
    assert_eq!(next_event(node), (Subject::Qp(qpn), EventKind::PathMig));
    assert_eq!(adopt(node, qpn, 1), Ok(false));
    let info = node.control.query_qp(qpn).expect("a QP");
    assert_eq!((info.loader, info.attr.alt_path), (PathLoader::Application, None));
    node.control.modify_qp(qpn, &QpChange::to(QpState::Reset)).expect("Modify QP");
    assert_eq!(node.control.query_qp(qpn).expect("a QP").loader, PathLoader::None);
    drop(pair);
    rails.finish();
}

#[test]
fn an_application_takes_over_a_queue_pair_that_the_control_plane_has_armed() {
    let mut rails = Rails::new(1);
    let wish = QpWish::default();
    let qps = rails.nodes.each_mut().map(|node| node.create_qp(&wish));
    for ((node, host), dest) in rails.nodes.iter_mut().zip(1..).zip([&qps[1], &qps[0]]) {
        let qpn = qps[usize::from(host) - 1].qpn;
        for change in lab::changes(&addresses(host, 1), &addresses(3 - host, 1), dest.qpn, &wish) {
            node.control.modify_qp(qpn, &change).expect("Modify QP");
        }
        assert_eq!(adopt(node, qpn, host), Ok(true));
        // It is in REARM, of which the application knows nothing.
        rearm(node, qpn, host, 2);
        let info = node.control.query_qp(qpn).expect("a QP");
        let is = (info.attr.path_mig_state, info.loader);
        assert_eq!(is, (PathMigState::Rearm, PathLoader::Application));
        let timeout = info.attr.alt_path.map(|path| path.timeout);
        assert_eq!(timeout, Some(QpWish::default().timeout), "the path is the application's");
    }
    drop(qps);
    rails.finish();
}

#[test]
fn all_qps_of_a_port_leave_it_at_one_command() {
    const QPS: usize = 60;
    let mut rails = Rails::new(2);
    let wish = QpWish { cq_depth: 16, ..QpWish::default() };
    let mut pairs: Vec<_> = (0..QPS).map(|_| rails.armed(&wish)).collect();
    // A QP with an alternate path through the same port stays.
    let [a, b] = &mut rails.nodes;
    let [staying, peer] = [a.create_qp(&wish), b.create_qp(&wish)];
    for change in lab::changes(&addresses(1, 1), &addresses(2, 1), peer.qpn, &wish) {
        a.control.modify_qp(staying.qpn, &change).expect("Modify QP");
    }
    rearm(a, staying.qpn, 1, 1);
    rails.nodes[0].control.set_link(1, false).expect("a port");
    pairs.iter_mut().for_each(|pair| pair.post(0, 3));
    for (node, is_first) in rails.nodes.iter_mut().zip([true, false]) {
        eventually("link down", || node.control.next_link_change() == Some((1, false)));
        // Some QPs of the second node have already migrated at their peers' requests. The first
        // has one more, which stays; its peer is in RESET.
        let all = node.control.migrate_port(1, |_| true).expect("a port");
        let stayed = u32::from(is_first);
        assert!(all.migrated == QPS as u32 || !is_first, "{all:?}");
        assert_eq!(all.stayed, stayed);
        let none = Ok(Migrated { migrated: 0, stayed });
        assert_eq!(node.control.migrate_port(1, |_| false), none, "the other port is down too");
        assert_eq!(node.control.migrate_port(1, |_| true), none, "once");
    }
    for pair in &mut pairs {
        pair.done(0, 3);
        pair.write(1, 4);
    }
    let port =
        |rails: &mut Rails, qpn| rails.nodes[0].control.query_qp(qpn).expect("a QP").attr.port;
    for pair in &pairs {
        assert_eq!(port(&mut rails, pair.qps[0].qpn), 2);
    }
    assert_eq!(port(&mut rails, staying.qpn), 1);
    assert_eq!(rails.nodes[0].control.migrate_port(3, |_| true), Err(ControlError::NoSuchPort(3)));
    drop(pairs);
    rails.finish();
}

#[test]
fn an_alternate_path_needs_a_port_that_carries_it() {
    let mut rails = Rails::new(1);
    let pair = rails.armed(&QpWish::default());
    let alt = |port| AltPath { path: path(1, 2).into(), port, pkey: Pkey::DEFAULT, timeout: 14 };
    let load = |port| QpChange { alt_path: Some(alt(port)), ..QpChange::default() };
    let qpn = pair.qps[0].qpn;
    let control = &mut rails.nodes[0].control;
    assert_eq!(control.modify_qp(qpn, &load(3)), Err(ControlError::NoSuchPort(3)));
    assert_eq!(control.modify_qp(qpn, &load(0)), Err(ControlError::NoSuchPort(0)));
    assert_eq!(control.query_qp(qpn).expect("a QP").attr.alt_path.map(|alt| alt.port), Some(2));
    drop(pair);
    rails.finish();
}

fn gbps(gbps: u32) -> StaticRate {
    StaticRate::from_mbps(gbps * 1000).expect("a rate of the verbs")
}

/// Returns the least time that `bytes` bytes take at a rate.
fn at_least(bytes: u64, rate: StaticRate) -> Duration {
    let mbps = u64::from(rate.mbps().expect("a limit"));
    // Minus the lateness that may be made up for, and a packet.
    Duration::from_micros(bytes * 8 / mbps).saturating_sub(Duration::from_millis(2))
}

#[test] //= check S1 test
fn what_a_connection_sends_takes_the_time_of_its_rate() {
    const WRITES: u64 = 100;
    let mut rails = Rails::new(1);
    let wish = QpWish { cq_depth: 128, ..QpWish::default() };
    let wish = QpWish { caps: QpCaps { max_send_wr: 128, ..wish.caps }, ..wish };
    let qps = rails.nodes.each_mut().map(|node| node.create_qp(&wish));
    let rate = gbps(10);
    for ((node, host), dest) in rails.nodes.iter_mut().zip(1..).zip([&qps[1], &qps[0]]) {
        let (own, peer) = (addresses(host, 1), addresses(3 - host, 1));
        let mut changes = lab::changes(&own, &peer, dest.qpn, &wish);
        changes[1].path = Some(PathAttr { encap: path(host, 1), rate });
        for change in changes {
            node.control.modify_qp(qps[usize::from(host) - 1].qpn, &change).expect("Modify QP");
        }
    }
    let [mut a, b] = qps;
    let local = rails.nodes[0].register(a.pd, 40_000, AccessFlags::all());
    let remote = rails.nodes[1].register(b.pd, 40_000, AccessFlags::all());
    let begin = Instant::now();
    for id in 0..WRITES {
        let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
        a.send(id, op, &[local.sge(0, 40_000)]);
    }
    (0..WRITES).for_each(|_| assert_eq!(a.completion().status, WcStatus::Success));
    let took = begin.elapsed();
    assert!(took >= at_least(WRITES * 40_000, rate), "{took:?} at {rate}");
    drop((local, remote));
    rails.finish();
}

#[test] //= check S3 test
fn an_address_handle_keeps_to_its_rate_with_senders_on_two_lcores() {
    const DATAGRAMS: u64 = 400;
    let mut rails = Rails::new(2);
    let wish = QpWish { qp_type: QpType::Ud, cq_depth: 512, ..QpWish::default() };
    let wish = QpWish { caps: QpCaps { max_send_wr: 512, ..wish.caps }, ..wish };
    let pd = rails.nodes[0].engine.alloc_pd();
    // Each QP is on its own lcore; both use one handle.
    let mut senders = [0, 1].map(|lcore| {
        let wish = QpWish { lcores: [Some(lcore); 2], ..wish };
        let qp = rails.nodes[0].create_qp_with(pd, &wish, None);
        rails.nodes[0].start_datagrams(&qp, Qkey(7));
        qp
    });
    let rate = gbps(10);
    let local = rails.nodes[0].register(pd, 4096, AccessFlags::all());
    for (rate, is_limited) in [(StaticRate::MAX, false), (rate, true)] {
        let ah = rails.nodes[0].engine.create_ah(pd, 1, &path(1, 1), rate).expect("a handle");
        let begin = Instant::now();
        for sender in &mut senders {
            for id in 0..DATAGRAMS {
                let (dest_qpn, qkey) = (uroce_wire::Qpn::new(9), Qkey(7));
                let op = SendOp::SendTo { ah, dest_qpn, qkey, imm: None };
                sender.send(id, op, &[local.sge(0, PathMtu::B4096.bytes())]);
            }
        }
        for sender in &senders {
            for id in 0..DATAGRAMS {
                let cqe = sender.completion();
                assert_eq!((cqe.wr_id, cqe.status), (id, WcStatus::Success));
            }
        }
        let (took, least) = (begin.elapsed(), at_least(2 * DATAGRAMS * 4096, gbps(10)));
        assert!(!is_limited || took >= least, "{took:?} at {rate}");
    }
    drop(local);
    rails.finish();
}

#[test] //= check S3 test
fn qps_that_share_an_address_handle_have_the_same_share_of_its_rate() {
    const DATAGRAMS: u64 = 500;
    let mut rails = Rails::new(1);
    let wish = QpWish { qp_type: QpType::Ud, cq_depth: 512, ..QpWish::default() };
    let wish = QpWish { caps: QpCaps { max_send_wr: 512, ..wish.caps }, ..wish };
    let pd = rails.nodes[0].engine.alloc_pd();
    let mut senders: Vec<_> = (0..5)
        .map(|_| {
            let qp = rails.nodes[0].create_qp_with(pd, &wish, None);
            rails.nodes[0].start_datagrams(&qp, Qkey(7));
            qp
        })
        .collect();
    let local = rails.nodes[0].register(pd, 4096, AccessFlags::all());
    let ah = rails.nodes[0].engine.create_ah(pd, 1, &path(1, 1), gbps(10)).expect("a handle");
    // Only this thread turns the lcore, so nothing is sent before all have posted.
    let mut guard = rails.nodes[0].engine.adopt(0).expect("free");
    for sender in &mut senders {
        for id in 0..DATAGRAMS {
            let (dest_qpn, qkey) = (uroce_wire::Qpn::new(9), Qkey(7));
            let op = SendOp::SendTo { ah, dest_qpn, qkey, imm: None };
            sender.send(id, op, &[local.sge(0, PathMtu::B4096.bytes())]);
        }
    }
    let mut sent = [0; 5];
    let mut turn_until = |is_enough: fn(&[u64; 5]) -> bool, sent: &mut [u64; 5]| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_enough(sent) {
            assert!(Instant::now() < deadline, "{sent:?}");
            guard.turn();
            for (sent, sender) in sent.iter_mut().zip(&senders) {
                *sent +=
                    std::iter::from_fn(|| sender.cq.poll().expect("no overrun")).count() as u64;
            }
        }
    };
    turn_until(|sent| sent.iter().sum::<u64>() >= DATAGRAMS * 3 / 2, &mut sent);
    // The difference is what a QP may send at once before it is known to be paced. The total
    // depends on how late the last turn was, which is made up for.
    let mean = sent.iter().sum::<u64>() / 5;
    assert!(sent.iter().all(|sent| sent.abs_diff(mean) <= 25), "{sent:?}");
    // Two of them go, each with a reserved time: the others do not wait for those times.
    let control = &mut rails.nodes[0].control;
    control.modify_qp(senders[0].qpn, &QpChange::to(QpState::Reset)).expect("Modify QP");
    control.destroy_qp(senders[1].qpn).expect("destroys");
    turn_until(|sent| sent[2..].iter().all(|&sent| sent == DATAGRAMS), &mut sent);
    assert!(sent[0] < DATAGRAMS && sent[1] < DATAGRAMS, "{sent:?}");
    // The QP that was reset begins anew.
    rails.nodes[0].start_datagrams(&senders[0], Qkey(7));
    drop((guard, local));
    rails.finish();
}
