//! Plain accesses, for platforms where an access cannot continue at a landing.

use super::Missing;
use crate::sync::{AtomicU64, Ordering};

/// Returns `None`: no access has a landing.
pub(crate) fn landing(_: usize) -> Option<usize> {
    None
}

#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Missing> {
    // SAFETY: the caller allows the access; if part of the memory is not mapped, the process ends.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    Ok(())
}

pub(super) unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, Missing> {
    // SAFETY: the caller guarantees an aligned word that is accessed by atomics only.
    let word = unsafe { AtomicU64::from_ptr(word) };
    match word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(former) | Err(former) => Ok(former),
    }
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Missing> {
    // SAFETY: the caller guarantees an aligned word that is accessed by atomics only.
    let word = unsafe { AtomicU64::from_ptr(word) };
    Ok(word.fetch_add(add, Ordering::AcqRel))
}

/// Does nothing: touching a page that cannot be had would end the process.
pub(super) unsafe fn touch(_: *mut u8, _writes: bool) -> Result<(), Missing> {
    Ok(())
}

/// Does nothing: no processor feature is needed.
pub(crate) fn prepare() {}

/// Does nothing: no copy depends on the width of registers.
pub(crate) fn prepare_for(_is_wide: bool) {}

/// Defines a function that loads a register.
#[cfg(target_arch = "x86_64")]
macro_rules! load {
    ($name:ident: $register:ident, $features:literal, $load:ident) => {
        /// Loads from any alignment.
        ///
        /// # Safety
        /// The processor has the register, and the register's length may be read at `from`.
        #[inline]
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name(
            from: *const u8,
            _: &std::cell::Cell<u32>,
        ) -> std::arch::x86_64::$register {
            // SAFETY: the caller guarantees that the processor has the register and that its length
            // may be read.
            unsafe { std::arch::x86_64::$load(from.cast()) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
load!(load_xmm: __m128i, "avx", _mm_loadu_si128);
#[cfg(target_arch = "x86_64")]
load!(load_ymm: __m256i, "avx2", _mm256_loadu_si256);
#[cfg(target_arch = "x86_64")]
load!(load_zmm: __m512i, "avx512f", _mm512_loadu_si512);
