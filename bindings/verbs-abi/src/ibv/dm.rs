//! `ibv_dm`: device memory. It is memory of this library that programs access by copies only.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::{self, Context};
use crate::abi::{self, ibv_alloc_dm_attr, ibv_context, ibv_dm};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object, number, object};

/// Largest size of one allocation, in bytes.
pub(crate) const MAX_DM_SIZE: usize = 1 << 20;

/// Copies must begin and end at multiples of this many bytes.
const WORD: usize = 4;

/// An allocation of device memory.
pub(crate) struct Dm {
    memory: Arc<Memory>,
    pub(crate) context: Held<Context>,
    handle: u32,
}

object!(Dm as ibv_dm);

/// The bytes of device memory. The engine and programs copy to and from them concurrently, as with
/// a device, so no reference to them is ever made.
struct Memory {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the memory belongs to this value, and is only copied to and from through raw pointers.
unsafe impl Send for Memory {}
// SAFETY: the memory is only copied to and from through raw pointers, so any thread may do so.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(len: usize, log_align: u32) -> Result<Memory, Errno> {
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
    fn words(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        if !offset.is_multiple_of(WORD as u64) || !len.is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        self.place(offset, len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `new` allocated `start` with this layout. Regions of the memory hold its `Dm`, so
        // there is none.
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

fn add(context: Held<Context>, memory: Arc<Memory>, handle: u32) -> *mut ibv_dm {
    let public = ibv_dm {
        context: context::context_of(context.public()),
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: abi::IBV_DM_MASK_HANDLE,
        handle,
    };
    Dm::registry().insert(public, Dm { memory, context, handle }).public()
}

/// `verbs_context.alloc_dm`. Does not start the engine.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    entry::object(|| {
        let context = context::hold(context)?;
        // SAFETY: the program passes NULL or valid attributes.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let memory = Memory::new(attr.length, attr.log_align_req)?;
        Ok(add(context, Arc::new(memory), number()))
    })
}

/// `verbs_context.free_dm`.
pub(crate) unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    entry::code(|| Dm::registry().remove(dm).map(drop))
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    len: usize,
) -> c_int {
    entry::code(|| {
        let dm = Dm::registry().get(dm)?;
        let place = dm.memory.words(offset, len)?;
        if from.is_null() && len > 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `place` has `len` bytes inside our memory, which `dm` keeps alive; the program
        // passes `len` readable bytes at `from`.
        unsafe { std::ptr::copy(from.cast::<u8>(), place, len) };
        Ok(())
    })
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    len: usize,
) -> c_int {
    entry::code(|| {
        let dm = Dm::registry().get(dm)?;
        let place = dm.memory.words(offset, len)?;
        if to.is_null() && len > 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: `place` has `len` bytes inside our memory, which `dm` keeps alive; the program
        // passes room for `len` bytes at `to`.
        unsafe { std::ptr::copy(place, to.cast::<u8>(), len) };
        Ok(())
    })
}

/// Makes another handle for the device memory with this number in the file of the context.
pub(crate) unsafe extern "C" fn ibv_import_dm(
    context: *mut ibv_context,
    handle: u32,
) -> *mut ibv_dm {
    entry::object(|| {
        let context = context::hold(context)?;
        let all = Dm::registry().all();
        let found = all.iter().find(|dm| dm.handle == handle && dm.context.file == context.file);
        let dm = found.ok_or(Errno::ENOENT)?;
        Ok(add(context, Arc::clone(&dm.memory), handle))
    })
}

pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    entry::nothing(|| Dm::registry().remove(dm).map(drop));
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
