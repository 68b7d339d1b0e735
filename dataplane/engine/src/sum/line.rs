//! A line of 64 bytes in registers, as wide as the processor has them, and the choice among those.

use super::fold;
use crate::guarded::{self, Missing};
use crate::prefetch::LINE;
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _mm_clmulepi64_si128, _mm_loadu_si128, _mm_storeu_si128,
    _mm_xor_si128, _mm256_clmulepi64_epi128, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_clmulepi64_epi128, _mm512_loadu_si512, _mm512_storeu_si512,
    _mm512_xor_si512,
};
use std::cell::Cell;
use uroce_wire::Icrc;

/// What the two halves of each of a line's lanes are multiplied with.
pub(super) type Keys = [[u64; 2]; 4];

/// A line in registers.
pub(super) trait Line: Copy {
    /// From memory of any alignment.
    ///
    /// # Safety
    /// The processor has the registers. 64 bytes may be read.
    unsafe fn load(from: *const u8) -> Self;

    /// From memory of any alignment that may be gone: then zeros, and a number other than 0 in
    /// `missing`.
    ///
    /// # Safety
    /// The processor has the registers. What is mapped of 64 bytes may be read.
    unsafe fn load_guarded(from: *const u8, missing: &Cell<u32>) -> Self;

    /// To memory of any alignment.
    ///
    /// # Safety
    /// The processor has the registers. 64 bytes may be written.
    unsafe fn store(self, to: *mut u8);

    /// The sum, as polynomials.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn plus(self, other: Self) -> Self;

    /// The sum of the products of each lane's halves.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn times(self, keys: &Keys) -> Self;

    /// From the lanes.
    fn of(lanes: &[u128; 4]) -> Self;

    /// The lanes.
    fn lanes(self) -> [u128; 4];
}

/// How a payload is summed: in registers of 16, 32 or 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    Xmm,
    Ymm,
    Zmm,
}

impl Width {
    /// All, the widest first.
    pub(super) const ALL: [Width; 3] = [Width::Zmm, Width::Ymm, Width::Xmm];

    /// The widest that the processor has, if so many bytes are worth it.
    #[inline]
    pub(super) fn for_bytes(count: usize) -> Option<Width> {
        if count < super::LEAST {
            return None;
        }
        Width::ALL.into_iter().find(|width| width.is_available())
    }

    /// Can this processor do it?
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

    /// As [there](super::copy_summed_from).
    ///
    /// # Safety
    /// The same; this width is available, and `out` has [`LEAST`](super::LEAST) bytes or more.
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
        // SAFETY: the caller's promise.
        unsafe { copy_summed_from(from, out, sum) }
    }

    /// As [there](super::summed).
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
        // SAFETY: the caller's promise.
        unsafe { summed(bytes, sum, ahead) }
    }
}

/// A width: so many registers of a kind, the instructions, and how many lines are folded side by
/// side: as many as keep the multiplier busy and have registers.
macro_rules! width {
    ($name:ident: [$register:ty; $count:literal], $features:literal, $side_by_side:literal,
     $guarded:path, $load:ident, $store:ident, $xor:ident, $multiply:ident) => {
        #[derive(Clone, Copy)]
        struct $name([$register; $count]);

        impl $name {
            /// # Safety
            /// As [there](fold::copy_summed_from).
            #[target_feature(enable = $features)]
            unsafe fn copy_summed_from(
                from: *const u8,
                out: &mut [u8],
                sum: Icrc,
            ) -> Result<Icrc, Missing> {
                // SAFETY: the caller's promise.
                unsafe { fold::copy_summed_from::<$name, $side_by_side>(from, out, sum) }
            }

            /// # Safety
            /// As [there](fold::summed).
            #[target_feature(enable = $features)]
            unsafe fn summed(bytes: &[u8], sum: Icrc, ahead: &[u8]) -> Icrc {
                // SAFETY: the caller's promise.
                unsafe { fold::summed::<$name, $side_by_side>(bytes, sum, ahead) }
            }
        }

        // Inlined into the two above, so that their features are its, too.
        impl Line for $name {
            #[inline(always)]
            unsafe fn load(from: *const u8) -> $name {
                let from = from.cast::<$register>();
                // SAFETY: the caller's promise: all of the line may be read.
                let load = |at| unsafe { $load(from.wrapping_add(at).cast()) };
                $name(std::array::from_fn(load))
            }

            #[inline(always)]
            unsafe fn load_guarded(from: *const u8, missing: &Cell<u32>) -> $name {
                let bytes = size_of::<$register>();
                // SAFETY: the caller's promise: the processor has the register, and all of the line
                // may be read that is mapped.
                let load = |at| unsafe { $guarded(from.wrapping_add(at * bytes), missing) };
                $name(std::array::from_fn(load))
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                let to = to.cast::<$register>();
                for (at, register) in self.0.into_iter().enumerate() {
                    // SAFETY: the caller's promise: all of the line may be written.
                    unsafe { $store(to.wrapping_add(at).cast(), register) };
                }
            }

            #[inline(always)]
            unsafe fn plus(self, other: $name) -> $name {
                // SAFETY: the processor has the instruction, the caller's promise.
                $name(std::array::from_fn(|at| unsafe { $xor(self.0[at], other.0[at]) }))
            }

            #[inline(always)]
            unsafe fn times(self, keys: &Keys) -> $name {
                // SAFETY: an array of 64 bytes.
                let keys = unsafe { $name::load(keys.as_ptr().cast()) };
                // SAFETY: the processor has the instruction, the caller's promise.
                let first = |at| unsafe { $multiply::<0x00>(self.0[at], keys.0[at]) };
                // SAFETY: the same.
                let second = |at| unsafe { $multiply::<0x11>(self.0[at], keys.0[at]) };
                let (first, second) = (std::array::from_fn(first), std::array::from_fn(second));
                // SAFETY: the same.
                unsafe { $name(first).plus($name(second)) }
            }

            #[inline(always)]
            fn of(lanes: &[u128; 4]) -> $name {
                // SAFETY: 64 bytes each, and registers have any bits.
                unsafe { std::mem::transmute(*lanes) }
            }

            #[inline(always)]
            fn lanes(self) -> [u128; 4] {
                // SAFETY: 64 bytes each, and any 16 bytes are a number.
                unsafe { std::mem::transmute(self) }
            }
        }

        const _: () = assert!(size_of::<$name>() == LINE && $side_by_side * LINE <= super::LEAST);
    };
}

width!(Xmm: [__m128i; 4], "avx,pclmulqdq", 2,
    guarded::load_xmm, _mm_loadu_si128, _mm_storeu_si128, _mm_xor_si128, _mm_clmulepi64_si128);
width!(Ymm: [__m256i; 2], "avx2,vpclmulqdq", 4,
    guarded::load_ymm, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_xor_si256, _mm256_clmulepi64_epi128);
width!(Zmm: [__m512i; 1], "avx512f,vpclmulqdq", 4,
    guarded::load_zmm, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_xor_si512, _mm512_clmulepi64_epi128);
