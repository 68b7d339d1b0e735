//! Moving bytes: copies of memory that may be gone, copies that compute the invariant CRC on the
//! way, and prefetches.

#[cfg(not(loom))]
pub mod guarded;
pub mod prefetch;
#[cfg(not(loom))]
pub mod sum;
