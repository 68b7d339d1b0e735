//! Loads and stores of registered memory, which may be gone: unmapped, protected, or cut off with
//! the file behind it.
//!
//! A program may take memory away that it has registered, and the kernel answers the next access by
//! SIGSEGV or SIGBUS. Each access here stands in a table with the place where it goes on then. The
//! signal handler ([`crate::signals`]) looks the instruction up and lets it go on there; what was
//! called returns [`Missing`]. An access that finds its memory pays nothing for this.
//!
//! Elsewhere than on x86-64, and under Miri, these are plain accesses, and memory that is gone ends
//! the process.
//!
//! Not here: whether the memory may be accessed at all ([`crate::memory`]).

#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[path = "guarded/x86_64.rs"]
mod machine;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[path = "guarded/plain.rs"]
mod machine;

#[allow(unused_imports, reason = "the signal handler's and its tests'")]
pub(crate) use machine::{landing, prepare, prepare_for};
#[cfg(target_arch = "x86_64")]
pub(crate) use machine::{load_xmm, load_ymm, load_zmm};

/// Part of the memory is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing;

/// The unit by which the kernel gives and takes memory, or a part of it.
const PAGE: usize = 4096;

/// Copies `len` bytes, from the first to the last as far as others can tell.
///
/// # Errors
/// [`Missing`]: some bytes may have been copied.
///
/// # Safety
/// What is mapped of the `len` bytes from `from` and `to` on may be read and written; they do not
/// overlap.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) -> Result<(), Missing> {
    // SAFETY: the caller's promise.
    unsafe { machine::copy(from, to, len) }
}

/// Puts `new` in the place of a word that is `old`; gives what it was.
///
/// # Errors
/// [`Missing`]: the word is as it was.
///
/// # Safety
/// The word is aligned, and may be read and written, as others do by atomic accesses, if it is mapped.
pub(crate) unsafe fn compare_exchange(word: *mut u64, old: u64, new: u64) -> Result<u64, Missing> {
    // SAFETY: the caller's promise.
    unsafe { machine::compare_exchange(word, old, new) }
}

/// Adds to a word; gives what it was.
///
/// # Errors
/// [`Missing`]: the word is as it was.
///
/// # Safety
/// As [`compare_exchange`].
pub(crate) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Missing> {
    // SAFETY: the caller's promise.
    unsafe { machine::fetch_add(word, add) }
}

/// Touches each page of `len` bytes from `start` on, so that the kernel gives it, and leaves it as it
/// is, whoever else writes to it.
///
/// # Errors
/// [`Missing`]: a page cannot be had, or not for writing if that was asked for.
///
/// # Safety
/// What is mapped of them may be read, and written if `writes`.
pub(crate) unsafe fn touch(start: *mut u8, len: usize, writes: bool) -> Result<(), Missing> {
    let to_next = PAGE - start.addr() % PAGE;
    let pages = (to_next..len).step_by(PAGE);
    for at in std::iter::once(0).chain(pages).take_while(|_| len > 0) {
        // SAFETY: below `len`, so the caller's promise is of it.
        unsafe { machine::touch(start.wrapping_add(at), writes) }?;
    }
    Ok(())
}
