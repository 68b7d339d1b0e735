//! Memory that several processes share: a sealed memfd, mapped.
//!
//! Invariants
//! - A mapping's file cannot shrink and is no hugetlbfs file, so no access inside of the mapping
//!   faults, whatever another process does.
//! - There is no reference to plain bytes of it: words are atomics, and bytes are copied in and out
//!   by `guarded::copy`, which reads and writes each of them without assuming that it stays.
//! - Every offset is checked against the mapping's length before the access.
//!
//! Not here: the meaning of the words (`ring`, `board`).

#![allow(unsafe_code)]

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use uroce_shared::copy::guarded;
use uroce_shared::sync::{AtomicU32, AtomicU64};

/// Seals that every shared file has: its size is fixed, and so are its seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// File system type of memfds that are not of huge pages.
const TMPFS_MAGIC: i128 = 0x0102_1994;

/// A mapping of a shared file.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the value until it is dropped, on any thread, and is accessed by
// atomics and by copies that allow concurrent changes.
unsafe impl Send for Memory {}
// SAFETY: all methods access the memory by atomics, or by copies that allow concurrent changes.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes a file of `len` zeros and maps it. The kernel provides a page when it is first
    /// touched.
    ///
    /// # Errors
    /// The process has no descriptor or no address space left.
    pub(crate) fn create(len: usize) -> io::Result<(OwnedFd, Memory)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("uroce-local", flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        let memory = Memory::map(&file, len)?;
        Ok((file, memory))
    }

    /// Maps a file of `len` bytes that another process has made.
    ///
    /// # Errors
    /// The file is not sealed, has another size, is no memfd of ordinary pages, or cannot be
    /// mapped.
    pub(crate) fn adopt(file: &OwnedFd, len: usize) -> io::Result<Memory> {
        let has_seals = fcntl_get_seals(file)?.contains(SealFlags::SHRINK | SealFlags::GROW);
        let has_size = u64::try_from(fstat(file)?.st_size) == Ok(len as u64);
        let is_ordinary = i128::from(fstatfs(file)?.f_type) == TMPFS_MAGIC;
        match has_seals && has_size && is_ordinary {
            true => Memory::map(file, len),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn map(file: &OwnedFd, len: usize) -> io::Result<Memory> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so the mapping overlaps no other.
        let start = unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Memory { start, len })
    }

    /// Returns the address of the `len` bytes at `at`. Panics if they are not inside.
    #[inline]
    fn place(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(len <= self.len && at <= self.len - len, "outside of the mapping");
        // SAFETY: `at` is at most the mapping's length, by the assertion.
        unsafe { self.start.add(at) }
    }

    /// Returns the word at `at`, a multiple of 4.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4), "words are aligned");
        let word = self.place(at, 4).cast::<AtomicU32>();
        // SAFETY: `place` has checked that the four bytes are mapped; they are aligned, since a
        // mapping begins at a page; and they stay mapped as long as `self`.
        unsafe { word.as_ref() }
    }

    /// Returns the word of eight bytes at `at`, a multiple of 8.
    #[inline]
    pub(crate) fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "words are aligned");
        let word = self.place(at, 8).cast::<AtomicU64>();
        // SAFETY: `place` has checked that the eight bytes are mapped; they are aligned, since a
        // mapping begins at a page; and they stay mapped as long as `self`.
        unsafe { word.as_ref() }
    }

    /// Copies bytes to `at`.
    #[inline]
    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        let to = self.place(at, bytes.len());
        // SAFETY: `place` has checked that the bytes at `to` are mapped, and writable like all of
        // the mapping; a slice of this process does not overlap a mapping that no slice refers to.
        let copied = unsafe { guarded::copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
        debug_assert!(copied.is_ok(), "the file is sealed");
    }

    /// Copies the bytes at `at`.
    #[inline]
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.place(at, bytes.len());
        // SAFETY: `place` has checked that the bytes at `from` are mapped; a slice of this process
        // does not overlap a mapping that no slice refers to.
        let copied = unsafe { guarded::copy(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        debug_assert!(copied.is_ok(), "the file is sealed");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `map` made the mapping with this length, and all references to it borrow `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uroce_shared::sync::Ordering;

    #[test]
    fn both_mappings_of_a_file_are_one_memory() {
        let (file, one) = Memory::create(8192).unwrap();
        let other = Memory::adopt(&file, 8192).unwrap();
        one.write(100, b"words");
        let mut bytes = [0; 5];
        other.read(100, &mut bytes);
        assert_eq!(&bytes, b"words");
        other.word(4096).store(7, Ordering::Release);
        assert_eq!(one.word(4096).load(Ordering::Acquire), 7);
        assert_eq!(one.long(4096).load(Ordering::Acquire), 7);
    }

    #[test]
    fn a_file_that_can_change_its_size_or_has_another_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("open", flags).unwrap();
        rustix::fs::ftruncate(&open, 4096).unwrap();
        assert!(Memory::adopt(&open, 4096).is_err(), "no seal");
        fcntl_add_seals(&open, SealFlags::GROW).unwrap();
        assert!(Memory::adopt(&open, 4096).is_err(), "it can shrink");
        fcntl_add_seals(&open, SealFlags::SHRINK).unwrap();
        assert!(Memory::adopt(&open, 4096).is_ok());
        assert!(Memory::adopt(&open, 8192).is_err(), "it is shorter");
        let (read, _write) = std::io::pipe().unwrap();
        assert!(Memory::adopt(&read.into(), 4096).is_err(), "no file");
        let (file, _memory) = Memory::create(4096).unwrap();
        assert!(rustix::fs::ftruncate(&file, 0).is_err(), "ours cannot shrink either");
        fcntl_add_seals(&open, SealFlags::WRITE).unwrap_or_default();
    }

    #[test]
    fn a_file_of_huge_pages_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // A kernel without huge pages does not make one, so nothing of the kind can come from it.
        let Ok(file) = rustix::fs::memfd_create("huge", flags) else { return };
        let len = 2 << 20;
        if rustix::fs::ftruncate(&file, len as u64).is_ok() {
            fcntl_add_seals(&file, SEALS).unwrap();
            assert!(Memory::adopt(&file, len).is_err(), "its pages may be missing");
        }
    }

    #[test]
    #[should_panic(expected = "outside of the mapping")]
    fn an_access_beyond_the_end_panics() {
        let (_file, memory) = Memory::create(4096).unwrap();
        memory.read(4090, &mut [0; 7]);
    }
}
