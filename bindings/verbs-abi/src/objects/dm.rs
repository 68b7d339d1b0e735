//! Device memory: memory of this library that programs access by copies only.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use uroce::raw::limits::MAX_DM_SIZE;

use super::context::Context;
use crate::abi::ibv_dm;
use crate::errno::Errno;
use crate::handle::{Held, Object, object};

/// Copies must begin and end at multiples of this many bytes.
const WORD: usize = 4;

/// An allocation of device memory.
pub(crate) struct Dm {
    pub(crate) memory: Arc<Memory>,
    pub(crate) context: Held<Context>,
    /// Number of the memory within the file of its context. Imports have it too.
    pub(crate) handle: u32,
}

object!(Dm as ibv_dm);

/// The bytes of device memory. The engine and programs copy to and from them concurrently, as with
/// a device, so no reference to them is ever made.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the memory belongs to this value, and is only copied to and from through raw pointers.
unsafe impl Send for Memory {}
// SAFETY: the memory is only copied to and from through raw pointers, so any thread may do so.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates zeroed memory. The start is aligned to 2^`log_align` bytes, at least to 64.
    ///
    /// # Errors
    ///
    /// EINVAL for a length of 0 and for an alignment above [`MAX_DM_SIZE`]; ENOMEM for a length
    /// above it, and if memory is short.
    pub(crate) fn new(len: usize, log_align: u32) -> Result<Memory, Errno> {
        const LEAST_ALIGN: usize = 64;
        let align = 1usize.checked_shl(log_align).ok_or(Errno::EINVAL)?.max(LEAST_ALIGN);
        if len == 0 || align > MAX_DM_SIZE {
            return Err(Errno::EINVAL);
        }
        if len > MAX_DM_SIZE {
            return Err(Errno::ENOMEM);
        }
        let layout = Layout::from_size_align(len, align).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        Ok(Memory { start, len, layout })
    }

    /// A pointer to `len` bytes at `offset`, or EINVAL if they are not inside the memory.
    fn place(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        match self.len.checked_sub(offset) {
            Some(room) if len <= room => Ok(self.start.as_ptr().wrapping_add(offset)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Like [`place`](Memory::place), but EINVAL unless offset and length are multiples of
    /// [`WORD`].
    pub(crate) fn words(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        if !offset.is_multiple_of(WORD as u64) || !len.is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        self.place(offset, len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated `start` with this layout. Regions of the memory hold its `Dm`, so
        // none is left.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Dm {
    /// A pointer to `len` bytes at `offset`.
    ///
    /// # Errors
    ///
    /// EINVAL if they are not inside the memory.
    pub(crate) fn place(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        self.memory.place(offset, len)
    }
}

/// The device memory that a program's pointer refers to, kept busy while the result exists.
///
/// # Errors
///
/// EINVAL if it is not device memory of this library.
pub(crate) fn hold(dm: *const ibv_dm) -> Result<Held<Dm>, Errno> {
    Dm::registry().hold(dm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_lies_inside_or_is_refused() {
        let memory = Memory::new(64, 12).unwrap();
        assert!(memory.start.as_ptr().addr().is_multiple_of(4096));
        assert!(memory.place(0, 64).is_ok() && memory.place(64, 0).is_ok());
        for (offset, len) in [(0, 65), (64, 1), (65, 0), (u64::MAX, 1), (1, usize::MAX)] {
            assert_eq!(memory.place(offset, len), Err(Errno::EINVAL));
        }
        for (offset, len) in [(2, 4), (4, 2), (1, 1)] {
            assert_eq!(memory.words(offset, len), Err(Errno::EINVAL));
        }
    }

    #[test]
    fn lengths_and_alignments_have_limits() {
        assert_eq!(Memory::new(0, 0).err(), Some(Errno::EINVAL));
        assert_eq!(Memory::new(MAX_DM_SIZE + 1, 0).err(), Some(Errno::ENOMEM));
        assert_eq!(Memory::new(usize::MAX, 0).err(), Some(Errno::ENOMEM));
        assert_eq!(Memory::new(4, 21).err(), Some(Errno::EINVAL));
        assert_eq!(Memory::new(4, u32::MAX).err(), Some(Errno::EINVAL));
        assert!(Memory::new(MAX_DM_SIZE, 6).is_ok());
    }
}
