//! Q6: a shared receive queue between a poster and two lcores, and the event at its limit.
//!
//! Not modelled: contention for the posters' lock, because one thread posts; more than two
//! receives.

use crate::queue::srq::SharedReceiveQueue;
use crate::wake::events::{EventChannel, EventKind, Subject};
use loom::thread;
use std::sync::Arc;
use uroce_transport::{Found, Pd, RecvWr, Sge};
use uroce_wire::{Lkey, Va};

fn queue(depth: u32) -> (Arc<SharedReceiveQueue>, Arc<EventChannel>) {
    let events = EventChannel::new(1).expect("a channel");
    let guard = events.admit(Subject::Srq(1)).expect("room for one");
    let srq = SharedReceiveQueue::new(Pd(1), depth, 1, guard).expect("a size that is possible");
    (Arc::new(srq), events)
}

/// The scatter list of receive `wr_id`: each of its words names the receive.
fn sge(wr_id: u64) -> Sge {
    Sge { va: Va(wr_id), len: wr_id as u32, lkey: Lkey(wr_id as u32) }
}

fn post(srq: &SharedReceiveQueue, wr_id: u64) -> bool {
    srq.post_recv(&RecvWr { wr_id }, &[sge(wr_id)]).is_ok()
}

/// Takes up to `count` receives, as an lcore does.
fn take(srq: &SharedReceiveQueue, count: usize) -> Vec<u64> {
    let mut taken = Vec::new();
    for _ in 0..count {
        srq.take(0, |wr, sges| {
            assert_eq!(sges, [sge(wr.wr_id)], "torn");
            taken.push(wr.wr_id);
        });
    }
    taken
}

/// One slot, used twice, and two lcores that take its receives.
pub(crate) fn two_takers() {
    let (srq, _events) = queue(1);
    assert!(post(&srq, 1));
    let lcores = [1, 1].map(|count| {
        let srq = Arc::clone(&srq);
        thread::spawn(move || take(&srq, count))
    });
    let posted: Vec<u64> = [2].into_iter().filter(|&wr_id| post(&srq, wr_id)).collect();
    let taken = lcores.map(|lcore| lcore.join().expect("no panic"));
    let mut all = taken.concat();
    all.extend(take(&srq, 1));
    all.sort_unstable();
    assert_eq!(all, [vec![1], posted].concat(), "each once");
}

/// One slot, used twice, and two lcores; the message of one fits the second receive only.
pub(crate) fn too_small() {
    let (srq, _events) = queue(1);
    assert!(post(&srq, 1));
    let lcore = thread::spawn({
        let srq = Arc::clone(&srq);
        move || take(&srq, 1)
    });
    let choosy = thread::spawn({
        let srq = Arc::clone(&srq);
        move || {
            let mut taken = Vec::new();
            let found = srq.take(2, |wr, sges| {
                assert_eq!(sges, [sge(wr.wr_id)], "torn");
                taken.push(wr.wr_id);
            });
            assert_eq!(found == Found::Receive, taken == [2], "{found:?}: {taken:?}");
            taken
        }
    });
    let posted: Vec<u64> = [2].into_iter().filter(|&wr_id| post(&srq, wr_id)).collect();
    let mut all = [lcore, choosy].map(|lcore| lcore.join().expect("no panic")).concat();
    all.extend(take(&srq, 1));
    all.sort_unstable();
    assert_eq!(all, [vec![1], posted].concat(), "each once");
}

/// The limit is armed while an lcore takes a receive: in either order there is one event.
pub(crate) fn limit() {
    let (srq, events) = queue(2);
    assert!(post(&srq, 1) && post(&srq, 2));
    let lcore = thread::spawn({
        let srq = Arc::clone(&srq);
        move || assert_eq!(take(&srq, 1).len(), 1)
    });
    srq.arm_limit(2).expect("within the depth");
    lcore.join().expect("no panic");
    let event = events.try_next().expect("the system does not fail").expect("one event");
    assert_eq!(event.kind, EventKind::SrqLimitReached);
    assert_eq!(srq.limit(), 0, "one for each arming");
    drop(event);
    assert_eq!(take(&srq, 1).len(), 1);
    assert!(events.try_next().expect("the system does not fail").is_none());
}

/// Two lcores cross an armed limit.
pub(crate) fn limit_crossed_twice() {
    let (srq, events) = queue(2);
    assert!(post(&srq, 1) && post(&srq, 2));
    srq.arm_limit(2).expect("within the depth");
    let lcore = thread::spawn({
        let srq = Arc::clone(&srq);
        move || take(&srq, 1)
    });
    take(&srq, 1);
    lcore.join().expect("no panic");
    let mut count = 0;
    while let Some(event) = events.try_next().expect("the system does not fail") {
        assert_eq!(event.kind, EventKind::SrqLimitReached);
        count += 1;
    }
    assert_eq!(count, 1, "one for each arming");
}
