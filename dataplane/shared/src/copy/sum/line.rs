//! A line of 64 bytes in registers of 16, 32 or 64 bytes, and the choice of the width.

use super::fold;
use crate::copy::guarded::{self, Missing};
use crate::copy::prefetch::LINE;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_storeu_si128,
    _mm_xor_si128, _mm256_clmulepi64_epi128, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_clmulepi64_epi128, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_xor_si512,
};
use std::cell::Cell;
use uroce_wire::Icrc;

/// The factors of the two halves of each lane of a line.
pub(super) type Keys = [[u64; 2]; 4];

/// A line in registers.
pub(super) trait Line: Copy {
    /// Loads a line from memory of any alignment.
    ///
    /// # Safety
    /// The processor has the registers. 64 bytes may be read.
    unsafe fn load(from: *const u8) -> Self;

    /// Loads a line from memory of any alignment that may be gone: then the result is zeros, and
    /// `missing` is set to a number other than 0.
    ///
    /// # Safety
    /// The processor has the registers. The mapped part of the 64 bytes at `from` may be read.
    unsafe fn load_guarded(from: *const u8, missing: &Cell<u32>) -> Self;

    /// Stores a line to memory of any alignment.
    ///
    /// # Safety
    /// The processor has the registers. 64 bytes may be written.
    unsafe fn store(self, to: *mut u8);

    /// Returns the sum of two lines as polynomials.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn plus(self, other: Self) -> Self;

    /// Returns, for each lane, the sum of the products of its halves.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn times(self, keys: &Keys) -> Self;

    /// Makes a line from its lanes.
    fn of(lanes: &[u128; 4]) -> Self;

    /// Returns the lanes.
    fn lanes(self) -> [u128; 4];
}

/// The width of the registers in which a payload is summed: 16, 32 or 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    Xmm,
    Ymm,
    Zmm,
}

impl Width {
    /// All widths, the widest first.
    pub(super) const ALL: [Width; 3] = [Width::Zmm, Width::Ymm, Width::Xmm];

    /// Returns the widest that the processor has; `None` if `count` bytes are too few for it to
    /// pay.
    #[inline]
    pub(super) fn for_bytes(count: usize) -> Option<Width> {
        if count < super::LEAST {
            return None;
        }
        Width::ALL.into_iter().find(|width| width.is_available())
    }

    /// Returns whether this processor has the registers and instructions.
    #[inline]
    pub(super) fn is_available(self) -> bool {
        match self {
            Width::Xmm => is_x86_feature_detected!("avx") && is_x86_feature_detected!("pclmulqdq"),
            Width::Ymm => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("vpclmulqdq")
            }
            Width::Zmm => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
            }
        }
    }

    /// Copies from registered memory to `out` and returns `sum` continued over the bytes.
    ///
    /// # Safety
    /// This width is available, and `out` has [`LEAST`](super::LEAST) bytes or more. The mapped
    /// part of the `out.len()` bytes at `from` may be read, and does not overlap `out`.
    #[inline]
    pub(super) unsafe fn copy_summed_from(
        self,
        from: *const u8,
        out: &mut [u8],
        sum: Icrc,
    ) -> Result<Icrc, Missing> {
        let copy_summed_from = match self {
            Width::Xmm => Xmm::copy_summed_from,
            Width::Ymm => Ymm::copy_summed_from,
            Width::Zmm => Zmm::copy_summed_from,
        };
        // SAFETY: the width is available, so the processor has the instructions; the caller
        // guarantees the memory at `from` and the length of `out`.
        unsafe { copy_summed_from(from, out, sum) }
    }

    /// Returns `sum` continued over `bytes`, and prefetches `ahead`.
    ///
    /// # Safety
    /// This width is available, and there are [`LEAST`](super::LEAST) bytes or more.
    #[inline]
    pub(super) unsafe fn summed(self, bytes: &[u8], sum: Icrc, ahead: &[u8]) -> Icrc {
        let summed = match self {
            Width::Xmm => Xmm::summed,
            Width::Ymm => Ymm::summed,
            Width::Zmm => Zmm::summed,
        };
        // SAFETY: the width is available, so the processor has the instructions; the caller
        // guarantees the length.
        unsafe { summed(bytes, sum, ahead) }
    }
}

/// Defines a width: kind and number of its registers, its instructions, and how many lines are
/// folded side by side: as many as keep the multiplier busy and fit into registers.
macro_rules! width {
    ($name:ident: [$register:ty; $count:literal], $features:literal, $side_by_side:literal,
     $guarded:path, $load:ident, $store:ident, $xor:ident, $multiply:ident) => {
        #[derive(Clone, Copy)]
        struct $name([$register; $count]);

        impl $name {
            /// Copies and sums with these registers.
            ///
            /// # Safety
            /// See [`fold::copy_summed_from`]; the processor has the registers.
            #[target_feature(enable = $features)]
            unsafe fn copy_summed_from(
                from: *const u8,
                out: &mut [u8],
                sum: Icrc,
            ) -> Result<Icrc, Missing> {
                // SAFETY: the caller guarantees the memory and the processor's features.
                unsafe { fold::copy_summed_from::<$name, $side_by_side>(from, out, sum) }
            }

            /// Sums with these registers.
            ///
            /// # Safety
            /// See [`fold::summed`]; the processor has the registers.
            #[target_feature(enable = $features)]
            unsafe fn summed(bytes: &[u8], sum: Icrc, ahead: &[u8]) -> Icrc {
                // SAFETY: the caller guarantees the length and the processor's features.
                unsafe { fold::summed::<$name, $side_by_side>(bytes, sum, ahead) }
            }
        }

        // Inlined into the two functions above, so that their target features apply.
        impl Line for $name {
            #[inline(always)]
            unsafe fn load(from: *const u8) -> $name {
                let from = from.cast::<$register>();
                // SAFETY: the caller guarantees that the whole line may be read.
                let load = |at| unsafe { $load(from.wrapping_add(at).cast()) };
                $name(std::array::from_fn(load))
            }

            #[inline(always)]
            unsafe fn load_guarded(from: *const u8, missing: &Cell<u32>) -> $name {
                // SAFETY: the caller guarantees that the processor has the registers and that the
                // mapped part of the line may be read.
                $name(unsafe { $guarded(from, missing) })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                let to = to.cast::<$register>();
                for (at, register) in self.0.into_iter().enumerate() {
                    // SAFETY: the caller guarantees that the whole line may be written.
                    unsafe { $store(to.wrapping_add(at).cast(), register) };
                }
            }

            #[inline(always)]
            unsafe fn plus(self, other: $name) -> $name {
                // SAFETY: the caller guarantees that the processor has the instruction.
                $name(std::array::from_fn(|at| unsafe { $xor(self.0[at], other.0[at]) }))
            }

            #[inline(always)]
            unsafe fn times(self, keys: &Keys) -> $name {
                // SAFETY: `Keys` is an array of 64 bytes.
                let keys = unsafe { $name::load(keys.as_ptr().cast()) };
                // SAFETY: the caller guarantees that the processor has the instruction.
                let first = |at| unsafe { $multiply::<0x00>(self.0[at], keys.0[at]) };
                // SAFETY: the caller guarantees that the processor has the instruction.
                let second = |at| unsafe { $multiply::<0x11>(self.0[at], keys.0[at]) };
                let (first, second) = (std::array::from_fn(first), std::array::from_fn(second));
                // SAFETY: the caller guarantees that the processor has the instruction.
                unsafe { $name(first).plus($name(second)) }
            }

            #[inline(always)]
            fn of(lanes: &[u128; 4]) -> $name {
                // SAFETY: both types have 64 bytes, and registers may hold any bits.
                unsafe { std::mem::transmute(*lanes) }
            }

            #[inline(always)]
            fn lanes(self) -> [u128; 4] {
                // SAFETY: both types have 64 bytes, and any 16 bytes are a valid `u128`.
                unsafe { std::mem::transmute(self) }
            }
        }

        const _: () = assert!(size_of::<$name>() == LINE && $side_by_side * LINE <= super::LEAST);
    };
}

width!(Xmm: [__m128i; 4], "avx,pclmulqdq", 2,
    guarded::load_xmm, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm_clmulepi64_si128);
width!(Ymm: [__m256i; 2], "avx2,vpclmulqdq", 4,
    guarded::load_ymm, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256,
    _mm256_clmulepi64_epi128);
width!(Zmm: [__m512i; 1], "avx512f,vpclmulqdq", 4,
    guarded::load_zmm, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512,
    _mm512_clmulepi64_epi128);
