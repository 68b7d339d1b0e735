//! Ports: the attributes that `ibv_query_port` returns.

use std::ffi::c_int;

use uroce::config::{Ethdev, PortConfig};
use uroce::{DeviceAttr, PathMtu, PortAttr};

use crate::abi::{self, _compat_ibv_port_attr, ibv_context, ibv_port_attr};
use crate::entry;
use crate::errno::Errno;
use crate::objects::context;
use crate::runtime::{self, Device};

/// A port's only partition key: the default one, as a full member.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// `IB_PORT_PHYS_STATE_LINK_UP`: the physical state of a port that is up.
const LINK_UP: u8 = 5;
/// `IB_PORT_PHYS_STATE_DISABLED`: the physical state of a port that is down.
const DISABLED: u8 = 3;
/// `IBV_QPF_GRH_REQUIRED`: addresses must have a GID.
const GRH_REQUIRED: u8 = 1;

/// Speed code for 200 Gb/s per lane, which does not fit into the 8-bit field.
const SPEED_XDR: u32 = 256;

const _: () = assert!(runtime::PORT_CAPS == abi::IBV_PORT_CM_SUP | abi::IBV_PORT_IP_BASED_GIDS);

/// `ibv_port_attr` of rdma-core 60 and later, which has one field more.
#[repr(C)]
struct LongAttr {
    attr: ibv_port_attr,
    active_speed_ex: u32,
}

/// A port of a device, numbered from 1.
///
/// # Errors
///
/// EINVAL if there is no such port, and the errors of [`Device::ports`].
pub(crate) fn find(device: &'static Device, number: u32) -> Result<PortAttr, Errno> {
    let ports = device.ports()?;
    let found = ports.into_iter().find(|port| u32::from(port.number) == number);
    found.ok_or(Errno::EINVAL)
}

/// The configuration of a port, numbered from 1.
///
/// # Errors
///
/// EINVAL if there is no such port, and the errors of [`Device::config`].
pub(crate) fn config(device: &Device, number: u8) -> Result<PortConfig, Errno> {
    let mut ports = device.config()?.ports;
    let at = usize::from(number).wrapping_sub(1);
    if at < ports.len() { Ok(ports.swap_remove(at)) } else { Err(Errno::EINVAL) }
}

/// Number of entries in a port's GID table, the empty ones included.
pub(crate) fn gid_table_len(port: &PortAttr) -> usize {
    runtime::gid_table_len(port.gids.len())
}

/// Whether the port is up, and its rate in Mb/s if known.
///
/// A port of a device that is not started is reported as up, because programs query it before they
/// start the device. A port with [`PortConfig::always_active`] is always reported as up. So is a
/// memif port, because a program that waits for a peer must not see a port that is down.
fn link(device: &'static Device, port: &PortAttr) -> Result<(bool, Option<u32>), Errno> {
    if !device.is_started() {
        return Ok((true, None));
    }
    let link = device.context()?.port_status(port.number)?.link;
    let waits = || {
        let config = config(device, port.number);
        config.is_ok_and(|port| port.always_active || is_memif(&port.ethdev))
    };
    Ok((link.up || waits(), link.speed_mbps))
}

fn is_memif(ethdev: &Ethdev) -> bool {
    matches!(ethdev, Ethdev::Vdev(arguments) if arguments.starts_with("net_memif"))
}

fn attr(device: &'static Device, number: u32) -> Result<LongAttr, Errno> {
    let port = find(device, number)?;
    let (is_up, mbps) = link(device, &port)?;
    let (width, speed) = runtime::speed_codes(mbps);
    // SAFETY: a C structure of numbers, for which zeros are valid.
    let mut attr: ibv_port_attr = unsafe { std::mem::zeroed() };
    attr.state = if is_up { abi::IBV_PORT_ACTIVE } else { abi::IBV_PORT_DOWN };
    attr.phys_state = if is_up { LINK_UP } else { DISABLED };
    attr.max_mtu = abi::IBV_MTU_4096;
    // The engine's MTU codes are those of the verbs interface.
    attr.active_mtu = port.max_path_mtu.unwrap_or(PathMtu::B256).code().into();
    attr.gid_tbl_len = gid_table_len(&port) as c_int;
    attr.port_cap_flags = runtime::PORT_CAPS;
    attr.max_msg_sz = DeviceAttr::of(&device.config()?).max_message_len;
    attr.pkey_tbl_len = 1;
    attr.lid = runtime::lid(&config(device, port.number)?);
    attr.max_vl_num = 1;
    attr.active_width = width;
    attr.active_speed = speed;
    attr.link_layer = abi::IBV_LINK_LAYER_ETHERNET as u8;
    attr.flags = GRH_REQUIRED;
    let active_speed_ex = if speed == 0 { SPEED_XDR } else { u32::from(speed) };
    Ok(LongAttr { attr, active_speed_ex })
}

/// `verbs_context.query_port`: writes as much as the program's structure has room for.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    number: u8,
    place: *mut ibv_port_attr,
    len: usize,
) -> c_int {
    entry::code(|| {
        let attr = attr(context::get(context)?.device, number.into())?;
        // SAFETY: the program passes NULL or room for `len` bytes.
        unsafe { entry::write_sized(place.cast(), len, &attr) }
    })
}

/// `ibv_query_port` as a symbol, which only programs compiled long ago call. They have room for the
/// structure of that time, 48 bytes.
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    number: u8,
    place: *mut _compat_ibv_port_attr,
) -> c_int {
    const LEN: usize = 48;
    // SAFETY: the program passes NULL or room for 48 bytes.
    unsafe { query_port(context, number, place.cast(), LEN) }
}
