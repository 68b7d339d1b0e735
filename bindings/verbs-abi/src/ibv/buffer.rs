//! `ibv_buf`: memory that the library allocates for a program's regions.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use super::mr;
use super::pd::{self, Pd};
use crate::abi::{ibv_mr, ibv_pd};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Held, Object, object};

const PAGE: usize = 4096;

/// The public structure of a buffer, of which programs have only the address.
#[repr(C)]
pub(crate) struct Handle {
    _opaque: u64,
}

/// An allocated buffer.
struct Buffer {
    start: NonNull<u8>,
    layout: Layout,
    pd: Held<Pd>,
}

object!(Buffer as Handle, of pd);

impl Buffer {
    /// EINVAL unless `len` bytes at `addr` are inside the buffer.
    fn check(&self, addr: usize, len: usize) -> Result<(), Errno> {
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
        // SAFETY: `ibv_alloc_buf` allocated `start` with this layout, and the program has freed the
        // buffer.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

pub(crate) unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    place: *mut *mut Handle,
) -> *mut c_void {
    entry::object(|| {
        let pd = pd::hold(pd)?;
        if size == 0 || place.is_null() {
            return Err(Errno::EINVAL);
        }
        let layout = Layout::from_size_align(size, PAGE).map_err(|_| Errno::ENOMEM)?;
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        let buffer = Buffer { start, layout, pd };
        let handle = Buffer::registry().insert(Handle { _opaque: 0 }, buffer).public();
        // SAFETY: the program passes NULL or room for a pointer.
        unsafe { entry::write(place, handle) }?;
        Ok(start.as_ptr().cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_free_buf(buffer: *mut Handle) {
    entry::nothing(|| Buffer::registry().remove(buffer).map(drop));
}

pub(crate) unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buffer: *mut Handle,
    addr: *mut c_void,
    len: usize,
    access: c_int,
) -> *mut ibv_mr {
    entry::object(|| {
        let buffer = Buffer::registry().get(buffer)?;
        if !std::ptr::eq(buffer.pd.public(), pd) {
            return Err(Errno::EINVAL);
        }
        buffer.check(addr.addr(), len)?;
        mr::register(pd, addr, len, addr.addr() as u64, access.cast_unsigned())
    })
}
