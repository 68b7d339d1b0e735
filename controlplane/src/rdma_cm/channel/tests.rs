use super::*;
use crate::rdma_cm::AlternateFailure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn event(id: u64) -> (CmId, ConnEvent) {
    (CmId(id), ConnEvent::TimewaitExit)
}

fn is_readable(channel: &CmChannel) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn the_descriptor_is_readable_while_events_wait() {
    let channel = CmChannel::new().unwrap();
    assert!(!is_readable(&channel));
    channel.give(CmId(1), ConnEvent::TimewaitExit);
    channel.give(CmId(2), ConnEvent::TimewaitExit);
    assert!(is_readable(&channel));
    assert_eq!(channel.try_next(), Some(event(1)));
    assert!(is_readable(&channel));
    assert_eq!(channel.try_next(), Some(event(2)));
    assert!(!is_readable(&channel));
    assert_eq!(channel.try_next(), None);
    channel.give(CmId(3), ConnEvent::TimewaitExit);
    assert!(is_readable(&channel));
}

#[test]
fn a_forgotten_ids_events_are_not_given() {
    let channel = CmChannel::new().unwrap();
    channel.give(CmId(1), ConnEvent::TimewaitExit);
    channel.give(CmId(2), ConnEvent::TimewaitExit);
    channel.forget(CmId(1));
    assert_eq!(channel.try_next(), Some(event(2)));
    channel.give(CmId(1), ConnEvent::TimewaitExit);
    assert_eq!(channel.take_of(CmId(1)), [ConnEvent::TimewaitExit]);
    assert!(!is_readable(&channel));
    channel.give(CmId(1), ConnEvent::TimewaitExit);
    channel.forget(CmId(1));
    assert!(!is_readable(&channel));
}

#[test]
fn a_sleeper_is_woken_and_waits_no_longer_than_asked() {
    let channel = CmChannel::new().unwrap();
    assert_eq!(channel.next(Duration::from_millis(5)), None);
    let other = Arc::clone(&channel);
    let giver = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        other.give(CmId(7), ConnEvent::TimewaitExit);
    });
    assert_eq!(channel.next(Duration::MAX), Some(event(7)));
    giver.join().unwrap();
}

#[test]
fn events_that_are_not_taken_do_not_grow_in_number_and_the_last_are_kept() {
    let channel = CmChannel::new().unwrap();
    let failed = || ConnEvent::AlternateLoaded(Err(AlternateFailure::NoAnswer));
    for _ in 0..1000 {
        channel.give(CmId(1), failed());
    }
    channel.give(CmId(1), ConnEvent::TimewaitExit);
    channel.give(CmId(2), ConnEvent::TimewaitExit);
    let events: Vec<_> = std::iter::from_fn(|| channel.try_next()).collect();
    assert_eq!(events.len(), PER_ID + 1);
    assert_eq!(events[PER_ID - 1..], [event(1), event(2)]);
}
