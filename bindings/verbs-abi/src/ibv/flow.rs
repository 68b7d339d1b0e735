//! `ibv_flow`: which frames raw packet queue pairs receive.
//!
//! Invariant: a queue pair with a flow cannot be destroyed (EBUSY).
//!
//! As with Linux's drivers the sizes of the specifications count, and not that in the attributes.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use uroce::{EthSpec, FlowKind, FlowMatch, FlowSpec, Ipv4Spec, Ipv6Spec, Mac, PortsSpec, QpType};

use crate::abi::{
    IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_FLAGS_DONT_TRAP, IBV_FLOW_ATTR_FLAGS_EGRESS,
    IBV_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_NORMAL, IBV_FLOW_ATTR_SNIFFER,
    IBV_FLOW_SPEC_ACTION_COUNT, IBV_FLOW_SPEC_ACTION_DROP, IBV_FLOW_SPEC_ACTION_HANDLE,
    IBV_FLOW_SPEC_ACTION_TAG, IBV_FLOW_SPEC_ESP, IBV_FLOW_SPEC_ETH, IBV_FLOW_SPEC_GRE,
    IBV_FLOW_SPEC_INNER, IBV_FLOW_SPEC_IPV4, IBV_FLOW_SPEC_IPV4_EXT, IBV_FLOW_SPEC_IPV6,
    IBV_FLOW_SPEC_MPLS, IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_UDP, IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow,
    ibv_flow_attr, ibv_flow_eth_filter, ibv_flow_ipv4_ext_filter, ibv_flow_ipv4_filter,
    ibv_flow_ipv6_filter, ibv_flow_spec_eth, ibv_flow_spec_ipv4, ibv_flow_spec_ipv4_ext,
    ibv_flow_spec_ipv6, ibv_flow_spec_tcp_udp, ibv_flow_tcp_udp_filter, ibv_qp,
};
use crate::entry;
use crate::errno::Errno;
use crate::handle::{Object, number};
use crate::objects::context;
use crate::objects::flow::Flow;
use crate::objects::qp::Qp;
use crate::runtime::{self, check_raw, say};

/// Largest number of specifications: as many layers as Linux takes.
const SPECS: usize = 10;

/// The beginning of each specification.
#[repr(C)]
#[derive(Clone, Copy)]
struct Head {
    kind: u32,
    size: u16,
}

const UNSUPPORTED: &str = "ibv_create_flow: uroce matches Ethernet, IPv4, IPv6, UDP and TCP, \
    without the flags of IPV4_EXT; there are no tunnels and no inner headers, and a flow has no \
    actions";
const FLAGS: &str = "ibv_create_flow: uroce has flows of received frames only, and each takes its \
    frames: neither IBV_FLOW_ATTR_FLAGS_EGRESS nor DONT_TRAP";

/// `verbs_context.ibv_create_flow`.
pub(crate) unsafe extern "C" fn create_flow(
    qp: *mut ibv_qp,
    attr: *mut ibv_flow_attr,
) -> *mut ibv_flow {
    entry::object(|| {
        runtime::usable()?;
        // SAFETY: the program passes NULL or a valid structure.
        let head = unsafe { entry::read(attr) }?;
        if head.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        check_raw()?;
        check_flags(&head)?;
        let its = Qp::registry().hold(qp.cast())?;
        if its.control.qp_type() != QpType::RawPacket {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the program passes as many specifications behind the attributes as these say.
        let kind = unsafe { kind_of(&head, attr) }?;
        let engine = its.engine()?.create_flow(head.port, kind)?;
        let context = context::context_of(its.context.public());
        let public = ibv_flow { comp_mask: 0, context, handle: number() };
        let value = Flow { engine: Mutex::new(Some(engine)), qp: its };
        Ok(Flow::registry().insert(public, value).public())
    })
}

/// `verbs_context.ibv_destroy_flow`.
pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    entry::code(|| {
        let removed = Flow::registry().remove(flow)?;
        let engine = removed.engine.lock().unwrap_or_else(PoisonError::into_inner).take();
        runtime::dispose(engine);
        Ok(())
    })
}

fn check_flags(head: &ibv_flow_attr) -> Result<(), Errno> {
    let known = IBV_FLOW_ATTR_FLAGS_DONT_TRAP | IBV_FLOW_ATTR_FLAGS_EGRESS;
    if head.flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    if head.flags != 0 {
        say(FLAGS);
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// What the attributes ask for. Default flows and sniffers have no specifications.
///
/// # Safety
///
/// As many specifications follow at `attr` as `head`, its copy, says.
unsafe fn kind_of(head: &ibv_flow_attr, attr: *const ibv_flow_attr) -> Result<FlowKind, Errno> {
    let rule = |specs: &[FlowSpec]| {
        FlowMatch::new(specs).map_err(|error| {
            say(&format!("ibv_create_flow: {error}"));
            Errno::EINVAL
        })
    };
    let has_specs = head.num_of_specs != 0;
    match head.type_ {
        IBV_FLOW_ATTR_NORMAL => {
            // SAFETY: the caller passes as many specifications.
            let specs = unsafe { specs_of(attr.wrapping_add(1).cast(), head.num_of_specs) }?;
            Ok(FlowKind::Rule(rule(&specs)?, head.priority))
        }
        _ if has_specs => Err(Errno::EINVAL),
        IBV_FLOW_ATTR_ALL_DEFAULT => Ok(FlowKind::Default(rule(&[])?)),
        IBV_FLOW_ATTR_MC_DEFAULT => Ok(FlowKind::Default(rule(&[FlowSpec::multicast()])?)),
        IBV_FLOW_ATTR_SNIFFER => Ok(FlowKind::Sniffer),
        _ => Err(Errno::EINVAL),
    }
}

/// Reads `count` specifications, one behind the other.
///
/// # Safety
///
/// `at` points to as many specifications, each of the size that it says.
unsafe fn specs_of(mut at: *const u8, count: u8) -> Result<Vec<FlowSpec>, Errno> {
    if usize::from(count) > SPECS {
        return Err(Errno::EINVAL);
    }
    let mut specs = Vec::with_capacity(SPECS);
    for _ in 0..count {
        // SAFETY: the caller passes another specification here, which begins with these fields.
        let head: Head = unsafe { entry::read(at.cast()) }?;
        // SAFETY: the caller passes a specification of the size that it says.
        specs.push(unsafe { spec_of(head, at) }?);
        at = at.wrapping_add(usize::from(head.size));
    }
    Ok(specs)
}

/// Reads a specification.
///
/// # Safety
///
/// `at` points to a specification, which is as long as `head`, its beginning, says.
unsafe fn spec_of(head: Head, at: *const u8) -> Result<FlowSpec, Errno> {
    /// Reads a whole structure, if the size is right.
    ///
    /// # Safety
    ///
    /// As many bytes are at `at` as `head` says.
    unsafe fn read<T: Copy>(head: Head, at: *const u8) -> Result<T, Errno> {
        if usize::from(head.size) != size_of::<T>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller passes as many bytes.
        unsafe { entry::read(at.cast()) }
    }
    match head.kind {
        IBV_FLOW_SPEC_ETH => {
            // SAFETY: the caller passes a specification of this type and of its size.
            let spec: ibv_flow_spec_eth = unsafe { read(head, at) }?;
            Ok(FlowSpec::Eth(eth_of(&spec.val), eth_of(&spec.mask)))
        }
        IBV_FLOW_SPEC_IPV4 => {
            // SAFETY: the caller passes a specification of this type and of its size.
            let spec: ibv_flow_spec_ipv4 = unsafe { read(head, at) }?;
            Ok(FlowSpec::Ipv4(ipv4_of(&spec.val), ipv4_of(&spec.mask)))
        }
        IBV_FLOW_SPEC_IPV4_EXT => {
            // SAFETY: the caller passes a specification of this type and of its size.
            let spec: ibv_flow_spec_ipv4_ext = unsafe { read(head, at) }?;
            if spec.mask.flags != 0 {
                return unsupported();
            }
            Ok(FlowSpec::Ipv4(ipv4_ext_of(&spec.val), ipv4_ext_of(&spec.mask)))
        }
        IBV_FLOW_SPEC_IPV6 => {
            // SAFETY: the caller passes a specification of this type and of its size.
            let spec: ibv_flow_spec_ipv6 = unsafe { read(head, at) }?;
            Ok(FlowSpec::Ipv6(ipv6_of(&spec.val), ipv6_of(&spec.mask)))
        }
        IBV_FLOW_SPEC_UDP | IBV_FLOW_SPEC_TCP => {
            // SAFETY: the caller passes a specification of this type and of its size.
            let spec: ibv_flow_spec_tcp_udp = unsafe { read(head, at) }?;
            let (value, mask) = (ports_of(&spec.val), ports_of(&spec.mask));
            Ok(match head.kind {
                IBV_FLOW_SPEC_UDP => FlowSpec::Udp(value, mask),
                _ => FlowSpec::Tcp(value, mask),
            })
        }
        IBV_FLOW_SPEC_ESP
        | IBV_FLOW_SPEC_VXLAN_TUNNEL
        | IBV_FLOW_SPEC_GRE
        | IBV_FLOW_SPEC_MPLS
        | IBV_FLOW_SPEC_ACTION_TAG
        | IBV_FLOW_SPEC_ACTION_DROP
        | IBV_FLOW_SPEC_ACTION_HANDLE
        | IBV_FLOW_SPEC_ACTION_COUNT => unsupported(),
        inner if inner & IBV_FLOW_SPEC_INNER != 0 => unsupported(),
        _ => Err(Errno::EINVAL),
    }
}

fn unsupported<T>() -> Result<T, Errno> {
    say(UNSUPPORTED);
    Err(Errno::EOPNOTSUPP)
}

fn eth_of(filter: &ibv_flow_eth_filter) -> EthSpec {
    EthSpec {
        dst: Mac(filter.dst_mac),
        src: Mac(filter.src_mac),
        ether_type: u16::from_be(filter.ether_type),
        vlan_tag: u16::from_be(filter.vlan_tag),
    }
}

/// An IPv4 address in network byte order.
fn ip_of(word: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from_be(word))
}

fn ipv4_of(filter: &ibv_flow_ipv4_filter) -> Ipv4Spec {
    let (src, dst) = (ip_of(filter.src_ip), ip_of(filter.dst_ip));
    Ipv4Spec { src, dst, ..Ipv4Spec::default() }
}

fn ipv4_ext_of(filter: &ibv_flow_ipv4_ext_filter) -> Ipv4Spec {
    Ipv4Spec {
        src: ip_of(filter.src_ip),
        dst: ip_of(filter.dst_ip),
        protocol: filter.proto,
        traffic_class: filter.tos,
        ttl: filter.ttl,
    }
}

fn ipv6_of(filter: &ibv_flow_ipv6_filter) -> Ipv6Spec {
    Ipv6Spec {
        src: Ipv6Addr::from_octets(filter.src_ip),
        dst: Ipv6Addr::from_octets(filter.dst_ip),
        flow_label: u32::from_be(filter.flow_label),
        next_header: filter.next_hdr,
        traffic_class: filter.traffic_class,
        hop_limit: filter.hop_limit,
    }
}

fn ports_of(filter: &ibv_flow_tcp_udp_filter) -> PortsSpec {
    PortsSpec { src: u16::from_be(filter.src_port), dst: u16::from_be(filter.dst_port) }
}
