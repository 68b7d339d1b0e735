//! Memory that the library allocates for a program's regions.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;

use super::pd::Pd;
use crate::errno::Errno;
use crate::handle::{Held, object};

const PAGE: usize = 4096;

/// The public structure of a buffer, of which programs have only the address.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Handle {
    _opaque: u64,
}

/// An allocated buffer.
pub(crate) struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
    pub(crate) pd: Held<Pd>,
}

object!(Buffer as Handle, of pd);

impl Buffer {
    /// Allocates `size` zeroed bytes, aligned to a page.
    ///
    /// # Errors
    ///
    /// EINVAL for a size of 0; ENOMEM if memory is short.
    pub(crate) fn new(size: usize, pd: Held<Pd>) -> Result<Buffer, Errno> {
        if size == 0 {
            return Err(Errno::EINVAL);
        }
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        Ok(Buffer { start, layout, pd })
    }

    /// Address of the first byte.
    pub(crate) fn start(&self) -> *mut c_void {
        self.start.as_ptr().cast()
    }

    /// EINVAL unless `len` bytes at `addr` are inside the buffer.
    pub(crate) fn check(&self, addr: usize, len: usize) -> Result<(), Errno> {
        let offset = addr.checked_sub(self.start.as_ptr().addr()).ok_or(Errno::EINVAL)?;
        let room = self.layout.size().checked_sub(offset).ok_or(Errno::EINVAL)?;
        if len <= room { Ok(()) } else { Err(Errno::EINVAL) }
    }
}

// SAFETY: this library never accesses the memory; it only frees it, once.
unsafe impl Send for Buffer {}
// SAFETY: this library never accesses the memory, so sharing adds no access.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `new` allocated `start` with this layout, and the program has freed the
        // buffer.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
