//! Memory windows: keys that grant a part of a region, bound and invalidated on the data path.
//!
//! Read first: IBA 10.6 (memory management).
//!
//! A window has an entry in the key table, as a region has, made by `alloc_mw`. Binding and
//! invalidating change the entry in place, without allocation and without a lock.
//!
//! ```text
//!   writer:  read ── check ── seq even → odd (compare and exchange) ── write ── seq + 2
//!   reader:  seq, fields, seq: equal and even?  then the fields are of one moment
//! ```
//!
//! A writer's exchange succeeds only if nothing has changed since it read, so its checks still hold
//! when it writes. No thread waits: a reader or writer that meets a change in progress finds the
//! key unknown. That is a valid answer, since the key's meaning is changing at that moment, and a
//! peer that may rely on the new meaning has seen the change complete.
//!
//! Invariants
//! - A bound window counts in its region (`Bindings`), which then cannot be deregistered. So the
//!   window's pointer to the region is valid while it is bound.
//! - A thread that found a window bound uses the region's memory in the same turn only; after an
//!   unbinding, the region's deregistration waits for that turn.
//! - A type-2 window can be bound only while it is unbound, and for one QP; a type-1 window is for
//!   its domain.
//!
//! Not here: the table ([`crate::memory::mr_table`]), the copies ([`crate::memory::resolve`]).

#![allow(unsafe_code)]

use crate::memory::mr_table::{MrEntry, MrView, offset_in};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::ptr;
use uroce_transport::{AccessFlags, Accessor, BindMw, MemoryFault, Pd};
use uroce_wire::{Qpn, Rkey};

/// The type of a memory window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MwType {
    /// Open to each QP of its protection domain; can be bound again at any time.
    Type1,
    /// Open to the QP that bound it (type 2B: of its protection domain, too). It must be
    /// invalidated before it is bound again; the low 8 bits of its key are the consumer's.
    Type2,
}

/// The low bits of a key, which a binding may change.
const CONSUMER_BITS: u32 = 8;

/// The access rights that a window can grant.
const REMOTE: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// The number of windows bound to a region, or `CLOSED`.
#[derive(Debug, Default)]
pub(crate) struct Bindings(AtomicU32);

impl Bindings {
    const CLOSED: u32 = u32::MAX;

    /// Counts one more window, unless the region is being deregistered.
    fn add(&self) -> bool {
        let more = |count: u32| (count < Bindings::CLOSED - 1).then(|| count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn remove(&self) {
        // Releases the window's uses of the region to `close`.
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Closes the region, if no window is bound to it; none can be bound after that.
    pub(crate) fn close(&self) -> bool {
        self.0.compare_exchange(0, Bindings::CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A window.
#[derive(Debug)]
pub(crate) struct Window {
    pd: Pd,
    kind: MwType,
    /// Even at rest, odd during a change; counts the changes.
    sequence: AtomicU32,
    key: AtomicU32,
    qpn: AtomicU32,
    access: AtomicU8,
    va: AtomicU64,
    len: AtomicU64,
    base: AtomicPtr<u8>,
    /// Null if the window is not bound.
    region: AtomicPtr<MrEntry>,
}

/// A window's fields at one moment.
#[derive(Clone, Copy, Debug)]
struct Snapshot {
    sequence: u32,
    key: u32,
    qpn: u32,
    access: AccessFlags,
    va: u64,
    len: u64,
    base: *mut u8,
    region: *mut MrEntry,
}

impl Snapshot {
    fn is_bound(&self) -> bool {
        !self.region.is_null()
    }

    /// Returns the same window unbound, with key `key`.
    fn unbound(self, key: u32) -> Snapshot {
        let (base, region) = (ptr::null_mut(), ptr::null_mut());
        Snapshot { key, qpn: 0, access: AccessFlags::empty(), va: 0, len: 0, base, region, ..self }
    }
}

impl Window {
    /// Makes an unbound window.
    pub(crate) fn new(pd: Pd, kind: MwType, key: u32) -> Window {
        Window {
            pd,
            kind,
            sequence: AtomicU32::new(0),
            key: AtomicU32::new(key),
            qpn: AtomicU32::new(0),
            access: AtomicU8::new(0),
            va: AtomicU64::new(0),
            len: AtomicU64::new(0),
            base: AtomicPtr::default(),
            region: AtomicPtr::default(),
        }
    }

    /// Returns whether `key` names this window, whatever its low bits are.
    pub(crate) fn is_named(&self, key: u32) -> bool {
        // The upper bits never change.
        self.key.load(Ordering::Relaxed) >> CONSUMER_BITS == key >> CONSUMER_BITS
    }

    /// Returns the address of `[va, va + len)`, the rights there, and its region, if `by` may use
    /// the window with `rkey`.
    //= check F8 — a type-2 window opens to its own QP only, and not under a former key
    #[inline]
    pub(crate) fn open(
        &self,
        by: Accessor,
        rkey: Rkey,
        va: u64,
        len: u64,
    ) -> Result<(*mut u8, AccessFlags, &MrEntry), MemoryFault> {
        let window = self.named(rkey).filter(Snapshot::is_bound).ok_or(MemoryFault::UnknownKey)?;
        self.check_accessor(by, &window)?;
        let offset = offset_in(window.va, window.len, va, len).ok_or(MemoryFault::OutOfRange)?;
        // SAFETY: the window was bound when it was read, in this turn (`MrView` gave it), so the
        // region was in the table then (`Bindings::close`) and is freed only after the turn.
        let region = unsafe { &*window.region };
        // The offset is at most the region's length, which is a `usize`.
        Ok((window.base.wrapping_add(offset as usize), window.access, region))
    }

    /// Binds or unbinds the window as `bind` asks. `region` is the region of `bind.lkey`.
    fn bind(
        &self,
        by: Accessor,
        bind: &BindMw,
        region: Option<&MrEntry>,
    ) -> Result<(), MemoryFault> {
        let now = self.read().filter(|now| self.may_rebind(now, bind.rkey));
        let now = now.ok_or(MemoryFault::UnknownKey)?;
        if self.pd != by.pd {
            return Err(MemoryFault::WrongPd);
        }
        if !self.is_named(bind.new_rkey.0) {
            return Err(MemoryFault::UnknownKey);
        }
        match self.kind {
            MwType::Type2 if now.is_bound() => return Err(MemoryFault::WindowBound),
            // A type-2 window is unbound only by invalidating it.
            MwType::Type2 if bind.len == 0 => return Err(MemoryFault::OutOfRange),
            MwType::Type1 if bind.len == 0 => {
                return self.replace(&now, &now.unbound(bind.new_rkey.0));
            }
            MwType::Type1 | MwType::Type2 => {}
        }
        let region = region.ok_or(MemoryFault::UnknownKey)?;
        let base = check_region(by, bind, region)?;
        if !region.bindings.add() {
            return Err(MemoryFault::UnknownKey);
        }
        let new = Snapshot {
            sequence: now.sequence,
            key: bind.new_rkey.0,
            qpn: by.qpn.value(),
            access: bind.access & REMOTE,
            va: bind.va.0,
            len: bind.len,
            base,
            region: ptr::from_ref(region).cast_mut(),
        };
        self.replace(&now, &new).inspect_err(|_| region.bindings.remove())
    }

    /// Returns whether `rkey` names the window for a binding. The low bits of the key of an unbound
    /// type-2 window belong to the consumer, which need not give the former ones.
    fn may_rebind(&self, now: &Snapshot, rkey: Rkey) -> bool {
        let is_free = self.kind == MwType::Type2 && !now.is_bound();
        now.key == rkey.0 || is_free && self.is_named(rkey.0)
    }

    /// Unbinds a type-2 window: its key grants nothing until the window is bound again.
    fn invalidate(&self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        if self.kind != MwType::Type2 {
            return Err(MemoryFault::NotAWindow);
        }
        let now = self.named(rkey).filter(Snapshot::is_bound).ok_or(MemoryFault::UnknownKey)?;
        self.check_accessor(by, &now)?;
        self.replace(&now, &now.unbound(rkey.0))
    }

    /// Called last, when no thread can find the window any more: releases its region.
    pub(crate) fn dissolve(&mut self) {
        release(*self.region.get_mut());
    }

    fn check_accessor(&self, by: Accessor, now: &Snapshot) -> Result<(), MemoryFault> {
        if self.pd != by.pd {
            return Err(MemoryFault::WrongPd);
        }
        match self.kind {
            MwType::Type2 if Qpn::new(now.qpn) != by.qpn => Err(MemoryFault::WrongQp),
            MwType::Type1 | MwType::Type2 => Ok(()),
        }
    }

    /// Returns the fields, if the window has this key.
    #[inline]
    fn named(&self, rkey: Rkey) -> Option<Snapshot> {
        self.read().filter(|window| window.key == rkey.0)
    }

    /// Returns the fields at one moment; `None` during a change.
    #[inline]
    fn read(&self) -> Option<Snapshot> {
        // Acquires the stores of the last writer.
        let sequence = self.sequence.load(Ordering::Acquire);
        let snapshot = Snapshot {
            sequence,
            key: self.key.load(Ordering::Relaxed),
            qpn: self.qpn.load(Ordering::Relaxed),
            access: AccessFlags::from_bits_truncate(self.access.load(Ordering::Relaxed)),
            va: self.va.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            base: self.base.load(Ordering::Relaxed),
            region: self.region.load(Ordering::Relaxed),
        };
        // Pairs with the fence in `replace`: a thread that has read a field of a later writer now
        // reads that writer's odd number.
        fence(Ordering::Acquire);
        let unchanged = self.sequence.load(Ordering::Relaxed) == sequence;
        (sequence.is_multiple_of(2) && unchanged).then_some(snapshot)
    }

    /// Changes the fields from `now` to `new`, unless another thread has changed the window since.
    fn replace(&self, now: &Snapshot, new: &Snapshot) -> Result<(), MemoryFault> {
        let (even, odd) = (now.sequence, now.sequence.wrapping_add(1));
        let ours = self.sequence.compare_exchange(even, odd, Ordering::Acquire, Ordering::Relaxed);
        if ours.is_err() {
            return Err(MemoryFault::UnknownKey);
        }
        // Pairs with the fence in `read`.
        fence(Ordering::Release);
        self.key.store(new.key, Ordering::Relaxed);
        self.qpn.store(new.qpn, Ordering::Relaxed);
        self.access.store(new.access.bits(), Ordering::Relaxed);
        self.va.store(new.va, Ordering::Relaxed);
        self.len.store(new.len, Ordering::Relaxed);
        self.base.store(new.base, Ordering::Relaxed);
        self.region.store(new.region, Ordering::Relaxed);
        self.sequence.store(even.wrapping_add(2), Ordering::Release);
        release(now.region);
        Ok(())
    }
}

/// Counts one window less at a region; null means that the window was not bound.
fn release(region: *mut MrEntry) {
    if region.is_null() {
        return;
    }
    // SAFETY: the window has counted among the region's bindings until now, so the region could not
    // be deregistered (`Bindings::close`) and was not freed. The exchange in `replace`, or the sole
    // ownership in `dissolve`, makes this thread the only one to release it.
    let region = unsafe { &*region };
    region.bindings.remove();
}

/// Checks that a window may be bound as `bind` asks. Returns the address of its first byte.
fn check_region(by: Accessor, bind: &BindMw, region: &MrEntry) -> Result<*mut u8, MemoryFault> {
    if region.pd != by.pd {
        return Err(MemoryFault::WrongPd);
    }
    let base = region.place(bind.va.0, bind.len).ok_or(MemoryFault::OutOfRange)?;
    let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let mut needed = AccessFlags::MW_BIND;
    if bind.access.intersects(writes) {
        needed |= AccessFlags::LOCAL_WRITE;
    }
    if region.access.contains(needed) { Ok(base) } else { Err(MemoryFault::NotGranted) }
}

impl MrView<'_> {
    /// Binds a window to a region, or unbinds it.
    ///
    /// # Errors
    /// A [`MemoryFault`]; the window is unchanged.
    pub fn bind(&self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        let entry = self.at(bind.rkey.0).ok_or(MemoryFault::UnknownKey)?;
        let window = entry.window.as_deref().ok_or(MemoryFault::NotAWindow)?;
        window.bind(by, bind, self.find(bind.lkey.0))
    }

    /// Invalidates a window's key until the window is bound again.
    ///
    /// # Errors
    /// A [`MemoryFault`]; the key is unchanged.
    //= check F9 — a key that is unknown, foreign, or no type-2 window's is not invalidated
    pub fn invalidate(&self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        let entry = self.at(rkey.0).ok_or(MemoryFault::UnknownKey)?;
        let window = entry.window.as_deref().ok_or(MemoryFault::NotAWindow)?;
        window.invalidate(by, rkey)
    }
}

#[cfg(test)]
mod tests;
