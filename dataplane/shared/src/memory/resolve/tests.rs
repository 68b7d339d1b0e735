use super::*;
use crate::memory::mr_table::{MrKeys, MrReader, MrSpec, MrTable};
use crate::sync::{AtomicU64, Ordering};
use crate::table::key::Numbers;
use std::sync::Arc;
use uroce_transport::{AccessKind, Pd};
use uroce_wire::{Lkey, Placement, Qpn, Rkey, Va};

const PD: Pd = Pd(7);
const BY: Accessor = Accessor { pd: PD, qpn: Qpn::new(9) };

/// 64 registered bytes within 192 bytes; the others must never be accessed.
struct Fixture {
    table: Arc<MrTable>,
    reader: MrReader,
    memory: Vec<u64>,
    keys: MrKeys,
}

impl Fixture {
    fn new(access: AccessFlags) -> Fixture {
        let table = Arc::new(MrTable::new(4, 1, Numbers::random(4).unwrap()));
        let reader = MrReader::new(Arc::clone(&table), 0);
        let mut memory = vec![0x5555_5555_5555_5555u64; 24];
        let addr = memory.as_mut_ptr().wrapping_add(8).cast::<u8>();
        let spec = MrSpec { addr, len: 64, va: Va(addr as u64), pd: PD, access };
        // SAFETY: the vector is not reallocated and outlives the table's use in each test, which
        // reads it only between the engine's copies.
        let keys = unsafe { table.register(&spec) }.unwrap();
        Fixture { table, reader, memory, keys }
    }

    fn va(&self) -> u64 {
        self.memory.as_ptr() as u64 + 64
    }

    fn remote(&self, offset: i64, len: u32) -> Region {
        let va = Va(self.va().wrapping_add_signed(offset));
        Region { key: Key::Remote(self.keys.rkey), va, len }
    }

    fn local(&self, offset: i64, len: u32) -> Region {
        Region { key: Key::Local(self.keys.lkey), ..self.remote(offset, len) }
    }

    /// Returns whether the bytes before and after the region are unchanged.
    fn is_canary_intact(&self) -> bool {
        let outside = self.memory[..8].iter().chain(&self.memory[16..]);
        outside.copied().all(|word| word == 0x5555_5555_5555_5555)
    }
}

#[test]
fn what_was_written_is_read_back() {
    let fixture = Fixture::new(AccessFlags::LOCAL_WRITE);
    let access = fixture.reader.enter();
    let bytes: Vec<u8> = (1..=61).collect();
    access.write(BY, fixture.local(3, 61), &bytes).unwrap();
    let mut out = [0; 61];
    access.read(BY, fixture.local(3, 61), &mut out).unwrap();
    assert_eq!(out[..], bytes[..]);
    assert!(fixture.is_canary_intact());
}

#[test] //= check F1 test
fn each_fault_has_its_name_and_touches_nothing() {
    let all = AccessFlags::all();
    let fixture = Fixture::new(all);
    let access = fixture.reader.enter();
    let wrong_key = Region {
        key: Key::Remote(Rkey(fixture.keys.rkey.0 ^ 0x8000_0000)),
        ..fixture.remote(0, 8)
    };
    let bytes = [0xaa; 8];
    assert_eq!(access.write(BY, wrong_key, &bytes), Err(MemoryFault::UnknownKey));
    let foreign = access.write(Accessor { pd: Pd(8), ..BY }, fixture.remote(0, 8), &bytes);
    assert_eq!(foreign, Err(MemoryFault::WrongPd));
    for offset in [-1, 57, 64, 1 << 40, i64::MIN] {
        let result = access.write(BY, fixture.remote(offset, 8), &bytes);
        assert_eq!(result, Err(MemoryFault::OutOfRange), "offset {offset}");
    }
    assert_eq!(fixture.memory, [0x5555_5555_5555_5555; 24]);
}

#[test] //= check F5 test
fn another_protection_domain_is_refused_for_every_access() {
    let fixture = Fixture::new(AccessFlags::all());
    let access = fixture.reader.enter();
    for wish in [AccessKind::Read, AccessKind::Write, AccessKind::Atomic] {
        for region in [fixture.local(0, 8), fixture.remote(0, 8)] {
            assert_eq!(
                access.check(Accessor { pd: Pd(0), ..BY }, region, wish),
                Err(MemoryFault::WrongPd)
            );
            assert_eq!(access.check(BY, region, wish), Ok(()));
        }
    }
}

#[test] //= check F4 test
fn each_right_opens_its_access_and_no_other() {
    let rights = [
        (AccessFlags::REMOTE_READ, AccessKind::Read),
        (AccessFlags::REMOTE_WRITE, AccessKind::Write),
        (AccessFlags::REMOTE_ATOMIC, AccessKind::Atomic),
    ];
    for (granted, _) in rights {
        let fixture = Fixture::new(granted | AccessFlags::LOCAL_WRITE);
        let access = fixture.reader.enter();
        for (right, wish) in rights {
            let result = access.check(BY, fixture.remote(0, 8), wish);
            let expected = if right == granted { Ok(()) } else { Err(MemoryFault::NotGranted) };
            assert_eq!(result, expected, "{granted:?} {wish:?}");
        }
    }
    let read_only = Fixture::new(AccessFlags::empty());
    let access = read_only.reader.enter();
    assert_eq!(access.check(BY, read_only.local(0, 8), AccessKind::Read), Ok(()));
    let write = access.check(BY, read_only.local(0, 8), AccessKind::Write);
    assert_eq!(write, Err(MemoryFault::NotGranted));
}

#[test]
fn a_stale_key_opens_nothing() {
    let fixture = Fixture::new(AccessFlags::all());
    fixture.table.deregister(fixture.keys.lkey).unwrap();
    let access = fixture.reader.enter();
    let mut out = [0; 8];
    let result = access.read(BY, fixture.remote(0, 8), &mut out);
    assert_eq!(result, Err(MemoryFault::UnknownKey));
    let forged = Region { key: Key::Local(Lkey(0)), ..fixture.remote(0, 8) };
    assert_eq!(access.read(BY, forged, &mut out), Err(MemoryFault::UnknownKey));
}

#[test]
fn atomics_give_the_former_value() {
    let fixture = Fixture::new(AccessFlags::all());
    let access = fixture.reader.enter();
    let rkey = fixture.keys.rkey;
    let at = |offset: u64| Va(fixture.va() + offset);
    let former = 0x5555_5555_5555_5555;
    let swap = AtomicOp::CompareSwap { compare: former, swap: 1 };
    assert_eq!(access.atomic(BY, rkey, at(8), swap), Ok(former));
    assert_eq!(access.atomic(BY, rkey, at(8), swap), Ok(1), "no match, no swap");
    let add = AtomicOp::FetchAdd { add: u64::MAX };
    assert_eq!(access.atomic(BY, rkey, at(8), add), Ok(1));
    assert_eq!(access.atomic(BY, rkey, at(8), add), Ok(0));
    assert_eq!(access.atomic(BY, rkey, at(8), add), Ok(u64::MAX), "wraps");
    assert!(access.atomic(BY, rkey, at(60), add).is_err(), "not inside");
    assert!(access.atomic(BY, rkey, at(4), add).is_err(), "not aligned");
    assert!(fixture.is_canary_intact());
}

#[test] //= check P10 test
fn a_word_is_written_where_writing_is_granted_and_aligned() {
    let fixture = Fixture::new(AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE);
    let access = fixture.reader.enter();
    let rkey = fixture.keys.rkey;
    let write = |offset: u64| {
        access.write_word(BY, rkey, Va(fixture.va() + offset), [1, 2, 3, 4, 5, 6, 7, 8])
    };
    assert_eq!(write(8), Ok(()));
    let mut out = [0; 8];
    let (here, key) = (fixture.remote(8, 8), fixture.keys.lkey);
    access.read(BY, Region { key: Key::Local(key), ..here }, &mut out).unwrap();
    assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(write(60), Err(MemoryFault::OutOfRange));
    assert_eq!(write(4), Err(MemoryFault::OutOfRange), "not aligned");
    assert!(fixture.is_canary_intact());
    let other = Fixture::new(AccessFlags::REMOTE_ATOMIC | AccessFlags::LOCAL_WRITE);
    let (rkey, va) = (other.keys.rkey, Va(other.va()));
    let refused = other.reader.enter().write_word(BY, rkey, va, [0; 8]);
    assert_eq!(refused, Err(MemoryFault::NotGranted));
}

#[test] //= check P10 test
fn a_reader_sees_all_eight_bytes_of_a_write_or_none() {
    const WRITES: u64 = 50_000;
    let table = Arc::new(MrTable::new(4, 1, Numbers::random(4).unwrap()));
    let word = AtomicU64::new(0);
    let addr = word.as_ptr().cast::<u8>();
    let access = AccessFlags::all();
    let spec = MrSpec { addr, len: 8, va: Va(addr as u64), pd: PD, access };
    // SAFETY: the word outlives the table's use, and the program reads it by atomics only.
    let keys = unsafe { table.register(&spec) }.unwrap();
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = MrReader::new(Arc::clone(&table), 0);
        let (va, over) = (spec.va, &is_over);
        scope.spawn(move || {
            for turn in 0..WRITES {
                let bytes = [if turn % 2 == 0 { 0xff } else { 0 }; 8];
                reader.enter().write_word(BY, keys.rkey, va, bytes).unwrap();
            }
            over.store(1, Ordering::Release);
        });
        while is_over.load(Ordering::Acquire) == 0 {
            let seen = word.load(Ordering::Relaxed);
            assert!(seen == 0 || seen == u64::MAX, "{seen:#x}");
        }
    });
}

#[test] //= check P11 test
fn a_flush_needs_key_domain_range_and_right() {
    let fixture = Fixture::new(AccessFlags::FLUSH_GLOBAL);
    let access = fixture.reader.enter();
    let (rkey, va, len) = (fixture.keys.rkey, Va(fixture.va()), fixture.remote(0, 64).len);
    let placement = Placement::GLOBAL;
    let whole = Flush { rkey, range: None, placement };
    let range = |va, len| Flush { range: Some((va, len)), ..whole };
    assert_eq!(access.flush(BY, &whole), Ok(()));
    assert_eq!(access.flush(BY, &range(va, len)), Ok(()));
    assert_eq!(access.flush(BY, &range(Va(va.0 + 1), len)), Err(MemoryFault::OutOfRange));
    assert_eq!(access.flush(BY, &range(Va(u64::MAX), 2)), Err(MemoryFault::OutOfRange));
    let unknown = Flush { rkey: Rkey(rkey.0 ^ 1), ..whole };
    assert_eq!(access.flush(BY, &unknown), Err(MemoryFault::UnknownKey));
    let persistent = Flush { placement: Placement::PERSISTENT, ..whole };
    assert_eq!(access.flush(BY, &persistent), Err(MemoryFault::NotGranted));
    let stranger = Accessor { pd: Pd(PD.0 + 1), ..BY };
    assert_eq!(access.flush(stranger, &whole), Err(MemoryFault::WrongPd));
}

#[test] //= check D9 test
fn atomics_of_two_lcores_and_of_the_program_add_up() {
    const ADDS: u64 = 50_000;
    let table = Arc::new(MrTable::new(4, 2, Numbers::random(4).unwrap()));
    let word = AtomicU64::new(0);
    let addr = word.as_ptr().cast::<u8>();
    let access = AccessFlags::all();
    let spec = MrSpec { addr, len: 8, va: Va(addr as u64), pd: PD, access };
    // SAFETY: the word outlives the table's use, and the program changes it by atomics only.
    let keys = unsafe { table.register(&spec) }.unwrap();
    std::thread::scope(|scope| {
        for lcore in 0..2 {
            let reader = MrReader::new(Arc::clone(&table), lcore);
            let va = spec.va;
            scope.spawn(move || {
                for _ in 0..ADDS {
                    let access = reader.enter();
                    access.atomic(BY, keys.rkey, va, AtomicOp::FetchAdd { add: 1 }).unwrap();
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..ADDS {
                word.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    assert_eq!(word.load(Ordering::Relaxed), 3 * ADDS);
}

#[test] //= check D8 test
fn a_million_adds_of_each_of_16_qps_on_four_lcores_add_up() {
    const ADDS: u64 = 1_000_000;
    let table = Arc::new(MrTable::new(4, 4, Numbers::random(4).unwrap()));
    let word = AtomicU64::new(0);
    let addr = word.as_ptr().cast::<u8>();
    let access = AccessFlags::all();
    let spec = MrSpec { addr, len: 8, va: Va(addr as u64), pd: PD, access };
    // SAFETY: the word outlives the table's use, and nothing else accesses it meanwhile.
    let keys = unsafe { table.register(&spec) }.unwrap();
    std::thread::scope(|scope| {
        for lcore in 0..4 {
            let reader = MrReader::new(Arc::clone(&table), lcore);
            let va = spec.va;
            scope.spawn(move || {
                for index in 0..4 * ADDS {
                    let qpn = Qpn::new((lcore as u32) << 8 | (index % 4) as u32);
                    let access = reader.enter();
                    let add = AtomicOp::FetchAdd { add: 1 };
                    access.atomic(Accessor { pd: PD, qpn }, keys.rkey, va, add).unwrap();
                }
            });
        }
    });
    assert_eq!(word.load(Ordering::Relaxed), 16 * ADDS);
}

#[test]
fn a_region_without_memory_reads_as_zeros_and_discards_what_is_written() {
    let fixture = Fixture::new(AccessFlags::LOCAL_WRITE);
    let lkey = fixture.table.alloc_null(PD).unwrap();
    let access = fixture.reader.enter();
    for va in [0, 1, 4096, u64::MAX - 8] {
        let region = Region { key: Key::Local(lkey), va: Va(va), len: 7 };
        let mut out = [1; 7];
        assert_eq!(access.write(BY, region, &out), Ok(()));
        assert_eq!(access.read(BY, region, &mut out), Ok(()));
        assert_eq!(out, [0; 7]);
    }
    // A peer that guesses the key can do nothing with it.
    let remote = Region { key: Key::Remote(Rkey(lkey.0)), va: Va(4096), len: 8 };
    for wish in [AccessKind::Read, AccessKind::Write, AccessKind::Atomic] {
        assert_eq!(access.check(BY, remote, wish), Err(MemoryFault::NotGranted));
    }
}
