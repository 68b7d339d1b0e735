//! Destroying and resizing QPs while work is under way. One process per test.

use crate::lab;
use crate::lab::{Lab, LabConfig, QpWish, eventually};
use std::sync::Arc;
use uroce_engine::{ControlError, LossConfig, QpSpec};
use uroce_transport::{
    AccessFlags, PostError, QpCaps, QpChange, QpState, QpType, RdAttr, RecvWr, SendOp, WcStatus,
};
use uroce_wire::{Psn, Qkey, Qpn};

/// Each QP is destroyed while its retry timer of some microseconds runs, on an lcore with its own
/// thread; the next QP gets its slot.
#[test] //= check G12 test
fn a_qp_destroyed_with_its_timers_running_leaves_nothing_to_its_successor() {
    const ROUNDS: u64 = 2_000;
    let all = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };
    // With two slots each second QP has the slot of a former one.
    let mut lab = Lab::new(&LabConfig { loss: all, max_qps: 2, ..LabConfig::default() });
    let wish = QpWish { timeout: 1, retry_cnt: 7, ..QpWish::default() };
    let dest = lab.b.create_qp(&wish).qpn;
    let pd = lab.a.engine.alloc_pd();
    let local = lab.a.register(pd, 64, AccessFlags::all());
    let mut before: Vec<lab::TestQp> = Vec::new();
    for round in 0..ROUNDS {
        let mut qp = lab.a.create_qp_with(pd, &wish, None);
        lab.a.bring_up(&mut qp, &lab.b.addresses.clone(), dest, &wish);
        let op = SendOp::Write { va: local.va(), rkey: local.keys.rkey, imm: None };
        qp.send(round, op, &[local.sge(0, 64)]);
        // From at once to after the last retry.
        for _ in 0..round % 97 {
            std::thread::yield_now();
        }
        lab.a.control.destroy_qp(qp.qpn).expect("destroys");
        assert_eq!(qp.sq.state(), QpState::Reset);
        assert_eq!(lab.a.control.query_qp(qp.qpn), Err(ControlError::UnknownQp(qp.qpn)));
        // Its only completion, if any, came before: the error.
        let said = qp.cq.poll().expect("no overrun");
        assert!(said.is_none_or(|cqe| (cqe.wr_id, cqe.qpn) == (round, qp.qpn)), "{said:?}");
        before.push(qp);
        if before.len() > 4 {
            let former = before.remove(0);
            assert_eq!(former.cq.poll(), Ok(None), "nothing comes afterwards");
        }
    }
    assert!(lab.a.engine.is_running());
    drop((local, before));
    lab.finish();
}

/// The changes of a QP of this type at `lab.a` to INIT, RTR, RTS, SQD and ERR.
fn steps(lab: &Lab, qp_type: QpType, dest: Qpn) -> [QpChange; 5] {
    let wish = QpWish { qp_type, ..QpWish::default() };
    let connected = lab::changes(&lab.a.addresses, &lab.b.addresses, dest, &wish);
    let access = AccessFlags::REMOTE_WRITE;
    let rd = RdAttr { access, max_dest_rd_atomic: 16, min_rnr_timer: 1 };
    let [init, rtr, rts] = match qp_type {
        QpType::Ud => QpChange::datagram_steps(1, Qkey(9), Psn::new(1)),
        QpType::Rd => QpChange::reliable_datagram_steps(Qkey(9), &rd),
        QpType::Eec => connected.map(|change| QpChange { access: None, ..change }),
        QpType::RawPacket | QpType::RawEtherType | QpType::RawIpv6 => {
            let init = QpChange { port: Some(1), ..QpChange::to(QpState::Init) };
            [init, QpChange::to(QpState::Rtr), QpChange::to(QpState::Rts)]
        }
        _ => connected,
    };
    [init, rtr, rts, QpChange::to(QpState::Sqd), QpChange::to(QpState::Err)]
}

#[test] //= check G12 test
fn a_qp_of_each_service_is_destroyed_in_each_state_of_its_life_and_makes_room() {
    use QpState::{Err as Error, Init, Reset, Rtr, Rts, Sqd};
    let mut lab = Lab::new(&LabConfig { max_qps: 2, ..LabConfig::default() });
    let _other = lab.a.create_qp(&QpWish::default());
    let dest = lab.b.create_qp(&QpWish::default()).qpn;
    let types = [
        QpType::Rc,
        QpType::Uc,
        QpType::Ud,
        QpType::Rd,
        QpType::Eec,
        QpType::RawPacket,
        QpType::RawEtherType,
        QpType::RawIpv6,
    ];
    for qp_type in types {
        let changes = steps(&lab, qp_type, dest);
        for (count, state) in [Reset, Init, Rtr, Rts, Sqd, Error].into_iter().enumerate() {
            let is_rd = matches!(qp_type, QpType::Rd | QpType::Eec);
            let rdd = is_rd.then(|| Arc::new(lab.a.engine.open_rd_domain()));
            let cq = lab.a.engine.create_cq(4, None).expect("CQ");
            let wish = QpWish { qp_type, ..QpWish::default() };
            let spec = QpSpec { rdd, ..wish.spec(lab.a.engine.alloc_pd(), &cq) };
            let qp = lab.a.control.create_qp(&spec).expect("there is room for one");
            for change in &changes[..count] {
                lab.a.control.modify_qp(qp.qpn, change).expect("Modify QP");
            }
            assert_eq!(lab.a.control.query_qp(qp.qpn).expect("a QP").attr.state, state);
            lab.a.control.destroy_qp(qp.qpn).expect("destroys");
            let gone = Err(ControlError::UnknownQp(qp.qpn));
            assert_eq!(lab.a.control.query_qp(qp.qpn), gone, "{qp_type} {state}");
        }
    }
    lab.finish();
}

fn caps(wrs: u32) -> QpCaps {
    QpCaps {
        max_send_wr: wrs,
        max_recv_wr: wrs,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 16,
    }
}

#[test] //= check H12 test
fn an_idle_qp_gets_queues_of_other_sizes_and_goes_on_where_it_was() {
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, mut b) = lab.connect(&QpWish { caps: caps(2), ..QpWish::default() });
    let local = lab.a.register(a.pd, 4096, AccessFlags::all());
    let remote = lab.b.register(b.pd, 4096, AccessFlags::all());
    let messages = |a: &mut lab::TestQp, b: &mut lab::TestQp, count: u64| {
        for id in 0..count {
            b.recv(id, &[remote.sge(0, 64)]);
        }
        for id in 0..count {
            a.send(id, SendOp::Send { imm: None }, &[local.sge(0, 64)]);
        }
        for id in 0..count {
            assert_eq!((a.completion().wr_id, b.completion().wr_id), (id, id));
        }
    };
    messages(&mut a, &mut b, 2);
    assert_eq!(a.sq.room(), 2);

    // A receive is outstanding, so nothing changes.
    b.recv(9, &[remote.sge(0, 64)]);
    let refused = lab.b.control.resize_qp(b.qpn, caps(8)).err();
    assert_eq!(refused, Some(ControlError::Outstanding));
    assert_eq!(lab.b.control.query_qp(b.qpn).expect("a QP").caps, caps(2));
    a.send(9, SendOp::Send { imm: None }, &[local.sge(0, 64)]);
    assert_eq!((a.completion().status, b.completion().wr_id), (WcStatus::Success, 9));
    let none = lab.b.control.resize_qp(b.qpn, caps(0)).err();
    assert_eq!(none, Some(ControlError::Caps(caps(0))));

    for wrs in [8, 1, 32] {
        for (node, qp) in [(&mut lab.a, &mut a), (&mut lab.b, &mut b)] {
            let (sq, rq) = node.control.resize_qp(qp.qpn, caps(wrs)).expect("nothing outstanding");
            let (mut old_sq, mut old_rq) =
                (std::mem::replace(&mut qp.sq, sq), std::mem::replace(&mut qp.rq, rq));
            let wr = lab::signaled(0, SendOp::Send { imm: None });
            assert_eq!(old_sq.post_send(&wr, &[]), Err(PostError::InvalidState));
            assert_eq!(old_rq.post_recv(&RecvWr { wr_id: 0 }, &[]), Err(PostError::InvalidState));
            assert_eq!(node.control.query_qp(qp.qpn).expect("a QP").caps, caps(wrs));
            assert_eq!((qp.sq.room(), qp.sq.state()), (wrs, QpState::Rts));
        }
        messages(&mut a, &mut b, u64::from(wrs));
    }
    // An error flushes the requests in the new queues.
    b.recv(1, &[remote.sge(0, 64)]);
    lab.b.control.modify_qp(b.qpn, &QpChange::to(QpState::Err)).expect("to ERR");
    assert_eq!(b.completion().status, WcStatus::WrFlushErr);
    drop((local, remote));
    lab.finish();
}

#[test] //= check G11 test
fn a_completion_queue_grows_under_an_lcore_that_fills_it() {
    const MESSAGES: u64 = 5_000;
    const DEPTH: u32 = 64;
    let mut lab = Lab::new(&LabConfig::default());
    let (mut a, b) = lab.connect(&QpWish { cq_depth: DEPTH, ..QpWish::default() });
    let local = lab.a.register(a.pd, 64, AccessFlags::all());
    let remote = lab.b.register(b.pd, 64, AccessFlags::all());
    let (cq, mut expected) = (a.cq.clone(), 0);
    std::thread::scope(|scope| {
        let grower = scope.spawn(move || {
            for depth in [100, 200, 1000, 500, 5000] {
                std::thread::sleep(std::time::Duration::from_millis(2));
                cq.resize(depth).expect("a depth that is possible");
                assert_eq!(cq.depth(), depth);
            }
        });
        for id in 0..MESSAGES {
            let op = SendOp::Write { va: remote.va(), rkey: remote.keys.rkey, imm: None };
            // Also in the completion queue: entries behind a ring that is not sealed take room.
            eventually("room in the queues", || {
                while let Some(cqe) = a.cq.poll().expect("no overrun") {
                    assert_eq!((cqe.wr_id, cqe.status), (expected, WcStatus::Success));
                    expected += 1;
                }
                a.sq.room() > 0 && id - expected < u64::from(DEPTH)
            });
            a.send(id, op, &[local.sge(0, 64)]);
        }
        grower.join().expect("no panic");
    });
    while expected < MESSAGES {
        assert_eq!(a.completion().wr_id, expected);
        expected += 1;
    }
    drop((local, remote));
    lab.finish();
}
