//! A fixed-capacity list of mbufs: what one burst moves.

use super::Mbuf;
use std::fmt;
use std::mem::MaybeUninit;

/// Mbufs in a full batch: DPDK drivers gain little from longer bursts.
pub const BATCH: usize = 64;

/// Up to [`BATCH`] mbufs in order. Those left at its end of life are freed in one call.
pub struct MbufBatch {
    /// The first `len` are initialized.
    mbufs: [MaybeUninit<Mbuf>; BATCH],
    len: usize,
}

impl MbufBatch {
    /// An empty batch.
    pub const fn new() -> Self {
        Self { mbufs: [const { MaybeUninit::uninit() }; BATCH], len: 0 }
    }

    /// How many mbufs it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many more it takes.
    #[inline]
    pub fn room(&self) -> usize {
        BATCH - self.len
    }

    /// Appends an mbuf.
    ///
    /// # Errors
    ///
    /// A full batch gives it back.
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
        // SAFETY: the place was initialized, being below the old `len`, and is not any more part
        // of the batch: it is read once.
        Some(unsafe { self.mbufs[self.len].assume_init_read() })
    }

    /// The mbufs, first to last.
    #[inline]
    pub fn as_slice(&self) -> &[Mbuf] {
        // SAFETY: the first `len ≤ BATCH` elements are initialized; `MaybeUninit<Mbuf>` has the
        // layout of `Mbuf`.
        unsafe { std::slice::from_raw_parts(self.mbufs.as_ptr().cast(), self.len) }
    }

    /// The mbufs, first to last, to be written.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Mbuf] {
        // SAFETY: as in `as_slice`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.mbufs.as_mut_ptr().cast(), self.len) }
    }

    /// Takes all mbufs out, first to last. Those not taken are freed.
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

    /// The place behind the last mbuf, for a C function that fills at most `room()` pointers.
    #[inline]
    pub(crate) fn spare(&mut self) -> *mut *mut dpdk_sys::Mbuf {
        self.mbufs[self.len..].as_mut_ptr().cast()
    }

    /// The first of `len()` pointers, for a C function that takes some of them.
    #[inline]
    pub(crate) fn pointers(&mut self) -> *mut *mut dpdk_sys::Mbuf {
        self.mbufs.as_mut_ptr().cast()
    }

    /// Adds what was written to [`spare`](Self::spare).
    ///
    /// # Safety
    ///
    /// `count ≤ room()`, and so many mbufs of ours are there, with the invariants of the module.
    #[inline]
    pub(crate) unsafe fn grow(&mut self, count: usize) {
        debug_assert!(count <= self.room());
        self.len += count;
    }

    /// Forgets the first `count` mbufs and moves the rest to the front.
    ///
    /// # Safety
    ///
    /// `count ≤ len()`, and somebody else owns those mbufs now.
    #[inline]
    pub(crate) unsafe fn forget_front(&mut self, count: usize) {
        debug_assert!(count <= self.len);
        if count < self.len {
            let first = self.mbufs.as_mut_ptr();
            // SAFETY: `count < len`, so the place is inside the array.
            let kept = unsafe { first.add(count) };
            // SAFETY: `len - count` elements from `kept` on are inside the array; the copy may
            // overlap. What it leaves behind at the end is beyond the new `len`.
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
        // SAFETY: the callers pass places that were initialized and whose mbufs nobody else took;
        // `Mbuf` is a transparent pointer. `to - from ≤ 64` fits.
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

/// The mbufs that are being taken out of a batch.
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
        // SAFETY: `place < len`, so it was initialized when the batch was emptied, and `next` has
        // passed it: it is read once.
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
