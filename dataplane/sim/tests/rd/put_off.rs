//! Messages that are put off after an RNR NAK: executed once, and not in progress meanwhile.

use core::time::Duration;

use uroce_sim::Rule;
use uroce_transport::{AsyncEvent, Counter, QpChange, QpState, Side};
use uroce_wire::OpCode;

use crate::{A, B, SHORTLY, Scene};

/// Sends a message that meets no receive, with this fault; receives come when it was refused
/// `refusals` times. When the message is sent again, another RD QP gets in line. Returns the number
/// of RESYNCs.
#[track_caller]
fn assert_executed_once(code: u8, rule: Rule, refusals: u64) -> usize {
    let mut scene = Scene::with(|terms| terms.half[B].min_rnr_timer = code);
    let [first, second, _] = scene.here;
    scene.pair.rule(rule);
    let send = scene.pair.rd_send(first, scene.there[0], 200);
    let behind = scene.pair.rd_send(first, scene.there[0], 100);
    scene.pair.run_until(|pair| pair.count(B, Counter::RnrNakSent) >= refusals);
    let recvs = [0; 3].map(|_| scene.pair.rd_recv(scene.there[0], 1000));
    scene.pair.rd_recv(scene.there[1], 1000);
    let before = scene.pair.seen(A).len();
    scene.pair.run_until(|pair| pair.seen(A).len() > before);
    let other = scene.pair.rd_send(second, scene.there[1], 300);
    scene.run();
    scene.assert_succeeded(second, Side::Send, &[other]);
    scene.assert_succeeded(first, Side::Send, &[send, behind]);
    let cqes = scene.pair.take_at(scene.there[0], Side::Recv);
    let received: Vec<_> = cqes.iter().map(|cqe| (cqe.wr_id, cqe.byte_len)).collect();
    assert_eq!(received, [(recvs[0], 200), (recvs[1], 100)], "{:#?}", scene.pair.trace(60));
    scene.resyncs(A).len()
}

#[test] //= check R38 test
fn a_copy_of_an_rnr_nak_after_the_message_was_sent_again_does_not_have_it_executed_twice() {
    let mut put_off = 0;
    for lag in (76_000..90_000).step_by(100) {
        let rule = Rule::duplicate(Duration::from_nanos(lag)).from(B);
        put_off += assert_executed_once(6, rule.opcode(OpCode::RD_ACKNOWLEDGE).nth(1), 1);
    }
    assert!(put_off > 0, "the copy has come in time at least once");
}

#[test] //= check R38 test
fn a_message_that_is_refused_twice_before_it_is_sent_again_is_not_executed_twice() {
    let mut put_off = 0;
    for lag in (1000..20_000).step_by(100) {
        let rule = Rule::duplicate(Duration::from_nanos(lag)).from(A);
        put_off += assert_executed_once(1, rule.nth(1), 2);
    }
    assert!(put_off > 0, "the second refusal has come in time at least once");
}

#[test] //= check B8 test
fn a_refused_message_of_many_packets_on_a_slow_link_uses_up_no_retries() {
    let mut scene = Scene::with(|terms| {
        terms.settings.gbps = 1;
        terms.half[B].min_rnr_timer = 1;
        terms.half[A].retry_cnt = 2;
    });
    // Copies of packets that follow the refused one come while the next are refused.
    for nth in [8, 10, 12, 14, 16] {
        scene.pair.rule(Rule::duplicate(Duration::from_micros(4)).from(A).nth(nth));
    }
    let [first, ..] = scene.here;
    let send = scene.pair.rd_send(first, scene.there[0], 5000);
    scene.pair.run_for(Duration::from_micros(300));
    let recv = scene.pair.rd_recv(scene.there[0], 5000);
    scene.run();
    scene.assert_succeeded(first, Side::Send, &[send]);
    scene.assert_succeeded(scene.there[0], Side::Recv, &[recv]);
    assert!(scene.resyncs(A).is_empty(), "no other RD QP is in line");
    assert!(scene.pair.count(A, Counter::PacketSeqErr) <= 1, "{:#?}", scene.pair.trace(60));
}

/// To SQD, with an event when it has drained.
fn drain() -> QpChange {
    QpChange { en_sqd_async_notify: Some(true), ..QpChange::to(QpState::Sqd) }
}

#[test] //= check R26 test
fn an_rd_qp_with_a_message_that_was_put_off_drains() {
    for is_eec_first in [true, false] {
        let mut scene = Scene::new();
        let [first, second, _] = scene.here;
        let send = scene.pair.rd_send(first, scene.there[0], 200);
        scene.pair.rd_recv(scene.there[1], 1000);
        let other = scene.pair.rd_send(second, scene.there[1], 300);
        scene.pair.run_for(SHORTLY);
        assert_eq!(scene.resyncs(A).len(), 1);
        if is_eec_first {
            scene.pair.modify(A, &drain()).unwrap();
            assert_eq!(scene.pair.take_events(A), [AsyncEvent::SqDrained]);
        }
        scene.pair.world.modify(first, &drain()).unwrap();
        assert_eq!(scene.pair.take_events_at(first), [AsyncEvent::SqDrained]);
        scene.run();
        scene.assert_ended(first, Side::Send, &[]);
        if is_eec_first {
            scene.pair.modify(A, &QpChange::to(QpState::Rts)).unwrap();
        }
        scene.pair.world.modify(first, &QpChange::to(QpState::Rts)).unwrap();
        scene.pair.rd_recv(scene.there[0], 1000);
        scene.run();
        scene.assert_succeeded(first, Side::Send, &[send]);
        scene.assert_succeeded(second, Side::Send, &[other]);
    }
}

#[test] //= check R26 test
fn an_rd_qp_drains_when_its_message_is_put_off_and_leaves_its_eec_to_the_others() {
    // From before the RNR NAK until after the RESYNC was acknowledged.
    for nanos in (200..8000).step_by(200) {
        let mut scene = Scene::with(|terms| terms.half[A].rnr_retry = 7);
        let [first, second, third] = scene.here;
        let send = scene.pair.rd_send(first, scene.there[0], 200);
        let mut expected = Vec::new();
        for _ in 0..10 {
            scene.pair.rd_recv(scene.there[1], 1000);
            expected.push(scene.pair.rd_send(second, scene.there[1], 300));
        }
        scene.pair.run_for(Duration::from_nanos(nanos));
        scene.pair.world.modify(first, &drain()).unwrap();
        scene.pair.run_for(SHORTLY);
        assert_eq!(scene.pair.take_events_at(first), [AsyncEvent::SqDrained], "{nanos} ns");
        scene.run();
        scene.assert_succeeded(second, Side::Send, &expected);
        scene.assert_state(third, QpState::Rts);
        scene.pair.rd_recv(scene.there[0], 1000);
        scene.pair.world.modify(first, &QpChange::to(QpState::Rts)).unwrap();
        scene.run();
        scene.assert_succeeded(first, Side::Send, &[send]);
        scene.assert_eecs_live();
    }
}
