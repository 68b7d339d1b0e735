//! `ibv_dm`: device memory, which is memory of this library that programs reach by copies only.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use super::context::{self, Context};
use crate::abi::{self, ibv_alloc_dm_attr, ibv_context, ibv_dm};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object, number, object};

/// The most that is given at a time.
pub(crate) const MAX_DM_SIZE: usize = 1 << 20;

/// Copies begin and end at multiples of this, as with memory on a bus.
const WORD: usize = 4;

/// Device memory.
pub(crate) struct Dm {
    memory: Arc<Memory>,
    pub(crate) context: Held<Context>,
    handle: u32,
}

object!(Dm as ibv_dm);

/// The bytes. The engine and programs copy to and from them at the same time, as with a device's:
/// no reference to them exists.
struct Memory {
    start: NonNull<u8>,
    len: usize,
    layout: Layout,
}

// SAFETY: the memory is this value's own, and is only copied to and from by raw pointers.
unsafe impl Send for Memory {}
// SAFETY: as above.
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
        // SAFETY: the length is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        Ok(Memory { start, len, layout })
    }

    /// The first byte of a range that lies inside.
    fn place(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        match self.len.checked_sub(offset) {
            Some(room) if len <= room => Ok(self.start.as_ptr().wrapping_add(offset)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The same of whole words.
    fn words(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        if !offset.is_multiple_of(WORD as u64) || !len.is_multiple_of(WORD) {
            return Err(Errno::EINVAL);
        }
        self.place(offset, len)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout; regions of it hold its `Dm`, so none is left.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Dm {
    /// Where a part of it is.
    ///
    /// # Errors
    ///
    /// EINVAL if it reaches beyond.
    pub(crate) fn place(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        self.memory.place(offset, len)
    }
}

/// The memory of a program's pointer, as a part of another object.
///
/// # Errors
///
/// EINVAL if it is none.
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

/// In `verbs_context`. Needs no engine.
pub(crate) unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    entry::object(|| {
        let context = context::hold(context)?;
        // SAFETY: the program's attributes.
        let attr = unsafe { entry::read(attr) }?;
        if attr.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        let memory = Memory::new(attr.length, attr.log_align_req)?;
        Ok(add(context, Arc::new(memory), number()))
    })
}

/// In `verbs_context`.
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
        // SAFETY: inside of our memory, which is kept meanwhile; the source is the program's, as
        // long as it says.
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
        // SAFETY: as in `memcpy_to_dm`, the other way round.
        unsafe { std::ptr::copy(place, to.cast::<u8>(), len) };
        Ok(())
    })
}

/// The memory of that number in the file of a context, under another name.
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
