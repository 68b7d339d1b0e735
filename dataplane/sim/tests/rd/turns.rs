//! Turns: one message at a time per EEC, in order per RD QP.

use core::time::Duration;

use uroce_sim::{Rule, Seen};
use uroce_transport::{Counter, QpChange, QpState, RdAddress, SendOp, Side, WcOpcode, WcStatus};
use uroce_wire::OpCode;

use crate::{A, B, SHORTLY, Scene};

#[test] //= check R3 test
//= check R19 test
fn three_rd_qps_send_over_one_eec_in_turn() {
    let mut scene = Scene::new();
    let mut expected = Vec::new();
    for round in 0..3 {
        for (from, to) in scene.here.into_iter().zip(scene.there) {
            let recv = scene.pair.rd_recv(to, 1000);
            let send = scene.pair.rd_send(from, to, 700 + round);
            expected.push((from, send, recv));
        }
    }
    scene.run();
    let source = scene.pair.source(A, 702).to_vec();
    assert_eq!(scene.pair.received_bytes(B, 702), source);
    for (from, to) in scene.here.into_iter().zip(scene.there) {
        let mine = expected.iter().filter(|(at, ..)| *at == from);
        let (sends, recvs): (Vec<_>, Vec<_>) = mine.map(|(_, send, recv)| (*send, *recv)).unzip();
        scene.assert_succeeded(from, Side::Send, &sends);
        let cqes = scene.pair.take_at(to, Side::Recv);
        assert_eq!(cqes.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), recvs);
        for (cqe, len) in cqes.iter().zip(700..) {
            assert_eq!((cqe.status, cqe.opcode), (WcStatus::Success, WcOpcode::Recv));
            assert_eq!(cqe.src_qpn, scene.pair.world.qp(from).qpn());
            assert_eq!((cqe.eecn(), cqe.byte_len), (Some(scene.pair.qpn(B)), len));
            assert_eq!(cqe.qpn, scene.pair.world.qp(to).qpn());
        }
    }
    assert_eq!(scene.pair.count(A, Counter::SendMessages), 9);
    assert_eq!(scene.pair.count(B, Counter::RecvMessages), 9);
    // In turn: no RD QP sends twice in a row while others wait.
    let firsts: Vec<_> = scene.pair.seen(A).iter().map(|seen| seen.ext.deth.src_qpn).collect();
    let mut turns = firsts.clone();
    turns.dedup();
    assert_eq!(turns.len(), 9, "{turns:?}");
}

#[test] //= check R5 test
fn messages_of_one_rd_qp_go_one_after_the_other_by_two_eecs() {
    let mut scene = Scene::new();
    let others = scene.pair.another();
    let eecns = [scene.pair.qpn(A), scene.pair.world.qp(others[A]).qpn()];
    let (from, to) = (scene.here[0], scene.there[0]);
    let mut sends = Vec::new();
    let mut recvs = Vec::new();
    for at in 0..10 {
        recvs.push(scene.pair.rd_recv(to, 2000));
        let eecn = eecns[at % 2];
        let address = RdAddress { eecn, ..scene.pair.rd_address(A, to) };
        let op = SendOp::Send { imm: None };
        let sge = scene.pair.local(A).sge(0, 1000);
        sends.push(scene.pair.post_rd_as(from, &address, op, &[sge], |_| ()));
    }
    scene.run();
    scene.assert_succeeded(from, Side::Send, &sends);
    let cqes = scene.pair.take_at(to, Side::Recv);
    assert_eq!(cqes.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), recvs);
    let there = [scene.pair.qpn(B), scene.pair.world.qp(others[B]).qpn()];
    for (at, cqe) in cqes.iter().enumerate() {
        assert_eq!(cqe.eecn(), Some(there[at % 2]));
    }
    // Each message begins after the last one was acknowledged.
    let requests = scene.pair.seen(A);
    let answers = scene.pair.seen(B);
    for pair in requests.windows(2).filter(|pair| pair[0].ext.rdeth != pair[1].ext.rdeth) {
        let acked = |seen: &&Seen| seen.at > pair[0].at && seen.at < pair[1].at;
        assert!(answers.iter().any(|seen| acked(&seen)), "{pair:?}");
    }
}

#[test] //= check R36 test
fn messages_by_several_eecs_to_one_rd_qp_complete_in_the_order_in_which_they_end() {
    let mut scene = Scene::new();
    let others = scene.pair.another();
    let to = scene.there[0];
    let recvs = [0; 2].map(|_| scene.pair.rd_recv(to, 4000));
    // The first message is slow: it lacks a packet until its timeout.
    scene.pair.rule(Rule::drop().from(A).nth(5));
    let slow = scene.pair.rd_send(scene.here[0], to, 256 * 5);
    scene.pair.run_for(Duration::from_micros(2));
    let address =
        RdAddress { eecn: scene.pair.world.qp(others[A]).qpn(), ..scene.pair.rd_address(A, to) };
    let sge = scene.pair.local(A).sge(0, 700);
    let op = SendOp::Send { imm: None };
    let fast = scene.pair.post_rd_as(scene.here[1], &address, op, &[sge], |_| ());
    scene.run();
    scene.assert_succeeded(scene.here[0], Side::Send, &[slow]);
    scene.assert_succeeded(scene.here[1], Side::Send, &[fast]);
    let cqes = scene.pair.take_at(to, Side::Recv);
    let ended: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.byte_len, cqe.position)).collect();
    assert_eq!(ended, [(recvs[1], 700, 1), (recvs[0], 1280, 2)]);
}

#[test] //= check R36 test
fn peers_that_begin_a_message_each_and_send_no_more_do_not_stop_an_rd_qp_for_others() {
    const SILENT: usize = 40;
    let mut scene = Scene::untapped();
    let (source, to) = (scene.pair.world.qp(scene.here[0]).qpn(), scene.there[0]);
    let dest = scene.pair.world.qp(to).qpn();
    for _ in 0..SILENT {
        let [_, eec] = scene.pair.another();
        let (eecn, psn) = {
            let eec = scene.pair.world.qp(eec);
            (eec.qpn().value(), eec.attr().rq_psn)
        };
        scene.pair.rd_recv(to, 1000);
        let first = scene.pair.craft(A, OpCode::RD_SEND_FIRST).payload(&[1; 256]).psn(psn);
        let first = first.bth(|bth| bth.dest_qpn = dest);
        let first = first.ext(|ext| (ext.deth.src_qpn, ext.rdeth.eecn) = (source, eecn));
        scene.pair.deliver(A, &first);
    }
    assert_eq!(scene.pair.world.qp(to).recv_wrs(), SILENT as u32);
    let recv = scene.pair.rd_recv(to, 1000);
    let send = scene.pair.rd_send(scene.here[1], to, 700);
    scene.pair.run();
    scene.assert_succeeded(scene.here[1], Side::Send, &[send]);
    scene.assert_succeeded(to, Side::Recv, &[recv]);
    assert_eq!(scene.pair.count(B, Counter::OutOfBuffer), 0);
    // All of them complete once.
    scene.pair.world.fail(to);
    assert_eq!(scene.done(to, Side::Recv).len(), SILENT);
}

#[test] //= check R15 test
fn a_qp_without_receives_at_the_peer_does_not_hold_up_the_others() {
    let mut scene = Scene::new();
    let [first, second, third] = scene.here;
    let late = scene.pair.rd_send(first, scene.there[0], 600);
    let recvs = [0; 6].map(|_| scene.pair.rd_recv(scene.there[1], 1000));
    let sends = [0; 3].map(|_| scene.pair.rd_send(second, scene.there[1], 600));
    let more = [0; 3].map(|_| scene.pair.rd_send(third, scene.there[1], 600));
    // The RNR timer of the scenes is 80 µs.
    scene.pair.run_for(SHORTLY);
    scene.assert_succeeded(second, Side::Send, &sends);
    scene.assert_succeeded(third, Side::Send, &more);
    assert_eq!(scene.done(scene.there[1], Side::Recv).len(), recvs.len());
    scene.assert_ended(first, Side::Send, &[]);
    assert_eq!(scene.resyncs(A).len(), 1);
    let recv = scene.pair.rd_recv(scene.there[0], 1000);
    scene.run();
    scene.assert_succeeded(first, Side::Send, &[late]);
    scene.assert_succeeded(scene.there[0], Side::Recv, &[recv]);
}

#[test] //= check R15 test
fn a_message_that_was_put_off_waits_as_long_as_the_rnr_nak_says() {
    let mut scene = Scene::new();
    let [first, second, _] = scene.here;
    scene.pair.rd_send(first, scene.there[0], 600);
    scene.pair.rd_recv(scene.there[1], 1000);
    scene.pair.rd_send(second, scene.there[1], 600);
    scene.pair.run_for(Duration::from_micros(20));
    let recv = scene.pair.rd_recv(scene.there[0], 1000);
    scene.run();
    scene.assert_succeeded(scene.there[0], Side::Recv, &[recv]);
    let own = scene.pair.world.qp(first).qpn();
    let mut seen = scene.pair.seen(A);
    seen.retain(|seen| seen.ext.deth.src_qpn == own && !seen.bth.opcode.eq(&RESYNC));
    let begun: Vec<_> = seen.iter().map(|seen| seen.at).collect();
    let wait = begun[begun.len() - 1].since(begun[0]);
    assert!(wait >= Duration::from_micros(80), "{wait:?}");
    assert!(wait < Duration::from_micros(90), "{wait:?}");
}

const RESYNC: OpCode = OpCode::RD_RESYNC;

#[test] //= check R16 test
fn rnr_retries_are_those_of_the_request_also_when_others_send_in_between() {
    for is_alone in [true, false] {
        let mut scene = Scene::with(|terms| terms.half[A].rnr_retry = 2);
        let [first, second, third] = scene.here;
        let send = scene.pair.rd_send(first, scene.there[0], 600);
        let behind = scene.pair.rd_send(first, scene.there[0], 600);
        for _ in 0..if is_alone { 0 } else { 30 } {
            scene.pair.rd_recv(scene.there[1], 1000);
            scene.pair.rd_send(second, scene.there[1], 600);
            scene.pair.run_for(Duration::from_micros(20));
        }
        scene.run();
        let expected = [(send, WcStatus::RnrRetryExcErr), (behind, WcStatus::WrFlushErr)];
        scene.assert_ended(first, Side::Send, &expected);
        scene.assert_state(first, QpState::Sqe);
        scene.assert_state(third, QpState::Rts);
        assert_eq!(scene.pair.count(B, Counter::RnrNakSent), 3, "alone: {is_alone}");
        assert_eq!(scene.pair.count(A, Counter::RnrRetriesExceeded), 1);
        scene.assert_eecs_live();
    }
}

#[test] //= check R16 test
fn rnr_retries_are_counted_though_the_beginning_of_the_message_is_acknowledged_each_time() {
    let mut scene = Scene::with(|terms| terms.half[A].rnr_retry = 2);
    let [first, second, _] = scene.here;
    // A receive is needed by the last of three packets only.
    let write = scene.pair.rd_write(first, scene.there[0], 700, Some(1));
    for _ in 0..60 {
        scene.pair.rd_recv(scene.there[1], 1000);
        scene.pair.rd_send(second, scene.there[1], 600);
        scene.pair.run_for(Duration::from_micros(20));
    }
    scene.run();
    scene.assert_ended(first, Side::Send, &[(write, WcStatus::RnrRetryExcErr)]);
    assert_eq!(scene.pair.count(B, Counter::RnrNakSent), 3);
    assert_eq!(scene.pair.count(A, Counter::RnrRetriesExceeded), 1);
    scene.assert_eecs_live();
}

#[test] //= check R26 test
fn an_rd_qp_in_sqd_finishes_its_message_and_begins_none() {
    let mut scene = Scene::slow();
    let [first, second, _] = scene.here;
    let to = scene.there[0];
    for _ in 0..4 {
        scene.pair.rd_recv(to, 4000);
    }
    let sends = [0; 2].map(|_| scene.pair.rd_send(first, to, 3000));
    let other = scene.pair.rd_send(second, to, 3000);
    scene.pair.run_for(Duration::from_nanos(1500));
    let change = QpChange { en_sqd_async_notify: Some(true), ..QpChange::to(QpState::Sqd) };
    // The first message of `first` is in progress, `second` waits in line.
    scene.pair.world.modify(first, &change).unwrap();
    scene.pair.world.modify(second, &change).unwrap();
    assert_eq!(scene.pair.take_events_at(second), [uroce_transport::AsyncEvent::SqDrained]);
    assert_eq!(scene.pair.take_events_at(first), []);
    scene.run();
    assert_eq!(scene.pair.take_events_at(first), [uroce_transport::AsyncEvent::SqDrained]);
    scene.assert_succeeded(first, Side::Send, &sends[..1]);
    scene.assert_ended(second, Side::Send, &[]);
    for at in [second, first] {
        scene.pair.world.modify(at, &QpChange::to(QpState::Rts)).unwrap();
    }
    scene.run();
    scene.assert_succeeded(second, Side::Send, &[other]);
    scene.assert_succeeded(first, Side::Send, &sends[1..]);
}

#[test] //= check R26 test
fn an_eec_in_sqd_finishes_its_message_and_tells_once_that_it_has_drained() {
    let mut scene = Scene::slow();
    let [first, second, _] = scene.here;
    let to = scene.there[0];
    for _ in 0..3 {
        scene.pair.rd_recv(to, 4000);
    }
    let sends = [0; 2].map(|_| scene.pair.rd_send(first, to, 3000));
    let other = scene.pair.rd_send(second, to, 3000);
    scene.pair.run_for(Duration::from_nanos(1500));
    let change = QpChange { en_sqd_async_notify: Some(true), ..QpChange::to(QpState::Sqd) };
    scene.pair.modify(A, &change).unwrap();
    assert_eq!(scene.pair.take_events(A), []);
    scene.run();
    assert_eq!(scene.pair.take_events(A), [uroce_transport::AsyncEvent::SqDrained]);
    scene.assert_succeeded(first, Side::Send, &sends[..1]);
    scene.assert_ended(second, Side::Send, &[]);
    scene.pair.modify(A, &QpChange::to(QpState::Rts)).unwrap();
    scene.run();
    scene.assert_succeeded(first, Side::Send, &sends[1..]);
    scene.assert_succeeded(second, Side::Send, &[other]);
}
