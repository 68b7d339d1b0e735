//! The rules of reliable datagrams.

use uroce_wirecheck::{Peer, Rule, Service, rnr_wait_ns};

use crate::tap::{ASKS, TIMEOUT, Tap, aeth, frame, peer, reth};

/// Opcodes of RD.
const FIRST: u8 = 0x40;
const LAST: u8 = 0x42;
const ONLY: u8 = 0x44;
const READ: u8 = 0x4c;
const MIDDLE: u8 = 0x4e;
const DATA: u8 = 0x50;
const ACK: u8 = 0x51;
const RESYNC: u8 = 0x55;

/// PSN of the first request.
const PSN: u32 = 0xff_fffe;

/// Syndromes of an acknowledgement, an RNR NAK, and a NAK of an invalid RD request.
const GOOD: u8 = 0x1f;
const NOT_READY: u8 = 0x2c;
const INVALID: u8 = 0x64;

/// A tap of two end-to-end contexts.
fn contexts() -> Tap {
    let mut tap = Tap::new();
    let [a, b] = [1, 2].map(|number| Peer { service: Service::Context, ..peer(number) });
    (tap.a, tap.b) = (tap.checker.watch(a), tap.checker.watch(b));
    tap
}

/// A request of RD QP `source` to the context with this number.
fn request(opcode: u8, psn: u32, eecn: u8, source: u8) -> Vec<u8> {
    let len = match opcode {
        FIRST => 256,
        RESYNC => 0,
        _ => 5,
    };
    let ext = [0, 0, 0, eecn, 0, 0, 0, 1, 0, 0, 0, source];
    frame(1, opcode, psn, &ext, &[3; 256][..len])
}

fn sent(opcode: u8, psn: u32) -> Vec<u8> {
    request(opcode, psn, 2, 1)
}

/// An answer to RD QP 1.
fn answer(psn: u32, syndrome: u8, msn: u32) -> Vec<u8> {
    frame(2, ACK, psn, &[&[0, 0, 0, 1][..], &aeth(syndrome, msn)].concat(), &[])
}

#[test]
fn messages_of_several_rd_qps_share_the_psns_one_at_a_time() {
    let mut tap = contexts();
    tap.pass(0, &sent(FIRST, PSN));
    assert_eq!(tap.flaw(0, &request(LAST, PSN + 1, 2, 9)), Rule::QueueChanged);
    tap.pass(0, &sent(LAST, PSN + 1));
    assert_eq!(tap.flaw(0, &request(ONLY, 0, 2, 9)), Rule::NotOneAtATime);
    tap.pass(0, &answer(PSN + 1, GOOD, 1));
    tap.pass(0, &request(ONLY, 0, 2, 9));
    assert_eq!(tap.flaw(0, &answer(0, GOOD, 2)), Rule::OtherRdQp);
}

#[test]
fn every_packet_names_the_peer_s_context() {
    assert_eq!(contexts().flaw(0, &request(ONLY, PSN, 3, 1)), Rule::OtherContext);
    assert_eq!(contexts().flaw(0, &request(4, PSN, 2, 1)), Rule::Service);
    let mut tap = contexts();
    tap.pass(0, &sent(ONLY, PSN));
    let ext = [&[0, 0, 0, 9][..], &aeth(GOOD, 1)].concat();
    assert_eq!(tap.flaw(0, &frame(2, ACK, PSN, &ext, &[])), Rule::OtherContext);
}

#[test]
fn a_message_is_given_up_by_a_resync_with_the_psn_after_the_newest() {
    let begun = || {
        let mut tap = contexts();
        tap.pass(0, &sent(FIRST, PSN));
        tap
    };
    assert_eq!(begun().flaw(0, &sent(RESYNC, PSN)), Rule::ResyncPsn);
    assert_eq!(begun().flaw(0, &sent(RESYNC, 0)), Rule::ResyncPsn);
    assert_eq!(begun().flaw(0, &sent(RESYNC, ASKS | (PSN + 1))), Rule::ProbeUnasked);
    let mut tap = begun();
    tap.pass(0, &sent(RESYNC, PSN + 1));
    assert_eq!(tap.flaw(0, &sent(ONLY, 0)), Rule::NotOneAtATime);
    // It is repeated like any request.
    assert_eq!(tap.flaw(1, &sent(RESYNC, PSN + 1)), Rule::RewindWithoutCause);
    tap.pass(TIMEOUT, &sent(RESYNC, PSN + 1));
    tap.pass(TIMEOUT, &answer(PSN + 1, GOOD, 0));
    assert_eq!(tap.flaw(TIMEOUT, &sent(RESYNC, 0)), Rule::NothingGivenUp);
    tap.pass(TIMEOUT, &sent(ONLY, 0));
    tap.pass(TIMEOUT, &answer(0, GOOD, 1));
}

#[test]
fn a_context_goes_on_after_a_refusal_by_a_resync_only() {
    let mut tap = contexts();
    tap.pass(0, &sent(ONLY, PSN));
    tap.checker.refused(tap.b);
    tap.pass(0, &answer(PSN, INVALID, 0));
    assert_eq!(tap.flaw(0, &answer(PSN, GOOD, 1)), Rule::SentAfterEnd);
    // The refusal is repeated, also for an earlier packet, but not with another code.
    tap.pass(0, &answer(PSN, INVALID, 0));
    tap.pass(0, &answer(PSN - 1, INVALID, 0));
    assert_eq!(tap.flaw(0, &answer(PSN, INVALID - 1, 0)), Rule::SentAfterEnd);
    tap.pass(0, &sent(RESYNC, PSN + 1));
    tap.pass(0, &answer(PSN + 1, GOOD, 0));
    tap.pass(0, &sent(ONLY, 0));
    tap.pass(0, &answer(0, GOOD, 1));
}

#[test]
fn neither_a_resync_nor_the_next_message_waits_for_the_rnr_timer() {
    let mut tap = contexts();
    tap.pass(0, &sent(ONLY, PSN));
    tap.checker.refused(tap.b);
    tap.pass(0, &answer(PSN, NOT_READY, 0));
    let before = rnr_wait_ns(NOT_READY) - 1;
    assert_eq!(tap.flaw(before, &sent(ONLY, PSN)), Rule::BeforeRnrTimer);
    tap.pass(1, &sent(RESYNC, PSN + 1));
    tap.pass(1, &answer(PSN + 1, GOOD, 0));
    tap.pass(1, &request(ONLY, 0, 2, 9));
}

#[test]
fn a_message_that_was_put_off_waits_for_the_rnr_timer() {
    let mut tap = contexts();
    tap.pass(0, &sent(FIRST, PSN));
    tap.checker.refused(tap.b);
    tap.pass(0, &answer(PSN, NOT_READY, 0));
    tap.pass(1, &sent(RESYNC, PSN + 1));
    tap.pass(1, &answer(PSN + 1, GOOD, 0));
    assert_eq!(tap.flaw(rnr_wait_ns(NOT_READY) - 1, &sent(FIRST, 0)), Rule::BeforeRnrTimer);
    tap.pass(rnr_wait_ns(NOT_READY), &sent(FIRST, 0));
}

#[test]
fn responses_between_requests_go_to_the_rd_qp_that_asked() {
    let mut tap = contexts();
    let ext = [&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9][..], &reth(0, 600)].concat();
    tap.pass(0, &frame(1, READ, PSN, &ext, &[]));
    // The second of three responses, to another one.
    assert_eq!(tap.flaw(0, &frame(2, MIDDLE, PSN + 1, &[0, 0, 0, 1], &[0; 256])), Rule::OtherRdQp);
    // A sequence NAK for a packet that has not come.
    let mut tap = contexts();
    let _lost = tap.try_sent(0, &request(FIRST, PSN, 2, 9)).unwrap();
    tap.pass(0, &request(LAST, PSN + 1, 2, 9));
    assert_eq!(tap.flaw(0, &answer(PSN, 0x60, 0)), Rule::OtherRdQp);
}

#[test]
fn a_resync_is_no_message_in_the_count_of_messages() {
    let refused = || {
        let mut tap = contexts();
        tap.pass(0, &sent(ONLY, PSN));
        tap.checker.refused(tap.b);
        tap.pass(0, &answer(PSN, NOT_READY, 0));
        tap.pass(0, &sent(RESYNC, PSN + 1));
        tap
    };
    assert_eq!(refused().flaw(0, &answer(PSN + 1, GOOD, 1)), Rule::MsnAhead);
    refused().pass(0, &answer(PSN + 1, GOOD, 0));
    // A copy of the message may have been executed.
    let mut tap = refused();
    tap.pass(0, &answer(PSN + 1, GOOD, 0));
    tap.pass(0, &sent(ONLY, 0));
    tap.pass(0, &sent(RESYNC, 1));
    tap.pass(0, &answer(1, GOOD, 1));
}

#[test]
fn a_resync_comes_after_a_lost_read_of_half_of_all_psns() {
    let mut tap = contexts();
    let ext = [&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1][..], &reth(0, 1 << 31)].concat();
    let _lost = tap.try_sent(0, &frame(1, READ, PSN, &ext, &[])).unwrap();
    let resync = (PSN + (1 << 23)) % (1 << 24);
    tap.pass(0, &sent(RESYNC, resync));
    tap.pass(0, &answer(resync, GOOD, 0));
    tap.pass(0, &sent(ONLY, resync + 1));
    tap.pass(0, &answer(resync + 1, GOOD, 1));
}

#[test]
fn only_a_read_is_refused_after_it_was_answered() {
    let mut tap = contexts();
    tap.pass(0, &sent(ONLY, PSN));
    tap.pass(0, &answer(PSN, GOOD, 1));
    assert_eq!(tap.flaw(0, &answer(PSN, INVALID, 1)), Rule::NotAsked);
    let ext = [&[0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1][..], &reth(0, 1)].concat();
    tap.pass(0, &frame(1, READ, PSN + 1, &ext, &[]));
    let data = [&[0, 0, 0, 1][..], &aeth(GOOD, 2)].concat();
    tap.pass(0, &frame(2, DATA, PSN + 1, &data, &[5]));
    tap.pass(0, &answer(PSN + 1, INVALID, 2));
    // It ends nothing.
    tap.pass(0, &sent(ONLY, 0));
    tap.pass(0, &answer(0, GOOD, 3));
}
