//! Addresses of ports: the GID table, and the P_Key table with its one entry.
//!
//! An entry of the GID table without an address is the zero GID. To read such an entry is an error
//! only in the calls for which the interface says so.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uroce::{AddressVector, Gid, PortAttr};

use super::path::{raw, vector};
use super::port::{self, DEFAULT_PKEY, gid_table_len};
use crate::abi::{self, ibv_ah_attr, ibv_context, ibv_gid, ibv_gid_entry};
use crate::entry;
use crate::errno::Errno;
use crate::objects::context;
use crate::runtime::Device;

/// `IBV_GID_TYPE_SYSFS_IB_ROCE_V1`.
const SYSFS_IB_ROCE_V1: c_uint = 0;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`.
const SYSFS_ROCE_V2: c_uint = 1;

const NO_VLAN: u16 = 0xffff;

/// The GID at an index, or zero if the entry is empty. EINVAL beyond the table.
fn gid_at(port: &PortAttr, index: usize) -> Result<Gid, Errno> {
    if index >= gid_table_len(port) {
        return Err(Errno::EINVAL);
    }
    Ok(port.gids.get(index).copied().unwrap_or_default())
}

/// Kernel index of the network interface to show for the port. 0 if it does not exist.
fn netdev(device: &Device, port: &PortAttr) -> u32 {
    let name = device.netdev(port.number).ok().flatten();
    let name = name.and_then(|name| CString::new(name).ok());
    // SAFETY: `name` is a valid C string.
    name.map_or(0, |name| unsafe { libc::if_nametoindex(name.as_ptr()) })
}

fn entry_of(device: &Device, port: &PortAttr, index: usize) -> Result<ibv_gid_entry, Errno> {
    let gid = gid_at(port, index)?;
    if gid == Gid::default() {
        return Err(Errno::ENODATA);
    }
    Ok(ibv_gid_entry {
        gid: raw(gid),
        gid_index: index as u32,
        port_num: port.number.into(),
        gid_type: abi::IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: netdev(device, port),
    })
}

fn index(index: c_int) -> Result<usize, Errno> {
    usize::try_from(index).map_err(|_| Errno::EINVAL)
}

pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    number: u8,
    at: c_int,
    place: *mut ibv_gid,
) -> c_int {
    entry::minus_one(|| {
        let port = port::find(context::get(context)?.device, number.into())?;
        let gid = gid_at(&port, index(at)?)?;
        // SAFETY: the program passes NULL or room for a GID.
        unsafe { entry::write(place, raw(gid)) }
    })
}

pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    number: u32,
    at: u32,
    place: *mut ibv_gid_entry,
    flags: u32,
    len: usize,
) -> c_int {
    entry::code(|| {
        let context = context::get(context)?;
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        let port = port::find(context.device, number)?;
        let found = entry_of(context.device, &port, at as usize)?;
        // SAFETY: the program passes NULL or room for an entry of `len` bytes.
        unsafe { entry::write_sized(place.cast(), len, &found) }
    })
}

/// Writes all entries that are not empty. Returns their number, or a negative error number.
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    place: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    len: usize,
) -> isize {
    let mut count = 0;
    let code = entry::code(|| {
        let context = context::get(context)?;
        if flags != 0 || room == 0 || len == 0 {
            return Err(Errno::EINVAL);
        }
        let device = context.device;
        let mut entries = Vec::new();
        for port in device.ports()? {
            let all = (0..gid_table_len(&port)).map(|at| entry_of(device, &port, at));
            entries.extend(all.filter_map(Result::ok));
        }
        if entries.len() > room {
            return Err(Errno::EINVAL);
        }
        for (at, found) in entries.iter().enumerate() {
            let place = place.cast::<u8>().wrapping_add(at * len);
            // SAFETY: the program passes NULL or room for `room` entries of `len` bytes.
            unsafe { entry::write_sized(place, len, found) }?;
        }
        count = entries.len() as isize;
        Ok(())
    });
    if code == 0 { count } else { -(code as isize) }
}

/// `ibv_query_gid_type`: RoCE v2, but RoCE v1 for an empty entry. The kernel reports no type for
/// such an entry, and libibverbs then returns RoCE v1.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    number: u8,
    at: c_uint,
    place: *mut c_uint,
) -> c_int {
    entry::minus_one(|| {
        let port = port::find(context::get(context)?.device, number.into())?;
        let is_empty = gid_at(&port, at as usize)? == Gid::default();
        let kind = if is_empty { SYSFS_IB_ROCE_V1 } else { SYSFS_ROCE_V2 };
        // SAFETY: the program passes NULL or room for a number.
        unsafe { entry::write(place, kind) }
    })
}

pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    number: u8,
    at: c_int,
    place: *mut u16,
) -> c_int {
    entry::minus_one(|| {
        port::find(context::get(context)?.device, number.into())?;
        if at != 0 {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program passes NULL or room for a key.
        unsafe { entry::write(place, DEFAULT_PKEY.to_be()) }
    })
}

pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut ibv_context,
    number: u8,
    pkey: u16,
) -> c_int {
    entry::number(|| {
        port::find(context::get(context)?.device, number.into())?;
        if pkey == DEFAULT_PKEY.to_be() { Ok(0) } else { Err(Errno::EINVAL) }
    })
}

/// Resolves the Ethernet address of the next hop towards the destination of `attr`, and the VLAN of
/// frames to it.
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut [u8; 6],
    vid: *mut u16,
) -> c_int {
    entry::minus_one(|| {
        let context = context::get(context)?;
        // SAFETY: the program passes NULL or valid attributes.
        let attr = unsafe { entry::read(attr) }?;
        let vector: AddressVector = vector(context.device, &attr)?;
        let port = port::find(context.device, attr.port_num.into())?;
        if mac.is_null() || vid.is_null() {
            return Err(Errno::EINVAL);
        }
        let found = context.device.context()?.resolve(attr.port_num, &vector)?;
        // SAFETY: the program passes NULL or room for an address.
        unsafe { entry::write(mac, found.0) }?;
        // SAFETY: the program passes NULL or room for a number.
        unsafe { entry::write(vid, port.vlan.unwrap_or(NO_VLAN)) }
    })
}

/// Reads a small file of a directory into `place`. Removes a line feed at the end of what was read,
/// cuts the text to fit, and adds a terminating zero. Returns the text's length.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    name: *const c_char,
    place: *mut c_char,
    room: usize,
) -> c_int {
    entry::number(|| {
        if directory.is_null() || name.is_null() || place.is_null() || room == 0 {
            return Err(Errno::EINVAL);
        }
        let [directory, name] = [directory, name].map(|part| {
            // SAFETY: not NULL, so it is a C string of the program.
            OsStr::from_bytes(unsafe { CStr::from_ptr(part) }.to_bytes())
        });
        let mut bytes = Vec::new();
        let room = room.min(c_int::MAX as usize);
        // Opens the file through the C library, because the path shim may redirect its `open`.
        let file = std::fs::File::open(Path::new(directory).join(name))?;
        file.take(room as u64).read_to_end(&mut bytes)?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        bytes.truncate(room - 1);
        // SAFETY: the program passes `room` bytes, and `bytes` has fewer.
        unsafe {
            place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        // SAFETY: `bytes.len()` is less than `room`, so there is a byte for the terminator.
        unsafe { place.wrapping_add(bytes.len()).write(0) };
        Ok(bytes.len() as c_int)
    })
}
