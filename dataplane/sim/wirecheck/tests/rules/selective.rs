//! The rules of selective repeat.

use uroce_wirecheck::{Peer, Rule};

use crate::tap::{QUIET, READ, TIMEOUT, Tap, ack, aeth, frame, peer, reth, send};

/// First PSN of the requester, an even number before the wrap.
const FIRST: u32 = 0xff_fffe;

/// A tap at two ends that have agreed on selective repeat.
fn agreed() -> Tap {
    let mut tap = Tap::new();
    for (number, watched) in [(1, tap.a), (2, tap.b)] {
        tap.checker.begin_again(watched, Peer { selective_repeat: true, ..peer(number) });
    }
    tap
}

/// A selective acknowledgement of what comes before PSN `expected`, with a bitmap from there on.
fn list(expected: u32, msn: u32, bitmap: u64) -> Vec<u8> {
    let psn = expected.wrapping_sub(1) & 0xff_ffff;
    frame(2, 0xd1, psn, &aeth(0x1f, msn), &bitmap.to_le_bytes())
}

/// The first of six SENDs is lost, the others arrive early.
fn gap() -> Tap {
    let mut tap = agreed();
    let _lost = tap.try_sent(0, &send(FIRST)).unwrap();
    for psn in [0xff_ffff, 0, 1, 2, 3] {
        tap.pass(0, &send(psn));
    }
    tap
}

#[test]
fn what_is_lost_goes_again_alone_and_completes_all() {
    let mut tap = gap();
    tap.pass(1, &list(FIRST, 0, 0b11_1110));
    tap.pass(2, &send(FIRST));
    tap.pass(3, &ack(3, 6));
    tap.pass(4, &send(4));
    assert_eq!(tap.checker.tally(tap.a).repeated, 1);
}

#[test]
fn a_repetition_needs_a_later_packet_that_has_come() {
    assert_eq!(gap().flaw(1, &send(FIRST)), Rule::RepeatedAlone);
    let told = || {
        let mut tap = gap();
        tap.pass(1, &list(FIRST, 0, 0b110));
        tap
    };
    // The packet after those that have come, and one that has come.
    assert_eq!(told().flaw(2, &send(1)), Rule::RepeatedAlone);
    assert_eq!(told().flaw(2, &send(0)), Rule::RepeatedAlone);
    let mut tap = told();
    tap.pass(2, &send(FIRST));
    assert_eq!(tap.flaw(3, &send(FIRST)), Rule::RepeatedAlone);
    tap.pass(2 + QUIET.max(TIMEOUT), &send(FIRST));
}

#[test]
fn a_list_has_what_came_and_not_what_is_expected() {
    assert_eq!(gap().flaw(1, &list(FIRST, 0, 0b11_1111)), Rule::ListsExpected);
    assert_eq!(gap().flaw(1, &list(FIRST, 0, 0b111_1110)), Rule::AckOfNothing);
    assert_eq!(gap().flaw(1, &list(0xff_ffff, 0, 0b1_1110)), Rule::AckOfNothing);
    assert_eq!(Tap::new().flaw(1, &list(FIRST, 0, 0b10)), Rule::Service);
    let short = frame(2, 0xd1, FIRST - 1, &aeth(0x1f, 0), &[2, 0, 0, 0]);
    assert_eq!(gap().flaw(1, &short), Rule::PayloadLength);
}

#[test]
fn with_a_read_outstanding_the_requester_goes_back() {
    let mut tap = agreed();
    let _lost = tap.try_sent(0, &frame(1, READ, FIRST, &reth(0, 600), &[])).unwrap();
    tap.pass(0, &send(1));
    tap.pass(1, &list(FIRST, 0, 0b1000));
    tap.pass(2, &frame(1, READ, FIRST, &reth(0, 600), &[]));
    tap.pass(2, &send(1));
    assert_eq!(tap.flaw(2, &send(1)), Rule::RepeatedAlone);
}
