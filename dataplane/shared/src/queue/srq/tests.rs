use super::*;
use crate::wake::events::{Event, EventChannel, Subject};
use std::sync::Arc;

fn queue(depth: u32, max_sge: u32) -> (SharedReceiveQueue, Arc<EventChannel>) {
    let channel = EventChannel::new(4).unwrap();
    let events = channel.admit(Subject::Srq(7)).unwrap();
    (SharedReceiveQueue::new(Pd(1), depth, max_sge, events).unwrap(), channel)
}

/// The list of receive `id`. Its values follow from `id`, so that a mixture of two would be seen.
fn sges(id: u64) -> Vec<Sge> {
    let sge =
        |at: u64| Sge { va: Va(id * 1000 + at), len: id as u32 % 1000, lkey: Lkey(id as u32) };
    (0..id % 4).map(sge).collect()
}

fn post(queue: &SharedReceiveQueue, id: u64) -> Result<(), PostError> {
    queue.post_recv(&RecvWr { wr_id: id }, &sges(id))
}

fn take(queue: &SharedReceiveQueue) -> Option<u64> {
    take_for(queue, 0).ok()
}

/// Takes a receive for a message of `room` bytes, or returns the reason why there is none.
fn take_for(queue: &SharedReceiveQueue, room: u32) -> Result<u64, Found> {
    let mut taken = None;
    let found = queue.take(room, |wr, list| {
        assert_eq!(list, sges(wr.wr_id), "the list of another receive");
        taken = Some(wr.wr_id);
    });
    assert_eq!(found == Found::Receive, taken.is_some());
    taken.ok_or(found)
}

#[test] //= check L4 test
fn a_receive_that_is_too_small_stays_the_oldest() {
    let (queue, channel) = queue(4, 4);
    // Three elements of 7 bytes each, and three of 11.
    post(&queue, 7).unwrap();
    post(&queue, 11).unwrap();
    queue.arm_limit(2).unwrap();
    for _ in 0..3 {
        assert_eq!(take_for(&queue, 22), Err(Found::TooSmall));
        assert_eq!((queue.len(), queue.limit()), (2, 2));
    }
    assert!(channel.try_next().unwrap().is_none(), "the limit is not met");
    assert_eq!(take_for(&queue, 21), Ok(7));
    assert_eq!(take_for(&queue, 33), Ok(11));
    assert_eq!(take_for(&queue, 0), Err(Found::Nothing));
}

#[test]
fn receives_come_out_in_the_order_of_their_posting_round_after_round() {
    let (queue, _) = queue(3, 4);
    for round in 0..100 {
        for id in 0..3 {
            post(&queue, 3 * round + id).unwrap();
        }
        assert_eq!(post(&queue, 0), Err(PostError::QueueFull));
        assert_eq!(queue.len(), 3);
        for id in 0..3 {
            assert_eq!(take(&queue), Some(3 * round + id));
        }
        assert_eq!(take(&queue), None);
        assert!(queue.is_empty());
    }
}

#[test]
fn limits_of_depth_and_lists_are_kept() {
    let channel = EventChannel::new(4).unwrap();
    let new = |depth, max_sge| {
        let events = channel.admit(Subject::Srq(0)).unwrap();
        SharedReceiveQueue::new(Pd(1), depth, max_sge, events).map(|_| ())
    };
    assert_eq!(new(0, 1), Err(SrqError::Depth(0)));
    assert_eq!(new(MAX_SRQ_DEPTH + 1, 1), Err(SrqError::Depth(MAX_SRQ_DEPTH + 1)));
    assert_eq!(new(1, 0), Err(SrqError::Sges(0)));
    assert_eq!(new(1, MAX_SGE + 1), Err(SrqError::Sges(MAX_SGE + 1)));
    assert_eq!(new(1, MAX_SGE), Ok(()));

    let (queue, _) = queue(4, 2);
    let wr = RecvWr { wr_id: 1 };
    let sge = |len| Sge { va: Va(0), len, lkey: Lkey(0) };
    assert_eq!(queue.post_recv(&wr, &[sge(1); 3]), Err(PostError::TooManySges));
    let half = MAX_MESSAGE_LEN / 2;
    assert_eq!(queue.post_recv(&wr, &[sge(half), sge(half + 1)]), Err(PostError::TooLong));
    assert_eq!(queue.post_recv(&wr, &[sge(half), sge(half)]), Ok(()));
    let (good, bad) = ([sge(1)], [sge(1); 3]);
    let list: [(&RecvWr, &[Sge]); 3] = [(&wr, &good), (&wr, &bad), (&wr, &good)];
    assert_eq!(queue.post_recv_list(list), Err((1, PostError::TooManySges)));
    assert_eq!(queue.len(), 2, "what stood before the refused one is posted");
}

fn events(channel: &Arc<EventChannel>) -> usize {
    let mut count = 0;
    while let Some(event) = channel.try_next().unwrap() {
        let Event { subject, kind, .. } = event;
        assert_eq!((subject, kind), (Subject::Srq(7), EventKind::SrqLimitReached));
        count += 1;
    }
    count
}

#[test] //= check G8 test
fn the_limit_gives_one_event_for_each_arming() {
    let (queue, channel) = queue(8, 4);
    (0..8).for_each(|id| post(&queue, id).unwrap());
    assert_eq!(queue.arm_limit(9), Err(SrqError::Limit { limit: 9, depth: 8 }));
    queue.arm_limit(3).unwrap();
    (0..5).for_each(|_| assert!(take(&queue).is_some()));
    assert_eq!((events(&channel), queue.limit()), (0, 3), "three are left: not below");
    take(&queue);
    assert_eq!((events(&channel), queue.limit()), (1, 0));
    take(&queue);
    take(&queue);
    assert_eq!(events(&channel), 0, "it is not armed any more");
    // The limit is armed while too few receives wait already.
    queue.arm_limit(1).unwrap();
    assert_eq!((events(&channel), queue.limit()), (1, 0));
    post(&queue, 0).unwrap();
    queue.arm_limit(1).unwrap();
    queue.arm_limit(0).unwrap();
    take(&queue);
    assert_eq!(events(&channel), 0, "taken back");
}

/// Several lcores take while one thread posts: each receive is taken once and whole, and each lcore
/// sees them in order.
#[test] //= check F15 test
fn lcores_share_the_receives_and_none_is_torn() {
    const COUNT: u64 = 100_000;
    let (queue, _) = queue(64, 4);
    let taken = std::thread::scope(|scope| {
        let lcores: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    while queue.head.load(Ordering::Relaxed) < COUNT {
                        match take(&queue) {
                            Some(id) => mine.push(id),
                            None => std::thread::yield_now(),
                        }
                    }
                    mine
                })
            })
            .collect();
        for id in 0..COUNT {
            while post(&queue, id).is_err() {
                std::thread::yield_now();
            }
        }
        lcores.into_iter().map(|lcore| lcore.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(taken.iter().all(|mine| mine.is_sorted()), "an lcore saw a newer one first");
    let mut all: Vec<_> = taken.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..COUNT), "each once");
}

/// A limit is armed while the receive that crosses it is taken: there is exactly one event, in
/// either order.
#[test] //= check G8 test
fn no_crossing_of_the_limit_is_missed() {
    const ROUNDS: u64 = 20_000;
    let (queue, channel) = queue(2, 4);
    let round = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=ROUNDS {
                while round.load(Ordering::Acquire) < number {
                    std::hint::spin_loop();
                    std::thread::yield_now();
                }
                assert!(take(&queue).is_some());
            }
        });
        for number in 1..=ROUNDS {
            post(&queue, number).unwrap();
            round.store(number, Ordering::Release);
            queue.arm_limit(1).unwrap();
            while !queue.is_empty() || queue.limit() != 0 {
                std::thread::yield_now();
            }
            // The thread that disarmed the limit raises the event right after.
            let mut count = 0;
            while count == 0 {
                count = events(&channel);
            }
            assert_eq!(count, 1, "round {number}");
        }
    });
    assert_eq!(events(&channel), 0);
}
