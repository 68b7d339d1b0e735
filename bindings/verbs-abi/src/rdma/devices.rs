//! `rdma_get_devices`: the open devices that ids use.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::shared;
use crate::abi::ibv_context;
use crate::entry;
use crate::errno::Errno;
use crate::runtime;

/// Addresses of the lists that programs have not freed yet.
static LISTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    entry::pointer(|| {
        let devices = runtime::devices()?;
        if devices.is_empty() {
            return Err(Errno::ENODEV);
        }
        let open = |device| shared::of(device).map(shared::Shared::verbs);
        let contexts = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        // From C's allocator, because some programs free the list themselves.
        // SAFETY: `calloc` has no preconditions. The additional last entry stays NULL.
        let list: *mut *mut ibv_context =
            unsafe { libc::calloc(contexts.len() + 1, size_of::<*mut ibv_context>()) }.cast();
        if list.is_null() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: the list has more than this many entries, and `calloc` aligns it for pointers.
        unsafe { list.copy_from_nonoverlapping(contexts.as_ptr(), contexts.len()) };
        if !count.is_null() {
            // SAFETY: not NULL, so it is the program's room for a number.
            unsafe { entry::write(count, contexts.len() as c_int) }?;
        }
        LISTS.lock().unwrap_or_else(PoisonError::into_inner).push(list.addr());
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    entry::nothing(|| {
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        // A pointer that is not ours, or was freed already, is ignored.
        if let Some(at) = lists.iter().position(|known| *known == list.addr()) {
            lists.swap_remove(at);
            // SAFETY: the list was made by `calloc` above and not freed since.
            unsafe { libc::free(list.cast()) };
        }
        Ok(())
    });
}
