//! The only copies into and out of registered memory; those with a sum are done by [`crate::sum`].
//!
//! Registered memory belongs to the application, which may read and write it at any moment, and
//! through the wire to strangers. So it is never seen as a slice: bytes are copied from and to raw
//! pointers, and the words of ATOMIC operations are changed by 8-byte atomics, which also holds
//! against the application's own (`IBV_ATOMIC_GLOB` within this process). Memory that the program
//! has taken away meanwhile is found by [`crate::guarded`]; its region opens nothing any more then.
//!
//! Invariants
//! - A byte is touched only if key, protection domain, range and right have been checked in the
//!   same turn, in this order; the region then stays registered until the turn's end.
//!
//! Not here: the table of regions ([`crate::mr_table`]).

#![allow(unsafe_code)]

use crate::guarded::{self, Missing};
use crate::mr_table::{Access, MrEntry};
use crate::sum::copy_summed_from;
use uroce_transport::{AccessFlags, Accessor, AtomicOp, Key, MemoryFault, Region};
use uroce_wire::Icrc;

/// A range of memory that may be touched, for what it was asked for, in this turn.
#[derive(Clone, Copy, Debug)]
struct Granted<'t> {
    /// Null in a region without memory.
    place: *mut u8,
    /// The region that it is of.
    region: &'t MrEntry,
}

impl Access<'_> {
    /// Would this access be granted?
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    #[inline]
    pub(crate) fn check(
        &self,
        by: Accessor,
        region: Region,
        access: uroce_transport::Access,
    ) -> Result<(), MemoryFault> {
        self.grant(by, region, access).map(|_| ())
    }

    /// Copies the region's bytes to `out`, which has its length.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then `out` has any bytes.
    #[inline]
    pub(crate) fn read(
        &self,
        by: Accessor,
        region: Region,
        out: &mut [u8],
    ) -> Result<(), MemoryFault> {
        let Some(source) = self.open_source(by, region, out)? else { return Ok(()) };
        // SAFETY: `grant` found `region.len` bytes from `place` on inside a region that is
        // registered until after this turn, so what is mapped of it may be read
        // (`MrTable::register`'s contract); `out` has that length and is mbuf memory that only we
        // hold, so the two do not overlap. The application may write the source meanwhile; the
        // bytes are then any mixture, as with a NIC, and no reference to them exists.
        let copied = unsafe { guarded::copy(source.place, out.as_mut_ptr(), out.len()) };
        copied.map_err(|Missing| self.lose(source))
    }

    /// Copies the region's bytes to `out`, and gives the invariant CRC of what `sum` is of, followed
    /// by the region's bytes as they were copied.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then `out` has any bytes.
    #[inline]
    pub(crate) fn read_summed(
        &self,
        by: Accessor,
        region: Region,
        out: &mut [u8],
        sum: Icrc,
    ) -> Result<Icrc, MemoryFault> {
        let Some(source) = self.open_source(by, region, out)? else { return Ok(sum.and(out)) };
        // SAFETY: as in `read`.
        let copied = unsafe { copy_summed_from(source.place, out, sum) };
        copied.map_err(|Missing| self.lose(source))
    }

    /// Where the region's bytes are, to be copied to `out`. `None` if there are none: `out` is then
    /// what it is to be.
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
        let granted = self.grant(by, region, uroce_transport::Access::Read)?;
        if granted.place.is_null() {
            out.fill(0);
            return Ok(None);
        }
        Ok(Some(granted))
    }

    /// Copies `bytes` to the region, which has their length.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then no byte was written, but for [`MemoryFault::Gone`], where some may
    /// have been.
    #[inline]
    pub(crate) fn write(
        &self,
        by: Accessor,
        region: Region,
        bytes: &[u8],
    ) -> Result<(), MemoryFault> {
        assert_eq!(bytes.len(), region.len as usize, "as long as the region");
        if bytes.is_empty() {
            return Ok(());
        }
        let granted = self.grant(by, region, uroce_transport::Access::Write)?;
        if granted.place.is_null() {
            return Ok(());
        }
        // SAFETY: as in `read`, with the roles exchanged; `grant` saw the right to write.
        let copied = unsafe { guarded::copy(bytes.as_ptr(), granted.place, bytes.len()) };
        copied.map_err(|Missing| self.lose(granted))
    }

    /// Performs `op` on the word at `va` and gives its former value.
    ///
    /// # Errors
    /// A [`MemoryFault`]; then the word is unchanged.
    pub(crate) fn atomic(
        &self,
        by: Accessor,
        rkey: uroce_wire::Rkey,
        va: uroce_wire::Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        let granted = self.grant(by, region, uroce_transport::Access::Atomic)?;
        let word = granted.place.cast::<u64>();
        // Null: no peer has a key of a region without memory.
        if word.is_null() || !word.is_aligned() {
            return Err(MemoryFault::OutOfRange);
        }
        //= check D8 — one atomic instruction, so lcores may share the word
        //= check D9 — and so may the program, with atomics of its own
        let former = match op {
            // SAFETY: eight aligned bytes inside a registered region, which may be accessed where they
            // are mapped until after this turn. Whatever else in this process changes them
            // concurrently does so by the engine's atomics, its raw copies, or atomics of its own, as
            // `MrTable::register`'s contract demands.
            AtomicOp::CompareSwap { compare, swap } => unsafe {
                guarded::compare_exchange(word, compare, swap)
            },
            // SAFETY: the same.
            AtomicOp::FetchAdd { add } => unsafe { guarded::fetch_add(word, add) },
        };
        former.map_err(|Missing| self.lose(granted))
    }

    /// The memory of a region is gone, or a part of it: nothing opens it any more.
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
        access: uroce_transport::Access,
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

/// The key is no region's. Only peers reach memory through windows.
#[inline(never)]
fn grant_by_window<'t>(
    entry: &'t MrEntry,
    by: Accessor,
    region: Region,
    access: uroce_transport::Access,
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

/// Reading one's own memory needs no right, everything else does.
#[inline]
fn grants(rights: AccessFlags, key: Key, access: uroce_transport::Access) -> bool {
    use uroce_transport::Access::{Atomic, Read, Write};
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
