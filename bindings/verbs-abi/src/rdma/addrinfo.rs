//! `rdma_addrinfo`: resolves names and services to addresses.
//!
//! The C library's `getaddrinfo` does the work, and its error codes are returned unchanged. Only
//! the first address is returned. Routes are not looked up, with or without `RAI_NOROUTE`.

use std::ffi::{c_char, c_int};

use libc::{sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t};

use crate::abi::{
    IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, RAI_FAMILY,
    RAI_NOROUTE, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP,
    rdma_addrinfo, sockaddr,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Object, object};

const FLAGS: c_int = (RAI_PASSIVE | RAI_NUMERICHOST | RAI_NOROUTE | RAI_FAMILY).cast_signed();
const PASSIVE: c_int = RAI_PASSIVE.cast_signed();
/// InfiniBand's address family, which is not supported.
const AF_IB: c_int = 27;

/// The memory that the pointers of an `rdma_addrinfo` refer to.
pub(crate) struct AddrInfo {
    _addresses: [Option<Box<Address>>; 2],
}

object!(AddrInfo as rdma_addrinfo);

/// An address in C's form.
struct Address {
    bytes: sockaddr_storage,
    len: socklen_t,
}

pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    result: *mut *mut rdma_addrinfo,
) -> c_int {
    entry::number(|| {
        if result.is_null() || (node.is_null() && service.is_null() && hints.is_null()) {
            return Err(Errno::EINVAL);
        }
        let hints = match hints.is_null() {
            true => None,
            // SAFETY: not NULL, so it points to the program's hints.
            false => Some(unsafe { entry::read(hints) }?),
        };
        if hints.is_some_and(|hints| hints.ai_flags & !FLAGS != 0) {
            return Ok(libc::EAI_BADFLAGS);
        }
        if hints.is_some_and(|hints| hints.ai_family == AF_IB) {
            return Ok(libc::EAI_FAMILY);
        }
        let mut found = match (node.is_null() && service.is_null(), &hints) {
            (true, Some(hints)) => Found::of_hints(hints)?,
            // SAFETY: `node` and `service` are strings of the program or NULL.
            _ => match unsafe { look_up(node, service, hints.as_ref()) }? {
                Ok(found) => found,
                Err(code) => return Ok(code),
            },
        };
        if let (None, Some(hints)) = (&found.source, &hints) {
            // SAFETY: the hints name an address of this length, or NULL.
            found.source = unsafe { copy(hints.ai_src_addr, hints.ai_src_len) }?;
        }
        // SAFETY: not NULL, so it is the program's room for a pointer.
        unsafe { entry::write(result, found.publish()) }?;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(info: *mut rdma_addrinfo) {
    // A pointer that is not ours, or was freed already, is ignored.
    entry::nothing(|| match info.is_null() {
        true => Ok(()),
        false => AddrInfo::registry().remove(info).map(drop),
    });
}

/// The parts of a result, before it is registered.
struct Found {
    public: rdma_addrinfo,
    source: Option<Box<Address>>,
    destination: Option<Box<Address>>,
}

impl Found {
    fn new(flags: c_int, family: c_int, qp_type: c_int, port_space: c_int) -> Found {
        // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
        let mut public: rdma_addrinfo = unsafe { std::mem::zeroed() };
        public.ai_flags = flags;
        public.ai_family = family;
        public.ai_qp_type = qp_type;
        public.ai_port_space = port_space;
        Found { public, source: None, destination: None }
    }

    /// The result of a call without a node and a service: a copy of the hints.
    fn of_hints(hints: &rdma_addrinfo) -> Result<Found, Errno> {
        let rdma_addrinfo { ai_flags, ai_family, ai_qp_type, ai_port_space, .. } = *hints;
        let mut found = Found::new(ai_flags, ai_family, ai_qp_type, ai_port_space);
        // SAFETY: the hints name an address of this length, or NULL.
        found.destination = unsafe { copy(hints.ai_dst_addr, hints.ai_dst_len) }?;
        Ok(found)
    }

    fn publish(mut self) -> *mut rdma_addrinfo {
        (self.public.ai_src_addr, self.public.ai_src_len) = pointer_of(&mut self.source);
        (self.public.ai_dst_addr, self.public.ai_dst_len) = pointer_of(&mut self.destination);
        let value = AddrInfo { _addresses: [self.source, self.destination] };
        AddrInfo::registry().insert(self.public, value).public()
    }
}

fn pointer_of(address: &mut Option<Box<Address>>) -> (*mut sockaddr, socklen_t) {
    let none = (std::ptr::null_mut(), 0);
    address.as_mut().map_or(none, |address| ((&raw mut address.bytes).cast(), address.len))
}

/// Calls `getaddrinfo`. The inner error is its error code.
///
/// # Safety
///
/// `node` and `service` are NULL or C strings.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<Result<Found, c_int>, Errno> {
    let wanted = hints.map(to_libc);
    let wanted = wanted.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut list = std::ptr::null_mut();
    // SAFETY: `node` and `service` are C strings or NULL, `wanted` is valid hints or NULL, and
    // `list` is a local.
    let code = unsafe { libc::getaddrinfo(node, service, wanted, &raw mut list) };
    if code != 0 {
        return Ok(Err(code));
    }
    // SAFETY: the call has succeeded, so the list has an entry at least.
    let first = unsafe { list.read() };
    // SAFETY: the entry's address has this length.
    let address = unsafe { copy(first.ai_addr.cast(), first.ai_addrlen) };
    // SAFETY: the list is freed once, and not used afterwards.
    unsafe { libc::freeaddrinfo(list) };
    Ok(Ok(from_libc(&first, address?, hints)))
}

/// Converts hints for the C library.
fn to_libc(hints: &rdma_addrinfo) -> libc::addrinfo {
    // SAFETY: a C structure of numbers and nullable pointers, for which zeros are valid.
    let mut wanted: libc::addrinfo = unsafe { std::mem::zeroed() };
    let flag =
        |ours: u32, theirs| if hints.ai_flags & ours.cast_signed() != 0 { theirs } else { 0 };
    wanted.ai_flags =
        flag(RAI_PASSIVE, libc::AI_PASSIVE) | flag(RAI_NUMERICHOST, libc::AI_NUMERICHOST);
    wanted.ai_family = hints.ai_family;
    wanted.ai_socktype = match hints.ai_qp_type.cast_unsigned() {
        IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => libc::SOCK_STREAM,
        IBV_QPT_UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    wanted.ai_protocol = match hints.ai_port_space.cast_unsigned() {
        RDMA_PS_TCP => libc::IPPROTO_TCP,
        RDMA_PS_UDP | RDMA_PS_IPOIB => libc::IPPROTO_UDP,
        _ => 0,
    };
    wanted
}

/// Converts the C library's answer. Where the hints have a queue pair type or port space, it
/// replaces the one that follows from the answer.
fn from_libc(
    answer: &libc::addrinfo,
    address: Option<Box<Address>>,
    hints: Option<&rdma_addrinfo>,
) -> Found {
    let hint = |field: fn(&rdma_addrinfo) -> c_int| hints.map(field).filter(|value| *value != 0);
    let qp_type = match answer.ai_socktype {
        libc::SOCK_STREAM => IBV_QPT_RC,
        libc::SOCK_DGRAM => IBV_QPT_UD,
        _ => 0,
    };
    let port_space = match answer.ai_protocol {
        libc::IPPROTO_TCP => RDMA_PS_TCP,
        libc::IPPROTO_UDP => RDMA_PS_UDP,
        _ => 0,
    };
    let qp_type = hint(|hints| hints.ai_qp_type).unwrap_or(qp_type.cast_signed());
    let port_space = hint(|hints| hints.ai_port_space).unwrap_or(port_space.cast_signed());
    let is_passive = hints.is_some_and(|hints| hints.ai_flags & PASSIVE != 0);
    let flags = if is_passive { PASSIVE } else { 0 };
    let mut found = Found::new(flags, answer.ai_family, qp_type, port_space);
    match is_passive {
        true => found.source = address,
        false => found.destination = address,
    }
    found
}

/// Copies an address. `None` if `len` is 0.
///
/// # Errors
///
/// EINVAL if the address is NULL, shorter than its family requires, or of an unknown family.
///
/// # Safety
///
/// `address` is NULL or points to `len` bytes.
unsafe fn copy(address: *const sockaddr, len: socklen_t) -> Result<Option<Box<Address>>, Errno> {
    if len == 0 {
        return Ok(None);
    }
    if address.is_null() || (len as usize) < size_of::<libc::sa_family_t>() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: `address` is not NULL and has at least two bytes.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    let needed = match c_int::from(family) {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => return Err(Errno::EINVAL),
    };
    if (len as usize) < needed {
        return Err(Errno::EINVAL);
    }
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut bytes: sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: `address` has at least `needed` bytes, and a `sockaddr_storage` has room for any
    // address.
    unsafe { address.cast::<u8>().copy_to_nonoverlapping((&raw mut bytes).cast(), needed) };
    Ok(Some(Box::new(Address { bytes, len: needed as socklen_t })))
}

#[cfg(test)]
mod tests;
