//! Q3: a work queue's ring, its doorbell, and the words by which lcore and pollers report back.
//!
//! The application posts more requests than the queue is deep, so slots are used again. Not
//! modelled: the wrapping of the counts of posted and freed requests at 2^32 (see
//! `tests/proofs.rs`); the rings themselves, which are another crate's.

use super::cqe;
use crate::queue::CompletionQueue;
use crate::queue::cq::CqParts;
use crate::queue::places::Places;
use crate::queue::ring::{QpShared, RingEnd, RingFeed, RingSpec, Which, ring};
use crate::sync::{Ordering, fence};
use crate::wake::doorbell::{Doorbell, DoorbellReader};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::Arc;
use uroce_transport::{Cqe, QpState, Sge, WcOpcode};
use uroce_wire::{Lkey, Qpn, Va};

/// Both ends of a ring; a work request is just its number.
type Ends = (RingEnd<u64>, RingFeed<u64>);

const QPN: Qpn = Qpn::new(2);

fn shared(places: &Places) -> Arc<QpShared> {
    Arc::new(QpShared::new(places.begin(0, QPN).expect("a slot")))
}

fn queue(depth: u32, index: u32, doorbell: &Arc<Doorbell>) -> (Ends, Arc<QpShared>) {
    queue_of(&Places::new(1), depth, index, doorbell)
}

fn queue_of(
    places: &Places,
    depth: u32,
    index: u32,
    doorbell: &Arc<Doorbell>,
) -> (Ends, Arc<QpShared>) {
    let shared = shared(places);
    let (to_end, doorbell) = (Arc::clone(&shared), Arc::clone(doorbell));
    let spec = RingSpec { shared: to_end, doorbell, index, depth, max_sge: 2 };
    let (end, mut feed) = ring(spec, Which::Send);
    feed.release(&shared);
    ((end, feed), shared)
}

/// The SGEs of work request `wr`: a number of them that depends on `wr`, each naming `wr`.
fn sges(wr: u64) -> Vec<Sge> {
    let sge = |at: u64| Sge { va: Va(wr), len: at as u32, lkey: Lkey(wr as u32) };
    (0..wr % 3).map(sge).collect()
}

/// Takes all requests in the ring, and checks that each is whole.
fn take(feed: &mut RingFeed<u64>, taken: &mut Vec<u64>) {
    feed.take(u32::MAX, |&wr, list| {
        assert_eq!(list, sges(wr), "torn");
        taken.push(wr);
        true
    });
}

pub(crate) fn post_and_ring() {
    const POSTS: u64 = 3;
    let doorbell = Arc::new(Doorbell::new(1, Arc::default()));
    let ((mut end, mut feed), shared) = queue(2, 0, &doorbell);
    let mut rung = DoorbellReader::new(doorbell);
    let application = thread::spawn(move || {
        let mut posted = 0;
        while posted < POSTS {
            let mut room = end.room();
            if room == 0 {
                thread::yield_now();
                continue;
            }
            end.push(posted, &sges(posted), &mut room).expect("room");
            end.notify_lcore();
            posted += 1;
        }
    });
    let mut taken = Vec::new();
    while taken.len() < POSTS as usize {
        // As an lcore does: a queue without a ring of the doorbell is not looked at.
        match rung.next_rung() {
            Some(index) => {
                assert_eq!(index, 0);
                take(&mut feed, &mut taken);
                feed.release(&shared);
            }
            None => thread::yield_now(),
        }
    }
    assert!(taken.into_iter().eq(0..POSTS));
    application.join().expect("no panic");
}

pub(crate) fn two_ringers() {
    let doorbell = Arc::new(Doorbell::new(2, Arc::default()));
    let (mut ends, mut feeds) = (Vec::new(), Vec::new());
    for index in 0..2 {
        let ((end, feed), _) = queue(2, index, &doorbell);
        ends.push(end);
        feeds.push(feed);
    }
    let mut rung = DoorbellReader::new(doorbell);
    let post = |mut end: RingEnd<u64>, count: u64| {
        move || {
            for wr in 0..count {
                end.push(wr, &[], &mut 1).expect("room");
                end.notify_lcore();
            }
        }
    };
    let (second, first) = (ends.pop().expect("two"), ends.pop().expect("two"));
    let threads = [thread::spawn(post(first, 1)), thread::spawn(post(second, 1))];
    let mut taken = [Vec::new(), Vec::new()];
    while taken[0].len() + taken[1].len() < 2 {
        match rung.next_rung() {
            Some(index) => take_plain(&mut feeds[index as usize], &mut taken[index as usize]),
            None => thread::yield_now(),
        }
    }
    assert_eq!(taken, [[0], [0]]);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn take_plain(feed: &mut RingFeed<u64>, taken: &mut Vec<u64>) {
    feed.take(u32::MAX, |&wr, _| {
        taken.push(wr);
        true
    });
}

/// The application posts again as soon as a completion that it has polled makes room.
pub(crate) fn polled_is_free() {
    let (doorbell, places) = (Arc::new(Doorbell::new(1, Arc::default())), Arc::new(Places::new(1)));
    let ((mut end, mut feed), shared) = queue_of(&places, 1, 0, &doorbell);
    let parts = CqParts { places: Some(places), ..CqParts::default() };
    let cq = CompletionQueue::within(parts, 2, None).expect("a depth that is possible");
    shared.publish_state(QpState::Rtr);
    end.push(7, &[], &mut 1).expect("room");
    let lcore = thread::spawn({
        let cq = Arc::clone(&cq);
        move || {
            let position = feed.lead().wrapping_add(1);
            take_plain(&mut feed, &mut Vec::new());
            shared.publish_state(QpState::Err);
            let opcode = WcOpcode::Send;
            cq.push(Cqe { position, opcode, ..cqe(QPN, 7) }).expect("room");
        }
    });
    if let Some(cqe) = cq.poll().expect("no overrun") {
        assert_eq!(cqe.wr_id, 7);
        assert_eq!(end.room(), 1, "polled, but not free");
        assert_eq!(end.state(), QpState::Err, "completed, but in an older state");
        end.push(8, &[], &mut 1).expect("what is free has left its ring");
    } else {
        assert_eq!(end.room(), 0, "free, but not polled");
    }
    lcore.join().expect("no panic");
}

pub(crate) fn state_tells_of_what_led_to_it() {
    let shared = shared(&Places::new(1));
    let done = Arc::new(UnsafeCell::new(false));
    let lcore = thread::spawn({
        let (shared, done) = (Arc::clone(&shared), Arc::clone(&done));
        move || {
            // SAFETY: no thread reads before the state is published; loom reports a race if one
            // does.
            done.with_mut(|done| unsafe { *done = true });
            shared.publish_state(QpState::Err);
        }
    });
    if shared.state() == QpState::Err {
        // SAFETY: it was written before the state was published, and is not written again.
        assert!(done.with(|done| unsafe { *done }));
    }
    lcore.join().expect("no panic");
    assert_eq!(shared.state(), QpState::Err);
}

/// Both sides of a receive that races with ERR, as `RecvBatch` and `QpContext::enter_state` are
/// written.
pub(crate) fn receive_meets_error() {
    let doorbell = Arc::new(Doorbell::new(1, Arc::default()));
    let ((mut end, mut feed), shared) = queue(1, 0, &doorbell);
    let mut rung = DoorbellReader::new(doorbell);
    shared.publish_state(QpState::Rts);
    let application = thread::spawn(move || {
        end.push(7, &[], &mut 1).expect("room");
        fence(Ordering::SeqCst);
        if end.state() == QpState::Err {
            end.notify_lcore();
        }
    });
    let mut flushed = Vec::new();
    shared.publish_state(QpState::Err);
    fence(Ordering::SeqCst);
    take_plain(&mut feed, &mut flushed);
    application.join().expect("no panic");
    // Later turns of the lcore.
    while rung.next_rung().is_some() {
        take_plain(&mut feed, &mut flushed);
    }
    assert_eq!(flushed, [7], "lost");
}
