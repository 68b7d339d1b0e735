use super::*;
use crate::memory::mr_table::{MrError, MrKeys, MrReader, MrSpec, MrTable};
use crate::sync::{AtomicBool, Meetings};
use crate::table::key::Numbers;
use std::sync::Arc;
use uroce_transport::{AccessKind, Key, Region};
use uroce_wire::Va;

const PD: Pd = Pd(7);
const BY: Accessor = Accessor { pd: PD, qpn: Qpn::new(5) };
const OTHER_QP: Accessor = Accessor { pd: PD, qpn: Qpn::new(6) };
const OTHER_PD: Accessor = Accessor { pd: Pd(8), qpn: Qpn::new(5) };
const LEN: u64 = 64;

/// A region of 64 bytes to which windows may be bound, and its table.
struct Fixture {
    table: Arc<MrTable>,
    reader: MrReader,
    memory: Vec<u64>,
    keys: MrKeys,
}

impl Fixture {
    fn new(access: AccessFlags) -> Fixture {
        let table = Arc::new(MrTable::new(8, 1, Numbers::random(8).unwrap()));
        let reader = MrReader::new(Arc::clone(&table), 0);
        let mut memory = vec![0u64; 8];
        let addr = memory.as_mut_ptr().cast::<u8>();
        let spec = MrSpec { addr, len: LEN as usize, va: Va(addr as u64), pd: PD, access };
        // SAFETY: the vector is not reallocated and outlives the table's use in each test, which
        // reads it only between the engine's copies.
        let keys = unsafe { table.register(&spec) }.unwrap();
        Fixture { table, reader, memory, keys }
    }

    fn va(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    /// A binding to bytes 16 to 48 with the window's next key.
    fn bind(&self, rkey: Rkey) -> BindMw {
        BindMw {
            rkey,
            new_rkey: next(rkey),
            lkey: self.keys.lkey,
            va: Va(self.va() + 16),
            len: 32,
            access: REMOTE,
        }
    }

    fn region(&self, rkey: Rkey, offset: i64, len: u32) -> Region {
        let va = Va(self.va().wrapping_add_signed(offset));
        Region { key: Key::Remote(rkey), va, len }
    }

    fn opens(&self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        self.reader.enter().check(by, self.region(rkey, 16, 32), AccessKind::Write)
    }
}

/// The key with its low 8 bits counted on.
fn next(rkey: Rkey) -> Rkey {
    Rkey(rkey.0 & !0xff | rkey.0.wrapping_add(1) & 0xff)
}

#[test]
fn a_window_of_type_1_is_bound_again_and_unbound_at_will() {
    let fixture = Fixture::new(AccessFlags::all());
    let first = fixture.table.alloc_mw(PD, MwType::Type1).unwrap();
    assert_eq!(fixture.opens(BY, first), Err(MemoryFault::UnknownKey), "not bound yet");
    let bind = fixture.bind(first);
    fixture.reader.enter().bind(BY, &bind).unwrap();
    let second = bind.new_rkey;
    assert_eq!(fixture.opens(BY, first), Err(MemoryFault::UnknownKey), "a former key");
    assert_eq!(fixture.opens(BY, second), Ok(()));
    assert_eq!(fixture.opens(OTHER_QP, second), Ok(()), "every QP of the domain");
    assert_eq!(fixture.opens(OTHER_PD, second), Err(MemoryFault::WrongPd));

    let again = fixture.bind(second);
    fixture.reader.enter().bind(OTHER_QP, &again).unwrap();
    assert_eq!(fixture.opens(BY, second), Err(MemoryFault::UnknownKey));
    assert_eq!(fixture.opens(BY, again.new_rkey), Ok(()));
    assert_eq!(fixture.reader.enter().invalidate(BY, again.new_rkey), Err(MemoryFault::NotAWindow));
    assert_eq!(fixture.table.deregister(fixture.keys.lkey), Err(MrError::Busy), "once, not twice");

    let unbind = BindMw { len: 0, ..fixture.bind(again.new_rkey) };
    fixture.reader.enter().bind(BY, &unbind).unwrap();
    assert_eq!(fixture.opens(BY, again.new_rkey), Err(MemoryFault::UnknownKey));
    assert_eq!(fixture.opens(BY, unbind.new_rkey), Err(MemoryFault::UnknownKey));
    assert_eq!(fixture.table.deregister(fixture.keys.lkey), Ok(()));
}

#[test] //= check F8 test
fn a_window_of_type_2_opens_to_its_qp_until_it_is_invalidated() {
    let fixture = Fixture::new(AccessFlags::all());
    let first = fixture.table.alloc_mw(PD, MwType::Type2).unwrap();
    let bind = fixture.bind(first);
    let rkey = bind.new_rkey;
    fixture.reader.enter().bind(BY, &bind).unwrap();
    assert_eq!(fixture.opens(BY, rkey), Ok(()));
    assert_eq!(fixture.opens(OTHER_QP, rkey), Err(MemoryFault::WrongQp));
    assert_eq!(fixture.opens(OTHER_PD, rkey), Err(MemoryFault::WrongPd));
    let again = fixture.bind(rkey);
    assert_eq!(fixture.reader.enter().bind(BY, &again), Err(MemoryFault::WindowBound));
    assert_eq!(fixture.opens(BY, rkey), Ok(()), "as it was");

    fixture.reader.enter().invalidate(BY, rkey).unwrap();
    assert_eq!(fixture.opens(BY, rkey), Err(MemoryFault::UnknownKey));
    assert_eq!(fixture.reader.enter().invalidate(BY, rkey), Err(MemoryFault::UnknownKey));
    let by_other = fixture.bind(rkey);
    fixture.reader.enter().bind(OTHER_QP, &by_other).unwrap();
    assert_eq!(fixture.opens(OTHER_QP, by_other.new_rkey), Ok(()));
    assert_eq!(fixture.opens(BY, by_other.new_rkey), Err(MemoryFault::WrongQp));
}

#[test] //= check F9 test
fn what_may_not_be_invalidated_stays() {
    let fixture = Fixture::new(AccessFlags::all());
    let first = fixture.table.alloc_mw(PD, MwType::Type2).unwrap();
    let bind = fixture.bind(first);
    fixture.reader.enter().bind(BY, &bind).unwrap();
    let access = fixture.reader.enter();
    let invalidate = |by, rkey| access.invalidate(by, rkey);
    assert_eq!(invalidate(OTHER_QP, bind.new_rkey), Err(MemoryFault::WrongQp));
    assert_eq!(invalidate(OTHER_PD, bind.new_rkey), Err(MemoryFault::WrongPd));
    assert_eq!(invalidate(BY, first), Err(MemoryFault::UnknownKey), "a former key");
    assert_eq!(invalidate(BY, fixture.keys.rkey), Err(MemoryFault::NotAWindow));
    assert!(invalidate(BY, Rkey(bind.new_rkey.0 ^ 0x8000_0000)).is_err());
    drop(access);
    assert_eq!(fixture.opens(BY, bind.new_rkey), Ok(()));
}

#[test] //= check F3 test
fn a_window_opens_its_own_bytes_and_rights_and_no_more() {
    let fixture = Fixture::new(AccessFlags::all());
    let first = fixture.table.alloc_mw(PD, MwType::Type1).unwrap();
    let bind = BindMw { access: AccessFlags::REMOTE_WRITE, ..fixture.bind(first) };
    fixture.reader.enter().bind(BY, &bind).unwrap();
    let access = fixture.reader.enter();
    let check =
        |offset, len, wish| access.check(BY, fixture.region(bind.new_rkey, offset, len), wish);
    for (offset, len) in [(16, 32), (16, 0), (47, 1), (48, 0), (16, 1)] {
        assert_eq!(check(offset, len, AccessKind::Write), Ok(()), "{len} bytes at {offset}");
    }
    for (offset, len) in [(15, 1), (15, 33), (16, 33), (48, 1), (49, 0), (-1, 1), (0, 64)] {
        let fault = Err(MemoryFault::OutOfRange);
        assert_eq!(check(offset, len, AccessKind::Write), fault, "{len} bytes at {offset}");
    }
    assert_eq!(check(16, 8, AccessKind::Read), Err(MemoryFault::NotGranted));
    assert_eq!(check(16, 8, AccessKind::Atomic), Err(MemoryFault::NotGranted));
    // Windows are for peers only.
    let local = Region {
        key: Key::Local(uroce_wire::Lkey(bind.new_rkey.0)),
        ..fixture.region(first, 16, 8)
    };
    assert_eq!(access.check(BY, local, AccessKind::Read), Err(MemoryFault::UnknownKey));
    access.write(BY, fixture.region(bind.new_rkey, 16, 32), &[0xaa; 32]).unwrap();
    drop(access);
    let expected = [0, 0, u64::MAX / 255 * 0xaa, 0];
    let words = [fixture.memory[0], fixture.memory[1], fixture.memory[5], fixture.memory[6]];
    assert_eq!(words, expected);
}

#[test] //= check F5 test
fn a_binding_that_breaks_a_rule_is_refused_and_changes_nothing() {
    let fixture = Fixture::new(AccessFlags::all());
    let table = &fixture.table;
    for kind in [MwType::Type1, MwType::Type2] {
        let rkey = table.alloc_mw(PD, kind).unwrap();
        let good = fixture.bind(rkey);
        let refused = |bind: BindMw, by| fixture.reader.enter().bind(by, &bind).unwrap_err();
        assert_eq!(refused(good, OTHER_PD), MemoryFault::WrongPd);
        if kind == MwType::Type1 {
            // The low bits of the key of an unbound type-2 window are its consumer's.
            assert_eq!(refused(BindMw { rkey: next(rkey), ..good }, BY), MemoryFault::UnknownKey);
        }
        let foreign = Rkey(rkey.0 ^ 0x100);
        assert_eq!(refused(BindMw { new_rkey: foreign, ..good }, BY), MemoryFault::UnknownKey);
        let region = BindMw { rkey: fixture.keys.rkey, ..good };
        assert_eq!(refused(region, BY), MemoryFault::NotAWindow);
        let no_region = BindMw { lkey: uroce_wire::Lkey(fixture.keys.lkey.0 ^ 1), ..good };
        assert_eq!(refused(no_region, BY), MemoryFault::UnknownKey);
        assert_eq!(refused(BindMw { len: 49, ..good }, BY), MemoryFault::OutOfRange);
        assert_eq!(refused(BindMw { len: u64::MAX, ..good }, BY), MemoryFault::OutOfRange);
        assert_eq!(fixture.opens(BY, good.new_rkey), Err(MemoryFault::UnknownKey));
        fixture.reader.enter().bind(BY, &good).unwrap();
        table.dealloc_mw(rkey).unwrap();
        assert_eq!(table.dealloc_mw(rkey), Err(MrError::UnknownKey));
        assert_eq!(fixture.opens(BY, good.new_rkey), Err(MemoryFault::UnknownKey));
    }
    let type2 = table.alloc_mw(PD, MwType::Type2).unwrap();
    let empty = BindMw { len: 0, ..fixture.bind(type2) };
    assert_eq!(fixture.reader.enter().bind(BY, &empty), Err(MemoryFault::OutOfRange));
    assert_eq!(table.deregister(fixture.keys.lkey), Ok(()), "nothing is bound");
    assert_eq!(table.dealloc_mw(fixture.keys.rkey), Err(MrError::UnknownKey));
}

#[test] //= check F4 test
fn a_region_must_allow_windows_and_for_writing_ones_be_writable() {
    let write = AccessFlags::REMOTE_WRITE;
    let cases = [
        (AccessFlags::LOCAL_WRITE, write, Err(MemoryFault::NotGranted)),
        (AccessFlags::MW_BIND, write, Err(MemoryFault::NotGranted)),
        (AccessFlags::MW_BIND, AccessFlags::REMOTE_ATOMIC, Err(MemoryFault::NotGranted)),
        (AccessFlags::MW_BIND, AccessFlags::REMOTE_READ, Ok(())),
        (AccessFlags::MW_BIND | AccessFlags::LOCAL_WRITE, write, Ok(())),
    ];
    for (region, window, expected) in cases {
        let fixture = Fixture::new(region);
        let rkey = fixture.table.alloc_mw(PD, MwType::Type1).unwrap();
        let bind = BindMw { access: window, ..fixture.bind(rkey) };
        assert_eq!(fixture.reader.enter().bind(BY, &bind), expected, "{region:?} {window:?}");
    }
}

/// One lcore binds and invalidates a window, to one half of a region and then the other; another
/// uses the window; a third thread tries to deregister the region. A thread that finds the window
/// bound sees one whole binding.
#[test] //= check F8 test
fn lcores_never_see_half_a_binding() {
    const ROUNDS: u32 = 50_000;
    let mut fixture = Fixture::new(AccessFlags::all());
    fixture.table = Arc::new(MrTable::new(8, 2, Numbers::random(8).unwrap()));
    let table = &fixture.table;
    let addr = fixture.memory.as_mut_ptr().cast::<u8>();
    let va = Va(addr as u64);
    let spec = MrSpec { addr, len: LEN as usize, va, pd: PD, access: AccessFlags::all() };
    // SAFETY: the vector is not reallocated and outlives the table's use; the test reads it only
    // between the engine's copies.
    fixture.keys = unsafe { table.register(&spec) }.unwrap();
    let lkey = fixture.keys.lkey;
    let first = table.alloc_mw(PD, MwType::Type2).unwrap();
    let stop = AtomicBool::new(false);
    let shown = AtomicU32::new(first.0);
    let opened = Meetings::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let reader = MrReader::new(Arc::clone(table), 1);
            while !stop.load(Ordering::Relaxed) {
                let rkey = Rkey(shown.load(Ordering::Relaxed));
                let access = reader.enter();
                let window = access.at(rkey.0).unwrap().window.as_deref().unwrap();
                let half = u64::from(rkey.0 % 2) * 32;
                match window.open(BY, rkey, va.0 + half, 32) {
                    Ok((place, ..)) => {
                        assert_eq!(place as u64, va.0 + half, "the place of another binding");
                        opened.note();
                    }
                    Err(fault) => assert_eq!(fault, MemoryFault::UnknownKey),
                }
            }
        });
        let mut rkey = first;
        let reader = MrReader::new(Arc::clone(table), 0);
        for round in 0..ROUNDS {
            let new_rkey = next(rkey);
            let half = u64::from(new_rkey.0 % 2) * 32;
            let (va, len) = (Va(va.0 + half), 32);
            let bind = BindMw { rkey, new_rkey, lkey, va, len, access: REMOTE };
            reader.enter().bind(BY, &bind).unwrap();
            shown.store(new_rkey.0, Ordering::Relaxed);
            if round % 1024 == 0 {
                assert_eq!(table.deregister(lkey), Err(MrError::Busy));
                opened.wait();
            }
            reader.enter().invalidate(BY, new_rkey).unwrap();
            rkey = new_rkey;
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(table.deregister(lkey), Ok(()));
}

/// Two lcores bind the same type-1 window: each binding counts once in the region, whichever
/// succeeds.
#[test]
fn racing_bindings_leave_the_region_with_as_many_as_there_are() {
    let mut fixture = Fixture::new(AccessFlags::all());
    fixture.table = Arc::new(MrTable::new(8, 2, Numbers::random(8).unwrap()));
    let table = &fixture.table;
    let addr = fixture.memory.as_mut_ptr().cast::<u8>();
    let (va, access) = (Va(addr as u64), AccessFlags::all());
    let spec = MrSpec { addr, len: LEN as usize, va, pd: PD, access };
    // SAFETY: the vector is not reallocated and outlives the table's use; the test reads it only
    // between the engine's copies.
    let keys = unsafe { table.register(&spec) }.unwrap();
    let rkey = table.alloc_mw(PD, MwType::Type1).unwrap();
    std::thread::scope(|scope| {
        for lcore in 0..2 {
            scope.spawn(move || {
                let reader = MrReader::new(Arc::clone(table), lcore);
                for round in 0..20_000 {
                    let len = if round % 3 == 0 { 0 } else { 32 };
                    let (lkey, new_rkey) = (keys.lkey, rkey);
                    let bind = BindMw { rkey, new_rkey, lkey, va, len, access: REMOTE };
                    match reader.enter().bind(BY, &bind) {
                        Ok(()) | Err(MemoryFault::UnknownKey) => {}
                        fault => panic!("{fault:?}"),
                    }
                }
            });
        }
    });
    table.dealloc_mw(rkey).unwrap();
    assert_eq!(table.deregister(keys.lkey), Ok(()), "nothing is bound any more");
}

#[test]
fn the_low_bits_of_a_free_window_of_type_2_are_its_consumers() {
    for kind in [MwType::Type1, MwType::Type2] {
        let fixture = Fixture::new(AccessFlags::MW_BIND | AccessFlags::LOCAL_WRITE);
        let rkey = fixture.table.alloc_mw(PD, kind).unwrap();
        let other = fixture.bind(Rkey(rkey.0 ^ 0x55));
        let bound = fixture.reader.enter().bind(BY, &other);
        assert_eq!(bound.is_ok(), kind == MwType::Type2, "{kind:?}");
        let foreign = fixture.bind(Rkey(rkey.0 ^ 0x100));
        assert!(fixture.reader.enter().bind(BY, &foreign).is_err());
    }
}
