//! Q2: look-up of a key and access to its region's memory, against deregistration.
//!
//! In its turns an lcore looks a key up and accesses the memory twice. The application frees the
//! memory once `deregister` has returned; loom reports a race with any access that is not over. Not
//! modelled: the copy itself, which uses raw pointers.

use crate::memory::mr_table::{MrError, MrKeys, MrReader, MrSpec, MrTable};
use crate::memory::mw::MwType;
use crate::table::key::Numbers;
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::{Arc, LazyLock};
use uroce_transport::{AccessFlags, Accessor, BindMw, Pd};
use uroce_wire::{Qpn, Rkey, Va};

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(1).expect("randomness"));

/// Memory that an application registers: one cell for each region.
type Memory = Arc<[UnsafeCell<u8>; 2]>;

fn memory() -> Memory {
    Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)])
}

fn table(lcores: usize) -> Arc<MrTable> {
    Arc::new(MrTable::new(1, lcores, NUMBERS.clone()))
}

/// The specification of a region of eight bytes that stands for cell `cell`.
fn spec(cell: u64) -> MrSpec {
    let (addr, va) = (std::ptr::dangling_mut(), Va(8 * cell));
    MrSpec { addr, len: 8, va, pd: Pd(1), access: AccessFlags::LOCAL_WRITE }
}

/// Registers cell `cell`.
fn register(table: &MrTable, cell: u64) -> MrKeys {
    // SAFETY: the address is dangling, and no thread of these models copies from or to it.
    unsafe { table.register(&spec(cell)) }.expect("a free slot")
}

/// A turn of an lcore with `keys`, the keys of cell `cell`: looks the key up and accesses the
/// memory. Returns whether the key was found.
fn turn(reader: &MrReader, keys: MrKeys, cell: usize, memory: &Memory) -> bool {
    let access = reader.enter();
    let Some(entry) = access.find(keys.rkey.0) else { return false };
    assert!(entry.place(8 * cell as u64, 8).is_some(), "another region by the same key");
    assert_eq!(entry.pd, Pd(1));
    for _ in 0..2 {
        // SAFETY: the region is registered until the turn's end; loom reports a race if not.
        memory[cell].with(|byte| unsafe { *byte });
    }
    true
}

/// The application's own use of memory that is not registered, or not registered any more.
fn free(memory: &Memory, cell: usize) {
    // SAFETY: no other thread accesses the cell; loom reports a race if one does.
    memory[cell].with_mut(|byte| unsafe { *byte = 1 });
}

pub(crate) fn register_beside_a_turn() {
    let (table, memory) = (table(1), memory());
    // The key that the slot's first region gets.
    let key = register(&self::table(1), 0);
    let reader = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || turn(&reader, key, 0, &memory)
    });
    // The lcore must see what the application wrote before it registered.
    free(&memory, 0);
    assert_eq!(register(&table, 0), key);
    lcore.join().expect("no panic");
}

pub(crate) fn register_anew() {
    let (table, memory) = (table(1), memory());
    let keys = register(&table, 0);
    let reader = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let access = reader.enter();
            let entry = access.find(keys.rkey.0).expect("registered all the time");
            let cell = usize::from(entry.place(0, 8).is_none());
            // SAFETY: the region is registered until the turn's end; loom reports a race if not.
            memory[cell].with(|byte| unsafe { *byte });
        }
    });
    // The lcore must see what the application wrote before it registered anew.
    free(&memory, 1);
    // SAFETY: the address is dangling, and no thread of these models copies from or to it.
    unsafe { table.reregister(keys.lkey, &spec(1)) }.expect("registered");
    free(&memory, 0);
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
    // The table's only slot.
    let new = register(&table, 1);
    assert_ne!(new, old);
    table.deregister(new.lkey).expect("registered");
    free(&memory, 1);
    lcore.join().expect("no panic");
}

/// A peer writes through a window while another lcore invalidates the window and the application
/// deregisters its region.
pub(crate) fn window() {
    static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(2).expect("randomness"));
    let table = Arc::new(MrTable::new(2, 2, NUMBERS.clone()));
    let memory = memory();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    let spec = MrSpec { addr: std::ptr::dangling_mut(), len: 8, va: Va(0), pd: Pd(1), access };
    // SAFETY: the address is dangling, and no thread of these models copies from or to it.
    let region = unsafe { table.register(&spec) }.expect("a free slot");
    let rkey = table.alloc_mw(Pd(1), MwType::Type2).expect("a free slot");
    let by = Accessor { pd: Pd(1), qpn: Qpn::new(2) };
    let [user, owner] = [0, 1].map(|lcore| MrReader::new(Arc::clone(&table), lcore));
    let rights = AccessFlags::REMOTE_WRITE;
    let bind =
        BindMw { rkey, new_rkey: rkey, lkey: region.lkey, va: Va(0), len: 8, access: rights };
    owner.enter().bind(by, &bind).expect("bound to what is there");
    assert_eq!(table.deregister(region.lkey), Err(MrError::Busy));
    let user = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let access = user.enter();
            let entry = access.at(rkey.0).expect("the window stands");
            let window = entry.window.as_deref().expect("it is a window");
            if let Ok((_, granted, _)) = window.open(by, rkey, 4, 4) {
                assert_eq!(granted, rights);
                // SAFETY: the window is bound in this turn; loom reports a race if not.
                memory[0].with_mut(|byte| unsafe { *byte = 2 });
            }
        }
    });
    let owner = thread::spawn(move || owner.enter().invalidate(by, rkey).expect("bound"));
    if table.deregister(region.lkey).is_ok() {
        free(&memory, 0);
    }
    owner.join().expect("no panic");
    user.join().expect("no panic");
    // In either order, the window no longer holds the region.
    let again = table.deregister(region.lkey);
    assert!(matches!(again, Ok(()) | Err(MrError::UnknownKey)));
}

/// A window is bound while the region under it is deregistered: one of the two fails.
pub(crate) fn window_bind() {
    static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(2).expect("randomness"));
    let table = Arc::new(MrTable::new(2, 1, NUMBERS.clone()));
    let memory = memory();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    let addr: *mut u8 = std::ptr::dangling_mut();
    let spec = MrSpec { addr, len: 8, va: Va(0), pd: Pd(1), access };
    // SAFETY: the address is dangling, and no thread of these models copies from or to it.
    let region = unsafe { table.register(&spec) }.expect("a free slot");
    let rkey = table.alloc_mw(Pd(1), MwType::Type2).expect("a free slot");
    // The key that the window has after the binding.
    let new_rkey = Rkey(rkey.0 ^ 1);
    let by = Accessor { pd: Pd(1), qpn: Qpn::new(2) };
    let rights = AccessFlags::REMOTE_WRITE;
    let bind = BindMw { rkey, new_rkey, lkey: region.lkey, va: Va(4), len: 4, access: rights };
    let owner = MrReader::new(Arc::clone(&table), 0);
    let lcore = thread::spawn({
        let memory = Arc::clone(&memory);
        move || {
            let is_bound = owner.enter().bind(by, &bind).is_ok();
            let access = owner.enter();
            let window = access.at(rkey.0).and_then(|entry| entry.window.as_deref());
            let opened = window.expect("the window stands").open(by, new_rkey, 6, 2);
            assert_eq!(
                opened.map(|(place, ..)| place).ok(),
                is_bound.then(|| addr.wrapping_add(6))
            );
            if is_bound {
                // SAFETY: the window is bound; loom reports a race with the application if not.
                memory[0].with_mut(|byte| unsafe { *byte = 2 });
            }
            is_bound
        }
    });
    let is_gone = table.deregister(region.lkey).is_ok();
    if is_gone {
        free(&memory, 0);
    }
    let is_bound = lcore.join().expect("no panic");
    assert!(is_bound != is_gone, "the one or the other");
}

/// A window is bound again while it is read: the fields read belong to one binding.
pub(crate) fn window_fields() {
    static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| Numbers::random(2).expect("randomness"));
    let table = Arc::new(MrTable::new(2, 2, NUMBERS.clone()));
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND;
    let spec = MrSpec { addr: std::ptr::dangling_mut(), len: 64, va: Va(0), pd: Pd(1), access };
    // SAFETY: the address is dangling, and no thread of these models copies from or to it.
    let region = unsafe { table.register(&spec) }.expect("a free slot");
    let rkey = table.alloc_mw(Pd(1), MwType::Type1).expect("a free slot");
    let by = Accessor { pd: Pd(1), qpn: Qpn::new(2) };
    let [user, owner] = [0, 1].map(|lcore| MrReader::new(Arc::clone(&table), lcore));
    // Two bindings with no byte and no right in common.
    let bind =
        |at, access| BindMw { rkey, new_rkey: rkey, lkey: region.lkey, va: Va(at), len: 8, access };
    let first = bind(0, AccessFlags::REMOTE_READ);
    let second = bind(32, AccessFlags::REMOTE_WRITE);
    owner.enter().bind(by, &first).expect("bound");
    let owner = thread::spawn(move || owner.enter().bind(by, &second).expect("bound again"));
    let access = user.enter();
    let window = access.at(rkey.0).and_then(|entry| entry.window.as_deref()).expect("a window");
    for (va, rights) in [(0, first.access), (32, second.access)] {
        if let Ok((_, granted, _)) = window.open(by, rkey, va, 8) {
            assert_eq!(granted, rights, "torn");
        }
    }
    drop(access);
    owner.join().expect("no panic");
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
