//! Memory windows: keys that open a part of a region, bound and invalidated on the data path.
//!
//! A window stands in the key table as a region does, in a place taken by `alloc_mw`; binding and
//! invalidating change it there, without allocation and without a lock.
//!
//! ```text
//!   writer:  read ── check ── seq even → odd (compare and exchange) ── write ── seq + 2
//!   reader:  seq, fields, seq: equal and even?  then the fields are of one moment
//! ```
//!
//! A writer's exchange succeeds only if nothing has changed since it read, so what it checked holds
//! when it writes. Nobody waits: a reader or writer that meets a change under way finds the key
//! unknown. That is an answer as good as any, since the key's meaning is changing at that moment,
//! and whoever may rightly rely on the new meaning has seen the change complete.
//!
//! Invariants
//! - A bound window counts in its region ([`Bindings`]), which cannot be deregistered then. So the
//!   window's pointer to the region is valid as long as it is bound.
//! - Who found a window bound uses the region's memory in the same turn only; after an unbinding
//!   the region's deregistration waits for that turn.
//! - A type-2 window is bound only while it is not, and for one QP; type 1 is for its domain.
//!
//! Not here: the table ([`crate::mr_table`]), the copies ([`crate::memory`]).

#![allow(unsafe_code)]

use crate::mr_table::{Access, MrEntry, offset_in};
use crate::sync::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::ptr;
use uroce_transport::{AccessFlags, Accessor, BindMw, MemoryFault, Pd};
use uroce_wire::{Qpn, Rkey};

/// What kind of memory window it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MwType {
    /// Open to every QP of its protection domain; bound again at will.
    Type1,
    /// Open to the QP that bound it (2B: and of its protection domain). It is invalidated before it
    /// is bound again; the low 8 bits of its key are the consumer's.
    Type2,
}

/// The low bits of a key, which a binding may change.
const CONSUMER_BITS: u32 = 8;

/// Rights that a window can give.
const REMOTE: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// How many windows are bound to a region; or that it takes none any more.
#[derive(Debug, Default)]
pub(crate) struct Bindings(AtomicU32);

impl Bindings {
    const CLOSED: u32 = u32::MAX;

    /// One more, unless the region is being deregistered.
    fn add(&self) -> bool {
        let more = |count: u32| (count < Bindings::CLOSED - 1).then(|| count + 1);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    fn remove(&self) {
        // Releases the window's uses of the region to `close`.
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// No window will ever be bound again, if none is now.
    pub(crate) fn close(&self) -> bool {
        self.0.compare_exchange(0, Bindings::CLOSED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// A window.
#[derive(Debug)]
pub(crate) struct Window {
    pd: Pd,
    kind: MwType,
    /// Even at rest, odd while it is changed; counts the changes.
    sequence: AtomicU32,
    key: AtomicU32,
    qpn: AtomicU32,
    access: AtomicU8,
    va: AtomicU64,
    len: AtomicU64,
    base: AtomicPtr<u8>,
    /// Null: not bound.
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

    /// The same window, open to nothing under `key`.
    fn unbound(self, key: u32) -> Snapshot {
        let (base, region) = (ptr::null_mut(), ptr::null_mut());
        Snapshot { key, qpn: 0, access: AccessFlags::empty(), va: 0, len: 0, base, region, ..self }
    }
}

impl Window {
    /// Not bound.
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

    /// Does `key` name this window, whatever its low bits?
    pub(crate) fn is_named(&self, key: u32) -> bool {
        // The upper bits never change.
        self.key.load(Ordering::Relaxed) >> CONSUMER_BITS == key >> CONSUMER_BITS
    }

    /// The place of `[va, va + len)`, the rights there, and the region that it is in, if `by` may use
    /// the window under `rkey`.
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
        // SAFETY: the window was bound when it was read, in this turn (`Access` gave it), so the region
        // was in its table then (`Bindings::close`): it is freed only after the turn.
        let region = unsafe { &*window.region };
        // At most the length of the region, which is a `usize`.
        Ok((window.base.wrapping_add(offset as usize), window.access, region))
    }

    /// Binds, or unbinds, as `bind` says. `region` is the one that `bind.lkey` names.
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
            // Unbinding a type-2 window is to invalidate it.
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

    /// Does a binding name the window, as it is? The low bits of a type-2 window that is not bound
    /// are its consumer's, who need not know what they were.
    fn may_rebind(&self, now: &Snapshot, rkey: Rkey) -> bool {
        let is_free = self.kind == MwType::Type2 && !now.is_bound();
        now.key == rkey.0 || is_free && self.is_named(rkey.0)
    }

    /// Unbinds a type-2 window until it is bound again.
    fn invalidate(&self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        if self.kind != MwType::Type2 {
            return Err(MemoryFault::NotAWindow);
        }
        let now = self.named(rkey).filter(Snapshot::is_bound).ok_or(MemoryFault::UnknownKey)?;
        self.check_accessor(by, &now)?;
        self.replace(&now, &now.unbound(rkey.0))
    }

    /// The last act of a window that nobody can find any more.
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

    /// The fields, if the window's key is this one.
    #[inline]
    fn named(&self, rkey: Rkey) -> Option<Snapshot> {
        self.read().filter(|window| window.key == rkey.0)
    }

    /// The fields of one moment; `None` while they are being changed.
    #[inline]
    fn read(&self) -> Option<Snapshot> {
        // Acquires what the last writer has written.
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
        // Pairs with the fence in `replace`: who has read a field of a later writer sees that
        // writer's odd number now.
        fence(Ordering::Acquire);
        let unchanged = self.sequence.load(Ordering::Relaxed) == sequence;
        (sequence.is_multiple_of(2) && unchanged).then_some(snapshot)
    }

    /// Goes from `now` to `new`, unless somebody else has changed the window since.
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

/// A window is not bound to this region any more; null: it was not bound.
fn release(region: *mut MrEntry) {
    if region.is_null() {
        return;
    }
    // SAFETY: the window counted among the region's bindings until now, by which the region could
    // not be deregistered (`Bindings::close`): the entry has not been freed. The exchange in
    // `replace`, or the sole ownership in `dissolve`, makes us the only one to release it.
    let region = unsafe { &*region };
    region.bindings.remove();
}

/// May a window be bound so? The place of its first byte.
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

impl Access<'_> {
    /// Binds a window to a region, or unbinds it.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the window is as it was.
    pub(crate) fn bind(&self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        let entry = self.at(bind.rkey.0).ok_or(MemoryFault::UnknownKey)?;
        let window = entry.window.as_deref().ok_or(MemoryFault::NotAWindow)?;
        window.bind(by, bind, self.find(bind.lkey.0))
    }

    /// Takes a window's key its meaning until it is bound again.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the key opens what it did.
    //= check F9 — a key that is unknown, foreign, or no type-2 window's is not invalidated
    pub(crate) fn invalidate(&self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        let entry = self.at(rkey.0).ok_or(MemoryFault::UnknownKey)?;
        let window = entry.window.as_deref().ok_or(MemoryFault::NotAWindow)?;
        window.invalidate(by, rkey)
    }
}

#[cfg(test)]
mod tests;
