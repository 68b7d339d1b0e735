//! Shared receive queues.

use crate::common::{SOON, Setup, Side, pattern, post};
use std::time::Instant;
use uroce::{
    AccessFlags, ConnectOptions, EventKind, EventSource, PostError, QpChange, QpInit, QpState,
    QpType, QueuePair, RecvWr, SendWr, SharedReceiveQueue, WcStatus,
};

const SLOT: usize = 4096;

fn receive(side: &Side, srq: &SharedReceiveQueue, id: u64) {
    let at = id as usize % 128 * SLOT;
    let room = [side.memory.slice(at..at + SLOT).unwrap()];
    srq.post_recv(&RecvWr::new(&room).id(id)).expect("room");
}

/// `count` pairs of QPs. Those of the right side share a receive queue.
fn pairs(
    left: &Side,
    right: &Side,
    srq: &SharedReceiveQueue,
    count: usize,
) -> Vec<(QueuePair, QueuePair)> {
    let options = ConnectOptions::default();
    (0..count)
        .map(|_| {
            let mut sender = left.pd.create_qp(&QpInit::new(&left.cq)).unwrap();
            let mut receiver = right.pd.create_qp(&QpInit::new(&right.cq).srq(srq)).unwrap();
            receiver.connect(&sender.endpoint(1, 0).unwrap(), &options).unwrap();
            sender.connect(&receiver.endpoint(1, 0).unwrap(), &options).unwrap();
            (sender, receiver)
        })
        .collect()
}

fn sides(lcores: u16) -> (Side, Side) {
    let (left, right) = Setup { lcores, ..Setup::default() }.contexts();
    (Side::new(&left), Side::new(&right))
}

/// Waits for the next event of this kind.
fn event(side: &Side, kind: EventKind) -> EventSource {
    let begin = Instant::now();
    loop {
        let event = side.context.next_async_event(Some(SOON)).expect("an event");
        if event.kind == kind {
            return event.source;
        }
        assert!(begin.elapsed() < SOON, "no {kind:?}");
    }
}

fn no_more(side: &Side, kind: EventKind) {
    std::thread::sleep(std::time::Duration::from_millis(20));
    while let Some(event) = side.context.poll_async_event().unwrap() {
        assert_ne!(event.kind, kind);
    }
}

#[test]
fn qps_on_several_lcores_fill_the_receives_of_one_queue() {
    const MESSAGES: u64 = 2000;
    let (left, right) = sides(2);
    let srq = right.pd.create_srq(64, 1).unwrap();
    let mut pairs = pairs(&left, &right, &srq, 4);
    let mut posted = 0;
    let mut sent = 0u64;
    let mut received = 0u64;
    let mut seen = vec![false; MESSAGES as usize];
    while received < MESSAGES {
        while posted < received + 64 && posted < MESSAGES {
            receive(&right, &srq, posted);
            posted += 1;
        }
        // Each message has its own place in the sender's memory until it has completed.
        if sent < posted && sent < received + 32 {
            let at = sent as usize % 64 * SLOT;
            left.memory.write_at(at, &pattern(sent as u8, 700)).unwrap();
            left.memory.write_at(at, &sent.to_ne_bytes()).unwrap();
            let message = [left.memory.slice(at..at + 700).unwrap()];
            let qp = &mut pairs[sent as usize % 4].0;
            qp.post_send(&SendWr::send(&message).signaled()).expect("room");
            sent += 1;
        }
        // A place in the send queue is free when its completion has been polled.
        while let Some(completion) = left.cq.poll_one().unwrap() {
            completion.ok().unwrap();
        }
        if let Some(completion) = right.cq.poll_one().unwrap() {
            completion.ok().unwrap();
            assert_eq!(completion.byte_len, 700);
            let bytes = right.bytes(completion.wr_id as usize % 128 * SLOT, 700);
            let number = u64::from_ne_bytes(bytes[..8].try_into().unwrap());
            assert_eq!(bytes[8..], pattern(number as u8, 700)[8..]);
            let of_pair = pairs[number as usize % 4].1.qpn();
            assert_eq!(completion.qpn, of_pair, "it completes on the QP that received it");
            assert!(!std::mem::replace(&mut seen[number as usize], true), "twice");
            received += 1;
        } else {
            std::thread::yield_now();
        }
    }
    assert!(srq.is_empty());
}

#[test]
fn a_sender_waits_until_a_receive_is_posted() {
    let (left, right) = sides(1);
    let srq = right.pd.create_srq(4, 1).unwrap();
    let mut pairs = pairs(&left, &right, &srq, 1);
    post(&mut pairs[0].0, SendWr::send(&[left.memory.slice(..100).unwrap()]));
    let begin = Instant::now();
    while right.counter("send_rnr_err") == 0 {
        assert!(begin.elapsed() < SOON, "no RNR NAK");
    }
    receive(&right, &srq, 0);
    assert_eq!((right.done(), left.done()), (0, 0));
}

#[test] //= check G8 test
fn the_limit_is_reported_once_for_each_arming() {
    let (left, right) = sides(1);
    let srq = right.pd.create_srq(8, 1).unwrap();
    let mut pairs = pairs(&left, &right, &srq, 1);
    let mut message = || {
        post(&mut pairs[0].0, SendWr::send(&[]));
        left.done();
        right.done();
    };
    (0..8).for_each(|id| receive(&right, &srq, id));
    assert!(srq.arm_limit(9).is_err());
    srq.arm_limit(6).unwrap();
    (0..2).for_each(|_| message());
    no_more(&right, EventKind::SrqLimitReached);
    assert_eq!(srq.limit(), 6);
    (0..3).for_each(|_| message());
    let source = event(&right, EventKind::SrqLimitReached);
    assert_eq!(source, EventSource::SharedReceiveQueue(srq.id()));
    assert_eq!((srq.limit(), srq.len()), (0, 3));
    no_more(&right, EventKind::SrqLimitReached);
    srq.arm_limit(4).unwrap();
    event(&right, EventKind::SrqLimitReached);
}

#[test] //= check G7 test
fn a_qp_that_goes_to_err_reports_once_that_it_takes_no_more_receives() {
    let (left, right) = sides(1);
    let srq = right.pd.create_srq(8, 1).unwrap();
    let mut pairs = pairs(&left, &right, &srq, 2);
    (0..4).for_each(|id| receive(&right, &srq, id));
    let receiver = &mut pairs[0].1;
    let qpn = receiver.qpn();
    receiver.modify(&QpChange::to(QpState::Err), None).unwrap();
    assert_eq!(event(&right, EventKind::LastWqeReached), EventSource::QueuePair(qpn));
    receiver.modify(&QpChange::to(QpState::Err), None).unwrap();
    no_more(&right, EventKind::LastWqeReached);
    assert_eq!(srq.len(), 4, "the shared receives are not flushed");
    // The other QP continues.
    post(&mut pairs[1].0, SendWr::send(&[]));
    assert_eq!((left.done(), right.done()), (0, 0));
}

#[test]
fn a_qp_with_a_shared_queue_has_none_of_its_own() {
    let (_left, right) = sides(1);
    let srq = right.pd.create_srq(8, 1).unwrap();
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let init = QpInit::new(&right.cq).qp_type(qp_type).srq(&srq);
        let mut qp = right.pd.create_qp(&init).unwrap();
        assert!(qp.query().unwrap().has_srq);
        let options = ConnectOptions::default();
        if qp_type != QpType::Ud {
            qp.init(&options).unwrap();
        }
        assert_eq!(qp.post_recv(&RecvWr::new(&[])), Err(PostError::HasSrq));
    }
}

#[test] //= check F5 test
fn receives_are_of_the_shared_queues_domain_and_the_rest_of_the_qps() {
    let (left, right) = sides(1);
    let foreign = right.context.allocate_pd();
    let foreign_memory = foreign.allocate(4096, AccessFlags::all()).unwrap();
    for qp_type in [QpType::Rc, QpType::Uc] {
        let srq = foreign.create_srq(8, 1).unwrap();
        let init = QpInit::new(&right.cq).qp_type(qp_type).srq(&srq);
        let mut receiver = right.pd.create_qp(&init).unwrap();
        let mut sender = left.pd.create_qp(&QpInit::new(&left.cq).qp_type(qp_type)).unwrap();
        let options = ConnectOptions::default();
        receiver.connect(&sender.endpoint(1, 0).unwrap(), &options).unwrap();
        sender.connect(&receiver.endpoint(1, 0).unwrap(), &options).unwrap();
        let message = [left.memory.slice(..100).unwrap()];
        srq.post_recv(&RecvWr::new(&[foreign_memory.slice(..100).unwrap()]).id(1)).unwrap();
        post(&mut sender, SendWr::send(&message));
        assert_eq!((right.done(), left.done()), (1, 0), "{qp_type}");
        // A WRITE of the peer uses a region in the QP's domain.
        let target = right.memory.remote();
        post(&mut sender, SendWr::write(&message, target));
        assert_eq!(left.done(), 0, "{qp_type}");
        // A receive of the shared queue must not use memory of the QP's domain.
        srq.post_recv(&RecvWr::new(&[right.memory.slice(..100).unwrap()]).id(2)).unwrap();
        post(&mut sender, SendWr::send(&message));
        let failed = right.completion();
        assert_eq!((failed.wr_id, failed.status), (2, WcStatus::LocProtErr), "{qp_type}");
        let _ = left.completion();
    }
}

#[test]
fn unreliable_qps_and_datagrams_share_receives_too() {
    let (left, right) = sides(1);
    let srq = right.pd.create_srq(8, 1).unwrap();
    let init = |qp_type| QpInit::new(&left.cq).qp_type(qp_type);
    let mut sender = left.pd.create_qp(&init(QpType::Uc)).unwrap();
    let uc = QpInit::new(&right.cq).qp_type(QpType::Uc).srq(&srq);
    let mut receiver = right.pd.create_qp(&uc).unwrap();
    let options = ConnectOptions::default();
    receiver.connect(&sender.endpoint(1, 0).unwrap(), &options).unwrap();
    sender.connect(&receiver.endpoint(1, 0).unwrap(), &options).unwrap();
    let ud = QpInit::new(&right.cq).qp_type(QpType::Ud).srq(&srq);
    let mut group = right.pd.create_qp(&ud).unwrap();
    group.start_datagrams(uroce::Qkey(1), &options).unwrap();
    let mut talker = left.pd.create_qp(&init(QpType::Ud)).unwrap();
    talker.start_datagrams(uroce::Qkey(1), &options).unwrap();
    let to = uroce::AddressVector::to(right.context.ports()[0].gids[0]);
    let way = left.pd.create_ah(1, &to).unwrap();
    (0..2).for_each(|id| receive(&right, &srq, id));
    post(&mut sender, SendWr::send(&[]));
    assert_eq!(right.done(), 0);
    post(&mut talker, SendWr::send_to(&[], &way, group.qpn(), uroce::Qkey(1)));
    assert_eq!(right.done(), 1);
    assert_eq!((left.done(), left.done()), (0, 0));
}

#[test]
fn a_receive_that_is_too_short_fails_and_the_next_qp_gets_the_next() {
    let (left, right) = sides(1);
    let srq = right.pd.create_srq(8, 1).unwrap();
    let mut pairs = pairs(&left, &right, &srq, 2);
    srq.post_recv(&RecvWr::new(&[right.memory.slice(..10).unwrap()]).id(5)).unwrap();
    receive(&right, &srq, 6);
    let message = [left.memory.slice(..11).unwrap()];
    post(&mut pairs[0].0, SendWr::send(&message));
    let failed = right.completion();
    assert_eq!((failed.wr_id, failed.status), (5, WcStatus::LocLenErr));
    assert_eq!(left.completion().status, WcStatus::RemInvReqErr);
    post(&mut pairs[1].0, SendWr::send(&message));
    assert_eq!((right.done(), left.done()), (6, 0));
}
