//! Addresses of the machine. The members of the local fabric are one host to their programs, so an
//! address of the machine's kernel interfaces has the meaning that it has on Linux: an id bound to
//! it has the RDMA device, and a connection to it reaches the process that listens. libfabric binds
//! each of them to learn which device it has.
//!
//! In the fabric such an address stands for the member's own address of its IP version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uroce::cm::raw::is_own_node;

use super::address;
use crate::errno::Errno;
use crate::runtime::{self, Device};

/// Whether an address means this machine without naming a member: a loopback address, the
/// unspecified one, or in the local fabric one of a kernel interface.
pub(crate) fn is_host(ip: IpAddr) -> bool {
    is_own_node(ip) || matches!(behind(ip), Ok(Some(_)))
}

/// The device in the local fabric, its port and the port's own address, for which an address of the
/// machine's kernel interfaces stands. `None` for all other addresses, those of members included,
/// and for link-local ones, which belong to one interface.
///
/// # Errors
///
/// The errors of [`runtime::devices`].
pub(crate) fn behind(ip: IpAddr) -> Result<Option<(&'static Device, u8, IpAddr)>, Errno> {
    let is_link_local = matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    if is_own_node(ip) || ip.is_multicast() || is_link_local || !is_of_interface(ip) {
        return Ok(None);
    }
    // Another device may have the address of the interface behind its port.
    if super::listen::find(ip).is_ok() {
        return Ok(None);
    }
    for device in runtime::devices()? {
        if !device.config()?.ports.iter().any(runtime::is_local) {
            continue;
        }
        // The process is a member from here on, so the port has its addresses.
        device.ports()?;
        let config = device.config()?;
        let members = config.ports.iter().zip(1..).filter(|(port, _)| runtime::is_local(port));
        for (port, number) in members {
            if port.ip.iter().any(|own| own.contains(ip)) {
                return Ok(None);
            }
            let mut own = port.ip.iter().map(|own| own.address());
            if let Some(own) = own.find(|own| own.is_ipv4() == ip.is_ipv4()) {
                return Ok(Some((device, number, own)));
            }
        }
    }
    Ok(None)
}

/// Whether a kernel interface of this network namespace has the address.
fn is_of_interface(ip: IpAddr) -> bool {
    let mut first = std::ptr::null_mut();
    // SAFETY: `first` is a local.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return false;
    }
    let mut at = first;
    let mut is_there = false;
    // SAFETY: `at` is NULL or an entry of the list, which is not freed yet.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: an entry's address is NULL or as long as its family says.
        let address = unsafe { address::read(entry.ifa_addr.cast()) };
        is_there |= address.is_ok_and(|address| address.ip() == ip);
        at = entry.ifa_next;
    }
    // SAFETY: the list is freed once, and not used afterwards.
    unsafe { libc::freeifaddrs(first) };
    is_there
}

/// Returns the loopback address that stands for this machine in calls to the control plane.
pub(crate) fn loopback(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}
