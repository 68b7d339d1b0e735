//! The copies into and out of registered memory; [`crate::copy::sum`] does those that are also
//! summed.
//!
//! Read first: IBA 10.6 (memory management).
//!
//! Registered memory belongs to the application, which may read and write it at any moment, and
//! peers may access it through the wire. So it is never seen as a slice: bytes are copied from and
//! to raw pointers, and the words of ATOMIC operations are changed by 8-byte atomics, which are
//! atomic against the application's own, too (`IBV_ATOMIC_GLOB` within this process).
//! [`crate::copy::guarded`] detects memory that the program has taken away; its region grants
//! nothing after that.
//!
//! Invariants
//! - A byte is accessed only after key, protection domain, range and right have been checked in the
//!   same turn, in this order; the region stays registered until the turn's end.
//!
//! Not here: the table of regions ([`crate::memory::mr_table`]).

#![allow(unsafe_code)]

use crate::copy::guarded::{self, Missing};
use crate::copy::sum::copy_summed_from;
use crate::memory::mr_table::{MrEntry, MrView};
use crate::sync::{Ordering, fence};
use uroce_transport::{AccessFlags, Accessor, AtomicOp, Flush, Key, MemoryFault, Region};
use uroce_wire::Icrc;

/// A range of memory that may be accessed in this turn, as requested.
#[derive(Clone, Copy, Debug)]
struct Granted<'t> {
    /// Address of the first byte; null in a region without memory.
    place: *mut u8,
    /// The region of the range.
    region: &'t MrEntry,
}

impl MrView<'_> {
    /// Checks whether this access would be granted.
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    #[inline]
    pub fn check(
        &self,
        by: Accessor,
        region: Region,
        access: uroce_transport::AccessKind,
    ) -> Result<(), MemoryFault> {
        self.grant(by, region, access).map(|_| ())
    }

    /// Copies the region's bytes to `out`, which has the same length.
    ///
    /// # Errors
    /// A [`MemoryFault`]; the bytes of `out` are undefined then.
    #[inline]
    pub fn read(&self, by: Accessor, region: Region, out: &mut [u8]) -> Result<(), MemoryFault> {
        let Some(source) = self.open_source(by, region, out)? else { return Ok(()) };
        // SAFETY: `grant` found `region.len` bytes at `place` inside a region that stays registered
        // until after this turn, so its mapped part may be read (`MrTable::register`). `out` has
        // that length and is mbuf memory that only this thread holds, so the two do not overlap.
        // The application may write the source meanwhile; the bytes are then any mixture, as with a
        // NIC, and no reference to them exists.
        let copied = unsafe { guarded::copy(source.place, out.as_mut_ptr(), out.len()) };
        copied.map_err(|Missing| self.lose(source))
    }

    /// Copies the region's bytes to `out`, which has the same length. Returns `sum` continued over
    /// the copied bytes.
    ///
    /// # Errors
    /// A [`MemoryFault`]; the bytes of `out` are undefined then.
    #[inline]
    pub fn read_summed(
        &self,
        by: Accessor,
        region: Region,
        out: &mut [u8],
        sum: Icrc,
    ) -> Result<Icrc, MemoryFault> {
        let Some(source) = self.open_source(by, region, out)? else { return Ok(sum.and(out)) };
        // SAFETY: `grant` found `region.len` bytes at `place` inside a region that stays registered
        // until after this turn; `out` has that length and is mbuf memory that only this thread
        // holds, so they do not overlap.
        let copied = unsafe { copy_summed_from(source.place, out, sum) };
        copied.map_err(|Missing| self.lose(source))
    }

    /// Returns the address of the region's bytes, to be copied to `out`. `None` if there is nothing
    /// to copy: `out` has its result already.
    #[inline]
    fn open_source(
        &self,
        by: Accessor,
        region: Region,
        out: &mut [u8],
    ) -> Result<Option<Granted<'_>>, MemoryFault> {
        assert_eq!(out.len(), region.len as usize, "as long as the region");
        if out.is_empty() {
            return Ok(None);
        }
        let granted = self.grant(by, region, uroce_transport::AccessKind::Read)?;
        if granted.place.is_null() {
            out.fill(0);
            return Ok(None);
        }
        Ok(Some(granted))
    }

    /// Copies `bytes` to the region, which has the same length.
    ///
    /// # Errors
    /// A [`MemoryFault`]; no byte was written, except that with [`MemoryFault::Gone`] some may have
    /// been.
    #[inline]
    pub fn write(&self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(bytes.len(), region.len as usize, "as long as the region");
        if bytes.is_empty() {
            return Ok(());
        }
        let granted = self.grant(by, region, uroce_transport::AccessKind::Write)?;
        if granted.place.is_null() {
            return Ok(());
        }
        // SAFETY: `grant` found `region.len` bytes at `place` inside a region with write access
        // that stays registered until after this turn; `bytes` has that length and is not part of
        // registered memory.
        let copied = unsafe { guarded::copy(bytes.as_ptr(), granted.place, bytes.len()) };
        copied.map_err(|Missing| self.lose(granted))
    }

    /// Performs `op` on the word at `va` and returns its former value.
    ///
    /// # Errors
    /// A [`MemoryFault`]; the word is unchanged then.
    pub fn atomic(
        &self,
        by: Accessor,
        rkey: uroce_wire::Rkey,
        va: uroce_wire::Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        let granted = self.grant(by, region, uroce_transport::AccessKind::Atomic)?;
        let word = granted.place.cast::<u64>();
        // Null is only a precaution: no peer has a key of a region without memory.
        if word.is_null() || !word.is_aligned() {
            return Err(MemoryFault::OutOfRange);
        }
        //= check D8 — one atomic instruction, so lcores may share the word
        //= check D9 — and so may the program, with atomics of its own
        let former = match op {
            // SAFETY: eight aligned bytes inside a region that stays registered until after this
            // turn. Any other code in this process that changes them meanwhile uses the engine's
            // atomics, its raw copies, or atomics of its own, as `MrTable::register` requires.
            AtomicOp::CompareSwap { compare, swap } => unsafe {
                guarded::compare_exchange(word, compare, swap)
            },
            // SAFETY: eight aligned bytes inside a registered region, which other code changes by
            // atomics or the engine's raw copies only.
            AtomicOp::FetchAdd { add } => unsafe { guarded::fetch_add(word, add) },
        };
        former.map_err(|Missing| self.lose(granted))
    }

    /// Stores `bytes` at `va`, which is 8-byte aligned, in one piece.
    ///
    /// # Errors
    /// A [`MemoryFault`]; the bytes are unchanged then. [`MemoryFault::OutOfRange`] if memory was
    /// registered under virtual addresses of another alignment.
    //= check P10 — one store, so that any reader sees all eight bytes or none
    #[cold]
    pub fn write_word(
        &self,
        by: Accessor,
        rkey: uroce_wire::Rkey,
        va: uroce_wire::Va,
        bytes: [u8; 8],
    ) -> Result<(), MemoryFault> {
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        let granted = self.grant(by, region, uroce_transport::AccessKind::Write)?;
        let word = granted.place.cast::<u64>();
        if word.is_null() || !word.is_aligned() {
            return Err(MemoryFault::OutOfRange);
        }
        // SAFETY: eight aligned bytes inside a region with write access that stays registered until
        // after this turn. Any other code in this process that accesses them meanwhile uses the
        // engine's atomics, its raw copies, or atomics of its own, as `MrTable::register` requires.
        let stored = unsafe { guarded::store(word, u64::from_ne_bytes(bytes)) };
        stored.map_err(|Missing| self.lose(granted))
    }

    /// Makes everything that was written before visible to all that access the memory. The key of a
    /// window grants no FLUSH, and no registered memory is persistent.
    ///
    /// # Errors
    /// A [`MemoryFault`]: the key, range or right is refused.
    #[cold]
    pub fn flush(&self, by: Accessor, flush: &Flush) -> Result<(), MemoryFault> {
        let key = flush.rkey.0;
        let entry = self.at(key).ok_or(MemoryFault::UnknownKey)?;
        if !entry.is_region_of(key) {
            let is_window = entry.window.is_some();
            return Err(if is_window { MemoryFault::NotGranted } else { MemoryFault::UnknownKey });
        }
        if entry.pd != by.pd {
            return Err(MemoryFault::WrongPd);
        }
        if let Some((va, len)) = flush.range {
            entry.place(va.0, u64::from(len)).ok_or(MemoryFault::OutOfRange)?;
        }
        if !entry.access.contains(flush.needed()) {
            return Err(MemoryFault::NotGranted);
        }
        //= check P11 — what this lcore has stored comes before the answer, whatever the stores
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Closes the region of memory that was found to be gone.
    #[cold]
    fn lose(&self, granted: Granted<'_>) -> MemoryFault {
        self.report_gone(granted.region);
        MemoryFault::Gone
    }

    #[inline]
    fn grant(
        &self,
        by: Accessor,
        region: Region,
        access: uroce_transport::AccessKind,
    ) -> Result<Granted<'_>, MemoryFault> {
        let key = match region.key {
            Key::Local(lkey) => lkey.0,
            Key::Remote(rkey) => rkey.0,
        };
        let entry = self.at(key).ok_or(MemoryFault::UnknownKey)?;
        if !entry.is_region_of(key) {
            return grant_by_window(entry, by, region, access);
        }
        //= check F5 — a key of another protection domain opens nothing
        if entry.pd != by.pd {
            return Err(MemoryFault::WrongPd);
        }
        let place = entry.place(region.va.0, u64::from(region.len));
        let place = place.ok_or(MemoryFault::OutOfRange)?;
        if !grants(entry.access, region.key, access) {
            return Err(MemoryFault::NotGranted);
        }
        Ok(Granted { place, region: entry })
    }
}

/// Grants access with a key that is not a region's. Only peers may use windows.
#[inline(never)]
fn grant_by_window<'t>(
    entry: &'t MrEntry,
    by: Accessor,
    region: Region,
    access: uroce_transport::AccessKind,
) -> Result<Granted<'t>, MemoryFault> {
    let (Some(window), Key::Remote(rkey)) = (entry.window.as_deref(), region.key) else {
        return Err(MemoryFault::UnknownKey);
    };
    let (place, rights, of) = window.open(by, rkey, region.va.0, u64::from(region.len))?;
    if !grants(rights, region.key, access) {
        return Err(MemoryFault::NotGranted);
    }
    if of.is_gone() {
        return Err(MemoryFault::Gone);
    }
    Ok(Granted { place, region: of })
}

/// Returns whether the rights allow an access. Local reads need no right, all other accesses do.
#[inline]
fn grants(rights: AccessFlags, key: Key, access: uroce_transport::AccessKind) -> bool {
    use uroce_transport::AccessKind::{Atomic, Read, Write};
    let needed = match (key, access) {
        (Key::Local(_), Read) => return true,
        (Key::Local(_), Write | Atomic) => AccessFlags::LOCAL_WRITE,
        (Key::Remote(_), Read) => AccessFlags::REMOTE_READ,
        (Key::Remote(_), Write) => AccessFlags::REMOTE_WRITE,
        (Key::Remote(_), Atomic) => AccessFlags::REMOTE_ATOMIC,
    };
    rights.contains(needed)
}

#[cfg(test)]
mod tests;
