//! Each rule about sequences, broken by frames that are built here.

mod datagrams;
mod keepalive;
mod migration;
mod selective;
mod tap;

use uroce_wirecheck::{Peer, Rule, Service, rnr_wait_ns};

use tap::{
    ASKS, QUIET, READ, SEND_FIRST, SEND_LAST, SEND_MIDDLE, SEND_ONLY, TIMEOUT, Tap, WRITE_ONLY,
    ack, aeth, cnp, frame, nak, peer, reth, send,
};

#[test]
fn an_exchange_over_the_wrap_has_no_flaw() {
    let mut tap = Tap::new();
    for (at, psn) in [0xff_fffe, 0xff_ffff, 0, 1].into_iter().enumerate() {
        tap.pass(0, &send(psn));
        tap.pass(0, &ack(psn, at as u32 + 1));
    }
    tap.pass(1, &frame(1, READ, 2, &reth(0, 600), &[]));
    let response = |opcode, psn, ext: &[u8], len| frame(2, opcode, psn, ext, &vec![1; len]);
    tap.pass(2, &response(0x0d, 2, &aeth(0x1f, 5), 256));
    tap.pass(2, &response(0x0e, 3, &[], 256));
    tap.pass(2, &response(0x0f, 4, &aeth(0x1f, 5), 88));
    assert_eq!(tap.flaw(3, &response(0x0f, 4, &aeth(0x1f, 5), 88)), Rule::ResponseOrder);
    assert_eq!(tap.flaw(3, &frame(1, READ, 2, &reth(0, 600), &[])), Rule::SentAfterAck);
    tap.pass(4, &send(5));
}

#[test]
fn requests_out_of_sequence_are_found() {
    let begun = || {
        let mut tap = Tap::new();
        tap.pass(0, &frame(1, SEND_FIRST, 0xff_fffe, &[], &[3; 256]));
        tap
    };
    let last = |psn| frame(1, SEND_LAST, psn, &[], &[3; 10]);
    assert_eq!(begun().flaw(0, &last(0)), Rule::PsnSkipped);
    assert_eq!(begun().flaw(0, &send(0xff_ffff)), Rule::MessageOrder);
    let write = frame(1, WRITE_ONLY, 0xff_ffff, &reth(0, 9), b"123456789");
    assert_eq!(begun().flaw(0, &write), Rule::MessageOrder);
    let short = frame(1, SEND_MIDDLE, 0xff_ffff, &[], &[3; 255]);
    assert_eq!(begun().flaw(0, &short), Rule::MtuRule);
    let empty = frame(1, SEND_LAST, 0xff_ffff, &[], &[]);
    assert_eq!(begun().flaw(0, &empty), Rule::MtuRule);
    let wrong = frame(1, WRITE_ONLY, 0xff_fffe, &reth(0, 8), b"123456789");
    assert_eq!(Tap::new().flaw(0, &wrong), Rule::WriteLength);
}

#[test]
fn the_two_ends_of_an_extended_connection_send_their_half_and_name_one_queue() {
    let begun = || {
        let mut tap = Tap::new();
        let peers = [(1, Service::Initiator), (2, Service::Target)];
        let [a, b] = peers.map(|(number, service)| Peer { service, ..peer(number) });
        (tap.a, tap.b) = (tap.checker.watch(a), tap.checker.watch(b));
        tap.pass(0, &frame(1, 0xa0, 0xff_fffe, &[0, 0, 0, 9], &[3; 256]));
        tap
    };
    let last = |srqn| frame(1, 0xa2, 0xff_ffff, &[0, 0, 0, srqn], &[3; 10]);
    begun().pass(0, &last(9));
    assert_eq!(begun().flaw(0, &last(8)), Rule::QueueChanged);
    assert_eq!(begun().flaw(0, &frame(1, SEND_LAST, 0xff_ffff, &[], &[3; 10])), Rule::Service);
    let reserved = frame(1, 0xa2, 0xff_ffff, &[1, 0, 0, 9], &[3; 10]);
    assert_eq!(begun().flaw(0, &reserved), Rule::ReservedBits);
    let mut tap = begun();
    assert_eq!(tap.flaw(0, &frame(2, 0xa4, 7, &[0, 0, 0, 9], &[3; 10])), Rule::HalfOnly);
    let response = frame(1, 0xb1, 7, &aeth(0x1f, 0), &[]);
    assert_eq!(begun().flaw(0, &response), Rule::HalfOnly);
}

#[test]
fn repetition_needs_a_cause_and_the_same_bytes() {
    let first = send(0xff_fffe);
    let mut tap = Tap::new();
    tap.pass(0, &first);
    assert_eq!(tap.flaw(QUIET - 1, &first), Rule::RewindWithoutCause);
    let mut tap = Tap::new();
    tap.pass(0, &first);
    assert_eq!(tap.flaw(4 * TIMEOUT + 1, &first), Rule::TimeoutTooLate);
    let mut tap = Tap::new();
    tap.pass(0, &first);
    let other = frame(1, SEND_ONLY, 0xff_fffe, &[], b"hallo");
    assert_eq!(tap.flaw(TIMEOUT, &other), Rule::Changed);
    let mut tap = Tap::new();
    tap.pass(0, &first);
    tap.pass(0, &send(0xff_ffff));
    assert_eq!(tap.flaw(TIMEOUT, &send(0xff_ffff)), Rule::RewindTarget);
    tap.pass(TIMEOUT, &first);
    assert_eq!(tap.checker.tally(tap.a).repeated, 1);
}

#[test]
fn a_probe_repeats_the_oldest_request_and_asks_for_an_answer() {
    let [first, second, third] = [0xff_fffe, 0xff_ffff, 0].map(send);
    let begun = || {
        let mut tap = Tap::new();
        tap.pass(0, &first);
        let _lost = tap.try_sent(0, &second).unwrap();
        tap
    };
    let mut tap = begun();
    tap.pass(QUIET, &first);
    let _ahead = tap.try_sent(QUIET, &third).unwrap();
    assert_eq!(begun().flaw(QUIET, &second), Rule::RewindTarget);
    assert_eq!(begun().flaw(QUIET, &send(ASKS | 0xff_fffe)), Rule::ProbeUnasked);
    // An answer to the probe alone is a cause to repeat the rest.
    let mut tap = begun();
    tap.pass(QUIET, &first);
    tap.pass(QUIET, &ack(0xff_fffe, 1));
    tap.pass(QUIET, &second);
    tap.pass(QUIET, &third);
}

#[test]
fn an_rnr_timer_is_waited_for() {
    let waiting = || {
        let mut tap = Tap::new();
        tap.pass(0, &send(0xff_fffe));
        tap.checker.refused(tap.b);
        tap.pass(0, &nak(0xff_fffe, 0x25));
        tap
    };
    let wait = rnr_wait_ns(5);
    assert_eq!(waiting().flaw(wait - 1, &send(0xff_fffe)), Rule::BeforeRnrTimer);
    waiting().pass(wait, &send(0xff_fffe));
    // Another copy of the refused request was accepted meanwhile.
    let mut tap = waiting();
    tap.pass(2, &ack(0xff_fffe, 1));
    tap.pass(3, &send(0xff_ffff));
    assert_eq!(waiting().flaw(wait, &nak(0xff_fffe, 0x26)), Rule::RnrTimer);
}

#[test]
fn acknowledgements_cover_what_came_and_naks_name_what_is_missing() {
    let mut tap = Tap::new();
    assert_eq!(tap.flaw(0, &ack(0xff_fffe, 0)), Rule::AckOfNothing);
    assert_eq!(tap.flaw(0, &nak(0xff_fffe, 0x60)), Rule::NakWithoutGap);
    let _lost = tap.try_sent(0, &send(0xff_fffe)).unwrap();
    tap.pass(0, &send(0xff_ffff));
    assert_eq!(tap.flaw(0, &nak(0xff_ffff, 0x60)), Rule::NakPsn);
    tap.pass(0, &nak(0xff_fffe, 0x60));
    tap.pass(0, &send(0xff_fffe));
    tap.pass(0, &ack(0xff_fffe, 1));
    assert_eq!(tap.flaw(0, &ack(0xff_fffd, 1)), Rule::AckGoesBack);
    assert_eq!(tap.flaw(0, &ack(0xff_fffe, 0)), Rule::MsnGoesBack);
    assert_eq!(tap.flaw(0, &ack(0xff_fffe, 2)), Rule::MsnAhead);
}

#[test]
fn one_gap_is_complained_of_once() {
    let mut tap = Tap::new();
    let _lost = tap.try_sent(0, &send(0xff_fffe)).unwrap();
    tap.pass(0, &send(0xff_ffff));
    tap.pass(0, &nak(0xff_fffe, 0x60));
    tap.pass(0, &send(0xff_fffe));
    let mut tap = Tap::new();
    let _lost = tap.try_sent(0, &send(0xff_fffe)).unwrap();
    tap.pass(0, &send(0xff_ffff));
    tap.pass(0, &nak(0xff_fffe, 0x60));
    tap.pass(0, &send(0));
    assert_eq!(tap.flaw(0, &nak(0xff_fffe, 0x60)), Rule::NakTwice);
}

#[test]
fn a_gap_is_complained_of_again_when_its_repetition_is_lost() {
    let mut tap = Tap::new();
    let _lost = tap.try_sent(0, &send(0xff_fffe)).unwrap();
    tap.pass(0, &send(0xff_ffff));
    tap.pass(0, &nak(0xff_fffe, 0x60));
    let _lost_again = tap.try_sent(0, &send(0xff_fffe)).unwrap();
    tap.pass(0, &send(0xff_ffff));
    tap.pass(0, &nak(0xff_fffe, 0x60));
}

#[test]
fn answers_fit_their_requests() {
    let mut tap = Tap::new();
    let only = frame(2, 0x10, 0xff_fffe, &aeth(0x1f, 1), &[0; 8]);
    assert_eq!(tap.flaw(0, &only), Rule::NotAsked);
    tap.pass(0, &frame(1, READ, 0xff_fffe, &reth(0, 9), &[]));
    assert_eq!(tap.flaw(0, &only), Rule::ResponseLength);
    let first = frame(2, 0x0d, 0xff_fffe, &aeth(0x1f, 1), &[0; 256]);
    assert_eq!(tap.flaw(0, &first), Rule::ResponseOrder);

    let mut tap = Tap::new();
    let add = [&[0; 8][..], &[0, 0, 0, 9], &[0; 16]].concat();
    tap.pass(0, &frame(1, 0x14, 0xff_fffe, &add, &[]));
    let answer = |value: u64| {
        let ext = [&aeth(0x1f, 1)[..], &value.to_be_bytes()].concat();
        frame(2, 0x12, 0xff_fffe, &ext, &[])
    };
    tap.try_sent(0, &answer(5)).unwrap();
    tap.try_sent(0, &answer(5)).unwrap();
    assert_eq!(tap.flaw(0, &answer(6)), Rule::AtomicReplay);
}

#[test]
fn no_more_reads_than_agreed_and_nothing_after_the_end() {
    let mut tap = Tap::new();
    for psn in [0xff_fffe, 0xff_ffff] {
        tap.pass(0, &frame(1, READ, psn, &reth(0, 9), &[]));
    }
    assert_eq!(tap.flaw(0, &frame(1, READ, 0, &reth(0, 9), &[])), Rule::TooManyReads);
    let mut tap = Tap::new();
    tap.pass(0, &send(0xff_fffe));
    assert_eq!(tap.flaw(0, &ack(0xff_fffe, 0)), Rule::MsnBehind);
    tap.checker.refused(tap.b);
    tap.pass(0, &nak(0xff_fffe, 0x61));
    assert_eq!(tap.flaw(0, &ack(0xff_fffe, 1)), Rule::SentAfterEnd);
    tap.checker.end(tap.a);
    assert_eq!(tap.flaw(0, &send(0xff_ffff)), Rule::SentAfterEnd);
}

#[test]
fn unreliable_senders_never_repeat() {
    let mut tap = Tap::new();
    tap.checker.begin_again(tap.a, Peer { service: Service::Unreliable, ..peer(1) });
    let only = |psn| frame(1, 0x24, psn, &[], b"hello");
    tap.pass(0, &only(0xff_fffe));
    assert_eq!(tap.flaw(0, &only(0xff_fffe)), Rule::Repeated);
    assert_eq!(tap.flaw(0, &only(0)), Rule::PsnSkipped);
    assert_eq!(tap.flaw(0, &send(0xff_ffff)), Rule::Service);

    tap.checker.begin_again(tap.a, Peer { service: Service::Datagram, ..peer(1) });
    tap.pass(0, &frame(1, 0x64, 0xff_fffe, &[], b"hello"));
    tap.checker.begin_again(tap.a, Peer { service: Service::Datagram, qpn: 4, ..peer(1) });
    assert_eq!(tap.flaw(0, &frame(1, 0x64, 0xff_fffe, &[], b"hello")), Rule::SourceQp);
}

#[test]
fn a_notification_follows_a_mark_and_has_the_fixed_bytes() {
    let right = cnp(0x40, 0, 0);
    assert_eq!(Tap::new().flaw(0, &right), Rule::CnpWithoutMark);
    let marked = || {
        let mut tap = Tap::new();
        tap.checker.marked(tap.b);
        tap
    };
    for wrong in [cnp(0, 0, 0), cnp(0x40, 1, 0), cnp(0x40, 0, 1)] {
        assert_eq!(marked().flaw(0, &wrong), Rule::CnpHeader);
    }
    let mut tap = marked();
    tap.pass(0, &right);
    assert_eq!(tap.flaw(9000, &right), Rule::CnpWithoutMark);
    tap.checker.marked(tap.b);
    assert_eq!(tap.flaw(3999, &right), Rule::CnpTooSoon);
    tap.pass(4000, &right);
}
