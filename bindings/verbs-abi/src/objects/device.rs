//! The public structures of devices.
//!
//! The structure of a device exists at one address for the life of the process; lists only point to
//! it.

use std::ffi::c_char;
use std::sync::OnceLock;

use crate::abi::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_device};
use crate::errno::Errno;
use crate::runtime::{self, Device};

/// Zero bytes after each `ibv_device`. Vendors' libraries look for their driver's operations there.
const TAIL: usize = 256;

/// A device's public structure, with the device.
#[repr(C)]
struct Listed {
    public: ibv_device,
    _tail: [u8; TAIL],
    device: &'static Device,
}

/// The structures of all devices, made once.
struct List(Vec<&'static Listed>);

// SAFETY: the structures are not written after they are made; programs must not write them either.
unsafe impl Send for List {}
// SAFETY: the structures are not written after they are made, so any thread may read them.
unsafe impl Sync for List {}

fn list() -> Result<&'static [&'static Listed], Errno> {
    static LIST: OnceLock<List> = OnceLock::new();
    let devices = runtime::devices()?;
    let all = || List(devices.iter().map(|device| &*Box::leak(listed_of(device))).collect());
    Ok(&LIST.get_or_init(all).0)
}

fn listed_of(device: &'static Device) -> Box<Listed> {
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
    Box::new(Listed { public, _tail: [0; TAIL], device })
}

/// The pointers that programs have for all devices.
///
/// # Errors
///
/// The errors of [`runtime::devices`].
pub(crate) fn publics() -> Result<impl ExactSizeIterator<Item = *mut ibv_device>, Errno> {
    Ok(list()?.iter().map(|listed| (&raw const listed.public).cast_mut()))
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
    let found = list()?.iter().find(|listed| std::ptr::eq(&raw const listed.public, device));
    found.map(|listed| listed.device).ok_or(Errno::EINVAL)
}

/// The pointer that programs have for a device.
///
/// # Errors
///
/// The errors of [`runtime::devices`].
pub(crate) fn public_of(device: &Device) -> Result<*mut ibv_device, Errno> {
    let found = list()?.iter().find(|listed| std::ptr::eq(listed.device, device));
    found.map(|listed| (&raw const listed.public).cast_mut()).ok_or(Errno::ENODEV)
}
