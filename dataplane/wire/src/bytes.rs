//! Big-endian loads and stores at constant offsets of fixed-size headers.
//!
//! Each caller passes a fixed-size array and a constant offset within it. After inlining the bounds
//! checks vanish and each call is one load or store with a byte swap.

#[inline(always)]
pub(crate) const fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

#[inline(always)]
pub(crate) const fn be24(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, b[at], b[at + 1], b[at + 2]])
}

#[inline(always)]
pub(crate) const fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

#[inline(always)]
pub(crate) const fn be64(b: &[u8], at: usize) -> u64 {
    (be32(b, at) as u64) << 32 | be32(b, at + 4) as u64
}

/// The `N` bytes of `b` that begin at `at`.
#[inline(always)]
pub(crate) fn array<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&b[at..at + N]);
    out
}

/// Copies the `N` bytes of `value` to `b[at..]`.
#[inline(always)]
pub(crate) fn put<const N: usize>(b: &mut [u8], at: usize, value: [u8; N]) {
    b[at..at + N].copy_from_slice(&value);
}

/// Stores the low 24 bits of `value` at `b[at..]`, big-endian.
#[inline(always)]
pub(crate) fn put24(b: &mut [u8], at: usize, value: u32) {
    let [_, high, mid, low] = value.to_be_bytes();
    put(b, at, [high, mid, low]);
}
