//! Pacing, to the nanosecond: each frame leaves when the frames before it have taken their time.

use core::time::Duration;

use uroce_sim::{Pair, Rule};
use uroce_transport::{Counter, Instant, PathAttr, QpChange, QpState, QpType, Side, StaticRate};

use super::{A, B, assert_flawless};

/// A pair in RTS, with this static rate on A's path.
fn paced(qp_type: QpType, rate: StaticRate) -> Pair {
    let mut pair = Pair::reset(|terms| {
        terms.qp_type = qp_type;
        terms.is_tapped = true;
        terms.settings.gbps = 400;
    });
    for end in [A, B] {
        for mut change in pair.changes(end) {
            if let Some(path) = change.path.filter(|_| end == A) {
                change.path = Some(PathAttr { rate, ..path });
            }
            pair.modify(end, &change).expect("a legal change");
        }
    }
    pair
}

/// Time and length of each frame that an end sent.
fn frames(pair: &Pair, from: usize) -> Vec<(Instant, u64)> {
    let record = pair.world.record().expect("pairs record");
    let sent = record.sightings().filter(|sighting| sighting.from == from);
    sent.map(|sighting| (sighting.at, sighting.frame.len() as u64)).collect()
}

/// The time at which each frame should leave: all bits before it, at the rate, rounded down.
fn due(begin: Instant, frames: &[(Instant, u64)], mbps: u64) -> Vec<Instant> {
    let mut bits = 0;
    let mut due = Vec::new();
    for (_, len) in frames {
        due.push(begin + Duration::from_nanos(bits * 1000 / mbps));
        bits += len * 8;
    }
    due
}

#[test] //= check S1 test
fn every_frame_leaves_in_the_nanosecond_that_the_rate_gives_it() {
    for rate in StaticRate::all() {
        let Some(mbps) = rate.mbps() else { continue };
        for qp_type in [QpType::Rc, QpType::Uc] {
            let mut pair = paced(qp_type, rate);
            let begin = pair.world.now();
            for len in [5000, 1, 777, 20_000, 3] {
                pair.write(A, len);
            }
            pair.run();
            let sent = frames(&pair, A);
            let left: Vec<Instant> = sent.iter().map(|(at, _)| *at).collect();
            assert_eq!(left, due(begin, &sent, u64::from(mbps)), "{qp_type} at {rate}");
            assert_eq!(pair.take(A, Side::Send).len(), 5);
            assert_flawless(&mut pair);
        }
    }
}

#[test]
fn a_slow_stream_asks_for_acknowledgements_before_its_timer_runs_out() {
    // From several timeouts per frame to several frames per timeout of one millisecond.
    for kbps in [1, 100, 1_000, 5_000, 20_000, 100_000] {
        let mut pair = Pair::with(|terms| {
            terms.is_tapped = true;
            terms.half[A].retry_cnt = 0;
        });
        let change = QpChange { rate_limit: Some(kbps), ..QpChange::to(QpState::Rts) };
        pair.modify(A, &change).expect("a QP in RTS");
        pair.write(A, 30 * 256);
        pair.run();
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0, "{kbps} kbit/s");
        assert_eq!(pair.count(A, Counter::RetransmittedPackets), 0, "{kbps} kbit/s");
        assert_eq!(pair.take(A, Side::Send).len(), 1);
        assert_flawless(&mut pair);
    }
}

#[test] //= check S1 test
fn a_long_stream_drifts_by_no_nanosecond() {
    // 2.8 Gb/s, and frames with gaps that are not whole nanoseconds.
    let rate = StaticRate::from_mbps(28_000).expect("a rate of the verbs");
    let mut pair = paced(QpType::Uc, rate);
    let begin = pair.world.now();
    for _ in 0..200 {
        pair.write(A, 100_001);
    }
    pair.run();
    let sent = frames(&pair, A);
    assert!(sent.len() > 70_000);
    let last = due(begin, &sent, 28_000).pop();
    assert_eq!(sent.last().map(|(at, _)| *at), last);
}

#[test] //= check S1 test
fn what_is_sent_again_is_paced_too_and_answers_are_when_they_carry_data() {
    let rate = StaticRate::from_mbps(2_500).expect("a rate of the verbs");
    let mut pair = paced(QpType::Rc, rate);
    pair.rule(Rule::drop().from(A).nth(5));
    pair.write(A, 4000);
    pair.run();
    // A's answers to B are sent on A's path as well.
    pair.read(B, 4000);
    pair.run();
    assert_eq!(pair.take(B, Side::Send).len(), 1);
    let sent = frames(&pair, A);
    for (index, pair_of) in sent.windows(2).enumerate() {
        let gap = pair_of[1].0.since(pair_of[0].0);
        let least = Duration::from_nanos(pair_of[0].1 * 8 * 1000 / 2_500);
        assert!(gap >= least, "frame {index}: {gap:?} of {least:?}");
    }
    assert_flawless(&mut pair);
}
