//! Every planted bug is found within a budget of packets, and without one nothing is found.
//!
//! This shows that the oracles work: a simulator that finds nothing may check nothing.

#![cfg(feature = "seeded-bugs")]

#[path = "congestion/reference.rs"]
mod reference;
#[path = "congestion/stream.rs"]
mod stream;

use core::time::Duration;
use std::panic::{self, AssertUnwindSafe};

use stream::Script;
use uroce_sim::{At, Campaign, Pair, RDD, Rates, Rule, XRCD};
use uroce_transport::{
    AccessFlags, Bug, Pd, QpChange, QpState, QpType, Rdd, Side, WcStatus, plant,
};
use uroce_wire::{NakCode, OpCode, Srqn, Syndrome};

/// Number of packets within which a bug is found on links with all faults.
const BUDGET: u64 = 200_000;

/// Number of packets within which a bug is found that needs a rare combination of events.
const LARGE_BUDGET: u64 = 5_000_000;

/// The first seed of all searches.
const SEED: u64 = 4711;

/// Method of searching for a bug.
enum Search {
    /// Random work under random faults, with at most this many packets.
    Random(u64),
    /// Random work on perfect links, where nothing may be repeated.
    Perfect,
    /// Packets that no correct peer sends.
    Hostile,
    /// Two paths that are cut and mended, and control operations of all kinds, with at most this
    /// many packets.
    Control(u64),
    /// A stream with a rate limit, in which the time of each frame is known.
    Paced,
    /// Datagrams and receives of any length.
    Datagrams,
    /// Marks and CNPs, with a reference of the rate.
    Congested,
    /// Messages of RD that are executed just before a late RNR NAK puts them off.
    PutOff,
    /// A READ that may not be answered again.
    Denied,
}

fn search_of(bug: Bug) -> Search {
    match bug {
        Bug::WriteLengthUnchecked
        | Bug::XrcForeignQueue
        | Bug::RdForeignDomain
        | Bug::RdQkeyUnchecked => Search::Hostile,
        Bug::ProcessedTwice | Bug::FlushForgotten => Search::Perfect,
        Bug::RangeOverflow
        | Bug::BadLkeyAtomic
        | Bug::KeyCheckedForOnePacket
        | Bug::StaleAfterReset
        | Bug::NoRetryReload
        | Bug::FlushBeforeError
        | Bug::UnsignaledErrorLost
        | Bug::HeldRepeated
        | Bug::RestForgotten
        | Bug::HeldAfterReset
        | Bug::KeepaliveNew
        | Bug::KeepaliveEarly
        | Bug::KeepaliveDeaf
        | Bug::RdReceiveKept
        | Bug::RefusedKept
        | Bug::RnrTableTypo => Search::Random(LARGE_BUDGET),
        Bug::PaceDrift | Bug::LatenessKept | Bug::KibibitsForKilobits | Bug::AcksUnpaid => {
            Search::Paced
        }
        Bug::LongDatagramEndsQp => Search::Datagrams,
        Bug::RdPutOffTwice => Search::PutOff,
        Bug::RdDenialSilent => Search::Denied,
        Bug::NoRateFloor
        | Bug::NoRecovery
        | Bug::CutByEveryCnp
        | Bug::CnpForEveryMark
        | Bug::CnpOfAnyone => Search::Congested,
        Bug::MigReqNever
        | Bug::MigReqAlways
        | Bug::ArmedByAnyMigReq
        | Bug::MigratesTwice
        | Bug::PathMigTwice
        | Bug::FormerAddresses
        | Bug::FormerPort
        | Bug::FormerPkey
        | Bug::FormerTimeout
        | Bug::StaleRnrTimer
        | Bug::StartsInSqd
        | Bug::SqDrainedEarly
        | Bug::SqDrainedTwice
        | Bug::SqDrainedUnasked => Search::Control(BUDGET),
        Bug::AlternateNotValidated
        | Bug::BudgetNotReloaded
        | Bug::DiesThoughArmed
        | Bug::FormerRate
        | Bug::RdRefusalLost
        | Bug::FormerPathForEver => Search::Control(LARGE_BUDGET),
        _ => Search::Random(BUDGET),
    }
}

/// The violation found, if any, and the number of packets until then.
fn find(search: &Search) -> (Option<String>, u64) {
    let (packets, rates) = match search {
        Search::Random(packets) => (*packets, None),
        Search::Perfect => (BUDGET, Some(Rates::NONE)),
        Search::Control(packets) => (*packets, None),
        Search::Hostile => return (hostile(), 4),
        Search::Paced => return paced_stream(),
        Search::Datagrams => return datagrams(),
        Search::Congested => return congested(),
        Search::PutOff => return put_off(),
        Search::Denied => return (denied(), 1),
    };
    let has_control = matches!(search, Search::Control(_));
    let campaign = Campaign { seed: SEED, packets, rates, has_control, ..Campaign::default() };
    let (summary, failure) = campaign.run(0, |_| ());
    (failure.and_then(|outcome| outcome.violation).map(|found| found.what), summary.packets)
}

/// Delivers packets that must be refused, each to QPs of its own.
fn hostile() -> Option<String> {
    let found = surplus_write().or_else(foreign_queue);
    found.or_else(|| foreign_datagram(true)).or_else(|| foreign_datagram(false))
}

/// Delivers a WRITE with more bytes than its RETH states, which must be refused.
fn surplus_write() -> Option<String> {
    let result = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut pair = Pair::rts();
        let packet = pair.craft(0, OpCode::RC_RDMA_WRITE_FIRST).payload(&[1; 256]);
        pair.deliver(0, &packet.ext(|ext| ext.reth.dma_len = 10)).run();
        (pair.qp(1).state(), pair.is_untouched_from(1, 0))
    }));
    match result {
        Ok((QpState::Err, true)) => None,
        Ok((state, _)) => Some(format!("it was taken; {state}")),
        Err(_) => Some("a panic".into()),
    }
}

/// Delivers a SEND that names a shared receive queue of another XRC domain than the target's.
fn foreign_queue() -> Option<String> {
    let foreign = Srqn::new(5);
    let mut pair = Pair::with(|terms| terms.qp_type = QpType::XrcSend);
    pair.world.node_mut(1).add_named_queue(foreign, XRCD + 1, Pd(1));
    let sge = pair.local(1).sge(pair.inbox(), 100);
    pair.post_named_recv(1, foreign, &[sge]);
    let packet = pair.craft(0, OpCode::XRC_SEND_ONLY).payload(&[1; 8]);
    pair.deliver(0, &packet.ext(|ext| ext.xrceth.srqn = foreign));
    let at = pair.at(1);
    flaw_of_refusal(&mut pair, at)
}

/// Delivers a SEND to an RD QP of another RD domain than the EEC's, or with another Q_Key than the
/// RD QP's.
fn foreign_datagram(has_its_qkey: bool) -> Option<String> {
    let mut pair = Pair::with(|terms| terms.qp_type = QpType::Eec);
    let rdd = if has_its_qkey { Rdd(RDD.0 + 1) } else { RDD };
    let to = pair.add_rd_as(1, |init| init.rdd = rdd);
    pair.rd_recv(to, 100);
    let qpn = pair.world.qp(to).qpn();
    let packet = pair.craft(0, OpCode::RD_SEND_ONLY).payload(&[1; 8]);
    let packet = packet.bth(|bth| bth.dest_qpn = qpn);
    pair.deliver(0, &packet.ext(|ext| ext.deth.qkey.0 ^= u32::from(!has_its_qkey)));
    flaw_of_refusal(&mut pair, to)
}

/// Checks that end 1 has refused its first request as a violation of a domain, and that no receive
/// of the QP `at` has completed.
fn flaw_of_refusal(pair: &mut Pair, at: At) -> Option<String> {
    let answers: Vec<_> = pair.responses(1).iter().map(|seen| seen.ext.aeth.syndrome).collect();
    let received = pair.take_at(at, Side::Recv).len();
    let is_refused = answers == [Syndrome::Nak(NakCode::InvalidRdRequest)] && received == 0;
    let qp_type = pair.world.qp(at).qp_type();
    (!is_refused).then(|| format!("{qp_type:?}: {answers:?}, {received} messages received"))
}

/// Checks a stream at 2.8 Gb/s: every frame except acknowledgements leaves when the frames before
/// it have taken their time.
fn paced_stream() -> (Option<String>, u64) {
    const MBPS: u64 = 2_800;
    let mut pair = Pair::with(|terms| terms.is_tapped = true);
    let rate_limit = Some(MBPS as u32 * 1000);
    pair.modify(0, &QpChange { rate_limit, ..QpChange::default() }).expect("a QP in RTS");
    let begin = pair.world.now();
    for _ in 0..20 {
        pair.write(0, 10_001);
        (0..10).for_each(|_| {
            pair.write(1, 8);
        });
    }
    pair.run();
    let (mut bits, mut found) = (0, None);
    let record = pair.world.record().expect("pairs record");
    for sighting in record.sightings().filter(|sighting| sighting.from == 0) {
        let due = Duration::from_nanos(bits * 1000 / MBPS);
        let left = sighting.at.since(begin);
        if left != due && sighting.packet().bth.opcode != OpCode::RC_ACKNOWLEDGE {
            found = found.or(Some(format!("a frame leaves after {left:?}, not {due:?}")));
        }
        bits += sighting.frame.len() as u64 * 8;
    }
    let found = found.or(pair.world.take_flaw()).or_else(late_stream);
    (found, pair.world.packets())
}

/// Checks a stream under CNPs of its peer and of a stranger, and the CNPs for marked packets.
fn congested() -> (Option<String>, u64) {
    let script = |cnps, micros, is_strange| {
        let qp_type = QpType::Rc;
        Script { cnps, micros, qp_type, is_strange }
    };
    let scripts = [
        script(vec![5, 6, 7, 8, 9, 200, 260], 1_000, false),
        script((100..600).collect(), 3_000, false),
        script(vec![5, 100], 300, true),
    ];
    let found = scripts.iter().find_map(stream::flaw_of);
    let mut pair = Pair::with(|terms| terms.is_tapped = true);
    pair.rule(Rule::mark().from(0));
    (0..4).for_each(|_| {
        pair.write(0, 10_000);
    });
    pair.run();
    (found.or(pair.world.take_flaw()), pair.world.packets())
}

/// Checks datagrams and receives of any length: the QP stays usable, and accepts only whole
/// datagrams.
fn datagrams() -> (Option<String>, u64) {
    let mut rng = fastrand::Rng::with_seed(SEED);
    let mut pair = Pair::with(|terms| (terms.qp_type, terms.is_tapped) = (QpType::Ud, true));
    let mut lens = std::collections::VecDeque::new();
    let mut found = None;
    for _ in 0..1_000 {
        if lens.len() < 4 {
            lens.push_back(40 + rng.u32(..=256));
            pair.recv(1, *lens.back().expect("it has just been posted"));
        }
        let len = rng.u32(..=256);
        pair.send_to(0, len, None);
        pair.run();
        let (state, taken) = (pair.qp(1).state(), pair.take(1, Side::Recv));
        let fits = lens.front().is_some_and(|room| 40 + len <= *room);
        let expected: &[_] = if fits { &[(WcStatus::Success, 40 + len)] } else { &[] };
        let taken: Vec<_> = taken.iter().map(|cqe| (cqe.status, cqe.byte_len)).collect();
        if fits {
            lens.pop_front();
        }
        if state != QpState::Rts || taken != expected {
            found = Some(format!("{len} bytes: {taken:?}, {state}"));
            break;
        }
    }
    (found.or(pair.world.take_flaw()), pair.world.packets())
}

/// Checks that a message of RD that was executed is not sent again for a late copy of an RNR NAK.
fn put_off() -> (Option<String>, u64) {
    let mut packets = 0;
    for lag in (76_000..90_000).step_by(200) {
        let mut pair = Pair::with(|terms| (terms.qp_type, terms.is_tapped) = (QpType::Eec, true));
        let [here, there] = [0, 1].map(|end| [0; 2].map(|_| pair.add_rd(end)));
        let late = Rule::duplicate(Duration::from_nanos(lag)).from(1);
        pair.rule(late.opcode(OpCode::RD_ACKNOWLEDGE).nth(1));
        pair.rd_send(here[0], there[0], 200);
        pair.run_for(Duration::from_micros(40));
        (0..2).for_each(|_| {
            pair.rd_recv(there[0], 1000);
        });
        let before = pair.seen(0).len();
        pair.run_until(|pair| pair.seen(0).len() > before);
        pair.rd_recv(there[1], 1000);
        pair.rd_send(here[1], there[1], 300);
        pair.run();
        packets += pair.world.packets();
        let received = pair.take_at(there[0], Side::Recv).len();
        if received != 1 {
            return (Some(format!("{received} messages, {lag} ns late")), packets);
        }
        if let Some(flaw) = pair.world.take_flaw() {
            return (Some(flaw), packets);
        }
    }
    (None, packets)
}

/// Checks that an RD QP is told when the rest of its READ is no longer granted.
fn denied() -> Option<String> {
    let mut pair = Pair::with(|terms| (terms.qp_type, terms.settings.budget) = (QpType::Eec, 1));
    let [here, there] = [0, 1].map(|end| pair.add_rd(end));
    pair.rule(Rule::drop().from(1).nth(1));
    pair.rd_read(here, there, 1000);
    pair.run_until(|pair| pair.seen(1).len() >= 4);
    let access = Some(AccessFlags::all() - AccessFlags::REMOTE_READ);
    let change = QpChange { access, ..QpChange::default() };
    pair.world.modify(there, &change).expect("an RD QP in RTS");
    pair.run();
    let statuses: Vec<_> = pair.take_at(here, Side::Send).iter().map(|cqe| cqe.status).collect();
    (statuses != [WcStatus::RemInvReqErr]).then(|| format!("the READ ends with {statuses:?}"))
}

/// Checks that a QP catches up within its allowance only, after its lcore stood still.
fn late_stream() -> Option<String> {
    let mut pair = Pair::with(|terms| (terms.qp_type, terms.is_tapped) = (QpType::Uc, true));
    let rate_limit = Some(2_800_000);
    pair.modify(0, &QpChange { rate_limit, ..QpChange::default() }).expect("a QP in RTS");
    for _ in 0..20 {
        pair.write(0, 200_000);
    }
    pair.run_for(Duration::from_micros(100));
    pair.world.stall(0, Duration::from_millis(6));
    pair.run();
    pair.world.take_flaw()
}

/// Searches for every `of`-th bug, beginning with the `first`.
fn look_for(first: usize, of: usize) {
    // Panics that reveal a bug need not be printed.
    panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for bug in Bug::ALL.iter().skip(first).step_by(of) {
        plant(Some(*bug));
        let (found, packets) = find(&search_of(*bug));
        plant(None);
        match found {
            Some(what) => println!("{bug:?}: after {packets} packets: {what}"),
            None => missed.push(format!("{bug:?} in {packets} packets")),
        }
    }
    let _ = panic::take_hook();
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[test]
fn each_planted_bug_is_found_first_half() {
    look_for(0, 2);
}

#[test]
fn each_planted_bug_is_found_second_half() {
    look_for(1, 2);
}

#[test]
fn where_no_bug_is_planted_nothing_is_found() {
    let control = Search::Control(LARGE_BUDGET);
    let random = Search::Random(LARGE_BUDGET);
    let small = [
        Search::Perfect,
        Search::Denied,
        Search::Hostile,
        Search::Paced,
        Search::Datagrams,
        Search::Congested,
        Search::PutOff,
    ];
    for search in [random, control].into_iter().chain(small) {
        let (found, _) = find(&search);
        assert_eq!(found, None);
    }
}
