//! A node's registered memory: vectors with a key, a protection domain, access rights and an
//! address.
//!
//! Invariants
//! - Every access is checked completely before a byte is touched.
//! - The checks are written independently of the engine's; both must agree.

use core::cell::Cell;
use core::ops::Range;

use uroce_wire::{Lkey, Placement, Rkey, Va};

use crate::world::windows::{WINDOW_MARK, Window};
use uroce_transport::{
    AccessFlags, AccessKind, Accessor, AtomicOp, BindMw, Flush, Key, Memory, MemoryFault, Pd,
    Region, Sge,
};

/// Handle of a region: everything needed to name it in a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mr {
    index: usize,
    key: u32,
    base: u64,
    len: u32,
}

impl Mr {
    /// The L_Key of the region.
    pub fn lkey(&self) -> Lkey {
        Lkey(self.key)
    }

    /// The R_Key of the region; the same number as the L_Key.
    pub fn rkey(&self) -> Rkey {
        Rkey(self.key)
    }

    /// Address of the byte at `offset`, which may lie outside of the region.
    pub fn va(&self, offset: u64) -> Va {
        Va(self.base.wrapping_add(offset))
    }

    /// Length in bytes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A scatter/gather element of `len` bytes from `offset` on.
    pub fn sge(&self, offset: u32, len: u32) -> Sge {
        Sge { va: self.va(u64::from(offset)), len, lkey: self.lkey() }
    }
}

#[derive(Debug)]
struct Entry {
    key: u32,
    pd: Pd,
    access: AccessFlags,
    base: u64,
    bytes: Vec<u8>,
    /// Content after a loss of power, if the region can be flushed for persistence.
    durable: Vec<u8>,
    is_live: bool,
    /// Offset of the first byte that has gone away, though it is registered.
    there: usize,
    /// An access has found that bytes are gone; the key grants nothing any more.
    is_closed: Cell<bool>,
}

impl Entry {
    /// Checks that all bytes of a range exist. The error is the number of bytes before the first
    /// that has gone away.
    fn before_gone(&self, range: &Range<usize>) -> Result<(), usize> {
        if range.end <= self.there {
            return Ok(());
        }
        self.is_closed.set(true);
        Err(self.there.saturating_sub(range.start))
    }
}

/// The regions of one node.
#[derive(Debug, Default)]
pub struct Regions {
    entries: Vec<Entry>,
    pub(crate) windows: Vec<Window>,
}

/// Low bits of a key that hold the region's index; the bits above are a tag, to detect wrong keys.
const INDEX_BITS: u32 = 12;

impl Regions {
    /// Registers `bytes` at address `base`. `tag` goes into the key, so that other keys are wrong.
    ///
    /// # Panics
    /// If the region would wrap past 2^64, or more than 4096 regions are registered.
    pub fn register(
        &mut self,
        pd: Pd,
        access: AccessFlags,
        base: u64,
        tag: u32,
        bytes: Vec<u8>,
    ) -> Mr {
        let index = self.entries.len();
        assert!(index < 1 << INDEX_BITS, "too many regions");
        let last = bytes.len().saturating_sub(1) as u64;
        assert!(base.checked_add(last).is_some(), "region wraps");
        let key = tag << INDEX_BITS & !WINDOW_MARK | index as u32;
        let len = u32::try_from(bytes.len()).expect("regions are below 4 GiB");
        let (there, is_closed) = (bytes.len(), Cell::new(false));
        let is_durable = access.contains(AccessFlags::FLUSH_PERSISTENT);
        let durable = if is_durable { bytes.clone() } else { Vec::new() };
        let is_live = true;
        self.entries.push(Entry {
            key,
            pd,
            access,
            base,
            bytes,
            durable,
            is_live,
            there,
            is_closed,
        });
        Mr { index, key, base, len }
    }

    /// Deregisters a region; its key grants nothing afterwards.
    pub fn deregister(&mut self, mr: Mr) {
        self.entries[mr.index].is_live = false;
    }

    /// Registers a deregistered region again, with the same key.
    pub(crate) fn register_again(&mut self, mr: Mr) {
        self.entries[mr.index].is_live = true;
    }

    /// Takes the memory from offset `there` on away, as a program can, and leaves it registered.
    pub fn take_away(&mut self, mr: Mr, there: usize) {
        self.entries[mr.index].there = there;
    }

    /// The region's bytes, as the application reads them.
    pub fn bytes(&self, mr: Mr) -> &[u8] {
        &self.entries[mr.index].bytes
    }

    /// The region's bytes as a loss of power now would leave them: those written before the newest
    /// FLUSH for persistence, each. Empty if the region cannot be flushed so.
    pub fn durable(&self, mr: Mr) -> &[u8] {
        &self.entries[mr.index].durable
    }

    /// The region's bytes, for the application to change.
    pub fn bytes_mut(&mut self, mr: Mr) -> &mut [u8] {
        &mut self.entries[mr.index].bytes
    }

    /// The bytes of `region`, if reading is granted.
    ///
    /// # Errors
    /// The first [`MemoryFault`] found.
    pub fn read(&self, by: Accessor, region: Region) -> Result<&[u8], MemoryFault> {
        let (index, range) = self.find(by, region, AccessKind::Read)?;
        let entry = &self.entries[index];
        entry.before_gone(&range).map_err(|_| MemoryFault::Gone)?;
        Ok(&entry.bytes[range])
    }

    fn find(
        &self,
        by: Accessor,
        region: Region,
        access: AccessKind,
    ) -> Result<(usize, Range<usize>), MemoryFault> {
        let (mut key, mut right) = match (region.key, access) {
            (Key::Local(key), AccessKind::Read) => (key.0, AccessFlags::empty()),
            (Key::Local(key), _) => (key.0, AccessFlags::LOCAL_WRITE),
            (Key::Remote(key), AccessKind::Read) => (key.0, AccessFlags::REMOTE_READ),
            (Key::Remote(key), AccessKind::Write) => (key.0, AccessFlags::REMOTE_WRITE),
            (Key::Remote(key), AccessKind::Atomic) => (key.0, AccessFlags::REMOTE_ATOMIC),
        };
        if key & WINDOW_MARK != 0 {
            key = self.through_window(by, region, access)?;
            right = AccessFlags::empty(); // the window grants, not the region
        }
        self.find_region(key, by.pd, right, region.va, u64::from(region.len))
    }

    /// Index and range of `len` bytes at `va` in the region of a key that grants `right`.
    pub(crate) fn find_region(
        &self,
        key: u32,
        pd: Pd,
        right: AccessFlags,
        va: Va,
        len: u64,
    ) -> Result<(usize, Range<usize>), MemoryFault> {
        let index = (key & ((1 << INDEX_BITS) - 1)) as usize;
        let entry = self
            .entries
            .get(index)
            .filter(|entry| entry.key == key && entry.is_live)
            .ok_or(MemoryFault::UnknownKey)?;
        if entry.pd != pd {
            return Err(MemoryFault::WrongPd);
        }
        if !entry.access.contains(right) {
            return Err(MemoryFault::NotGranted);
        }
        if entry.is_closed.get() {
            return Err(MemoryFault::OutOfRange);
        }
        // 128 bits, so that nothing wraps.
        let start = u128::from(va.0);
        let end = start + u128::from(len);
        let end = if range_overflows() { u128::from(end as u64) } else { end };
        let base = u128::from(entry.base);
        if start < base || end > base + entry.bytes.len() as u128 {
            return Err(MemoryFault::OutOfRange);
        }
        let offset = (start - base) as usize;
        Ok((index, offset..offset + len as usize))
    }
}

impl Memory for Regions {
    fn check(&self, by: Accessor, region: Region, access: AccessKind) -> Result<(), MemoryFault> {
        self.find(by, region, access).map(|_| ())
    }

    fn write(&mut self, by: Accessor, region: Region, bytes: &[u8]) -> Result<(), MemoryFault> {
        assert_eq!(bytes.len(), region.len as usize, "the core broke Memory::write's contract");
        let (index, range) = self.find(by, region, AccessKind::Write)?;
        let entry = &mut self.entries[index];
        if let Err(there) = entry.before_gone(&range) {
            entry.bytes[range][..there].copy_from_slice(&bytes[..there]);
            return Err(MemoryFault::Gone);
        }
        entry.bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        op: AtomicOp,
    ) -> Result<u64, MemoryFault> {
        assert!(va.0.is_multiple_of(8), "the core broke Memory::atomic's contract");
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        let (index, range) = self.find(by, region, AccessKind::Atomic)?;
        self.entries[index].before_gone(&range).map_err(|_| MemoryFault::Gone)?;
        let word: &mut [u8; 8] =
            (&mut self.entries[index].bytes[range]).try_into().expect("eight bytes");
        let former = u64::from_ne_bytes(*word);
        match op {
            AtomicOp::CompareSwap { compare, swap } if former == compare => {
                *word = swap.to_ne_bytes();
            }
            AtomicOp::CompareSwap { .. } => {}
            AtomicOp::FetchAdd { add } => *word = former.wrapping_add(add).to_ne_bytes(),
        }
        Ok(former)
    }

    fn write_word(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        va: Va,
        bytes: [u8; 8],
    ) -> Result<(), MemoryFault> {
        assert!(va.0.is_multiple_of(8), "the core broke Memory::write_word's contract");
        let region = Region { key: Key::Remote(rkey), va, len: 8 };
        let (index, range) = self.find(by, region, AccessKind::Write)?;
        let entry = &mut self.entries[index];
        entry.before_gone(&range).map_err(|_| MemoryFault::Gone)?;
        entry.bytes[range].copy_from_slice(&bytes);
        Ok(())
    }

    fn flush(&mut self, by: Accessor, flush: &Flush) -> Result<(), MemoryFault> {
        assert!(flush.placement.is_defined(), "the core broke Memory::flush's contract");
        let key = flush.rkey.0;
        if key & WINDOW_MARK != 0 {
            return Err(MemoryFault::NotGranted);
        }
        let index = (key & ((1 << INDEX_BITS) - 1)) as usize;
        let entry = self.entries.get(index).ok_or(MemoryFault::UnknownKey)?;
        let whole = (Va(entry.base), entry.bytes.len() as u64);
        let (va, len) = flush.range.map_or(whole, |(va, len)| (va, u64::from(len)));
        let (index, range) = self.find_region(key, by.pd, flush.needed(), va, len)?;
        let entry = &mut self.entries[index];
        entry.before_gone(&range).map_err(|_| MemoryFault::Gone)?;
        if flush.placement.contains(Placement::PERSISTENT) {
            entry.durable[range.clone()].copy_from_slice(&entry.bytes[range]);
        }
        Ok(())
    }

    fn bind(&mut self, by: Accessor, bind: &BindMw) -> Result<(), MemoryFault> {
        self.bind_window(by, bind)
    }

    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), MemoryFault> {
        self.invalidate_window(by, rkey)
    }
}

/// Returns whether the bug is planted that the end of a range wraps.
fn range_overflows() -> bool {
    #[cfg(feature = "seeded-bugs")]
    return uroce_transport::is_planted(uroce_transport::Bug::RangeOverflow);
    #[cfg(not(feature = "seeded-bugs"))]
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_wire::Qpn;

    const PD: Pd = Pd(1);
    const BY: Accessor = Accessor { pd: PD, qpn: Qpn::new(17) };

    fn region(mr: Mr, offset: i64, len: u32) -> Region {
        Region { key: Key::Remote(mr.rkey()), va: mr.va(offset as u64), len }
    }

    #[test] //= check F3 test
    fn a_region_ends_at_its_last_byte_even_at_the_top_of_the_address_space() {
        for base in [0, 4096, u64::MAX - 63] {
            let mut regions = Regions::default();
            let mr = regions.register(PD, AccessFlags::all(), base, 7, vec![0; 64]);
            let check = |offset, len| regions.check(BY, region(mr, offset, len), AccessKind::Write);
            assert_eq!(check(0, 64), Ok(()));
            assert_eq!(check(63, 1), Ok(()));
            assert_eq!(check(0, 65), Err(MemoryFault::OutOfRange));
            assert_eq!(check(63, 2), Err(MemoryFault::OutOfRange));
            assert_eq!(check(-1, 1), Err(MemoryFault::OutOfRange));
            assert_eq!(check(1, u32::MAX), Err(MemoryFault::OutOfRange));
        }
    }

    #[test] //= check F5 test
    fn key_domain_and_right_must_all_be_right() {
        let mut regions = Regions::default();
        let mr = regions.register(PD, AccessFlags::REMOTE_READ, 0, 7, vec![0; 64]);
        let whole = region(mr, 0, 64);
        assert_eq!(regions.check(BY, whole, AccessKind::Read), Ok(()));
        assert_eq!(regions.check(BY, whole, AccessKind::Write), Err(MemoryFault::NotGranted));
        assert_eq!(
            regions.check(Accessor { pd: Pd(2), ..BY }, whole, AccessKind::Read),
            Err(MemoryFault::WrongPd)
        );
        let stale = Region { key: Key::Remote(Rkey(mr.rkey().0 ^ 1 << 20)), ..whole };
        assert_eq!(regions.check(BY, stale, AccessKind::Read), Err(MemoryFault::UnknownKey));
        regions.deregister(mr);
        assert_eq!(regions.check(BY, whole, AccessKind::Read), Err(MemoryFault::UnknownKey));
    }
}
