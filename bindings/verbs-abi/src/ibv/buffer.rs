//! `ibv_buf`: memory that the library allocates for a program's regions.

use std::ffi::{c_int, c_void};

use super::mr;
use crate::abi::{ibv_mr, ibv_pd};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::objects::buffer::{Buffer, Handle};
use crate::objects::pd;

pub(crate) unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    place: *mut *mut Handle,
) -> *mut c_void {
    entry::object(|| {
        let pd = pd::hold(pd)?;
        if place.is_null() {
            return Err(Errno::EINVAL);
        }
        let buffer = Buffer::registry().insert(Handle::default(), Buffer::new(size, pd)?);
        // SAFETY: the program passes NULL or room for a pointer.
        unsafe { entry::write(place, buffer.public()) }?;
        Ok(buffer.start())
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
