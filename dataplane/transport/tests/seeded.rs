//! Every bug that can be planted is found within a budget of packets, and without one nothing is.
//!
//! This is what shows that the oracles see: a simulator that finds nothing may be blind.

#![cfg(all(feature = "sim", feature = "seeded-bugs"))]

use std::panic::{self, AssertUnwindSafe};

use uroce_transport::sim::{Campaign, Pair, Rates};
use uroce_transport::{Bug, QpState, plant};
use uroce_wire::OpCode;

/// Packets within which a bug is found on links where anything may go wrong.
const BUDGET: u64 = 200_000;

/// The same for bugs that need a rare meeting of circumstances.
const LARGE_BUDGET: u64 = 2_000_000;

/// The first seed of all searches.
const SEED: u64 = 4711;

/// How a bug is looked for.
enum Search {
    /// Random work under random faults, so many packets at most.
    Random(u64),
    /// Random work on perfect links, on which nothing is to happen twice.
    Perfect,
    /// A packet no honest peer sends.
    Hostile,
}

fn search_of(bug: Bug) -> Search {
    match bug {
        Bug::WriteLengthUnchecked => Search::Hostile,
        Bug::ProcessedTwice => Search::Perfect,
        Bug::RangeOverflow
        | Bug::BadLkeyAtomic
        | Bug::KeyCheckedForOnePacket
        | Bug::StaleAfterReset
        | Bug::NoRetryReload
        | Bug::FlushBeforeError
        | Bug::UnsignaledErrorLost
        | Bug::RnrTableTypo => Search::Random(LARGE_BUDGET),
        _ => Search::Random(BUDGET),
    }
}

/// What is found, and after how many packets.
fn find(search: &Search) -> (Option<String>, u64) {
    let (packets, rates) = match search {
        Search::Random(packets) => (*packets, None),
        Search::Perfect => (BUDGET, Some(Rates::NONE)),
        Search::Hostile => return (surplus_write(), 1),
    };
    let campaign = Campaign { seed: SEED, packets, rates, ..Campaign::default() };
    let (summary, failure) = campaign.run(0, |_| ());
    (failure.and_then(|outcome| outcome.violation).map(|found| found.what), summary.packets)
}

/// A WRITE that brings more bytes than it announces is refused.
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

/// Looks for every `of`-th bug beginning with the `first`.
fn look_for(first: usize, of: usize) {
    // What is found by a panic need not be printed.
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
    for search in [Search::Random(LARGE_BUDGET), Search::Perfect, Search::Hostile] {
        let (found, _) = find(&search);
        assert_eq!(found, None);
    }
}
