//! Memory region: registered memory, and the slices of it that work requests use.
//!
//! Lcores, and peers through the network, change registered memory at any time. So this module
//! never makes references to its bytes, but copies them in and out.
//!
//! Invariants
//! - The memory stays mapped until deregistration has returned. After that nothing accesses it.
//! - Copies access each whole aligned 8-byte word with one atomic operation, so that they never
//!   tear a word that an ATOMIC request changes.
//! - A [`MemorySlice`] lies inside its region.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use uroce_engine::{Engine, MrError, MrKeys, MrSpec};
use uroce_transport::{AccessFlags, Sge};
use uroce_wire::{Lkey, Rkey, Va};

use crate::core::PdShared;
use crate::pd::ProtectionDomain;

/// Alignment in bytes of memory allocated by this crate: a page.
const ALIGN: usize = 4096;
const WORD: usize = size_of::<u64>();

/// Why memory could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The memory could not be allocated.
    #[error("no memory for a region of {0} bytes")]
    NoMemory(usize),
    /// The engine refused the registration.
    #[error(transparent)]
    Engine(#[from] MrError),
}

/// A range that is not inside its region or buffer, or that ends before its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are not within {within} bytes")]
pub struct OutOfRange {
    /// Offset of the first byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub len: u64,
    /// Length of the region or buffer in bytes.
    pub within: u64,
}

/// Registered memory. Local work requests use it with its L_Key, and peers with its R_Key.
///
/// Dropping the region deregisters it and waits until no lcore accesses the memory any more. Work
/// requests that still name it complete with `LOC_PROT_ERR`; requests of peers get a remote access
/// error. If memory windows are bound to it, dropping it leaks it: it stays registered, and memory
/// allocated for it is never freed. [`deregister`](MemoryRegion::deregister) returns the region in
/// this case.
#[derive(Debug)]
pub struct MemoryRegion {
    pd: Arc<PdShared>,
    keys: MrKeys,
    start: NonNull<u8>,
    len: usize,
    /// Layout of the memory, if this crate has allocated it.
    layout: Option<Layout>,
}

// SAFETY: `start` points to memory that this value owns, or that `register`'s caller keeps mapped
// while this value exists. All accesses are atomic, so any thread may make them.
unsafe impl Send for MemoryRegion {}
// SAFETY: all accesses to the memory through `&self` are atomic.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    fn allocate(
        pd: &Arc<PdShared>,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, RegisterError> {
        // The allocator does not accept a size of 0.
        let layout =
            Layout::from_size_align(len.max(1), ALIGN).map_err(|_| RegisterError::NoMemory(len))?;
        // SAFETY: the layout's size is at least 1.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or(RegisterError::NoMemory(len))?;
        // SAFETY: the allocation has `len` bytes and is used by nothing else. `drop` frees it after
        // deregistration, and the code below frees it if the registration fails.
        let region = unsafe { MemoryRegion::new(pd, start, len, access, Some(layout)) };
        if region.is_err() {
            // SAFETY: `start` was allocated above with this layout, and the failed registration has
            // not kept it.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
        region
    }

    /// # Safety
    ///
    /// `start` and `len` must fulfil the conditions of [`ProtectionDomain::register`].
    unsafe fn new(
        pd: &Arc<PdShared>,
        start: NonNull<u8>,
        len: usize,
        access: AccessFlags,
        layout: Option<Layout>,
    ) -> Result<MemoryRegion, RegisterError> {
        let addr = start.as_ptr();
        // `MemorySlice::gather` turns the number back into a pointer, so its provenance is exposed.
        let va = Va(addr.expose_provenance() as u64);
        let spec = MrSpec { addr, len, va, pd: pd.pd, access };
        Engine::guard_memory();
        // SAFETY: the caller keeps the memory valid until this region is dropped, and `drop`
        // deregisters it.
        let keys = unsafe { pd.device.engine().register_mr(&spec) }?;
        Ok(MemoryRegion { pd: Arc::clone(pd), keys, start, len, layout })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no bytes, and so gives no access.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Virtual address of the first byte, for work requests of peers.
    pub fn va(&self) -> Va {
        Va(self.start.as_ptr().addr() as u64)
    }

    /// The L_Key, for work requests of this process.
    pub fn lkey(&self) -> Lkey {
        self.keys.lkey
    }

    /// The R_Key, for work requests of peers.
    pub fn rkey(&self) -> Rkey {
        self.keys.rkey
    }

    /// The whole region as a value that can be sent to a peer.
    pub fn remote(&self) -> RemoteBuffer {
        RemoteBuffer { va: self.va(), rkey: self.rkey(), len: self.len as u64 }
    }

    /// A part of the region, for the scatter/gather list of a work request.
    ///
    /// A slice cannot outlive its region:
    ///
    /// ```compile_fail,E0505
    /// # fn f(pd: uroce::ProtectionDomain) -> Result<(), Box<dyn std::error::Error>> {
    /// let mr = pd.allocate(64, uroce::AccessFlags::LOCAL_WRITE)?;
    /// let slice = mr.slice(..8)?;
    /// drop(mr);
    /// let wr = uroce::SendWr::send(&[slice]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] if the range is not inside the region or has 2^32 bytes or more.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<MemorySlice<'_>, OutOfRange> {
        let (offset, len) = self.bounds(range)?;
        let out_of_range =
            OutOfRange { offset: offset as u64, len: len as u64, within: u32::MAX.into() };
        let len = u32::try_from(len).map_err(|_| out_of_range)?;
        let va = Va(self.va().0 + offset as u64);
        Ok(MemorySlice { sge: Sge { va, len, lkey: self.lkey() }, _region: PhantomData })
    }

    /// Deregisters the region like dropping it, but fails if memory windows are bound to it.
    ///
    /// # Errors
    ///
    /// The unchanged region, if windows are bound to it.
    pub fn deregister(self) -> Result<(), MemoryRegion> {
        match self.pd.device.engine().deregister_mr(self.keys.lkey) {
            Err(MrError::Busy) => Err(self),
            gone => {
                debug_assert_eq!(gone, Ok(()), "only this value removes the key");
                self.free();
                Ok(())
            }
        }
    }

    /// Frees what a deregistered region owns, without running `drop`.
    fn free(self) {
        let mut region = std::mem::ManuallyDrop::new(self);
        if let Some(layout) = region.layout {
            // SAFETY: `allocate` allocated `start` with this layout. The region is deregistered, so
            // no lcore accesses it, and slices cannot outlive `self`.
            unsafe { dealloc(region.start.as_ptr(), layout) }
        }
        // SAFETY: `region` is `ManuallyDrop`, so `pd` is dropped only here, and it is not used
        // afterwards.
        unsafe { std::ptr::drop_in_place(&raw mut region.pd) }
    }

    /// Copies bytes out of the region. Bytes that are written concurrently may have their old or
    /// new values.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; nothing was copied.
    pub fn read_at(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfRange> {
        let place = self.place(offset, out.len())?;
        let (head, words) = split(place, out.len());
        let (head_out, rest) = out.split_at_mut(head);
        let (words_out, tail_out) = rest.split_at_mut(words * WORD);
        for (index, byte) in head_out.iter_mut().enumerate() {
            *byte = self.byte(offset + index).load(Ordering::Relaxed);
        }
        for (index, bytes) in words_out.chunks_exact_mut(WORD).enumerate() {
            let word = self.word(offset + head + index * WORD).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        for (index, byte) in tail_out.iter_mut().enumerate() {
            *byte = self.byte(offset + head + words * WORD + index).load(Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; nothing was copied.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), OutOfRange> {
        let place = self.place(offset, bytes.len())?;
        let (head, words) = split(place, bytes.len());
        let (head_in, rest) = bytes.split_at(head);
        let (words_in, tail_in) = rest.split_at(words * WORD);
        for (index, byte) in head_in.iter().enumerate() {
            self.byte(offset + index).store(*byte, Ordering::Relaxed);
        }
        for (index, bytes) in words_in.as_chunks().0.iter().enumerate() {
            let word = u64::from_ne_bytes(*bytes);
            self.word(offset + head + index * WORD).store(word, Ordering::Relaxed);
        }
        for (index, byte) in tail_in.iter().enumerate() {
            self.byte(offset + head + words * WORD + index).store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets all bytes of a range to one value.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`]; nothing was set.
    pub fn fill(&self, range: impl RangeBounds<usize>, byte: u8) -> Result<(), OutOfRange> {
        const CHUNK: usize = 4096;
        let (offset, len) = self.bounds(range)?;
        let bytes = [byte; CHUNK];
        let mut done = 0;
        while done < len {
            let now = CHUNK.min(len - done);
            self.write_at(offset + done, &bytes[..now])?;
            done += now;
        }
        Ok(())
    }

    /// Reads one byte with acquire ordering: bytes that the same message wrote before it are
    /// visible afterwards.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`].
    #[inline]
    pub fn load_u8(&self, offset: usize) -> Result<u8, OutOfRange> {
        self.place(offset, 1)?;
        Ok(self.byte(offset).load(Ordering::Acquire))
    }

    /// Writes one byte with release ordering.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`].
    #[inline]
    pub fn store_u8(&self, offset: usize, byte: u8) -> Result<(), OutOfRange> {
        self.place(offset, 1)?;
        self.byte(offset).store(byte, Ordering::Release);
        Ok(())
    }

    /// Reads the word at `offset`, a multiple of 8, in host byte order with acquire ordering.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] if the word is not inside the region or not aligned.
    #[inline]
    pub fn load_u64(&self, offset: usize) -> Result<u64, OutOfRange> {
        self.aligned(offset)?;
        Ok(self.word(offset).load(Ordering::Acquire))
    }

    /// Writes the word at `offset`, a multiple of 8, in host byte order with release ordering.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] if the word is not inside the region or not aligned.
    #[inline]
    pub fn store_u64(&self, offset: usize, word: u64) -> Result<(), OutOfRange> {
        self.aligned(offset)?;
        self.word(offset).store(word, Ordering::Release);
        Ok(())
    }

    fn aligned(&self, offset: usize) -> Result<(), OutOfRange> {
        let place = self.place(offset, WORD)?;
        let fits = place.addr().is_multiple_of(WORD);
        let (offset, len) = (offset as u64, WORD as u64);
        if fits { Ok(()) } else { Err(OutOfRange { offset, len, within: self.len as u64 }) }
    }

    /// A pointer to `len` bytes at `offset`, if they are inside the region.
    #[inline]
    fn place(&self, offset: usize, len: usize) -> Result<*mut u8, OutOfRange> {
        match self.len.checked_sub(offset) {
            Some(room) if len <= room => Ok(self.start.as_ptr().wrapping_add(offset)),
            _ => Err(self.out_of_range(offset, len)),
        }
    }

    #[cold]
    fn out_of_range(&self, offset: usize, len: usize) -> OutOfRange {
        OutOfRange { offset: offset as u64, len: len as u64, within: self.len as u64 }
    }

    fn bounds(&self, range: impl RangeBounds<usize>) -> Result<(usize, usize), OutOfRange> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len,
        };
        let len = end.checked_sub(start).ok_or_else(|| self.out_of_range(start, 0))?;
        self.place(start, len).map(|_| (start, len))
    }

    /// The byte at `offset`, which the caller has checked with `place`.
    #[inline]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        let place = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: callers have checked with `place` that the byte is inside the region, and it
        // stays mapped while `self` exists. Other accesses of this process are atomic, or copies by
        // lcores that stand for a device's DMA.
        unsafe { AtomicU8::from_ptr(place) }
    }

    /// The word at `offset`. The caller has checked its range and alignment.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + WORD <= self.len);
        let place = self.start.as_ptr().wrapping_add(offset).cast::<u64>();
        debug_assert!(place.is_aligned());
        // SAFETY: callers have checked that the word is inside the region and aligned, and it stays
        // mapped while `self` exists. Other accesses of this process are atomic, or copies by
        // lcores that stand for a device's DMA.
        unsafe { AtomicU64::from_ptr(place) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let gone = self.pd.device.engine().deregister_mr(self.keys.lkey);
        let expected = matches!(gone, Ok(()) | Err(MrError::Busy));
        debug_assert!(expected, "only this drop removes the key: {gone:?}");
        if let (Ok(()), Some(layout)) = (gone, self.layout) {
            // SAFETY: `allocate` allocated `start` with this layout. The region is deregistered, so
            // no lcore accesses it, and slices cannot outlive `self`.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

impl ProtectionDomain {
    /// Creates a memory region of `len` bytes of newly allocated, zeroed, page-aligned memory.
    ///
    /// # Errors
    ///
    /// See [`RegisterError`].
    pub fn allocate(&self, len: usize, access: AccessFlags) -> Result<MemoryRegion, RegisterError> {
        MemoryRegion::allocate(self.shared(), len, access)
    }

    /// Registers memory of the caller.
    ///
    /// ```
    /// # fn f(pd: &uroce::ProtectionDomain) -> Result<(), uroce::RegisterError> {
    /// let words: &'static [std::sync::atomic::AtomicU64] =
    ///     Box::leak((0..64).map(|_| Default::default()).collect());
    /// let start = std::ptr::NonNull::from_ref(words).cast();
    /// // SAFETY: the memory is never freed, and all accesses are atomic.
    /// let mr = unsafe { pd.register(start, 512, uroce::AccessFlags::REMOTE_READ) }?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`RegisterError`].
    ///
    /// # Safety
    ///
    /// The `len` bytes at `start` must stay mapped and readable, and writable if `access` has a
    /// write right, until the region has been dropped, or for ever if it is leaked. Lcores read and
    /// write them at any time as a device would. So the program must not keep a reference that
    /// excludes such accesses (no `&mut`, and with a write right no `&` except of atomics), and
    /// must change words that ATOMIC requests use with atomic operations only.
    pub unsafe fn register(
        &self,
        start: NonNull<u8>,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, RegisterError> {
        // SAFETY: the caller of `register` fulfils the same conditions.
        unsafe { MemoryRegion::new(self.shared(), start, len, access, None) }
    }
}

/// Splits a range: the number of bytes before its first aligned word, and the number of whole
/// words.
#[inline]
fn split(place: *mut u8, len: usize) -> (usize, usize) {
    let head = (place.addr().wrapping_neg() % WORD).min(len);
    (head, (len - head) / WORD)
}

/// A part of a memory region, used as an element of a scatter/gather list.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct MemorySlice<'mr> {
    sge: Sge,
    _region: PhantomData<&'mr MemoryRegion>,
}

impl MemorySlice<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.sge.len as usize
    }

    /// Whether the slice has no bytes. An empty slice is allowed in a list.
    pub fn is_empty(&self) -> bool {
        self.sge.len == 0
    }

    /// Virtual address of the first byte.
    pub fn va(&self) -> Va {
        self.sge.va
    }

    /// The L_Key of the region.
    pub fn lkey(&self) -> Lkey {
        self.sge.lkey
    }

    /// Copies the bytes of a list to the front of `out`. Returns their number, or `None` if they do
    /// not fit.
    pub(crate) fn gather(list: &[MemorySlice<'_>], out: &mut [u8]) -> Option<usize> {
        let mut at = 0;
        for slice in list {
            let bytes = out.get_mut(at..)?.get_mut(..slice.len())?;
            // The virtual address of a slice is the address of its memory, exposed in
            // `MemoryRegion::new`.
            let start = std::ptr::with_exposed_provenance_mut::<u8>(slice.sge.va.0 as usize);
            for (offset, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: the slice is inside its region, which it borrows, so the byte is mapped.
                // Other accesses of this process are atomic, or copies by lcores that stand for a
                // device's DMA.
                *byte = unsafe { AtomicU8::from_ptr(start.wrapping_add(offset)) }
                    .load(Ordering::Relaxed);
            }
            at += slice.len();
        }
        Some(at)
    }

    /// Converts a list to the engine's type.
    #[inline]
    pub(crate) fn sges<'a>(list: &'a [MemorySlice<'_>]) -> &'a [Sge] {
        // SAFETY: `MemorySlice` is `repr(transparent)` over `Sge`, so both slices have the same
        // layout; the length and lifetime are unchanged.
        unsafe { std::slice::from_raw_parts(list.as_ptr().cast::<Sge>(), list.len()) }
    }
}

/// A buffer in a peer's memory, as the peer has described it. The peer checks every access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Virtual address of the first byte at the peer.
    pub va: Va,
    /// The peer's R_Key for the buffer.
    pub rkey: Rkey,
    /// Length in bytes.
    pub len: u64,
}

impl RemoteBuffer {
    /// A part of the buffer.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] if the range is not inside the buffer.
    pub fn slice(&self, offset: u64, len: u64) -> Result<RemoteBuffer, OutOfRange> {
        match self.len.checked_sub(offset) {
            Some(room) if len <= room => {
                Ok(RemoteBuffer { va: Va(self.va.0.wrapping_add(offset)), rkey: self.rkey, len })
            }
            _ => Err(OutOfRange { offset, len, within: self.len }),
        }
    }
}
