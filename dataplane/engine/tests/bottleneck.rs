//! Bottlenecks at ports: frames that wait in one when its link goes down, when it is replaced, and
//! when the engine ends.

mod lab;

use lab::{Buffer, Lab, LabConfig, QpWish, TestQp, eventually};
use uroce_engine::{BottleneckConfig, EngineCounter, IdlePolicy};
use uroce_transport::{AccessFlags, QpType, SendOp, WcStatus};

/// So slow that a frame of 4 KiB takes 33 ms.
const SLOW: BottleneckConfig = BottleneckConfig {
    rate_mbps: 1,
    queue: 1 << 20,
    kmin: 1 << 20,
    kmax: 1 << 20,
    pmax: 1.0,
    seed: 0,
};

/// Two connected QPs of an unreliable connection, which sends nothing again, and memory of both.
struct Scene {
    lab: Lab,
    a: TestQp,
    local: Buffer,
    remote: Buffer,
}

impl Scene {
    fn new(config: &LabConfig) -> Scene {
        let mut lab = Lab::new(config);
        let (a, b) = lab.connect(&QpWish { qp_type: QpType::Uc, ..QpWish::default() });
        let local = lab.a.register(a.pd, 1 << 16, AccessFlags::all());
        let remote = lab.b.register(b.pd, 1 << 16, AccessFlags::all());
        local.fill(1);
        Scene { lab, a, local, remote }
    }

    /// Writes 64 KiB, in 16 frames, and waits until they are sent, as far as the QP can know.
    fn write(&mut self) {
        let op = SendOp::Write { va: self.remote.va(), rkey: self.remote.keys.rkey, imm: None };
        self.a.send(1, op, &[self.local.sge(0, 1 << 16)]);
        assert_eq!(self.a.completion().status, WcStatus::Success);
    }

    fn count(&self, counter: EngineCounter) -> u64 {
        self.lab.a.engine.counters().engine(counter)
    }

    fn finish(self) {
        let Scene { lab, local, remote, .. } = self;
        drop((local, remote));
        lab.finish();
    }
}

#[test]
fn frames_that_wait_when_the_link_goes_down_are_lost_with_it() {
    let mut scene = Scene::new(&LabConfig::default());
    scene.lab.a.control.set_bottleneck(1, Some(SLOW)).expect("port 1");
    assert_eq!(scene.lab.a.control.next_link_change(), Some((1, true)));
    scene.write();
    scene.lab.a.control.set_link(1, false).expect("port 1");
    eventually("the link's change", || scene.lab.a.control.next_link_change().is_some());
    let waited = 16 - scene.count(EngineCounter::BottleneckServed);
    eventually("the loss", || scene.count(EngineCounter::TxLinkDown) >= waited);
    assert!(waited > 0);
    scene.finish();
}

#[test]
fn frames_that_wait_in_a_former_bottleneck_are_dropped_and_counted() {
    let mut scene = Scene::new(&LabConfig::default());
    scene.lab.a.control.set_bottleneck(1, Some(SLOW)).expect("port 1");
    scene.write();
    let fast = BottleneckConfig::new(1000, 1 << 20);
    scene.lab.a.control.set_bottleneck(1, Some(fast)).expect("port 1");
    let served = scene.count(EngineCounter::BottleneckServed);
    assert_eq!(scene.count(EngineCounter::BottleneckDropped) + served, 16);
    // The time that the former frames would have taken is not waited for.
    scene.write();
    eventually("the frames", || scene.count(EngineCounter::BottleneckServed) == served + 16);
    eventually("the bytes", || scene.remote.bytes() == lab::pattern(1, 1 << 16));
    scene.finish();
}

#[test]
fn frames_that_wait_when_the_engine_ends_are_given_back() {
    for idle in [IdlePolicy::Yield, IdlePolicy::Sleep] {
        let mut scene = Scene::new(&LabConfig { idle, ..LabConfig::default() });
        scene.lab.a.control.set_bottleneck(1, Some(SLOW)).expect("port 1");
        scene.write();
        assert!(scene.count(EngineCounter::BottleneckServed) < 16);
        scene.finish();
    }
}

#[test]
fn an_lcore_that_may_sleep_serves_what_waits() {
    let config = LabConfig { idle: IdlePolicy::Sleep, ..LabConfig::default() };
    let mut scene = Scene::new(&config);
    // 64 KiB take 53 ms.
    let slow = BottleneckConfig::new(10, 1 << 20);
    scene.lab.a.control.set_bottleneck(1, Some(slow)).expect("port 1");
    scene.write();
    eventually("the bytes", || scene.remote.bytes() == lab::pattern(1, 1 << 16));
    eventually("the count", || scene.count(EngineCounter::BottleneckServed) == 16);
    scene.finish();
}

#[test]
fn lcores_without_a_queue_pair_pass_the_bottleneck_once() {
    let config = LabConfig { lcores: 2, queue_pairs: Some(1), ..LabConfig::default() };
    let mut lab = Lab::new(&config);
    let wish = QpWish { qp_type: QpType::Uc, lcores: [Some(1); 2], ..QpWish::default() };
    let (mut a, b) = lab.connect(&wish);
    let local = lab.a.register(a.pd, 1 << 16, AccessFlags::all());
    let remote = lab.b.register(b.pd, 1 << 16, AccessFlags::all());
    local.fill(2);
    let slow = BottleneckConfig::new(100, 1 << 20);
    lab.a.control.set_bottleneck(1, Some(slow)).expect("port 1");
    let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
    a.send(1, op, &[local.sge(0, 1 << 16)]);
    eventually("the bytes", || remote.bytes() == lab::pattern(2, 1 << 16));
    let served = || lab.a.engine.counters().engine(EngineCounter::BottleneckServed);
    eventually("the count", || served() == 16);
    drop((local, remote));
    lab.finish();
}
