use super::*;
use crate::sync::{AtomicBool, Meetings};
use std::sync::Arc;

fn table(slots: u32, lcores: usize) -> Arc<MrTable> {
    Arc::new(MrTable::new(slots, lcores, Numbers::random(slots).unwrap()))
}

fn reader(table: &Arc<MrTable>) -> MrReader {
    MrReader::new(Arc::clone(table), 0)
}

fn spec(bytes: &mut [u8]) -> MrSpec {
    let addr = bytes.as_mut_ptr();
    let access = AccessFlags::LOCAL_WRITE;
    MrSpec { addr, len: bytes.len(), va: Va(addr as u64), pd: Pd(1), access }
}

fn register(table: &MrTable, spec: &MrSpec) -> Result<MrKeys, MrError> {
    // SAFETY: in these tests no copy is made from or to the registered memory.
    unsafe { table.register(spec) }
}

/// The definition of a range's offset, in 128 bits, where nothing wraps.
fn oracle(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
    let [region, region_len, from, len] = [region_va, region_len, va, len].map(u128::from);
    let inside = from >= region && from + len <= region + region_len && region_len > 0;
    inside.then(|| (from - region) as u64)
}

#[test] //= check F2 test
fn offset_agrees_with_128_bit_arithmetic_at_every_edge() {
    let mut edges = vec![0u64];
    for anchor in [0, 1 << 31, 1 << 32, 1 << 63, u64::MAX, 0xffff_ffff_ffff_fff8] {
        for distance in [0, 1, 2, 7, 8, 9, 4095, 4096] {
            edges.push(anchor.wrapping_add(distance));
            edges.push(anchor.wrapping_sub(distance));
        }
    }
    edges.sort_unstable();
    edges.dedup();
    let mut granted = 0u64;
    for &region_va in &edges {
        for &region_len in &edges {
            // Registration refuses a region that wraps.
            if region_va.checked_add(region_len.saturating_sub(1)).is_none() {
                continue;
            }
            for &va in &edges {
                for &len in &edges {
                    let offset = offset_in(region_va, region_len, va, len);
                    assert_eq!(offset, oracle(region_va, region_len, va, len));
                    granted += u64::from(offset.is_some());
                }
            }
        }
    }
    assert!(granted > 1000, "the edges must meet both answers");
}

#[test] //= check F3 test
fn one_byte_before_or_after_the_region_is_outside() {
    assert_eq!(offset_in(100, 10, 100, 10), Some(0));
    assert_eq!(offset_in(100, 10, 109, 1), Some(9));
    assert_eq!(offset_in(100, 10, 110, 0), Some(10));
    assert_eq!(offset_in(100, 10, 99, 1), None);
    assert_eq!(offset_in(100, 10, 100, 11), None);
    assert_eq!(offset_in(100, 10, 110, 1), None);
    assert_eq!(offset_in(100, 10, 111, 0), None);
}

#[test] //= check F7 test
fn a_zero_length_region_grants_nothing() {
    let table = table(4, 1);
    let mut bytes = [0u8; 8];
    let keys = register(&table, &MrSpec { len: 0, ..spec(&mut bytes) }).unwrap();
    let reader = reader(&table);
    let access = reader.enter();
    let entry = access.find(keys.rkey.0).unwrap();
    let va = bytes.as_ptr() as u64;
    for (va, len) in [(va, 0), (va, 1), (va, u64::MAX), (0, 0), (0, u64::MAX), (va - 1, 1)] {
        assert_eq!(entry.place(va, len), None);
    }
}

#[test]
fn a_region_up_to_the_end_of_the_address_space_is_possible_and_one_beyond_is_not() {
    let table = table(4, 1);
    let mut bytes = [0u8; 16];
    let spec = spec(&mut bytes);
    let last = MrSpec { va: Va(u64::MAX - 15), ..spec };
    let keys = register(&table, &last).unwrap();
    let reader = reader(&table);
    let access = reader.enter();
    let entry = access.find(keys.lkey.0).unwrap();
    assert!(entry.place(u64::MAX - 15, 16).is_some());
    assert_eq!(entry.place(u64::MAX - 15, 17), None);
    assert_eq!(entry.place(u64::MAX, 2), None);
    drop(access);
    let beyond = MrSpec { va: Va(u64::MAX - 14), ..spec };
    assert_eq!(register(&table, &beyond), Err(MrError::Wraps));
    let wrapping = MrSpec { len: usize::MAX, ..spec };
    assert_eq!(register(&table, &wrapping), Err(MrError::Wraps));
}

#[test]
fn rights_that_contradict_each_other_are_refused() {
    let table = table(4, 1);
    let mut bytes = [0u64; 2];
    let addr = bytes.as_mut_ptr().cast::<u8>();
    let spec = |access, va| MrSpec { addr, len: 16, va: Va(va), pd: Pd(1), access };
    for access in [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC] {
        assert_eq!(register(&table, &spec(access, 64)), Err(MrError::NeedsLocalWrite));
    }
    let atomic = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    assert_eq!(register(&table, &spec(atomic, 65)), Err(MrError::Misaligned));
    assert!(register(&table, &spec(atomic, 64)).is_ok());
    assert!(register(&table, &spec(AccessFlags::REMOTE_READ, 65)).is_ok());
}

#[test]
fn keys_are_found_from_registration_to_deregistration() {
    let table = table(4, 1);
    let mut bytes = [0u8; 8];
    let keys: Vec<_> = (0..4).map(|_| register(&table, &spec(&mut bytes)).unwrap()).collect();
    assert_eq!(register(&table, &spec(&mut bytes)), Err(MrError::TableFull));
    for key in &keys {
        assert!(reader(&table).enter().find(key.rkey.0).is_some());
        assert!(reader(&table).enter().find(key.rkey.0 ^ 1).is_none());
    }
    assert_eq!(table.deregister(keys[1].lkey), Ok(()));
    assert_eq!(table.deregister(keys[1].lkey), Err(MrError::UnknownKey));
    assert!(reader(&table).enter().find(keys[1].rkey.0).is_none());
    let reused = register(&table, &spec(&mut bytes)).unwrap();
    assert_ne!(reused, keys[1], "a stale key must not open the new region");
    assert!(reader(&table).enter().find(keys[1].rkey.0).is_none());
    assert!(reader(&table).enter().find(reused.rkey.0).is_some());
}

/// Lcores look up regions while others are registered and deregistered: a deregistered region is
/// never in use afterwards.
#[test] //= check F6 test
fn no_lcore_uses_a_region_after_its_deregistration() {
    const LCORES: usize = 2;
    const LIVE: u8 = 1;
    let table = table(4, LCORES);
    let stop = Arc::new(AtomicBool::new(false));
    let key = Arc::new(crate::sync::AtomicU32::new(0));
    let found = Arc::new(Meetings::default());
    // One byte per generation of the region; 0 once its deregistration has returned.
    let memory: Arc<Vec<crate::sync::AtomicU8>> =
        Arc::new((0..8).map(|_| crate::sync::AtomicU8::new(0)).collect());
    let lcores: Vec<_> = (0..LCORES)
        .map(|lcore| {
            let reader = MrReader::new(Arc::clone(&table), lcore);
            let (stop, key) = (Arc::clone(&stop), Arc::clone(&key));
            let (memory, found) = (Arc::clone(&memory), Arc::clone(&found));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let access = reader.enter();
                    let Some(entry) = access.find(key.load(Ordering::Relaxed)) else { continue };
                    found.note();
                    for _ in 0..4 {
                        let byte = memory[entry.va as usize].load(Ordering::Relaxed);
                        assert_eq!(byte, LIVE, "used after its deregistration returned");
                    }
                }
            })
        })
        .collect();
    let mut bytes = [0u8; 1];
    for round in 0..1024 {
        let place = round % memory.len();
        memory[place].store(LIVE, Ordering::Relaxed);
        let spec = MrSpec { va: Va(place as u64), ..spec(&mut bytes) };
        let keys = register(&table, &spec).unwrap();
        key.store(keys.lkey.0, Ordering::Relaxed);
        if round % 64 == 0 {
            found.wait();
        }
        table.deregister(keys.lkey).unwrap();
        memory[place].store(0, Ordering::Relaxed);
    }
    stop.store(true, Ordering::Relaxed);
    lcores.into_iter().for_each(|lcore| lcore.join().unwrap());
}

#[test]
fn a_region_that_is_registered_anew_keeps_its_keys_and_loses_all_else() {
    let table = table(4, 1);
    let (mut old, mut new) = ([0u8; 8], [0u8; 4]);
    let (old, new) = (spec(&mut old), MrSpec { pd: Pd(2), ..spec(&mut new) });
    let keys = register(&table, &old).unwrap();
    // SAFETY: no copy is made from or to the memory.
    unsafe { table.reregister(keys.lkey, &new) }.unwrap();
    let reader = reader(&table);
    let access = reader.enter();
    let entry = access.find(keys.rkey.0).unwrap();
    assert_eq!((entry.pd, entry.place(new.va.0, 4)), (Pd(2), Some(new.addr)));
    assert_eq!(entry.place(old.va.0, 8), None);
    drop(access);
    let wraps = MrSpec { va: Va(u64::MAX), ..new };
    // SAFETY: no copy is made from or to the memory.
    assert_eq!(unsafe { table.reregister(keys.lkey, &wraps) }, Err(MrError::Wraps));
    assert!(reader.enter().find(keys.rkey.0).is_some(), "as it was");
    assert_eq!(table.deregister(keys.lkey), Ok(()));
    // SAFETY: no copy is made from or to the memory.
    assert_eq!(unsafe { table.reregister(keys.lkey, &new) }, Err(MrError::UnknownKey));
}

#[test]
fn memory_at_the_null_address_is_refused() {
    let nowhere = MrSpec { addr: ptr::null_mut(), ..spec(&mut [0u8; 8]) };
    assert_eq!(register(&table(4, 1), &nowhere), Err(MrError::NoMemory));
    assert!(register(&table(4, 1), &MrSpec { len: 0, ..nowhere }).is_ok());
}
