//! The rules of keepalives.

use uroce_wirecheck::{Peer, Rule};

use crate::tap::{ASKS, SEND_ONLY, TIMEOUT, Tap, WRITE_ONLY, ack, frame, peer, reth, send};

/// PSN before the first of the requester.
const BEFORE: u32 = 0xff_fffd;

/// Silence after which a keepalive may be sent.
const IDLE: u64 = 10 * TIMEOUT;

/// A tap of which the first end has a keepalive.
fn idle() -> Tap {
    let mut tap = Tap::new();
    let terms = Peer { keepalive_ns: Some(IDLE), ..peer(1) };
    tap.checker.begin_again(tap.a, terms);
    tap
}

fn keepalive(psn: u32) -> Vec<u8> {
    frame(1, WRITE_ONLY, psn, &reth(0, 0), &[])
}

#[test]
fn a_keepalive_before_and_after_the_first_request_has_no_flaw() {
    let mut tap = idle();
    tap.pass(IDLE, &keepalive(BEFORE));
    tap.pass(IDLE + 1, &ack(BEFORE, 0));
    tap.pass(IDLE + 2, &send(0xff_fffe));
    tap.pass(IDLE + 3, &ack(0xff_fffe, 1));
    tap.pass(2 * IDLE + 3, &keepalive(0xff_fffe));
    tap.pass(2 * IDLE + 4, &ack(0xff_fffe, 1));
    assert_eq!(tap.checker.tally(tap.a).repeated, 0);
}

#[test]
fn a_keepalive_waits_for_the_idle_time_and_for_its_timeout() {
    assert_eq!(Tap::new().flaw(IDLE, &keepalive(BEFORE)), Rule::SentAfterAck, "it is off");
    assert_eq!(idle().flaw(IDLE - 1, &keepalive(BEFORE)), Rule::KeepaliveTooSoon);
    let mut tap = idle();
    tap.pass(5, &frame(2, SEND_ONLY, 7, &[], b"hello"));
    assert_eq!(tap.flaw(IDLE + 4, &keepalive(BEFORE)), Rule::KeepaliveTooSoon);
    let asked = || {
        let mut tap = idle();
        let _lost = tap.try_sent(IDLE, &keepalive(BEFORE)).unwrap();
        tap
    };
    assert_eq!(asked().flaw(IDLE + TIMEOUT - 1, &keepalive(BEFORE)), Rule::KeepaliveTooSoon);
    asked().pass(IDLE + TIMEOUT, &keepalive(BEFORE));
}

#[test]
fn a_keepalive_has_no_effect_and_asks_for_an_answer() {
    let flaw = |bytes: &[u8]| idle().flaw(IDLE, bytes);
    assert_eq!(flaw(&keepalive(BEFORE ^ ASKS)), Rule::ProbeUnasked);
    let write = frame(1, WRITE_ONLY, BEFORE, &reth(0, 4), b"data");
    assert_eq!(flaw(&write), Rule::KeepaliveEffect);
    assert_eq!(flaw(&send(BEFORE)), Rule::KeepaliveEffect);
    let mut tap = idle();
    tap.pass(0, &send(0xff_fffe));
    // Something is outstanding.
    assert_eq!(tap.flaw(IDLE, &keepalive(BEFORE)), Rule::SentAfterAck);
}
