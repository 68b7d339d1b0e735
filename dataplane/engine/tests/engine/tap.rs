//! Taps: copies of the frames that a port receives and sends.

use crate::lab::{Buffer, Lab, LabConfig, QpWish, TestQp, eventually};
use uroce_engine::{ControlError, LossConfig, TapFrame, TapReader, TapSpec};
use uroce_transport::{AccessFlags, QpType, SendOp, WcStatus};
use uroce_wire::{Frame, Packet, Qpn};

const ALL: TapSpec = TapSpec { snaplen: u16::MAX, qp: None, ring: 1 << 20, drops: false };
/// Frames of a message.
const FRAMES: usize = 16;

/// A QP on each side of a link, of a service that sends nothing again and acknowledges nothing, and
/// memory of both.
struct Scene {
    lab: Lab,
    a: TestQp,
    b: TestQp,
    local: Buffer,
    remote: Buffer,
}

impl Scene {
    fn new(config: &LabConfig, lcores: [Option<usize>; 2]) -> Scene {
        let mut lab = Lab::new(config);
        let (a, b) = lab.connect(&QpWish { qp_type: QpType::Uc, lcores, ..QpWish::default() });
        let local = lab.a.register(a.pd, 1 << 16, AccessFlags::all());
        let remote = lab.b.register(b.pd, 1 << 16, AccessFlags::all());
        local.fill(1);
        Scene { lab, a, b, local, remote }
    }

    /// Writes 64 KiB in [`FRAMES`] frames.
    fn write(&mut self) {
        let op = SendOp::Write { va: self.remote.va(), rkey: self.remote.keys.rkey, imm: None };
        self.a.send(1, op, &[self.local.sge(0, 1 << 16)]);
        assert_eq!(self.a.completion().status, WcStatus::Success);
    }

    fn finish(self) {
        let Scene { lab, local, remote, .. } = self;
        drop((local, remote));
        lab.finish();
    }
}

/// Returns what a tap has taken.
fn drain(readers: &mut [TapReader]) -> Vec<TapFrame> {
    let (mut frames, mut frame) = (Vec::new(), TapFrame::default());
    for reader in readers {
        while reader.read(&mut frame) {
            frames.push(frame.clone());
        }
    }
    frames
}

fn dest_qpn(frame: &TapFrame) -> Qpn {
    let Ok(Frame::Roce(datagram)) = Frame::parse(&frame.bytes) else { panic!("{frame:?}") };
    assert!(datagram.icrc_ok(), "whole");
    Packet::parse(datagram.transport).expect("a packet").bth.dest_qpn
}

#[test]
fn both_ends_of_a_link_see_each_frame_once() {
    // The sender's lcore has no queue pair of its own.
    let config = LabConfig { lcores: 2, queue_pairs: Some(1), ..LabConfig::default() };
    let mut scene = Scene::new(&config, [Some(1), Some(1)]);
    let mut sent = scene.lab.a.control.set_tap(1, &ALL).expect("port 1");
    let mut received = scene.lab.b.control.set_tap(1, &ALL).expect("port 1");
    scene.write();
    let (mut out, mut came) = (Vec::new(), Vec::new());
    eventually("the frames", || {
        out.extend(drain(&mut sent));
        came.extend(drain(&mut received));
        came.len() >= FRAMES
    });
    assert_eq!((out.len(), came.len()), (FRAMES, FRAMES));
    assert!(out.iter().all(|frame| frame.is_sent && frame.missed == 0));
    assert!(came.iter().all(|frame| !frame.is_sent && frame.missed == 0));
    assert!(out.iter().chain(&came).all(|frame| dest_qpn(frame) == scene.b.qpn));
    let bytes = |frames: &[TapFrame]| frames.iter().map(|of| of.bytes.clone()).collect::<Vec<_>>();
    assert_eq!(bytes(&out), bytes(&came));
    assert!(out.windows(2).all(|two| two[0].time <= two[1].time));

    scene.lab.a.control.clear_tap(1).expect("port 1");
    scene.write();
    eventually("the next frames", || {
        came.extend(drain(&mut received));
        came.len() >= 2 * FRAMES
    });
    assert!(drain(&mut sent).is_empty(), "no copies without a tap");
    scene.finish();
}

#[test]
fn a_tap_of_a_qp_takes_its_frames_only_and_no_more_bytes_than_asked_for() {
    let mut scene = Scene::new(&LabConfig::default(), [None, None]);
    let other = scene.lab.a.create_qp(&QpWish::default()).qpn;
    let spec = TapSpec { qp: Some(other), ..ALL };
    let mut none = scene.lab.a.control.set_tap(1, &spec).expect("port 1");
    let spec = TapSpec { qp: Some(scene.b.qpn), snaplen: 64, ..ALL };
    let mut short = scene.lab.b.control.set_tap(1, &spec).expect("port 1");
    scene.write();
    let mut came = Vec::new();
    eventually("the frames", || {
        came.extend(drain(&mut short));
        came.len() == FRAMES
    });
    assert!(came.iter().all(|frame| frame.bytes.len() == 64 && frame.len > 4096));
    assert!(drain(&mut none).is_empty());

    let spec = TapSpec { qp: Some(scene.a.qpn), ..ALL };
    let mut own = scene.lab.a.control.set_tap(1, &spec).expect("port 1");
    drop(none);
    scene.write();
    assert_eq!(drain(&mut own).len(), FRAMES);
    scene.finish();
}

#[test]
fn a_tap_sees_the_wire_not_what_injected_loss_leaves() {
    let mut scene = Scene::new(&LabConfig::default(), [None, None]);
    let lossy = LossConfig { rx: 1.0, tx: 0.0, seed: 0 };
    scene.lab.b.control.set_loss(1, lossy).expect("port 1");
    let mut received = scene.lab.b.control.set_tap(1, &ALL).expect("port 1");
    scene.write();
    let mut came = Vec::new();
    eventually("the frames", || {
        came.extend(drain(&mut received));
        came.len() == FRAMES
    });
    let lossy = LossConfig { rx: 0.0, tx: 1.0, seed: 0 };
    scene.lab.a.control.set_loss(1, lossy).expect("port 1");
    let mut sent = scene.lab.a.control.set_tap(1, &ALL).expect("port 1");
    scene.write();
    assert!(drain(&mut sent).is_empty(), "they were lost before");
    scene.finish();
}

#[test]
fn a_tap_needs_a_port_and_its_qp() {
    let mut scene = Scene::new(&LabConfig::default(), [None, None]);
    let control = &mut scene.lab.a.control;
    assert_eq!(control.set_tap(2, &ALL).err(), Some(ControlError::NoSuchPort(2)));
    assert_eq!(control.clear_tap(0), Err(ControlError::NoSuchPort(0)));
    let spec = TapSpec { qp: Some(Qpn::new(5)), ..ALL };
    assert_eq!(control.set_tap(1, &spec).err(), Some(ControlError::UnknownQp(Qpn::new(5))));
    assert_eq!(control.clear_tap(1), Ok(()), "without a tap, too");
    scene.finish();
}
