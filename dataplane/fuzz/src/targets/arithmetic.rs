//! Z13: PSNs and sets of them, the invariant CRC, the ring of WQEs and the iteration over
//! scatter/gather elements, each compared with a naive version.

use crate::Input;
use std::collections::{BTreeSet, VecDeque};
use uroce_transport::testing::{PsnSet, Ring, SPAN, gather as pieces};
use uroce_transport::{Piece, Sge};
use uroce_wire::{Lkey, Psn, Va, icrc, seal};
use uroce_wirecheck::crc32;

pub(super) fn run(input: &mut Input<'_>) {
    let choice = input.u8();
    match choice % 4 {
        _ if choice >= 0xf0 => psn_set(input),
        0 => psn(input),
        1 => checksum(input),
        2 => ring(input),
        _ => gather(input),
    }
}

/// Compares a set of PSNs that moves forward with a sorted set of distances from its start.
fn psn_set(input: &mut Input<'_>) {
    let start = Psn::new(input.u32());
    let mut set = PsnSet::default();
    let mut naive = BTreeSet::new();
    // The PSNs in the set lie from `from` on, and span less than `SPAN`.
    let mut from = 0;
    while !input.is_empty() {
        let choice = input.u8();
        let near = u32::from(input.u8());
        let ahead = if choice & 0x80 == 0 { near } else { near * 32 + u32::from(choice & 31) };
        let (at, psn) = (from + ahead, start.plus(from + ahead));
        match choice >> 4 & 7 {
            0..=3 => assert_eq!(set.insert(psn), naive.insert(at)),
            4 => assert_eq!(set.remove(psn), naive.remove(&at)),
            5 => {
                set.remove_range(start.plus(from), psn);
                naive.retain(|other| *other >= at);
                from = at;
            }
            6 => {
                let bits = (0..64).filter(|bit| naive.contains(&(at + bit)));
                let expected = bits.fold(0, |bits, bit| bits | 1 << bit);
                // Bits beyond the span are those of its start.
                let is_within = ahead + 64 <= SPAN;
                assert!(!is_within || set.bits_from(psn) == expected, "{at}");
            }
            _ => {
                let end = at + 4 * near;
                let end = end.min(from + SPAN);
                let expected = naive.range(at..end.max(at)).next().map(|at| start.plus(*at));
                assert_eq!(set.first(psn, start.plus(end)), expected);
            }
        }
        assert_eq!(set.len(), naive.len() as u32);
        assert_eq!(set.contains(psn), naive.contains(&at));
        input.reach(5, naive.len() as u32);
    }
    let mut listed = BTreeSet::new();
    let mut at = start.plus(from);
    while let Some(psn) = set.first(at, start.plus(from + SPAN)) {
        listed.insert(psn.distance_from(start) as u32);
        at = psn.next();
    }
    assert_eq!(listed, naive);
}

/// Compares all PSN arithmetic with 64-bit arithmetic modulo 2^24.
fn psn(input: &mut Input<'_>) {
    const ALL: i64 = 1 << 24;
    while !input.is_empty() {
        let (a, b) = (input.u32(), input.u32());
        let (x, y) = (i64::from(a) % ALL, i64::from(b) % ALL);
        let (p, q) = (Psn::new(a), Psn::new(b));
        assert_eq!(i64::from(p.value()), x);
        assert_eq!(i64::from(p.plus(b).value()), (x + i64::from(b)).rem_euclid(ALL));
        assert_eq!(i64::from(p.minus(b).value()), (x - i64::from(b)).rem_euclid(ALL));
        assert_eq!(i64::from(p.next().value()), (x + 1) % ALL);
        let ahead = (x - y).rem_euclid(ALL);
        let distance = if ahead < ALL / 2 { ahead } else { ahead - ALL };
        assert_eq!(i64::from(p.distance_from(q)), distance);
        assert_eq!(p.is_before(q), distance < 0);
        input.reach(1, u32::from(p.is_before(q)));
    }
}

/// Compares the invariant CRC with that of a copy with ones where a router may write.
fn checksum(input: &mut Input<'_>) {
    let is_v4 = input.u8() & 1 == 0;
    let mut l3 = input.rest().to_vec();
    let Some(first) = l3.first_mut() else { return };
    *first = if is_v4 { 0x45 } else { 0x60 | *first & 0x0f };
    let ip_len = if is_v4 { 20 } else { 40 };
    let expected = (l3.len() >= ip_len + 8 + 12).then(|| {
        let mut masked = vec![0xff; 8];
        masked.extend_from_slice(&l3);
        let changeable: &[usize] = if is_v4 { &[1, 8, 10, 11] } else { &[1, 2, 3, 7] };
        changeable.iter().for_each(|at| masked[8 + at] = 0xff);
        masked[8] |= if is_v4 { 0 } else { 0x0f };
        [6, 7, 12].iter().for_each(|at| masked[8 + ip_len + at] = 0xff);
        crc32(&masked).to_le_bytes()
    });
    assert_eq!(icrc(&l3), expected);
    input.reach(2, u32::from(expected.is_some()));
    let Some(crc) = expected else { return };
    let covered = l3.len();
    l3.extend_from_slice(&[0; 4]);
    assert_eq!(seal(&mut l3), Some(()));
    assert_eq!(l3[covered..], crc);
}

/// Compares the bytes of a gather list with a list of all its addresses.
fn gather(input: &mut Input<'_>) {
    let mut list = Vec::new();
    let mut bytes = Vec::new();
    for key in 0..1 + input.below(8) as u32 {
        let (va, len) = (input.u64(), u32::from(input.u8() % 40));
        list.push(Sge { va: Va(va), len, lkey: Lkey(key) });
        bytes.extend((0..u64::from(len)).map(|at| (key, va.wrapping_add(at))));
    }
    while !input.is_empty() {
        let offset = usize::from(input.u16()) % (bytes.len() + 1);
        let len = usize::from(input.u16()) % (bytes.len() - offset + 1);
        let gather = pieces(&list, offset as u32, len as u32);
        assert_eq!(gather.len() as usize, len);
        assert_eq!(gather.is_empty(), len == 0);
        let walked: Vec<_> = gather.flat_map(each_byte).collect();
        assert_eq!(walked, bytes[offset..offset + len]);
        input.reach(3, (len.min(64) / 8) as u32);
    }
}

fn each_byte(piece: Piece<'_>) -> Vec<(u32, u64)> {
    let Piece::Region(region) = piece else { panic!("no inline data in a list") };
    assert!(region.len > 0, "an empty piece");
    let uroce_transport::Key::Local(lkey) = region.key else { panic!("a peer's key") };
    (0..u64::from(region.len)).map(|at| (lkey.0, region.va.0.wrapping_add(at))).collect()
}

/// Compares the ring with a list of (position, value).
fn ring(input: &mut Input<'_>) {
    let capacity = 1 + input.below(9) as u32;
    let mut ring = Ring::new(capacity);
    let mut list: VecDeque<(u32, u8)> = VecDeque::new();
    let mut next = 0;
    while !input.is_empty() {
        let value = input.u8();
        if !value.is_multiple_of(3) && list.len() < capacity as usize {
            assert_eq!(ring.push(value), next);
            list.push_back((next, value));
            next += 1;
        } else {
            assert_eq!(ring.pop().copied(), list.pop_front().map(|(_, value)| value));
        }
        assert_eq!((ring.len() as usize, ring.is_empty()), (list.len(), list.is_empty()));
        assert_eq!(ring.tail().wrapping_sub(ring.head()), ring.len());
        assert_eq!(ring.front().copied(), list.front().map(|&(_, value)| value));
        for at in (0..15).map(|at| next.wrapping_add(2).wrapping_sub(at)) {
            let expected = list.iter().find(|&&(position, _)| position == at);
            assert_eq!(ring.get(at).copied(), expected.map(|&(_, value)| value), "position {at}");
        }
        input.reach(4, ring.len());
    }
}
