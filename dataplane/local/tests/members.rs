//! Members in one process: frames between them, links, groups, sleep.

mod common;

use common::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use uroce_local::{Member, Queue, Sent, mac_of, number_of};

/// Pause of a member, in milliseconds, after which frames to it may be lost. The library waits a
/// little longer.
const PAUSE: u64 = 150;

/// Sends `count` frames to each other member and receives as many of each, in order. A frame is
/// lost only if a member has paused; `pause` has the longest pause of all, in milliseconds.
fn exchange(member: &Member, queue: &mut Queue, others: &[u8], count: u32, pause: &AtomicU64) {
    let begin = Instant::now();
    let own = member.number();
    let mut rng = fastrand::Rng::with_seed(u64::from(own));
    let mut sent = vec![0; 65];
    let mut received = vec![0; 65];
    let mut bytes = 0;
    let mut turned = begin;
    while others
        .iter()
        .any(|&at| sent[usize::from(at)] < count || received[usize::from(at)] < count)
    {
        assert!(begin.elapsed() < Duration::from_secs(60), "{own}: {sent:?} {received:?}");
        let since = std::mem::replace(&mut turned, Instant::now());
        pause.fetch_max(since.elapsed().as_millis() as u64, Ordering::Relaxed);
        queue.begin(now(begin));
        let got = receive(queue, |told| {
            assert_eq!(told.to, own);
            assert_eq!(told.number, received[usize::from(told.from)], "from {}", told.from);
            received[usize::from(told.from)] += 1;
        });
        let mut has_sent = false;
        for &to in others {
            for _ in 0..8 {
                let number = sent[usize::from(to)];
                if number == count {
                    break;
                }
                let frame = frame(own, to, 0, number, rng.usize(SHORTEST..=4200));
                match queue.send(&frame) {
                    Sent::Taken => sent[usize::from(to)] += 1,
                    Sent::Full => break,
                    // It is sent again, since the machine may be busy.
                    Sent::Lost => break,
                }
                bytes += frame.len() as u64;
                has_sent = true;
            }
        }
        queue.flush();
        if got == 0 && !has_sent {
            std::thread::yield_now();
        }
    }
    let counters = queue.counters();
    let total = u64::from(count) * others.len() as u64;
    assert_eq!((counters.tx_frames, counters.rx_frames), (total, total));
    assert_eq!(counters.tx_bytes, bytes);
    assert_eq!((counters.tx_no_member, counters.malformed), (0, 0));
}

fn exchange_among(count: u8, frames: u32) {
    let scratch = Scratch::new();
    let members: Vec<_> = (0..count).map(|_| join(scratch.path())).collect();
    let numbers: Vec<_> = members.iter().map(Member::number).collect();
    assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
    let barrier = std::sync::Barrier::new(usize::from(count));
    let (pause, stuck) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for member in &members {
            let (barrier, numbers, pause, stuck) = (&barrier, &numbers, &pause, &stuck);
            scope.spawn(move || {
                let mut queue = member.queue(0).unwrap();
                let own = member.number();
                let others: Vec<_> = numbers.iter().copied().filter(|&at| at != own).collect();
                // All begin at once, so connections cross.
                barrier.wait();
                exchange(member, &mut queue, &others, frames, pause);
                stuck.fetch_add(queue.counters().tx_stuck, Ordering::Relaxed);
            });
        }
    });
    let [pause, stuck] = [pause, stuck].map(AtomicU64::into_inner);
    assert!(stuck == 0 || pause >= PAUSE, "{stuck} frames lost, pauses of {pause} ms at most");
    for member in &members {
        assert_eq!(member.linked().count_ones(), u32::from(count) - 1);
        assert_eq!(member.take_ended(), 0);
    }
}

#[test]
fn two_members_exchange_frames() {
    exchange_among(2, 30_000);
}

#[test]
fn eight_members_exchange_frames() {
    exchange_among(8, 1500);
}

#[test]
fn addresses_tell_numbers() {
    assert_eq!(mac_of(7).to_string(), "02:75:72:6f:63:07");
    assert_eq!(number_of(mac_of(64)), Some(64));
    assert_eq!([mac_of(0), mac_of(65), mac_of(255)].map(number_of), [None; 3]);
}

/// Two members with their queues.
fn pair(scratch: &Scratch, queues: [u16; 2]) -> [Member; 2] {
    queues.map(|queues| Member::join(config(scratch.path(), queues)).unwrap())
}

#[test]
fn members_that_connect_at_once_have_one_link_and_lose_no_frame() {
    for round in 0..40 {
        let scratch = Scratch::new();
        let members = pair(&scratch, [1, 1]);
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for (member, other) in [(&members[0], 2), (&members[1], 1)] {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut queue = member.queue(0).unwrap();
                    barrier.wait();
                    exchange(member, &mut queue, &[other], 20, &AtomicU64::new(0));
                });
            }
        });
        let ended = members.each_ref().map(Member::take_ended);
        assert_eq!(ended, [0, 0], "round {round}: a link was replaced");
    }
}

#[test]
fn each_queue_reaches_the_queue_that_its_number_says() {
    let scratch = Scratch::new();
    let members = pair(&scratch, [3, 2]);
    let begin = Instant::now();
    let mut queues: [Vec<Queue>; 2] = members
        .each_ref()
        .map(|member| (0..member.queues()).map(|index| member.queue(index).unwrap()).collect());
    for (own, other) in [(0, 1), (1, 0)] {
        for from in 0..queues[own].len() {
            let frame = frame(own as u8 + 1, other as u8 + 1, 0, from as u32, 500);
            assert_eq!(send_surely(&mut queues[own][from], begin, &frame), Sent::Taken);
            let mut came = Vec::new();
            until("the frame", || {
                for (at, queue) in queues[other].iter_mut().enumerate() {
                    queue.begin(now(begin));
                    receive(queue, |told| came.push((at, told.number)));
                }
                !came.is_empty()
            });
            assert_eq!(came, [(from % queues[other].len(), from as u32)]);
        }
    }
    assert_eq!(members[0].counters().rx_frames, 2);
    assert_eq!(members[1].counters().rx_frames, 3);
}

#[test]
fn a_frame_to_all_goes_to_each_present_member_once() {
    let scratch = Scratch::new();
    let members: Vec<_> = (0..5).map(|_| join(scratch.path())).collect();
    let begin = Instant::now();
    let mut queues: Vec<_> = members.iter().map(|member| member.queue(0).unwrap()).collect();
    // The others have told the first one that they are there; no link is made yet.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(members[0].linked(), 0);
    for number in 0..3 {
        let frame = frame(1, 0, 0, number, 100);
        assert_eq!(send_surely(&mut queues[0], begin, &frame), Sent::Taken);
    }
    let mut came = [0; 5];
    until("all frames", || {
        for (queue, came) in queues.iter_mut().zip(&mut came) {
            queue.begin(now(begin));
            receive(queue, |told| {
                assert_eq!((told.from, told.to, told.number), (1, 0, *came));
                *came += 1;
            });
        }
        came == [0, 3, 3, 3, 3]
    });
    assert_eq!(members[0].counters().tx_frames, 3);
    assert_eq!(members[0].linked(), 0b11110);
    assert_eq!(members[1].linked(), 1, "links are made by those with something to say");
}

#[test]
fn what_has_no_receiver_is_lost_and_counted() {
    let scratch = Scratch::new();
    let [one, two] = pair(&scratch, [1, 1]);
    let begin = Instant::now();
    let mut queue = one.queue(0).unwrap();
    let lost = |queue: &mut Queue, bytes: &[u8]| {
        assert_eq!(send_surely(queue, begin, bytes), Sent::Lost);
    };
    lost(&mut queue, &frame(1, 9, 0, 0, 100));
    lost(&mut queue, &frame(1, 1, 0, 0, 100));
    let mut foreign = frame(1, 2, 0, 0, 100);
    foreign[0] = 0x06;
    lost(&mut queue, &foreign);
    assert_eq!(queue.counters().tx_no_member, 3);
    lost(&mut queue, &[2; 13]);
    lost(&mut queue, &[]);
    lost(&mut queue, &vec![2; 20_000]);
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 0, 4200)), Sent::Taken);
    lost(&mut queue, &frame(1, 2, 0, 0, 4201));
    assert_eq!(queue.counters().tx_length, 4);
    drop(two);
    until("the end is noticed", || {
        queue.begin(now(begin));
        receive(&mut queue, |_| {});
        queue.send(&frame(1, 2, 0, 0, 100)) == Sent::Lost
    });
    assert_eq!(one.take_ended(), 0b10);
}

#[test]
fn a_member_that_comes_late_is_waited_for_again() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let begin = Instant::now();
    let mut queue = one.queue(0).unwrap();
    assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 0, 100)), Sent::Lost);
    let two = join(scratch.path());
    // It tells the first one that it is there.
    std::thread::sleep(Duration::from_millis(50));
    let much_later = begin.checked_sub(Duration::from_secs(30)).unwrap();
    assert_eq!(send_surely(&mut queue, much_later, &frame(1, 2, 0, 0, 100)), Sent::Taken);
    drop(two);
}

/// What the owner ends when it learns of a member's end is never the successor's.
#[test]
fn a_successor_is_linked_when_the_owner_has_forgotten_the_member_before() {
    let scratch = Scratch::new();
    let one = join(scratch.path());
    let mut queue = one.queue(0).unwrap();
    let begin = Instant::now();
    for life in 1..30 {
        let two = join(scratch.path());
        let mut other = two.queue(0).unwrap();
        let sent = send_surely(&mut other, begin, &frame(2, 1, life, 0, 100));
        assert_eq!((two.number(), sent), (2, Sent::Taken));
        let mut came = Vec::new();
        until("the frame", || {
            receive(&mut queue, |told| came.push(told.life));
            !came.is_empty()
        });
        assert_eq!((came, one.take_ended()), (vec![life], 0));
        drop((other, two));
        // The successor speaks before the end is known.
        let three = join(scratch.path());
        let mut other = three.queue(0).unwrap();
        let mut is_sent = false;
        let mut ended = None;
        until("the next frame", || {
            other.begin(now(begin));
            is_sent |= other.send(&frame(2, 1, life + 100, 0, 100)) == Sent::Taken;
            other.flush();
            let mut came = false;
            receive(&mut queue, |told| came |= told.life == life + 100);
            let is_forgotten = ended.is_some_and(|at: Instant| at.elapsed().as_millis() >= 10);
            assert!(!came || is_forgotten, "life {life}: a frame of the successor came first");
            if is_forgotten {
                one.forget(0b10);
            } else if one.take_ended() == 0b10 {
                ended = Some(Instant::now());
            }
            came
        });
        drop((other, three));
        until("its end", || {
            receive(&mut queue, |_| {});
            let ended = one.take_ended();
            one.forget(ended);
            ended == 0b10
        });
    }
}

#[test]
fn a_frame_that_is_not_taken_stays() {
    let scratch = Scratch::new();
    let [one, two] = pair(&scratch, [1, 1]);
    let begin = Instant::now();
    let [mut from, mut to] = [one.queue(0).unwrap(), two.queue(0).unwrap()];
    for number in 0..4 {
        assert_eq!(send_surely(&mut from, begin, &frame(1, 2, 0, number, 100)), Sent::Taken);
    }
    until("frames", || to.receive(0, |_| true) == 0 && !to.arm());
    let mut bytes = [0; 4200];
    assert_eq!(to.receive(8, |_| false), 0);
    assert_eq!(to.counters().rx_frames, 0);
    let mut take = |frame: uroce_local::Frame<'_>| {
        let len = frame.copy_to(&mut bytes);
        told(&bytes[..len]).number < 2
    };
    assert_eq!(to.receive(8, &mut take), 2);
    assert_eq!(to.receive(8, &mut take), 0);
    let mut short = [0; 10];
    to.receive(1, |frame| frame.copy_to(&mut short) == 10);
    assert_eq!(short, frame(1, 2, 0, 2, 100)[..10]);
    assert_eq!(to.receive(1, |frame| frame.len() == 100), 1);
    assert_eq!((to.counters().rx_frames, to.counters().rx_bytes), (4, 400));
}

/// Sleeps until the queue is written to, as an lcore does.
fn sleep(queue: &mut Queue) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    if !queue.arm() {
        return true;
    }
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    let fd = queue.event_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let is_woken = poll(&mut fds, Some(&limit)).unwrap() == 1;
    queue.disarm();
    is_woken
}

/// Both members sleep whenever there is nothing; a wake-up that is lost makes a sleep of ten
/// seconds.
#[test]
fn no_wake_up_is_lost() {
    const COUNT: u32 = 4000;
    let scratch = Scratch::new();
    let members = pair(&scratch, [1, 1]);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut queue = members[1].queue(0).unwrap();
            let mut came = 0;
            while came < COUNT {
                queue.begin(now(begin));
                let mut answers = Vec::new();
                receive(&mut queue, |told| answers.push(told.number));
                came += answers.len() as u32;
                for number in &answers {
                    let answer = frame(2, 1, 0, *number, 60);
                    assert_eq!(send_surely(&mut queue, begin, &answer), Sent::Taken);
                }
                if answers.is_empty() && came < COUNT {
                    assert!(sleep(&mut queue), "{came} came");
                }
            }
        });
        let mut queue = members[0].queue(0).unwrap();
        for number in 0..COUNT {
            assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, number, 60)), Sent::Taken);
            let mut has_come = false;
            while !has_come {
                queue.begin(now(begin));
                receive(&mut queue, |told| has_come = told.number == number);
                assert!(has_come || sleep(&mut queue), "{number} is not answered");
            }
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(9));
}

#[test]
fn a_sleeper_is_woken_by_the_first_frame_of_a_new_link() {
    let scratch = Scratch::new();
    let [one, two] = pair(&scratch, [1, 1]);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut queue = two.queue(0).unwrap();
            let mut came = 0;
            while came == 0 {
                assert!(sleep(&mut queue));
                queue.begin(now(begin));
                came = receive(&mut queue, |told| assert_eq!(told.number, 5));
            }
        });
        std::thread::sleep(Duration::from_millis(30));
        let mut queue = one.queue(0).unwrap();
        assert_eq!(send_surely(&mut queue, begin, &frame(1, 2, 0, 5, 60)), Sent::Taken);
    });
}

#[test]
fn a_queue_has_one_owner_and_may_have_another_later() {
    let scratch = Scratch::new();
    let [one, two] = pair(&scratch, [2, 1]);
    let begin = Instant::now();
    let first = one.queue(0).unwrap();
    assert!(one.queue(0).is_err() && one.queue(2).is_err() && one.queue(1).is_ok());
    drop(first);
    let mut to = two.queue(0).unwrap();
    // What comes while a queue has no owner waits for the next one.
    assert_eq!(send_surely(&mut to, begin, &frame(2, 1, 0, 1, 60)), Sent::Taken);
    let mut again = one.queue(0).unwrap();
    until("the frame", || {
        again.begin(now(begin));
        receive(&mut again, |told| assert_eq!(told.number, 1)) == 1
    });
    drop((again, to, two));
    until("the end is reported although the queues have no owner", || one.take_ended() == 0b10);
    let mut orphan = one.queue(1).unwrap();
    drop(one);
    assert_eq!(orphan.send(&frame(1, 2, 0, 1, 60)), Sent::Lost);
}

#[test]
fn the_owner_is_woken_when_a_link_begins_or_ends() {
    use uroce_shared::wake::waker::Waker;
    let scratch = Scratch::new();
    let [one, two] = pair(&scratch, [1, 1]);
    let waker = Waker::new().unwrap();
    one.set_waker(Some(std::sync::Arc::clone(&waker)));
    let begin = Instant::now();
    let mut queue = two.queue(0).unwrap();
    assert_eq!(send_surely(&mut queue, begin, &frame(2, 1, 0, 1, 60)), Sent::Taken);
    let mut own = one.queue(0).unwrap();
    while one.linked() != 0b10 {
        waker.sleep(Duration::from_secs(10), || one.linked() == 0b10);
    }
    drop(two);
    // The frame that came before the end is received before the end is reported.
    let (mut came, mut ended) = (0, 0);
    while ended == 0 {
        waker.sleep(Duration::from_millis(20), || false);
        own.begin(now(begin));
        ended = one.take_ended();
        assert!(ended == 0 || came == 1);
        came += receive(&mut own, |told| assert_eq!(told.number, 1));
    }
    assert_eq!((ended, one.linked()), (0b10, 0));
    assert!(begin.elapsed() < Duration::from_secs(9));
}
