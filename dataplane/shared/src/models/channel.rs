//! Q5: arming a completion queue and sleeping until it has a completion.
//!
//! The lcore adds an entry and then checks whether the queue is armed; the application arms, polls,
//! and sleeps if the queue is empty. A lost wake-up is a deadlock, which loom finds. Not modelled:
//! the eventfd, which is a counter under a lock here, as strong as a system call.

use super::cqe;
use crate::queue::cq::{Arm, CqParts};
use crate::queue::{CompletionChannel, CompletionQueue, CqError};
use crate::table::qsbr::Turns;
use loom::thread;
use std::sync::Arc;
use uroce_wire::Qpn;

fn cq_on(channel: &Arc<CompletionChannel>) -> Arc<CompletionQueue> {
    CompletionQueue::new(4, Some(channel)).expect("the channel has room")
}

/// The end of an lcore's turn in which it has added one completion.
fn complete(cq: &Arc<CompletionQueue>, wr_id: u64) {
    cq.push(cqe(Qpn::new(2), wr_id)).expect("room");
    CompletionQueue::notify_fence();
    if cq.wants_event(false) {
        cq.notify();
    }
}

/// Sleeps until there is a completion, as an application does, and returns its `wr_id`.
fn sleep_for_one(channel: &CompletionChannel, cq: &Arc<CompletionQueue>) -> u64 {
    loop {
        if let Some(cqe) = cq.poll().expect("no overrun") {
            return cqe.wr_id;
        }
        cq.arm(Arm::Next);
        if let Some(cqe) = cq.poll().expect("no overrun") {
            return cqe.wr_id;
        }
        let woken = channel.wait().expect("the system does not fail");
        assert!(Arc::ptr_eq(&woken, cq));
    }
}

pub(crate) fn arm_and_sleep() {
    let channel = CompletionChannel::new(1).expect("a channel");
    let cq = cq_on(&channel);
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || complete(&cq, 7)
    });
    assert_eq!(sleep_for_one(&channel, &cq), 7);
    lcore.join().expect("no panic");
    // In any case the next arming gives exactly one event.
    channel.discard(&cq);
    cq.arm(Arm::Next);
    for (wr_id, has_event) in [(8, true), (9, false)] {
        complete(&cq, wr_id);
        let event = channel.try_next().expect("the system does not fail");
        assert_eq!(event.is_some(), has_event, "completion {wr_id}");
    }
}

pub(crate) fn arm_again() {
    let channel = CompletionChannel::new(1).expect("a channel");
    let cq = cq_on(&channel);
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || (0..2).for_each(|wr_id| complete(&cq, wr_id))
    });
    assert_eq!(sleep_for_one(&channel, &cq), 0);
    assert_eq!(sleep_for_one(&channel, &cq), 1);
    lcore.join().expect("no panic");
    channel.discard(&cq);
    let another = || CompletionQueue::new(1, Some(&channel));
    assert_eq!(another().err(), Some(CqError::ChannelFull));
    drop(cq);
    assert!(another().is_ok(), "a queue that is gone makes room");
}

pub(crate) fn discard_beside_a_sleeper() {
    let channel = CompletionChannel::new(2).expect("a channel");
    let [dying, living] = [cq_on(&channel), cq_on(&channel)];
    living.arm(Arm::Next);
    complete(&living, 7);
    let sleeper = thread::spawn({
        let (channel, living) = (Arc::clone(&channel), Arc::clone(&living));
        move || {
            let woken = channel.wait().expect("the system does not fail");
            assert!(Arc::ptr_eq(&woken, &living));
        }
    });
    channel.discard(&dying);
    sleeper.join().expect("no panic");
}

/// The application lets go a queue while an lcore completes there and a thread takes events.
pub(crate) fn retire_beside_an_lcore_and_a_taker() {
    let channel = CompletionChannel::new(1).expect("a channel");
    let cq = cq_on(&channel);
    cq.arm(Arm::Next);
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || complete(&cq, 7)
    });
    let taker = thread::spawn({
        let channel = Arc::clone(&channel);
        move || drop(channel.try_next().expect("the system does not fail"))
    });
    cq.retire();
    let another = || CompletionQueue::new(1, Some(&channel));
    // X
    let early = another().ok();
    if let Some(next) = &early {
        next.arm(Arm::Next);
        complete(next, 8);
    }
    lcore.join().expect("no panic");
    taker.join().expect("no panic");
    while let Some(woken) = channel.try_next().expect("the system does not fail") {
        assert!(!Arc::ptr_eq(&woken, &cq), "an event after it was let go");
    }
    assert_eq!(Arc::strong_count(&cq), 1, "nothing keeps the queue");
    let _next = early.or_else(|| another().ok()).expect("it has made room");
    drop(cq);
    assert_eq!(another().err(), Some(CqError::ChannelFull), "it has made room once");
}

/// A completion is added in a turn, while one thread grows the queue and another sleeps.
pub(crate) fn grow_beside_a_sleeper() {
    let channel = CompletionChannel::new(1).expect("a channel");
    let turns = Arc::new(Turns::new(1));
    let parts = CqParts { turns: Some(Arc::clone(&turns)), ..CqParts::default() };
    let cq = CompletionQueue::within(parts, 1, Some(&channel)).expect("room");
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            let _turn = turns.enter(0);
            complete(&cq, 7);
        }
    });
    let grower = thread::spawn({
        let cq = Arc::clone(&cq);
        move || cq.resize(2).expect("a depth that is possible")
    });
    assert_eq!(sleep_for_one(&channel, &cq), 7);
    lcore.join().expect("no panic");
    grower.join().expect("no panic");
}
