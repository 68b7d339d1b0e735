//! Invariant CRCs of payloads, computed while the payload is copied into a packet, or while the
//! payload of a later packet is prefetched.
//!
//! Read first: IBA 7.8.1.
//!
//! A CRC is the remainder of the bytes, taken as a polynomial, by a generator. *Folding* replaces
//! 16 bytes by others some distance later that leave the same remainder, with two carry-less
//! multiplications by powers of x. Several lines of such lanes are folded side by side (`fold`),
//! then into one; the 16 bytes that are left are summed like any others. (Gopal et al., "Fast CRC
//! Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel, 2009.)
//!
//! The processor decides how many lanes are multiplied at once ([`line`](mod@line)). A processor
//! without the instruction copies and sums one after the other, and so does any processor with a
//! short payload.
//!
//! Not here: the headers, and the fields that the ICRC leaves out ([`Icrc::of`]).

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod fold;
#[cfg(target_arch = "x86_64")]
mod line;

use crate::copy::guarded::{self, Missing};
use crate::copy::prefetch::{LINE, prefetch_read};
use uroce_wire::Icrc;

/// The fewest bytes that are summed in one pass with a copy or a prefetch: four lines.
pub const LEAST: usize = 4 * LINE;

/// Copies `bytes` to `out`, which has the same length. Returns `sum` continued over them.
#[inline]
pub fn copy_summed(bytes: &[u8], out: &mut [u8], sum: Icrc) -> Icrc {
    assert_eq!(bytes.len(), out.len(), "as long as what is copied");
    // SAFETY: `bytes` may be read and has `out`'s length; `out` is borrowed mutably, so they do not
    // overlap.
    let summed = unsafe { copy_summed_from(bytes.as_ptr(), out, sum) };
    summed.expect("memory that is borrowed is there")
}

/// Copies from registered memory, which may change meanwhile or be gone, to `out`. Returns `sum`
/// continued over the copied bytes.
///
/// # Errors
/// [`Missing`]: the bytes of `out` are undefined.
///
/// # Safety
/// The mapped part of the `out.len()` bytes at `from` may be read, and does not overlap `out`.
/// `out`'s.
#[inline]
pub(crate) unsafe fn copy_summed_from(
    from: *const u8,
    out: &mut [u8],
    sum: Icrc,
) -> Result<Icrc, Missing> {
    #[cfg(target_arch = "x86_64")]
    if let Some(width) = line::Width::for_bytes(out.len()) {
        // SAFETY: the processor has this width, and `out` is long enough for it; the caller
        // guarantees that the mapped part of the bytes at `from` may be read and does not overlap
        // `out`.
        return unsafe { width.copy_summed_from(from, out, sum) };
    }
    // SAFETY: the caller guarantees that the mapped part of the `out.len()` bytes at `from` may be
    // read, and does not overlap `out`.
    unsafe { guarded::copy(from, out.as_mut_ptr(), out.len()) }?;
    Ok(sum.and(out))
}

/// Returns `sum` continued over `bytes`. Meanwhile prefetches `ahead`, which will be read soon:
/// evenly, since many lines at once would delay the bytes themselves.
#[inline]
pub fn summed(bytes: &[u8], sum: Icrc, ahead: &[u8]) -> Icrc {
    #[cfg(target_arch = "x86_64")]
    if let Some(width) = line::Width::for_bytes(bytes.len()) {
        // SAFETY: the processor has this width, and `bytes` is long enough for it.
        return unsafe { width.summed(bytes, sum, ahead) };
    }
    prefetch_read(ahead.as_ptr(), ahead.len());
    sum.and(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> Vec<u8> {
        let byte = |at: u32| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
        (0..5000).map(byte).collect()
    }

    /// Compares `copy` (copies and sums) and `sum` with the library.
    fn check(
        lengths: impl Iterator<Item = usize>,
        copy: impl Fn(&[u8], &mut [u8], Icrc) -> Icrc,
        summed: impl Fn(&[u8], Icrc, &[u8]) -> Icrc,
    ) {
        let bytes = bytes();
        for len in lengths {
            let (offset, before) = (len * 7 % 64, &bytes[..len % 41]);
            let from = &bytes[offset..offset + len];
            let sum = Icrc(0).and(before);
            let expected = Icrc(0).and(&[before, from].concat());
            for ahead in [0, 63, 64, 300, 5000] {
                assert_eq!(summed(from, sum, &bytes[..ahead]), expected, "{len} bytes");
            }

            let mut out = vec![0xee; len + 64];
            let place = len * 11 % 64..len * 11 % 64 + len;
            assert_eq!(copy(from, &mut out[place.clone()], sum), expected, "{len} bytes");
            assert_eq!(out[place.clone()], *from, "{len} bytes");
            out.drain(place);
            assert!(out.iter().all(|&byte| byte == 0xee), "{len} bytes");
        }
    }

    #[test]
    fn bytes_of_any_number_are_copied_and_summed_as_by_the_library() {
        check((0..700).chain(4090..4110), copy_summed, summed);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn so_they_are_by_each_width_that_the_processor_has() {
        for width in line::Width::ALL.into_iter().filter(|width| width.is_available()) {
            // SAFETY: the width is available, and the lengths are `LEAST` or more.
            let copy = |from: &[u8], out: &mut [u8], sum| unsafe {
                width.copy_summed_from(from.as_ptr(), out, sum).unwrap()
            };
            // SAFETY: the width is available, and the lengths are `LEAST` or more.
            let summed = |from: &[u8], sum, ahead: &[u8]| unsafe { width.summed(from, sum, ahead) };
            check((LEAST..700).chain(4090..4110), copy, summed);
        }
    }
}
