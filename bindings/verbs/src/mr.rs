//! Memory region: registered memory, and the slices of it that work requests name.
//!
//! Registered memory is shared with lcores and, through the wire, with peers: it changes at any
//! moment. So no reference to its bytes is ever made; they are copied in and out.
//!
//! Invariants
//! - The memory stays mapped until deregistration has returned, after which nothing touches it.
//! - Copies change each aligned 8-byte word they cover whole by one atomic access, so they mix with
//!   ATOMIC operations and never tear a word.
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

use crate::pd::{PdShared, ProtectionDomain};

/// Alignment of memory that we allocate: a page.
const ALIGN: usize = 4096;
const WORD: usize = size_of::<u64>();

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The system has not so much memory.
    #[error("no memory for a region of {0} bytes")]
    NoMemory(usize),
    /// The engine refused it.
    #[error(transparent)]
    Engine(#[from] MrError),
}

/// A range reaches beyond its region or buffer, or is no range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at offset {offset} are not within {within} bytes")]
pub struct OutOfRange {
    /// First byte asked for.
    pub offset: u64,
    /// Bytes asked for.
    pub len: u64,
    /// Bytes there are.
    pub within: u64,
}

/// Memory that work requests, and peers who have its R_Key, may use.
///
/// Dropping it deregisters it, which waits until no lcore touches it any more. Work requests that
/// still name it complete with `LOC_PROT_ERR`; a peer's request gets a remote access error. If
/// memory windows are bound to it, dropping it leaves it registered, and its memory, if it is its
/// own, allocated for ever; [`deregister`](MemoryRegion::deregister) gives it back instead.
#[derive(Debug)]
pub struct MemoryRegion {
    pd: Arc<PdShared>,
    keys: MrKeys,
    start: NonNull<u8>,
    len: usize,
    /// How to free the memory, if it is ours.
    layout: Option<Layout>,
}

// SAFETY: the pointer is to memory that this value owns or that `register`'s caller promised for
// as long as this value lives; it is accessed by atomics only, from whatever thread.
unsafe impl Send for MemoryRegion {}
// SAFETY: as above: all accesses through `&self` are atomic.
unsafe impl Sync for MemoryRegion {}

impl MemoryRegion {
    pub(crate) fn allocate(
        pd: &Arc<PdShared>,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, RegisterError> {
        // An allocation has a byte at least.
        let layout =
            Layout::from_size_align(len.max(1), ALIGN).map_err(|_| RegisterError::NoMemory(len))?;
        // SAFETY: the layout's size is not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or(RegisterError::NoMemory(len))?;
        // SAFETY: the allocation has `len` bytes, is ours alone, and is freed by `drop` after
        // deregistration, or below if there is no registration.
        let region = unsafe { MemoryRegion::new(pd, start, len, access, Some(layout)) };
        if region.is_err() {
            // SAFETY: allocated above with this layout; nothing else knows it.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
        region
    }

    /// # Safety
    /// As [`ProtectionDomain::register`].
    unsafe fn new(
        pd: &Arc<PdShared>,
        start: NonNull<u8>,
        len: usize,
        access: AccessFlags,
        layout: Option<Layout>,
    ) -> Result<MemoryRegion, RegisterError> {
        let addr = start.as_ptr();
        // Slices turn the number back into a pointer (`MemorySlice::gather`).
        let va = Va(addr.expose_provenance() as u64);
        let spec = MrSpec { addr, len, va, pd: pd.pd, access };
        Engine::guard_memory();
        // SAFETY: the caller's promise, and `drop` deregisters before the promise ends.
        let keys = unsafe { pd.device.engine().register_mr(&spec) }?;
        Ok(MemoryRegion { pd: Arc::clone(pd), keys, start, len, layout })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes, and so grants nothing.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, as peers name it.
    pub fn va(&self) -> Va {
        Va(self.start.as_ptr().addr() as u64)
    }

    /// The key for work requests of this process.
    pub fn lkey(&self) -> Lkey {
        self.keys.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> Rkey {
        self.keys.rkey
    }

    /// All of it as a peer names it: to be sent there.
    pub fn remote(&self) -> RemoteBuffer {
        RemoteBuffer { va: self.va(), rkey: self.rkey(), len: self.len as u64 }
    }

    /// A part of it, for the scatter/gather list of a work request.
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
    /// [`OutOfRange`], also for a part of 2^32 bytes or more.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<MemorySlice<'_>, OutOfRange> {
        let (offset, len) = self.bounds(range)?;
        let out_of_range =
            OutOfRange { offset: offset as u64, len: len as u64, within: u32::MAX.into() };
        let len = u32::try_from(len).map_err(|_| out_of_range)?;
        let va = Va(self.va().0 + offset as u64);
        Ok(MemorySlice { sge: Sge { va, len, lkey: self.lkey() }, _region: PhantomData })
    }

    /// Deregisters it as dropping does, unless memory windows are bound to it.
    ///
    /// # Errors
    ///
    /// The region, as it was: windows are bound to it.
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

    /// The key is gone: the rest goes as well.
    fn free(self) {
        let mut region = std::mem::ManuallyDrop::new(self);
        if let Some(layout) = region.layout {
            // SAFETY: allocated in `allocate` with this layout; deregistered, so no lcore touches
            // it, and slices cannot outlive `self`.
            unsafe { dealloc(region.start.as_ptr(), layout) }
        }
        // SAFETY: `region` is not dropped and this field not used any more.
        unsafe { std::ptr::drop_in_place(&raw mut region.pd) }
    }

    /// Copies bytes out. What is being written meanwhile may be old or new.
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

    /// Copies bytes in.
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

    /// Sets all bytes of a range.
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

    /// Reads one byte. What was written before it by the same peer's message is visible after it.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`].
    #[inline]
    pub fn load_u8(&self, offset: usize) -> Result<u8, OutOfRange> {
        self.place(offset, 1)?;
        Ok(self.byte(offset).load(Ordering::Acquire))
    }

    /// Writes one byte.
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

    /// Reads the word at an offset that is a multiple of 8, in host byte order.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if the word is not aligned.
    #[inline]
    pub fn load_u64(&self, offset: usize) -> Result<u64, OutOfRange> {
        self.aligned(offset)?;
        Ok(self.word(offset).load(Ordering::Acquire))
    }

    /// Writes the word at an offset that is a multiple of 8, in host byte order.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`], also if the word is not aligned.
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

    /// The place of a range that lies inside.
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

    /// The byte at an offset that the caller has checked.
    #[inline]
    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len);
        let place = self.start.as_ptr().wrapping_add(offset);
        // SAFETY: callers have checked by `place` that the byte is inside; it stays mapped as long
        // as `self` lives, and everybody in this process uses atomics or, on the lcores, the
        // engine's raw copies, which stand for a device.
        unsafe { AtomicU8::from_ptr(place) }
    }

    /// The aligned word at an offset that the caller has checked.
    #[inline]
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + WORD <= self.len);
        let place = self.start.as_ptr().wrapping_add(offset).cast::<u64>();
        debug_assert!(place.is_aligned());
        // SAFETY: callers have checked range and alignment; else as in `byte`.
        unsafe { AtomicU64::from_ptr(place) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let gone = self.pd.device.engine().deregister_mr(self.keys.lkey);
        let expected = matches!(gone, Ok(()) | Err(MrError::Busy));
        debug_assert!(expected, "only this drop removes the key: {gone:?}");
        if let (Ok(()), Some(layout)) = (gone, self.layout) {
            // SAFETY: allocated in `allocate` with this layout; deregistered, so no lcore touches
            // it, and slices cannot outlive `self`.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

impl ProtectionDomain {
    /// Registers memory that the caller owns.
    ///
    /// ```
    /// # fn f(pd: &uroce::ProtectionDomain) -> Result<(), uroce::RegisterError> {
    /// let words: &'static [std::sync::atomic::AtomicU64] =
    ///     Box::leak((0..64).map(|_| Default::default()).collect());
    /// let start = std::ptr::NonNull::from_ref(words).cast();
    /// // SAFETY: the memory is never freed, and everybody uses atomics.
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
    /// Until the region has been dropped, and for ever if it is leaked, the `len` bytes at `start`
    /// stay mapped and readable, and writable if `access` has a write right. Lcores read and write
    /// them at any time as a device would, so the program keeps no reference that forbids it (no
    /// `&mut`, and with a write right no `&` but of atomics), and changes words that ATOMIC
    /// operations use by atomics only.
    pub unsafe fn register(
        &self,
        start: NonNull<u8>,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, RegisterError> {
        // SAFETY: the caller's promise.
        unsafe { MemoryRegion::new(self.shared(), start, len, access, None) }
    }
}

/// How many bytes stand before the first aligned word of a range, and how many words follow.
#[inline]
fn split(place: *mut u8, len: usize) -> (usize, usize) {
    let head = (place.addr().wrapping_neg() % WORD).min(len);
    (head, (len - head) / WORD)
}

/// A part of a memory region: an element of a scatter/gather list.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct MemorySlice<'mr> {
    sge: Sge,
    _region: PhantomData<&'mr MemoryRegion>,
}

impl MemorySlice<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.sge.len as usize
    }

    /// Whether it has no bytes; it may still stand in a list.
    pub fn is_empty(&self) -> bool {
        self.sge.len == 0
    }

    /// Address of the first byte.
    pub fn va(&self) -> Va {
        self.sge.va
    }

    /// The key of its region.
    pub fn lkey(&self) -> Lkey {
        self.sge.lkey
    }

    /// Copies the bytes of a list to the front of `out`; how many they are, if they fit.
    pub(crate) fn gather(list: &[MemorySlice<'_>], out: &mut [u8]) -> Option<usize> {
        let mut at = 0;
        for slice in list {
            let bytes = out.get_mut(at..)?.get_mut(..slice.len())?;
            // The address by which a region of ours is named is that of its memory.
            let start = std::ptr::with_exposed_provenance_mut::<u8>(slice.sge.va.0 as usize);
            for (offset, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: a slice lies inside of its region, which it borrows, so the byte is
                // mapped; others read and write it by atomics or as a device would.
                *byte = unsafe { AtomicU8::from_ptr(start.wrapping_add(offset)) }
                    .load(Ordering::Relaxed);
            }
            at += slice.len();
        }
        Some(at)
    }

    /// A list as the engine takes it.
    #[inline]
    pub(crate) fn sges<'a>(list: &'a [MemorySlice<'_>]) -> &'a [Sge] {
        // SAFETY: `MemorySlice` is a transparent wrapper of `Sge`, so the slices have one layout;
        // length and lifetime are kept.
        unsafe { std::slice::from_raw_parts(list.as_ptr().cast::<Sge>(), list.len()) }
    }
}

/// A peer's memory: plain numbers that it has sent. The peer checks every use of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBuffer {
    /// Address of the first byte in the peer's terms.
    pub va: Va,
    /// The key that opens it.
    pub rkey: Rkey,
    /// Bytes.
    pub len: u64,
}

impl RemoteBuffer {
    /// A part of it.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`].
    pub fn slice(&self, offset: u64, len: u64) -> Result<RemoteBuffer, OutOfRange> {
        match self.len.checked_sub(offset) {
            Some(room) if len <= room => {
                Ok(RemoteBuffer { va: Va(self.va.0.wrapping_add(offset)), rkey: self.rkey, len })
            }
            _ => Err(OutOfRange { offset, len, within: self.len }),
        }
    }
}
