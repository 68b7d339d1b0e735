//! Q4: a completion queue between lcores and pollers.
//!
//! Two lcores with up to two completions each, one or two pollers. Not modelled: the queue of
//! entries itself, which is another crate's; more lcores.

use super::cqe;
use crate::queue::cq::CqParts;
use crate::queue::{CompletionQueue, CqError};
use crate::table::qsbr::Turns;
use loom::thread;
use std::sync::Arc;
use uroce_transport::Cqe;
use uroce_wire::Qpn;

/// Adds completions until one does not fit, and returns how many did.
fn produce(cq: &CompletionQueue, lcore: u32, count: u64) -> u64 {
    (0..count).take_while(|&count| cq.push(cqe(Qpn::new(lcore), count)).is_ok()).count() as u64
}

/// Polls until the queue is empty or reports an overrun. Returns the completions and whether it
/// did.
fn poll(cq: &CompletionQueue) -> (Vec<Cqe>, bool) {
    let mut polled = Vec::new();
    loop {
        match cq.poll() {
            Ok(Some(cqe)) => polled.push(cqe),
            Ok(None) => return (polled, false),
            Err(CqError::Overrun) => return (polled, true),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The `wr_id`s of one lcore's completions among `polled`.
fn counts(polled: &[Cqe], lcore: u32) -> Vec<u64> {
    let of_lcore = polled.iter().filter(|cqe| cqe.qpn == Qpn::new(lcore));
    of_lcore.map(|cqe| cqe.wr_id).collect()
}

pub(crate) fn two_producers() {
    let cq = CompletionQueue::new(3, None).expect("a depth that is possible");
    let lcores = [(1, 2), (2, 1)].map(|(lcore, count)| {
        let cq = Arc::clone(&cq);
        thread::spawn(move || assert_eq!(produce(&cq, lcore, count), count))
    });
    let (mut polled, overrun) = poll(&cq);
    assert!(!overrun);
    lcores.into_iter().for_each(|lcore| lcore.join().expect("no panic"));
    polled.extend(poll(&cq).0);
    assert_eq!([counts(&polled, 1), counts(&polled, 2)], [vec![0, 1], vec![0]]);
}

pub(crate) fn two_pollers() {
    let cq = CompletionQueue::new(2, None).expect("a depth that is possible");
    let poller = thread::spawn({
        let cq = Arc::clone(&cq);
        move || cq.poll().expect("no overrun")
    });
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || assert_eq!(produce(&cq, 1, 2), 2)
    });
    let mine = cq.poll().expect("no overrun");
    lcore.join().expect("no panic");
    let theirs = poller.join().expect("no panic");
    let mut all: Vec<Cqe> = mine.into_iter().chain(theirs).collect();
    all.extend(poll(&cq).0);
    let mut counts = counts(&all, 1);
    counts.sort_unstable();
    assert_eq!(counts, [0, 1]);
}

pub(crate) fn overrun() {
    let cq = CompletionQueue::new(1, None).expect("a depth that is possible");
    let lcores = [1, 2].map(|lcore| {
        let cq = Arc::clone(&cq);
        thread::spawn(move || produce(&cq, lcore, 2))
    });
    let (mut polled, seen) = poll(&cq);
    let pushed = lcores.map(|lcore| lcore.join().expect("no panic"));
    let (rest, overrun) = poll(&cq);
    polled.extend(rest);
    let lost = pushed.iter().sum::<u64>() < 4;
    assert_eq!(overrun, lost, "an overrun is reported, and only an overrun");
    assert!(overrun || !seen);
    // Of each lcore's completions, exactly those that it was told had been added, each once.
    for (lcore, pushed) in [1, 2].into_iter().zip(pushed) {
        assert!(counts(&polled, lcore).into_iter().eq(0..pushed), "lcore {lcore}: {polled:?}");
    }
}

/// An lcore adds an entry in each of two turns, while one thread grows the queue and another polls.
pub(crate) fn grow() {
    let turns = Arc::new(Turns::new(1));
    let parts = CqParts { turns: Some(Arc::clone(&turns)), ..CqParts::default() };
    let cq = CompletionQueue::within(parts, 2, None).expect("a depth that is possible");
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            for count in 0..2 {
                let _turn = turns.enter(0);
                cq.push(cqe(Qpn::new(1), count)).expect("there is room");
            }
        }
    });
    let poller = thread::spawn({
        let cq = Arc::clone(&cq);
        move || poll(&cq).0
    });
    cq.resize(4).expect("a depth that is possible");
    assert_eq!(cq.depth(), 4);
    lcore.join().expect("no panic");
    let mut polled = poller.join().expect("no panic");
    polled.extend(poll(&cq).0);
    assert_eq!(counts(&polled, 1), [0, 1]);
}
