//! Faults of accesses to memory that is gone, through the handler.

#![cfg(all(target_arch = "x86_64", not(miri)))]

use super::*;
use std::cell::Cell;
use std::sync::Arc;
use uroce_shared::copy::guarded::{
    Missing, compare_exchange, copy, fetch_add, load_xmm, load_ymm, load_zmm, prepare, prepare_for,
    touch,
};
use uroce_shared::memory::mr_table::{GoneRegion, MrKeys, MrReader, MrSpec, MrTable};
use uroce_shared::table::key::Numbers;
use uroce_transport::{AccessFlags, AccessKind, Accessor, AtomicOp, Key, MemoryFault, Pd, Region};
use uroce_wire::{Icrc, Qpn, Va};

const PAGE: usize = 4096;
const PD: Pd = Pd(7);
const BY: Accessor = Accessor { pd: PD, qpn: Qpn::new(9) };

#[test]
fn what_others_send_is_no_fault() {
    for (signal, code, expected) in [
        (libc::SIGSEGV, 1, true),
        (libc::SIGSEGV, 128, true),
        (libc::SIGBUS, 2, true),
        (libc::SIGBUS, 4, true),
        (libc::SIGBUS, 5, false),
        (libc::SIGSEGV, libc::SI_USER, false),
        (libc::SIGBUS, libc::SI_QUEUE, false),
        (libc::SIGSEGV, libc::SI_TKILL, false),
    ] {
        assert_eq!(is_fault(signal, code), expected, "{signal} {code}");
    }
}

/// Mapped pages, some of which can be made inaccessible.
struct Pages(*mut u8, usize);

impl Pages {
    fn new(count: usize) -> Pages {
        assert!(install());
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses the address of the new mapping.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), count * PAGE, rights, kind, -1, 0) };
        assert_ne!(place, libc::MAP_FAILED);
        Pages(place.cast(), count)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }

    fn protect(&self, page: usize, rights: i32) {
        // SAFETY: the page is part of the mapping, and no reference to it exists.
        assert_eq!(unsafe { libc::mprotect(self.at(page * PAGE).cast(), PAGE, rights) }, 0);
    }

    fn fill(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: callers write only to accessible pages, within the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        // SAFETY: callers read only accessible pages, which nothing else writes.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }.to_vec()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made the mapping with this length, and no reference to it exists.
        unsafe { libc::munmap(self.0.cast(), self.1 * PAGE) };
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + 1) as u8).collect()
}

#[test]
fn bytes_of_any_number_are_copied_and_no_others() {
    let _alone = LOCK.lock().unwrap();
    for wide in [true, false] {
        prepare_for(wide && is_x86_feature_detected!("avx"));
        for len in (0..600).chain([1023, 1024, 4096, 4111, 9000]) {
            for shift in [0, 1, 7, 16, 31] {
                let from = pattern(len + 64, len);
                let mut to = vec![0xee; len + 128];
                let (source, place) = (&from[shift..shift + len], 64 - shift);
                // SAFETY: both ranges are within their vectors.
                let copied = unsafe { copy(source.as_ptr(), to[place..].as_mut_ptr(), len) };
                assert_eq!(copied, Ok(()));
                assert_eq!(to[place..place + len], *source, "{len} bytes, shift {shift}");
                let around = to[..place].iter().chain(&to[place + len..]);
                assert!(around.copied().all(|byte| byte == 0xee), "{len} bytes, shift {shift}");
            }
        }
    }
    prepare();
}

#[test]
fn a_copy_that_meets_a_page_that_is_gone_says_so_wherever_it_is() {
    let _alone = LOCK.lock().unwrap();
    let pages = Pages::new(3);
    pages.protect(1, libc::PROT_NONE);
    for len in [1, 2, 3, 4, 7, 8, 15, 16, 17, 32, 33, 64, 65, 128, 129, 160, 1000, 4096, 5000] {
        // The access has its last byte, or its first, in the page that is gone.
        for first in [PAGE - len.min(PAGE) + 1, 2 * PAGE - 1] {
            let mut own = vec![1; len];
            // SAFETY: the ranges are within the mapping and within the vector.
            let out = unsafe { copy(pages.at(first), own.as_mut_ptr(), len.min(3 * PAGE - first)) };
            assert_eq!(out, Err(Missing), "{len} bytes from {first}");
            // SAFETY: the ranges are within the vector and within the mapping.
            let back = unsafe { copy(own.as_ptr(), pages.at(first), len.min(3 * PAGE - first)) };
            assert_eq!(back, Err(Missing), "{len} bytes to {first}");
        }
    }
    // Memory that is there is copied as before.
    pages.fill(0, &pattern(PAGE, 1));
    let mut own = vec![0; PAGE];
    // SAFETY: the page is accessible, and the vector is as long.
    assert_eq!(unsafe { copy(pages.at(0), own.as_mut_ptr(), PAGE) }, Ok(()));
    assert_eq!(own, pattern(PAGE, 1));
}

/// The bytes of a line's registers.
fn bytes_of<T: Copy>(line: T) -> [u8; 64] {
    assert_eq!(size_of::<T>(), 64);
    // SAFETY: callers pass registers of 64 bytes in which all bits are defined.
    unsafe { std::mem::transmute_copy(&line) }
}

#[test]
fn a_line_of_which_any_part_is_gone_is_loaded_as_zeros_and_noted() {
    let pages = Pages::new(2);
    pages.fill(0, &pattern(PAGE, 5));
    pages.protect(1, libc::PROT_NONE);
    for there in [64, 63, 49, 48, 47, 33, 32, 31, 17, 16, 15, 1, 0] {
        let (from, missing) = (pages.at(PAGE - there), Cell::new(0));
        let check = |line: [u8; 64], width| {
            let (noted, bytes) = (missing.take() != 0, line.to_vec());
            let expected = if there == 64 { pages.bytes(PAGE - 64, 64) } else { vec![0; 64] };
            assert_eq!((noted, bytes), (there < 64, expected), "{there} bytes, {width} at once");
        };
        if is_x86_feature_detected!("avx") {
            // SAFETY: the processor has the registers, and both pages are mapped.
            check(bytes_of(unsafe { load_xmm(from, &missing) }), 16);
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the registers, and both pages are mapped.
            check(bytes_of(unsafe { load_ymm(from, &missing) }), 32);
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the registers, and both pages are mapped.
            check(bytes_of(unsafe { load_zmm(from, &missing) }), 64);
        }
    }
}

#[test]
fn a_copy_to_what_is_read_only_says_so() {
    let pages = Pages::new(1);
    pages.fill(0, &pattern(PAGE, 3));
    pages.protect(0, libc::PROT_READ);
    let mut own = vec![0; 100];
    // SAFETY: the page may be read, and the vector has 100 bytes.
    assert_eq!(unsafe { copy(pages.at(5), own.as_mut_ptr(), 100) }, Ok(()));
    // SAFETY: the range is within the mapping; the page may not be written, which the copy reports.
    assert_eq!(unsafe { copy(own.as_ptr(), pages.at(5), 100) }, Err(Missing));
    assert_eq!(pages.bytes(0, PAGE), pattern(PAGE, 3));
}

#[test]
fn words_that_are_gone_are_not_changed_and_others_are() {
    let pages = Pages::new(2);
    let word = pages.at(PAGE + 16).cast::<u64>();
    pages.fill(PAGE + 16, &5u64.to_ne_bytes());
    // SAFETY: the test owns the word, which is aligned.
    let add = |number| unsafe { fetch_add(word, number) };
    // SAFETY: the test owns the word, which is aligned.
    let exchange = |old, new| unsafe { compare_exchange(word, old, new) };
    let (added, exchanged, kept) = (add(2), exchange(7, 1), exchange(9, 3));
    assert_eq!((added, exchanged, kept), (Ok(5), Ok(7), Ok(1)));
    pages.protect(1, libc::PROT_READ);
    let refused = (add(2), exchange(1, 9));
    assert_eq!(refused, (Err(Missing), Err(Missing)));
    assert_eq!(pages.bytes(PAGE + 16, 8), 1u64.to_ne_bytes());
}

#[test]
fn pages_are_touched_without_being_changed() {
    let pages = Pages::new(4);
    pages.fill(0, &pattern(4 * PAGE, 2));
    let touch = |offset, len, writes| {
        // SAFETY: the range is within the mapping.
        unsafe { touch(pages.at(offset), len, writes) }
    };
    assert_eq!(touch(0, 4 * PAGE, true), Ok(()));
    pages.protect(2, libc::PROT_READ);
    assert_eq!(touch(100, 3 * PAGE, false), Ok(()));
    assert_eq!(touch(100, 2 * PAGE - 100, true), Ok(()));
    assert_eq!(touch(100, 2 * PAGE - 99, true), Err(Missing));
    assert_eq!(touch(2 * PAGE + 4095, 1, true), Err(Missing));
    assert_eq!(touch(2 * PAGE, 0, true), Ok(()));
    pages.protect(2, libc::PROT_NONE);
    assert_eq!(touch(0, 4 * PAGE, false), Err(Missing));
    assert_eq!(touch(3 * PAGE, PAGE, true), Ok(()));
    pages.protect(2, libc::PROT_READ);
    assert_eq!(pages.bytes(0, 4 * PAGE), pattern(4 * PAGE, 2));
}

/// Serializes the tests that choose registers, since that choice is the process's.
static LOCK: Mutex<()> = Mutex::new(());

/// Registers `bytes` bytes of new memory; returns their keys and address.
fn registered(table: &MrTable, bytes: usize) -> (MrKeys, *mut u8) {
    assert!(install());
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses the address of the new mapping, which stays until the process
    // ends.
    let place = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind, -1, 0) };
    assert_ne!(place, libc::MAP_FAILED);
    let addr = place.cast::<u8>();
    let va = Va(addr.expose_provenance() as u64);
    let spec = MrSpec { addr, len: bytes, va, pd: PD, access: AccessFlags::all() };
    // SAFETY: nothing but the engine's copies accesses the mapping.
    (unsafe { table.register(&spec) }.unwrap(), addr)
}

fn protect(place: *mut u8, len: usize) {
    // SAFETY: the pages are of a mapping of the test, and no reference to them exists.
    assert_eq!(unsafe { libc::mprotect(place.cast(), len, libc::PROT_NONE) }, 0);
}

#[test] //= check F16 test
fn each_access_finds_memory_that_is_gone_and_closes_its_region_for_good() {
    for turn in 0..6 {
        let table = Arc::new(MrTable::new(4, 1, Numbers::random(4).unwrap()));
        let reader = MrReader::new(Arc::clone(&table), 0);
        let (keys, addr) = registered(&table, 2 * PAGE);
        let access = reader.enter();
        let at = |offset: usize, len| Region {
            key: Key::Remote(keys.rkey),
            va: Va((addr.addr() + offset) as u64),
            len,
        };
        assert_eq!(access.write(BY, at(0, 8), &[1; 8]), Ok(()));
        protect(addr.wrapping_add(PAGE), PAGE);
        let mut out = [0; 1000];
        let (long, word) = (at(PAGE - 500, 1000), at(PAGE, 8));
        let result = match turn {
            0 => access.write(BY, long, &[2; 1000]),
            1 => access.read(BY, long, &mut out),
            2 => access.read_summed(BY, long, &mut out, Icrc(0)).map(drop),
            3 => access.atomic(BY, keys.rkey, word.va, AtomicOp::FetchAdd { add: 1 }).map(drop),
            4 => access.write_word(BY, keys.rkey, word.va, [3; 8]),
            _ => {
                let op = AtomicOp::CompareSwap { compare: 0, swap: 1 };
                access.atomic(BY, keys.rkey, word.va, op).map(drop)
            }
        };
        assert_eq!(result, Err(MemoryFault::Gone), "turn {turn}");
        // An access of which a part is there fails in the same turn with another error.
        assert_eq!(access.write(BY, at(0, 8), &[1; 8]), Err(MemoryFault::OutOfRange));
        assert_eq!(access.check(BY, at(0, 8), AccessKind::Read), Err(MemoryFault::OutOfRange));
        let told = GoneRegion { lkey: keys.lkey, addr: addr.addr(), len: 2 * PAGE as u64 };
        assert_eq!(table.gone().pop(), Some(told));
        assert_eq!(table.gone().pop(), None);
        drop(access);
        table.deregister(keys.lkey).unwrap();
    }
}

#[test] //= check F16 test
fn copies_and_sums_of_every_length_find_a_page_that_is_gone() {
    let mut out = [0; 2 * PAGE];
    for len in [1, 15, 64, 255, 256, 257, 320, 511, 1000, 4096] {
        for before in [0, 1, 63, 64, 200, 255] {
            let table = Arc::new(MrTable::new(4, 1, Numbers::random(4).unwrap()));
            let reader = MrReader::new(Arc::clone(&table), 0);
            let (keys, addr) = registered(&table, 3 * PAGE);
            protect(addr.wrapping_add(2 * PAGE), PAGE);
            let before = before.min(len - 1);
            let va = Va((addr.addr() + 2 * PAGE - before) as u64);
            let region = Region { key: Key::Remote(keys.rkey), va, len: len as u32 };
            let access = reader.enter();
            let result = access.read_summed(BY, region, &mut out[..len], Icrc(0));
            assert_eq!(result, Err(MemoryFault::Gone), "{len} bytes, {before} of them there");
        }
    }
}
