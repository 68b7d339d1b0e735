//! Losses, with and without a CNP, and with and without the option for slow restarts.

use core::time::Duration;

use uroce_sim::{Bottleneck, Pair, Rule, Terms};
use uroce_transport::{Congestion, Counter, DcqcnParams, Side, WcStatus};
use uroce_wire::OpCode;

use super::incast::{Incast, LINK, jain, used};

const A: usize = 0;
const B: usize = 1;

/// Rate of the line in Mb/s.
const LINE: u32 = 1000;

/// Parameters with which the rate of a test does not rise.
fn params(roce_slow_restart_en: bool) -> DcqcnParams {
    let (rpg_max_rate, rpg_time_reset) = (LINE, 100_000);
    DcqcnParams { roce_slow_restart_en, rpg_max_rate, rpg_time_reset, ..DcqcnParams::default() }
}

fn with(slow_restart: bool) -> impl Fn(&mut Terms) {
    move |terms| terms.congestion = Congestion::Dcqcn(params(slow_restart))
}

/// Slow restarts of A: all, those that cut the rate, those of a QP that nothing had slowed down.
fn restarts(pair: &Pair) -> [u64; 3] {
    [Counter::SlowRestarts, Counter::SlowRestartCnps, Counter::SlowRestartTransitions]
        .map(|counter| pair.count(A, counter))
}

/// Rate in Mb/s at which A sends ten packets; infinite if only the link holds them back.
fn rate(pair: &mut Pair) -> f64 {
    let record = |pair: &Pair| {
        let record = pair.world.record().expect("pairs record");
        let sent = record.sightings().filter(|one| one.from == A && !one.fate.is_crafted);
        sent.map(|one| (one.at, one.frame.len())).collect::<Vec<_>>()
    };
    let before = record(pair).len();
    pair.write(A, 2560);
    pair.run();
    let sent = record(pair).split_off(before);
    let bits: usize = sent[..9].iter().map(|(_, len)| len * 8).sum();
    let nanos = sent[9].0.since(sent[0].0).as_nanos();
    if nanos < 10 * 100 { f64::INFINITY } else { bits as f64 * 1000.0 / nanos as f64 }
}

/// Gives A a CNP of B.
fn notify(pair: &mut Pair) {
    let cnp = pair.craft(B, OpCode::CNP).payload(&[0; 16]).bth(|bth| bth.mig_req = false);
    pair.deliver(B, &cnp);
}

/// The order of a NAK and of a CNP for the same burst of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notified {
    Never,
    Before,
    After,
}

#[test] //= check K7 test
fn a_nak_slows_the_qp_down_without_a_cnp_only_if_that_is_configured() {
    let free = f64::INFINITY;
    let halved = f64::from(LINE) / 2.0;
    for (slow_restart, notified, expected) in [
        (false, Notified::Never, free),
        (false, Notified::Before, halved),
        (false, Notified::After, halved),
        (true, Notified::Never, halved),
        (true, Notified::Before, halved),
        (true, Notified::After, halved),
    ] {
        let mut pair = Pair::with(with(slow_restart));
        pair.rule(Rule::drop().from(A).psn(pair.psn(A, 2)).nth(1));
        pair.write(A, 8 * 256);
        if notified == Notified::Before {
            pair.run_until(|pair| pair.seen(A).len() == 8);
            assert_eq!(pair.count(A, Counter::PacketSeqErr), 0);
            notify(&mut pair);
        }
        pair.run_until(|pair| pair.count(A, Counter::PacketSeqErr) == 1);
        if notified == Notified::After {
            notify(&mut pair);
        }
        pair.run();
        let rate = rate(&mut pair);
        let case = (slow_restart, notified);
        assert!(rate == expected || (rate / expected - 1.0).abs() < 0.01, "{case:?}: {rate} Mb/s");
        let is_first = u64::from(notified != Notified::Before);
        assert_eq!(restarts(&pair), if slow_restart { [1, is_first, is_first] } else { [0; 3] });
        assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
        let cnps = u64::from(notified != Notified::Never);
        assert_eq!(pair.count(A, Counter::RpCnpHandled), cnps);
        assert_eq!(pair.take(A, Side::Send).len(), 2);
    }
}

#[test] //= check K7 test
fn without_the_option_a_loss_changes_no_frame_s_time() {
    let times = [Congestion::None, Congestion::Dcqcn(params(false))].map(|congestion| {
        let mut pair = Pair::with(|terms| terms.congestion = congestion);
        for lost in [2, 5, 7, 15] {
            pair.rule(Rule::drop().from(A).psn(pair.psn(A, lost)).nth(1));
        }
        pair.write(A, 8 * 256);
        pair.run();
        pair.write(A, 8 * 256);
        pair.run();
        assert!(pair.count(A, Counter::PacketSeqErr) > 0);
        assert_eq!(restarts(&pair), [0; 3]);
        pair.seen(A).iter().map(|seen| seen.at).collect::<Vec<_>>()
    });
    assert_eq!(times[0], times[1]);
}

#[test] //= check K7 test
fn each_nak_that_is_acted_upon_is_one_slow_restart() {
    // Copies of a NAK.
    let mut pair = Pair::with(with(true));
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(1));
    pair.rule(Rule::duplicate(Duration::ZERO).from(B).nth(1));
    pair.write(A, 8 * 256);
    pair.run();
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 1);
    assert_eq!(restarts(&pair), [1, 1, 1]);
    // Another loss within the time between two cuts.
    let mut pair = Pair::with(with(true));
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(1));
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 2)).nth(2));
    pair.write(A, 8 * 256);
    pair.run();
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 2);
    assert_eq!(restarts(&pair), [2, 1, 1]);
}

#[test] //= check K7 test
fn an_ack_timeout_is_a_slow_restart_as_well() {
    let mut pair = Pair::with(with(true));
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(1));
    pair.rule(Rule::drop().from(A).psn(pair.psn(A, 1)).nth(2));
    pair.write(A, 2 * 256);
    pair.run();
    assert_eq!(pair.count(A, Counter::PacketSeqErr), 0);
    assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 2);
    assert_eq!(restarts(&pair), [2, 2, 1]);
}

#[test] //= check K7 test
fn a_lost_tail_that_a_probe_finds_is_a_slow_restart_and_a_probe_alone_is_none() {
    for (tail, expected) in [(1, [0; 3]), (2, [1; 3]), (4, [1; 3])] {
        let mut pair = Pair::with(with(true));
        for index in 3..3 + tail {
            pair.rule(Rule::drop().from(A).psn(pair.psn(A, index)).nth(1));
        }
        pair.write(A, 3 * 256);
        pair.write(A, tail * 256);
        pair.run();
        assert_eq!(pair.count(A, Counter::TailProbes), 1);
        assert_eq!(pair.count(A, Counter::LocalAckTimeoutErr), 0);
        assert_eq!(restarts(&pair), expected, "a tail of {tail}");
    }
}

#[test] //= check K7 test
fn neither_a_receiver_that_is_not_ready_nor_a_lost_response_is_a_slow_restart() {
    let mut pair = Pair::with(with(true));
    pair.send(A, 1000);
    pair.run_until(|pair| pair.count(A, Counter::RnrNakRetryErr) > 0);
    pair.recv(B, 1000);
    pair.rule(Rule::drop().from(B).opcode(OpCode::RC_RDMA_READ_RESPONSE_MIDDLE).nth(1));
    pair.read(A, 5 * 256);
    pair.run();
    assert!(pair.count(A, Counter::ImpliedNakSeqErr) > 0);
    assert_eq!(restarts(&pair), [0; 3]);
    assert_eq!(rate(&mut pair), f64::INFINITY);
    let statuses: Vec<_> = pair.take(A, Side::Send).iter().map(|cqe| cqe.status).collect();
    assert_eq!(statuses, [WcStatus::Success; 3]);
}

/// Use of a link that marks nothing, by senders that run for a while.
#[derive(Debug)]
struct Use {
    /// Part of the link's rate.
    used: f64,
    /// Jain's index of fairness.
    jain: f64,
    /// Packets sent again for each one that arrived.
    again: f64,
}

/// Lets senders share a link that marks nothing and drops what does not fit into its queue.
fn share_without_marks(senders: u16, capacity: u64, slow_restart: bool) -> Use {
    let link = Bottleneck { capacity, kmin: u64::MAX / 2, kmax: u64::MAX, ..LINK };
    let mut incast = Incast::behind(link, 99);
    let roce_slow_restart_en = slow_restart;
    let params = DcqcnParams { roce_slow_restart_en, ..DcqcnParams::default() };
    for _ in 0..senders {
        let sender = incast.add(Congestion::Dcqcn(params));
        incast.start(sender);
    }
    incast.run_for(Duration::from_millis(200));
    let again = |incast: &Incast| -> u64 {
        let nodes = (1..=senders).map(|node| incast.world.node(node));
        nodes.map(|node| node.counter(Counter::RetransmittedPackets)).sum()
    };
    let (before, span) = (again(&incast), Duration::from_millis(20));
    let shares = incast.shares(span);
    let arrived = shares.iter().sum::<f64>() / 4096.0;
    let again = (again(&incast) - before) as f64 / arrived;
    Use { used: used(&shares, span), jain: jain(&shares), again }
}

#[test] //= check K7 test
fn slow_restarts_share_a_link_that_drops_and_does_not_mark() {
    for senders in [2, 4, 8] {
        let with = share_without_marks(senders, 100_000, true);
        println!("{senders} senders: {with:.3?}");
        assert!(with.used > 0.9 && with.jain > 0.9, "{senders} senders: {with:?}");
    }
    let [without, with] = [false, true].map(|is_on| share_without_marks(16, 4_000_000, is_on));
    println!("16 senders: {without:.3?} and {with:.3?}");
    assert!(with.used > without.used + 0.05, "{without:?} {with:?}");
    assert!(with.again < without.again / 2.0, "{without:?} {with:?}");
}
