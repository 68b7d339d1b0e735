//! Posts, and the EECs that they name.

use core::time::Duration;

use uroce_sim::{Pair, RDD, Terms};
use uroce_transport::{
    PostError, QpCaps, QpChange, QpInit, QpState, QpType, RdAddress, Rdd, RecvWr, SendOp, Side,
    WcStatus, WorkQueues,
};
use uroce_wire::{Placement, Qpn};

use crate::{A, B, Scene};

#[test] //= check R8 test
fn an_rd_qp_takes_posts_with_a_destination_and_an_eec_takes_none() {
    let mut scene = Scene::new();
    let pair = &mut scene.pair;
    let (at, to) = (scene.here[0], scene.there[0]);
    let address = pair.rd_address(A, to);
    let (va, rkey) = (pair.remote(1).va(0), pair.remote(1).rkey());
    let sge = [pair.local(A).sge(0, 8)];
    let wr = pair.send_wr(SendOp::Send { imm: None });
    let refused = Err(PostError::WrongOperation);
    assert_eq!(pair.world.post_send(at, &wr, &sge), refused);
    assert_eq!(pair.world.post_inline(at, &wr, &[1]), refused);
    assert_eq!(pair.world.post_send(pair.at(A), &wr, &sge), refused);
    assert_eq!(pair.world.post_datagram(pair.at(A), &wr, &address, &sge), refused);
    assert_eq!(pair.world.post_recv(pair.at(A), &RecvWr { wr_id: 1 }, &[]), Err(PostError::HasSrq));
    let flush = pair.flush_op(A, 8, Placement::GLOBAL);
    let local = [flush, SendOp::LocalInvalidate { rkey }];
    let with_data = [SendOp::AtomicWrite { va, rkey }, SendOp::SendWithInvalidate { rkey }];
    for op in local {
        let wr = pair.send_wr(op);
        assert_eq!(pair.world.post_datagram(at, &wr, &address, &[]), refused, "{op:?}");
    }
    for op in with_data {
        let wr = pair.send_wr(op);
        assert_eq!(pair.world.post_datagram(at, &wr, &address, &sge), refused, "{op:?}");
    }
    let mut plain = Pair::rts();
    let wr = plain.send_wr(SendOp::Send { imm: None });
    let address = RdAddress::default();
    assert_eq!(plain.world.post_datagram(plain.at(A), &wr, &address, &[]), refused);
}

#[test] //= check R8 test
fn inline_data_is_that_of_the_time_of_posting() {
    let mut scene = Scene::new();
    let (from, to) = (scene.here[0], scene.there[0]);
    let data: Vec<u8> = (0..=255).cycle().take(1000).collect();
    let recv = scene.pair.rd_recv(to, 1000);
    let address = scene.pair.rd_address(A, to);
    scene.pair.rule(uroce_sim::Rule::drop().from(A).nth(2));
    let wr = scene.pair.send_wr(SendOp::Send { imm: None });
    scene.pair.world.post_inline_datagram(from, &wr, &address, &data).unwrap();
    scene.run();
    scene.assert_succeeded(from, Side::Send, &[wr.wr_id]);
    scene.assert_succeeded(to, Side::Recv, &[recv]);
    assert_eq!(scene.pair.received_bytes(1, 1000), data);
}

#[test] //= check R8 test
fn posts_below_rts_are_refused() {
    let mut scene = Scene::new();
    let at = scene.pair.add_rd_in_reset(A, |_| ());
    let address = scene.pair.rd_address(A, scene.there[0]);
    let wr = scene.pair.send_wr(SendOp::Send { imm: None });
    for change in scene.pair.rd_changes(A) {
        let refused = scene.pair.world.post_datagram(at, &wr, &address, &[]);
        assert_eq!(refused, Err(PostError::InvalidState));
        scene.pair.world.modify(at, &change).unwrap();
    }
    scene.pair.world.fail(at);
    scene.pair.world.post_datagram(at, &wr, &address, &[]).unwrap();
    scene.assert_ended(at, Side::Send, &[(wr.wr_id, WcStatus::WrFlushErr)]);
}

#[test] //= check R8 test
//= check G2 test
fn receives_are_taken_from_init_on_and_filled_in_their_order() {
    let mut scene = Scene::new();
    let (from, at) = (scene.here[0], scene.pair.add_rd_in_reset(B, |_| ()));
    let refused = scene.pair.world.post_recv(at, &RecvWr { wr_id: 1 }, &[]);
    assert_eq!(refused, Err(PostError::InvalidState));
    let [init, rtr, rts] = scene.pair.rd_changes(B);
    scene.pair.world.modify(at, &init).unwrap();
    let first = scene.pair.rd_recv(at, 100);
    scene.pair.world.modify(at, &rtr).unwrap();
    let second = scene.pair.rd_recv(at, 100);
    for _ in 0..2 {
        scene.pair.rd_send(from, at, 10);
    }
    scene.run();
    scene.assert_succeeded(at, Side::Recv, &[first, second]);
    scene.pair.world.modify(at, &rts).unwrap();
    let third = scene.pair.rd_recv(at, 100);
    scene.pair.rd_send(from, at, 10);
    scene.run();
    scene.assert_succeeded(at, Side::Recv, &[third]);
}

/// Posts two requests by the EEC `eecn`, of which the first must fail.
fn assert_unusable(scene: &mut Scene, eecn: Qpn, status: WcStatus) {
    let (from, to) = (scene.here[0], scene.there[0]);
    let address = RdAddress { eecn, ..scene.pair.rd_address(A, to) };
    let op = SendOp::Send { imm: None };
    let wr_id = scene.pair.post_rd_as(from, &address, op, &[], |wr| wr.signaled = false);
    scene.assert_ended(from, Side::Send, &[(wr_id, status)]);
    scene.assert_state(from, QpState::Sqe);
    // What is posted in SQE is flushed, and after SQE the QP works again.
    let wr_id = scene.pair.post_rd_as(from, &address, op, &[], |_| ());
    scene.assert_ended(from, Side::Send, &[(wr_id, WcStatus::WrFlushErr)]);
    scene.pair.world.modify(from, &QpChange::to(QpState::Rts)).unwrap();
    scene.assert_no_flaw();
}

#[test] //= check R17 test
fn a_request_that_names_an_eec_that_it_cannot_use_fails_and_takes_the_qp_to_sqe() {
    let mut scene = Scene::new();
    assert_unusable(&mut scene, Qpn::new(0), WcStatus::InvEecnErr);
    assert_unusable(&mut scene, Qpn::new(0x7777), WcStatus::InvEecnErr);
    // A QP that is no EEC.
    let other = scene.pair.world.qp(scene.here[1]).qpn();
    assert_unusable(&mut scene, other, WcStatus::InvEecnErr);
    let caps = uroce_sim::Terms::default().caps;
    let init = QpInit { rdd: RDD, ..QpInit::new(QpType::Eec, caps) };
    let pd = uroce_transport::Pd(1);
    let eec = scene.pair.world.add_qp(0, 0x99, pd, &init);
    let eecn = scene.pair.world.qp(eec).qpn();
    assert_unusable(&mut scene, eecn, WcStatus::InvEecStateErr);
    scene.pair.world.modify(eec, &QpChange::to_init(1)).unwrap();
    assert_unusable(&mut scene, eecn, WcStatus::InvEecStateErr);
    scene.pair.world.modify(eec, &QpChange::to(QpState::Err)).unwrap();
    assert_unusable(&mut scene, eecn, WcStatus::InvEecStateErr);
    let init = QpInit { rdd: Rdd(RDD.0 + 1), ..init };
    let eec = scene.pair.world.add_qp(0, 0x99, pd, &init);
    let eecn = scene.pair.world.qp(eec).qpn();
    assert_unusable(&mut scene, eecn, WcStatus::LocRddViolErr);
    // Receives are not touched.
    let recv = scene.pair.rd_recv(scene.here[0], 1000);
    scene.pair.rd_send(scene.there[0], scene.here[0], 100);
    scene.run();
    scene.assert_succeeded(scene.here[0], Side::Recv, &[recv]);
    scene.assert_eecs_live();
}

#[test] //= check R17 test
fn a_request_that_names_an_eec_in_rtr_waits_for_rts() {
    let pair = Pair::reset(|terms| terms.qp_type = QpType::Eec);
    let mut scene = Scene::of(pair);
    scene.pair.bring_to(A, QpState::Rtr);
    scene.pair.bring_to(1, QpState::Rts);
    let (from, to) = (scene.here[0], scene.there[0]);
    scene.pair.rd_recv(to, 100);
    let send = scene.pair.rd_send(from, to, 100);
    scene.pair.run();
    scene.assert_ended(from, Side::Send, &[]);
    scene.pair.bring_to(A, QpState::Rts);
    scene.pair.run();
    scene.assert_succeeded(from, Side::Send, &[send]);
}

#[test] //= check R7 test
fn the_queues_of_an_rd_qp_are_exchanged_for_others_while_they_are_empty() {
    let mut scene = Scene::slow();
    let (from, to) = (scene.here[0], scene.there[0]);
    let caps = QpCaps { max_send_wr: 300, max_recv_wr: 300, ..Terms::default().caps };
    // A message in progress, and a receive that an EEC fills.
    scene.pair.rd_recv(to, 4000);
    let send = scene.pair.rd_send(from, to, 3000);
    scene.pair.run_for(Duration::from_nanos(1200));
    for at in [from, to] {
        assert!(!scene.pair.world.exchange_queues(at, &mut WorkQueues::new(&caps, false)));
    }
    scene.run();
    scene.assert_succeeded(from, Side::Send, &[send]);
    assert_eq!(scene.done(to, Side::Recv).len(), 1);
    for at in scene.there.into_iter().chain([from]) {
        assert!(scene.pair.world.exchange_queues(at, &mut WorkQueues::new(&caps, false)));
    }
    // Each of more requests than the former queue had room for names its own destination.
    let mut expected = [const { Vec::new() }; 3];
    let mut sends = Vec::new();
    for nth in 0..300 {
        let to = scene.there[nth % 3];
        expected[nth % 3].push(scene.pair.rd_recv(to, 100));
        sends.push(scene.pair.rd_send(from, to, 10));
    }
    scene.run();
    scene.assert_succeeded(from, Side::Send, &sends);
    for (to, recvs) in scene.there.into_iter().zip(&expected) {
        scene.assert_succeeded(to, Side::Recv, recvs);
    }
    // An EEC has none of its own.
    let eec = scene.pair.at(A);
    assert!(!scene.pair.world.exchange_queues(eec, &mut WorkQueues::new(&caps, false)));
}
