//! Modify QP after connecting: draining, rate limits, queue sizes.

use std::time::Duration;

use crate::common::{SOON, Setup, Side, connected, pattern, post};
use uroce::config::LossConfig;
use uroce::{
    ConnectOptions, ControlError, EventKind, EventSource, ModifyError, PostError, QpCaps, QpChange,
    QpInit, QpState, RecvWr, RequestError, SendWr, WcStatus,
};

fn state(side: &Side) -> QpState {
    side.qp.query().expect("the control plane runs").attr.state
}

fn drained_events(side: &Side) -> usize {
    let events = std::iter::from_fn(|| side.context.poll_async_event().expect("a channel"));
    let source = EventSource::QueuePair(side.qp.qpn());
    let events: Vec<_> = events.filter(|event| event.kind == EventKind::SqDrained).collect();
    assert!(events.iter().all(|event| event.source == source), "{events:?}");
    events.len()
}

#[test] //= check H4 test
fn draining_finishes_messages_in_progress_and_is_reported_once_if_requested() {
    let (mut left, right) = connected();
    let target = right.memory.remote();
    let message = pattern(7, 1 << 18);
    left.memory.write_at(0, &message).unwrap();
    let source = [left.memory.slice(..message.len()).unwrap()];
    let mut held_back = 0;
    for notify in [true, false, true, false, true, false] {
        for id in 0..16 {
            left.qp.post_send(&SendWr::write(&source, target).id(id).signaled()).unwrap();
        }
        left.qp.drain(notify).unwrap();
        assert_eq!(state(&left), QpState::Sqd);
        if notify {
            let event = left.context.next_async_event(Some(SOON)).unwrap();
            assert_eq!(event.kind, EventKind::SqDrained);
        }
        while left.qp.query().unwrap().sq_draining {
            std::thread::yield_now();
        }
        // Messages in progress are complete, and others wait. The command may come before or after
        // a message has begun.
        let begun = std::iter::from_fn(|| left.cq.poll_one().unwrap()).count();
        held_back += 16 - begun;
        assert_eq!(drained_events(&left), 0);
        left.qp.resume().unwrap();
        let rest: Vec<u64> = (begun..16).map(|_| left.done()).collect();
        assert_eq!(rest, (begun as u64..16).collect::<Vec<_>>());
        assert_eq!((state(&left), drained_events(&left)), (QpState::Rts, 0));
    }
    assert!(held_back > 0, "each time all had begun before the command");
    assert_eq!(right.bytes(0, message.len()), message);
}

#[test] //= check H5 test
fn requests_posted_while_drained_are_sent_in_order_and_receiving_continues() {
    let (mut left, mut right) = connected();
    left.qp.drain(true).unwrap();
    assert_eq!(left.context.next_async_event(Some(SOON)).unwrap().kind, EventKind::SqDrained);
    for number in 0..4u8 {
        let at = usize::from(number);
        left.memory.write_at(at, &[number]).unwrap();
        right.qp.post_recv(&RecvWr::new(&[right.memory.slice(at..at + 1).unwrap()])).unwrap();
        post(&mut left.qp, SendWr::send(&[left.memory.slice(at..at + 1).unwrap()]).id(at as u64));
    }
    // Messages of the peer are received meanwhile.
    left.qp.post_recv(&RecvWr::new(&[left.memory.slice(100..200).unwrap()]).id(77)).unwrap();
    post(&mut right.qp, SendWr::send(&[right.memory.slice(500..600).unwrap()]).id(5));
    assert_eq!((left.done(), right.done()), (77, 5));
    assert!(right.cq.poll_one().unwrap().is_none());
    left.qp.resume().unwrap();
    assert_eq!([(); 4].map(|()| left.done()), [0, 1, 2, 3]);
    (0..4).for_each(|_| assert_eq!(right.done(), 0));
    assert_eq!(right.bytes(0, 4), [0, 1, 2, 3]);
}

#[test]
fn a_queue_pair_that_does_not_drain_is_not_resumed() {
    let (mut left, _right) = connected();
    let refused = left.qp.resume();
    let error = RequestError::Modify(ModifyError::CurrentState(QpState::Rts));
    assert_eq!(refused, Err(error));
}

fn caps(depth: u32) -> QpCaps {
    QpCaps {
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 64,
    }
}

#[test] //= check H12 test
fn queues_of_a_connected_queue_pair_get_other_sizes() {
    let (mut left, mut right) = connected();
    let exchange = |left: &mut Side, right: &mut Side, seed: u8| {
        let message = pattern(seed, 100);
        left.memory.write_at(0, &message).unwrap();
        right.qp.post_recv(&RecvWr::new(&[right.memory.slice(..200).unwrap()])).unwrap();
        post(&mut left.qp, SendWr::send(&[left.memory.slice(..100).unwrap()]));
        left.done();
        right.done();
        assert_eq!(right.bytes(0, 100), message);
    };
    exchange(&mut left, &mut right, 1);
    for (seed, depth) in [(2, 4), (3, 1000), (4, 1)] {
        left.cq.resize(depth + 1).unwrap();
        assert_eq!(left.cq.capacity(), depth + 1);
        left.qp.resize(caps(depth)).unwrap();
        right.qp.resize(caps(depth)).unwrap();
        assert!(left.qp.query().unwrap().caps.max_send_wr >= depth);
        assert_eq!(left.qp.state(), QpState::Rts);
        exchange(&mut left, &mut right, seed);
    }
    // The new depth applies: the queue is full after that many requests.
    left.qp.drain(false).unwrap();
    let posts = (0..).take_while(|_| left.qp.post_send(&SendWr::send(&[])).is_ok()).count();
    assert_eq!(posts as u32, left.qp.query().unwrap().caps.max_send_wr);
    assert_eq!(left.qp.post_send(&SendWr::send(&[])), Err(PostError::QueueFull));
    // The queues are not replaced while a request is outstanding.
    let refused = RequestError::Control(ControlError::Outstanding);
    assert_eq!(left.qp.resize(caps(64)), Err(refused));
    left.qp.modify(&QpChange::to(QpState::Err), None).unwrap();
}

#[test] //= check A28 test
fn a_queue_pair_connected_by_hand_uses_selective_repeat_if_its_options_say_so() {
    let uses = |side: &Side| side.qp.query().unwrap().attr.selective_repeat;
    let mut setup = Setup::default();
    setup.options.selective_repeat = Some(true);
    let (mut left, right) = setup.connect();
    assert_eq!([uses(&left), uses(&right)], [true; 2]);
    let source = [left.memory.slice(..64).unwrap()];
    post(&mut left.qp, SendWr::write(&source, right.memory.remote()));
    left.done();
    let qp = |side: &Side| side.pd.create_qp(&QpInit::new(&side.cq)).unwrap();
    let mut pairs = [qp(&left), qp(&right)];
    let ends = pairs.each_ref().map(|qp| qp.endpoint(1, 0).unwrap());
    pairs[0].connect(&ends[1], &ConnectOptions::default()).unwrap();
    assert!(!pairs[0].query().unwrap().attr.selective_repeat);
}

#[test] //= check B16 test
fn a_queue_pair_connected_by_hand_notices_that_its_peer_is_gone_if_it_is_told_to() {
    let idle = |side: &Side| side.qp.query().unwrap().attr.keepalive_ms;
    let mut setup = Setup::default();
    (setup.options.timeout, setup.options.retry_cnt) = (12, 2);
    let (mut left, right) = setup.connect();
    assert_eq!([idle(&left), idle(&right)], [0; 2], "off without being told to");
    left.qp.set_keepalive(40).unwrap();
    assert_eq!(idle(&left), 40);
    left.qp.post_recv(&RecvWr::new(&[]).id(7)).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(state(&left), QpState::Rts);
    assert!(left.counter("tx_keepalives") >= 3);
    right.context.set_loss(1, LossConfig { rx: 1.0, tx: 1.0, seed: 1 }).unwrap();
    let event = left.context.next_async_event(Some(SOON)).unwrap();
    assert_eq!(event.kind, EventKind::QpFatal);
    assert_eq!(event.source, EventSource::QueuePair(left.qp.qpn()));
    assert_eq!(state(&left), QpState::Err);
    let completion = left.completion();
    assert_eq!((completion.wr_id, completion.status), (7, WcStatus::WrFlushErr));
}

#[test] //= check B14 test
fn a_queue_pair_connected_by_hand_has_the_keepalive_of_its_options() {
    let mut setup = Setup::default();
    setup.options.keepalive_ms = 70;
    let (one, other) = setup.connect();
    for side in [one, other] {
        assert_eq!(side.qp.query().unwrap().attr.keepalive_ms, 70);
    }
}

#[test] //= check H12 test
fn sizes_out_of_range_are_refused() {
    let (left, _right) = Setup::default().contexts();
    let mut side = Side::new(&left);
    let before = side.qp.query().unwrap().caps;
    let huge = caps(1 << 20);
    assert_eq!(side.qp.resize(huge), Err(RequestError::Control(ControlError::Caps(huge))));
    assert_eq!(side.qp.query().unwrap().caps, before);
}
