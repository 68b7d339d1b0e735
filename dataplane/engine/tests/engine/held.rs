//! Selective repeat between two engines: packets that come early are kept by the lcore until their
//! turn comes, or their QP ends. One process per test.

use crate::lab;
use crate::lab::{Buffer, Lab, LabConfig, Node, QpWish, TestQp, eventually, pattern};
use uroce_engine::{EngineCounter, LossConfig};
use uroce_transport::{
    AccessFlags, AttrMask, Counter, DropReason, ModifyError, QpChange, QpState, QpType, SendOp,
    WcStatus,
};
use uroce_wire::{ImmDt, PathMtu};

const ALL: AccessFlags = AccessFlags::all();
/// Bytes of the tests' messages: 256 packets.
const LEN: u32 = 1 << 20;
const SELECTIVE: QpWish = QpWish { selective_repeat: true, ..WISH };
const WISH: QpWish = QpWish {
    qp_type: QpType::Rc,
    caps: lab::CAPS,
    cq_depth: 256,
    mtu: PathMtu::B4096,
    // 17 ms.
    timeout: 12,
    retry_cnt: 7,
    rnr_retry: 7,
    lcores: [None; 2],
    notices: false,
    traffic_class: 0,
    congestion: None,
    selective_repeat: false,
};

/// Two connected QPs and memory of both.
struct Scene {
    lab: Lab,
    a: TestQp,
    b: TestQp,
    local: Buffer,
    remote: Buffer,
}

impl Scene {
    fn new(config: &LabConfig, wish: &QpWish) -> Scene {
        let mut lab = Lab::new(config);
        let (a, b) = lab.connect(wish);
        let local = lab.a.register(a.pd, LEN as usize, ALL);
        let remote = lab.b.register(b.pd, LEN as usize, ALL);
        Scene { lab, a, b, local, remote }
    }

    fn write(&mut self, seed: u64) {
        self.local.fill(seed);
        let op = SendOp::Write { va: self.remote.va(), rkey: self.remote.keys.rkey, imm: None };
        self.a.send(seed, op, &[self.local.sge(0, LEN)]);
        let cqe = self.a.completion();
        assert_eq!((cqe.wr_id, cqe.status), (seed, WcStatus::Success));
        assert_eq!(self.remote.bytes(), pattern(seed, LEN as usize));
    }

    fn read(&mut self, seed: u64) {
        self.remote.fill(seed);
        let op = SendOp::Read { va: self.remote.va(), rkey: self.remote.keys.rkey };
        self.a.send(seed, op, &[self.local.sge(0, LEN)]);
        assert_eq!(self.a.completion().status, WcStatus::Success);
        assert_eq!(self.local.bytes(), pattern(seed, LEN as usize));
    }

    /// Sends one message into two receives' worth of small posts, so that each packet that
    /// completes one has to pull the next.
    fn send(&mut self, seed: u64) {
        const SENDS: u32 = 32;
        let each = LEN / SENDS;
        self.local.fill(seed);
        for at in 0..SENDS {
            let (id, offset) = (u64::from(at), u64::from(at * each));
            self.b.recv(id, &[self.remote.sge(offset, each)]);
            let op = SendOp::Send { imm: Some(ImmDt(at)) };
            self.a.send(id, op, &[self.local.sge(offset, each)]);
        }
        for at in 0..SENDS {
            assert_eq!(self.a.completion().status, WcStatus::Success);
            let cqe = self.b.completion();
            assert_eq!((cqe.wr_id, cqe.imm), (u64::from(at), Some(ImmDt(at))), "in order");
            assert_eq!((cqe.status, cqe.byte_len), (WcStatus::Success, each));
        }
        assert_eq!(self.remote.bytes(), pattern(seed, LEN as usize));
    }

    /// Adds to one word many times: no request is executed twice or left out.
    fn add(&mut self) {
        const ADDS: u64 = 60;
        self.remote.set_word(0, 0);
        let (va, rkey) = (self.remote.va(), self.remote.keys.rkey);
        (0..ADDS).for_each(|at| {
            self.a.send(at, SendOp::FetchAdd { va, rkey, add: 1 }, &[self.local.sge(8 * at, 8)]);
        });
        for at in 0..ADDS {
            assert_eq!(self.a.completion().status, WcStatus::Success);
            assert_eq!(self.local.word(at as usize), at, "in order");
        }
        assert_eq!(self.remote.word(0), ADDS);
    }

    fn finish(self) {
        let Scene { lab, local, remote, .. } = self;
        drop((local, remote));
        lab.finish();
    }
}

fn count(node: &Node, counter: Counter) -> u64 {
    node.engine.counters().transport(counter)
}

fn lossy(probability: f64) -> LossConfig {
    LossConfig { rx: probability, tx: 0.0, seed: 7 }
}

/// Runs every operation over a lossy link. Returns how many packets were lost, held, sent again.
fn traffic(wish: &QpWish, config: &LabConfig) -> [u64; 3] {
    let mut scene = Scene::new(&LabConfig { loss: lossy(0.01), ..config.clone() }, wish);
    for round in 0..8 {
        scene.write(4 * round + 1);
        scene.send(4 * round + 2);
        scene.add();
        scene.read(4 * round + 3);
    }
    let ends = [&scene.lab.a, &scene.lab.b];
    let sum = |counter| ends.iter().map(|node| count(node, counter)).sum();
    let lost = |node: &&Node| node.engine.counters().engine(EngineCounter::RxLost);
    let found = [
        ends.iter().map(lost).sum(),
        sum(Counter::HeldPackets),
        sum(Counter::RetransmittedPackets),
    ];
    scene.finish();
    found
}

#[test] //= check A25 test
fn an_own_peer_gets_only_what_it_lacks() {
    let writes = |wish: QpWish| {
        // Half a second, so that a busy machine does not make packets late.
        let wish = QpWish { timeout: 17, ..wish };
        let config = LabConfig { loss: lossy(0.01), ..LabConfig::default() };
        let mut scene = Scene::new(&config, &wish);
        (1..40).for_each(|seed| scene.write(seed));
        let again = count(&scene.lab.a, Counter::RetransmittedPackets);
        let held = count(&scene.lab.b, Counter::HeldPackets);
        scene.finish();
        (again, held)
    };
    let (own, any) = (writes(SELECTIVE), writes(WISH));
    assert!(own.1 > 0 && any.1 == 0 && own.0 * 2 < any.0, "(again, held): {own:?}, {any:?}");
}

#[test] //= check A25 test
fn early_packets_are_held_and_executed_in_order() {
    let [lost, held, again] = traffic(&SELECTIVE, &LabConfig::default());
    assert!(lost > 0 && held > lost, "lost {lost}, held {held}, sent again {again}");
}

#[test] //= check A25 test
fn early_packets_that_another_lcore_hands_over_are_held() {
    let config = LabConfig { lcores: 2, ..LabConfig::default() };
    let wish = QpWish { lcores: [Some(0), Some(1)], ..SELECTIVE };
    let [lost, held, again] = traffic(&wish, &config);
    assert!(lost > 0 && held > lost, "lost {lost}, held {held}, sent again {again}");
}

#[test] //= check A27 test
fn without_room_for_more_early_packets_the_rest_comes_again() {
    // Caches take 192 of the mbufs, and an engine may hold half of the rest: a quarter of
    // a message.
    let config = LabConfig { mbufs: 319, loss: lossy(0.02), ..LabConfig::default() };
    let mut scene = Scene::new(&config, &SELECTIVE);
    (1..20).for_each(|seed| scene.write(seed));
    let (held, turned_away) = {
        let counters = scene.lab.b.engine.counters();
        (counters.transport(Counter::HeldPackets), counters.dropped(DropReason::NotHeld))
    };
    assert!(held > 0 && turned_away > 0, "held {held}, turned away {turned_away}");
    scene.finish();
}

/// Largest number of mbufs that two idle lcores keep to send from: a batch each.
const SPARE: u32 = 2 * 64;

/// Returns the number of mbufs that are not in the mempool.
fn used(lab: &Lab) -> u32 {
    lab.pool.count() - lab.pool.available()
}

/// Writes until `b` holds packets for ever: no answer reaches `a`, which ends then.
fn hold_some(scene: &mut Scene) {
    let Scene { lab, a, local, remote, .. } = scene;
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    let enough = u64::from(SPARE) + 1;
    lab.a.control.set_loss(1, lossy(1.0)).expect("port 1");
    lab.b.control.set_loss(1, lossy(0.2)).expect("port 1");
    a.send(1, op, &[local.sge(0, LEN)]);
    eventually("early packets", || count(&lab.b, Counter::HeldPackets) >= enough);
    lab.b.control.set_loss(1, lossy(1.0)).expect("port 1");
    lab.a.control.modify_qp(a.qpn, &QpChange::to(QpState::Err)).expect("ERR");
    assert_eq!(a.completion().status, WcStatus::WrFlushErr);
    assert!(used(lab) > SPARE, "{} mbufs are used", used(lab));
}

#[test] //= check A27 test
fn held_packets_are_freed_when_their_queue_pair_ends() {
    for end in [Some(QpState::Err), Some(QpState::Reset), None] {
        let mut scene = Scene::new(&LabConfig::default(), &SELECTIVE);
        hold_some(&mut scene);
        let (control, qpn) = (&mut scene.lab.b.control, scene.b.qpn);
        match end {
            Some(state) => control.modify_qp(qpn, &QpChange::to(state)).expect("it may end"),
            None => control.destroy_qp(qpn).expect("destroys"),
        }
        eventually("the mbufs", || used(&scene.lab) <= SPARE);
        scene.finish();
    }
}

#[test] //= check A27 test
fn held_packets_are_freed_with_the_engine() {
    let mut scene = Scene::new(&LabConfig::default(), &SELECTIVE);
    hold_some(&mut scene);
    scene.finish();
}

#[test] //= check A27 test
fn a_queue_pair_that_starts_again_gets_nothing_of_its_former_connection() {
    let mut scene = Scene::new(&LabConfig::default(), &SELECTIVE);
    hold_some(&mut scene);
    let Scene { lab, a, b, .. } = &mut scene;
    lab.a.control.set_loss(1, LossConfig::default()).expect("port 1");
    lab.b.control.set_loss(1, LossConfig::default()).expect("port 1");
    for (node, qp) in [(&mut lab.a, &a), (&mut lab.b, &b)] {
        node.control.modify_qp(qp.qpn, &QpChange::to(QpState::Reset)).expect("RESET");
    }
    let (qpn_a, qpn_b) = (a.qpn, b.qpn);
    // The next connection has the same PSNs.
    lab.a.bring_up(a, &lab.b.addresses, qpn_b, &SELECTIVE);
    lab.b.bring_up(b, &lab.a.addresses, qpn_a, &SELECTIVE);
    scene.write(2);
    scene.finish();
}

#[test]
fn a_refused_change_leaves_a_queue_pair_without_selective_repeat() {
    let mut lab = Lab::new(&LabConfig::default());
    let a = lab.a.create_qp(&WISH);
    let access = Some(ALL);
    let change = QpChange { selective_repeat: Some(true), access, ..QpChange::to_init(1) };
    let refused = lab.a.control.modify_qp(a.qpn, &change).expect_err("not before RTR");
    let expected = ModifyError::NotAllowed(AttrMask::SELECTIVE_REPEAT);
    assert_eq!(refused, uroce_engine::ControlError::Modify(expected));
    let attr = lab.a.control.query_qp(a.qpn).expect("a QP").attr;
    assert_eq!((attr.state, attr.selective_repeat), (QpState::Reset, false));
    lab.finish();
}
