//! `ibv_device`: listing and opening devices.
//!
//! The structure of a device exists at one address for the life of the process; lists only point to
//! it.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_context, ibv_device};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::ibv::context::{self, Context};
use crate::runtime::{self, Device};

/// Zero bytes after each `ibv_device`. Vendors' libraries look for their driver's operations there.
const TAIL: usize = 256;

/// A device's public structure, with the device.
#[repr(C)]
struct Entry {
    public: ibv_device,
    _tail: [u8; TAIL],
    device: &'static Device,
}

/// The structures of all devices, made once.
struct List(Vec<&'static Entry>);

// SAFETY: the structures are not written after they are made; programs must not write them either.
unsafe impl Send for List {}
// SAFETY: the structures are not written after they are made, so any thread may read them.
unsafe impl Sync for List {}

fn list() -> Result<&'static [&'static Entry], Errno> {
    static LIST: OnceLock<List> = OnceLock::new();
    let devices = runtime::devices()?;
    let entries = || List(devices.iter().map(|device| &*Box::leak(entry_of(device))).collect());
    Ok(&LIST.get_or_init(entries).0)
}

fn entry_of(device: &'static Device) -> Box<Entry> {
    // SAFETY: a C structure of numbers, characters and nullable pointers, for which zeros are
    // valid.
    let mut public: ibv_device = unsafe { std::mem::zeroed() };
    public.node_type = IBV_NODE_CA;
    public.transport_type = IBV_TRANSPORT_IB;
    copy_text(&mut public.name, device.name());
    copy_text(&mut public.dev_name, &format!("uverbs{}", device.index()));
    copy_text(
        &mut public.dev_path,
        &format!("/sys/class/infiniband_verbs/uverbs{}", device.index()),
    );
    copy_text(&mut public.ibdev_path, &format!("/sys/class/infiniband/{}", device.name()));
    Box::new(Entry { public, _tail: [0; TAIL], device })
}

/// Copies as much of a text as fits before the last byte. `place` must be zero, so that a NUL
/// follows.
pub(crate) fn copy_text(place: &mut [c_char], text: &str) {
    let room = place.len() - 1;
    for (place, byte) in place[..room].iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
}

/// The device that a program's pointer refers to.
///
/// # Errors
///
/// EINVAL if it is not a device of this library.
pub(crate) fn find(device: *const ibv_device) -> Result<&'static Device, Errno> {
    let found = list()?.iter().find(|entry| std::ptr::eq(&raw const entry.public, device));
    found.map(|entry| entry.device).ok_or(Errno::EINVAL)
}

/// The pointer that programs have for a device.
///
/// # Errors
///
/// The errors of [`runtime::devices`].
pub(crate) fn public_of(device: &Device) -> Result<*mut ibv_device, Errno> {
    let found = list()?.iter().find(|entry| std::ptr::eq(entry.device, device));
    found.map(|entry| (&raw const entry.public).cast_mut()).ok_or(Errno::ENODEV)
}

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    entry::pointer(|| {
        let entries = list()?;
        if !count.is_null() {
            // SAFETY: not NULL, so it is the program's room for a number.
            unsafe { entry::write(count, entries.len() as c_int) }?;
        }
        let publics = entries.iter().map(|entry| (&raw const entry.public).cast_mut());
        let list: Box<[_]> = publics.chain([std::ptr::null_mut()]).collect();
        Ok(Box::into_raw(list).cast())
    })
}

pub(crate) unsafe extern "C" fn ibv_free_device_list(devices: *mut *mut ibv_device) {
    entry::nothing(|| {
        if devices.is_null() {
            return Ok(());
        }
        let len = list()?.len() + 1;
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
    entry::code(|| Context::registry().forget(context::verbs_of(context)).map(drop))
}
