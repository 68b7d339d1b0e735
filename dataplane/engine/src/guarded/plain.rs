//! Where no access can be continued elsewhere: plain ones.

use super::Missing;
use crate::sync::{AtomicU64, Ordering};

/// No access goes on anywhere.
pub(crate) fn landing(_: usize) -> Option<usize> {
    None
}

#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Missing> {
    // SAFETY: the caller's promise; all of it is mapped, or the process ends.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    Ok(())
}

pub(super) unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, Missing> {
    // SAFETY: the caller's promise: aligned, and changed by atomics only.
    let word = unsafe { AtomicU64::from_ptr(word) };
    match word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(former) | Err(former) => Ok(former),
    }
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Missing> {
    // SAFETY: the caller's promise: aligned, and changed by atomics only.
    let word = unsafe { AtomicU64::from_ptr(word) };
    Ok(word.fetch_add(add, Ordering::AcqRel))
}

/// Nothing: a page that cannot be had would end the process.
pub(super) unsafe fn touch(_: *mut u8, _writes: bool) -> Result<(), Missing> {
    Ok(())
}

/// Nothing has to be looked up.
pub(crate) fn prepare() {}

/// The same, whatever registers there are.
pub(crate) fn prepare_for(_is_wide: bool) {}

/// A load of a register.
#[cfg(target_arch = "x86_64")]
macro_rules! load {
    ($name:ident: $register:ident, $features:literal, $load:ident) => {
        /// Loads from any alignment.
        ///
        /// # Safety
        /// The processor has the register. Its length may be read.
        #[inline]
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn $name(
            from: *const u8,
            _: &std::cell::Cell<u32>,
        ) -> std::arch::x86_64::$register {
            // SAFETY: the caller's promise.
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
