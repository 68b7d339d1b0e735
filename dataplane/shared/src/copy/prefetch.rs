//! Prefetching: fetches memory that another core used last while this core works on something
//! before it.
//!
//! A frame crosses between two cores line by line, each some hundred nanoseconds away. The
//! processor's own prefetchers detect a stream only after it has begun, and none across two frames.
//!
//! Not here: whether prefetching pays; it is used only where that was measured.

#![allow(unsafe_code)]

use std::ptr;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Hints that `bytes` bytes from `start` on will be read soon. They go into the second-level cache:
/// the first-level cache has too few buffers for lines under way, and a whole frame would stall it.
#[inline(always)]
pub fn prefetch_read(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing and cannot fault, whatever the address; every
        // x86-64 processor has SSE.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(offset).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}

/// Hints that a value, or a slice of values, will be read soon.
#[inline(always)]
pub fn prefetch_value<T: ?Sized>(value: &T) {
    prefetch_read(ptr::from_ref(value).cast(), size_of_val(value));
}

/// Hints that values will be written soon.
#[inline(always)]
pub(crate) fn prefetch_slots<T>(slots: &[T]) {
    prefetch_write(slots.as_ptr().cast(), size_of_val(slots));
}

/// Hints that `bytes` bytes from `start` on will be written soon: their lines are fetched for
/// writing.
#[inline(always)]
pub fn prefetch_write(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for offset in (0..bytes).step_by(LINE) {
        let line = start.wrapping_add(offset);
        // In assembler: for a processor that may lack PREFETCHW the compiler turns the intrinsic
        // into a prefetch for reading, and the line would have to be fetched twice.
        // SAFETY: a prefetch reads and writes nothing and cannot fault, whatever the address; a
        // processor without the instruction treats it as a no-operation.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}
