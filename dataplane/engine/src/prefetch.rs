//! Prefetching: memory that another core had is fetched while this one works on what comes before.
//!
//! A frame crosses between two cores line by line, each some hundred nanoseconds away. The
//! processor's own prefetchers see a stream only after it has begun, and none across two frames.
//!
//! Not here: whether it pays; only places that were measured call it.

#![allow(unsafe_code)]

/// Bytes of a cache line.
const LINE: usize = 64;

/// Hints that these bytes will be read soon. They come into the second-level cache: the first has
/// too few buffers for lines under way, and fetching a whole frame would stall it.
#[inline(always)]
pub(crate) fn prefetch_read(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads and writes nothing and cannot fault, whatever the address; SSE
        // is part of every x86-64 processor.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}

/// Hints that these bytes will be written soon.
#[inline(always)]
pub(crate) fn prefetch_write(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: as above. A processor without PREFETCHW takes it for a no-operation.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}
