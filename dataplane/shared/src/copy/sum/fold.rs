//! Folding: reduces the lines of a payload to sixteen bytes with the same remainder.

use super::line::{Keys, Line};
use crate::copy::guarded::Missing;
use crate::copy::prefetch::{LINE, prefetch_read};
use std::cell::Cell;
use uroce_wire::Icrc;

const LINE_BITS: u32 = 8 * LINE as u32;
const LANE_BITS: u32 = LINE_BITS / 4;

/// The keys that fold a line over *n* lines, by *n*.
const LINES: [Keys; 5] = [
    [[0; 2]; 4],
    [keys(LINE_BITS); 4],
    [keys(2 * LINE_BITS); 4],
    [keys(3 * LINE_BITS); 4],
    [keys(4 * LINE_BITS); 4],
];
/// The keys that fold each lane onto the last, which is left out.
const LANES: Keys = [keys(3 * LANE_BITS), keys(2 * LANE_BITS), keys(LANE_BITS), [0; 2]];

/// Returns the keys that fold a lane over `bits` bits. Bits are in reflected order: the first half
/// stands for powers higher by 64 than the second; each half's product is 32 bits off its place and
/// one bit short.
const fn keys(bits: u32) -> [u64; 2] {
    [power(bits + 32) << 1, power(bits - 32) << 1]
}

/// Returns x^exponent modulo the generator; x^0 is the highest of 32 bits.
const fn power(exponent: u32) -> u64 {
    let (mut power, mut at) = (0x8000_0000u32, 0);
    while at < exponent {
        power = (power >> 1) ^ ((power & 1) * 0xedb8_8320);
        at += 1;
    }
    power as u64
}

/// Copies from registered memory to `out` and returns `sum` continued over the bytes, with `WIDTH`
/// lines side by side.
///
/// # Safety
/// The processor has `L`, and `out` has `WIDTH` lines or more. The mapped part of the `out.len()`
/// bytes at `from` may be read, and does not overlap `out`.
#[inline(always)]
pub(super) unsafe fn copy_summed_from<L: Line, const WIDTH: usize>(
    from: *const u8,
    out: &mut [u8],
    sum: Icrc,
) -> Result<Icrc, Missing> {
    let (lines, rest) = out.as_chunks_mut::<LINE>();
    let (count, to) = (lines.len(), lines.as_mut_ptr());
    let missing = Cell::new(0);
    let load = |line| {
        // SAFETY: `line < count`, since `out` has at least `WIDTH` lines, so it may be read where
        // it is mapped. Each line is loaded once, so the stored bytes are the summed ones even if
        // the memory changes.
        let bytes = unsafe { L::load_guarded(from.wrapping_add(line * LINE), &missing) };
        // SAFETY: `line < count`, the number of lines of `out`, which is borrowed mutably.
        unsafe { bytes.store(to.wrapping_add(line).cast()) };
        bytes
    };
    // SAFETY: the processor has `L`, and there are at least `WIDTH` lines.
    let sum = unsafe { fold_lines::<L, WIDTH>(count, sum, load) };
    if missing.get() != 0 {
        return Err(Missing);
    }
    // SAFETY: the caller guarantees `out.len()` bytes at `from`: after `count` lines, `rest.len()`
    // are left.
    unsafe { super::copy_summed_from(from.wrapping_add(count * LINE), rest, sum) }
}

/// Returns `sum` continued over `bytes`, with `WIDTH` lines side by side, and prefetches `ahead`.
///
/// # Safety
/// The processor has `L`, and `bytes` has `WIDTH` lines or more.
#[inline(always)]
pub(super) unsafe fn summed<L: Line, const WIDTH: usize>(
    bytes: &[u8],
    sum: Icrc,
    ahead: &[u8],
) -> Icrc {
    let (lines, rest) = bytes.as_chunks::<LINE>();
    let load = |line: usize| {
        if let Some(ahead) = ahead.get(line * LINE..) {
            prefetch_read(ahead.as_ptr(), 1);
        }
        // SAFETY: a line is an array of 64 bytes.
        unsafe { L::load(lines[line].as_ptr()) }
    };
    // SAFETY: the processor has `L`, and there are at least `WIDTH` lines.
    let sum = unsafe { fold_lines::<L, WIDTH>(lines.len(), sum, load) };
    if let Some(ahead) = ahead.get(lines.len() * LINE..) {
        prefetch_read(ahead.as_ptr(), ahead.len());
    }
    sum.and(rest)
}

/// Returns `sum` continued over `lines` lines. Calls `load` once for each, in order.
///
/// # Safety
/// The processor has `L`. There are `WIDTH` lines or more.
#[inline(always)]
unsafe fn fold_lines<L: Line, const WIDTH: usize>(
    lines: usize,
    sum: Icrc,
    load: impl Fn(usize) -> L,
) -> Icrc {
    // SAFETY: the caller guarantees that the processor has `L`.
    let plus = |one: L, other: L| unsafe { one.plus(other) };
    // SAFETY: the caller guarantees that the processor has `L`.
    let times = |line: L, keys: &Keys| unsafe { line.times(keys) };
    let later = |line: L, count: usize, there: L| plus(times(line, &LINES[count]), there);
    let mut folded: [L; WIDTH] = std::array::from_fn(&load);
    // The sum before is added to the first four bytes.
    let before = [u128::from(!sum.0), 0, 0, 0];
    folded[0] = plus(folded[0], L::of(&before));
    let mut at = WIDTH;
    while at + WIDTH <= lines {
        for (offset, folded) in folded.iter_mut().enumerate() {
            *folded = later(*folded, WIDTH, load(at + offset));
        }
        at += WIDTH;
    }
    let mut last = folded[WIDTH - 1];
    for (offset, folded) in folded[..WIDTH - 1].iter().enumerate() {
        last = later(*folded, WIDTH - 1 - offset, last);
    }
    while at < lines {
        last = later(last, 1, load(at));
        at += 1;
    }
    let (kept, moved) = (last.lanes(), times(last, &LANES).lanes());
    let rest = moved[0] ^ moved[1] ^ moved[2] ^ kept[3];
    // The register begins empty: its content has been added to the bytes.
    Icrc(!0).and(&rest.to_le_bytes())
}
