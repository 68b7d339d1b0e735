//! Guarded accesses to registered memory, which may be gone: unmapped, protected, or truncated with
//! the file behind it.
//!
//! A program may take away memory that it has registered; the kernel then answers an access with
//! SIGSEGV or SIGBUS. Each access here has an entry in a table, with a landing: the instruction at
//! which it continues after such a fault. The signal handler (the engine's `control::signals`)
//! looks the faulting instruction up and continues at its landing, and the function returns
//! [`Missing`]. An access to memory that is there pays nothing for this.
//!
//! On other processors than x86-64, and under Miri, these are plain accesses, and memory that is
//! gone ends the process.
//!
//! Not here: whether the memory may be accessed at all ([`crate::memory::resolve`]).

#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[path = "guarded/x86_64.rs"]
mod machine;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "guarded/plain.rs"]
mod machine;

#[allow(unused_imports, reason = "the signal handler's and its tests'")]
pub use machine::{landing, prepare, prepare_for};
#[cfg(target_arch = "x86_64")]
pub use machine::{load_xmm, load_ymm, load_zmm};

/// The error of an access: part of the memory is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Missing;

/// The smallest unit in which the kernel gives and takes memory.
const PAGE: usize = 4096;

/// Copies `len` bytes. To other threads the bytes appear in order, the last byte last.
///
/// # Errors
/// [`Missing`]: some bytes may have been copied.
///
/// # Safety
/// The mapped part of the `len` bytes at `from` may be read, and that at `to` written; the two do
/// not overlap.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Missing> {
    // SAFETY: the caller guarantees that what is mapped may be accessed and does not overlap.
    unsafe { machine::copy(from, to, len) }
}

/// Replaces a word by `new` if it is `old`. Returns the value before.
///
/// # Errors
/// [`Missing`]: the word is unchanged.
///
/// # Safety
/// The word is aligned. If it is mapped, it may be read and written, and other threads access it by
/// atomics only.
pub unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, Missing> {
    // SAFETY: the caller guarantees an aligned word that is accessed by atomics only.
    unsafe { machine::compare_exchange(word, old, new) }
}

/// Adds to a word, wrapping around. Returns the value before.
///
/// # Errors
/// [`Missing`]: the word is unchanged.
///
/// # Safety
/// The word is aligned. If it is mapped, it may be read and written, and other threads access it by
/// atomics only.
pub unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Missing> {
    // SAFETY: the caller guarantees an aligned word that is accessed by atomics only.
    unsafe { machine::fetch_add(word, add) }
}

/// Stores a word in one piece, after everything that was stored before it.
///
/// # Errors
/// [`Missing`]: the word is unchanged.
///
/// # Safety
/// The word is aligned. If it is mapped, it may be written, and other threads access it by atomics
/// only.
pub unsafe fn store(word: *mut u64, value: u64) -> Result<(), Missing> {
    // SAFETY: the caller guarantees an aligned word that is accessed by atomics only.
    unsafe { machine::store(word, value) }
}

/// Touches each page of the `len` bytes at `start`, so that the kernel provides it. No byte
/// changes, even if other threads write to the memory.
///
/// # Errors
/// [`Missing`]: a page cannot be had, or not for writing if `writes` is set.
///
/// # Safety
/// The mapped part of the `len` bytes may be read, and written if `writes` is set.
pub unsafe fn touch(start: *mut u8, len: usize, writes: bool) -> Result<(), Missing> {
    let to_next = PAGE - start.addr() % PAGE;
    let pages = (to_next..len).step_by(PAGE);
    for at in std::iter::once(0).chain(pages).take_while(|_| len > 0) {
        // SAFETY: `at < len`, so the byte is within the memory that the caller allows to access.
        unsafe { machine::touch(start.wrapping_add(at), writes) }?;
    }
    Ok(())
}
