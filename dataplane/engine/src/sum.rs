//! Invariant CRCs of payloads, on the way: what is summed is copied into a packet in the same pass,
//! or the payload of a packet that comes later is fetched meanwhile.
//!
//! A CRC is the remainder of the bytes, seen as a polynomial, by a generator. *Folding* replaces 16
//! bytes by others some distance later that leave the same remainder, with two carry-less
//! multiplications by powers of x. Sixteen such lanes, four lines, are folded side by side, then
//! into one; the 16 bytes that are left are summed like any others. (Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.)
//!
//! Processors without AVX-512 and VPCLMULQDQ do one thing after the other, and so does a short
//! payload.
//!
//! Not here: the headers, and what does not count ([`Icrc::of`]).

#![allow(unsafe_code)]

use crate::prefetch::{LINE, prefetch_read};
use uroce_wire::Icrc;

/// The fewest bytes that are summed in one pass with something else: four lines.
pub(crate) const LEAST: usize = 4 * LINE;

/// Copies `bytes` to `out`, which has their length; gives the sum of what `sum` is of, followed by
/// them.
#[inline]
pub(crate) fn copy_summed(bytes: &[u8], out: &mut [u8], sum: Icrc) -> Icrc {
    assert_eq!(bytes.len(), out.len(), "as long as what is copied");
    // SAFETY: a slice of `out`'s length may be read, and one that is borrowed mutably has none of it.
    unsafe { copy_summed_from(bytes.as_ptr(), out, sum) }
}

/// The same from memory that may change meanwhile. What is summed is what was copied.
///
/// # Safety
/// From `from` on as many bytes may be read as `out` has; none of them is `out`'s.
#[inline]
pub(crate) unsafe fn copy_summed_from(from: *const u8, out: &mut [u8], sum: Icrc) -> Icrc {
    #[cfg(target_arch = "x86_64")]
    if out.len() >= LEAST && fold::is_available() {
        // SAFETY: the processor can, and `out` has enough; the rest is the caller's promise.
        return unsafe { fold::copy_summed_from(from, out, sum) };
    }
    // SAFETY: the caller's promise: as many bytes as `out` has, none of them `out`'s.
    unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    sum.and(out)
}

/// The sum of what `sum` is of, followed by `bytes`. Meanwhile `ahead`, which will be read soon, is
/// fetched: evenly, since many lines at once would keep the bytes themselves waiting.
#[inline]
pub(crate) fn summed(bytes: &[u8], sum: Icrc, ahead: &[u8]) -> Icrc {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= LEAST && fold::is_available() {
        // SAFETY: the processor can, which is all that is asked for.
        return unsafe { fold::summed(bytes, sum, ahead) };
    }
    prefetch_read(ahead.as_ptr(), ahead.len());
    sum.and(bytes)
}

#[cfg(target_arch = "x86_64")]
mod fold {
    use crate::prefetch::{LINE, prefetch_read};
    use std::arch::x86_64::{
        __m512i, _mm_cvtsi32_si128, _mm512_clmulepi64_epi128, _mm512_loadu_si512,
        _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512, _mm512_zextsi128_si512,
    };
    use uroce_wire::Icrc;

    /// Lines that are folded side by side: as many as keep the multiplier busy.
    const WIDTH: usize = super::LEAST / LINE;
    const LINE_BITS: u32 = 8 * LINE as u32;
    const LANE_BITS: u32 = LINE_BITS / 4;

    /// What the two halves of each lane of a line are multiplied with.
    type Keys = [[u64; 2]; 4];

    const FOUR_LINES: Keys = [keys(4 * LINE_BITS); 4];
    const THREE_LINES: Keys = [keys(3 * LINE_BITS); 4];
    const TWO_LINES: Keys = [keys(2 * LINE_BITS); 4];
    const ONE_LINE: Keys = [keys(LINE_BITS); 4];
    /// Each lane to the place of the last, which stays out of it.
    const LANES: Keys = [keys(3 * LANE_BITS), keys(2 * LANE_BITS), keys(LANE_BITS), [0; 2]];

    /// To fold a lane by so many bits. Bits are in reflected order: the first half stands for powers
    /// higher by 64 than the second; each half's product is 32 bits off its place, and one bit
    /// short.
    const fn keys(bits: u32) -> [u64; 2] {
        [power(bits + 32) << 1, power(bits - 32) << 1]
    }

    /// x^exponent modulo the generator; x^0 is the highest of 32 bits.
    const fn power(exponent: u32) -> u64 {
        let (mut power, mut at) = (0x8000_0000u32, 0);
        while at < exponent {
            power = (power >> 1) ^ ((power & 1) * 0xedb8_8320);
            at += 1;
        }
        power as u64
    }

    /// Can this processor do it?
    #[inline]
    pub(super) fn is_available() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq")
    }

    /// As [there](super::copy_summed_from).
    ///
    /// # Safety
    /// The same, and `out` has [`LEAST`](super::LEAST) bytes or more.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) unsafe fn copy_summed_from(from: *const u8, out: &mut [u8], sum: Icrc) -> Icrc {
        let (lines, rest) = out.as_chunks_mut::<LINE>();
        let (count, to) = (lines.len(), lines.as_mut_ptr());
        let sum = fold_lines(count, sum, |line| {
            // SAFETY: `line` is below `count`, since `out` has at least `WIDTH` lines, and so many may
            // be read. Each is loaded once, so that what is stored is what counts, even if it changes.
            let bytes = unsafe { _mm512_loadu_si512(from.wrapping_add(line * LINE).cast()) };
            // SAFETY: `line` is below `count`, as many as there are, which are borrowed mutably.
            unsafe { _mm512_storeu_si512(to.wrapping_add(line).cast(), bytes) };
            bytes
        });
        // SAFETY: behind `count` lines as many bytes may be read as `rest` has, by the same promise.
        unsafe { super::copy_summed_from(from.wrapping_add(count * LINE), rest, sum) }
    }

    /// As [there](super::summed), of [`LEAST`](super::LEAST) bytes or more.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    pub(super) fn summed(bytes: &[u8], sum: Icrc, ahead: &[u8]) -> Icrc {
        let (lines, rest) = bytes.as_chunks::<LINE>();
        let sum = fold_lines(lines.len(), sum, |line| {
            if let Some(ahead) = ahead.get(line * LINE..) {
                prefetch_read(ahead.as_ptr(), 1);
            }
            // SAFETY: an array of 64 bytes; the load needs no alignment.
            unsafe { _mm512_loadu_si512(lines[line].as_ptr().cast()) }
        });
        if let Some(ahead) = ahead.get(lines.len() * LINE..) {
            prefetch_read(ahead.as_ptr(), ahead.len());
        }
        sum.and(rest)
    }

    /// The sum of what `sum` is of, followed by `lines` lines, [`WIDTH`] or more. `load` is asked once
    /// for each, in their order.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    #[inline]
    fn fold_lines(lines: usize, sum: Icrc, load: impl Fn(usize) -> __m512i) -> Icrc {
        let mut folded: [__m512i; WIDTH] = [load(0), load(1), load(2), load(3)];
        // The sum so far is added to the first four bytes.
        let before = _mm512_zextsi128_si512(_mm_cvtsi32_si128(!sum.0 as i32));
        folded[0] = _mm512_xor_si512(folded[0], before);
        let mut at = WIDTH;
        while at + WIDTH <= lines {
            for (offset, folded) in folded.iter_mut().enumerate() {
                *folded = fold(*folded, &FOUR_LINES, load(at + offset));
            }
            at += WIDTH;
        }
        let [first, second, third, fourth] = folded;
        let last = fold(third, &ONE_LINE, fourth);
        let last = fold(second, &TWO_LINES, last);
        let mut last = fold(first, &THREE_LINES, last);
        while at < lines {
            last = fold(last, &ONE_LINE, load(at));
            at += 1;
        }
        let (kept, moved) = (lanes(last), lanes(fold(last, &LANES, _mm512_setzero_si512())));
        let rest = moved[0] ^ moved[1] ^ moved[2] ^ kept[3];
        // The register begins empty: what would be in it is in the bytes.
        Icrc(!0).and(&rest.to_le_bytes())
    }

    /// `line` as far later as `keys` say, added to what is there.
    #[target_feature(enable = "avx512f,vpclmulqdq")]
    #[inline]
    fn fold(line: __m512i, keys: &Keys, there: __m512i) -> __m512i {
        // SAFETY: an array of 64 bytes; the load needs no alignment.
        let keys = unsafe { _mm512_loadu_si512(keys.as_ptr().cast()) };
        let first = _mm512_clmulepi64_epi128::<0x00>(line, keys);
        let second = _mm512_clmulepi64_epi128::<0x11>(line, keys);
        _mm512_xor_si512(_mm512_xor_si512(first, second), there)
    }

    fn lanes(line: __m512i) -> [u128; 4] {
        // SAFETY: 64 bytes each, and any 16 bytes are a number.
        unsafe { std::mem::transmute(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the processor cannot fold, this shows no more than that nothing is lost.
    #[test]
    fn bytes_of_any_number_are_copied_and_summed_as_by_the_library() {
        let byte = |at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
        let bytes: Vec<u8> = (0..5000).map(byte).collect();
        for len in (0..700).chain(4090..4110) {
            let (offset, before) = (len * 7 % 64, &bytes[..len % 41]);
            let from = &bytes[offset..offset + len];
            let sum = Icrc(0).and(before);
            let expected = Icrc(0).and(&[before, from].concat());
            for ahead in [0, 63, 64, 300, 5000] {
                assert_eq!(summed(from, sum, &bytes[..ahead]), expected, "{len} bytes");
            }

            let mut out = vec![0xee; len + 64];
            let place = len * 11 % 64..len * 11 % 64 + len;
            assert_eq!(copy_summed(from, &mut out[place.clone()], sum), expected, "{len} bytes");
            assert_eq!(out[place.clone()], *from, "{len} bytes");
            out.drain(place);
            assert!(out.iter().all(|&byte| byte == 0xee), "{len} bytes");
        }
    }
}
