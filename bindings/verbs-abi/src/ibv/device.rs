//! `ibv_device`: the list of devices, and opening one.
//!
//! A device's structure stays where it is for the life of the process, whatever list it was in.

use std::ffi::{c_char, c_int};
use std::sync::OnceLock;

use crate::abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_context, ibv_device};
use crate::entry;
use crate::errno::Errno;
use crate::handle::Object;
use crate::ibv::context::{self, Context};
use crate::runtime::{self, Device};

/// Bytes of zero behind each `ibv_device`: drivers' libraries look for their operations there.
const TAIL: usize = 256;

/// A device as programs see it.
#[repr(C)]
struct Entry {
    public: ibv_device,
    _tail: [u8; TAIL],
    device: &'static Device,
}

/// The devices' structures, made once.
struct List(Vec<&'static Entry>);

// SAFETY: nothing writes to the structures once they are made; programs must not either.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

fn list() -> Result<&'static [&'static Entry], Errno> {
    static LIST: OnceLock<List> = OnceLock::new();
    let devices = runtime::devices()?;
    let entries = || List(devices.iter().map(|device| &*Box::leak(entry_of(device))).collect());
    Ok(&LIST.get_or_init(entries).0)
}

fn entry_of(device: &'static Device) -> Box<Entry> {
    // SAFETY: a C structure of numbers, characters and pointers that may be NULL.
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

/// As much of a text as fits, with a NUL behind it.
pub(crate) fn copy_text(place: &mut [c_char], text: &str) {
    let room = place.len() - 1;
    for (place, byte) in place[..room].iter_mut().zip(text.bytes()) {
        *place = byte.cast_signed();
    }
}

/// The device of a program's pointer.
///
/// # Errors
///
/// EINVAL if it is none.
pub(crate) fn find(device: *const ibv_device) -> Result<&'static Device, Errno> {
    let found = list()?.iter().find(|entry| std::ptr::eq(&raw const entry.public, device));
    found.map(|entry| entry.device).ok_or(Errno::EINVAL)
}

/// A program's pointer of a device.
///
/// # Errors
///
/// As [`runtime::devices`].
pub(crate) fn public_of(device: &Device) -> Result<*mut ibv_device, Errno> {
    let found = list()?.iter().find(|entry| std::ptr::eq(entry.device, device));
    found.map(|entry| (&raw const entry.public).cast_mut()).ok_or(Errno::ENODEV)
}

pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    entry::pointer(|| {
        let entries = list()?;
        if !count.is_null() {
            // SAFETY: not NULL, so the caller's place for a number.
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
        // SAFETY: what `ibv_get_device_list` gave, which is this long; by the caller's promise it
        // is given back once.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(devices, len)) });
        Ok(())
    });
}

pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    entry::pointer(|| {
        find(device)?;
        // SAFETY: one of ours, as was just found, so it is mapped and nobody writes to it.
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
    // What was made with it goes on, as with the kernel, and programs rely on it: a context that is
    // closed is not given back before the last of them.
    entry::code(|| Context::registry().forget(context::verbs_of(context)).map(drop))
}
