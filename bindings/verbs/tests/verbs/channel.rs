//! Completion channels: a sleeping thread is woken once, by the kind of completion for which it has
//! armed.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::common::{SOON, Setup, Side, join, post};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use uroce::{
    Arm, ChannelError, CompletionChannel, ConnectOptions, CqError, QpInit, RecvWr, SendWr,
};

/// Two connected sides. The right side's receives complete to a queue with a channel.
fn pair() -> (Side, Side, CompletionChannel) {
    let (left, right) = Setup::default().contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let channel = right.context.create_channel().unwrap();
    right.cq = right.context.create_cq_on(64, &channel).unwrap();
    right.qp = right.pd.create_qp(&QpInit::new(&right.cq)).unwrap();
    join(&mut left, &mut right, &ConnectOptions::default());
    (left, right, channel)
}

fn receive(right: &mut Side, count: usize) {
    let room = [right.memory.slice(..64).unwrap()];
    right.qp.post_recvs(&vec![RecvWr::new(&room); count]).unwrap();
}

fn is_readable(channel: &CompletionChannel) -> bool {
    let fd = channel.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).unwrap() == 1
}

fn times_out(channel: &CompletionChannel) -> bool {
    let result = channel.next_event(Some(Duration::from_millis(20)));
    matches!(result, Err(ChannelError::TimedOut))
}

#[test]
fn a_sleeping_thread_is_woken_by_a_completion() {
    let (mut left, mut right, channel) = pair();
    receive(&mut right, 1);
    right.cq.arm(Arm::Next);
    let id = right.cq.id();
    std::thread::scope(|threads| {
        let sleeper = threads.spawn(|| channel.next_event(Some(SOON)));
        std::thread::sleep(Duration::from_millis(20));
        post(&mut left.qp, SendWr::send(&[]));
        assert_eq!(sleeper.join().unwrap().unwrap(), id);
    });
    right.done();
}

#[test]
fn an_event_comes_once_for_each_arming() {
    let (mut left, mut right, channel) = pair();
    receive(&mut right, 4);
    right.cq.arm(Arm::Next);
    for _ in 0..2 {
        post(&mut left.qp, SendWr::send(&[]));
        left.done();
        right.done();
    }
    assert!(is_readable(&channel));
    channel.next_event(Some(SOON)).unwrap();
    assert!(times_out(&channel) && !is_readable(&channel));
    right.cq.arm(Arm::Next);
    post(&mut left.qp, SendWr::send(&[]));
    assert_eq!(channel.next_event(None).unwrap(), right.cq.id());
}

#[test] //= check E21 test
fn a_queue_armed_for_solicited_events_sleeps_through_others() {
    let (mut left, mut right, channel) = pair();
    receive(&mut right, 2);
    right.cq.arm(Arm::Solicited);
    post(&mut left.qp, SendWr::send(&[]));
    right.done();
    assert!(times_out(&channel));
    post(&mut left.qp, SendWr::send(&[]).solicited());
    channel.next_event(Some(SOON)).unwrap();
    right.done();
}

#[test]
fn an_error_wakes_a_thread_that_waits_for_solicited_events() {
    let (mut left, mut right, channel) = pair();
    receive(&mut right, 1);
    right.cq.arm(Arm::Solicited);
    left.qp.modify(&uroce::QpChange::to(uroce::QpState::Err), None).unwrap();
    right.qp.modify(&uroce::QpChange::to(uroce::QpState::Err), None).unwrap();
    channel.next_event(Some(SOON)).unwrap();
    assert_eq!(right.completion().status, uroce::WcStatus::WrFlushErr);
}

#[test]
fn a_wait_ends_in_time() {
    let (_left, _right, channel) = pair();
    let begin = Instant::now();
    assert!(times_out(&channel));
    assert!((20..2000).contains(&begin.elapsed().as_millis()));
}

#[test]
fn a_dropped_queue_leaves_no_event_behind() {
    let (mut left, mut right, channel) = pair();
    receive(&mut right, 1);
    right.cq.arm(Arm::Next);
    post(&mut left.qp, SendWr::send(&[]));
    right.done();
    // The lcore raises the event at the end of the turn, after the completion.
    let end = Instant::now() + SOON;
    while !is_readable(&channel) && Instant::now() < end {
        std::thread::yield_now();
    }
    assert!(is_readable(&channel));
    let other = right.context.create_cq(16).unwrap();
    right.qp = right.pd.create_qp(&QpInit::new(&other)).unwrap();
    right.cq = other;
    assert!(times_out(&channel));
}

#[test] //= check G9 test
fn no_wake_up_is_lost_in_a_ping_pong_of_sleepers() {
    const ROUNDS: usize = 2000;
    let (mut left, mut right, channel) = pair();
    receive(&mut right, 1);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut received = 0;
            while received < ROUNDS {
                right.cq.arm(Arm::Next);
                while let Some(completion) = right.cq.poll_one().unwrap() {
                    completion.ok().unwrap();
                    received += 1;
                    receive(&mut right, 1);
                }
                if received < ROUNDS {
                    channel.next_event(Some(SOON)).unwrap();
                }
            }
        });
        for _ in 0..ROUNDS {
            post(&mut left.qp, SendWr::send(&[]));
            left.done();
        }
    });
}

#[test]
fn a_queue_without_a_channel_can_be_armed_for_nothing() {
    let (left, _right) = Setup::default().contexts();
    let cq = left.create_cq(4).unwrap();
    cq.arm(Arm::Next);
    assert_eq!(cq.poll_one(), Ok(None::<uroce::WorkCompletion>));
    assert_eq!(left.create_cq(0).unwrap_err(), CqError::Depth(0));
}
