//! Asynchronous events.

use crate::common;
use crate::common::{SOON, Setup, Side, connected, post};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;
use uroce::{
    AsyncEvent, ChannelError, EventKind, EventSource, QpInit, QpState, RemoteBuffer, Rkey, SendWr,
    WcStatus,
};

fn events(side: &Side) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| side.context.poll_async_event().expect("the channel works")).collect()
}

/// Waits for the next event of another kind.
fn next_but(side: &Side, kind: EventKind) -> AsyncEvent {
    loop {
        let event = side.context.next_async_event(Some(SOON)).expect("an event");
        if event.kind != kind {
            return event;
        }
    }
}

fn is_readable(side: &Side) -> bool {
    let fd = side.context.async_fd();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1
}

#[test] //= check F1 test
fn a_forbidden_access_is_reported_at_the_side_that_owns_the_memory() {
    let (mut left, right) = connected();
    let target = right.memory.remote();
    let forged = RemoteBuffer { rkey: Rkey(target.rkey.0 ^ 0x1234_0000), ..target };
    post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], forged));
    assert_eq!(left.completion().status, WcStatus::RemAccessErr);
    let event = next_but(&right, EventKind::CommEst);
    let source = EventSource::QueuePair(right.qp.qpn());
    assert_eq!(event, AsyncEvent { kind: EventKind::QpAccessErr, source });
    assert_eq!(right.qp.query().unwrap().attr.state, QpState::Err);
    assert_eq!(events(&right), []);
    assert_eq!(right.bytes(0, 8), [0; 8]);
}

#[test]
fn events_wait_in_a_descriptor_and_none_outlives_its_object() {
    let (mut left, mut right) = connected();
    events(&right);
    assert!(!is_readable(&right));
    let timeout = right.context.next_async_event(Some(Duration::from_millis(10)));
    assert!(matches!(timeout, Err(ChannelError::TimedOut)));
    let fail = |left: &mut Side| {
        let forged = RemoteBuffer { rkey: Rkey(1), ..right.memory.remote() };
        post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], forged));
        assert_eq!(left.completion().status, WcStatus::RemAccessErr);
    };
    fail(&mut left);
    while !is_readable(&right) {
        std::thread::yield_now();
    }
    // The QP is destroyed while its event is pending.
    right.qp = right.pd.create_qp(&QpInit::new(&right.cq)).unwrap();
    assert_eq!(events(&right), []);
    assert!(!is_readable(&right));
}

#[test] //= check G6 test
fn an_overrun_completion_queue_is_reported_once() {
    let (left, right) = Setup::default().contexts();
    let (mut left, mut right) = (Side::new(&left), Side::new(&right));
    let small = left.context.create_cq(2).unwrap();
    left.qp = left.pd.create_qp(&QpInit::new(&small)).unwrap();
    common::join(&mut left, &mut right, &uroce::ConnectOptions::default());
    let target = right.memory.remote();
    for _ in 0..8 {
        post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], target));
    }
    let event = left.context.next_async_event(Some(SOON)).expect("an event");
    let source = EventSource::CompletionQueue(small.id());
    assert_eq!(event, AsyncEvent { kind: EventKind::CqErr, source });
    let rest = events(&left);
    assert!(rest.iter().all(|event| event.kind != EventKind::CqErr), "{rest:?}");
}
