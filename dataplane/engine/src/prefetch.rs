//! Prefetching: memory that another core had is fetched while this one works on what comes before.
//!
//! A frame crosses between two cores line by line, each some hundred nanoseconds away. The
//! processor's own prefetchers see a stream only after it has begun, and none across two frames.
//!
//! Not here: whether it pays; only places that were measured call it.

#![allow(unsafe_code)]

use std::ptr;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;

/// Hints that so many bytes from `start` on will be read soon. They come into the second-level
/// cache: the first has too few buffers for lines under way, and fetching a whole frame would
/// stall it.
#[inline(always)]
pub(crate) fn prefetch_read(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing and cannot fault, whatever the address; SSE
        // is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(offset).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}

/// Hints that a value, or a slice of them, will be read soon.
#[inline(always)]
pub(crate) fn prefetch_value<T: ?Sized>(value: &T) {
    prefetch_read(ptr::from_ref(value).cast(), size_of_val(value));
}

/// Hints that values will be written soon.
#[inline(always)]
pub(crate) fn prefetch_slots<T>(slots: &[T]) {
    prefetch_write(slots.as_ptr().cast(), size_of_val(slots));
}

/// Hints that so many bytes from `start` on will be written soon: their lines come with the right
/// to write.
#[inline(always)]
pub(crate) fn prefetch_write(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        let line = start.wrapping_add(offset);
        // Spelled out: for a processor that may lack PREFETCHW the compiler makes a prefetch for
        // reading of the intrinsic, and the line would have to be asked for twice.
        // SAFETY: as above. A processor without the instruction takes it for a no-operation.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
