//! Memory regions and windows: key → where the memory is and what may be done with it.
//!
//! A direct-mapped array of pointers, read by lcores with one acquire load, replaced by any
//! thread. Registration publishes an entry. Deregistration unpublishes it, waits until each lcore
//! that was in a turn has ended it ([`crate::qsbr`]), and frees it: after it has returned nothing
//! touches the memory again.
//!
//! Invariants
//! - A region's entry does not change while it is published, except that it is closed for good when
//!   its memory is found to be gone; a window's does ([`crate::mw`]). A region that is registered anew
//!   under its key has a new entry.
//! - An entry is reached only through an [`Access`], which exists only within an lcore's turn and
//!   bounds the life of what it found.
//! - [`offset_in`] grants no byte outside of a region, whatever the numbers are.
//!
//! Not here: the copies ([`crate::memory`]), protection domains as objects (they are numbers).

#![allow(unsafe_code)]

use crate::key::{Numbers, Recent, Slots};
use crate::mw::{Bindings, MwType, Window};
use crate::prefetch::prefetch_read;
use crate::qsbr::{InTurn, Turns};
use crate::sync::{ArrayQueue, AtomicPtr, AtomicU64, Mutex, Ordering, null_pointers};
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
    /// There is no memory at the null address.
    #[error("the region has no memory")]
    NoMemory,
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
    /// No region, or no window, has this key.
    #[error("no memory region or window has this key")]
    UnknownKey,
    /// Memory windows are bound to the region.
    #[error("memory windows are bound to the region")]
    Busy,
}

/// A region whose memory, or a part of it, the program took away while it was registered. Its key
/// opens nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoneRegion {
    /// The region's key.
    pub lkey: Lkey,
    /// The address of its first byte.
    pub addr: usize,
    /// Bytes.
    pub len: u64,
}

/// So many regions that are gone wait to be told of; more are not told of.
const GONE: usize = 64;

/// What a key stands for: a registered region or a memory window.
#[derive(Debug)]
pub(crate) struct MrEntry {
    /// The region's key. Of a window 0, which is nobody's, as are its other fields here.
    key: u32,
    pub(crate) pd: Pd,
    pub(crate) access: AccessFlags,
    va: u64,
    /// Bytes that the key opens; 0 once some of the memory was found to be gone.
    len: AtomicU64,
    base: *mut u8,
    /// Windows that are bound to the region.
    pub(crate) bindings: Bindings,
    pub(crate) window: Option<Box<Window>>,
}

// SAFETY: the pointer is only a number here; the copies in `memory.rs` that use it say why they
// may, from whatever thread.
unsafe impl Send for MrEntry {}
// SAFETY: as above; what changes while an entry is shared are atomics.
unsafe impl Sync for MrEntry {}

impl MrEntry {
    /// Of memory that [`check`] has passed, or of none.
    fn region(key: u32, spec: &MrSpec) -> MrEntry {
        let &MrSpec { addr: base, len, va: Va(va), pd, access } = spec;
        let (len, bindings) = (AtomicU64::new(len as u64), Bindings::default());
        MrEntry { key, pd, access, va, len, base, bindings, window: None }
    }

    /// Is it the region of this key, to which no window is bound? None will be from now on.
    fn close(&self, key: u32) -> Result<(), MrError> {
        if !self.is_region_of(key) {
            return Err(MrError::UnknownKey);
        }
        if self.bindings.close() { Ok(()) } else { Err(MrError::Busy) }
    }

    /// Is it the region of this key?
    #[inline]
    pub(crate) fn is_region_of(&self, key: u32) -> bool {
        self.key == key && self.window.is_none()
    }

    /// The place of `[va, va + len)`, if the region holds all of it; null in a region without
    /// memory.
    #[inline]
    pub(crate) fn place(&self, va: u64, len: u64) -> Option<*mut u8> {
        let offset = offset_in(self.va, self.len.load(Ordering::Relaxed), va, len)?;
        if self.base.is_null() {
            return Some(self.base);
        }
        // At most `len` of the region, which is a `usize` (`MrSpec`).
        Some(self.base.wrapping_add(offset as usize))
    }

    /// Has some of its memory been found to be gone?
    pub(crate) fn is_gone(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0
    }
}

/// No QP is of this domain: domains are numbered from 1.
const NOBODY: Pd = Pd(0);

/// How far `[va, va + len)` lies inside of the region `[region_va, region_va + region_len)`, or
/// `None` if any byte of it lies outside or the range wraps past 2^64. A region of length 0 holds
/// nothing, not even an empty range.
//= check F2 — no sum is ever formed, so none wraps
//= check F3 — the exact boundaries
//= check F7 — a zero-length region grants nothing
#[inline]
pub(crate) const fn offset_in(region_va: u64, region_len: u64, va: u64, len: u64) -> Option<u64> {
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
    /// program puts nothing else into the place of the `len` bytes at `addr`. If it takes them away,
    /// or the right to read or write them, the region is closed at the next access to them
    /// ([`Control::next_gone`](crate::Control::next_gone)), where this can be found (x86-64); else the
    /// process ends. The engine may read and, with a write right, write them at any time from its threads, so the
    /// program keeps no reference that forbids it (no `&mut`, and no `&` if there is a write
    /// right), and reads what others write only where it knows them to be done, or by volatile or
    /// atomic accesses. Words used by ATOMIC operations are changed by atomics only. The memory is
    /// not a mempool's.
    pub unsafe fn register_mr(&self, spec: &MrSpec) -> Result<MrKeys, MrError> {
        // SAFETY: the caller's promise is `register`'s.
        unsafe { self.shared.regions.register(spec) }
    }

    /// Registers other memory, or the same for another domain or with other rights, under the keys
    /// that a region has. When this returns nothing touches the former memory any more.
    ///
    /// # Errors
    /// See [`MrError`]; the region is as it was. [`MrError::Busy`] while memory windows are bound to
    /// it.
    ///
    /// # Safety
    /// As [`register_mr`](Engine::register_mr), for the new memory.
    pub unsafe fn reregister_mr(&self, lkey: Lkey, spec: &MrSpec) -> Result<(), MrError> {
        // SAFETY: the caller's promise is `reregister`'s.
        unsafe { self.shared.regions.reregister(lkey, spec) }
    }

    /// A region of that domain without memory: all addresses are in it, reads find zeros, and what
    /// is written is discarded. Peers cannot reach it.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub fn alloc_null_mr(&self, pd: Pd) -> Result<Lkey, MrError> {
        self.shared.regions.alloc_null(pd)
    }

    /// Removes a region. When this returns nothing touches the memory any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`]; [`MrError::Busy`] while memory windows are bound to it.
    pub fn deregister_mr(&self, lkey: Lkey) -> Result<(), MrError> {
        self.shared.regions.deregister(lkey)
    }

    /// A memory window, not bound yet; it takes a place of the regions'. Its key opens nothing.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub fn alloc_mw(&self, pd: Pd, kind: MwType) -> Result<Rkey, MrError> {
        self.shared.regions.alloc_mw(pd, kind)
    }

    /// Removes a memory window, named by any key that it has had. If it was bound, nothing reaches
    /// the memory through it any more when this returns.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`].
    pub fn dealloc_mw(&self, rkey: Rkey) -> Result<(), MrError> {
        self.shared.regions.dealloc_mw(rkey)
    }
}

/// All regions of an engine.
#[derive(Debug)]
pub(crate) struct MrTable {
    numbers: Numbers,
    entries: Box<[AtomicPtr<MrEntry>]>,
    slots: Mutex<Slots>,
    turns: Arc<Turns>,
    gone: ArrayQueue<GoneRegion>,
}

impl MrTable {
    /// Room for `slots` regions, read by `lcores` lcores.
    pub(crate) fn new(slots: u32, lcores: usize, numbers: Numbers) -> MrTable {
        let entries = slots.next_power_of_two();
        MrTable {
            numbers,
            entries: null_pointers(entries as usize),
            slots: Mutex::new(Slots::new(slots)),
            turns: Arc::new(Turns::new(lcores)),
            gone: ArrayQueue::new(GONE),
        }
    }

    /// Regions that lcores have found to be gone, each once, in this order.
    pub(crate) fn gone(&self) -> &ArrayQueue<GoneRegion> {
        &self.gone
    }

    /// The turns that removals wait for.
    pub(crate) fn turns(&self) -> &Arc<Turns> {
        &self.turns
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
    /// Until [`deregister`](MrTable::deregister) has returned, what is mapped of the
    /// `len` bytes at `addr` may be read and, with a write right, written at any time: the program
    /// keeps no reference that forbids it, and puts nothing else there.
    pub(crate) unsafe fn register(&self, spec: &MrSpec) -> Result<MrKeys, MrError> {
        check(spec)?;
        let key = self.add(|key| MrEntry::region(key, spec))?;
        Ok(MrKeys { lkey: Lkey(key), rkey: Rkey(key) })
    }

    /// Publishes another region under the key of one, and returns once no lcore looks at the former
    /// or its memory any more.
    ///
    /// # Errors
    /// See [`MrError`].
    ///
    /// # Safety
    /// As [`register`](MrTable::register).
    pub(crate) unsafe fn reregister(&self, lkey: Lkey, spec: &MrSpec) -> Result<(), MrError> {
        check(spec)?;
        let new = || Box::into_raw(Box::new(MrEntry::region(lkey.0, spec)));
        let (_, former) = self.swap(lkey.0, |entry| entry.close(lkey.0), new)?;
        self.turns.wait();
        // SAFETY: as in `remove`.
        drop(unsafe { Box::from_raw(former) });
        Ok(())
    }

    /// Publishes a region without memory.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub(crate) fn alloc_null(&self, pd: Pd) -> Result<Lkey, MrError> {
        let (addr, access) = (ptr::null_mut(), AccessFlags::LOCAL_WRITE);
        let spec = MrSpec { addr, len: usize::MAX, va: Va(0), pd, access };
        self.add(|key| MrEntry::region(key, &spec)).map(Lkey)
    }

    /// Publishes a window, which is not bound yet.
    ///
    /// # Errors
    /// [`MrError::TableFull`].
    pub(crate) fn alloc_mw(&self, pd: Pd, kind: MwType) -> Result<Rkey, MrError> {
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

    /// Publishes what `entry` makes of a fresh key; gives the key.
    fn add(&self, entry: impl FnOnce(u32) -> MrEntry) -> Result<u32, MrError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let name = |index, generation| self.numbers.key(index, generation);
        let (index, key) = slots.take(name, &[0, u32::MAX]).ok_or(MrError::TableFull)?;
        let entry = Box::into_raw(Box::new(entry(key)));
        // Pairs with the load in `Access::at`: who sees the pointer sees the entry.
        self.entries[index as usize].store(entry, Ordering::Release);
        Ok(key)
    }

    /// Removes a region and returns once no lcore looks at it or its memory any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`], [`MrError::Busy`].
    pub(crate) fn deregister(&self, lkey: Lkey) -> Result<(), MrError> {
        self.remove(lkey.0, |entry| entry.close(lkey.0))
    }

    /// Removes a window, bound or not, and returns once no lcore looks at it any more.
    ///
    /// # Errors
    /// [`MrError::UnknownKey`].
    pub(crate) fn dealloc_mw(&self, rkey: Rkey) -> Result<(), MrError> {
        self.remove(rkey.0, |entry| {
            let is_named = entry.window.as_deref().is_some_and(|window| window.is_named(rkey.0));
            if is_named { Ok(()) } else { Err(MrError::UnknownKey) }
        })
    }

    /// Removes what a key stands for, if `may` allows it, and waits for the lcores.
    fn remove(
        &self,
        key: u32,
        may: impl FnOnce(&MrEntry) -> Result<(), MrError>,
    ) -> Result<(), MrError> {
        let (index, entry) = self.swap(key, may, ptr::null_mut)?;
        //= check F6 — after this no lcore touches the memory, whatever it was in the middle of
        // Without the lock: others may register meanwhile. The slot is not free yet, so nobody
        // publishes in it.
        self.turns.wait();
        // SAFETY: `add` or `reregister` made it of a box. We have swapped it out, so nobody else
        // frees it; each turn that could have loaded it has ended (`wait`), and an `Access` bounds
        // its use.
        let mut entry = unsafe { Box::from_raw(entry) };
        if let Some(window) = &mut entry.window {
            window.dissolve();
        }
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).give_back(index as u32);
        Ok(())
    }

    /// Puts `new` in the place of what a key stands for, if `may` allows it; gives the place and
    /// what was there. Lcores may look at it until they have been waited for.
    fn swap(
        &self,
        key: u32,
        may: impl FnOnce(&MrEntry) -> Result<(), MrError>,
        new: impl FnOnce() -> *mut MrEntry,
    ) -> Result<(usize, *mut MrEntry), MrError> {
        let index = self.numbers.index_of_key(key);
        // Excludes another change of the same place between the look and the swap.
        let _slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.entries[index].load(Ordering::Acquire);
        // SAFETY: entries are freed by who has swapped them out under this lock; this one is still
        // in.
        may(unsafe { entry.as_ref() }.ok_or(MrError::UnknownKey)?)?;
        Ok((index, self.entries[index].swap(new(), Ordering::AcqRel)))
    }
}

impl Drop for MrTable {
    fn drop(&mut self) {
        for entry in &mut self.entries {
            let entry = *entry.get_mut();
            if !entry.is_null() {
                // SAFETY: it was made of a box and `remove` did not free it, as it is still in. No lcore is left: each keeps the table alive.
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
            turn: self.table.turns.enter(self.lcore),
        }
    }
}

/// The table within one turn.
#[derive(Debug)]
pub(crate) struct Access<'t> {
    table: &'t MrTable,
    recent: &'t Recent,
    turn: InTurn<'t>,
}

impl Access<'_> {
    /// The region of a key. It cannot be kept beyond the turn.
    #[inline]
    pub(crate) fn find(&self, key: u32) -> Option<&MrEntry> {
        self.at(key).filter(|entry| entry.is_region_of(key))
    }

    /// What stands where this key would: a region of any key, a window, or nothing.
    #[inline]
    pub(crate) fn at(&self, key: u32) -> Option<&MrEntry> {
        let index = self.recent.index_of_key(&self.table.numbers, key);
        // Pairs with the store in `add` and the exchange in `swap`.
        let entry = self.table.entries.get(index)?.load(Ordering::Acquire);
        // SAFETY: an entry that was in the table during our turn is freed only after the turn
        // (`remove` waits for it), and the reference ends with `self`, which is the turn.
        unsafe { entry.as_ref() }
    }

    /// Fetches what stands where this key would, and memory that is probably at `va`.
    #[inline]
    pub(crate) fn prefetch(&self, key: u32, va: Va) {
        let index = self.recent.index_of_key(&self.table.numbers, key);
        if let Some(entry) = self.table.entries.get(index) {
            prefetch_read(entry.load(Ordering::Relaxed).cast(), size_of::<MrEntry>());
        }
        prefetch_read(va.0 as *const u8, 1);
    }

    /// Closes a region whose memory is gone, and has it told of.
    pub(crate) fn report_gone(&self, region: &MrEntry) {
        let len = region.len.swap(0, Ordering::Relaxed);
        if len > 0 {
            let region = GoneRegion { lkey: Lkey(region.key), addr: region.base.addr(), len };
            // A program that takes so many away at once knows of them.
            let _ = self.table.gone.push(region);
        }
    }

    /// The turn.
    #[inline]
    pub(crate) fn turn(&self) -> &InTurn<'_> {
        &self.turn
    }
}

/// The rules of registration.
fn check(spec: &MrSpec) -> Result<(), MrError> {
    let len = spec.len as u64;
    if spec.addr.is_null() && len > 0 {
        return Err(MrError::NoMemory);
    }
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
    Ok(())
}

#[cfg(test)]
mod tests;
