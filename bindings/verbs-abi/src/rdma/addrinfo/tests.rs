use std::ffi::CString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::*;

fn hints() -> rdma_addrinfo {
    Found::new(0, 0, 0, 0).public
}

/// The code and the result of `rdma_getaddrinfo`.
fn ask(
    node: Option<&str>,
    service: Option<&str>,
    hints: Option<&rdma_addrinfo>,
) -> (c_int, *mut rdma_addrinfo) {
    let text = |text: Option<&str>| text.map(|text| CString::new(text).unwrap());
    let (node, service) = (text(node), text(service));
    let pointer = |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |t| t.as_ptr());
    let hints = hints.map_or(std::ptr::null(), std::ptr::from_ref);
    let mut result = std::ptr::null_mut();
    // SAFETY: the strings, the hints and `result` outlive the call.
    let code =
        unsafe { rdma_getaddrinfo(pointer(&node), pointer(&service), hints, &raw mut result) };
    (code, result)
}

fn free(info: *mut rdma_addrinfo) {
    // SAFETY: any pointer is allowed.
    unsafe { rdma_freeaddrinfo(info) };
}

fn address(pointer: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    // SAFETY: the call returned this address with its length.
    let address = unsafe { copy(pointer, len) }.unwrap()?;
    let bytes = &raw const address.bytes;
    Some(match c_int::from(address.bytes.ss_family) {
        libc::AF_INET => {
            // SAFETY: an address of family AF_INET is a `sockaddr_in`.
            let v4 = unsafe { bytes.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port))
        }
        _ => {
            // SAFETY: the family is AF_INET6, so the address is a `sockaddr_in6`.
            let v6 = unsafe { bytes.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            SocketAddr::new(IpAddr::V6(ip), u16::from_be(v6.sin6_port))
        }
    })
}

/// The source and destination of a result.
fn addresses(info: *const rdma_addrinfo) -> (Option<SocketAddr>, Option<SocketAddr>) {
    // SAFETY: `info` is a result that is not freed yet.
    let info = unsafe { info.read() };
    (address(info.ai_src_addr, info.ai_src_len), address(info.ai_dst_addr, info.ai_dst_len))
}

fn to(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn an_active_side_gets_a_destination() {
    let mut rc = hints();
    rc.ai_port_space = RDMA_PS_TCP.cast_signed();
    let (code, info) = ask(Some("192.0.2.7"), Some("7471"), Some(&rc));
    assert_eq!(code, 0);
    assert_eq!(addresses(info), (None, to("192.0.2.7:7471")));
    // SAFETY: `info` is not freed yet.
    let given = unsafe { info.read() };
    assert_eq!(given.ai_qp_type, IBV_QPT_RC.cast_signed());
    assert_eq!((given.ai_flags, given.ai_family), (0, libc::AF_INET));
    assert!(given.ai_next.is_null() && given.ai_route.is_null() && given.ai_connect.is_null());
    free(info);
}

#[test]
fn a_passive_side_gets_a_source_which_may_be_any() {
    let mut ud = hints();
    ud.ai_flags = PASSIVE;
    ud.ai_family = libc::AF_INET6;
    ud.ai_port_space = RDMA_PS_UDP.cast_signed();
    let (code, info) = ask(None, Some("7174"), Some(&ud));
    assert_eq!(code, 0);
    assert_eq!(addresses(info), (to("[::]:7174"), None));
    // SAFETY: `info` is not freed yet.
    let given = unsafe { info.read() };
    assert_eq!(given.ai_qp_type, IBV_QPT_UD.cast_signed());
    assert_eq!((given.ai_flags, given.ai_family), (PASSIVE, libc::AF_INET6));
    free(info);
}

#[test]
fn the_hints_addresses_are_copied() {
    let (_, from) = ask(Some("2001:db8::5"), None, None);
    let mut both = hints();
    // SAFETY: `from` is not freed yet.
    let from_info = unsafe { from.read() };
    both.ai_src_addr = from_info.ai_dst_addr;
    both.ai_src_len = from_info.ai_dst_len;
    let (code, info) = ask(Some("2001:db8::6"), Some("1"), Some(&both));
    free(from);
    assert_eq!(code, 0);
    assert_eq!(addresses(info), (to("[2001:db8::5]:0"), to("[2001:db8::6]:1")));
    // Names are not needed if the hints have addresses.
    // SAFETY: `info` is not freed yet.
    let mut alone = unsafe { info.read() };
    alone.ai_flags = PASSIVE;
    let (code, copied) = ask(None, None, Some(&alone));
    free(info);
    assert_eq!(code, 0);
    assert_eq!(addresses(copied), (to("[2001:db8::5]:0"), to("[2001:db8::6]:1")));
    free(copied);
}

#[test]
fn errors_of_the_c_library_are_passed_on() {
    let mut numeric = hints();
    numeric.ai_flags = RAI_NUMERICHOST.cast_signed();
    assert_eq!(ask(Some("no number"), None, Some(&numeric)).0, libc::EAI_NONAME);
    let mut odd = hints();
    odd.ai_qp_type = IBV_QPT_UD.cast_signed();
    odd.ai_port_space = RDMA_PS_TCP.cast_signed();
    assert_eq!(ask(Some("192.0.2.1"), None, Some(&odd)).0, libc::EAI_SOCKTYPE);
    assert_eq!(ask(Some("192.0.2.1"), Some("no service"), None).0, libc::EAI_SERVICE);
    let mut infiniband = hints();
    infiniband.ai_family = AF_IB;
    assert_eq!(ask(Some("192.0.2.1"), None, Some(&infiniband)).0, libc::EAI_FAMILY);
    let mut unknown = hints();
    unknown.ai_flags = 1 << 30;
    assert_eq!(ask(Some("192.0.2.1"), None, Some(&unknown)).0, libc::EAI_BADFLAGS);
}

#[test]
fn bad_arguments_are_einval() {
    assert_eq!(ask(None, None, None), (-1, std::ptr::null_mut()));
    assert_eq!(errno(), libc::EINVAL);
    let nowhere = std::ptr::null_mut();
    let address = c"::1".as_ptr();
    // SAFETY: NULL is allowed.
    let code = unsafe { rdma_getaddrinfo(address, nowhere, nowhere.cast(), nowhere.cast()) };
    assert_eq!(code, -1);
    assert_eq!(errno(), libc::EINVAL);
    let mut short = hints();
    let mut bytes = [0u8; 64];
    bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    short.ai_src_addr = (&raw mut bytes).cast();
    short.ai_src_len = 16;
    assert_eq!(ask(None, None, Some(&short)).0, -1);
    assert_eq!(errno(), libc::EINVAL);
    short.ai_src_addr = std::ptr::null_mut();
    assert_eq!(ask(Some("::1"), None, Some(&short)).0, -1);
    assert_eq!(errno(), libc::EINVAL);
}

#[test]
fn foreign_pointers_are_not_freed() {
    free(std::ptr::null_mut());
    let mut foreign = hints();
    free(&raw mut foreign);
    let (_, info) = ask(Some("192.0.2.1"), None, None);
    free(info);
    free(info);
}
