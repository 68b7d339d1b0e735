//! Faults on purpose: each is counted where it is made, and a reliable connection mends it.

use crate::lab::{Buffer, Lab, LabConfig, QpWish, TestQp, eventually};
use uroce_engine::multicast_mac;
use uroce_engine::{ControlError, EngineCounter, FaultConfig, PortFaults, TapFrame, TapSpec};
use uroce_transport::{AccessFlags, DropReason, QpType, SendOp, StaticRate, WcStatus};
use uroce_wire::{Encap, Gid, Qkey, Qpn};

/// Messages of [`Scene::write_all`].
const MESSAGES: u64 = 40;
const LEN: u32 = 1 << 15;

/// A QP on each side of a link, and memory of both.
struct Scene {
    lab: Lab,
    a: TestQp,
    b: TestQp,
    local: Buffer,
    remote: Buffer,
}

impl Scene {
    fn new(qp_type: QpType) -> Scene {
        let mut lab = Lab::new(&LabConfig::default());
        let (a, b) = lab.connect(&QpWish { qp_type, timeout: 12, ..QpWish::default() });
        let local = lab.a.register(a.pd, 1 << 16, AccessFlags::all());
        let remote = lab.b.register(b.pd, 1 << 16, AccessFlags::all());
        local.fill(7);
        Scene { lab, a, b, local, remote }
    }

    fn write(&mut self) {
        let op = SendOp::Write { va: self.remote.va(), rkey: self.remote.keys.rkey, imm: None };
        self.a.send(1, op, &[self.local.sge(0, LEN)]);
        assert_eq!(self.a.completion().status, WcStatus::Success);
    }

    fn write_all(&mut self) {
        (0..MESSAGES).for_each(|_| self.write());
    }

    /// Sets faults of the sender's outgoing frames.
    fn set(&mut self, tx: FaultConfig) {
        let faults = PortFaults { tx, ..PortFaults::default() };
        self.lab.a.control.set_faults(1, &faults).expect("port 1");
        assert_eq!(self.lab.a.control.faults(1), Some(&faults));
    }

    fn sent(&self, counter: EngineCounter) -> u64 {
        self.lab.a.engine.counters().engine(counter)
    }

    fn received(&self, counter: EngineCounter) -> u64 {
        self.lab.b.engine.counters().engine(counter)
    }

    fn finish(self) {
        let Scene { lab, local, remote, .. } = self;
        drop((local, remote));
        lab.finish();
    }
}

#[test]
fn a_corrupted_frame_is_caught_by_the_invariant_crc_of_the_peer() {
    let mut scene = Scene::new(QpType::Rc);
    scene.set(FaultConfig { corrupt: 0.1, seed: 1, ..FaultConfig::default() });
    scene.write_all();
    let corrupted = scene.sent(EngineCounter::TxCorrupted);
    assert!(corrupted > 10, "{corrupted}");
    let caught = || scene.lab.b.engine.counters().dropped(DropReason::BadIcrc);
    eventually("the last", || caught() == corrupted);
    scene.finish();
}

#[test]
fn lost_doubled_and_overtaken_frames_are_mended_in_both_directions() {
    let mut scene = Scene::new(QpType::Rc);
    let fault = FaultConfig {
        loss: 0.02,
        duplicate: 0.05,
        reorder: 0.05,
        delay_us: 20,
        seed: 3,
        ..FaultConfig::default()
    };
    // Few frames come back.
    let rx = FaultConfig { loss: 0.1, duplicate: 0.2, reorder: 0.2, ..fault };
    let faults = PortFaults { rx, tx: fault };
    scene.lab.a.control.set_faults(1, &faults).expect("port 1");
    scene.write_all();
    for counter in [
        EngineCounter::TxLost,
        EngineCounter::RxLost,
        EngineCounter::TxDuplicated,
        EngineCounter::RxDuplicated,
        EngineCounter::TxReordered,
        EngineCounter::RxReordered,
        EngineCounter::TxDelayed,
        EngineCounter::RxDelayed,
    ] {
        assert!(scene.sent(counter) > 0, "{counter:?}");
    }
    scene.lab.a.control.set_faults(1, &PortFaults::default()).expect("port 1");
    let before = scene.sent(EngineCounter::TxDelayed);
    scene.write();
    assert_eq!(scene.sent(EngineCounter::TxDelayed), before, "cleared");
    scene.finish();
}

#[test]
fn a_datagram_to_a_group_has_the_faults_of_others_and_is_captured_as_it_leaves() {
    const QKEY: Qkey = Qkey(7);
    let mut lab = Lab::new(&LabConfig::default());
    let wish = QpWish { qp_type: QpType::Ud, ..QpWish::default() };
    let (mut sender, mut beside) = (lab.a.create_qp(&wish), lab.a.create_qp(&wish));
    lab.a.start_datagrams(&sender, QKEY);
    lab.a.start_datagrams(&beside, QKEY);
    let group = Gid::from(std::net::Ipv4Addr::new(239, 1, 1, 1));
    lab.a.control.attach_multicast(beside.qpn, group).expect("attaches");
    let mut far = lab.b.create_qp(&wish);
    lab.b.start_datagrams(&far, QKEY);
    lab.b.control.attach_multicast(far.qpn, group).expect("attaches");
    let far_room = lab.b.register(far.pd, 1 << 12, AccessFlags::all());
    (0..2).for_each(|id| far.recv(id, &[far_room.sge(0, 4096)]));
    let encap = Encap {
        src_mac: lab.a.addresses.mac,
        dst_mac: multicast_mac(group).expect("a group"),
        src: lab.a.addresses.gids[0],
        dst: group,
        hop_limit: 64,
        ..Encap::default()
    };
    let ah = lab.a.engine.create_ah(sender.pd, 1, &encap, StaticRate::MAX).expect("a handle");
    let room = lab.a.register(beside.pd, 1 << 12, AccessFlags::all());
    let mut send = |lab: &Lab, id| {
        beside.recv(id, &[room.sge(0, 4096)]);
        sender.send(
            id,
            SendOp::SendTo { ah, dest_qpn: Qpn::MULTICAST, qkey: QKEY, imm: None },
            &[],
        );
        assert_eq!(sender.completion().status, WcStatus::Success);
        assert_eq!(beside.completion().status, WcStatus::Success, "the copy passes no link");
        lab.a.engine.counters().engine(EngineCounter::TxDuplicated)
    };
    let all = TapSpec { snaplen: 100, qp: None, ring: 1 << 20, drops: false };
    let mut taps = lab.a.control.set_tap(1, &all).expect("port 1");
    let mut sent = || {
        let mut frame = TapFrame::default();
        std::iter::from_fn(|| taps[0].read(&mut frame).then_some(frame.is_sent))
            .filter(|is_sent| *is_sent)
            .count()
    };
    let duplicate = FaultConfig { duplicate: 1.0, ..FaultConfig::default() };
    let faults = PortFaults { tx: duplicate, ..PortFaults::default() };
    lab.a.control.set_faults(1, &faults).expect("port 1");
    assert_eq!(send(&lab, 1), 1);
    assert_eq!((far.completion().wr_id, far.completion().wr_id), (0, 1), "it comes twice");
    assert_eq!(sent(), 2);
    // Nothing leaves by a link that is down.
    eventually("the link", || lab.a.control.next_link_change() == Some((1, true)));
    lab.a.control.set_link(1, false).expect("port 1");
    eventually("its end", || lab.a.control.next_link_change() == Some((1, false)));
    assert_eq!(send(&lab, 2), 1, "nothing to double");
    let lost = lab.a.engine.counters().engine(EngineCounter::TxLinkDown);
    assert_eq!((sent(), lost), (0, 1));
    drop((sender, beside, room, far, far_room));
    lab.finish();
}

#[test]
fn a_doubled_frame_comes_twice_and_an_overtaken_one_later() {
    let mut scene = Scene::new(QpType::Uc);
    let all = TapSpec { snaplen: 100, qp: None, ring: 1 << 20, drops: false };
    let mut taps = scene.lab.b.control.set_tap(1, &all).expect("port 1");
    scene.set(FaultConfig { duplicate: 1.0, ..FaultConfig::default() });
    scene.write();
    // 32 KiB are eight frames.
    eventually("both", || scene.received(EngineCounter::RxPackets) == 16);
    assert_eq!(scene.sent(EngineCounter::TxDuplicated), 8);

    let psns = |taps: &mut Vec<uroce_engine::TapReader>| {
        let (mut frame, mut psns) = (TapFrame::default(), Vec::new());
        while taps[0].read(&mut frame) {
            psns.push(u32::from_be_bytes([0, frame.bytes[51], frame.bytes[52], frame.bytes[53]]));
        }
        psns
    };
    let mut doubled = psns(&mut taps);
    doubled.sort_unstable();
    assert!(doubled.chunks(2).all(|two| two[0] == two[1]), "{doubled:?}");

    scene.set(FaultConfig { reorder: 0.5, seed: 5, ..FaultConfig::default() });
    for _ in 0..10 {
        scene.write();
    }
    eventually("all", || scene.received(EngineCounter::RxPackets) == 96);
    assert!(scene.sent(EngineCounter::TxReordered) > 10);
    let came = psns(&mut taps);
    let mut sorted = came.clone();
    sorted.sort_unstable();
    assert!(came != sorted, "{came:?}");
    scene.finish();
}

#[test]
fn a_delay_takes_its_time_and_frames_without_a_place_are_lost() {
    let mut scene = Scene::new(QpType::Rc);
    scene.set(FaultConfig { delay_us: 20_000, ..FaultConfig::default() });
    let begin = std::time::Instant::now();
    scene.write();
    assert!(begin.elapsed().as_millis() >= 20, "{:?}", begin.elapsed());

    // An eighth of the 4095 mbufs may be late.
    let mut scene = {
        scene.finish();
        Scene::new(QpType::Uc)
    };
    scene.set(FaultConfig { delay_us: 1_000_000, ..FaultConfig::default() });
    (0..80).for_each(|_| scene.write());
    assert_eq!(scene.sent(EngineCounter::TxDelayed), 511);
    assert_eq!(scene.sent(EngineCounter::TxLost), 80 * 8 - 511);
    scene.set(FaultConfig::default());
    assert_eq!(scene.sent(EngineCounter::TxLost), 80 * 8, "what was held is dropped");
    assert_eq!(scene.received(EngineCounter::RxPackets), 0);
    scene.finish();
}

#[test]
fn frames_that_are_held_go_with_the_link_and_with_the_engine() {
    let mut scene = Scene::new(QpType::Uc);
    assert_eq!(scene.lab.a.control.next_link_change(), Some((1, true)));
    scene.set(FaultConfig { delay_us: 1_000_000, ..FaultConfig::default() });
    scene.write();
    scene.lab.a.control.set_link(1, false).expect("port 1");
    eventually("the link's change", || scene.lab.a.control.next_link_change().is_some());
    assert_eq!(scene.sent(EngineCounter::TxLinkDown), 8);
    scene.lab.a.control.set_link(1, true).expect("port 1");
    eventually("the link's change", || scene.lab.a.control.next_link_change().is_some());
    scene.write();
    assert_eq!(scene.sent(EngineCounter::TxDelayed), 16);
    scene.finish();
}

#[test]
fn faults_of_a_qp_leave_others_alone() {
    let mut scene = Scene::new(QpType::Uc);
    let other = scene.lab.a.create_qp(&QpWish::default()).qpn;
    let all = FaultConfig { loss: 1.0, corrupt: 1.0, ..FaultConfig::default() };
    scene.set(FaultConfig { qp: Some(other), ..all });
    scene.write();
    eventually("all", || scene.received(EngineCounter::RxPackets) == 8);
    let own = scene.a.qpn;
    scene.set(FaultConfig { qp: Some(own), ..all });
    scene.write();
    assert_eq!(scene.sent(EngineCounter::TxLost), 8);
    scene.set(FaultConfig::default());
    let rx = FaultConfig { qp: Some(scene.b.qpn), ..all };
    let faults = PortFaults { rx, ..PortFaults::default() };
    scene.lab.b.control.set_faults(1, &faults).expect("port 1");
    scene.write();
    eventually("all", || scene.received(EngineCounter::RxLost) == 8);
    scene.finish();
}

#[test]
fn faults_that_cannot_be_change_nothing() {
    let mut scene = Scene::new(QpType::Rc);
    let control = &mut scene.lab.a.control;
    let set = |tx| PortFaults { tx, ..PortFaults::default() };
    let fault = FaultConfig::default();
    for (faults, error) in [
        (FaultConfig { loss: 2.0, ..fault }, ControlError::Fault("loss")),
        (FaultConfig { delay_us: 1_000_001, ..fault }, ControlError::Fault("delay")),
        (FaultConfig { qp: Some(Qpn::new(5)), ..fault }, ControlError::UnknownQp(Qpn::new(5))),
    ] {
        assert_eq!(control.set_faults(1, &set(faults)), Err(error));
    }
    assert_eq!(control.set_faults(2, &set(fault)), Err(ControlError::NoSuchPort(2)));
    assert_eq!(control.faults(1), Some(&PortFaults::default()));
    assert_eq!(control.faults(2), None);
    scene.finish();
}
