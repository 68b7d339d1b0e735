use super::*;
use crate::connect::{AlternateFailure, CmEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

fn event(id: u64) -> CmEvent {
    CmEvent { id: CmId(id), kind: CmEventKind::TimewaitExit }
}

fn is_readable(channel: &CmChannel) -> bool {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn the_descriptor_is_readable_while_events_wait() {
    let channel = CmChannel::new().unwrap();
    assert!(!is_readable(&channel));
    channel.give(event(1));
    channel.give(event(2));
    assert!(is_readable(&channel));
    assert_eq!(channel.try_next(), Some(event(1)));
    assert!(is_readable(&channel));
    assert_eq!(channel.try_next(), Some(event(2)));
    assert!(!is_readable(&channel));
    assert_eq!(channel.try_next(), None);
    channel.give(event(3));
    assert!(is_readable(&channel));
}

#[test]
fn a_forgotten_ids_events_are_not_given() {
    let channel = CmChannel::new().unwrap();
    channel.give(event(1));
    channel.give(event(2));
    channel.forget(CmId(1));
    assert_eq!(channel.try_next(), Some(event(2)));
    channel.give(event(1));
    assert_eq!(channel.take_of(CmId(1)), [event(1)]);
    assert!(!is_readable(&channel));
    channel.give(event(1));
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
        other.give(event(7));
    });
    assert_eq!(channel.next(Duration::MAX), Some(event(7)));
    giver.join().unwrap();
}

#[test]
fn an_id_whose_events_nobody_takes_keeps_its_last_and_does_not_grow() {
    let channel = CmChannel::new().unwrap();
    let failed = || CmEventKind::AlternateLoaded(Err(AlternateFailure::NoAnswer));
    for _ in 0..1000 {
        channel.give(CmEvent { id: CmId(1), kind: failed() });
    }
    channel.give(event(1));
    channel.give(event(2));
    let events: Vec<CmEvent> = std::iter::from_fn(|| channel.try_next()).collect();
    assert_eq!(events.len(), PER_ID + 1);
    assert_eq!(events[PER_ID - 1..], [event(1), event(2)]);
}
