//! A list of mbufs with a fixed capacity: the unit that one burst moves.

use super::Mbuf;
use std::fmt;
use std::mem::MaybeUninit;

/// Capacity of a batch: DPDK drivers gain little from longer bursts.
pub const BATCH: usize = 64;

/// Up to [`BATCH`] mbufs in order. Dropping it frees its mbufs in one call.
pub struct MbufBatch {
    /// The first `len` are initialized.
    mbufs: [MaybeUninit<Mbuf>; BATCH],
    len: usize,
}

impl MbufBatch {
    /// Makes an empty batch.
    pub const fn new() -> Self {
        Self { mbufs: [const { MaybeUninit::uninit() }; BATCH], len: 0 }
    }

    /// Returns how many mbufs it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns how many more it can take.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH - self.len
    }

    /// Appends an mbuf.
    ///
    /// # Errors
    ///
    /// Returns the mbuf if the batch is full.
    #[inline]
    pub fn push(&mut self, mbuf: Mbuf) -> Result<(), Mbuf> {
        match self.mbufs.get_mut(self.len) {
            Some(place) => {
                place.write(mbuf);
                self.len += 1;
                Ok(())
            }
            None => Err(mbuf),
        }
    }

    /// Takes the last mbuf.
    #[inline]
    pub fn pop(&mut self) -> Option<Mbuf> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: the place was below the old `len`, so it is initialized; it is not part of the
        // batch any more, so it is read once.
        Some(unsafe { self.mbufs[self.len].assume_init_read() })
    }

    /// Takes the mbuf at place `at`; those behind it move up. `None` if there is none.
    pub(crate) fn take(&mut self, at: usize) -> Option<Mbuf> {
        let rest = self.as_mut_slice().get_mut(at..).filter(|rest| !rest.is_empty())?;
        rest.rotate_left(1);
        self.pop()
    }

    /// Returns the mbufs, first to last.
    #[inline]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len ≤ BATCH` elements are initialized; `MaybeUninit<Mbuf>` has the
        // layout of `Mbuf`.
        unsafe { std::slice::from_raw_parts(self.mbufs.as_ptr().cast(), self.len) }
    }

    /// Returns the mbufs, first to last, for writing.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: the first `len ≤ BATCH` elements are initialized, `MaybeUninit<Mbuf>` has the
        // layout of `Mbuf`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.mbufs.as_mut_ptr().cast(), self.len) }
    }

    /// Takes all mbufs out, first to last. Those that the iterator has not returned are freed.
    #[inline]
    pub fn drain(&mut self) -> Drain<'_> {
        let len = std::mem::take(&mut self.len);
        Drain { batch: self, next: 0, len }
    }

    /// Frees all mbufs in one call.
    #[inline]
    pub fn clear(&mut self) {
        let len = std::mem::take(&mut self.len);
        self.free(0, len);
    }

    /// Returns the place behind the last mbuf, for a C function that fills at most `room()`
    /// pointers.
    #[inline]
    pub(crate) fn spare(&mut self) -> *mut *mut dpdk_sys::Mbuf {
        self.mbufs[self.len..].as_mut_ptr().cast()
    }

    /// Returns the first of `len()` pointers, for a C function that takes some of them.
    #[inline]
    pub(crate) fn pointers(&mut self) -> *mut *mut dpdk_sys::Mbuf {
        self.mbufs.as_mut_ptr().cast()
    }

    /// Adds the mbufs that were written to [`spare`](Self::spare).
    ///
    /// # Safety
    ///
    /// `count ≤ room()`, and that many owned mbufs are there, which satisfy the module's
    /// invariants.
    #[inline]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.len += count;
    }

    /// Forgets the first `count` mbufs and moves the rest to the front.
    ///
    /// # Safety
    ///
    /// `count ≤ len()`, and other code owns those mbufs now.
    #[inline]
    pub(crate) unsafe fn forget_front(&mut self, count: usize) {
        debug_assert!(count <= self.len);
        if count < self.len {
            let first = self.mbufs.as_mut_ptr();
            // SAFETY: `count < len`, so the result is inside the array.
            let kept = unsafe { first.add(count) };
            // SAFETY: the `len - count` elements at `kept` are inside the array; `copy` allows
            // overlap. The elements left at the end are beyond the new `len`.
            unsafe { std::ptr::copy(kept, first, self.len - count) };
        }
        self.len -= count;
    }

    /// Frees the mbufs in places `from..to`, which `len` does not count any more.
    fn free(&mut self, from: usize, to: usize) {
        let Some(mbufs) = self.mbufs.get_mut(from..to) else { return };
        if mbufs.is_empty() {
            return;
        }
        // SAFETY: callers pass places that are initialized and still own their mbufs; `Mbuf` is a
        // transparent pointer. `to - from ≤ 64` fits in 16 bits.
        unsafe { dpdk_sys::uroce_mbuf_free(mbufs.as_mut_ptr().cast(), mbufs.len() as u16) }
    }
}

impl Default for MbufBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for MbufBatch {
    fn drop(&mut self) {
        self.clear();
    }
}

impl fmt::Debug for MbufBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MbufBatch").field(&self.len).finish()
    }
}

/// Iterator that takes the mbufs out of a batch.
#[derive(Debug)]
pub struct Drain<'a> {
    batch: &'a mut MbufBatch,
    next: usize,
    len: usize,
}

impl Iterator for Drain<'_> {
    type Item = Mbuf;

    #[inline]
    fn next(&mut self) -> Option<Mbuf> {
        if self.next == self.len {
            return None;
        }
        let place = self.next;
        self.next += 1;
        // SAFETY: `place < len`, so it was initialized when the batch was emptied; `next` has
        // passed it, so it is read once.
        Some(unsafe { self.batch.mbufs[place].assume_init_read() })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len - self.next, Some(self.len - self.next))
    }
}

impl ExactSizeIterator for Drain<'_> {}

impl Drop for Drain<'_> {
    #[inline]
    fn drop(&mut self) {
        self.batch.free(self.next, self.len);
    }
}
