//! The rules about paths and MigReq, and about a send queue that is being drained.

use uroce_wirecheck::{Route, Rule, TimedRoute};

use super::tap::{
    A, ACK, B, QUIET, SEND_FIRST, SEND_LAST, SEND_ONLY, TIMEOUT, Tap, aeth, frame, frame_by, on,
    send,
};

/// PSN of the first packet.
const FIRST: u32 = 0xff_fffe;

fn route(net: u8, from: u32) -> Route {
    let (addr, dest_addr) = if from == 1 { (A, B) } else { (B, A) };
    Route { addr: on(net, addr), dest_addr: on(net, dest_addr), pkey: 0xffff }
}

/// A tap with both ends re-armed, with subnet 1 as alternate path.
fn rearmed() -> Tap {
    let mut tap = Tap::new();
    for (number, qp) in [(1, tap.a), (2, tap.b)] {
        let [primary, alternate] = [0, 1].map(|net| TimedRoute {
            route: route(net, number),
            timeout_ns: Some(TIMEOUT * (1 + u64::from(net))),
        });
        tap.checker.rearm(qp, primary, alternate);
    }
    tap
}

/// A tap with both ends armed, after one request and its answer.
fn armed() -> Tap {
    let mut tap = rearmed();
    tap.pass(0, &request(0, false, FIRST));
    tap.pass(0, &frame_by(0, false, 2, ACK, FIRST, &aeth(0x1f, 1), &[]));
    tap
}

fn request(net: u8, mig_req: bool, psn: u32) -> Vec<u8> {
    frame_by(net, mig_req, 1, SEND_ONLY, psn, &[], b"hello")
}

#[test]
fn mig_req_is_set_until_rearmed_and_clear_until_migrated() {
    assert_eq!(Tap::new().flaw(0, &request(0, false, FIRST)), Rule::MigReq);
    assert_eq!(rearmed().flaw(0, &request(0, true, FIRST)), Rule::MigReqSet);
    let next = FIRST + 1;
    assert_eq!(armed().flaw(0, &request(0, true, next)), Rule::MigReqSet);
    assert_eq!(armed().flaw(0, &request(1, false, next)), Rule::MigReq);
}

#[test]
fn only_a_qp_that_can_be_armed_migrates_and_then_leaves_the_former_path_alone() {
    assert_eq!(rearmed().flaw(0, &request(1, true, FIRST)), Rule::NotArmed);
    let mut tap = armed();
    tap.pass(0, &request(1, true, FIRST + 1));
    assert_eq!(tap.flaw(0, &request(0, true, 0)), Rule::FormerPath);
    assert_eq!(tap.flaw(0, &request(2, true, 0)), Rule::Address);
    assert_eq!(tap.flaw(0, &request(1, false, 0)), Rule::MigReq);
    assert_eq!(Tap::new().flaw(0, &request(1, true, FIRST)), Rule::Address);
}

#[test]
fn a_migration_is_a_cause_to_repeat_and_brings_its_own_timeout() {
    let mut tap = armed();
    tap.pass(1, &request(0, false, FIRST + 1));
    tap.pass(2, &request(1, true, FIRST + 1));
    let early = 1 + QUIET - 1;
    assert_eq!(tap.flaw(early, &request(1, true, FIRST + 1)), Rule::RewindWithoutCause);
    tap.pass(2 + 2 * TIMEOUT, &request(1, true, FIRST + 1));
}

#[test]
fn a_changed_rnr_timer_counts_from_the_next_refusal() {
    let refused = || {
        let mut tap = Tap::new();
        tap.pass(0, &send(FIRST));
        tap.checker.refused(tap.b);
        tap.checker.set_rnr_timer(tap.b, 9);
        tap
    };
    let rnr_nak = |code: u8| frame(2, ACK, FIRST, &aeth(0x20 | code, 0), &[]);
    let mut tap = refused();
    tap.pass(0, &rnr_nak(5));
    assert_eq!(tap.flaw(0, &rnr_nak(5)), Rule::RnrTimer, "one may have been decided on before");
    refused().pass(0, &rnr_nak(9));
    assert_eq!(refused().flaw(0, &rnr_nak(8)), Rule::RnrTimer);
}

#[test]
fn nothing_begins_while_the_send_queue_is_drained_and_what_was_begun_goes_on() {
    let held = || {
        let mut tap = Tap::new();
        tap.pass(0, &frame(1, SEND_FIRST, FIRST, &[], &[3; 256]));
        tap.checker.hold(tap.a, true);
        tap.pass(0, &frame(1, SEND_LAST, FIRST + 1, &[], &[3; 10]));
        tap
    };
    let mut tap = held();
    tap.pass(0, &send(0));
    assert_eq!(tap.flaw(0, &send(1)), Rule::StartedInSqd, "one may have been begun, no more");
    let mut tap = held();
    tap.pass(TIMEOUT, &frame(1, SEND_FIRST, FIRST, &[], &[3; 256]));
    assert!(!tap.checker.is_quiet(tap.a));
    tap.pass(TIMEOUT, &frame(2, ACK, FIRST + 1, &aeth(0x1f, 1), &[]));
    assert!(tap.checker.is_quiet(tap.a));
    tap.checker.hold(tap.a, false);
    tap.pass(TIMEOUT, &send(0));
}
