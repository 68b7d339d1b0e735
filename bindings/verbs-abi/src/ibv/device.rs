//! `ibv_device`: listing and opening devices.

use std::ffi::{c_char, c_int};

use super::context;
use crate::abi::{ibv_context, ibv_device};
use crate::entry;
use crate::handle::Object;
use crate::objects::context::{Context, verbs_of};
use crate::objects::device::{find, publics};

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    entry::pointer(|| {
        let publics = publics()?;
        if !count.is_null() {
            // SAFETY: not NULL, so it is the program's room for a number.
            unsafe { entry::write(count, publics.len() as c_int) }?;
        }
        let list: Box<[_]> = publics.chain([std::ptr::null_mut()]).collect();
        Ok(Box::into_raw(list).cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(devices: *mut *mut ibv_device) {
    entry::nothing(|| {
        if devices.is_null() {
            return Ok(());
        }
        let len = publics()?.len() + 1;
        // SAFETY: `ibv_get_device_list` made the list with this length, and the program frees it
        // once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(devices, len)) });
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    entry::pointer(|| {
        find(device)?;
        // SAFETY: `find` has found the pointer among our structures, which are never freed or
        // written.
        Ok(unsafe { (&raw const (*device).name).cast::<c_char>() }.cast_mut())
    })
}

pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    let mut guid = 0;
    entry::nothing(|| {
        guid = find(device)?.guid()?.to_be();
        Ok(())
    });
    guid
}

pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    entry::number(|| Ok(find(device)?.index() as c_int))
}

pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    entry::object(|| context::open(find(device)?))
}

pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // Objects made with the context stay usable, as with the kernel, and programs rely on it. The
    // context's memory is kept until the last of them is destroyed.
    entry::code(|| Context::registry().forget(verbs_of(context)).map(drop))
}
