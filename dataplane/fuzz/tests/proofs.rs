//! Exhaustive tests of functions that are small enough for it.
//!
//! A model checker for Rust (Kani) could prove the range check for all 2^256 arguments. Without
//! one, the check is proved for all arguments of small address spaces, and extended to all others
//! by the properties shown beside it.

use std::time::Duration;
use uroce_shared::memory::mr_table::offset_in;
use uroce_transport::{ack_timeout, rnr_timeout};
use uroce_wire::aeth::{credit_code, credits};
use uroce_wire::{Aeth, Bth, ExtHeaders, OpCode, Packet, Psn, Syndrome, emit_headers};

/// Inclusion in mathematical integers, which do not wrap.
fn included(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
    let [begin, size, from, count] = [region_va, region_len, va, len].map(u128::from);
    let is_inside = size > 0 && from >= begin && from + count <= begin + size;
    is_inside.then(|| (from - begin) as u64)
}

/// Every region and every range of an address space of 40 bytes: at address 0, in the middle, and
/// at the very end, where sums would wrap. The check compares differences only, so moving a region
/// together with its range does not change the answer; therefore three places are enough.
#[test] //= check F2 test
fn a_range_is_granted_if_and_only_if_it_is_included() {
    const WORLD: u64 = 40;
    let mut granted = 0_u64;
    for origin in [0, 1 << 63, u64::MAX - WORLD + 1] {
        for begin in 0..WORLD {
            for size in 0..=WORLD - begin {
                for from in 0..WORLD {
                    // To the end of the address space and beyond it, past 2^64 too.
                    for count in 0..=WORLD + 2 {
                        let [begin, from] = [begin, from].map(|at| origin + at);
                        let answer = offset_in(begin, size, from, count);
                        assert_eq!(answer, included(begin, size, from, count));
                        granted += u64::from(answer.is_some());
                    }
                }
            }
        }
    }
    assert!(granted > 100_000, "both answers are met");
}

/// Checks all quadruples of numbers at the edges of 64 bits.
#[test] //= check F3 test
fn the_range_check_holds_at_every_edge_of_64_bits() {
    let mut edges = Vec::new();
    for power in [0, 1, 3, 12, 31, 32, 47, 48, 63] {
        let at = 1_u64 << power;
        edges.extend([at - 1, at, at + 1, at.wrapping_neg(), !at]);
    }
    edges.extend([0, u64::MAX, u64::MAX - 1]);
    edges.sort_unstable();
    edges.dedup();
    for &begin in &edges {
        // Registration admits no region that wraps.
        for &size in edges.iter().filter(|&&size| begin.checked_add(size.max(1) - 1).is_some()) {
            for &from in &edges {
                for &count in &edges {
                    let answer = offset_in(begin, size, from, count);
                    assert_eq!(answer, included(begin, size, from, count));
                }
            }
        }
    }
}

/// A comparison of PSNs depends on their difference only, so one of the two can be fixed: all 2^24
/// differences, each at three places of the circle.
#[test] //= check A1 test
fn psn_order_is_a_window_of_half_the_circle() {
    const ALL: u32 = 1 << 24;
    for origin in [0, 0xff_ffff, 0x5a_a5a5].map(Psn::new) {
        for step in 0..ALL {
            let other = origin.plus(step);
            let distance = other.distance_from(origin);
            let expected = if step < ALL / 2 { step as i32 } else { step as i32 - ALL as i32 };
            assert_eq!(distance, expected);
            assert_eq!(other.is_before(origin), distance < 0);
            // Antisymmetric, except for two PSNs that are each before the other.
            let back = origin.distance_from(other);
            assert_eq!(back, if step == ALL / 2 { distance } else { -distance });
            assert_eq!(other.minus(step), origin);
        }
        assert_eq!(origin.plus(ALL), origin, "the circle closes");
    }
}

/// Moving both PSNs by the same number changes no answer: shown for every shift by one, and
/// therefore true for all shifts.
#[test]
fn psn_order_does_not_depend_on_the_place() {
    for at in 0..1_u32 << 24 {
        let (here, there) = (Psn::new(at), Psn::new(at + 1));
        for step in [0, 1, 2, 255, (1 << 23) - 1, 1 << 23, (1 << 23) + 1, (1 << 24) - 1] {
            let (a, b) = (here.plus(step), there.plus(step));
            assert_eq!(a.distance_from(here), b.distance_from(there));
        }
    }
}

/// Checks all 32 codes against the two rules of the specification: factors of 1 and 1.5, and code 0
/// last.
#[test] //= check B6 test
fn rnr_timers_are_the_tables() {
    let mut before = Duration::ZERO;
    for code in (1..32).chain([0]) {
        let time = rnr_timeout(code);
        assert!(time > before, "code {code} is not above the one before");
        let units = time.as_micros() / 10;
        assert_eq!(time.as_micros() % 10, 0);
        assert!(units.count_ones() <= 2 && units.trailing_zeros() + 2 > units.ilog2());
        before = time;
    }
    assert_eq!(
        (rnr_timeout(1), rnr_timeout(0)),
        (Duration::from_micros(10), Duration::from_micros(655_360))
    );
    for code in 0..=u8::MAX {
        assert_eq!(rnr_timeout(code), rnr_timeout(code & 0x1f), "five bits count");
        let expected =
            (code & 0x1f != 0).then(|| Duration::from_nanos(4096) * (1 << (code & 0x1f)));
        assert_eq!(ack_timeout(code), expected);
    }
}

/// Checks all 32 credit codes, and all numbers of receives beyond the largest code: the code sent
/// promises as much as possible, and never more than there is.
#[test] //= check A19 test
fn credit_codes_promise_what_there_is() {
    let value = |code| credits(code).expect("a limit");
    assert!((0..30).all(|code| value(code) < value(code + 1)));
    assert_eq!((value(0), value(1), value(30), credits(31)), (0, 1, 32_768, None));
    for receives in 0..70_000 {
        let code = credit_code(receives);
        assert!(value(code) <= receives);
        assert!(code == 30 || value(code + 1) > receives, "{receives} receives");
    }
    assert_eq!(credit_code(u32::MAX), 30);
}

/// Checks every syndrome byte: its bits determine its kind, and it is written as it was read.
#[test]
fn syndromes_are_total() {
    for byte in 0..=u8::MAX {
        let aeth = Aeth::parse(&[byte, 0, 0, 1]);
        let mut again = [0; 4];
        aeth.emit(&mut again);
        assert_eq!(again, [byte, 0, 0, 1]);
        let kind = match aeth.syndrome {
            Syndrome::Ack { credits } => (0, credits),
            Syndrome::RnrNak { timer } => (1, timer),
            Syndrome::Nak(code) => (3, code.code()),
            Syndrome::Reserved(_) => (byte >> 5, byte & 0x1f),
        };
        assert_eq!(kind, (byte >> 5, byte & 0x1f));
    }
}

/// Checks every opcode with every pad and every length up to the longest headers and one more word:
/// each is read or refused, in the same way by all functions.
#[test] //= check E20 test
fn every_opcode_is_read_or_refused_at_every_length() {
    let mut read = 0;
    for opcode in 0..=u8::MAX {
        for pad_count in 0..4_u8 {
            let mut bytes = [0x55; 80];
            let bth = Bth { opcode: OpCode(opcode), pad_count, ..Bth::default() };
            bth.emit(bytes.first_chunk_mut().expect("80 bytes"));
            for len in 0..bytes.len() {
                let packet = Packet::parse(&bytes[..len]);
                let Ok(packet) = packet else { continue };
                let info = OpCode(opcode).info().expect("a packet has a row");
                assert_eq!(packet.op, info);
                let padded = packet.payload.len() + usize::from(pad_count);
                assert_eq!(info.headers_len() + padded, len);
                let mut out = [0; 80];
                assert_eq!(
                    emit_headers(&packet.bth, &packet.ext, &mut out),
                    Some(info.headers_len())
                );
                read += 1;
            }
        }
        let is_known = OpCode(opcode).info().is_some();
        let written = emit_headers(
            &Bth { opcode: OpCode(opcode), ..Bth::default() },
            &ExtHeaders::default(),
            &mut [0; 80],
        );
        assert_eq!(written.is_some(), is_known);
    }
    assert!(read > 1000);
}
