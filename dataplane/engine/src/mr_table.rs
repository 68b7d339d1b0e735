//! Memory regions: key → where the memory is and what may be done with it.
//!
//! A direct-mapped array of pointers, read by lcores with one acquire load, replaced by any
//! thread. Registration publishes an entry. Deregistration unpublishes it, waits until each lcore
//! that was in a turn has ended it ([`crate::qsbr`]), and frees it: after it has returned nothing
//! touches the memory again.
//!
//! Invariants
//! - An entry never changes while it is published.
//! - An entry is reached only through an [`Access`], which exists only within an lcore's turn and
//!   bounds the life of what it found.
//! - [`offset_in`] grants no byte outside of a region, whatever the numbers are.
//!
//! Not here: the copies ([`crate::memory`]), protection domains as objects (they are numbers).

#![allow(unsafe_code)]

use crate::key::{Numbers, Recent, Slots};
use crate::qsbr::{InTurn, Turns};
use crate::sync::{AtomicPtr, Mutex, Ordering};
use std::ptr;
use std::sync::{Arc, PoisonError};
use uroce_transport::{AccessFlags, Pd};
use uroce_wire::{Lkey, Rkey, Va};

/// Memory to be registered.
#[derive(Clone, Copy, Debug)]
pub struct MrSpec {
    /// First byte.
    pub addr: *mut u8,
    /// Bytes. A region of length 0 is possible and grants nothing.
    pub len: usize,
    /// The address by which work requests and peers name the first byte; usually `addr` itself.
    pub va: Va,
    /// The protection domain it belongs to.
    pub pd: Pd,
    /// What peers may do with it, and whether it may be written at all.
    pub access: AccessFlags,
}

/// The keys of a region. Both have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MrKeys {
    /// For the application's own work requests.
    pub lkey: Lkey,
    /// For peers.
    pub rkey: Rkey,
}

/// Why memory was not registered or deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MrError {
    /// As many regions are registered as the engine was started for.
    #[error("no memory region is left")]
    TableFull,
    /// The range of memory, or of the addresses it is named by, wraps past 2^64.
    #[error("the range wraps past the end of the address space")]
    Wraps,
    /// Remote write or atomic access without local write access.
    #[error("remote write and atomic access need local write access")]
    NeedsLocalWrite,
    /// Remote atomic access, but `addr` and `va` differ in their last three bits: a word aligned
    /// by its address would not be by its name.
    #[error("atomic access needs an address and a name equally aligned to 8 bytes")]
    Misaligned,
    /// No region has this key.
    #[error("no memory region has this key")]
    UnknownKey,
}

/// A registered region.
#[derive(Debug)]
pub(crate) struct MrEntry {
    key: u32,
    pub(crate) pd: Pd,
    pub(crate) access: AccessFlags,
    va: u64,
    len: u64,
    base: *mut u8,
}

// SAFETY: the pointer is only a number here; the copies in `memory.rs` that use it say why they
// may, from whatever thread.
unsafe impl Send for MrEntry {}
// SAFETY: as above, and an entry is never written while shared.
unsafe impl Sync for MrEntry {}

impl MrEntry {
    /// The place of `[va, va + len)`, if the region holds all of it.
    #[inline]
    pub(crate) fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let offset = offset_in(self.va, self.len, va, len)?;
        // At most `len` of the region, which is a `usize` (`MrSpec`).
        Some(self.base.wrapping_add(offset as usize))
    }
}

/// How far `[va, va + len)` lies inside of the region `[region_va, region_va + region_len)`, or
/// `None` if any byte of it lies outside or the range wraps past 2^64. A region of length 0 holds
/// nothing, not even an empty range.
//= check F2 — no sum is ever formed, so none wraps
//= check F3 — the exact boundaries
//= check F7 — a zero-length region grants nothing
#[inline]
const fn offset_in(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
    let Some(offset) = va.checked_sub(region_va) else { return None };
    let Some(room) = region_len.checked_sub(offset) else { return None };
    if len <= room && region_len > 0 { Some(offset) } else { None }
}

impl crate::Engine {
    /// Registers memory.
    ///
    /// # Errors
    /// See [`MrError`].
    ///
    /// # Safety
    /// Until [`deregister_mr`](Engine::deregister_mr) has returned or the engine is shut down, the
    /// `len` bytes at `addr` stay mapped, readable, and writable if `access` has a write right. The
    /// engine may read and, with a write right, write them at any time from its threads, so the
    /// program keeps no reference that forbids it (no `&mut`, and no `&` if there is a write
    /// right), and reads what others write only where it knows them to be done, or by volatile or
    /// atomic accesses. Words used by ATOMIC operations are changed by atomics only. The memory is
    /// not a mempool's.
    pub unsafe fn register_mr(&self, spec: &MrSpec) -> Result<MrKeys, MrError> {
        // SAFETY: the caller's promise is `register`'s.
        unsafe { self.shared.regions.register(spec) }
    }
}

/// All regions of an engine.
#[derive(Debug)]
pub(crate) struct MrTable {
    numbers: Numbers,
    entries: Box<[AtomicPtr<MrEntry>]>,
    slots: Mutex<Slots>,
    turns: Turns,
}

impl MrTable {
    /// Room for `slots` regions, read by `lcores` lcores.
    pub(crate) fn new(slots: u32, lcores: usize, numbers: Numbers) -> MrTable {
        let entries = slots.next_power_of_two();
        MrTable {
            numbers,
            entries: (0..entries).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            slots: Mutex::new(Slots::new(slots)),
            turns: Turns::new(lcores),
        }
    }

    /// See [`Turns::heartbeat`].
    pub(crate) fn heartbeat(&self, lcore: usize) -> u64 {
        self.turns.heartbeat(lcore)
    }

    /// Publishes a region.
    ///
    /// # Errors
    /// See [`MrError`].
    ///
    /// # Safety
    /// Until [`deregister`](MrTable::deregister) has returned, the `len` bytes at `addr` stay
    /// mapped with the rights that `access` needs, and may be read and, with a write right,
    /// written at any time: the program keeps no reference that forbids it.
    pub(crate) unsafe fn register(&self, spec: &MrSpec) -> Result<MrKeys, MrError> {
        let len = check(spec)?;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |index, generation| self.numbers.key(index, generation);
        let (index, key) = slots.take(name, &[0, u32::MAX]).ok_or(MrError::TableFull)?;
        let &MrSpec { addr: base, va: Va(va), pd, access, .. } = spec;
        let entry = Box::new(MrEntry { key, pd, access, va, len, base });
        self.publish(index, Box::into_raw(entry));
        Ok(MrKeys { lkey: Lkey(key), rkey: Rkey(key) })
    }

    /// Removes a region and returns once no lcore looks at it or its memory any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`].
    pub(crate) fn deregister(&self, lkey: Lkey) -> Result<(), MrError> {
        let index = self.numbers.index_of_key(lkey.0);
        let entry = {
            // Excludes another deregistration of the same key between the look and the swap.
            let _slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = self.entries[index].load(Ordering::Acquire);
            // SAFETY: entries are freed below, by who has swapped them out under this lock; this
            // one is still in.
            let found = unsafe { entry.as_ref() }.filter(|entry| entry.key == lkey.0);
            if found.is_none() {
                return Err(MrError::UnknownKey);
            }
            self.entries[index].swap(ptr::null_mut(), Ordering::AcqRel)
        };
        // Without the lock: others may register meanwhile. The slot is not free yet, so nobody
        // publishes in it.
        self.turns.wait();
        // SAFETY: `register` made it of a box. We have swapped it out, so nobody else frees it;
        // each turn that could have loaded it has ended (`wait`), and an `Access` bounds its use.
        drop(unsafe { Box::from_raw(entry) });
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).give_back(index as u32);
        Ok(())
    }

    /// Pairs with the load in `find`: who sees the pointer sees the entry.
    fn publish(&self, index: u32, entry: *mut MrEntry) {
        self.entries[index as usize].store(entry, Ordering::Release);
    }
}

impl Drop for MrTable {
    fn drop(&mut self) {
        for entry in &mut self.entries {
            let entry = *entry.get_mut();
            if !entry.is_null() {
                // SAFETY: `register` made it of a box and `deregister` did not free it, as it is
                // still in. No lcore is left: each keeps the table alive.
                drop(unsafe { Box::from_raw(entry) });
            }
        }
    }
}

/// The table as one lcore has it.
#[derive(Debug)]
pub(crate) struct MrReader {
    table: Arc<MrTable>,
    lcore: usize,
    recent: Recent,
}

impl MrReader {
    /// Of lcore `lcore`, which has no other.
    pub(crate) fn new(table: Arc<MrTable>, lcore: usize) -> MrReader {
        let recent = Recent::new(&table.numbers);
        MrReader { table, lcore, recent }
    }

    /// Begins a turn, in which the lcore may look at entries.
    #[inline]
    pub(crate) fn enter(&self) -> Access<'_> {
        Access {
            table: &self.table,
            recent: &self.recent,
            _turn: self.table.turns.enter(self.lcore),
        }
    }
}

/// The table within one turn.
#[derive(Debug)]
pub(crate) struct Access<'t> {
    table: &'t MrTable,
    recent: &'t Recent,
    _turn: InTurn<'t>,
}

impl Access<'_> {
    /// The region of a key. It cannot be kept beyond the turn.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<&MrEntry> {
        let index = self.recent.index_of_key(&self.table.numbers, key);
        // Pairs with `publish`.
        let entry = self.table.entries.get(index)?.load(Ordering::Acquire);
        // SAFETY: an entry that was in the table during our turn is freed only after the turn
        // (`deregister` waits for it), and the reference ends with `self`, which is the turn.
        let entry = unsafe { entry.as_ref() }?;
        (entry.key == key).then_some(entry)
    }
}

/// The rules of registration; the length of a region that keeps them.
fn check(spec: &MrSpec) -> Result<u64, MrError> {
    let len = spec.len as u64;
    // The end may be 2^64 itself: the last byte, not the one after it, must be nameable.
    let last = len.saturating_sub(1);
    if (spec.addr as u64).checked_add(last).is_none() || spec.va.0.checked_add(last).is_none() {
        return Err(MrError::Wraps);
    }
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if spec.access.intersects(writes) && !spec.access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(MrError::NeedsLocalWrite);
    }
    let skewed = !(spec.addr as u64 ^ spec.va.0).is_multiple_of(8);
    if spec.access.contains(AccessFlags::REMOTE_ATOMIC) && skewed {
        return Err(MrError::Misaligned);
    }
    Ok(len)
}

#[cfg(test)]
mod tests;
