//! Q2: key → region and the copy from its memory, against deregistration.
//!
//! Lcores make turns in which they look a key up and touch the memory twice; the application frees
//! the memory once `deregister` has returned, which loom takes for a race with any touch that is
//! not over. Not seen: the copy itself, which goes through raw pointers; memory windows.

use crate::key::Numbers;
use crate::mr_table::{MrError, MrKeys, MrReader, MrSpec, MrTable};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::{Arc, LazyLock};
use uroce_transport::{AccessFlags, Pd};
use uroce_wire::Va;

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(1).expect("randomness"));

/// Memory that an application registers: a cell for each region's place.
type Memory = Arc<[UnsafeCell<u8>; 2]>;

fn memory() -> Memory {
    Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)])
}

fn table(lcores: usize) -> Arc<MrTable> {
    Arc::new(MrTable::new(1, lcores, NUMBERS.clone()))
}

/// Registers the eight bytes that stand for cell `cell`.
fn register(table: &MrTable, cell: u64) -> MrKeys {
    let (addr, va) = (std::ptr::dangling_mut(), Va(8 * cell));
    let spec = MrSpec { addr, len: 8, va, pd: Pd(1), access: AccessFlags::LOCAL_WRITE };
    // SAFETY: nobody here copies from or to it.
    unsafe { table.register(&spec) }.expect("a free slot")
}

/// A turn of an lcore that was given `keys`, the key of cell `cell`: looks it up and works on the
/// memory. Says whether it was found.
fn turn(reader: &MrReader, keys: MrKeys, cell: usize, memory: &Memory) -> bool {
    let access = reader.enter();
    let Some(entry) = access.find(keys.rkey.0) else { return false };
    assert!(entry.place(8 * cell as u64, 8).is_some(), "another region by the same key");
    assert_eq!(entry.pd, Pd(1));
    for _ in 0..2 {
        // SAFETY: the region is registered until the turn's end; loom says if not.
        memory[cell].with(|byte| unsafe { *byte });
    }
    true
}

/// The application's own use of memory that is not registered any more.
fn free(memory: &Memory, cell: usize) {
    // SAFETY: nobody else touches it; loom says if not.
    memory[cell].with_mut(|byte| unsafe { *byte = 1 });
}

pub(crate) fn register_beside_a_turn() {
    let (table, memory) = (table(1), memory());
    // The key that the slot's first region has.
    let key = register(&self::table(1), 0);
    let reader = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || turn(&reader, key, 0, &memory)
    });
    // What the application wrote before it registered, the lcore reads.
    free(&memory, 0);
    assert_eq!(register(&table, 0), key);
    lcore.join().expect("no panic");
}

pub(crate) fn deregister() {
    let (table, memory) = (table(1), memory());
    let keys = register(&table, 0);
    let reader = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let first = turn(&reader, keys, 0, &memory);
            let second = turn(&reader, keys, 0, &memory);
            assert!(first || !second, "found again after it was gone");
        }
    });
    table.deregister(keys.lkey).expect("registered");
    free(&memory, 0);
    lcore.join().expect("no panic");
}

pub(crate) fn two_lcores() {
    let (table, memory) = (table(2), memory());
    let keys = register(&table, 0);
    let lcores = [0, 1].map(|lcore| {
        let reader = MrReader::new(Arc::clone(&table), lcore);
        let memory = Arc::clone(&memory);
        thread::spawn(move || turn(&reader, keys, 0, &memory))
    });
    table.deregister(keys.lkey).expect("registered");
    free(&memory, 0);
    for lcore in lcores {
        lcore.join().expect("no panic");
    }
}

pub(crate) fn reuse() {
    let (table, memory) = (table(1), memory());
    let old = register(&table, 0);
    let reader = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            turn(&reader, old, 0, &memory);
            turn(&reader, old, 0, &memory);
        }
    });
    table.deregister(old.lkey).expect("registered");
    free(&memory, 0);
    // The only slot there is.
    let new = register(&table, 1);
    assert_ne!(new, old);
    table.deregister(new.lkey).expect("registered");
    free(&memory, 1);
    lcore.join().expect("no panic");
}

pub(crate) fn twice() {
    let (table, memory) = (table(1), memory());
    let keys = register(&table, 0);
    let reader = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || turn(&reader, keys, 0, &memory)
    });
    let other = thread::spawn({
        let (table, memory) = (Arc::clone(&table), Arc::clone(&memory));
        move || {
            let result = table.deregister(keys.lkey);
            result.map(|()| free(&memory, 0))
        }
    });
    let result = table.deregister(keys.lkey).map(|()| free(&memory, 0));
    let other = other.join().expect("no panic");
    assert!([result, other].contains(&Ok(())));
    assert!([result, other].contains(&Err(MrError::UnknownKey)));
    lcore.join().expect("no panic");
}
