//! Draining the send queue while messages are outstanding and packets are lost.

use uroce_sim::{Pair, Rule};
use uroce_transport::{AsyncEvent, QpChange, QpState, Side, WcStatus};

use super::{A, B, assert_flawless};

/// Length of the regions in bytes: enough for the messages, and quick to create.
const REGION: u32 = 1 << 13;

/// Parameters of a scene: outstanding messages, the lost packet, and packets sent per turn.
#[derive(Clone, Copy, Debug)]
struct Scene {
    outstanding: usize,
    lost: Option<u32>,
    budget: u32,
    is_asked: bool,
}

fn drained(pair: &mut Pair) -> usize {
    let events = pair.take_events(A);
    events.iter().filter(|event| **event == AsyncEvent::SqDrained).count()
}

/// Posts a message; its kind depends on `index`.
fn post(pair: &mut Pair, index: usize) -> u64 {
    match index % 4 {
        0 => pair.write(A, 600),
        1 => pair.read(A, 700),
        2 => pair.fetch_add(A, 1),
        _ => pair.send(A, 300),
    }
}

/// Numbers of the completed work requests in order of completion; all must have succeeded.
#[track_caller]
fn completed(pair: &mut Pair, end: usize) -> Vec<u64> {
    let done = pair.take(end, Side::Send);
    assert!(done.iter().all(|cqe| cqe.status == WcStatus::Success), "{done:?}");
    done.iter().map(|cqe| cqe.wr_id).collect()
}

/// Plays a scene and returns the number of packets that it took.
fn play(scene: &Scene) -> u64 {
    let mut pair = Pair::with(|terms| {
        terms.region = REGION;
        terms.is_tapped = true;
        terms.settings.budget = scene.budget;
    });
    if let Some(nth) = scene.lost {
        pair.rule(Rule::drop().nth(nth));
    }
    for _ in 0..8 {
        pair.recv(B, 300);
        pair.recv(A, 300);
    }
    let before: Vec<u64> = (0..scene.outstanding).map(|index| post(&mut pair, index)).collect();
    let sqd = QpChange {
        en_sqd_async_notify: scene.is_asked.then_some(true),
        ..QpChange::to(QpState::Sqd)
    };
    pair.modify(A, &sqd).expect("RTS to SQD");
    let after: Vec<u64> = (0..5).map(|index| post(&mut pair, index)).collect();
    let received = pair.send(B, 200);
    pair.run();
    // Messages that had begun are done, the others are not; the other direction is unaffected.
    let begun = completed(&mut pair, A);
    assert_eq!(begun, before[..begun.len()], "{scene:?}");
    if scene.budget > 64 {
        assert_eq!(begun, before, "{scene:?}");
    }
    assert_eq!(completed(&mut pair, B), [received], "{scene:?}");
    assert_eq!(drained(&mut pair), usize::from(scene.is_asked), "{scene:?}");
    assert!(pair.qp(A).is_drained(), "{scene:?}");
    assert_eq!(pair.qp(A).state(), QpState::Sqd);
    assert_eq!(pair.take(A, Side::Recv).len(), 1, "{scene:?}");

    pair.modify(A, &QpChange::to(QpState::Rts)).expect("SQD to RTS");
    pair.run();
    let rest = [&before[begun.len()..], &after].concat();
    assert_eq!(completed(&mut pair, A), rest, "{scene:?}");
    assert_eq!(drained(&mut pair), 0, "{scene:?}");
    assert_flawless(&mut pair);
    pair.world.packets()
}

#[test] //= check H4 test
fn whatever_is_lost_a_send_queue_drains_and_says_so_once_if_asked() {
    for outstanding in 0..=5 {
        for (budget, is_asked) in [(128, true), (128, false), (2, true)] {
            let clean = Scene { outstanding, lost: None, budget, is_asked };
            for nth in 1..=play(&clean) as u32 {
                play(&Scene { lost: Some(nth), ..clean });
            }
        }
    }
}

#[test] //= check H5 test
fn what_is_posted_while_the_queue_drains_is_sent_in_order_once_it_goes_on() {
    // The queue is drained and resumed repeatedly, with messages posted before, during and after.
    let mut pair = Pair::with(|terms| {
        terms.region = REGION;
        terms.is_tapped = true;
        terms.settings.budget = 3;
    });
    pair.rule(Rule::drop().from(A).nth(7)).rule(Rule::drop().from(B).nth(9));
    let (mut posted, mut done) = (Vec::new(), Vec::new());
    for round in 0..12 {
        let notify = (round % 2 == 0).then_some(true);
        posted.push(post(&mut pair, round % 3));
        let sqd = QpChange { en_sqd_async_notify: notify, ..QpChange::to(QpState::Sqd) };
        pair.modify(A, &sqd).expect("RTS to SQD");
        posted.push(post(&mut pair, (round + 1) % 3));
        if round % 3 == 0 {
            // Resumed before it has drained: no event reports the draining any more.
            pair.modify(A, &QpChange::to(QpState::Rts)).expect("SQD to RTS");
            posted.push(post(&mut pair, (round + 2) % 3));
        }
        pair.run();
        if pair.qp(A).state() == QpState::Sqd {
            assert_eq!(drained(&mut pair), usize::from(notify.is_some()), "round {round}");
            pair.modify(A, &QpChange::to(QpState::Rts)).expect("SQD to RTS");
            pair.run();
        }
        assert_eq!(drained(&mut pair), 0, "round {round}");
        done.extend(completed(&mut pair, A));
    }
    assert_eq!(done, posted);
    assert_flawless(&mut pair);
}
