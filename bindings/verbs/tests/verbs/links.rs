//! Links that lose everything or are set down while their ports are in use.

use crate::common;
use crate::common::{Setup, eventually, post};
use uroce::config::LossConfig;
use uroce::{
    ConnectOptions, Context, ControlError, EventKind, EventSource, RequestError, SendWr, WcStatus,
};

const TOTAL: LossConfig = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };

/// A QP gives up after two ACK timeouts of 4 ms.
fn impatient() -> Setup {
    let options = ConnectOptions { timeout: 10, retry_cnt: 1, ..ConnectOptions::default() };
    Setup { options, ..Setup::default() }
}

#[test]
fn a_link_may_be_cut_and_healed_under_a_connection() {
    let options = ConnectOptions { timeout: 10, retry_cnt: 7, ..ConnectOptions::default() };
    let (mut left, right) = Setup { options, ..Setup::default() }.connect();
    let target = right.memory.remote();
    let dropped = || left.counter("tx_injected_loss");
    assert_eq!(dropped(), 0);
    left.context.set_loss(1, TOTAL).unwrap();
    post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], target).id(1));
    while left.counter("tx_injected_loss") < 2 {
        std::thread::yield_now();
    }
    left.context.set_loss(1, LossConfig::default()).unwrap();
    assert_eq!(left.done(), 1);
}

#[test]
fn a_link_that_stays_cut_is_an_error_of_the_message() {
    let (mut left, right) = impatient().connect();
    right.context.set_loss(1, TOTAL).unwrap();
    let target = right.memory.remote();
    post(&mut left.qp, SendWr::write(&[left.memory.slice(..8).unwrap()], target));
    assert_eq!(left.completion().status, WcStatus::RetryExcErr);
    assert_eq!(right.bytes(0, 8), [0; 8]);
    // The receiver's lcore may have waited for a CPU longer than the sender retried.
    eventually("the loss of both packets", || right.counter("rx_injected_loss") >= 2);
}

#[test]
fn links_of_ports_that_are_not_there_are_not_changed() {
    let (left, _right) = Setup::default().contexts();
    let none = Err(RequestError::Control(ControlError::NoSuchPort(2)));
    assert_eq!(left.set_link(2, false), none);
    assert_eq!(left.set_loss(2, TOTAL), none);
    let more_than_all = LossConfig { rx: 1.5, ..TOTAL };
    assert_eq!(left.set_loss(1, more_than_all), Err(RequestError::Control(ControlError::Loss)));
}

/// Checks that the next event is one of the link.
fn tells(context: &Context, kind: EventKind) {
    let event = context.next_async_event(Some(common::SOON)).expect("an event in time");
    assert_eq!((event.source, event.kind), (EventSource::Port(1), kind));
}

#[test] //= check M1 test
fn a_link_that_is_down_for_less_than_the_retries_costs_no_message() {
    // Eight timeouts of 16 ms.
    let options = ConnectOptions { timeout: 12, retry_cnt: 7, ..ConnectOptions::default() };
    let (mut left, right) = Setup { options, ..Setup::default() }.connect();
    left.context.set_link(1, false).unwrap();
    tells(&left.context, EventKind::PortErr);
    tells(&right.context, EventKind::PortErr);
    left.memory.write_at(0, &common::pattern(3, 9000)).unwrap();
    let all = [left.memory.slice(..9000).unwrap()];
    post(&mut left.qp, SendWr::write(&all, right.memory.remote()).id(1));
    while left.counter("local_ack_timeout_err") < 2 {
        std::thread::yield_now();
    }
    assert_eq!(right.bytes(0, 9000), vec![0; 9000]);
    left.context.set_link(1, true).unwrap();
    assert_eq!(left.done(), 1);
    assert_eq!(right.bytes(0, 9000), common::pattern(3, 9000));
    tells(&left.context, EventKind::PortActive);
    tells(&right.context, EventKind::PortActive);
}

#[test] //= check M1 test
fn a_link_that_is_down_for_longer_than_the_retries_is_an_error() {
    let (mut left, right) = impatient().connect();
    right.context.set_link(1, false).unwrap();
    tells(&left.context, EventKind::PortErr);
    let some = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::write(&some, right.memory.remote()));
    assert_eq!(left.completion().status, WcStatus::RetryExcErr);
    right.context.set_link(1, true).unwrap();
    tells(&left.context, EventKind::PortActive);
    // New QPs can use the link as before.
    let (mut left, mut right) =
        (common::Side::new(&left.context), common::Side::new(&right.context));
    common::join(&mut left, &mut right, &ConnectOptions::default());
    let some = [left.memory.slice(..8).unwrap()];
    post(&mut left.qp, SendWr::write(&some, right.memory.remote()).id(2));
    assert_eq!(left.done(), 2);
}
