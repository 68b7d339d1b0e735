use super::*;
use crate::sync::AtomicU64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use uroce_transport::{WcOpcode, WcStatus};
use uroce_wire::Qpn;

fn cqe(wr_id: u64) -> Cqe {
    Cqe::new(wr_id, WcStatus::Success, WcOpcode::Send, Qpn::new(9))
}

fn in_turns(turns: &Arc<Turns>) -> CqParts {
    CqParts { turns: Some(Arc::clone(turns)), ..CqParts::default() }
}

/// Does what an lcore does at the end of a turn.
fn end_turn(cq: &Arc<CompletionQueue>, solicited: bool) {
    CompletionQueue::notify_fence();
    if cq.wants_event(solicited) {
        cq.notify();
    }
}

fn polled(cq: &CompletionQueue) -> Vec<u64> {
    let mut all = Vec::new();
    while let Ok(Some(cqe)) = cq.poll() {
        all.push(cqe.wr_id);
    }
    all
}

#[test]
fn a_queue_needs_a_depth() {
    assert_eq!(CompletionQueue::new(0, None).err(), Some(CqError::Depth(0)));
    let over = MAX_CQ_DEPTH + 1;
    assert_eq!(CompletionQueue::new(over, None).err(), Some(CqError::Depth(over)));
    assert_eq!(CompletionQueue::new(1, None).unwrap().depth(), 1);
}

#[test] //= check G6 test
fn an_overrun_keeps_what_came_before_and_takes_nothing_after() {
    let cq = CompletionQueue::new(3, None).unwrap();
    (0..3).for_each(|id| cq.push(cqe(id)).unwrap());
    assert_eq!(cq.push(cqe(3)), Err(Overrun));
    assert_eq!(cq.poll(), Ok(Some(cqe(0))));
    assert_eq!(cq.push(cqe(4)), Err(Overrun), "there is room, but 3 is missing");
    assert_eq!(polled(&cq), [1, 2]);
    assert_eq!(cq.poll(), Err(CqError::Overrun));
    assert_eq!(cq.poll_into(&mut Vec::new(), 4), Err(CqError::Overrun));
}

#[test]
fn polling_many_stops_at_the_limit_and_at_the_end() {
    let cq = CompletionQueue::new(8, None).unwrap();
    (0..5).for_each(|id| cq.push(cqe(id)).unwrap());
    let mut out = Vec::new();
    assert_eq!(cq.poll_into(&mut out, 3), Ok(3));
    assert_eq!(cq.poll_into(&mut out, 3), Ok(2));
    assert_eq!(cq.poll_into(&mut out, 3), Ok(0));
    assert_eq!(out.iter().map(|cqe| cqe.wr_id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test] //= check E21 test
fn an_armed_queue_notifies_once_and_of_what_it_was_armed_for() {
    let channel = CompletionChannel::new(1).unwrap();
    let cq = CompletionQueue::new(8, Some(&channel)).unwrap();
    let event = |solicited| {
        end_turn(&cq, solicited);
        channel.try_next().unwrap().is_some()
    };
    assert!(!event(true), "not armed");
    cq.arm(Arm::Solicited);
    assert!(!event(false));
    assert!(event(true));
    assert!(!event(true), "once");
    cq.arm(Arm::Next);
    cq.arm(Arm::Solicited);
    assert!(event(false), "armed for any completion first");
}

#[test]
fn events_of_a_queue_that_goes_are_discarded_and_those_of_others_are_not() {
    let channel = CompletionChannel::new(2).unwrap();
    let queues = [(); 2].map(|()| CompletionQueue::new(1, Some(&channel)).unwrap());
    for cq in &queues {
        cq.arm(Arm::Next);
        end_turn(cq, false);
    }
    let full = CompletionQueue::new(1, Some(&channel));
    assert_eq!(full.err(), Some(CqError::ChannelFull));
    let [gone, stays] = queues;
    channel.discard(&gone);
    drop(gone);
    assert!(Arc::ptr_eq(&channel.try_next().unwrap().unwrap(), &stays));
    assert!(channel.try_next().unwrap().is_none());
    assert!(CompletionQueue::new(1, Some(&channel)).is_ok(), "its place is free");
}

#[test]
fn a_queue_that_is_let_go_gives_no_event_though_completions_come_and_makes_room() {
    for has_event in [false, true] {
        let channel = CompletionChannel::new(1).unwrap();
        let lcores = CompletionQueue::new(4, Some(&channel)).unwrap();
        lcores.arm(Arm::Next);
        if has_event {
            end_turn(&lcores, false);
            lcores.arm(Arm::Next);
        }
        lcores.retire();
        lcores.push(cqe(1)).unwrap();
        end_turn(&lcores, true);
        // As an lcore that has taken the arming just before.
        channel.raise(&lcores);
        assert!(channel.try_next().unwrap().is_none(), "had an event: {has_event}");
        let next = CompletionQueue::new(1, Some(&channel)).unwrap();
        drop(lcores);
        assert!(CompletionQueue::new(1, Some(&channel)).is_err(), "has left once");
        next.arm(Arm::Next);
        end_turn(&next, false);
        assert!(Arc::ptr_eq(&channel.try_next().unwrap().unwrap(), &next));
    }
}

#[test]
fn a_queue_that_is_let_go_while_lcores_complete_there_gives_no_event_afterwards() {
    for _ in 0..200 {
        let channel = CompletionChannel::new(1).unwrap();
        let cq = CompletionQueue::new(64, Some(&channel)).unwrap();
        cq.arm(Arm::Next);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for id in 0..64 {
                    cq.push(cqe(id)).unwrap();
                    end_turn(&cq, false);
                }
            });
            cq.retire();
        });
        assert!(CompletionQueue::new(1, Some(&channel)).is_ok());
        assert!(channel.try_next().unwrap().is_none());
        assert_eq!(Arc::strong_count(&cq), 1, "nothing keeps the queue");
    }
}

#[test]
fn a_queue_that_goes_leaves_the_descriptor_as_readable_as_there_are_events() {
    let channel = CompletionChannel::new(2).unwrap();
    let [stays, gone] = [(); 2].map(|()| CompletionQueue::new(1, Some(&channel)).unwrap());
    for cq in [&stays, &gone] {
        cq.arm(Arm::Next);
        end_turn(cq, false);
    }
    channel.discard(&gone);
    let is_readable = || {
        let mut fds = [PollFd::new(&channel, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    assert!(is_readable());
    assert!(Arc::ptr_eq(&channel.read().unwrap(), &stays));
    assert!(!is_readable());
}

#[test] //= check G11 test
fn each_completion_goes_to_one_of_two_pollers() {
    const COUNT: u64 = 100_000;
    let cq = CompletionQueue::new(64, None).unwrap();
    let taken = AtomicU64::new(0);
    let sums: Vec<_> = std::thread::scope(|scope| {
        let poller = || {
            let (mut sum, mut last) = (0, 0);
            while taken.load(Ordering::Relaxed) < COUNT {
                let Ok(Some(cqe)) = cq.poll() else {
                    std::thread::yield_now();
                    continue;
                };
                assert!(cqe.wr_id > last, "order is kept");
                last = cqe.wr_id;
                sum += cqe.wr_id;
                taken.fetch_add(1, Ordering::Relaxed);
            }
            sum
        };
        let pollers = [scope.spawn(poller), scope.spawn(poller)];
        for id in 1..=COUNT {
            while cq.entries.len() == cq.entries.capacity() {
                std::thread::yield_now();
            }
            cq.push(cqe(id)).unwrap();
        }
        pollers.map(|poller| poller.join().unwrap()).to_vec()
    });
    assert_eq!(sums.iter().sum::<u64>(), COUNT * (COUNT + 1) / 2);
}

/// The application arms, polls, and sleeps if there was nothing; the lcore pushes at any moment.
/// A lost wake-up would leave the application asleep with an entry in the queue.
#[test] //= check G9 test
fn no_wake_up_is_lost() {
    const COUNT: u64 = 1_000_000;
    let channel = CompletionChannel::new(1).unwrap();
    let cq = CompletionQueue::new(COUNT as u32, Some(&channel)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COUNT {
                cq.push(cqe(id)).unwrap();
                end_turn(&cq, false);
                if id % 97 == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let (mut expected, mut slept) = (0, 0u64);
        let deadline = Instant::now() + Duration::from_secs(60);
        while expected < COUNT {
            cq.arm(Arm::Next);
            let mut found = false;
            while let Some(cqe) = cq.poll().unwrap() {
                assert_eq!(cqe.wr_id, expected);
                expected += 1;
                found = true;
            }
            if !found && expected < COUNT {
                wait_before(&channel, deadline);
                slept += 1;
            }
        }
        assert!(slept > 0, "the race was never run");
    });
}

/// [`CompletionChannel::wait`] that fails the test instead of hanging it.
fn wait_before(channel: &CompletionChannel, deadline: Instant) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    while channel.try_next().unwrap().is_none() {
        let mut fds = [PollFd::new(channel, PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        let ready = poll(&mut fds, Some(&second)).unwrap();
        assert!(ready > 0 || Instant::now() < deadline, "a wake-up was lost");
    }
}

/// Lcores add entries, in turns; two pollers take them; the queue grows several times meanwhile.
#[test] //= check G11 test
fn a_queue_that_grows_under_traffic_gives_each_completion_once_and_in_order() {
    const COUNT: u64 = 60_000;
    const LCORES: usize = 2;
    const A_TURN: usize = 3;
    let turns = Arc::new(Turns::new(LCORES));
    let cq = CompletionQueue::within(in_turns(&turns), 8, None).unwrap();
    let taken = AtomicU64::new(0);
    let all = COUNT * LCORES as u64;
    let of_pollers = std::thread::scope(|scope| {
        for lcore in 0..LCORES {
            let (cq, turns) = (&cq, &turns);
            scope.spawn(move || {
                let mut ids = 1..=COUNT;
                while !ids.is_empty() {
                    // There is room for a turn of each lcore, so no overrun. An lcore does not wait
                    // within a turn.
                    while cq.entries.len() + LCORES * A_TURN > cq.entries.capacity() {
                        std::thread::yield_now();
                    }
                    let _turn = turns.enter(lcore);
                    for id in ids.by_ref().take(A_TURN) {
                        cq.push(Cqe { qpn: Qpn::new(lcore as u32), ..cqe(id) }).unwrap();
                    }
                }
            });
        }
        let poller = || {
            let mut polled: [Vec<u64>; LCORES] = Default::default();
            while taken.load(Ordering::Relaxed) < all {
                match cq.poll() {
                    Ok(Some(cqe)) => {
                        polled[cqe.qpn.value() as usize].push(cqe.wr_id);
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    _ => std::thread::yield_now(),
                }
            }
            polled
        };
        let pollers = [scope.spawn(poller), scope.spawn(poller)];
        for depth in [9, 17, 40, 100, 1000] {
            // Each ring is used for a while.
            let seen = taken.load(Ordering::Relaxed);
            while taken.load(Ordering::Relaxed) < (seen + 1000).min(all) {
                std::thread::yield_now();
            }
            cq.resize(depth).unwrap();
            assert_eq!(cq.depth(), depth);
        }
        pollers.map(|poller| poller.join().unwrap())
    });
    for lcore in 0..LCORES {
        let [a, b] = of_pollers.each_ref().map(|polled| &polled[lcore]);
        assert!([a, b].iter().all(|ids| ids.is_sorted()), "order is kept");
        let mut ids = [&a[..], b].concat();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(1..=COUNT), "each once");
    }
}

#[test]
fn a_queue_is_resized_to_what_it_can_have_and_never_below_what_waits() {
    let cq = CompletionQueue::new(2, None).unwrap();
    (0..2).for_each(|id| cq.push(cqe(id)).unwrap());
    assert_eq!(cq.resize(1), Err(CqError::TooSmall { depth: 1, waiting: 2 }));
    for depth in [0, MAX_CQ_DEPTH + 1] {
        assert_eq!(cq.resize(depth), Err(CqError::Depth(depth)));
    }
    assert_eq!(cq.depth(), 2);
    cq.resize(3).unwrap();
    (2..4).for_each(|id| cq.push(cqe(id)).unwrap());
    assert_eq!(polled(&cq), [0, 1, 2, 3]);
    cq.resize(1).unwrap();
    assert_eq!(cq.depth(), 1);
    cq.push(cqe(4)).unwrap();
    assert_eq!(polled(&cq), [4]);
}

/// A thread arms the queue and finds nothing, since the entry is behind a ring that is not sealed
/// yet.
#[test] //= check G9 test
fn a_thread_that_waits_while_a_queue_grows_is_woken() {
    let channel = CompletionChannel::new(1).unwrap();
    let turns = Arc::new(Turns::new(1));
    let cq = CompletionQueue::within(in_turns(&turns), 1, Some(&channel)).unwrap();
    std::thread::scope(|scope| {
        let turn = turns.enter(0);
        let resizing = scope.spawn(|| cq.resize(4).unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        while cq.entries.capacity() < 4 {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        cq.push(cqe(7)).unwrap();
        cq.arm(Arm::Next);
        assert_eq!(cq.poll(), Ok(None), "its turn has not ended");
        assert!(channel.try_next().unwrap().is_none());
        drop(turn);
        wait_before(&channel, deadline);
        assert_eq!(polled(&cq), [7]);
        resizing.join().unwrap();
    });
}
