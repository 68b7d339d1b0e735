//! Deregistration under traffic: after it has returned, no byte changes. One process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, QpWish, eventually};
use uroce_transport::{AccessFlags, QpChange, QpState, SendOp, WcStatus};

const ALL: AccessFlags = AccessFlags::all();
const LEN: usize = 1 << 16;

/// Takes both QPs back to RTS after an error took them to ERR.
fn reconnect(lab: &mut Lab, a: &mut lab::TestQp, b: &mut lab::TestQp) {
    let reset = QpChange::to(QpState::Reset);
    lab.a.control.modify_qp(a.qpn, &reset).expect("RESET");
    lab.b.control.modify_qp(b.qpn, &reset).expect("RESET");
    while a.cq.poll().expect("deep enough").is_some() {}
    while b.cq.poll().expect("deep enough").is_some() {}
    let wish = QpWish::default();
    let (qpn_a, qpn_b) = (a.qpn, b.qpn);
    lab.a.bring_up(a, &lab.b.addresses, qpn_b, &wish);
    lab.b.bring_up(b, &lab.a.addresses, qpn_a, &wish);
}

/// Polls until everything posted has completed. Returns whether all of it succeeded.
fn drain(qp: &lab::TestQp, mut left: usize) -> bool {
    let mut good = true;
    eventually("all completions", || {
        while let Some(cqe) = qp.cq.poll().expect("deep enough") {
            left -= 1;
            good &= cqe.status == WcStatus::Success;
            if !good {
                let known = matches!(
                    cqe.status,
                    WcStatus::RemAccessErr | WcStatus::WrFlushErr | WcStatus::LocProtErr
                );
                assert!(known || cqe.status == WcStatus::Success, "{:?}", cqe.status);
            }
        }
        left == 0
    });
    good
}

#[test] //= check F6 test
fn the_target_of_writes_is_untouched_after_its_deregistration() {
    const POSTS: usize = 32;
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, mut b) = lab.connect(&QpWish::default());
    let local = lab.a.register(a.pd, LEN, ALL);
    local.fill(1);
    let mut cut_short = 0;
    for round in 0..60u64 {
        let mut target = lab.b.register(b.pd, LEN, ALL);
        let op = SendOp::Write { va: target.va(), rkey: target.keys.rkey, imm: None };
        (0..POSTS as u64).for_each(|id| a.send(id, op, &[local.sge(0, LEN as u32)]));
        // In the middle of the transfer: 2 MiB take about a millisecond.
        std::thread::sleep(std::time::Duration::from_micros(round * 20));
        target.deregister();
        target.fill(round + 1000);
        let after = target.bytes();
        let good = drain(&a, POSTS);
        assert_eq!(target.bytes(), after, "round {round}: written after the deregistration");
        if !good {
            cut_short += 1;
            reconnect(&mut lab, &mut a, &mut b);
        }
    }
    assert!(cut_short > 0, "no deregistration ever met a message");
    drop(local);
    lab.finish();
}

#[test] //= check C18 test
fn the_source_of_reads_and_writes_is_not_read_after_its_deregistration() {
    const POSTS: usize = 16;
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, mut b) = lab.connect(&QpWish::default());
    let sink = lab.a.register(a.pd, LEN, ALL);
    let mut cut_short = 0;
    for round in 0..60u64 {
        let mut source = lab.b.register(b.pd, LEN, ALL);
        source.fill(7);
        let op = SendOp::Read { va: source.va(), rkey: source.keys.rkey };
        (0..POSTS as u64).for_each(|id| a.send(id, op, &[sink.sge(0, LEN as u32)]));
        std::thread::sleep(std::time::Duration::from_micros(round * 20));
        source.deregister();
        // Values that must not be sent any more.
        source.set_word(0, u64::MAX);
        (0..LEN / 8).for_each(|at| source.set_word(at, u64::MAX));
        let good = drain(&a, POSTS);
        let leaked = (0..LEN / 8).filter(|&at| sink.word(at) == u64::MAX).count();
        assert_eq!(leaked, 0, "round {round}: words read after the deregistration");
        if !good {
            cut_short += 1;
            reconnect(&mut lab, &mut a, &mut b);
        }
    }
    assert!(cut_short > 0, "no deregistration ever met a message");
    drop(sink);
    lab.finish();
}
