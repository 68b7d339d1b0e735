//! Links that lose everything, or that are taken down, while their ports are in use.

mod common;

use common::{Setup, post};
use uroce::config::LossConfig;
use uroce::{ConnectOptions, ControlError, RequestError, SendWr, WcStatus};

const TOTAL: LossConfig = LossConfig { rx: 1.0, tx: 1.0, seed: 0 };

/// Gives up after two ACK timeouts of 4 ms.
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
    assert!(right.counter("rx_injected_loss") >= 2);
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
