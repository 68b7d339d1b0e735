//! Memory regions and windows: maps a key to its memory and access rights.
//!
//! Read first: IBA 10.6 (memory management).
//!
//! A direct-mapped array of pointers that lcores read with one acquire load and any thread may
//! change. Registration publishes an entry. Deregistration unpublishes it, waits until each lcore
//! that was in a turn has ended the turn ([`crate::table::qsbr`]), and frees it: after it has
//! returned, nothing accesses the memory.
//!
//! Invariants
//! - A region's entry does not change while it is published, except that it is closed for good when
//!   its memory is found to be gone; a window's entry changes ([`crate::memory::mw`]). A region
//!   that is registered anew under its key has a new entry.
//! - An entry is reached only through a [`MrView`], which exists only within an lcore's turn and
//!   bounds the use of the entry.
//! - [`offset_in`] grants no byte outside of a region, whatever the numbers are.
//!
//! Not here: the copies ([`crate::memory::resolve`]); protection domains as objects (they are
//! numbers).

#![allow(unsafe_code)]

use crate::copy::prefetch::prefetch_read;
use crate::memory::mw::{Bindings, MwType, Window};
use crate::sync::{ArrayQueue, AtomicPtr, AtomicU64, Mutex, Ordering, null_pointers};
use crate::table::key::{Numbers, Recent, Slots};
use crate::table::qsbr::{InTurn, Turns};
use std::ptr;
use std::sync::{Arc, PoisonError};
use uroce_transport::{AccessFlags, Pd};
use uroce_wire::{Lkey, Rkey, Va};

/// Memory to be registered.
#[derive(Clone, Copy, Debug)]
pub struct MrSpec {
    /// Address of the first byte.
    pub addr: *mut u8,
    /// Number of bytes. A region of length 0 is allowed and grants nothing.
    pub len: usize,
    /// The address by which work requests and peers name the first byte; usually `addr` itself.
    pub va: Va,
    /// The protection domain of the region.
    pub pd: Pd,
    /// The access rights of peers, and local write access.
    pub access: AccessFlags,
}

/// The keys of a region. Both have the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MrKeys {
    /// The key for the application's own work requests.
    pub lkey: Lkey,
    /// The key for peers.
    pub rkey: Rkey,
}

/// The reason why memory was not registered or deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MrError {
    /// The engine has as many regions as it was started for.
    #[error("no memory region is left")]
    TableFull,
    /// The region's address is null.
    #[error("the region has no memory")]
    NoMemory,
    /// The range of addresses, or of virtual addresses, wraps past 2^64.
    #[error("the range wraps past the end of the address space")]
    Wraps,
    /// Remote write or atomic access without local write access.
    #[error("remote write and atomic access need local write access")]
    NeedsLocalWrite,
    /// Remote atomic access, but `addr` and `va` differ in their last three bits: an aligned `va`
    /// would name an unaligned word.
    #[error("atomic access needs an address and a name equally aligned to 8 bytes")]
    Misaligned,
    /// Access for FLUSHes for persistence, which this memory does not have.
    #[error("memory that a FLUSH cannot make persistent; FLUSH_GLOBAL is for visibility")]
    NotPersistent,
    /// No region, or no window, has this key.
    #[error("no memory region or window has this key")]
    UnknownKey,
    /// Memory windows are bound to the region.
    #[error("memory windows are bound to the region")]
    Busy,
}

/// A registered region that has lost memory, all or a part, because the program took it away. Its
/// key grants nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoneRegion {
    /// The region's key.
    pub lkey: Lkey,
    /// The address of its first byte.
    pub addr: usize,
    /// Length in bytes.
    pub len: u64,
}

/// Largest number of gone regions that wait to be reported; further ones are not reported.
const GONE: usize = 64;

/// The entry of a key: a registered region or a memory window.
#[derive(Debug)]
pub struct MrEntry {
    /// The region's key. 0 for a window, which does not use the other fields of a region either.
    key: u32,
    pub(crate) pd: Pd,
    pub(crate) access: AccessFlags,
    va: u64,
    /// Bytes that the key grants; 0 after some of the memory was found to be gone.
    len: AtomicU64,
    base: *mut u8,
    /// The windows that are bound to the region.
    pub(crate) bindings: Bindings,
    pub(crate) window: Option<Box<Window>>,
}

// SAFETY: the pointer is only a number here; `memory.rs` justifies each access through it, from any
// thread.
unsafe impl Send for MrEntry {}
// SAFETY: the fields that change while an entry is shared are atomics, and the pointer is only a
// number.
unsafe impl Sync for MrEntry {}

impl MrEntry {
    /// Makes the entry of memory that [`check`] has accepted, or of a region without memory.
    fn region(key: u32, spec: &MrSpec) -> MrEntry {
        let &MrSpec { addr: base, len, va: Va(va), pd, access } = spec;
        let (len, bindings) = (AtomicU64::new(len as u64), Bindings::default());
        MrEntry { key, pd, access, va, len, base, bindings, window: None }
    }

    /// Closes the region of this key, if no window is bound to it; none can be bound after that.
    fn close(&self, key: u32) -> Result<(), MrError> {
        if !self.is_region_of(key) {
            return Err(MrError::UnknownKey);
        }
        if self.bindings.close() { Ok(()) } else { Err(MrError::Busy) }
    }

    /// Returns whether this is the region of this key.
    #[inline]
    pub(crate) fn is_region_of(&self, key: u32) -> bool {
        self.key == key && self.window.is_none()
    }

    /// Returns the address of `[va, va + len)`, if the region contains all of it; null in a region
    /// without memory.
    #[inline]
    pub fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let offset = offset_in(self.va, self.len.load(Ordering::Relaxed), va, len)?;
        if self.base.is_null() {
            return Some(self.base);
        }
        // The offset is at most the region's length, which is a `usize` (`MrSpec`).
        Some(self.base.wrapping_add(offset as usize))
    }

    /// Returns whether some of its memory was found to be gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

/// A domain that no QP has: domains are numbered from 1.
const NOBODY: Pd = Pd(0);

/// Returns the offset of `[va, va + len)` in the region `[region_va, region_va + region_len)`.
/// `None` if any byte lies outside or the range wraps past 2^64. A region of length 0 contains
/// nothing, not even an empty range.
//= check F2 — no sum is ever formed, so none wraps
//= check F3 — the exact boundaries
//= check F7 — a zero-length region grants nothing
#[inline]
pub const fn offset_in(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
    let Some(offset) = va.checked_sub(region_va) else { return None };
    let Some(room) = region_len.checked_sub(offset) else { return None };
    if len <= room && region_len > 0 { Some(offset) } else { None }
}

/// All regions and windows of an engine.
#[derive(Debug)]
pub struct MrTable {
    numbers: Numbers,
    entries: Box<[AtomicPtr<MrEntry>]>,
    slots: Mutex<Slots>,
    turns: Arc<Turns>,
    gone: ArrayQueue<GoneRegion>,
}

impl MrTable {
    /// Makes a table with room for `slots` regions, read by `lcores` lcores.
    pub fn new(slots: u32, lcores: usize, numbers: Numbers) -> MrTable {
        let entries = slots.next_power_of_two();
        MrTable {
            numbers,
            entries: null_pointers(entries as usize),
            slots: Mutex::new(Slots::new(slots)),
            turns: Arc::new(Turns::new(lcores)),
            gone: ArrayQueue::new(GONE),
        }
    }

    /// Returns the regions that lcores have found to be gone, each once, in this order.
    pub fn gone(&self) -> &ArrayQueue<GoneRegion> {
        &self.gone
    }

    /// Returns the number of regions and windows, including those that are being removed.
    pub fn count(&self) -> u32 {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).taken()
    }

    /// Returns the turns that removals wait for.
    pub fn turns(&self) -> &Arc<Turns> {
        &self.turns
    }

    /// Returns [`Turns::heartbeat`] of an lcore.
    pub fn heartbeat(&self, lcore: usize) -> u64 {
        self.turns.heartbeat(lcore)
    }

    /// Publishes a region.
    ///
    /// # Errors
    /// [`MrError`].
    ///
    /// # Safety
    /// Until [`deregister`](MrTable::deregister) has returned, the mapped part of the `len` bytes
    /// at `addr` may be read and, with a write right, written at any time: the program keeps no
    /// reference that forbids it, and puts nothing else there.
    pub unsafe fn register(&self, spec: &MrSpec) -> Result<MrKeys, MrError> {
        check(spec)?;
        let key = self.add(|key| MrEntry::region(key, spec))?;
        Ok(MrKeys { lkey: Lkey(key), rkey: Rkey(key) })
    }

    /// Publishes another region under the key of a region. Returns once no lcore uses the former
    /// entry or its memory any more.
    ///
    /// # Errors
    /// [`MrError`].
    ///
    /// # Safety
    /// The new memory must satisfy the conditions of [`register`](MrTable::register).
    pub unsafe fn reregister(&self, lkey: Lkey, spec: &MrSpec) -> Result<(), MrError> {
        check(spec)?;
        let new = || Box::into_raw(Box::new(MrEntry::region(lkey.0, spec)));
        let (_, former) = self.swap(lkey.0, |entry| entry.close(lkey.0), new)?;
        self.turns.wait();
        // SAFETY: `add` or `reregister` made it from a box. `swap` gave it to this thread alone,
        // and each turn that could have loaded it has ended.
        drop(unsafe { Box::from_raw(former) });
        Ok(())
    }

    /// Publishes a region without memory.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub fn alloc_null(&self, pd: Pd) -> Result<Lkey, MrError> {
        let (addr, access) = (ptr::null_mut(), AccessFlags::LOCAL_WRITE);
        let spec = MrSpec { addr, len: usize::MAX, va: Va(0), pd, access };
        self.add(|key| MrEntry::region(key, &spec)).map(Lkey)
    }

    /// Publishes a window that is not bound yet.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub fn alloc_mw(&self, pd: Pd, kind: MwType) -> Result<Rkey, MrError> {
        let entry = |key| MrEntry {
            key: 0,
            pd: NOBODY,
            access: AccessFlags::empty(),
            va: 0,
            len: AtomicU64::new(0),
            base: ptr::null_mut(),
            bindings: Bindings::default(),
            window: Some(Box::new(Window::new(pd, kind, key))),
        };
        self.add(entry).map(Rkey)
    }

    /// Publishes the entry that `entry` makes for a new key; returns the key.
    fn add(&self, entry: impl FnOnce(u32) -> MrEntry) -> Result<u32, MrError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |index, generation| self.numbers.key(index, generation);
        let (index, key) = slots.take(name, &[0, u32::MAX]).ok_or(MrError::TableFull)?;
        let entry = Box::into_raw(Box::new(entry(key)));
        // Pairs with the load in `MrView::at`: an lcore that reads the pointer sees the entry.
        self.entries[index as usize].store(entry, Ordering::Release);
        Ok(key)
    }

    /// Removes a region. Returns once no lcore uses it or its memory any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`], [`MrError::Busy`].
    pub fn deregister(&self, lkey: Lkey) -> Result<(), MrError> {
        self.remove(lkey.0, |entry| entry.close(lkey.0))
    }

    /// Removes a window, bound or not. Returns once no lcore uses it any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`].
    pub fn dealloc_mw(&self, rkey: Rkey) -> Result<(), MrError> {
        self.remove(rkey.0, |entry| {
            let is_named = entry.window.as_deref().is_some_and(|window| window.is_named(rkey.0));
            if is_named { Ok(()) } else { Err(MrError::UnknownKey) }
        })
    }

    /// Removes the entry of a key, if `may` allows it, and waits for the lcores.
    fn remove(
        &self,
        key: u32,
        may: impl FnOnce(&MrEntry) -> Result<(), MrError>,
    ) -> Result<(), MrError> {
        let (index, entry) = self.swap(key, may, ptr::null_mut)?;
        //= check F6 — after this no lcore touches the memory, whatever it was in the middle of
        // Without the lock, so that other threads may register meanwhile. The slot is not free yet,
        // so none publishes in it.
        self.turns.wait();
        // SAFETY: `add` or `reregister` made it from a box. `swap` gave it to this thread alone;
        // each turn that could have loaded it has ended (`wait`), and a `MrView` bounds its use.
        let mut entry = unsafe { Box::from_raw(entry) };
        if let Some(window) = &mut entry.window {
            window.dissolve();
        }
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).give_back(index as u32);
        Ok(())
    }

    /// Replaces the entry of a key by `new`, if `may` allows it. Returns the place and the former
    /// entry, which lcores may use until they have been waited for.
    fn swap(
        &self,
        key: u32,
        may: impl FnOnce(&MrEntry) -> Result<(), MrError>,
        new: impl FnOnce() -> *mut MrEntry,
    ) -> Result<(usize, *mut MrEntry), MrError> {
        let index = self.numbers.index_of_key(key);
        // The lock excludes another change of the place between the load and the swap.
        let _slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.entries[index].load(Ordering::Acquire);
        // SAFETY: an entry is freed only after it was swapped out under this lock; this one is
        // still in the table.
        may(unsafe { entry.as_ref() }.ok_or(MrError::UnknownKey)?)?;
        Ok((index, self.entries[index].swap(new(), Ordering::AcqRel)))
    }
}

impl Drop for MrTable {
    fn drop(&mut self) {
        for entry in &mut self.entries {
            let entry = *entry.get_mut();
            if !entry.is_null() {
                // SAFETY: it was made from a box, and `remove` did not free it, since it is still
                // in the table. No lcore is left, because each keeps the table alive.
                drop(unsafe { Box::from_raw(entry) });
            }
        }
    }
}

/// One lcore's view of the table.
#[derive(Debug)]
pub struct MrReader {
    table: Arc<MrTable>,
    lcore: usize,
    recent: Recent,
}

impl MrReader {
    /// Makes the reader of lcore `lcore`. An lcore has only one.
    pub fn new(table: Arc<MrTable>, lcore: usize) -> MrReader {
        let recent = Recent::new(&table.numbers);
        MrReader { table, lcore, recent }
    }

    /// Begins a turn, in which the lcore may use entries.
    #[inline]
    pub fn enter(&self) -> MrView<'_> {
        MrView {
            table: &self.table,
            recent: &self.recent,
            turn: self.table.turns.enter(self.lcore),
        }
    }
}

/// The table within one turn of an lcore.
#[derive(Debug)]
pub struct MrView<'t> {
    table: &'t MrTable,
    recent: &'t Recent,
    turn: InTurn<'t>,
}

impl MrView<'_> {
    /// Returns the region of a key. It cannot be kept beyond the turn.
    #[inline]
    pub fn find(&self, key: u32) -> Option<&MrEntry> {
        self.at(key).filter(|entry| entry.is_region_of(key))
    }

    /// Returns the entry in the place of a key: a region or window of this or another key, or
    /// nothing.
    #[inline]
    pub fn at(&self, key: u32) -> Option<&MrEntry> {
        let index = self.recent.index_of_key(&self.table.numbers, key);
        // Pairs with the store in `add` and the exchange in `swap`.
        let entry = self.table.entries.get(index)?.load(Ordering::Acquire);
        // SAFETY: an entry that was in the table during this turn is freed only after the turn
        // (`remove` waits for it), and the reference ends with `self`, which is the turn.
        unsafe { entry.as_ref() }
    }

    /// Prefetches the entry in the place of a key, and the memory that is probably at `va`.
    #[inline]
    pub fn prefetch(&self, key: u32, va: Va) {
        let index = self.recent.index_of_key(&self.table.numbers, key);
        if let Some(entry) = self.table.entries.get(index) {
            prefetch_read(entry.load(Ordering::Relaxed).cast(), size_of::<MrEntry>());
        }
        prefetch_read(va.0 as *const u8, 1);
    }

    /// Closes a region that has lost memory, and reports it.
    pub(crate) fn report_gone(&self, region: &MrEntry) {
        let len = region.len.swap(0, Ordering::Relaxed);
        if len > 0 {
            let region = GoneRegion { lkey: Lkey(region.key), addr: region.base.addr(), len };
            // If the queue is full the region is not reported: the program has taken away very many
            // at once.
            let _ = self.table.gone.push(region);
        }
    }

    /// Returns the turn.
    #[inline]
    pub fn turn(&self) -> &InTurn<'_> {
        &self.turn
    }
}

/// Checks the rules of registration.
fn check(spec: &MrSpec) -> Result<(), MrError> {
    let len = spec.len as u64;
    if spec.addr.is_null() && len > 0 {
        return Err(MrError::NoMemory);
    }
    // The end may be 2^64 itself: the last byte must be nameable, not the one after it.
    let last = len.saturating_sub(1);
    if (spec.addr as u64).checked_add(last).is_none() || spec.va.0.checked_add(last).is_none() {
        return Err(MrError::Wraps);
    }
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    if spec.access.intersects(writes) && !spec.access.contains(AccessFlags::LOCAL_WRITE) {
        return Err(MrError::NeedsLocalWrite);
    }
    //= check P6 — no region grants a persistence that it does not have
    if spec.access.contains(AccessFlags::FLUSH_PERSISTENT) {
        return Err(MrError::NotPersistent);
    }
    let skewed = !(spec.addr as u64 ^ spec.va.0).is_multiple_of(8);
    if spec.access.contains(AccessFlags::REMOTE_ATOMIC) && skewed {
        return Err(MrError::Misaligned);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
