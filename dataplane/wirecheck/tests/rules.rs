//! Each rule about sequences, broken on purpose by frames built here.

use uroce_wirecheck::{Checker, Peer, Rule, Seen, Service, Watched, crc32, rnr_wait_ns};

const A: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1];
const B: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
const MTU: u32 = 256;
const TIMEOUT: u64 = 1_000_000;

/// Two watched queue pairs; the first sends requests from PSN 0xfffffe on.
struct Tap {
    checker: Checker,
    a: Watched,
    b: Watched,
}

fn peer(number: u32) -> Peer {
    let (addr, dest_addr) = if number == 1 { (A, B) } else { (B, A) };
    let (first_psn, expected_psn) = if number == 1 { (0xff_fffe, 7) } else { (7, 0xff_fffe) };
    Peer {
        service: Service::Reliable,
        qpn: number,
        addr,
        dest_qpn: 3 - number,
        dest_addr,
        pkey: 0xffff,
        mtu: MTU,
        first_psn,
        expected_psn,
        max_reads: 2,
        rnr_timer: 5,
        timeout_ns: Some(TIMEOUT),
    }
}

/// A frame with this opcode, PSN, extended headers and payload.
fn frame(from: u32, opcode: u8, psn: u32, ext: &[u8], payload: &[u8]) -> Vec<u8> {
    let service = if opcode >> 5 == 3 { [0, 0, 0, 1, 0, 0, 0, 1].as_slice() } else { &[] };
    let pad = payload.len().wrapping_neg() & 3;
    let mut transport = vec![opcode, 0x40 | (pad as u8) << 4, 0xff, 0xff, 0, 0, 0, 3 - from as u8];
    transport.extend((0x8000_0000 | psn).to_be_bytes());
    transport.extend([service, ext, payload, &[0; 3][..pad]].concat());
    let (src, dst) = if from == 1 { (A, B) } else { (B, A) };
    let udp_len = transport.len() as u16 + 12;
    let mut ip = vec![0x45, 0];
    ip.extend((udp_len + 20).to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    ip.extend(&src[12..]);
    ip.extend(&dst[12..]);
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum >> 16) + (sum & 0xffff)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut udp = vec![0xc0, 0, 0x12, 0xb7];
    udp.extend(udp_len.to_be_bytes());
    udp.extend([0, 0]);

    let mut covered = [vec![0xff; 8], ip.clone(), udp.clone(), transport.clone()].concat();
    [1, 8, 10, 11, 26, 27, 32].iter().for_each(|at| covered[8 + at] = 0xff);
    let icrc = crc32(&covered).to_le_bytes().to_vec();
    let ethernet = [vec![2; 12], vec![8, 0]].concat();
    [ethernet, ip, udp, transport, icrc].concat()
}

fn aeth(syndrome: u8, msn: u32) -> [u8; 4] {
    (u32::from(syndrome) << 24 | msn).to_be_bytes()
}

fn reth(va: u64, len: u32) -> Vec<u8> {
    [&va.to_be_bytes()[..], &[0, 0, 0, 9], &len.to_be_bytes()].concat()
}

impl Tap {
    fn new() -> Tap {
        let mut checker = Checker::new();
        let [a, b] = [1, 2].map(|number| checker.watch(peer(number)));
        Tap { checker, a, b }
    }

    fn try_sent(&mut self, now: u64, bytes: &[u8]) -> Result<Seen, Rule> {
        let from = if bytes[14 + 15] == 1 { self.a } else { self.b };
        self.checker.sent(from, now, bytes).map_err(|flaw| flaw.rule)
    }

    /// Sent and arrived.
    fn pass(&mut self, now: u64, bytes: &[u8]) {
        let seen = self.try_sent(now, bytes).expect("a packet without flaw");
        let to = if bytes[14 + 15] == 1 { self.b } else { self.a };
        self.checker.arrived(to, now, &seen);
    }

    fn flaw(&mut self, now: u64, bytes: &[u8]) -> Rule {
        self.try_sent(now, bytes).expect_err("a packet with a flaw")
    }
}

const SEND_FIRST: u8 = 0;
const SEND_MIDDLE: u8 = 1;
const SEND_LAST: u8 = 2;
const SEND_ONLY: u8 = 4;
const WRITE_ONLY: u8 = 0x0a;
const READ: u8 = 0x0c;
const ACK: u8 = 0x11;

fn send(psn: u32) -> Vec<u8> {
    frame(1, SEND_ONLY, psn, &[], b"hello")
}

fn ack(psn: u32, msn: u32) -> Vec<u8> {
    frame(2, ACK, psn, &aeth(0x1f, msn), &[])
}

fn nak(psn: u32, syndrome: u8) -> Vec<u8> {
    frame(2, ACK, psn, &aeth(syndrome, 0), &[])
}

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
fn repetition_needs_a_cause_and_the_same_bytes() {
    let first = send(0xff_fffe);
    let mut tap = Tap::new();
    tap.pass(0, &first);
    assert_eq!(tap.flaw(TIMEOUT - 1, &first), Rule::RewindWithoutCause);
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
    let again = tap.try_sent(0, &send(0xff_fffe)).unwrap();
    tap.pass(0, &send(0xff_ffff));
    assert_eq!(tap.flaw(0, &nak(0xff_fffe, 0x60)), Rule::NakTwice);
    tap.checker.arrived(tap.b, 0, &again);
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
