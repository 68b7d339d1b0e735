//! Several senders share one link: how much of it they use, how evenly, and how long its queue is.

use core::time::Duration;

use uroce_transport::{Congestion, DcqcnParams, DelayParams, QpType};

use super::incast::{Incast, KMIN, RECEIVER, jain, used};
use super::stream::{self, Script};

/// Numbers of senders.
const SENDERS: [usize; 6] = [2, 3, 4, 8, 16, 32];

/// Time that the rates have to settle.
const SETTLING: Duration = Duration::from_millis(50);

/// Time that is measured.
const SPAN: Duration = Duration::from_millis(10);

/// A bottleneck with senders that all begin at once.
fn incast(senders: usize, congestion: Congestion) -> Incast {
    let mut incast = Incast::new(4711);
    for _ in 0..senders {
        let sender = incast.add(congestion);
        incast.start(sender);
    }
    incast
}

/// Checks that this many senders use nine tenths of the link in equal shares, once they have
/// settled. Returns the median of the queue in bytes.
fn queue_of_fair_senders(senders: usize, congestion: Congestion) -> u64 {
    let mut incast = incast(senders, congestion);
    incast.run_for(SETTLING);
    let shares = incast.shares(SPAN);
    let (used, jain, queue) = (used(&shares, SPAN), jain(&shares), incast.median_queue());
    println!("{senders} senders: {used:.3} of the link, Jain's index {jain:.4}, {queue} bytes");
    assert!(used >= 0.9, "{senders} senders use {used}");
    assert!(jain >= 0.95, "{senders} senders have Jain's index {jain}");
    queue
}

#[test] //= check K10 test
fn dcqcn_uses_the_link_shares_it_and_keeps_its_queue_short() {
    for senders in SENDERS {
        let queue = queue_of_fair_senders(senders, Congestion::Dcqcn(DcqcnParams::default()));
        assert!(queue < 2 * KMIN, "the queue of {senders} senders has {queue} bytes");
    }
}

#[test] //= check K10 test
fn a_late_flow_has_its_share_within_ten_milliseconds() {
    for senders in SENDERS {
        let congestion = Congestion::Dcqcn(DcqcnParams::default());
        let mut incast = incast(senders - 1, congestion);
        let late = incast.add(congestion);
        incast.run_for(Duration::from_millis(20));
        incast.start(late);
        incast.run_for(Duration::from_millis(10));
        let shares = incast.shares(Duration::from_millis(5));
        let fair = shares.iter().sum::<f64>() / shares.len() as f64;
        let share = shares[late] / fair;
        println!("the late one of {senders}: {share:.2} of its share");
        assert!((0.65..1.5).contains(&share), "the late one of {senders}: {share}");
        assert!(used(&shares, Duration::from_millis(5)) > 0.9);
    }
}

#[test] //= check K11 test
fn delay_keeps_the_queue_short_without_marks() {
    for senders in SENDERS.into_iter().filter(|senders| *senders <= 16) {
        let queue = queue_of_fair_senders(senders, Congestion::Delay(DelayParams::default()));
        assert!(queue < KMIN, "the queue of {senders} senders has {queue} bytes");
    }
}

#[test]
fn a_sender_without_notifications_sends_each_frame_as_without_an_algorithm() {
    let passed = [Congestion::None, Congestion::Dcqcn(DcqcnParams::default())].map(|congestion| {
        let mut incast = incast(1, congestion);
        incast.run_for(Duration::from_millis(2));
        (incast.world.passed(RECEIVER), incast.world.packets(), incast.queue)
    });
    assert!(passed[0] == passed[1]);
}

#[test] //= check K11 test
fn one_sender_alone_uses_the_link_with_delay() {
    let mut incast = incast(1, Congestion::Delay(DelayParams::default()));
    incast.run_for(Duration::from_millis(20));
    let used = used(&incast.shares(SPAN), SPAN);
    assert!(used >= 0.9, "{used}");
}

#[test] //= check K5 test
fn the_gaps_between_frames_follow_the_reference() {
    let flood: Vec<u64> = (100..1100).collect();
    let rare = (1..29).map(|nth| nth * nth * 7 + 10).collect();
    let pairs = (1..30).flat_map(|nth| [nth * 97, nth * 97 + 20]).collect();
    for cnps in [vec![], vec![3], vec![5, 6, 7, 8, 9], rare, pairs, flood] {
        for qp_type in [QpType::Rc, QpType::Uc] {
            let cnps = cnps.clone();
            let script = Script { cnps, micros: 6000, qp_type, is_strange: false };
            assert_eq!(stream::flaw_of(&script), None, "{script:?}");
        }
    }
}
