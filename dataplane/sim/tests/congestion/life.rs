//! What a rate lasts through, and what it must not disturb.

use core::time::Duration;

use uroce_sim::{Pair, Rails, Terms};
use uroce_transport::{
    Congestion, Counter, DcqcnParams, DropReason, QpChange, QpState, Side, WcStatus,
};
use uroce_wire::OpCode;

const A: usize = 0;
const B: usize = 1;

/// A floor of 1 Mb/s, at which a frame of 256 bytes takes 2.5 ms.
fn slow(terms: &mut Terms) {
    let params = DcqcnParams { rpg_min_rate: 1, rpg_ai_rate: 1, ..DcqcnParams::default() };
    terms.congestion = Congestion::Dcqcn(params);
    terms.rails = Rails::TwoPorts;
}

/// Gives A so many CNPs of B, 40 µs apart.
fn notify(pair: &mut Pair, count: u32) {
    for _ in 0..count {
        let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]).bth(|bth| bth.mig_req = false);
        pair.deliver(B, &cnp);
        pair.run_for(Duration::from_micros(40));
    }
}

/// Writes ten packets from A, and returns the time that they took on their way out.
fn time_to_send(pair: &mut Pair) -> Duration {
    let before = pair.seen(A).len();
    pair.write(A, 2560);
    pair.run();
    let sent = pair.seen(A).split_off(before);
    sent[sent.len() - 1].at.since(sent[0].at)
}

#[test] //= check K8 test
fn at_the_floor_no_timer_of_the_connection_runs_out() {
    let mut pair = Pair::with(|terms| {
        slow(terms);
        terms.half[A].retry_cnt = 0;
    });
    time_to_send(&mut pair);
    notify(&mut pair, 100);
    pair.write(A, 30 * 256);
    pair.read(A, 2000);
    for _ in 0..200 {
        notify(&mut pair, 1);
    }
    pair.run();
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
    assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0);
    let statuses: Vec<_> = pair.take(A, Side::Send).iter().map(|cqe| cqe.status).collect();
    assert_eq!(statuses, [WcStatus::Success; 3]);
}

#[test] //= check K4 test
fn a_rate_ends_with_its_connection_and_with_its_path() {
    let mut pair = Pair::with(slow);
    let free = time_to_send(&mut pair);
    notify(&mut pair, 100);
    assert!(time_to_send(&mut pair) > 100 * free, "it is slowed down");
    for end in [A, B] {
        pair.modify(end, &QpChange::to(QpState::Reset)).expect("always legal");
        pair.bring_to(end, QpState::Rts);
    }
    assert_eq!(time_to_send(&mut pair), free);

    let mut pair = Pair::armed(slow);
    time_to_send(&mut pair);
    notify(&mut pair, 100);
    pair.migrate(A).expect("an armed QP");
    assert_eq!(time_to_send(&mut pair), free);
}

#[test] //= check K4 test
fn a_notification_may_come_by_each_path_that_packets_may_come_by() {
    let handled = |pair: &Pair| pair.count(A, Counter::RpCnpHandled);
    let by = |pair: &mut Pair, rail| {
        let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]);
        let frame = pair.frame_by(&pair.path_on(B, rail), &cnp);
        pair.world.inject_by(rail, 1, 0, frame, Duration::ZERO);
        pair.run_for(Duration::ZERO);
    };
    let mut pair = Pair::with(slow);
    time_to_send(&mut pair);
    by(&mut pair, 0);
    by(&mut pair, 1);
    assert_eq!((handled(&pair), pair.drops(A, DropReason::WrongSource)), (1, 1));
    // An armed peer may use both paths, and one that has migrated the former one for a while.
    let mut pair = Pair::armed(slow);
    time_to_send(&mut pair);
    by(&mut pair, 0);
    by(&mut pair, 1);
    assert_eq!(handled(&pair), 2);
    pair.migrate(A).expect("an armed QP");
    by(&mut pair, 0);
    by(&mut pair, 1);
    assert_eq!(handled(&pair), 4);
    pair.run_for(Duration::from_millis(2));
    by(&mut pair, 0);
    assert_eq!((handled(&pair), pair.drops(A, DropReason::WrongSource)), (4, 1));
}
