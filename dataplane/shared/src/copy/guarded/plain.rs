//! Plain accesses, for platforms where an access cannot continue at a landing.

use super::Missing;
use crate::sync::{AtomicU64, Ordering};

/// Returns `None`: no access has a landing.
pub fn landing(_: usize) -> Option<usize> {
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

pub(super) unsafe fn store(word: *mut u64, value: u64) -> Result<(), Missing> {
    // SAFETY: the caller guarantees an aligned word that is accessed by atomics only.
    let word = unsafe { AtomicU64::from_ptr(word) };
    word.store(value, Ordering::Release);
    Ok(())
}

/// Does nothing: touching a page that cannot be had would end the process.
pub(super) unsafe fn touch(_: *mut u8, _writes: bool) -> Result<(), Missing> {
    Ok(())
}

/// Does nothing: no processor feature is needed.
pub fn prepare() {}

/// Does nothing: no copy depends on the width of registers.
pub fn prepare_for(_is_wide: bool) {}

/// Defines a function that loads a line, which is 64 bytes, into registers.
#[cfg(target_arch = "x86_64")]
macro_rules! load {
    ($name:ident: [$register:ident; $count:literal], $features:literal, $load:ident) => {
        /// Loads a line from any alignment.
        ///
        /// # Safety
        /// The processor has the registers, and the 64 bytes at `from` may be read.
        #[inline]
        #[target_feature(enable = $features)]
        pub unsafe fn $name(
            from: *const u8,
            _: &std::cell::Cell<u32>,
        ) -> [std::arch::x86_64::$register; $count] {
            let from = from.cast::<std::arch::x86_64::$register>();
            std::array::from_fn(|at| {
                // SAFETY: the caller guarantees that the processor has the registers and that the
                // line, of which this is a register's part, may be read.
                unsafe { std::arch::x86_64::$load(from.wrapping_add(at)) }
            })
        }
    };
}

#[cfg(target_arch = "x86_64")]
load!(load_xmm: [__m128i; 4], "avx", _mm_loadu_si128);
#[cfg(target_arch = "x86_64")]
load!(load_ymm: [__m256i; 2], "avx2", _mm256_loadu_si256);
#[cfg(target_arch = "x86_64")]
load!(load_zmm: [__m512i; 1], "avx512f", _mm512_loadu_si512);
