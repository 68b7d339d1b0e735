//! Guarded accesses in assembler; each of their instructions has an entry in the table.
//!
//! Invariants
//! - None of them uses the stack or changes a register that the assembler block does not declare,
//!   so it can continue at its landing from any of its instructions.
//! - [`copy`] stores the last byte last, as a NIC does that writes a message: a thread that polls
//!   this byte finds the others in place.

use super::Missing;
use crate::sync::{AtomicU8, Ordering};
use std::arch::x86_64::{__m128i, __m256i, __m512i};
use std::arch::{asm, naked_asm};
use std::cell::Cell;

/// A range of instructions and its landing, each as the distance from the field itself.
#[repr(C)]
struct Entry {
    start: i32,
    end: i32,
    landing: i32,
}

// The linker defines the bounds of a section if its name is an identifier. The flag "R" makes it
// keep the entries, and with them the instructions.
unsafe extern "C" {
    #[link_name = "__start_uroce_guarded"]
    static FIRST: Entry;
    #[link_name = "__stop_uroce_guarded"]
    static BEHIND: Entry;
}

/// An entry: from label 20 to label 21, landing at label 22.
macro_rules! entry {
    () => {
        ".pushsection uroce_guarded,\"aR\",@progbits\n\
         .balign 4\n\
         .long 20b - .\n\
         .long 21b - .\n\
         .long 22b - .\n\
         .popsection"
    };
}

/// A landing at label 22, outside the hot code: runs the given lines and continues at label 21.
macro_rules! landing {
    ($($line:literal),*) => {
        concat!(
            ".pushsection .text.unlikely,\"ax\",@progbits\n22:\n",
            $($line, "\n",)*
            "jmp 21b\n.popsection"
        )
    };
}

/// Returns the landing of the instruction at `ip`, if it is a guarded access.
pub fn landing(ip: usize) -> Option<usize> {
    let first = &raw const FIRST;
    let count = ((&raw const BEHIND).addr() - first.addr()) / size_of::<Entry>();
    // SAFETY: the linker places all entries of this program or library between the two symbols, one
    // after the other, in a section that nothing writes to.
    let entries = unsafe { std::slice::from_raw_parts(first, count) };
    let at = |distance: &i32| {
        std::ptr::from_ref(distance).addr().wrapping_add_signed(*distance as isize)
    };
    let found = entries.iter().find(|entry| (at(&entry.start)..at(&entry.end)).contains(&ip));
    found.map(|entry| at(&entry.landing))
}

/// 1 if copies use 32-byte registers; 0 before [`prepare`] was called.
static IS_WIDE: AtomicU8 = AtomicU8::new(0);

/// Finds out whether the processor has 32-byte registers.
pub fn prepare() {
    prepare_for(is_x86_feature_detected!("avx"));
}

/// Sets whether copies use registers of 32 bytes.
pub fn prepare_for(is_wide: bool) {
    IS_WIDE.store(u8::from(is_wide), Ordering::Relaxed);
}

#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Missing> {
    // SAFETY: the caller guarantees that the mapped part may be accessed and does not overlap.
    let missing = unsafe { copy_bytes(to, from, len) };
    if missing == 0 { Ok(()) } else { Err(Missing) }
}

/// Copies, and returns 0, or 1 if it landed. Short lengths are loaded completely before they are
/// stored, by accesses that overlap; long ones are copied in steps of 128 bytes, of which the last
/// overlaps.
#[unsafe(naked)]
unsafe extern "sysv64" fn copy_bytes(to: *mut u8, from: *const u8, len: usize) -> u32 {
    naked_asm!(
        "20:",
        "xor eax, eax",
        "cmp rdx, 16",
        "jb 4f",
        "cmp rdx, 32",
        "ja 2f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + rdx - 16], xmm1",
        "ret",
        // 33 to 64.
        "2:",
        "cmp rdx, 64",
        "ja 3f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + rdx - 32]",
        "movups xmm3, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + rdx - 32], xmm2",
        "movups [rdi + rdx - 16], xmm3",
        "ret",
        // 65 to 128.
        "3:",
        "cmp rdx, 128",
        "ja 7f",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups xmm4, [rsi + rdx - 64]",
        "movups xmm5, [rsi + rdx - 48]",
        "movups xmm6, [rsi + rdx - 32]",
        "movups xmm7, [rsi + rdx - 16]",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "movups [rdi + rdx - 64], xmm4",
        "movups [rdi + rdx - 48], xmm5",
        "movups [rdi + rdx - 32], xmm6",
        "movups [rdi + rdx - 16], xmm7",
        "ret",
        // Below 16.
        "4:",
        "cmp edx, 8",
        "jb 5f",
        "mov rcx, [rsi]",
        "mov r8, [rsi + rdx - 8]",
        "mov [rdi], rcx",
        "mov [rdi + rdx - 8], r8",
        "ret",
        "5:",
        "cmp edx, 4",
        "jb 6f",
        "mov ecx, [rsi]",
        "mov r8d, [rsi + rdx - 4]",
        "mov [rdi], ecx",
        "mov [rdi + rdx - 4], r8d",
        "ret",
        // 0 to 3: the first, the middle and the last.
        "6:",
        "test edx, edx",
        "je 8f",
        "mov r10d, edx",
        "shr r10d, 1",
        "movzx ecx, byte ptr [rsi]",
        "movzx r8d, byte ptr [rsi + r10]",
        "movzx r9d, byte ptr [rsi + rdx - 1]",
        "mov [rdi], cl",
        "mov [rdi + r10], r8b",
        "mov [rdi + rdx - 1], r9b",
        "8:",
        "ret",
        // 129 and more. The last 128 bytes are from r8 to r9.
        "7:",
        "lea r8, [rsi + rdx - 128]",
        "lea r9, [rdi + rdx - 128]",
        "cmp byte ptr [rip + {is_wide}], 0",
        "je 15f",
        // One copy up to the first 32-byte boundary of `to`: then stores do not straddle cache
        // lines.
        "vmovdqu ymm0, [rsi]",
        "mov ecx, edi",
        "and ecx, 31",
        "sub rcx, 32",
        "vmovdqu [rdi], ymm0",
        "sub rsi, rcx",
        "sub rdi, rcx",
        "cmp rsi, r8",
        "jae 13f",
        "12:",
        "vmovdqu ymm0, [rsi]",
        "vmovdqu ymm1, [rsi + 32]",
        "vmovdqu ymm2, [rsi + 64]",
        "vmovdqu ymm3, [rsi + 96]",
        "sub rsi, -128",
        "vmovdqa [rdi], ymm0",
        "vmovdqa [rdi + 32], ymm1",
        "vmovdqa [rdi + 64], ymm2",
        "vmovdqa [rdi + 96], ymm3",
        "sub rdi, -128",
        "cmp rsi, r8",
        "jb 12b",
        "13:",
        "vmovdqu ymm0, [r8]",
        "vmovdqu ymm1, [r8 + 32]",
        "vmovdqu ymm2, [r8 + 64]",
        "vmovdqu ymm3, [r8 + 96]",
        "vmovdqu [r9], ymm0",
        "vmovdqu [r9 + 32], ymm1",
        "vmovdqu [r9 + 64], ymm2",
        "vmovdqu [r9 + 96], ymm3",
        "vzeroupper",
        "ret",
        // A loop that copies with 16-byte registers.
        "15:",
        "movups xmm0, [rsi]",
        "movups xmm1, [rsi + 16]",
        "movups xmm2, [rsi + 32]",
        "movups xmm3, [rsi + 48]",
        "movups xmm4, [rsi + 64]",
        "movups xmm5, [rsi + 80]",
        "movups xmm6, [rsi + 96]",
        "movups xmm7, [rsi + 112]",
        "sub rsi, -128",
        "movups [rdi], xmm0",
        "movups [rdi + 16], xmm1",
        "movups [rdi + 32], xmm2",
        "movups [rdi + 48], xmm3",
        "movups [rdi + 64], xmm4",
        "movups [rdi + 80], xmm5",
        "movups [rdi + 96], xmm6",
        "movups [rdi + 112], xmm7",
        "sub rdi, -128",
        "cmp rsi, r8",
        "jb 15b",
        "mov rsi, r8",
        "mov rdi, r9",
        "mov edx, 128",
        "jmp 3b",
        "21:",
        "22:",
        "mov eax, 1",
        "cmp byte ptr [rip + {is_wide}], 0",
        "je 8b",
        "vzeroupper",
        "ret",
        entry!(),
        is_wide = sym IS_WIDE,
    )
}

pub(super) unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, Missing> {
    let (mut former, mut missing) = (old, 0u32);
    // SAFETY: the caller guarantees an aligned word that may be accessed; the one instruction
    // changes only that word and the operands named here.
    unsafe {
        asm!(
            "20:",
            "lock cmpxchg [{word}], {new}",
            "21:",
            landing!("mov {missing:e}, 1"),
            entry!(),
            word = in(reg) word,
            new = in(reg) new,
            missing = inout(reg) missing,
            inout("rax") former,
            options(nostack),
        );
    }
    if missing == 0 { Ok(former) } else { Err(Missing) }
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Missing> {
    let (mut former, mut missing) = (add, 0u32);
    // SAFETY: the caller guarantees an aligned word that may be accessed; the one instruction
    // changes only that word and the operands named here.
    unsafe {
        asm!(
            "20:",
            "lock xadd [{word}], {former}",
            "21:",
            landing!("mov {missing:e}, 1"),
            entry!(),
            word = in(reg) word,
            former = inout(reg) former,
            missing = inout(reg) missing,
            options(nostack),
        );
    }
    if missing == 0 { Ok(former) } else { Err(Missing) }
}

pub(super) unsafe fn store(word: *mut u64, value: u64) -> Result<(), Missing> {
    let mut missing = 0u32;
    // SAFETY: the caller guarantees an aligned word that may be written; the one instruction
    // changes only that word.
    unsafe {
        asm!(
            "20:",
            "mov [{word}], {value}",
            "21:",
            landing!("mov {missing:e}, 1"),
            entry!(),
            word = in(reg) word,
            value = in(reg) value,
            missing = inout(reg) missing,
            options(nostack),
        );
    }
    if missing == 0 { Ok(()) } else { Err(Missing) }
}

#[inline]
pub(super) unsafe fn touch(byte: *mut u8, writes: bool) -> Result<(), Missing> {
    let mut missing = 0u32;
    if writes {
        // SAFETY: the caller allows to write the byte; the one instruction leaves its value as it
        // is.
        unsafe {
            asm!(
                "20:",
                "lock or byte ptr [{byte}], 0",
                "21:",
                landing!("mov {missing:e}, 1"),
                entry!(),
                byte = in(reg) byte,
                missing = inout(reg) missing,
                options(nostack),
            );
        }
    } else {
        // SAFETY: the caller allows to read the byte; the loaded value is not used.
        unsafe {
            asm!(
                "20:",
                "movzx {scratch:e}, byte ptr [{byte}]",
                "21:",
                landing!("mov {missing:e}, 1"),
                entry!(),
                byte = in(reg) byte,
                scratch = out(reg) _,
                missing = inout(reg) missing,
                options(nostack, readonly),
            );
        }
    }
    if missing == 0 { Ok(()) } else { Err(Missing) }
}

/// Defines a function that loads a line, which is 64 bytes, into registers. If a part of the memory
/// is not there, it gives zeros and sets `missing`. The registers of a line share one address, so
/// that the address is computed once.
macro_rules! load {
    ($name:ident: [$register:ty; $count:literal], $class:ident, $features:literal,
     $($to:ident: $load:literal, $clear:literal);*) => {
        /// Loads a line from any alignment. If a part of it is not there, the result is zero and
        /// `missing` is set to a number other than 0.
        ///
        /// # Safety
        /// The processor has the registers. The mapped part of the 64 bytes at `from` may be read.
        #[inline]
        #[target_feature(enable = $features)]
        pub unsafe fn $name(from: *const u8, missing: &Cell<u32>) -> [$register; $count] {
            $(let $to: $register;)*
            let mut noted = missing.get();
            // SAFETY: the caller guarantees that the processor has the registers and that the
            // mapped part of the memory may be read.
            unsafe {
                asm!(
                    "20:",
                    $($load,)*
                    "21:",
                    landing!("mov {noted:e}, 1", $($clear),*),
                    entry!(),
                    from = in(reg) from,
                    $($to = out($class) $to,)*
                    noted = inout(reg) noted,
                    options(nostack, readonly, preserves_flags),
                );
            }
            missing.set(noted);
            [$($to),*]
        }
    };
}

load!(load_xmm: [__m128i; 4], xmm_reg, "avx",
    a: "vmovdqu {a}, [{from}]", "vpxor {a}, {a}, {a}";
    b: "vmovdqu {b}, [{from} + 16]", "vpxor {b}, {b}, {b}";
    c: "vmovdqu {c}, [{from} + 32]", "vpxor {c}, {c}, {c}";
    d: "vmovdqu {d}, [{from} + 48]", "vpxor {d}, {d}, {d}");
load!(load_ymm: [__m256i; 2], ymm_reg, "avx2",
    a: "vmovdqu {a}, [{from}]", "vpxor {a}, {a}, {a}";
    b: "vmovdqu {b}, [{from} + 32]", "vpxor {b}, {b}, {b}");
load!(load_zmm: [__m512i; 1], zmm_reg, "avx512f",
    a: "vmovdqu64 {a}, [{from}]", "vpxorq {a}, {a}, {a}");
