//! Bottlenecks at ports: frames that wait in one when its link goes down, when it is replaced, when
//! its rate changes, and when the engine ends.

use crate::lab;
use crate::lab::{Buffer, Lab, LabConfig, QpWish, TestQp, eventually};
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
fn frames_that_wait_leave_at_the_rate_that_is_set_last() {
    let mut scene = Scene::new(&LabConfig::default());
    // At 1 Mb/s the 16 frames take half a second, at 10 Gb/s 53 us.
    for rates in [[Some(1), Some(1)], [Some(1), Some(10_000)], [Some(1), None]] {
        scene.lab.a.control.set_rate(1, rates[0]).expect("port 1");
        scene.local.fill(3);
        scene.write();
        scene.lab.a.control.set_rate(1, rates[1]).expect("port 1");
        let rate = scene.lab.a.control.bottleneck(1).map(|slow| slow.rate_mbps);
        assert_eq!(rate, rates[1]);
    }
    let begin = std::time::Instant::now();
    eventually("the frames", || scene.count(EngineCounter::BottleneckServed) == 3 * 16);
    assert!(begin.elapsed() < std::time::Duration::from_millis(250), "{:?}", begin.elapsed());
    assert_eq!(scene.count(EngineCounter::BottleneckDropped), 0);
    eventually("the bytes", || scene.remote.bytes() == lab::pattern(3, 1 << 16));
    // Nothing is counted in a bottleneck that is over.
    scene.write();
    assert_eq!(scene.count(EngineCounter::BottleneckServed), 3 * 16);
    scene.lab.a.control.set_rate(1, Some(400_001)).expect_err("too fast");
    assert_eq!(scene.lab.a.control.bottleneck(1), None);
    scene.finish();
}

#[test]
fn frames_that_wait_for_a_rate_are_a_quarter_of_the_mempool_and_none_is_dropped() {
    for lcores in [1, 2] {
        let mut scene = Scene::new(&LabConfig { lcores, mbufs: 1023, ..LabConfig::default() });
        scene.lab.a.control.set_rate(1, Some(1)).expect("port 1");
        let op = SendOp::Write { va: scene.remote.va(), rkey: scene.remote.keys.rkey, imm: None };
        // 640 frames.
        for id in 0..40 {
            scene.a.send(id, op, &[scene.local.sge(0, 1 << 16)]);
        }
        // The QP sends from one of the lcores. Besides the queue, a batch waits in front of it.
        let (share, batch) = (1023 / 4 / lcores as u64, 64);
        let taken = || scene.count(EngineCounter::TxPackets);
        eventually("a full queue", || taken() >= share - batch);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(taken() <= share + batch, "{}", taken());
        assert_eq!(scene.count(EngineCounter::BottleneckDropped), 0);
        scene.lab.a.control.set_rate(1, None).expect("port 1");
        for _ in 0..40 {
            assert_eq!(scene.a.completion().status, WcStatus::Success);
        }
        assert_eq!(scene.count(EngineCounter::TxPackets), 640);
        assert_eq!(scene.count(EngineCounter::BottleneckDropped), 0);
        scene.finish();
    }
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
