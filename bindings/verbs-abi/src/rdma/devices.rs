//! The open devices that ids use: `rdma_get_devices`.

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use super::shared;
use crate::abi::ibv_context;
use crate::entry;
use crate::errno::Errno;
use crate::runtime;

/// Addresses of the lists that programs have.
static LISTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    entry::pointer(|| {
        let devices = runtime::devices()?;
        if devices.is_empty() {
            return Err(Errno::ENODEV);
        }
        let open = |device| shared::of(device).map(shared::Shared::verbs);
        let contexts = devices.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        // From C's allocator: there are programs that free it themselves.
        // SAFETY: sizes of pointers; there is one more, which stays NULL.
        let list: *mut *mut ibv_context =
            unsafe { libc::calloc(contexts.len() + 1, size_of::<*mut ibv_context>()) }.cast();
        if list.is_null() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: within the room that was just taken, which is aligned for pointers.
        unsafe { list.copy_from_nonoverlapping(contexts.as_ptr(), contexts.len()) };
        if !count.is_null() {
            // SAFETY: not NULL, so the caller's place for a number.
            unsafe { entry::write(count, contexts.len() as c_int) }?;
        }
        LISTS.lock().unwrap_or_else(PoisonError::into_inner).push(list.addr());
        Ok(list)
    })
}

pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    entry::nothing(|| {
        let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is not ours, or not any more, is left alone.
        if let Some(at) = lists.iter().position(|known| *known == list.addr()) {
            lists.swap_remove(at);
            // SAFETY: given out above and not taken back since.
            unsafe { libc::free(list.cast()) };
        }
        Ok(())
    });
}
