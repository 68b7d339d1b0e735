//! Addresses of ports: GIDs, and the partition key that there is.
//!
//! An index below the table's length without an address is empty, which is no error but where the
//! interface says so.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use uroce::{AddressVector, Gid, PortAttr};

use super::port::{self, DEFAULT_PKEY, gid_table_len};
use super::{ah, context};
use crate::abi::{self, ibv_ah_attr, ibv_context, ibv_gid, ibv_gid_entry};
use crate::entry;
use crate::errno::Errno;
use crate::runtime::Device;

/// `IBV_GID_TYPE_SYSFS_*`.
const SYSFS_IB_ROCE_V1: c_uint = 0;
const SYSFS_ROCE_V2: c_uint = 1;

const NO_VLAN: u16 = 0xffff;

/// The GID at an index; zero where there is none.
fn gid_at(port: &PortAttr, index: usize) -> Result<Gid, Errno> {
    if index >= gid_table_len(port) {
        return Err(Errno::EINVAL);
    }
    Ok(port.gids.get(index).copied().unwrap_or_default())
}

/// As programs have it.
pub(crate) fn raw(gid: Gid) -> ibv_gid {
    ibv_gid { raw: gid.0 }
}

/// As the engine has it.
pub(crate) fn from_raw(gid: &ibv_gid) -> Gid {
    // SAFETY: bytes, whatever was written.
    Gid(unsafe { gid.raw })
}

/// The kernel's number for the port's interface; 0: there is none.
fn netdev(device: &Device, port: &PortAttr) -> u32 {
    let name = device.netdev(port.number).ok().flatten();
    let name = name.and_then(|name| CString::new(name).ok());
    // SAFETY: a terminated string.
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
        // SAFETY: the program's room for a GID.
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
        // SAFETY: by the interface the program's entry has this length.
        unsafe { entry::write_sized(place.cast(), len, &found) }
    })
}

/// Writes the entries that are not empty; gives their number, or a negative error number.
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
            // SAFETY: by the interface the program has room for `room` entries of this length.
            unsafe { entry::write_sized(place, len, found) }?;
        }
        count = entries.len() as isize;
        Ok(())
    });
    if code == 0 { count } else { -(code as isize) }
}

/// Of an empty place the kernel has nothing to say, and libibverbs then says what the first version
/// was.
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
        // SAFETY: the program's room for a number.
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
        // SAFETY: the program's room for a key.
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

/// The Ethernet address of the next hop towards what `attr` names, and the VLAN that frames there
/// have.
pub(crate) unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    context: *mut ibv_context,
    attr: *mut ibv_ah_attr,
    mac: *mut [u8; 6],
    vid: *mut u16,
) -> c_int {
    entry::minus_one(|| {
        let context = context::get(context)?;
        // SAFETY: the program's attributes.
        let attr = unsafe { entry::read(attr) }?;
        let vector: AddressVector = ah::vector(context.device, &attr)?;
        let port = port::find(context.device, attr.port_num.into())?;
        if mac.is_null() || vid.is_null() {
            return Err(Errno::EINVAL);
        }
        let found = context.device.context()?.resolve(attr.port_num, &vector)?;
        // SAFETY: the program's room for an address.
        unsafe { entry::write(mac, found.0) }?;
        // SAFETY: the program's room for a number.
        unsafe { entry::write(vid, port.vlan.unwrap_or(NO_VLAN)) }
    })
}

/// Reads a small file of a directory, without the line feed at its end, and terminates it; gives its
/// length.
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
            // SAFETY: not NULL, so a terminated string of the program's.
            OsStr::from_bytes(unsafe { CStr::from_ptr(part) }.to_bytes())
        });
        let mut bytes = Vec::new();
        let room = room.min(c_int::MAX as usize);
        // By the C library, whose `open` may have been told where to look.
        let file = std::fs::File::open(Path::new(directory).join(name))?;
        file.take(room as u64).read_to_end(&mut bytes)?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        bytes.truncate(room - 1);
        // SAFETY: the program's room, which has these bytes and one more.
        unsafe {
            place.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
        // SAFETY: as above.
        unsafe { place.wrapping_add(bytes.len()).write(0) };
        Ok(bytes.len() as c_int)
    })
}
