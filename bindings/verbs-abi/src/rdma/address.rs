//! Converts addresses and paths between C and the engine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use uroce::cm::raw::ResolvedPath;
use uroce::{AddressVector, Gid, PathMtu};

use crate::abi::{ibv_ah_attr, ibv_global_route, ibv_sa_path_rec, sockaddr, sockaddr_storage};
use crate::entry;
use crate::errno::Errno;
use crate::ibv::path::raw;
use crate::ibv::port::DEFAULT_PKEY;

/// Value of a path record's selectors for "exactly".
const EXACTLY: u8 = 2;

/// Reads an IP address and port. IPv4-mapped IPv6 addresses are converted to IPv4.
///
/// # Errors
///
/// EINVAL for NULL and for other address families.
///
/// # Safety
///
/// `pointer` is NULL or points to an address that is as long as its family says.
pub(crate) unsafe fn read(pointer: *const sockaddr) -> Result<SocketAddr, Errno> {
    // SAFETY: `pointer` is NULL or points to an address, which begins with its family.
    let family = unsafe { entry::read(pointer.cast::<libc::sa_family_t>()) }?;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            // SAFETY: an address of family AF_INET is a `sockaddr_in`.
            let address = unsafe { entry::read(pointer.cast::<libc::sockaddr_in>()) }?;
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Ok(SocketAddr::new(ip.into(), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: an address of family AF_INET6 is a `sockaddr_in6`.
            let address = unsafe { entry::read(pointer.cast::<libc::sockaddr_in6>()) }?;
            let (ip, port) =
                (Ipv6Addr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port));
            Ok(match ip.to_canonical() {
                IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into(),
                v4 => SocketAddr::new(v4, port),
            })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// The scope ID of an IPv6 address, which identifies its link. 0 if it has none.
pub(crate) fn scope(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

/// Sets the scope ID of an IPv6 link-local address. Leaves other addresses unchanged.
pub(crate) fn with_scope(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
        }
        other => other,
    }
}

/// Converts an IP address and port to C's structure.
pub(crate) fn storage(address: SocketAddr) -> sockaddr_storage {
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match address.ip() {
        IpAddr::V4(ip) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(ip).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: a `sockaddr_storage` has room for any address.
            unsafe { place.cast::<libc::sockaddr_in>().write(address) };
        }
        IpAddr::V6(ip) => {
            let address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: ip.octets() },
                sin6_scope_id: scope(address),
            };
            // SAFETY: a `sockaddr_storage` has room for any address.
            unsafe { place.cast::<libc::sockaddr_in6>().write(address) };
        }
    }
    storage
}

/// Converts an address vector to C's structure.
pub(crate) fn ah_attr(vector: &AddressVector, port: u8) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: raw(vector.dgid),
            flow_label: vector.flow_label,
            sgid_index: vector.sgid_index,
            hop_limit: vector.hop_limit.max(1),
            traffic_class: vector.traffic_class,
        },
        dlid: 0,
        sl: vector.service_level,
        src_path_bits: 0,
        static_rate: vector.static_rate.code(),
        is_global: 1,
        port_num: port,
    }
}

/// Converts a path to C's record. `timeout` is the code of the packet life time in one direction.
pub(crate) fn path_record(path: &ResolvedPath, path_mtu: PathMtu, timeout: u8) -> ibv_sa_path_rec {
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut record: ibv_sa_path_rec = unsafe { std::mem::zeroed() };
    record.sgid = raw(Gid::from(path.source));
    record.dgid = raw(path.vector.dgid);
    record.flow_label = path.vector.flow_label.to_be();
    record.hop_limit = path.vector.hop_limit;
    record.traffic_class = path.vector.traffic_class;
    record.reversible = 1;
    record.numb_path = 1;
    record.pkey = DEFAULT_PKEY.to_be();
    record.sl = path.vector.service_level;
    record.mtu_selector = EXACTLY;
    record.mtu = path_mtu.code();
    record.rate_selector = EXACTLY;
    record.rate = path.vector.static_rate.code();
    record.packet_life_time_selector = EXACTLY;
    record.packet_life_time = timeout;
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were_written() {
        for text in ["192.0.2.1:7471", "[2001:db8::1]:1", "[fe80::1%7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let storage = storage(address);
            // SAFETY: `storage` has a complete address.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        }
        let mapped = storage("[::ffff:192.0.2.1]:9".parse().unwrap());
        // SAFETY: `mapped` has a complete address.
        let read = unsafe { read((&raw const mapped).cast()) };
        assert_eq!(read, Ok("192.0.2.1:9".parse().unwrap()));
    }

    #[test]
    fn null_and_unknown_families_are_refused() {
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, Err(Errno::EINVAL));
        let mut other = storage("192.0.2.1:1".parse().unwrap());
        other.ss_family = 77;
        // SAFETY: `other` has a family, and for an unknown one no more is read.
        assert_eq!(unsafe { read((&raw const other).cast()) }, Err(Errno::EINVAL));
    }
}
